//! What chance does to one packet: all draws for it, made at once.
//!
//! Every effect draws from a stream of its own, for every packet that enters: turning one effect on
//! or off, or losing a packet, does not change what the others do to which packet. The n-th packet
//! has the same luck in every run with the same seed.

use crate::{Fraction, Loss, LossProcess, Prng};

/// How likely each effect is, besides loss. The default is none at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chances {
    /// The most that is added to the delay, uniformly from 0.
    pub jitter_ns: u64,
    /// Packets that are held back for others to pass.
    pub reorder: Fraction,
    /// Packets that arrive twice.
    pub duplicate: Fraction,
    /// Packets of which one bit is flipped.
    pub corrupt: Fraction,
    /// Packets that are marked "congestion experienced" (RFC 3168).
    pub mark: Fraction,
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Luck {
    /// It never arrives.
    pub is_lost: bool,
    /// What is added to its delay.
    pub jitter_ns: u64,
    /// It is held back for others to pass.
    pub is_held_back: bool,
    /// It arrives twice.
    pub is_duplicated: bool,
    /// This bit of it is flipped.
    pub flipped_bit: Option<u64>,
    /// It is marked.
    pub is_marked: bool,
}

/// The generators behind a link's effects.
#[derive(Clone, Debug)]
pub struct Dice {
    loss: LossProcess,
    jitter: Prng,
    reorder: Prng,
    duplicate: Prng,
    corrupt: Prng,
    mark: Prng,
}

impl Dice {
    /// Streams of random numbers that one link may draw from, two of them unused.
    pub const STREAMS: u64 = 8;

    /// The dice of a link that draws from the streams of `seed` from `first_stream` on.
    #[must_use]
    pub fn new(loss: Loss, seed: u64, first_stream: u64) -> Self {
        // The numbers are part of what a seed means: never change them.
        let stream = |number| Prng::new(seed, first_stream + number);
        Self {
            loss: LossProcess::new(loss, stream(0)),
            jitter: stream(1),
            reorder: stream(2),
            duplicate: stream(3),
            corrupt: stream(4),
            mark: stream(5),
        }
    }

    /// Replaces the loss process by one that draws from `prng`; the other effects go on.
    pub fn change_loss(&mut self, loss: Loss, prng: Prng) {
        self.loss = LossProcess::new(loss, prng);
    }

    /// Replaces the loss process by one that begins, with the numbers that come next; the other
    /// effects go on.
    pub fn set_loss(&mut self, loss: Loss) {
        self.loss.change(loss);
    }

    /// Ends a burst of losses, if there is one: see [`LossProcess::end_burst`].
    pub fn end_burst(&mut self) {
        self.loss.end_burst();
    }

    /// Draws for the next packet, of `packet_bytes` bytes.
    pub fn throw(&mut self, chances: &Chances, packet_bytes: u64) -> Luck {
        let is_lost = self.loss.loses();
        let jitter_ns = match chances.jitter_ns {
            0 => 0,
            jitter_ns => self.jitter.up_to(jitter_ns),
        };
        let is_held_back = draw(chances.reorder, &mut self.reorder);
        let is_duplicated = draw(chances.duplicate, &mut self.duplicate);
        let flipped_bit = match packet_bytes * 8 {
            bits if draw(chances.corrupt, &mut self.corrupt) && bits > 0 => {
                Some(self.corrupt.up_to(bits - 1))
            }
            _ => None,
        };
        let is_marked = draw(chances.mark, &mut self.mark);
        Luck { is_lost, jitter_ns, is_held_back, is_duplicated, flipped_bit, is_marked }
    }
}

/// Draws, unless the answer is known. No other effect misses the number: each has its own stream.
fn draw(chance: Fraction, prng: &mut Prng) -> bool {
    !chance.is_never() && chance.draw(prng)
}

/// Keeps packets in the order in which they entered, except those that are held back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    /// The latest release of a packet that was not held back: no later one is released before.
    released_ns: u64,
}

impl Order {
    /// When the next packet is released that would arrive at `arrival_ns` by itself. One that would
    /// overtake is released together with the one before it, one that is held back so much later.
    pub fn release_ns(&mut self, arrival_ns: u64, held_back_ns: Option<u64>) -> u64 {
        let release_ns = arrival_ns.max(self.released_ns);
        match held_back_ns {
            Some(held_back_ns) => release_ns.saturating_add(held_back_ns),
            None => {
                self.released_ns = release_ns;
                release_ns
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rough() -> Chances {
        let some = Fraction::from_f64(0.3);
        Chances { jitter_ns: 1000, reorder: some, duplicate: some, corrupt: some, mark: some }
    }

    fn run(loss: Loss, chances: Chances) -> Vec<Luck> {
        let mut dice = Dice::new(loss, 7, 0);
        (0..1000u64).map(|packet| dice.throw(&chances, packet % 3)).collect()
    }

    #[test]
    fn an_effect_that_is_off_leaves_the_luck_of_the_others() {
        let all = run(Loss::Independent(Fraction::from_f64(0.2)), rough());
        let without = run(Loss::None, Chances { reorder: Fraction::never(), ..rough() });
        for (with, without) in all.iter().zip(&without) {
            assert_eq!(
                Luck { is_lost: false, is_held_back: false, ..*with },
                Luck { is_lost: false, ..*without }
            );
            assert!(!without.is_held_back);
        }
        assert!(all.iter().any(|luck| luck.is_lost) && all.iter().any(|luck| luck.is_held_back));
    }

    #[test]
    fn a_flipped_bit_is_one_of_the_packets_and_an_empty_packet_has_none() {
        for (packet, luck) in run(Loss::None, rough()).iter().enumerate() {
            let bits = packet as u64 % 3 * 8;
            assert!(luck.flipped_bit.is_none_or(|bit| bit < bits), "{luck:?} of {bits} bits");
        }
    }

    #[test]
    fn only_a_packet_that_is_held_back_is_overtaken() {
        let mut order = Order::default();
        assert_eq!(order.release_ns(100, None), 100);
        assert_eq!(order.release_ns(50, None), 100, "with the one before it");
        assert_eq!(order.release_ns(120, Some(30)), 150);
        assert_eq!(order.release_ns(130, None), 130);
        assert_eq!(order.release_ns(u64::MAX, Some(1)), u64::MAX);
    }
}
