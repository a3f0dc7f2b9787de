//! Links between the hosts of a [`Net`](super::Net): a rate with a queue, a delay, losses.

use super::{Flights, Sent, Wire};
use std::collections::BTreeMap;

/// Bytes of IPv4 and UDP headers, which take their time on a link too.
const HEADER_BYTES: u64 = 28;

/// One direction of a path.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// One-way delay.
    pub delay_ns: u64,
    /// Rate; `None` is unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// Packets that find more than this in front of them are dropped.
    pub queue_bytes: u64,
    /// Packets that find more than this in front of them are marked.
    pub mark_bytes: Option<u64>,
    /// Packets lost at random, in millionths.
    pub loss_ppm: u32,
}

impl Default for Link {
    /// A millisecond each way, without limits or losses.
    fn default() -> Self {
        Self {
            delay_ns: 1_000_000,
            rate_bits_per_s: None,
            queue_bytes: u64::MAX,
            mark_bytes: None,
            loss_ppm: 0,
        }
    }
}

/// See the module's text. Hosts without a link of their own are joined by the default one.
#[derive(Debug)]
pub struct Links {
    default: Link,
    /// By the hosts at both ends, sender first.
    own: BTreeMap<(usize, usize), Link>,
    /// When what was sent has left.
    free_ns: BTreeMap<(usize, usize), u64>,
    random: u64,
    dropped: u64,
}

impl Links {
    /// All hosts are joined by such links; `seed` draws the losses.
    pub fn new(default: Link, seed: u64) -> Self {
        Self { default, own: BTreeMap::new(), free_ns: BTreeMap::new(), random: seed, dropped: 0 }
    }

    /// Joins one host to another by a link of its own, this way.
    pub fn set(&mut self, from: usize, to: usize, link: Link) {
        self.own.insert((from, to), link);
    }

    /// Packets lost so far, in queues and at random.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// splitmix64 (Steele, Lea, Flood 2014).
    fn draw_ppm(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % 1_000_000) as u32
    }
}

impl Wire for Links {
    fn carry(&mut self, now_ns: u64, sent: Sent, flights: &mut Flights) {
        let ends = (sent.from.host, sent.to.host);
        let link = *self.own.get(&ends).unwrap_or(&self.default);
        let (mut leaves_ns, mut is_marked) = (now_ns, false);
        if let Some(rate_bits_per_s) = link.rate_bits_per_s {
            let free_ns = self.free_ns.entry(ends).or_default();
            let ahead_ns = free_ns.saturating_sub(now_ns);
            let ahead_bits = u128::from(ahead_ns) * u128::from(rate_bits_per_s) / 1_000_000_000;
            let ahead_bytes = u64::try_from(ahead_bits / 8).unwrap_or(u64::MAX);
            if ahead_bytes > link.queue_bytes {
                self.dropped += 1;
                return;
            }
            is_marked = sent.takes_marks && link.mark_bytes.is_some_and(|most| ahead_bytes > most);
            let bits = 8 * (sent.packet.len() as u64 + HEADER_BYTES);
            *free_ns = now_ns + ahead_ns + bits * 1_000_000_000 / rate_bits_per_s.max(1);
            leaves_ns = *free_ns;
        }
        if link.loss_ppm > 0 && self.draw_ppm() < link.loss_ppm {
            self.dropped += 1;
            return;
        }
        flights.fly(leaves_ns + link.delay_ns, sent.from, sent.to, sent.packet, is_marked);
    }
}
