//! Random faults of packets: loss, jitter, reordering, duplication, corruption, ECN marks.
//!
//! All faults of a packet are drawn at once, each from a random stream of its own: turning one fault on
//! or off, or losing a packet, does not change which packets the others hit. The n-th packet has the
//! same faults in every run with the same seed.

use crate::{Fraction, Loss, LossProcess, Prng};

/// The probability of each fault except loss. The default is no faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chances {
    /// Jitter: uniform from 0 to this.
    pub jitter_ns: u64,
    /// Packets that are held back, so that later ones overtake them.
    pub reorder: Fraction,
    /// Packets that arrive twice.
    pub duplicate: Fraction,
    /// Packets with one bit flipped.
    pub corrupt: Fraction,
    /// Packets that are marked "congestion experienced" (RFC 3168).
    pub mark: Fraction,
}

/// The faults of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The packet never arrives.
    pub is_lost: bool,
    /// Added to its delay.
    pub jitter_ns: u64,
    /// It is held back, so that later ones overtake it.
    pub is_held_back: bool,
    /// It arrives twice.
    pub is_duplicated: bool,
    /// Index of its flipped bit.
    pub flipped_bit: Option<u64>,
    /// It is marked "congestion experienced".
    pub is_marked: bool,
}

/// The random generators of a link's faults.
#[derive(Clone, Debug)]
pub struct FaultGenerator {
    loss: LossProcess,
    jitter: Prng,
    reorder: Prng,
    duplicate: Prng,
    corrupt: Prng,
    mark: Prng,
}

impl FaultGenerator {
    /// Random streams reserved for one link; two of them are unused.
    pub const STREAMS: u64 = 8;

    /// The generator of a link, with the streams of `seed` from `first_stream` on.
    #[must_use]
    pub fn new(loss: Loss, seed: u64, first_stream: u64) -> Self {
        // Never change the stream numbers: they are part of what a seed means.
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

    /// Replaces the loss process by one that draws from `prng`; the other faults continue.
    pub fn change_loss(&mut self, loss: Loss, prng: Prng) {
        self.loss = LossProcess::new(loss, prng);
    }

    /// Replaces the loss model by `loss`, in its initial state; all random numbers continue.
    pub fn set_loss(&mut self, loss: Loss) {
        self.loss.change(loss);
    }

    /// Ends a burst of losses, if there is one: see [`LossProcess::end_burst`].
    pub fn end_burst(&mut self) {
        self.loss.end_burst();
    }

    /// Draws the faults of the next packet, of `packet_bytes` bytes.
    pub fn draw(&mut self, chances: &Chances, packet_bytes: u64) -> Faults {
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
        Faults { is_lost, jitter_ns, is_held_back, is_duplicated, flipped_bit, is_marked }
    }
}

/// Draws unless the probability is 0. Skipping a draw is safe, because each fault has its own stream.
fn draw(chance: Fraction, prng: &mut Prng) -> bool {
    !chance.is_never() && chance.draw(prng)
}

/// Keeps packets in their order of entry, except those that are held back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order {
    /// The latest release of a packet that was not held back; later packets are not released before.
    released_ns: u64,
}

impl Order {
    /// Release time of the next packet, which alone would arrive at `arrival_ns`. A packet that would
    /// overtake is released together with the one before it; with `held_back_ns`, that much later.
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

    fn run(loss: Loss, chances: Chances) -> Vec<Faults> {
        let mut faults = FaultGenerator::new(loss, 7, 0);
        (0..1000u64).map(|packet| faults.draw(&chances, packet % 3)).collect()
    }

    #[test]
    fn a_fault_that_is_off_leaves_the_others_as_they_were() {
        let all = run(Loss::Independent(Fraction::from_f64(0.2)), rough());
        let without = run(Loss::None, Chances { reorder: Fraction::never(), ..rough() });
        for (with, without) in all.iter().zip(&without) {
            assert_eq!(
                Faults { is_lost: false, is_held_back: false, ..*with },
                Faults { is_lost: false, ..*without }
            );
            assert!(!without.is_held_back);
        }
        assert!(
            all.iter().any(|faults| faults.is_lost) && all.iter().any(|faults| faults.is_held_back)
        );
    }

    #[test]
    fn a_flipped_bit_is_one_of_the_packets_and_an_empty_packet_has_none() {
        for (packet, faults) in run(Loss::None, rough()).iter().enumerate() {
            let bits = packet as u64 % 3 * 8;
            assert!(faults.flipped_bit.is_none_or(|bit| bit < bits), "{faults:?} of {bits} bits");
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
