//! The strength with the largest expected goodput on a path that is known only so well.
//!
//! What it costs: repairs take link time (`c / r`), and a block that is not saved costs the packets of a
//! round trip. `lacuna_model::GoBackN` has both in closed form. The expectation is over what the path may be
//! (`fit`): an XOR block of one repair fails with the square of the loss, so a path that may be twice as bad is
//! dearer than a known one.
//!
//! Not all strengths can be had:
//!
//! - The peer grants only so many repairs for a hundred packets.
//! - A decoder holds a gap open for a quarter of a round trip at most. A block with its repairs must come in
//!   less than that, or it is given up; on a slow path blocks are short.
//! - An MDS code multiplies each packet by as many numbers as there are repairs. That may take a quarter of the
//!   packet's own time on the link.
//!
//! The candidates are sorted by their share of repairs. As no goodput is above `r / (r + c)`, those behind the
//! best one so far are not looked at.

use super::config::{AutoConfig, Circumstances};
use super::fit::LossFit;
use crate::strength::BLOCK_PACKETS_MAX;
use lacuna_code::CHUNKS_MAX;
use lacuna_model::{Code, ConnectionPath, GoBackN, Loss, Shim};
use lacuna_wire::rc::{CodeKind, Strength};

/// Packets of blocks that are tried, and those next to them that cut a message into equal blocks: a short
/// block at its end has as many repairs as the others. MDS blocks of 256 do not exist: the longest possible
/// stand for them.
const BLOCKS: [u16; 7] = [4, 8, 16, 32, 64, 128, 256];
/// Repairs that are tried.
const REPAIRS: [u16; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];
/// Time to multiply and add a byte. Measured with `cargo bench -p lacuna-lowar`: 0.03 ns on one core of a
/// server of 2023; slower ones have 0.1.
const MULTIPLY_PS: u64 = 60;
/// Messages longer than this are as good as endless.
const MESSAGE_PACKETS_MAX: u64 = 1 << 20;

/// A strength and what to expect of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) strength: Option<Strength>,
    /// Share of the path's packets that are useful.
    pub(super) goodput: f64,
}

/// All candidates that can be had, with the least repairs first.
pub(super) fn candidates(
    config: &AutoConfig,
    percent_max: u16,
    circumstances: &Circumstances,
) -> Vec<Strength> {
    let Circumstances { packet_ns, packet_bytes, message_packets, .. } = *circumstances;
    let packets_max = hold_packets(circumstances) * 7 / 8;
    let mut candidates = Vec::new();
    for code in [CodeKind::Xor, CodeKind::Mds] {
        for repairs in REPAIRS.into_iter().filter(|repairs| *repairs <= config.repairs_max) {
            let multiply_ns = u64::from(repairs) * u64::from(packet_bytes) * MULTIPLY_PS / 1000;
            if code == CodeKind::Mds && (repairs == 1 || multiply_ns > packet_ns / 4) {
                continue;
            }
            for block in BLOCKS {
                let most = match code {
                    CodeKind::Xor => block.min(BLOCK_PACKETS_MAX),
                    CodeKind::Mds => block.min(CHUNKS_MAX as u16 - repairs),
                };
                let blocks = message_packets.div_ceil(most.into()).max(1);
                let equal = message_packets.div_ceil(blocks) as u16;
                for block_packets in [most, equal] {
                    let is_granted = 100 * u32::from(repairs)
                        <= u32::from(percent_max) * u32::from(block_packets);
                    // A duplicate of each packet is the most.
                    let is_possible = repairs <= block_packets
                        && u64::from(block_packets + repairs) <= packets_max
                        && is_granted;
                    let strength = Strength { block_packets, repairs, code };
                    if is_possible && candidates.last() != Some(&strength) {
                        candidates.push(strength);
                    }
                }
            }
        }
    }
    // Of equals XOR is first.
    candidates.sort_by(|a, b| share(*a).total_cmp(&share(*b)));
    candidates
}

/// Packets that come while a decoder holds a gap open.
fn hold_packets(circumstances: &Circumstances) -> u64 {
    circumstances.rtt_ns / 4 / circumstances.packet_ns.max(1)
}

/// Whether a block comes before its gaps are given up. The candidates are an eighth shorter, so that a flow whose
/// pace varies keeps its strength.
pub(super) fn is_in_time(strength: Strength, circumstances: &Circumstances) -> bool {
    u64::from(strength.block_packets + strength.repairs) <= hold_packets(circumstances)
}

/// Repairs for each packet.
fn share(strength: Strength) -> f64 {
    f64::from(strength.repairs) / f64::from(strength.block_packets)
}

/// What the fit and the circumstances make of strengths.
pub(super) struct Judge {
    paths: [(f64, ConnectionPath); 3],
    message_packets: u64,
    caps_short_blocks: bool,
}

impl Judge {
    pub(super) fn new(config: &AutoConfig, fit: &LossFit, circumstances: &Circumstances) -> Self {
        let Circumstances { packet_ns, rtt_ns, message_packets, .. } = *circumstances;
        let path = |loss: Loss| {
            ConnectionPath::new(packet_ns.max(1) as f64 * 1e-9, rtt_ns as f64 * 1e-9, loss)
        };
        Self {
            paths: fit.paths().map(|(weight, loss)| (weight, path(loss))),
            message_packets: message_packets.clamp(1, MESSAGE_PACKETS_MAX),
            caps_short_blocks: config.caps_short_blocks,
        }
    }

