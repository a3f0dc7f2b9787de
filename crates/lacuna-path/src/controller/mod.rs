//! Congestion controllers: window, pacing rate and size of bursts.
//!
//! A controller is called for each burst that is sent, for each report, for a few other signals, and
//! for its timer if it has one; never for a single packet. It returns [`Limits`]. Time is an argument.
//! Losses include those that a reliability mode repairs; each controller decides what they mean.
//!
//! All controllers have the same shape. Adding one touches its file, `config.rs` (kind,
//! configuration, how it is built, a line of [`TABLE`]) and the enum and its macro below. It is an
//! enum and not a boxed trait, because it is called for each burst.
//!
//! All bytes are wire bytes: UDP payload and 28 bytes of IP and UDP headers a packet.

mod bbr;
mod config;
mod cubic;
mod fixed;
mod sample;
mod train;

pub use bbr::Bbr;
pub use config::{ConfigError, ControllerConfig, Kind, KindEntry, Setup, TABLE};
pub use cubic::Cubic;
pub use fixed::Fixed;
pub use sample::{RateSample, RoundTrips, Sample, Shares, Signal, StartRate};

/// A path with a shorter round trip than this is *short* (a judgement): data in flight is in socket
/// buffers, not on the path. Loopback and one switch are below, the next building is above. The
/// controllers do not pace on such a path, because a wake-up takes longer than the gap to pace.
pub const SHORT_PATH_NS: u64 = 500_000;

/// What a controller allows at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that may be in flight: the congestion window.
    pub window_bytes: u64,
    /// Bits per second to pace at, if it paces.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may leave at once.
    pub burst_bytes: u64,
}

impl Limits {
    /// A window without pacing.
    pub fn unpaced(window_bytes: u64) -> Self {
        Self { window_bytes, rate_bits_per_s: None, burst_bytes: u64::MAX }
    }

    /// A window, and a pacing rate with bursts of a quarter of a millisecond.
    pub fn paced(window_bytes: u64, rate_bits_per_s: u64) -> Self {
        let burst_bytes = burst_of(rate_bits_per_s);
        Self { window_bytes, rate_bits_per_s: Some(rate_bits_per_s), burst_bytes }
    }
}

/// The verbs of every controller.
pub trait Controller {
    /// A burst is sent; `in_flight_bytes` does not include it.
    fn on_sent(&mut self, now_ns: u64, bytes: u64, in_flight_bytes: u64);

    /// Takes in a report.
    fn on_report(&mut self, sample: &Sample);

    /// Takes in a signal other than a report.
    fn on_signal(&mut self, now_ns: u64, signal: Signal);

    /// When to call [`Controller::on_timeout`], if time alone changes anything.
    fn poll_timeout(&self) -> Option<u64> {
        None
    }

    /// The controller's timer is due.
    fn on_timeout(&mut self, _now_ns: u64) {}

    /// What may be sent. Only the calls above change it, so a caller may keep it between them.
    fn limits(&self) -> Limits;

    /// Bytes that the path itself holds at this smallest round trip, for which the peer's socket
    /// needs no room. 0 on a path so short that everything in flight may be in that socket.
    fn path_bytes(&self, min_rtt_ns: u64) -> u64;

    /// Bits per second that the path was found to carry, for the next flow.
    fn found_bits_per_s(&self) -> Option<u64> {
        None
    }
}

/// Bytes in a quarter of a millisecond at a rate: enough to fill segmentation offload, and too few
/// to look like a burst to a queue (draft-ietf-ccwg-bbr-05, 5.6.3, allows a whole millisecond).
fn burst_of(rate_bits_per_s: u64) -> u64 {
    crate::pacer::bytes_in(250_000, rate_bits_per_s).max(1)
}

/// The controllers.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "the default is the largest")]
pub enum AnyController {
    /// See [`Fixed`].
    Fixed(Fixed),
    /// See [`Bbr`].
    Bbr(Bbr),
    /// See [`Cubic`].
    Cubic(Cubic),
}

/// Calls the same verb on the controller of any kind.
macro_rules! each {
    ($self:expr, $controller:ident => $call:expr) => {
        match $self {
            Self::Fixed($controller) => $call,
            Self::Bbr($controller) => $call,
            Self::Cubic($controller) => $call,
        }
    };
}

impl Controller for AnyController {
    fn on_sent(&mut self, now_ns: u64, bytes: u64, in_flight_bytes: u64) {
        each!(self, controller => controller.on_sent(now_ns, bytes, in_flight_bytes));
    }

    fn on_report(&mut self, sample: &Sample) {
        each!(self, controller => controller.on_report(sample));
    }

    fn on_signal(&mut self, now_ns: u64, signal: Signal) {
        each!(self, controller => controller.on_signal(now_ns, signal));
    }

    #[inline]
    fn poll_timeout(&self) -> Option<u64> {
        each!(self, controller => controller.poll_timeout())
    }

    fn on_timeout(&mut self, now_ns: u64) {
        each!(self, controller => controller.on_timeout(now_ns));
    }

    fn limits(&self) -> Limits {
        each!(self, controller => controller.limits())
    }

    fn path_bytes(&self, min_rtt_ns: u64) -> u64 {
        each!(self, controller => controller.path_bytes(min_rtt_ns))
    }

    fn found_bits_per_s(&self) -> Option<u64> {
        each!(self, controller => controller.found_bits_per_s())
    }
}
