//! Congestion controllers: how fast, how much at once, and in how large bursts.
//!
//! A controller is fed per burst that leaves and per report that comes, never
//! per packet, and answers a window, a rate to pace at if it paces, and the
//! bytes that may leave at once. Time is an argument. Losses that a reliability
//! mode repairs are told but are not a signal by themselves: what they mean is
//! each controller's own decision.
//!
//! Each controller is a sibling of the same shape. Adding one touches its file,
//! [`ControllerConfig`], the enum below and [`TABLE`]. An enum and not a boxed
//! trait, because a queue pair asks it for each burst.
//!
//! All bytes are wire bytes: UDP payload and 28 bytes of IP and UDP headers a
//! packet.

mod bbr;
mod cubic;
mod fixed;
mod train;

pub use super::delivery::RateSample;
pub use bbr::Bbr;
pub use cubic::Cubic;
pub use fixed::Fixed;

/// A round trip below which a path holds nothing worth counting: what is in
/// flight is in a socket buffer. Loopback and one switch are below, the next
/// building is above. There, pacing would only cost wake-ups.
pub const SHORT_PATH_NS: u64 = 500_000;

/// What a report says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// When the report came.
    pub now_ns: u64,
    /// When the newest packet that it speaks of had come, a way back later.
    pub arrived_ns: u64,
    /// When the newest run that it speaks of had left.
    pub sent_ns: u64,
    /// Bytes delivered with this report.
    pub newly_delivered_bytes: u64,
    /// Bytes delivered in all.
    pub delivered_bytes: u64,
    /// Bytes that this report shows to be lost.
    pub newly_lost_bytes: u64,
    /// Of the bytes delivered with this report, those with a congestion mark.
    pub newly_marked_bytes: u64,
    /// Delivery rate of the newest run that this report speaks of.
    pub rate: Option<RateSample>,
    /// Round-trip time of the newest packet that this report speaks of.
    pub rtt_ns: Option<u64>,
    /// Smallest round-trip time of the last ten seconds; 0 before the first.
    pub min_rtt_ns: u64,
    /// Smoothed round-trip time; 0 before the first.
    pub smoothed_rtt_ns: u64,
    /// Bytes in flight now.
    pub in_flight_bytes: u64,
    /// Whether the window, not the application, had held the sender back since
    /// the last report.
    pub is_window_limited: bool,
}

/// Queue pairs of this owner that have anything in flight, this one among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// To whomever. What a window on a short path is never made smaller than is for all of
    /// them together.
    pub host: u32,
    /// To the same peer.
    pub path: u32,
}

/// What every controller can do.
pub trait Controller {
    /// A burst leaves; `in_flight_bytes` does not include it.
    fn on_sent(&mut self, now_ns: u64, bytes: u64, in_flight_bytes: u64);

    /// Takes in a report.
    fn on_report(&mut self, sample: &Sample);

    /// Takes a round-trip sample that came beside the reports, as before the
    /// first byte.
    fn on_rtt(&mut self, now_ns: u64, rtt_ns: u64);

    /// Begins at a rate that is known from elsewhere. To be called after the
    /// first round-trip sample and before anything is sent; ignored later.
    fn start_at(&mut self, start: StartRate);

    /// Nothing was heard for a whole timeout. How little goes out meanwhile is
    /// the path's decision; this tells that what was in flight is gone.
    fn on_silence(&mut self, now_ns: u64);

    /// How many queue pairs share the way out.
    fn set_shares(&mut self, shares: Shares);

    /// Bytes that may be in flight.
    fn window_bytes(&self) -> u64;

    /// Bits per second to pace at, if it paces.
    fn rate_bits_per_s(&self) -> Option<u64>;

    /// Bytes that may leave at once when pacing.
    fn burst_bytes(&self) -> u64 {
        self.rate_bits_per_s().map_or(u64::MAX, burst_of)
    }

    /// Bytes that the path itself holds: its rate times its smallest RTT.
    fn path_bytes(&self, min_rtt_ns: u64) -> u64;

