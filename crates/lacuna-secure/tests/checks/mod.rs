//! Checks of packets that somebody else may have made: for ordinary tests and for fuzzing.

use lacuna_secure::{Association, Cipher, End, HEAD_BYTES, Limits, Secret, TRAILER_BYTES};
use std::collections::HashSet;

const CHANNELS: u8 = 2;
/// So few that keys are replaced all the time.
const LIMITS: Limits = Limits { packets: 5, packets_max: 1 << 23, bytes: 600, ns: 50 };

/// Two ends, and somebody on the path who keeps every packet, changes what he likes, and delivers it anywhere and again. Each
/// two bytes are an operation. Whatever they say: what is opened was sealed by the other end for this channel, has not
/// been changed, and is opened once; and what the ends deliver untouched goes through.
pub(crate) fn sealed(operations: &[u8]) {
    let secret = [7; 32];
    let ends = [End::Connecting, End::Accepting];
    let ends = ends.map(|end| {
        Association::new(Cipher::Aes128Gcm, Secret::new(secret), end, CHANNELS, LIMITS, 0)
    });
    // The sender's end, channel, the packet before it was sealed, and sealed.
    let mut kept: Vec<(usize, u8, Vec<u8>, Vec<u8>)> = Vec::new();
    let mut opened = HashSet::new();
    for (step, operation) in operations.chunks_exact(2).enumerate().take(500) {
        let (now_ns, [what, which]) = (step as u64, [operation[0], operation[1]]);
        let (from, channel) = (usize::from(what & 1), what >> 1 & 1);
        let is_new = what & 4 == 0 || kept.is_empty();
        if is_new {
            let mut packet = vec![which; HEAD_BYTES + usize::from(which) + TRAILER_BYTES];
            let plain = packet[..packet.len() - TRAILER_BYTES].to_vec();
            let mut sealer = ends[from].sealer(channel, now_ns).expect("there is such a channel");
            if sealer.seal(&mut packet).is_err() {
                continue;
            }
            kept.push((from, channel, plain, packet));
        }
        let index = if is_new { kept.len() - 1 } else { usize::from(which) % kept.len() };
        let (of, its_channel, plain, packet) = &kept[index];
        let mut came = packet.clone();
        let mut is_touched = false;
        if what & 8 != 0 {
            let at = usize::from(operation[1]) * 7 % came.len();
            came[at] ^= 1 << (what >> 4 & 7);
            is_touched = true;
        }
        if what & 0x80 != 0 {
            came.truncate(came.len() - 1 - usize::from(which) % came.len().min(30));
            is_touched = true;
        }
        // Mostly to where it belongs; sometimes back to who sealed it, or to the other channel.
        let to = if what & 0x30 == 0x30 { *of } else { 1 - of };
        let at_channel = if what & 0x50 == 0x50 { 1 - its_channel } else { *its_channel };
        let mut out = vec![0; came.len()];
        let mut opener = ends[to].opener(at_channel, now_ns).expect("there is such a channel");
        match opener.open(&came, &mut out) {
            Ok(text) => {
                assert!(!is_touched && to != *of && at_channel == *its_channel);
                assert_eq!(text, plain);
                assert!(opened.insert(index), "it was opened before");
            }
            // What is fresh and untouched is opened, if both ends have heard each other often enough.
            Err(error) => {
                let is_good = is_new && !is_touched && to != *of && at_channel == *its_channel;
                assert!(!is_good || kept.len() > 1, "{error}");
            }
        }
    }
}
