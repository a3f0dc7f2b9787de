//! One direction of a path, as a pure state machine: for each bundle that enters, it computes which
//! packets come out and when.
//!
//! ```text
//! loss -> queue (marks), rate -> delay, jitter -> reordering, duplication, corruption
//! ```
//!
//! [`lacuna_link::Pipe`] decides for each packet. The way then joins the packets of a bundle into as few
//! parts ([`Part`]) as possible. A part ends before a packet that is lost, dropped, corrupted, held back
//! or differs in its mark, after a duplicated one, and where its first packet would wait too long for
//! its last one. A part is delivered when its last packet is due.

mod config;
mod counters;
mod trace;

use lacuna_link::{FaultGenerator, Pipe, Prng};

pub use config::{Delay, WayConfig, WayError};
pub use counters::WayCounters;
pub use trace::{DelayTrace, TraceError, parse_losses};

use crate::bundle::Bundle;

/// The streams of others' traffic are far from those of faults, and of changes of them.
const BACKGROUND_STREAMS: u64 = 1 << 60;

/// Some packets of a bundle, delivered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// When the packets are delivered.
    pub release_ns: u64,
    /// The first packet, …
    pub start: u32,
    /// … and one past the last.
    pub end: u32,
    /// All packets are marked with CE.
    pub is_marked: bool,
    /// A single packet with this bit flipped, counted from the IP header.
    pub flipped_bit: Option<u32>,
}

/// One direction of a path; see the module's text.
#[derive(Debug)]
pub struct Way {
    config: WayConfig,
    treats_packets_alike: bool,
    seed: u64,
    /// The first of this way's random streams.
    stream: u64,
    /// How often its settings have changed.
    changes: u64,
    was_lost: bool,
    pipe: Pipe,
    counters: WayCounters,
    /// What others had sent, and what of it was dropped, when their traffic was last changed.
    background_before: [u64; 2],
    /// The longest queue since the last call of [`Way::take_queue_bytes_max`].
    queue_bytes_max: u64,
}

impl Way {
    /// An empty way. The ways of a path have different `number`s.
    ///
    /// # Panics
    ///
    /// When [`WayConfig::validate`] returns an error.
    #[must_use]
    pub fn new(config: WayConfig, seed: u64, number: u64) -> Self {
        if let Err(error) = config.validate() {
            panic!("{error}");
        }
        // Never change the stream numbers: they are part of what a seed means. Those of the first way
        // are those of the datapath `impair`.
        let first = number * FaultGenerator::STREAMS;
        let mut pipe = Pipe::new(config.pipe(), seed, first);
        pipe.set_background(config.background, Prng::new(seed, first + BACKGROUND_STREAMS));
        Self {
            treats_packets_alike: config.treats_packets_alike(),
            seed,
            stream: first,
            changes: 0,
            was_lost: false,
            pipe,
            counters: WayCounters::default(),
            background_before: [0; 2],
            queue_bytes_max: 0,
            config,
        }
    }

    /// Changes the settings for packets that enter from now on. Packets in flight keep their release
    /// times and still come out first: a shorter delay does not make later ones overtake.
    ///
    /// # Errors
    ///
    /// For impossible settings; the way stays as it is.
    pub fn change(&mut self, config: WayConfig) -> Result<(), WayError> {
        config.validate()?;
        self.changes += 1;
        self.pipe.change(config.pipe());
        // Each change has a random stream of its own, far from those of the ways.
        let stream = self.stream + (self.changes << 32);
        self.pipe.faults_mut().change_loss(config.loss.clone(), Prng::new(self.seed, stream));
        if config.background != self.config.background {
            let prng = Prng::new(self.seed, stream + BACKGROUND_STREAMS);
            self.pipe.set_background(config.background, prng);
            self.background_before =
                [self.counters.background_packets, self.counters.background_dropped];
        }
        self.treats_packets_alike = config.treats_packets_alike();
        self.config = config;
        Ok(())
    }