    /// The expected goodput.
    pub(super) fn goodput(&self, strength: Option<Strength>) -> f64 {
        let shim = match strength.map(code_of) {
            None => None,
            Some(Some(code)) => Some(Shim { code, caps_short_blocks: self.caps_short_blocks }),
            Some(None) => return 0.0,
        };
        let of = |(weight, path): &(f64, ConnectionPath)| {
            let connection = GoBackN::new(path, shim);
            weight * connection.map_or(0.0, |connection| connection.goodput(self.message_packets))
        };
        self.paths.iter().map(of).sum()
    }

    /// The best of the candidates and of none.
    pub(super) fn best(&self, candidates: &[Strength]) -> Choice {
        let mut best = Choice { strength: None, goodput: self.goodput(None) };
        for strength in candidates {
            if 1.0 / (1.0 + share(*strength)) <= best.goodput {
                break;
            }
            let goodput = self.goodput(Some(*strength));
            if goodput > best.goodput {
                best = Choice { strength: Some(*strength), goodput };
            }
        }
        best
    }
}

fn code_of(strength: Strength) -> Option<Code> {
    let (r, c) = (u32::from(strength.block_packets), u32::from(strength.repairs));
    let code = match strength.code {
        CodeKind::Xor => Code::xor(r, c.min(r)),
        CodeKind::Mds => Code::mds(r, c),
    };
    code.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auto::evidence::Evidence;
    use lacuna_link::{Fraction, LossProcess, Prng};

    /// A gigabit per second with packets of 1 KiB.
    fn long_path() -> Circumstances {
        Circumstances {
            packet_ns: 8_600,
            rtt_ns: 40_000_000,
            packet_bytes: 1024,
            message_packets: 1024,
        }
    }

    fn fit(loss: lacuna_link::Loss, packets: u64) -> LossFit {
        let mut evidence = Evidence::default();
        let mut process = LossProcess::new(loss, Prng::new(3, 0));
        for position in 0..packets {
            if process.loses() {
                evidence.on_lost(0, position, 1);
            }
        }
        evidence.on_judged(0, packets);
        LossFit::of(&evidence.sum())
    }

    fn best(loss: lacuna_link::Loss, circumstances: &Circumstances) -> Choice {
        let config = AutoConfig::default();
        let judge = Judge::new(&config, &fit(loss, 2_000_000), circumstances);
        judge.best(&candidates(&config, config.percent_max, circumstances))
    }

    fn independent(loss: f64) -> lacuna_link::Loss {
        lacuna_link::Loss::Independent(Fraction::from_f64(loss))
    }

    #[test]
    fn a_path_without_loss_gets_nothing_and_a_lossy_one_what_it_needs() {
        let share_of = |choice: Choice| choice.strength.map_or(0.0, share);
        let clean = best(lacuna_link::Loss::None, &long_path());
        assert_eq!(clean.strength, None);
        let rare = best(independent(1e-5), &long_path());
        assert!(share_of(rare) < 0.01 && rare.goodput > 0.99, "{rare:?}");
        let lossy = best(independent(1e-2), &long_path());
        assert!(lossy.strength.is_some_and(|it| it.code == CodeKind::Mds), "{lossy:?}");
        assert!((0.03..0.08).contains(&share_of(lossy)) && lossy.goodput > 0.94, "{lossy:?}");
        let bursts = best(lacuna_link::Loss::bursts(1e-3, 8.0).unwrap(), &long_path());
        let deep = bursts.strength.unwrap();
        assert!(deep.repairs >= 16 && bursts.goodput > 0.86, "{bursts:?}");
        println!("{rare:?}\n{lossy:?}\n{bursts:?}");
    }

    #[test]
    fn what_goes_back_cheaply_is_not_protected() {
        let near = Circumstances { rtt_ns: 50_000, ..long_path() };
        assert_eq!(best(independent(1e-4), &near).strength, None);
    }

    #[test]
    fn blocks_are_as_short_as_messages_and_slow_paths_make_them() {
        let short = Circumstances { message_packets: 16, ..long_path() };
        let choice = best(independent(1e-3), &short);
        let strength = choice.strength.unwrap();
        // A block of one repair is for 16 packets, whatever it is called.
        assert!(choice.goodput > 0.9 && strength.repairs == 1, "{choice:?}");
        // 10 Mbit/s: 46 packets in a round trip, of which a block may take a quarter.
        let slow = Circumstances { packet_ns: 860_000, ..long_path() };
        let strength = best(independent(1e-2), &slow).strength.unwrap();
        assert!(strength.block_packets + strength.repairs <= 10, "{strength:?}");
    }

    #[test]
    fn fast_paths_have_no_time_to_multiply() {
        let fast = Circumstances { packet_ns: 86, rtt_ns: 40_000_000, ..long_path() };
        let config = AutoConfig::default();
        let all = candidates(&config, config.percent_max, &fast);
        assert!(all.iter().all(|strength| strength.code == CodeKind::Xor) && !all.is_empty());
        let few = candidates(&config, 10, &long_path());
        assert!(!few.is_empty() && few.iter().all(|strength| share(*strength) <= 0.1));
    }
}
