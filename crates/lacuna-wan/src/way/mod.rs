//! One direction of a path, as a pure state machine: told what enters it and when, it answers with
//! what comes out and when.
//!
//! ```text
//! loss -> queue (marks), rate -> delay, jitter -> reordering, duplication, corruption
//! ```
//!
//! It decides for every packet of a bundle by itself and answers with as few pieces of the bundle
//! as that allows: a piece ends before a packet that is lost, dropped, marked otherwise, damaged or
//! held back, after one that is duplicated, and where packets would come too late by waiting for
//! the last one of the piece. A piece is delivered when its last packet would be.
//!
//! What happens to a packet by itself, [`lacuna_link::Pipe`] says.

mod config;
mod counters;
mod trace;

use lacuna_link::{FaultGenerator, Pipe, Prng};

pub use config::{Delay, WayConfig, WayError};
pub use counters::WayCounters;
pub use trace::{DelayTrace, TraceError, parse_losses};

use crate::bundle::Bundle;

/// Some packets of a bundle, delivered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// When.
    pub release_ns: u64,
    /// The first packet, …
    pub start: u32,
    /// … and the one behind the last.
    pub end: u32,
    /// All of them get CE.
    pub is_marked: bool,
    /// The piece is one packet, in which this bit is flipped, counted from the IP header.
    pub flipped_bit: Option<u32>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Way {
    config: WayConfig,
    treats_packets_alike: bool,
    seed: u64,
    /// The first of this way's streams.
    stream: u64,
    /// How often it has changed.
    changes: u64,
    was_lost: bool,
    pipe: Pipe,
    counters: WayCounters,
    /// The most that has waited since the last call of [`Way::take_queue_bytes_max`].
    queue_bytes_max: u64,
}

impl Way {
    /// A way that nothing has entered yet. The ways of a path differ in `number`.
    ///
    /// # Panics
    ///
    /// When [`WayConfig::validate`] has something against it.
    #[must_use]
    pub fn new(config: WayConfig, seed: u64, number: u64) -> Self {
        if let Err(error) = config.validate() {
            panic!("{error}");
        }
        // The numbers are part of what a seed means: never change them. The first way's are those
        // of the datapath `impair`.
        let first = number * FaultGenerator::STREAMS;
        Self {
            treats_packets_alike: config.treats_packets_alike(),
            seed,
            stream: first,
            changes: 0,
            was_lost: false,
            pipe: Pipe::new(config.pipe(), seed, first),
            counters: WayCounters::default(),
            queue_bytes_max: 0,
            config,
        }
    }

    /// Makes it another way for all that enters from now on. What is under way comes out as it
    /// would have, and still comes out first: a shorter delay does not make packets overtake.
    ///
    /// # Errors
    ///
    /// What is wrong with the way; it stays as it is.
    pub fn change(&mut self, config: WayConfig) -> Result<(), WayError> {
        config.validate()?;
        self.changes += 1;
        self.pipe.change(config.pipe());
        // A stream of its own for each change, far from those of the ways.
        let prng = Prng::new(self.seed, self.stream + (self.changes << 32));
        self.pipe.faults_mut().change_loss(config.loss.clone(), prng);
        self.treats_packets_alike = config.treats_packets_alike();
        self.config = config;
        Ok(())
    }

