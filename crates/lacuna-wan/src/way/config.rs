//! What one direction of a path does to packets.

use lacuna_link::{Chances, Fraction, Loss, PipeConfig};

use super::trace::DelayTrace;

/// One direction of a path. The default does nothing.
///
/// The same model as that of the datapath `impair`, with marks, recorded delays and changes while it
/// runs; the same seed means the same losses.
#[derive(Clone, Debug)]
pub struct WayConfig {
    /// The rate of the link; `None` for no limit.
    pub rate_bits_per_s: Option<u64>,
    /// What may wait in front of the link, as the link charges it. What arrives at a full queue is
    /// dropped. Without a rate nothing ever waits.
    pub queue_bytes: u64,
    /// What the link charges a packet besides its bytes from the IP header on. The default is 14,
    /// an Ethernet header, as Linux' own shapers charge.
    pub overhead_bytes: u32,
    /// How long the way is.
    pub delay: Delay,
    /// Up to this much is added to the delay, uniformly. Packets keep their order: one that would
    /// overtake arrives together with the one before it.
    pub jitter_ns: u64,
    /// Which packets are lost, before anything else happens to them.
    pub loss: Loss,
    /// How many packets are held back for others to pass, …
    pub reorder: Fraction,
    /// … and how long.
    pub reorder_delay_ns: u64,
    /// How many packets arrive twice, the copy right behind the original.
    pub duplicate: Fraction,
    /// How many packets have one bit flipped, anywhere behind what a link's own checksum would have
    /// caught. Of a packet that is also duplicated, only the original.
    pub corrupt: Fraction,
    /// How many packets are marked as having met congestion (CE of RFC 3168). Like every mark only
    /// if the sender declared that it understands marks.
    pub mark: Fraction,
    /// Packets that arrive while more than this waits are marked, as DCTCP's switches do (RFC
    /// 8257); `None` for none.
    pub mark_above_bytes: Option<u64>,
    /// A bundle is cut so that no packet waits longer than this for the last one of its piece.
    /// Smaller is truer to a link on which packets come one by one, and costs more. `None` is a
    /// 25th of the delay, but 100 us at least and 600 us at most: the mean packet waits half of it.
    pub bundle_ns_max: Option<u64>,
}

impl WayConfig {
    /// What both queue and link may hold. The two ways of a path have twice that.
    pub const HELD_BYTES_MAX: u64 = 1 << 30;

    /// Whether such a way can be.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn validate(&self) -> Result<(), WayError> {
        let Some(rate) = self.rate_bits_per_s else { return Ok(()) };
        if rate == 0 {
            return Err(WayError::ZeroRate);
        }
        let path_ns = u128::from(self.delay.max_ns()) + u128::from(self.jitter_ns);
        let needed_bytes =
            u128::from(rate) * path_ns / 8 / 1_000_000_000 + u128::from(self.queue_bytes);
        if needed_bytes > u128::from(Self::HELD_BYTES_MAX) {
            return Err(WayError::TooMuchInFlight { needed_bytes });
        }
        Ok(())
    }

    /// [`WayConfig::bundle_ns_max`] as it is.
    pub(super) fn piece_ns_max(&self) -> u64 {
        // 2 % of the delay, in the mean, is what the path promises. Each piece wakes the emulator
        // and a program, some 50 us of processor time in a virtual machine: more than the shortest
        // is worth. A full bundle takes 550 us at 1 Gbit/s and need not be cut on a long path.
        let share_ns = (self.delay.min_ns() / 25).clamp(100_000, 600_000);
        self.bundle_ns_max.unwrap_or(share_ns)
    }

    /// What happens to each packet by itself, but for a delay that is recorded.
    pub(super) fn pipe(&self) -> PipeConfig {
        PipeConfig {
            delay_ns: self.delay.min_ns(),
            rate_bits_per_s: self.rate_bits_per_s,
            queue_bytes: self.queue_bytes,
            overhead_bytes: self.overhead_bytes,
            mark_above_bytes: self.mark_above_bytes,
            loss: self.loss.clone(),
            chances: Chances {
                jitter_ns: self.jitter_ns,
                reorder: self.reorder,
                duplicate: self.duplicate,
                corrupt: self.corrupt,
                mark: self.mark,
            },
            reorder_delay_ns: self.reorder_delay_ns,
        }
    }

    /// Whether packets of a bundle have to be looked at one by one.
    pub(super) fn treats_packets_alike(&self) -> bool {
        self.loss.is_none()
            && self.rate_bits_per_s.is_none()
            && self.jitter_ns == 0
            && self.reorder.is_never()
            && self.duplicate.is_never()
            && self.corrupt.is_never()
            && self.mark.is_never()
    }
}

impl Default for WayConfig {
    fn default() -> Self {
        Self {
            rate_bits_per_s: None,
            // 32 ms at 1 Gbit/s: about what a router of a wide-area link is given (a judgement).
            queue_bytes: 4 << 20,
            overhead_bytes: 14,
            delay: Delay::Fixed(0),
            jitter_ns: 0,
            loss: Loss::None,
            reorder: Fraction::never(),
            reorder_delay_ns: 0,
            duplicate: Fraction::never(),
            corrupt: Fraction::never(),
            mark: Fraction::never(),
            mark_above_bytes: None,
            bundle_ns_max: None,
        }
    }
}

/// How long a way is.
#[derive(Clone, Debug)]
pub enum Delay {
    /// Always as long, in nanoseconds.
    Fixed(u64),
    /// As recorded.
    Trace(DelayTrace),
}

impl Delay {
    /// For what leaves the link at this time, on a clock that starts with the path.
    pub(super) fn at_ns(&self, time_ns: u64) -> u64 {
        match self {
            Self::Fixed(delay_ns) => *delay_ns,
            Self::Trace(trace) => trace.at_ns(time_ns),
        }
    }

    /// The shortest.
    #[must_use]
    pub fn min_ns(&self) -> u64 {
        match self {
            Self::Fixed(delay_ns) => *delay_ns,
            Self::Trace(trace) => trace.min_ns(),
        }
    }

    /// The longest.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        match self {
            Self::Fixed(delay_ns) => *delay_ns,
            Self::Trace(trace) => trace.max_ns(),
        }
    }
}

/// What is wrong with a [`WayConfig`]. The caller's choice of numbers is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WayError {
    /// A link of rate 0 delivers nothing; a loss of 1 says so more clearly.
    #[error("a link cannot have a rate of 0 bits/s; a loss of 1 makes it dark")]
    ZeroRate,
    /// Queue and way together hold more than this process should.
    #[error(
        "queue and path would hold {needed_bytes} bytes, more than {}: \
         choose a lower rate, a shorter delay or a smaller queue",
        WayConfig::HELD_BYTES_MAX
    )]
    TooMuchInFlight {
        /// Queue plus rate times delay.
        needed_bytes: u128,
    },
}
