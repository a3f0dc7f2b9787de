//! One direction of a path: loss, queue, rate, delay and faults, packet by packet.
//!
//! ```text
//! loss -> queue (marks), rate -> delay, jitter -> reordering, duplication, corruption
//! ```
//!
//! Named after dummynet's pipe (Rizzo, "Dummynet: a simple approach to the evaluation of network
//! protocols", 1997). The caller tells when a packet enters, and the pipe computes when it comes out.
//! The caller holds the packet until then, copies it, flips its bits and counts.
//!
//! A packet passes in two steps, so that the caller can still refuse it between them:
//! [`draw`](Pipe::draw) draws its faults, and [`pass`](Pipe::pass) sends it unless it is lost. Duplicates
//! and reordering take no capacity of the link.

use crate::background::Source;
use crate::{
    Background, BackgroundCounters, Chances, FaultGenerator, Faults, Link, Loss, Order, Prng,
};

/// Bytes of IPv4 and UDP headers, which take time on a link too.
const IP_UDP_BYTES: u32 = 28;

/// The settings of a pipe.
#[derive(Clone, Debug)]
pub struct PipeConfig {
    /// One-way delay.
    pub delay_ns: u64,
    /// Rate; `None` is unlimited, and no packet ever waits.
    pub rate_bits_per_s: Option<u64>,
    /// Size of the drop-tail queue, overhead included.
    pub queue_bytes: u64,
    /// Bytes that the link charges per packet besides its own.
    pub overhead_bytes: u32,
    /// Packets that arrive when the queue is longer than this are marked "congestion experienced", as
    /// switches for DCTCP do (RFC 8257); `None`: no marks by the queue.
    pub mark_above_bytes: Option<u64>,
    /// The loss model. Losses come before all else.
    pub loss: Loss,
    /// Probabilities of the other faults.
    pub chances: Chances,
    /// How long a reordered packet is held back.
    pub reorder_delay_ns: u64,
}

impl Default for PipeConfig {
    /// Does nothing.
    fn default() -> Self {
        Self {
            delay_ns: 0,
            rate_bits_per_s: None,
            queue_bytes: u64::MAX,
            overhead_bytes: IP_UDP_BYTES,
            mark_above_bytes: None,
            loss: Loss::None,
            chances: Chances::default(),
            reorder_delay_ns: 0,
        }
    }
}

/// A packet's passage through the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// When the packet comes out, and its duplicate if it has one.
    pub release_ns: u64,
    /// Time in the queue.
    pub waited_ns: u64,
    /// Bytes in the queue at its arrival, without the packet in transmission.
    pub waiting_bytes: u64,
    /// Marked by the queue or by a fault.
    pub is_marked: bool,
}

/// One direction of a path; see the module's text.
#[derive(Debug)]
pub struct Pipe {
    delay_ns: u64,
    /// `None` when the rate is unlimited.
    link: Option<Link>,
    /// When the link has sent all packets that it has taken.
    link_free_ns: u64,
    overhead_bytes: u32,
    mark_above_bytes: Option<u64>,
    chances: Chances,
    faults: FaultGenerator,
    order: Order,
    reorder_delay_ns: u64,
    /// Traffic of others.
    background: Option<Source>,
}

impl Pipe {
    /// An empty pipe. It draws from the [`FaultGenerator::STREAMS`] streams of `seed` from `first_stream`
    /// on.
    ///
    /// # Panics
    ///
    /// When the rate is 0.
    #[must_use]
    pub fn new(config: PipeConfig, seed: u64, first_stream: u64) -> Self {
        Self {
            delay_ns: config.delay_ns,
            link: config.rate_bits_per_s.map(|rate| Link::new(rate, config.queue_bytes)),
            link_free_ns: 0,
            overhead_bytes: config.overhead_bytes,
            mark_above_bytes: config.mark_above_bytes,
            chances: config.chances,
            faults: FaultGenerator::new(config.loss, seed, first_stream),
            order: Order::default(),
            reorder_delay_ns: config.reorder_delay_ns,
            background: None,
        }
    }