    /// What it is now.
    #[must_use]
    pub fn config(&self) -> &WayConfig {
        &self.config
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> &WayCounters {
        &self.counters
    }

    /// The same, for whoever carries the packets to count what only he knows.
    pub(crate) fn counters_mut(&mut self) -> &mut WayCounters {
        &mut self.counters
    }

    /// What waits in front of the link, as the link charges it.
    pub fn queue_bytes(&mut self, now_ns: u64) -> u64 {
        self.pipe.waiting_bytes(now_ns)
    }

    /// The most that has waited since the last call, and now.
    pub fn take_queue_bytes_max(&mut self, now_ns: u64) -> u64 {
        let now = self.queue_bytes(now_ns);
        std::mem::replace(&mut self.queue_bytes_max, now).max(now)
    }

    /// A bundle enters. `is_ecn_capable`: its packets may be marked. What comes out of it is added
    /// to `pieces`. Times must not run backwards.
    pub fn on_bundle(
        &mut self,
        now_ns: u64,
        bundle: &Bundle,
        is_ecn_capable: bool,
        pieces: &mut Vec<Piece>,
    ) {
        self.counters.sent_packets += u64::from(bundle.packets());
        self.counters.sent_bytes += bundle.wire_bytes();
        if self.treats_packets_alike {
            let arrival_ns = now_ns.saturating_add(self.config.delay.at_ns(now_ns));
            let (release_ns, end) = (self.pipe.release_ns(arrival_ns), bundle.packets());
            pieces.push(Piece { release_ns, start: 0, end, is_marked: false, flipped_bit: None });
            return;
        }
        let piece_ns_max = self.piece_ns(bundle);
        let mut growing: Option<Growing> = None;
        for index in 0..bundle.packets() {
            let fate = self.fate(now_ns, bundle.packet_bytes(index), is_ecn_capable);
            let Some(fate) = fate else {
                pieces.extend(growing.take().map(|growing| growing.piece));
                continue;
            };
            let piece = Piece {
                release_ns: fate.release_ns,
                start: index,
                end: index + 1,
                is_marked: fate.is_marked,
                flipped_bit: fate.flipped_bit,
            };
            match &mut growing {
                Some(growing) if growing.takes(&fate, piece_ns_max) => {
                    growing.piece.end = piece.end;
                    growing.piece.release_ns = piece.release_ns;
                }
                _ => {
                    pieces.extend(growing.take().map(|growing| growing.piece));
                    if fate.stands_alone() {
                        pieces.push(piece);
                    } else {
                        growing = Some(Growing { piece, first_ns: fate.release_ns });
                    }
                }
            }
            if fate.is_duplicated {
                pieces.extend(growing.take().map(|growing| growing.piece));
                pieces.push(Piece { flipped_bit: None, ..piece });
            }
        }
        pieces.extend(growing.map(|growing| growing.piece));
    }

    /// How much later than its first packet a piece of this bundle may be: as much as may be, or
    /// less if that gives as few pieces of more even length.
    fn piece_ns(&self, bundle: &Bundle) -> u64 {
        let most_ns = self.config.piece_ns_max();
        let Some(rate) = self.config.rate_bits_per_s else { return most_ns };
        let packets = u64::from(bundle.packets());
        let bits = 8 * (bundle.wire_bytes() + u64::from(self.config.overhead_bytes) * packets);
        // A bundle has some 2^20 bits, so this stays far below 2^64.
        let packet_ns = bits * 1_000_000_000 / rate / packets;
        let Some(gaps) = most_ns.checked_div(packet_ns) else { return most_ns };
        let pieces = packets.div_ceil(gaps + 1);
        let gaps = packets.div_ceil(pieces) - 1;
        // The half is for what rounding and a shorter last packet do to the mean.
        most_ns.min(gaps * packet_ns + packet_ns / 2)
    }

    /// One packet enters. `None` when it never comes out.
    fn fate(&mut self, now_ns: u64, bytes: u32, is_ecn_capable: bool) -> Option<Fate> {
        let bytes = u64::from(bytes);
        let faults = self.pipe.draw(bytes);
        let was_lost = std::mem::replace(&mut self.was_lost, faults.is_lost);
        if faults.is_lost {
            self.counters.lost += 1;
            self.counters.loss_bursts += u64::from(!was_lost);
            return None;
        }
        let delay = &self.config.delay;
        let passed = self.pipe.pass_delayed(now_ns, bytes, &faults, |left_ns| delay.at_ns(left_ns));
        let Some(passed) = passed else {
            self.counters.queue_dropped += 1;
            return None;
        };
        self.counters.queue_ns_sum += passed.waited_ns;
        self.counters.queue_ns_max = self.counters.queue_ns_max.max(passed.waited_ns);
        let own_bytes = if passed.waited_ns > 0 { self.pipe.charge_bytes(bytes) } else { 0 };
        let waiting_bytes = passed.waiting_bytes + own_bytes;
        self.queue_bytes_max = self.queue_bytes_max.max(waiting_bytes);
        self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(waiting_bytes);
        let is_marked = passed.is_marked && is_ecn_capable;
        self.counters.reordered += u64::from(faults.is_held_back);
        self.counters.marked += u64::from(is_marked);
        self.counters.duplicated += u64::from(faults.is_duplicated);
        self.counters.corrupted += u64::from(faults.flipped_bit.is_some());
        Some(Fate {
            release_ns: passed.release_ns,
            is_marked,
            is_held_back: faults.is_held_back,
            is_duplicated: faults.is_duplicated,
            flipped_bit: faults.flipped_bit.map(|bit| bit as u32),
        })
    }
}

/// What happens to a packet that comes out.
#[derive(Clone, Copy, Debug)]
struct Fate {
    release_ns: u64,
    is_marked: bool,
    is_held_back: bool,
    is_duplicated: bool,
    flipped_bit: Option<u32>,
}

impl Fate {
    /// Whether it cannot share a piece with a later packet.
    fn stands_alone(&self) -> bool {
        self.is_held_back || self.flipped_bit.is_some()
    }
}

/// A piece that may take more packets.
#[derive(Debug)]
struct Growing {
    piece: Piece,
    /// When its first packet would have come alone.
    first_ns: u64,
}

impl Growing {
    /// Whether the next packet of the bundle may come along.
    fn takes(&self, next: &Fate, piece_ns_max: u64) -> bool {
        !next.stands_alone()
            && next.is_marked == self.piece.is_marked
            && next.release_ns - self.first_ns <= piece_ns_max
    }
}

#[cfg(test)]
mod tests;
