//! Datagram queue pairs: RDMA without connections. No socket, thread or clock.
//!
//! Grant et al., "Scalable connectionless RDMA over unreliable datagrams" (datagram-iWARP): one queue pair reaches any
//! number of peers, each work request names its peer, and each completion its source. A *Write-Record* writes into
//! memory of a peer, which records what came; nobody repairs it.
//!
//! | module | contents |
//! |---|---|
//! | `endpoint` | the queue pair |
//! | `work` | work requests and completions |
//! | `peers`, `numbers` | an idle peer's 64 bytes; which of its messages were seen |
//! | `outgoing`, `run` | messages in turns; their packets |
//! | `discard` | why segments are dropped |
//! | `incoming` | Sends into receives, Write-Records into memory, and when they are over |
//! | `reads` | READs that wait for answers |
//! | `reliable` | the same verbs, each message once and in order (RD) |
//! | `feedback` | how unreliable messages fare, for their congestion controller |
//! | `groups` | repair of what is sent to several |
//! | `errors` | what went wrong, here and at peers |
//! | `map` | which bytes of a message are here |
//! | `sealing` | sealed packets, and clear ones |
//!
//! Packets are in [`lacuna_wire::ddp`], and the keys of sealed ones in [`lacuna_secure::datagram`].

#![forbid(unsafe_code)]

mod config;
mod deadlines;
mod discard;
mod endpoint;
mod errors;
mod feedback;
mod groups;
mod incoming;
mod map;
mod numbers;
mod outgoing;
mod peers;
mod reads;
mod reliable;
mod run;
mod sealing;
mod silence;
mod work;

pub use config::Config;
pub use discard::Discards;
pub use endpoint::{Endpoint, Parsed, Stats};
pub use errors::{ERRORS_MAX, MessageError};
pub use incoming::OpenLimits;
pub use map::{Map, ValidMemory};
pub use peers::{PeerId, SLOT_BYTES};
pub use reliable::ReliableConfig;
pub use run::Run;
pub use sealing::{Emitter, SEAL_BYTES};
pub use work::{
    Arrived, Done, Ended, Failure, Operation, PostError, RecvWork, SendWork, Target, Verb,
};