    /// Bits per second that the path was found to carry: for the next flow.
    fn found_bits_per_s(&self) -> Option<u64> {
        None
    }
}

/// What a rate carries in a quarter of a millisecond: long enough to fill
/// segmentation offload, short enough not to look like a burst to a queue
/// (draft-ietf-ccwg-bbr-05, 5.6.3, allows a whole one).
fn burst_of(rate_bits_per_s: u64) -> u64 {
    super::pacer::bytes_in(250_000, rate_bits_per_s).max(1)
}

/// What a controller is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Bytes of a full packet.
    pub packet_bytes: u64,
    /// Of what it draws: flows that probe at the same times disturb each other.
    pub seed: u64,
}

/// A rate that is known before anything was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartRate {
    /// Wire bits per second.
    pub rate_bits_per_s: u64,
}

/// The controllers by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// See [`Bbr`].
    Bbr,
    /// See [`Cubic`].
    Cubic,
    /// See [`Fixed`].
    Fixed,
}

/// One line per controller: how it is written and what it is.
pub const TABLE: &[KindEntry] = &[
    KindEntry {
        kind: Kind::Bbr,
        name: "bbr",
        summary: "BBR version 3: finds the path's rate; loss alone does not slow it down",
    },
    KindEntry {
        kind: Kind::Cubic,
        name: "cubic",
        summary: "as most TCP: slows down at every loss; to compare with",
    },
    KindEntry {
        kind: Kind::Fixed,
        name: "fixed",
        summary: "the rate that is given, whatever happens: for a link that is yours",
    },
];

/// An entry of [`TABLE`].
#[derive(Debug, Clone, Copy)]
pub struct KindEntry {
    /// Which it is.
    pub kind: Kind,
    /// As on the command line.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
}

impl Kind {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|entry| entry.kind == self).map_or("?", |entry| entry.name)
    }
}

/// Which controller to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ControllerConfig {
    /// A model of the path from delivery rate and round-trip time.
    #[default]
    Bbr,
    /// A window that answers to every loss, as TCP's.
    Cubic,
    /// Send at this rate: for a link that is yours.
    Fixed {
        /// UDP payload and 28 bytes of IP and UDP headers a packet, per second.
        rate_bits_per_s: u64,
    },
}

impl ControllerConfig {
    /// Name in statistics and start-up lines.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bbr => Kind::Bbr.name(),
            Self::Cubic => Kind::Cubic.name(),
            Self::Fixed { .. } => Kind::Fixed.name(),
        }
    }

    /// The controller.
    pub fn build(&self, setup: Setup) -> AnyController {
        match *self {
            Self::Bbr => AnyController::Bbr(Bbr::new(setup)),
            Self::Cubic => AnyController::Cubic(Cubic::new(setup)),
            Self::Fixed { rate_bits_per_s } => AnyController::Fixed(Fixed::new(rate_bits_per_s)),
        }
    }
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

/// Calls the same verb on whichever controller it is.
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

    fn on_rtt(&mut self, now_ns: u64, rtt_ns: u64) {
        each!(self, controller => controller.on_rtt(now_ns, rtt_ns));
    }

    fn start_at(&mut self, start: StartRate) {
        each!(self, controller => controller.start_at(start));
    }

    fn on_silence(&mut self, now_ns: u64) {
        each!(self, controller => controller.on_silence(now_ns));
    }

    fn set_shares(&mut self, shares: Shares) {
        each!(self, controller => controller.set_shares(shares));
    }

    fn window_bytes(&self) -> u64 {
        each!(self, controller => controller.window_bytes())
    }

    fn rate_bits_per_s(&self) -> Option<u64> {
        each!(self, controller => controller.rate_bits_per_s())
    }

    fn burst_bytes(&self) -> u64 {
        each!(self, controller => controller.burst_bytes())
    }

    fn path_bytes(&self, min_rtt_ns: u64) -> u64 {
        each!(self, controller => controller.path_bytes(min_rtt_ns))
    }

    fn found_bits_per_s(&self) -> Option<u64> {
        each!(self, controller => controller.found_bits_per_s())
    }
}
