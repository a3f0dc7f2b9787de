//! LoWAR: a shim below an RDMA reliable connection that repairs losses before the connection sees them.
//!
//! Zuo et al., "LoWAR: Enhancing RDMA over Lossy WANs with Transparent Error Correction". A reliable
//! connection with go-back-N sends a whole window again for one lost packet. The shim at its sender adds
//! repair packets to each message; the one at its receiver keeps packets behind a gap for a moment, until
//! the lost one is recovered, and hands them up in order. What it cannot repair it hands up as it came: the
//! connection then repeats it as always. Data packets are never changed.
//!
//! | module | contents |
//! |---|---|
//! | `auto` | which strength the peer is asked for: losses seen, a chain fitted, the best expected goodput |
//! | `shim` | both directions of a queue pair, requests for another strength, counters |
//! | `encoder` | sums of the packets that leave, their repairs |
//! | `decoder` | packets in order, gaps, and when a gap is given up |
//! | `block` | a block of the decoder: what has come, and recovery |
//! | `bundle` | how far repairs may leave behind their block |
//! | `reorder`, `front`, `pace` | packets that wait; where their blocks begin; how long they wait |
//! | `grid`, `places` | where blocks begin; a set of places |
//! | `sums`, `units`, `shared` | sums of a block; buffers from a pool; what flows of a host share |
//! | `packet`, `strength`, `upper` | what is looked at in a packet; (r, c); the connection above |
//!
//! The shim sees the packets of one direction of one queue pair, a *flow*, from the BTH to the pad: sealing
//! and checking trailers is the caller's work. There is no socket, thread or clock here.

#![forbid(unsafe_code)]

mod auto;
mod block;
mod bundle;
mod decoder;
mod encoder;
mod front;
mod grid;
mod pace;
mod packet;
mod places;
mod reorder;
mod shared;
mod shim;
mod strength;
mod sums;
mod units;
mod upper;

pub use auto::{Auto, AutoConfig, AutoCounters, LossFit, Reason};
pub use bundle::{BUNDLE_PACKETS_MAX, bundle_packets};
pub use decoder::{
    BLOCKS_MAX, Decoder, DecoderConfig, DecoderCounters, HOLD_NS_MAX_DEFAULT, SILENT_BLOCKS_MAX,
};
pub use encoder::{Encoder, EncoderCounters};
pub use reorder::{RING_PACKETS_DEFAULT, Ring};
pub use shared::{Shared, SharedConfig};
pub use shim::{Counters, Leaving, Memory, Shim, ShimConfig};
pub use strength::{BLOCK_PACKETS_MAX, StrengthError};
pub use units::{UNITS_DEFAULT, Unit, UnitPool};
pub use upper::{How, Upper};
