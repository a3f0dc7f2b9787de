//! Turns the attributes of a queue pair into Lacuna's configuration: divides the 32-bit immediate
//! so that the given number of messages of the given length can be told apart (SDR-RDMA 3.2.4).

use super::types::sdr_qp_attr;
use crate::outcome::Failure;
use lacuna::{ConnectionConfig, ImmediateSplit, Mode};

/// Binary logarithm of the smallest MTU's payload bytes; each further MTU doubles it.
const MTU_LOG_MIN: u32 = 6;
/// Number of enumerators of `sdr_mtu`.
const MTUS: u32 = 7;
/// Spare bits go to the message number up to this width: the paper's 1024 slots.
const MESSAGE_BITS_ENOUGH: u32 = 10;
/// Widest fields of a split (`ImmediateSplit`).
const MESSAGE_BITS_MAX: u32 = 16;
const PACKET_BITS_MAX: u32 = 30;

/// The configuration for `attr`.
pub(super) fn config(attr: &sdr_qp_attr, generations: u8) -> Result<ConnectionConfig, Failure> {
    if attr.mtu >= MTUS {
        return Err(Failure::usage(format!("mtu {} is no enumerator of sdr_mtu", attr.mtu)));
    }
    let mtu_log = MTU_LOG_MIN + attr.mtu;
    let chunk_log = attr.bitmap_chunk_size_log_bytes;
    if !(mtu_log..=30).contains(&chunk_log) {
        return Err(Failure::usage(format!(
            "bitmap_chunk_size_log_bytes is {chunk_log}: must be {mtu_log} (the MTU) to 30"
        )));
    }
    if attr.max_log_num_msgs > MESSAGE_BITS_MAX {
        return Err(Failure::usage(format!(
            "max_log_num_msgs is {}: must be {MESSAGE_BITS_MAX} at most",
            attr.max_log_num_msgs
        )));
    }
    let window_log = u32::try_from(attr.max_in_flight_log_bytes).unwrap_or(u32::MAX).min(63);
    let packet_bits = window_log.max(chunk_log) - mtu_log;
    let split = split(attr.max_log_num_msgs, packet_bits)?;
    Ok(ConnectionConfig {
        mode: Mode::Raw,
        chunk_bytes: 1 << chunk_log,
        mtu_bytes: Some(1 << mtu_log),
        split,
        generations,
        max_message_bytes: 0,
        rate_bits_per_s: match attr.rate_limit {
            0 => None,
            mbit_per_s => Some(u64::from(mbit_per_s) * 1_000_000),
        },
        ..ConnectionConfig::default()
    })
}

/// Divides the immediate for `2^message_log` messages of `2^packet_log` packets. Tries user
/// fragments of 4, 2 and 1 bits (a wide one needs fewer packets to carry the immediate), each first
/// with one bit more for messages and for packets: programs round logarithms down, and more slots
/// keep late packets out for longer. If nothing fits, messages are shorter.
fn split(message_log: u32, packet_log: u32) -> Result<ImmediateSplit, Failure> {
    let candidates = [(4, 1), (4, 0), (2, 1), (2, 0), (1, 1), (1, 0)];
    let fitting = candidates.into_iter().find_map(|(user, more)| {
        let message = (message_log + more).clamp(1, MESSAGE_BITS_MAX);
        let packet = (packet_log + more).clamp(1, PACKET_BITS_MAX);
        let left = 32u32.checked_sub(user + message + packet)?;
        let spare = left.min(MESSAGE_BITS_ENOUGH.saturating_sub(message));
        Some((user, message + spare))
    });
    let (mut user, mut message) = fitting.unwrap_or((1, message_log.clamp(1, MESSAGE_BITS_MAX)));
    while 32 - user - message > PACKET_BITS_MAX {
        message += 1;
    }
    // A fragment's width must divide 32.
    user = user.next_power_of_two();
    let split = ImmediateSplit::new(message as u8, (32 - user - message) as u8, user as u8);
    split.map_err(|error| Failure::usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(chunk_log: u32, window_log: usize, messages_log: u32, mtu: u32) -> sdr_qp_attr {
        sdr_qp_attr {
            bitmap_chunk_size_log_bytes: chunk_log,
            max_in_flight_log_bytes: window_log,
            max_log_num_msgs: messages_log,
            mtu,
            send_enable: 1,
            recv_enable: 1,
            rate_limit: 0,
        }
    }

    fn bits(attr: &sdr_qp_attr) -> (u8, u8, u8) {
        let split = config(attr, 4).unwrap().split;
        (split.message_bits(), split.packet_bits(), split.user_bits())
    }

    #[test]
    fn the_papers_benchmark_gets_twice_what_it_asks_for() {
        // 128 messages of 8 MiB in chunks of 64 KiB and packets of 4 KiB.
        assert_eq!(bits(&attr(16, 30, 7, 6)), (9, 19, 4));
    }

    #[test]
    fn every_shape_makes_a_geometry_with_its_slots() {
        for mtu in 0..MTUS {
            for messages_log in 0..=MESSAGE_BITS_MAX {
                for window_log in (0..70).step_by(3) {
                    let attr = attr(18, window_log, messages_log, mtu);
                    let config = config(&attr, 4).unwrap();
                    assert!(u32::from(config.split.message_bits()) >= messages_log);
                    let geometry = config.geometry(64 << mtu, 8).unwrap();
                    let fits = messages_log as usize + window_log.max(18) - mtu as usize - 6 <= 31;
                    if fits && messages_log > 0 {
                        assert!(geometry.max_message_bytes() >= 1 << window_log, "{config:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn small_packets_of_long_messages_take_bits_from_the_immediate() {
        // 128 messages in 8 GiB, 64 bytes each packet.
        assert_eq!(bits(&attr(12, 30, 7, 0)), (7, 24, 1));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_bounds() {
        for (bad, text) in [
            (attr(16, 30, 7, 7), "no enumerator"),
            (attr(11, 30, 7, 6), "must be 12"),
            (attr(31, 30, 7, 6), "to 30"),
            (attr(16, 30, 17, 6), "must be 16 at most"),
        ] {
            let error = format!("{:?}", config(&bad, 4).unwrap_err());
            assert!(error.contains(text), "{error}");
        }
    }
}
