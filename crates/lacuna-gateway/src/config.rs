//! Settings of a gateway.

use lacuna_lowar::{AutoConfig, SharedConfig};
use lacuna_wire::rc::Strength;

/// Settings of a gateway.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// How flows that leave are protected; `None` is not at all. With `auto` that is until the far gateway asks
    /// for something else.
    pub strength: Option<Strength>,
    /// Chooses how flows that come are protected, asks the far gateway for it, and grants it what it asks for.
    /// Short messages have only their share of repairs then.
    pub auto: Option<AutoConfig>,
    /// Whether short messages have only their share of repairs.
    pub caps_short_blocks: bool,
    /// The round trip of the path, if it is known; else it is measured.
    pub round_trip_ns: Option<u64>,
    /// Most flows with state, in each direction.
    pub flows_max: usize,
    /// Frames that are made are no longer: those of the path's MTU.
    pub frame_bytes_max: usize,
    /// Memory for coding and for packets that wait.
    pub shared: SharedConfig,
    /// Where tables are scattered from; any number that others do not know.
    pub seed: u64,
}

impl Config {
    /// A gateway that protects flows so.
    #[must_use]
    pub fn new(strength: Option<Strength>) -> Self {
        Self {
            strength,
            auto: None,
            caps_short_blocks: false,
            round_trip_ns: None,
            flows_max: 4096,
            frame_bytes_max: usize::MAX,
            shared: SharedConfig::default(),
            seed: 0,
        }
    }
}