    /// The current settings.
    #[must_use]
    pub fn config(&self) -> &WayConfig {
        &self.config
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> &WayCounters {
        &self.counters
    }

    /// The counters, for the emulator to count deliveries.
    pub(crate) fn counters_mut(&mut self) -> &mut WayCounters {
        &mut self.counters
    }

    /// Bytes in the queue, overhead included.
    pub fn queue_bytes(&mut self, now_ns: u64) -> u64 {
        self.pipe.waiting_bytes(now_ns)
    }

    /// The longest queue since the last call.
    pub fn take_queue_bytes_max(&mut self, now_ns: u64) -> u64 {
        let now = self.queue_bytes(now_ns);
        std::mem::replace(&mut self.queue_bytes_max, now).max(now)
    }

    /// A bundle enters; its packets may be marked if `is_ecn_capable`. The parts that come out are added
    /// to `parts`. Times must not run backwards.
    pub fn on_bundle(
        &mut self,
        now_ns: u64,
        bundle: &Bundle,
        is_ecn_capable: bool,
        parts: &mut Vec<Part>,
    ) {
        self.counters.sent_packets += u64::from(bundle.packets());
        self.counters.sent_bytes += bundle.wire_bytes();
        if self.treats_packets_alike {
            let arrival_ns = now_ns.saturating_add(self.config.delay.at_ns(now_ns));
            let (release_ns, end) = (self.pipe.release_ns(arrival_ns), bundle.packets());
            parts.push(Part { release_ns, start: 0, end, is_marked: false, flipped_bit: None });
            return;
        }
        let part_ns_max = self.part_ns(bundle);
        let mut growing: Option<Growing> = None;
        for index in 0..bundle.packets() {
            let fate = self.fate(now_ns, bundle.packet_bytes(index), is_ecn_capable);
            let Some(fate) = fate else {
                parts.extend(growing.take().map(|growing| growing.part));
                continue;
            };
            let part = Part {
                release_ns: fate.release_ns,
                start: index,
                end: index + 1,
                is_marked: fate.is_marked,
                flipped_bit: fate.flipped_bit,
            };
            match &mut growing {
                Some(growing) if growing.takes(&fate, part_ns_max) => {
                    growing.part.end = part.end;
                    growing.part.release_ns = part.release_ns;
                }
                _ => {
                    parts.extend(growing.take().map(|growing| growing.part));
                    if fate.stands_alone() {
                        parts.push(part);
                    } else {
                        growing = Some(Growing { part, first_ns: fate.release_ns });
                    }
                }
            }
            if fate.is_duplicated {
                parts.extend(growing.take().map(|growing| growing.part));
                parts.push(Part { flipped_bit: None, ..part });
            }
        }
        parts.extend(growing.map(|growing| growing.part));
    }

    /// The longest time from the first to the last packet of a part of this bundle: the configured
    /// bound, or less if that gives as many parts of more even length.
    fn part_ns(&self, bundle: &Bundle) -> u64 {
        let most_ns = self.config.part_ns_max();
        let Some(rate) = self.config.rate_bits_per_s else { return most_ns };
        let packets = u64::from(bundle.packets());
        let bits = 8 * (bundle.wire_bytes() + u64::from(self.config.overhead_bytes) * packets);
        // A bundle has some 2^20 bits, so this stays far below 2^64.
        let packet_ns = bits * 1_000_000_000 / rate / packets;
        let Some(gaps) = most_ns.checked_div(packet_ns) else { return most_ns };
        let parts = packets.div_ceil(gaps + 1);
        let gaps = packets.div_ceil(parts) - 1;
        // Half a packet allows for rounding and for a shorter last packet.
        most_ns.min(gaps * packet_ns + packet_ns / 2)
    }

    /// One packet enters; `None` if it never comes out.
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
        if self.config.background.is_some() {
            let sent = self.pipe.background();
            let [packets, dropped] = self.background_before;
            self.counters.background_packets = packets + sent.sent_packets;
            self.counters.background_dropped = dropped + sent.dropped;
        }
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

/// The fate of a packet that comes out.
#[derive(Clone, Copy, Debug)]
struct Fate {
    release_ns: u64,
    is_marked: bool,
    is_held_back: bool,
    is_duplicated: bool,
    flipped_bit: Option<u32>,
}

impl Fate {
    /// Whether the packet must be a part of its own.
    fn stands_alone(&self) -> bool {
        self.is_held_back || self.flipped_bit.is_some()
    }
}

/// A part that may take more packets.
#[derive(Debug)]
struct Growing {
    part: Part,
    /// When its first packet is due.
    first_ns: u64,
}

impl Growing {
    /// Whether the next packet of the bundle may join the part.
    fn takes(&self, next: &Fate, part_ns_max: u64) -> bool {
        !next.stands_alone()
            && next.is_marked == self.part.is_marked
            && next.release_ns - self.first_ns <= part_ns_max
    }
}

#[cfg(test)]
mod tests;
