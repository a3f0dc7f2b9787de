//! One direction of a path, packet by packet: what chance does to it, how long it waits and travels,
//! and what is dropped.
//!
//! ```text
//! loss -> queue (marks), rate -> delay, jitter -> reordering, duplication, corruption
//! ```
//!
//! Named after dummynet's pipe (Rizzo, "Dummynet: a simple approach to the evaluation of network
//! protocols", 1997). It is told what enters and when, and says when that comes out. Holding the
//! packet until then, copying it and flipping its bits is its user's work, and so is counting.
//!
//! A packet passes in two steps, so that its user can still refuse it between them:
//! [`throw`](Pipe::throw) draws, [`pass`](Pipe::pass) lets through what is not lost. Duplicates and
//! packets that are held back cost the link nothing more.

use crate::{Chances, Dice, Link, Loss, Luck, Order};

/// Bytes of IPv4 and UDP headers, which take their time on a link too.
const IP_UDP_BYTES: u32 = 28;

/// What a pipe does to packets.
#[derive(Clone, Debug)]
pub struct PipeConfig {
    /// One-way delay.
    pub delay_ns: u64,
    /// Rate; `None` is unlimited, and nothing ever waits.
    pub rate_bits_per_s: Option<u64>,
    /// What may wait, as the link charges it. What arrives at a full queue is dropped.
    pub queue_bytes: u64,
    /// What the link charges a packet besides its bytes.
    pub overhead_bytes: u32,
    /// Packets that arrive while more than this waits are marked, as DCTCP's switches do (RFC
    /// 8257); `None` for none.
    pub mark_above_bytes: Option<u64>,
    /// Which packets are lost, before anything else happens to them.
    pub loss: Loss,
    /// What else chance does.
    pub chances: Chances,
    /// How long a packet is held back for others to pass, if it is.
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

/// How a packet passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// When it comes out. Of a packet that arrives twice, both copies.
    pub release_ns: u64,
    /// How long the link let it wait before its first bit left.
    pub waited_ns: u64,
    /// What waited in front of it, without the packet in transmission.
    pub waiting_bytes: u64,
    /// It is marked: by the queue or by chance.
    pub is_marked: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Pipe {
    delay_ns: u64,
    /// `None` when the rate is unlimited.
    link: Option<Link>,
    /// When the link has sent all that it has taken.
    link_free_ns: u64,
    overhead_bytes: u32,
    mark_above_bytes: Option<u64>,
    chances: Chances,
    dice: Dice,
    order: Order,
    reorder_delay_ns: u64,
}

impl Pipe {
    /// A pipe that nothing has entered yet. Its dice draw from the [`Dice::STREAMS`] streams of
    /// `seed` from `first_stream` on.
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
            dice: Dice::new(config.loss, seed, first_stream),
            order: Order::default(),
            reorder_delay_ns: config.reorder_delay_ns,
        }
    }

    /// Makes it another pipe for all that enters from now on. What is under way comes out as it
    /// would have, and still comes out first. Its dice go on, the loss process as one that begins.
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
        self.dice.set_loss(config.loss);
        self.reorder_delay_ns = config.reorder_delay_ns;
    }

    /// What draws for it.
    pub fn dice_mut(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// What waits in front of the link, as the link charges it.
    pub fn waiting_bytes(&mut self, now_ns: u64) -> u64 {
        self.link.as_mut().map_or(0, |link| link.waiting_bytes(now_ns))
    }

    /// What a packet of this size is charged by the link.
    #[must_use]
    pub fn charge_bytes(&self, packet_bytes: u64) -> u64 {
        packet_bytes + u64::from(self.overhead_bytes)
    }

    /// When something comes out that arrives at this time by itself and that neither chance nor
    /// the link touch: not before what entered before.
    pub fn release_ns(&mut self, arrival_ns: u64) -> u64 {
        self.order.release_ns(arrival_ns, None)
    }

    /// Draws for the next packet.
    pub fn throw(&mut self, packet_bytes: u64) -> Luck {
        self.dice.throw(&self.chances, packet_bytes)
    }

    /// A packet with this luck, which is not lost, enters; `None` if its queue is full. Times must
    /// not run backwards.
    pub fn pass(&mut self, now_ns: u64, packet_bytes: u64, luck: &Luck) -> Option<Passed> {
        let delay_ns = self.delay_ns;
        self.pass_delayed(now_ns, packet_bytes, luck, |_| delay_ns)
    }

    /// The same where the delay depends on when the packet has left the link.
    pub fn pass_delayed(
        &mut self,
        now_ns: u64,
        packet_bytes: u64,
        luck: &Luck,
        delay_ns: impl FnOnce(u64) -> u64,
    ) -> Option<Passed> {
        let charge_bytes = self.charge_bytes(packet_bytes);
        let (mut departure_ns, mut waited_ns, mut waiting_bytes) = (now_ns, 0, 0);
        if let Some(link) = &mut self.link {
            waiting_bytes = link.waiting_bytes(now_ns);
            departure_ns = link.admit(now_ns, charge_bytes)?;
            waited_ns = self.link_free_ns.saturating_sub(now_ns);
            self.link_free_ns = departure_ns;
        }
        let is_queue_long = self.mark_above_bytes.is_some_and(|above| waiting_bytes > above);
        let arrival_ns =
            departure_ns.saturating_add(delay_ns(departure_ns)).saturating_add(luck.jitter_ns);
        let held_back_ns = luck.is_held_back.then_some(self.reorder_delay_ns);
        let release_ns = self.order.release_ns(arrival_ns, held_back_ns);
        let is_marked = luck.is_marked || is_queue_long;
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
        let luck = pipe.throw(100);
        assert!(!luck.is_lost);
        pipe.pass(now_ns, 100, &luck)
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
    fn a_pipe_that_changes_lets_what_is_under_way_come_out_first() {
        let mut pipe = Pipe::new(slow(), 1, 0);
        assert_eq!(enter(&mut pipe, 0).map(|passed| passed.release_ns), Some(6000));
        pipe.change(PipeConfig::default());
        assert_eq!(enter(&mut pipe, 10).map(|passed| passed.release_ns), Some(6000));
        assert_eq!(enter(&mut pipe, 7000).map(|passed| passed.release_ns), Some(7000));
        pipe.change(PipeConfig { loss: Loss::Independent(Fraction::always()), ..slow() });
        assert!(pipe.throw(100).is_lost);
    }
}