    /// Traffic of others on the link from now on, or none. It takes no effect while the rate is unlimited.
    ///
    /// # Panics
    ///
    /// When [`Background::is_possible`] says that it is not.
    pub fn set_background(&mut self, background: Option<Background>, prng: Prng) {
        assert!(background.is_none_or(|background| background.is_possible()), "{background:?}");
        self.background = background.map(|background| Source::new(background, prng));
    }

    /// What others have sent since [`Pipe::set_background`].
    #[must_use]
    pub fn background(&self) -> BackgroundCounters {
        self.background.as_ref().map(Source::counters).unwrap_or_default()
    }

    /// Changes the settings for packets that enter from now on. Packets in flight keep their release
    /// times and still come out first. Random numbers continue; the loss model starts in its initial
    /// state.
    ///
    /// # Panics
    ///
    /// When the rate is 0.
    pub fn change(&mut self, config: PipeConfig) {
        match (&mut self.link, config.rate_bits_per_s) {
            (Some(link), Some(rate)) => link.change(rate, config.queue_bytes),
            (link, rate) => *link = rate.map(|rate| Link::new(rate, config.queue_bytes)),
        }
        self.delay_ns = config.delay_ns;
        self.overhead_bytes = config.overhead_bytes;
        self.mark_above_bytes = config.mark_above_bytes;
        self.chances = config.chances;
        self.faults.set_loss(config.loss);
        self.reorder_delay_ns = config.reorder_delay_ns;
    }

    /// The generator of its faults.
    pub fn faults_mut(&mut self) -> &mut FaultGenerator {
        &mut self.faults
    }

    /// Bytes in the queue, overhead included.
    pub fn waiting_bytes(&mut self, now_ns: u64) -> u64 {
        self.link.as_mut().map_or(0, |link| link.waiting_bytes(now_ns))
    }

    /// Bytes that the link charges for a packet of this size.
    #[must_use]
    pub fn charge_bytes(&self, packet_bytes: u64) -> u64 {
        packet_bytes + u64::from(self.overhead_bytes)
    }

    /// Release time of a packet without faults that bypasses the link and arrives at `arrival_ns`: not
    /// before packets that entered earlier.
    pub fn release_ns(&mut self, arrival_ns: u64) -> u64 {
        self.order.release_ns(arrival_ns, None)
    }

    /// Draws the faults of the next packet.
    pub fn draw(&mut self, packet_bytes: u64) -> Faults {
        self.faults.draw(&self.chances, packet_bytes)
    }

    /// A packet with these faults, which is not lost, enters; `None` if the queue is full. Times must
    /// not run backwards.
    pub fn pass(&mut self, now_ns: u64, packet_bytes: u64, faults: &Faults) -> Option<Passed> {
        let delay_ns = self.delay_ns;
        self.pass_delayed(now_ns, packet_bytes, faults, |_| delay_ns)
    }

