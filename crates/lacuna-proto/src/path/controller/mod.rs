//! Congestion controllers: how fast, and how much at once.
//!
//! A controller is fed with what was sent and what the peer's reports say, and
//! answers a window and, if it paces, a rate. Loss that a reliability mode
//! repairs is not a signal by itself. Each controller is a file of the same
//! shape; adding one touches its file and the enum below.

mod fixed;
mod probing;

pub use fixed::Fixed;
pub use probing::Probing;

/// What a report said about runs that left the network.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// When the report came.
    pub now_ns: u64,
    /// UDP payload bytes that left the network with this report.
    pub passed_bytes: u64,
    /// All bytes that ever left.
    pub delivered_bytes: u64,
    /// `delivered_bytes` when the latest of these runs was sent: a round has
    /// passed once this reaches the total at the round's start.
    pub delivered_before_bytes: u64,
    /// Time between learning `delivered_before_bytes` and now.
    pub interval_ns: u64,
    /// Smallest recent round-trip time.
    pub min_rtt_ns: u64,
    /// Whether the window, not the application, had held the sender back.
    pub window_limited: bool,
}

/// Which controller to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ControllerConfig {
    /// Find window and rate by probing.
    #[default]
    Probing,
    /// Send at this rate: for a link that is yours.
    Fixed {
        /// UDP payload and 28 bytes of IP and UDP headers a packet, per second.
        rate_bits_per_s: u64,
    },
}

/// The controllers.
#[derive(Debug, Clone)]
pub enum Controller {
    /// See [`Fixed`].
    Fixed(Fixed),
    /// See [`Probing`].
    Probing(Probing),
}

impl Controller {
    /// The controller that `config` names.
    pub fn new(config: ControllerConfig) -> Self {
        match config {
            ControllerConfig::Fixed { rate_bits_per_s } => Self::Fixed(Fixed::new(rate_bits_per_s)),
            ControllerConfig::Probing => Self::Probing(Probing::new()),
        }
    }

    /// Takes in a report.
    pub fn on_sample(&mut self, sample: &Sample) {
        match self {
            Self::Fixed(controller) => controller.on_sample(sample),
            Self::Probing(controller) => controller.on_sample(sample),
        }
    }

    /// How many queue pairs share the way out: what a window is never made
    /// smaller than is for all of them together.
    pub fn set_shares(&mut self, shares: u32) {
        match self {
            Self::Fixed(_) => {}
            Self::Probing(controller) => controller.set_shares(shares),
        }
    }

    /// Bytes that may be in flight.
    pub fn window_bytes(&self) -> u64 {
        match self {
            Self::Fixed(controller) => controller.window_bytes(),
            Self::Probing(controller) => controller.window_bytes(),
        }
    }

    /// Pacing rate, if it paces.
    pub fn rate_bits_per_s(&self) -> Option<u64> {
        match self {
            Self::Fixed(controller) => controller.rate_bits_per_s(),
            Self::Probing(controller) => controller.rate_bits_per_s(),
        }
    }

    /// Bytes that the path itself holds: rate times smallest RTT.
    pub fn path_bytes(&self, min_rtt_ns: u64) -> u64 {
        match self {
            Self::Fixed(controller) => controller.path_bytes(min_rtt_ns),
            Self::Probing(controller) => controller.path_bytes(min_rtt_ns),
        }
    }

    /// Name in statistics and start-up lines.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::Probing(_) => "probing",
        }
    }
}
