//! Configuration of a queue pair, and the parameters of the peer's.

use crate::modes::{Mode, auto};
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::Geometry;

/// Configuration of a queue pair.
#[derive(Debug, Clone)]
pub struct QpConfig {
    /// Geometry that both ends agree on.
    pub geometry: Geometry,
    /// Reliability of all messages, both directions.
    pub mode: Mode,
    /// Policy of the mode `auto`: [`auto::plan`].
    pub policy: auto::Policy,
    /// Congestion controller.
    pub controller: ControllerConfig,
    /// Retransmission timeout.
    pub rto: RtoConfig,
    /// This end's number.
    pub queue_pair: u32,
    /// Key that the peer's data packets must carry.
    pub rkey: u32,
    /// Key that the peer's control packets must carry.
    pub qkey: u32,
    /// First sequence number of every channel, both directions.
    pub first_psn: u32,
    /// Bytes that one of this end's sockets can hold for this peer, in the kernel's accounting.
    pub credit_bytes: u32,
    /// Silence after which the peer counts as gone, if it owes an answer.
    pub silence_max_ns: u64,
}

/// The peer's end, from its info.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub queue_pair: u32,
    /// Key for data packets to it.
    pub rkey: u32,
    /// Key for control packets to it.
    pub qkey: u32,
    /// First sequence number of its channels.
    pub first_psn: u32,
    /// Bytes that one of its sockets can hold for this end.
    pub credit_bytes: u32,
}
