//! What the flows of a host share: coding units of both directions, the ring, and memory for repairs with
//! an MDS code.

use crate::reorder::{RING_PACKETS_DEFAULT, Ring};
use crate::units::{UNITS_DEFAULT, UnitPool};
use lacuna_code::{Codec, Workspace};
use std::sync::Arc;

/// Workspaces of as many MDS codes are kept; each is about 1 MiB.
const WORKSPACES_MAX: usize = 4;

/// Sizes of a host's shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedConfig {
    /// Coding units of encoders.
    pub encode_units: usize,
    /// Coding units of decoders.
    pub decode_units: usize,
    /// Packets that may wait behind gaps.
    pub ring_packets: usize,
    /// The longest payload of a packet: the largest MTU of a flow.
    pub payload_bytes_max: usize,
}

impl Default for SharedConfig {
    /// The numbers of the paper's prototype, and the largest MTU of RDMA.
    fn default() -> Self {
        Self {
            encode_units: UNITS_DEFAULT,
            decode_units: UNITS_DEFAULT,
            ring_packets: RING_PACKETS_DEFAULT,
            payload_bytes_max: 4096,
        }
    }
}

/// See the module's text. All memory is allocated on first use.
#[derive(Debug)]
pub struct Shared {
    /// Coding units of encoders.
    pub encode: UnitPool,
    /// Coding units of decoders.
    pub decode: UnitPool,
    /// Packets that wait behind gaps.
    pub ring: Ring,
    /// As long as a sum.
    pub(crate) zeros: Vec<u8>,
    pub(crate) workspaces: Workspaces,
}

impl Shared {
    /// The memory of a host that has used none of it.
    #[must_use]
    pub fn new(config: SharedConfig) -> Self {
        let SharedConfig { encode_units, decode_units, ring_packets, payload_bytes_max } = config;
        Self {
            encode: UnitPool::new(encode_units, payload_bytes_max),
            decode: UnitPool::new(decode_units, payload_bytes_max),
            ring: Ring::new(ring_packets, payload_bytes_max),
            zeros: Vec::new(),
            workspaces: Workspaces(Vec::new()),
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(SharedConfig::default())
    }
}

/// Memory for repairs, by code; the most recently used is last.
#[derive(Debug)]
pub(crate) struct Workspaces(Vec<(Arc<Codec>, Workspace)>);

impl Workspaces {
    pub(crate) fn of(&mut self, codec: &Arc<Codec>) -> &mut Workspace {
        let same = |kept: &Codec| (kept.code(), kept.engine()) == (codec.code(), codec.engine());
        match self.0.iter().position(|(kept, _)| same(kept)) {
            Some(at) => self.0[at..].rotate_left(1),
            None => {
                if self.0.len() == WORKSPACES_MAX {
                    self.0.remove(0);
                }
                self.0.push((codec.clone(), Workspace::new(codec)));
            }
        }
        &mut self.0.last_mut().expect("it was put there").1
    }
}
