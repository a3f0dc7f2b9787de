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
//! | `incoming` | Sends into receives, Write-Records into memory, and when they are over |
//! | `reads` | READs that wait for answers |
//! | `errors` | what went wrong, here and at peers |
//! | `map` | which bytes of a message are here |
//!
//! Packets are in [`lacuna_wire::ddp`].

#![forbid(unsafe_code)]

mod config;
mod endpoint;
mod errors;
mod incoming;
mod map;
mod numbers;
mod outgoing;
mod peers;
mod reads;
mod run;
mod work;

pub use config::Config;
pub use endpoint::{Endpoint, Stats};
pub use errors::{ERRORS_MAX, MessageError};
pub use incoming::{Discards, OpenLimits};
pub use map::Map;
pub use peers::{PeerId, SLOT_BYTES};
pub use run::Run;
pub use work::{
    Arrived, Done, Ended, Failure, Operation, PostError, RecvWork, SendWork, Target, Verb,
};
