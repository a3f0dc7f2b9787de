//! Settings of a datagram queue pair.

use crate::incoming::OpenLimits;
use crate::outgoing::PaceConfig;
use crate::reliable::ReliableConfig;
use lacuna_path::controller::ControllerConfig;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Longest packet, as UDP payload: what the path passes without fragments.
    pub packet_bytes_max: usize,
    /// Bits per second to each peer, headers included; `None` is what the controller finds, if there is one.
    pub rate_bits_per_s: Option<u64>,
    /// Finds how fast packets may leave to each peer, by asking it how much has come; `None` is as fast as they can
    /// be handed out.
    pub controller: Option<ControllerConfig>,
    /// Everything is sent until it has come (RD); both ends must have it. `None`: once (UD).
    pub reliable: Option<ReliableConfig>,
    /// Whether messages to groups are kept for a while, and what receivers miss of them is sent again.
    pub group_repairs: bool,
    /// Peers that are known at a time. Those that are not held go for others.
    pub peers_max: usize,
    /// Messages that are open at a time; of reliable ones those in all, and the next one of each source beside.
    pub open: OpenLimits,
    /// Write-Records that may be open, or wait to be polled; more are not taken.
    pub records_max: usize,
    /// Messages that wait to be sent while READs of peers are still answered.
    pub answers_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            packet_bytes_max: 1472,
            rate_bits_per_s: None,
            controller: None,
            reliable: None,
            group_repairs: true,
            peers_max: 1 << 20,
            open: OpenLimits { of_source: 64, in_all: 1 << 16 },
            records_max: 1 << 16,
            answers_max: 1 << 16,
        }
    }
}

impl Config {
    /// What paces unreliable messages.
    pub(crate) fn pace(&self) -> PaceConfig {
        match (self.rate_bits_per_s, self.controller) {
            (Some(rate_bits_per_s), _) => PaceConfig::Fixed { rate_bits_per_s },
            (None, Some(controller)) => PaceConfig::Found { controller },
            (None, None) => PaceConfig::Free,
        }
    }
}
