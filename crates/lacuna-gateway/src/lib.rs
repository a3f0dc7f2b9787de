//! LoWAR's shim as a gateway: repairs for the RoCEv2 packets of hosts that know nothing of it.
//!
//! Zuo et al., "LoWAR: Enhancing RDMA over Lossy WANs with Transparent Error Correction", put the shim into
//! the card. Here it stands beside the way: one gateway at each end of a long path, each between a local
//! network and the path. Ethernet frames go through it; it adds repairs to those of reliable connections
//! that leave for the path, and uses the repairs that come. What it does not understand passes unchanged.
//!
//! | module | contents |
//! |---|---|
//! | `gateway` | both directions, counters, timeouts |
//! | `outgoing` | a flow to the path: its encoder, its repairs as frames |
//! | `incoming` | a flow from the path: its decoder, frames that wait, frames that were recovered |
//! | `frame` | where in a frame an RDMA packet is, and which flow it is of |
//! | `template` | headers of a flow, for frames that are made here |
//! | `config`, `counters` | settings; what a gateway did |
//! | `flows` | bounded tables: flows, and numbers that may become one |
//! | `watch` | losses seen, strengths chosen, requests to the far gateway |
//! | `grants` | strengths that the far gateway asked for |
//! | `round_trip` | round trips from questions and their answers, as packets show them |
//!
//! Nothing is terminated: no packet of a connection is answered, changed or dropped, but for duplicates of
//! a packet that waits here. So a gateway may start and end in mid-flow, and one without another at the far
//! end only adds packets that end hosts do not know and drop.
//!
//! There is no socket, thread or clock here.

#![forbid(unsafe_code)]

mod config;
mod counters;
mod flows;
mod frame;
mod gateway;
mod grants;
mod incoming;
mod outgoing;
mod round_trip;
mod template;
mod watch;

pub use config::Config;
pub use counters::Counters;
pub use flows::FLOW_RUN_PACKETS;
pub use frame::{FlowKey, Layout, ROCE_PORT, TAGS_MAX, Version};
pub use gateway::Gateway;
pub use lacuna_lowar::{AutoConfig, AutoCounters, Reason, SharedConfig, StrengthError};
pub use lacuna_wire::rc::Strength;
pub use watch::GATEWAYS;
