//! The settings of one direction of a path, and their validation.

use lacuna_link::{Background, Chances, Fraction, Loss, PipeConfig};

use super::trace::DelayTrace;

/// One direction of a path. The default does nothing.
///
/// The model is that of the datapath `impair`, with ECN marks, delay traces and changes at run time; the
/// same seed means the same losses.
#[derive(Clone, Debug)]
pub struct WayConfig {
    /// The rate of the link; `None` for no limit.
    pub rate_bits_per_s: Option<u64>,
    /// Size of the drop-tail queue in front of the link, overhead included. Without a rate no packet
    /// ever waits.
    pub queue_bytes: u64,
    /// Bytes that the link charges per packet besides the IP packet. The default is 14, an Ethernet
    /// header, as Linux' traffic shapers charge.
    pub overhead_bytes: u32,
    /// One-way propagation delay.
    pub delay: Delay,
    /// Added to the delay: uniform from 0 to this. Packets keep their order: one that would overtake
    /// arrives together with the one before it.
    pub jitter_ns: u64,
    /// The loss model. Losses come before all other faults.
    pub loss: Loss,
    /// Fraction of packets that are held back, so that later ones overtake them, …
    pub reorder: Fraction,
    /// … and for how long.
    pub reorder_delay_ns: u64,
    /// Fraction of packets that arrive twice, the copy right behind the original.
    pub duplicate: Fraction,
    /// Fraction of packets with one bit flipped, anywhere in the IP packet, undetected by the link's own
    /// checksum. Of a duplicated packet, only the original.
    pub corrupt: Fraction,
    /// Fraction of packets that are marked "congestion experienced" (CE of RFC 3168). Only ECN-capable
    /// packets are ever marked.
    pub mark: Fraction,
    /// Packets that arrive when the queue is longer than this are marked, as switches for DCTCP do (RFC
    /// 8257); `None`: no marks by the queue.
    pub mark_above_bytes: Option<u64>,
    /// Bursts of packets of others that take the link's time and places in its queue. They need a rate.
    pub background: Option<Background>,
    /// A bundle is cut so that no packet waits longer than this for the last one of its part. A smaller
    /// value is closer to a link that delivers packets one by one, and costs more. `None` is a 25th of
    /// the delay within 100 to 600 us; the mean packet waits half of it.
    pub bundle_ns_max: Option<u64>,
}

impl WayConfig {
    /// Bound on queue and link of one way together; a path of two ways may hold twice that.
    pub const HELD_BYTES_MAX: u64 = 1 << 30;

    /// Checks that such a way is possible.
    ///
    /// # Errors
    ///
    /// The first setting that is wrong.
    pub fn validate(&self) -> Result<(), WayError> {
        if let Some(background) = self.background.filter(|background| !background.is_possible()) {
            return Err(WayError::Background { background });
        }
        let Some(rate) = self.rate_bits_per_s else {
            return match self.background {
                Some(_) => Err(WayError::BackgroundWithoutRate),
                None => Ok(()),
            };
        };
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

    /// [`WayConfig::bundle_ns_max`], or its default.
    pub(super) fn part_ns_max(&self) -> u64 {
        // The path promises a mean error of at most 2 % of the delay. Each part wakes the emulator and a
        // program, some 50 us of processor time in a virtual machine, so parts below 100 us do not pay.
        // A full bundle takes 550 us at 1 Gbit/s and need not be cut on a long path.
        let share_ns = (self.delay.min_ns() / 25).clamp(100_000, 600_000);
        self.bundle_ns_max.unwrap_or(share_ns)
    }

    /// The settings of the way's pipe; a delay trace is added by the way.
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

    /// Whether all packets of a bundle fare alike, so that it need not be cut.
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
            background: None,
            bundle_ns_max: None,
        }
    }
}

/// The delay of a way.
#[derive(Clone, Debug)]
pub enum Delay {
    /// Constant, in nanoseconds.
    Fixed(u64),
    /// From a trace.
    Trace(DelayTrace),
}

impl Delay {
    /// The delay of a packet that leaves the link at `time_ns`, since the start of the path.
    pub(super) fn at_ns(&self, time_ns: u64) -> u64 {
        match self {
            Self::Fixed(delay_ns) => *delay_ns,
            Self::Trace(trace) => trace.at_ns(time_ns),
        }
    }

    /// The shortest delay.
    #[must_use]
    pub fn min_ns(&self) -> u64 {
        match self {
            Self::Fixed(delay_ns) => *delay_ns,
            Self::Trace(trace) => trace.min_ns(),
        }
    }

    /// The longest delay.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        match self {
            Self::Fixed(delay_ns) => *delay_ns,
            Self::Trace(trace) => trace.max_ns(),
        }
    }
}

/// Why a [`WayConfig`] is refused. The caller's choice of numbers is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WayError {
    /// A link of rate 0 delivers nothing; use a loss of 1 instead.
    #[error("a link cannot have a rate of 0 bits/s; a loss of 1 makes it dark")]
    ZeroRate,
    /// Traffic of others that leaves no room, or is none.
    #[error(
        "traffic of others of {} millionths of the rate, {} ns at a time, is out of range: \
         use 1 to {} millionths, and {} ns or more",
        background.share_ppm, background.burst_ns, Background::SHARE_PPM_MAX, Background::BURST_NS_MIN
    )]
    Background {
        /// As given.
        background: Background,
    },
    /// Traffic of others on a link without a limit.
    #[error("traffic of others needs a link with a rate: without one nothing waits for it")]
    BackgroundWithoutRate,
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
