//! The settings of an impaired link, and their validation.

use lacuna_link::{Chances, Fraction, Loss, PipeConfig};

/// What a link does to packets. The default does nothing.
#[derive(Clone, Debug)]
pub struct Impairment {
    /// The loss model. Losses come before all other impairments.
    pub loss: Loss,
    /// One-way propagation delay.
    pub delay_ns: u64,
    /// Added to the delay: uniform from 0 to this. Packets keep their order: one that would overtake
    /// arrives together with the one before it.
    pub jitter_ns: u64,
    /// The rate of the link; `None` for no limit.
    pub rate_bits_per_s: Option<u64>,
    /// Size of the drop-tail queue in front of the link, overhead included (see below). Without a rate
    /// no packet ever waits.
    pub queue_bytes: u64,
    /// Bytes that the link charges per packet besides its own. The default is 28, the headers of IPv4
    /// and UDP.
    pub per_packet_overhead_bytes: u32,
    /// Fraction of packets that are held back, so that later ones overtake them, …
    pub reorder: Fraction,
    /// … and for how long.
    pub reorder_delay_ns: u64,
    /// Fraction of packets that arrive twice, the copy right behind the original.
    pub duplicate: Fraction,
    /// Fraction of packets with one bit flipped. Of a duplicated packet, only the original.
    pub corrupt: Fraction,
}

impl Impairment {
    /// Bound on the memory of packets in flight, with some bookkeeping for each. Packets beyond it are
    /// dropped and counted as [`queue_dropped`](super::ImpairCounters::queue_dropped). A link with a
    /// rate holds at most its queue plus rate times delay, and [`Impairment::validate`] keeps that
    /// within the bound; so only very small packets or a blocked inner datapath reach it.
    pub const HELD_BYTES_MAX: u64 = 1 << 30;

    /// Checks that such a link is possible.
    ///
    /// # Errors
    ///
    /// The first setting that is wrong.
    pub fn validate(&self) -> Result<(), ImpairmentError> {
        let Some(rate) = self.rate_bits_per_s else { return Ok(()) };
        if rate == 0 {
            return Err(ImpairmentError::ZeroRate);
        }
        let path_ns = u128::from(self.delay_ns) + u128::from(self.jitter_ns);
        let path_bytes = u128::from(rate) * path_ns / 8 / 1_000_000_000;
        let needed_bytes = path_bytes + u128::from(self.queue_bytes);
        if needed_bytes > u128::from(Self::HELD_BYTES_MAX) {
            return Err(ImpairmentError::TooMuchInFlight { needed_bytes });
        }
        Ok(())
    }

    pub(super) fn pipe(&self) -> PipeConfig {
        PipeConfig {
            delay_ns: self.delay_ns,
            rate_bits_per_s: self.rate_bits_per_s,
            queue_bytes: self.queue_bytes,
            overhead_bytes: self.per_packet_overhead_bytes,
            mark_above_bytes: None,
            loss: self.loss.clone(),
            chances: Chances {
                jitter_ns: self.jitter_ns,
                reorder: self.reorder,
                duplicate: self.duplicate,
                corrupt: self.corrupt,
                mark: Fraction::never(),
            },
            reorder_delay_ns: self.reorder_delay_ns,
        }
    }

    /// Whether such a link has no effect at all.
    pub(super) fn is_transparent(&self) -> bool {
        self.loss.is_none()
            && self.delay_ns == 0
            && self.jitter_ns == 0
            && self.rate_bits_per_s.is_none()
            && (self.reorder.is_never() || self.reorder_delay_ns == 0)
            && self.duplicate.is_never()
            && self.corrupt.is_never()
    }
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            loss: Loss::None,
            delay_ns: 0,
            jitter_ns: 0,
            rate_bits_per_s: None,
            // 32 ms at 1 Gbit/s: about what a router of a wide-area link is given (a judgement).
            queue_bytes: 4 << 20,
            per_packet_overhead_bytes: 28,
            reorder: Fraction::never(),
            reorder_delay_ns: 0,
            duplicate: Fraction::never(),
            corrupt: Fraction::never(),
        }
    }
}

/// Why an [`Impairment`] is refused. The caller's choice of numbers is at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImpairmentError {
    /// A link of rate 0 delivers nothing; use a loss of 1 instead.
    #[error("a link cannot have a rate of 0 bits/s")]
    ZeroRate,
    /// Queue and path together hold more than this process should.
    #[error(
        "queue and path would hold {needed_bytes} bytes, more than {}: \
         choose a lower rate, a shorter delay or a smaller queue",
        Impairment::HELD_BYTES_MAX
    )]
    TooMuchInFlight {
        /// Queue plus rate times delay.
        needed_bytes: u128,
    },
}
