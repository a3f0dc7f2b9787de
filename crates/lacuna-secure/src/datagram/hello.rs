//! The two packets by which ends learn of each other: a hello, and its answer.
//!
//! ```text
//! hello   0xd3 | nonce 16 | identity 16 | fresh, microseconds 8 | zeros 16                     | MAC 32
//! answer  0xd4 | nonce 16 | identity 16 | floor 8               | nonce of who answers 16      | MAC 32
//! ```
//!
//! The MAC is HMAC with SHA-256 under a key of the shared secret. *Fresh* is for how long the asking end is sure that it
//! has taken nothing from the other; the *floor* is a number of the other's group packets, before which none was sent so
//! lately. An answer is as long as a hello, so nobody is flooded by asking in his name.

use super::{Identity, Nonce};
use crate::schedule::Secret;
use aws_lc_rs::hmac;

/// First bytes.
pub(super) const HELLO: u8 = 0xd3;
pub(super) const ANSWER: u8 = 0xd4;

const MAC_BYTES: usize = 32;
/// Length of both.
pub(super) const BYTES: usize = 1 + 16 + 16 + 8 + 16 + MAC_BYTES;

/// What makes and checks the MACs of all who have a secret.
pub(super) struct Stamp(hmac::Key);

impl std::fmt::Debug for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stamp(..)")
    }
}

/// A hello, or an answer to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Greeting {
    /// Drawn by the end that asks.
    pub(super) nonce: Nonce,
    /// Of the end that sends this.
    pub(super) identity: Identity,
    pub(super) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Hello { fresh_us: u64 },
    Answer { floor: u64, nonce: Nonce },
}

impl Stamp {
    pub(super) fn new(secret: &Secret) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &*secret.bytes::<32>(b"lacuna datagram hello", &[])))
    }

    pub(super) fn emit(&self, greeting: &Greeting) -> Vec<u8> {
        let (kind, number, nonce) = match greeting.what {
            What::Hello { fresh_us } => (HELLO, fresh_us, [0; 16]),
            What::Answer { floor, nonce } => (ANSWER, floor, nonce),
        };
        let mut packet = Vec::with_capacity(BYTES);
        packet.push(kind);
        packet.extend(greeting.nonce);
        packet.extend(greeting.identity);
        packet.extend(number.to_be_bytes());
        packet.extend(nonce);
        let mac = hmac::sign(&self.0, &packet);
        packet.extend_from_slice(mac.as_ref());
        packet
    }

    /// Reads a packet whose MAC is right; `None` of any other.
    pub(super) fn parse(&self, packet: &[u8]) -> Option<Greeting> {
        let packet: &[u8; BYTES] = packet.try_into().ok()?;
        let (covered, mac) = packet.split_at(BYTES - MAC_BYTES);
        hmac::verify(&self.0, covered, mac).ok()?;
        let field = |at: usize| <[u8; 16]>::try_from(&covered[at..at + 16]).expect("sixteen");
        let number = u64::from_be_bytes(covered[33..41].try_into().expect("eight"));
        let what = match covered[0] {
            HELLO => What::Hello { fresh_us: number },
            ANSWER => What::Answer { floor: number, nonce: field(41) },
            _ => return None,
        };
        Some(Greeting { nonce: field(1), identity: field(17), what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_as_it_was_written_and_not_if_a_bit_differs_or_by_others() {
        let stamp = Stamp::new(&Secret::new([7; 32]));
        for what in [What::Hello { fresh_us: 5 }, What::Answer { floor: 1 << 40, nonce: [9; 16] }] {
            let greeting = Greeting { nonce: [1; 16], identity: [2; 16], what };
            let packet = stamp.emit(&greeting);
            assert_eq!(stamp.parse(&packet), Some(greeting));
            assert_eq!(Stamp::new(&Secret::new([8; 32])).parse(&packet), None);
            for bit in 0..packet.len() * 8 {
                let mut wrong = packet.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(stamp.parse(&wrong), None, "bit {bit}");
            }
            assert_eq!(stamp.parse(&packet[..packet.len() - 1]), None);
        }
    }
}
