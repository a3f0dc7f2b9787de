//! Losses that a block's repairs can repair are not seen above, in any flow and at any strength.

mod support;

use lacuna_link::SplitMix64;
use lacuna_lowar::{Encoder, How};
use lacuna_wire::rc::{CodeKind, RepairHeader, Strength};
use support::*;

/// Sends packets through both ends; `is_lost` says which data packets of a block are, once its repairs
/// are known. Returns what was handed up.
struct Path {
    shared: lacuna_lowar::Shared,
    encoder: Encoder,
    decoder: lacuna_lowar::Decoder,
    up: Receiver,
    now_ns: u64,
}

impl Path {
    fn new(strength: Option<Strength>) -> Self {
        let mut encoder = Encoder::new();
        encoder.set_strength(strength).unwrap();
        Self { shared: shared(), encoder, decoder: decoder(), up: Receiver::default(), now_ns: 0 }
    }

    fn arrive(&mut self, packet: &[u8]) {
        self.now_ns += 1_000;
        deliver(&mut self.decoder, &mut self.shared, self.now_ns, packet, &mut self.up);
    }
}

fn assert_same(up: &Receiver, sent: &[Vec<u8>], why: &str) {
    for (at, ((found, how), sent)) in up.packets.iter().zip(sent).enumerate() {
        let is_same = match how {
            How::Recovered => without_flags(found) == without_flags(sent),
            _ => found == sent,
        };
        let (found, sent) = (&found[..12], &sent[..12]);
        assert!(is_same, "packet {at}, {how:?}: {found:x?} is not {sent:x?}; {why}");
    }
    assert_eq!(up.packets.len(), sent.len(), "{why}");
}

#[test]
fn a_path_without_faults_holds_and_recovers_nothing() {
    for seed in 0..100 {
        let mut messages = Messages::new(seed);
        let mut random = SplitMix64::new(seed + 1);
        let mut path = Path::new(Some(any_strength(&mut random)));
        path.encoder.set_caps_short_blocks(seed % 2 == 0);
        let sent = messages.messages(30);
        for packet in &sent {
            for packet in encode(&mut path.encoder, &mut path.shared, packet) {
                path.arrive(&packet);
            }
            assert!(!path.decoder.holds_packets());
        }
        assert_same(&path.up, &sent, &format!("seed {seed}"));
        assert_eq!(path.up.count(How::Passed), sent.len());
        let counters = path.decoder.counters();
        assert_eq!((counters.repairs_refused, counters.blocks_blind), (0, 0), "seed {seed}");
        assert_eq!(path.shared.decode.used() + path.shared.encode.used(), 0, "seed {seed}");
    }
}

/// Blocks of what leaves, with the data packets of each and its repairs; packets that are not coded are
/// blocks of their own.
fn lose_in_blocks(seed: u64, caps: bool, places_ahead: u64) {
    let mut messages = Messages::new(seed);
    let mut random = SplitMix64::new(seed ^ 0xabc);
    let strength = any_strength(&mut random);
    let mut path = Path::new(Some(strength));
    path.encoder.set_caps_short_blocks(caps);
    path.up.places_ahead = places_ahead;
    path.up.seed = seed;
    let why = format!("seed {seed} {strength:?} caps {caps} ahead {places_ahead}");
    // The first message tells the MTU, and passes without a loss.
    let first = messages.message_of(2);
    let sent = [first, messages.messages(25)].concat();
    let mut block: Vec<Vec<u8>> = Vec::new();
    let (mut lost_in_all, mut packets) = (0, 0);
    for packet in &sent {
        let out = encode(&mut path.encoder, &mut path.shared, packet);
        let repairs = out.iter().filter_map(|packet| match RepairHeader::parse(packet, 0) {
            Ok((_, RepairHeader::Repair { block, .. }, _)) => Some(block),
            _ => None,
        });
        let header = { repairs }.next_back();
        let was_announced = out.len() > 1 && !is_data(&out[0]);
        block.extend(out);
        let Some(header) = header else {
            let is_coded =
                packet[0] <= 0x0b || (0x0d..=0x10).contains(&packet[0]) || packet[0] >= 0x16;
            if !is_coded && !was_announced {
                for packet in block.drain(..) {
                    path.arrive(&packet);
                }
            }
            continue;
        };
        // Any one of an XOR unit, any c of an MDS block.
        let count = usize::from(header.packets);
        let depth = usize::from(header.strength.repairs);
        let mut is_lost = vec![false; count];
        match header.strength.code {
            CodeKind::Xor => {
                for index in 0..depth.min(count) {
                    if packets > 0 && random.below(2) == 0 {
                        let members = (count - index).div_ceil(depth) as u64;
                        is_lost[index + random.below(members) as usize * depth] = true;
                    }
                }
            }
            CodeKind::Mds => {
                for _ in 0..random.below(depth as u64 + 1).min(1_000 * packets) {
                    is_lost[random.below(count as u64) as usize] = true;
                }
            }
        }
        lost_in_all += is_lost.iter().filter(|lost| **lost).count();
        packets += 1;
        let mut place = 0;
        for packet in block.drain(..) {
            if is_data(&packet) {
                let at = place;
                place += 1;
                if is_lost[at] {
                    continue;
                }
            }
            path.arrive(&packet);
        }
        assert!(!path.decoder.holds_packets(), "block {packets} of {why}");
    }
    for packet in block {
        path.arrive(&packet);
    }
    assert_same(&path.up, &sent, &why);
    let counters = path.decoder.counters();
    assert_eq!(counters.packets_recovered as usize, lost_in_all, "{why}");
    assert_eq!((counters.blocks_failed, counters.blocks_blind), (0, 0), "{why}");
    assert_eq!(path.shared.decode.used() + path.shared.ring.used(), 0, "{why}");
}

#[test]
fn losses_that_repairs_cover_are_not_seen_above() {
    for seed in 0..150 {
        lose_in_blocks(seed, false, 0);
    }
}

#[test]
fn capped_repairs_cover_their_losses() {
    for seed in 0..80 {
        lose_in_blocks(seed, true, 0);
    }
}

#[test]
fn packets_that_were_placed_ahead_count_as_come() {
    for seed in 0..150 {
        lose_in_blocks(seed, seed % 2 == 0, 1 + seed % 4);
    }
}

#[test]
fn without_a_shim_at_the_sender_nothing_is_ever_held() {
    for seed in 0..50 {
        let mut messages = Messages::new(seed);
        let mut random = SplitMix64::new(seed);
        let mut path = Path::new(None);
        let mut sent = messages.messages(20);
        sent.retain(|_| random.below(20) > 0);
        for at in 1..sent.len() {
            if random.below(20) == 0 {
                sent.swap(at - 1, at);
            }
        }
        for packet in &sent {
            path.arrive(packet);
            assert!(path.decoder.poll_timeout().is_none());
        }
        assert_same(&path.up, &sent, &format!("seed {seed}"));
        assert_eq!(path.up.count(How::Passed), sent.len());
    }
}