    /// As [`Pipe::pass`], with a delay that depends on when the packet leaves the link.
    pub fn pass_delayed(
        &mut self,
        now_ns: u64,
        packet_bytes: u64,
        faults: &Faults,
        delay_ns: impl FnOnce(u64) -> u64,
    ) -> Option<Passed> {
        let charge_bytes = self.charge_bytes(packet_bytes);
        let (mut departure_ns, mut waited_ns, mut waiting_bytes) = (now_ns, 0, 0);
        if let Some(link) = &mut self.link {
            if let Some(source) = &mut self.background {
                source.admit(now_ns, link, self.overhead_bytes);
                self.link_free_ns = link.free_at_ns();
            }
            waiting_bytes = link.waiting_bytes(now_ns);
            departure_ns = link.admit(now_ns, charge_bytes)?;
            waited_ns = self.link_free_ns.saturating_sub(now_ns);
            self.link_free_ns = departure_ns;
        }
        let is_queue_long = self.mark_above_bytes.is_some_and(|above| waiting_bytes > above);
        let arrival_ns =
            departure_ns.saturating_add(delay_ns(departure_ns)).saturating_add(faults.jitter_ns);
        let held_back_ns = faults.is_held_back.then_some(self.reorder_delay_ns);
        let release_ns = self.order.release_ns(arrival_ns, held_back_ns);
        let is_marked = faults.is_marked || is_queue_long;
        Some(Passed { release_ns, waited_ns, waiting_bytes, is_marked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fraction;

    /// Takes 1000 ns to send 100 bytes.
    fn slow() -> PipeConfig {
        PipeConfig {
            delay_ns: 5000,
            rate_bits_per_s: Some(800_000_000),
            queue_bytes: 250,
            overhead_bytes: 0,
            ..PipeConfig::default()
        }
    }

    fn enter(pipe: &mut Pipe, now_ns: u64) -> Option<Passed> {
        let faults = pipe.draw(100);
        assert!(!faults.is_lost);
        pipe.pass(now_ns, 100, &faults)
    }

    #[test]
    fn a_packet_waits_and_then_travels_or_finds_the_queue_full() {
        let mut pipe = Pipe::new(PipeConfig { mark_above_bytes: Some(50), ..slow() }, 1, 0);
        let passed = |release_ns, waited_ns, waiting_bytes, is_marked| {
            Some(Passed { release_ns, waited_ns, waiting_bytes, is_marked })
        };
        assert_eq!(enter(&mut pipe, 0), passed(6000, 0, 0, false));
        assert_eq!(enter(&mut pipe, 0), passed(7000, 1000, 0, false));
        assert_eq!(enter(&mut pipe, 0), passed(8000, 2000, 100, true));
        assert_eq!(enter(&mut pipe, 0), None);
        assert_eq!(pipe.waiting_bytes(0), 200);
        assert_eq!(enter(&mut pipe, 10_000), passed(16_000, 0, 0, false));
    }

    #[test]
    fn what_others_send_makes_packets_wait_and_is_counted() {
        let mut pipe = Pipe::new(PipeConfig { queue_bytes: 1 << 20, ..slow() }, 1, 0);
        let background = Background { share_ppm: 500_000, burst_ns: 1_000_000 };
        pipe.set_background(Some(background), Prng::new(1, 1 << 60));
        let waits = (0..10_000).map(|number| enter(&mut pipe, number * 10_000));
        let waits: Vec<u64> = waits.map(|passed| passed.expect("room").waited_ns).collect();
        let waited = waits.iter().filter(|waited_ns| **waited_ns > 0).count();
        assert!((2000..9000).contains(&waited), "{waited} of {}", waits.len());
        assert!(pipe.background().sent_packets > 1000 && pipe.background().dropped == 0);
        pipe.set_background(None, Prng::new(1, 0));
        assert_eq!(enter(&mut pipe, 1_000_000_000).map(|passed| passed.waited_ns), Some(0));
        assert_eq!(pipe.background(), BackgroundCounters::default());
    }

    #[test]
    fn a_pipe_that_changes_lets_what_is_under_way_come_out_first() {
        let mut pipe = Pipe::new(slow(), 1, 0);
        assert_eq!(enter(&mut pipe, 0).map(|passed| passed.release_ns), Some(6000));
        pipe.change(PipeConfig::default());
        assert_eq!(enter(&mut pipe, 10).map(|passed| passed.release_ns), Some(6000));
        assert_eq!(enter(&mut pipe, 7000).map(|passed| passed.release_ns), Some(7000));
        pipe.change(PipeConfig { loss: Loss::Independent(Fraction::always()), ..slow() });
        assert!(pipe.draw(100).is_lost);
    }
}
