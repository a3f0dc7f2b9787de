//! Lacuna: an RDMA-style transport with software-defined reliability, over
//! plain UDP.
//!
//! Applications write into remote memory; every packet carries its own
//! destination, so packets may come in any order, and the receiver sees a live
//! bitmap of what has arrived while the message is still in flight. What to do
//! about the gaps is chosen per connection.
//!
//! ```no_run
//! use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // One end:
//! let context = Context::new(ContextConfig::default())?;
//! let listener = Listener::bind(&context, "[::]:7400".parse()?, ConnectionConfig::default())?;
//! let connection = listener.accept()?;
//! let mut buffer = vec![0; 1 << 20];
//! let received = connection.recv(&mut buffer)?;
//! println!("{} bytes", received.len);
//!
//! // The other:
//! let context = Context::new(ContextConfig::default())?;
//! let connection = Connection::connect(&context, "receiver:7400", ConnectionConfig::default())?;
//! connection.send(b"hello over there")?;
//! # Ok(())
//! # }
//! ```
//!
//! [`QueuePair`] is the layer below: the paper's SDR core, with the live
//! bitmap, one-shot and streaming sends, and no reliability of its own in mode
//! `raw`.

#![deny(unsafe_code)]

mod accept_queue;
pub mod address;
mod attempt;
mod borrowed;
mod capture;
mod clock;
mod completed;
mod completion;
mod config;
mod connecting;
mod connection;
mod context;
mod control;
mod credit;
pub mod datagram;
mod deprecated;
mod driver;
mod error;
mod exchanged;
mod fairness;
mod fastest_cipher;
mod handles;
mod handshake;
mod happy_eyeballs;
mod inbox;
mod monitor;
mod offered;
mod one_sided;
mod paths;
mod place;
mod pool;
mod queue_pair;
pub mod rc;
mod readiness;
mod reading;
mod region;
mod reuse;
mod roster;
mod security;
mod shared;
mod stats;
mod told;
mod worker;

pub use address::ScopedIp;
pub use capture::captured;
pub use completed::{ChunkMap, Completed, Missing, PacketMap, RecvOptions};
pub use completion::{
    Arm, Completion, CompletionQueue, EndedReceive, Full, Outcome, QueuedRead, QueuedSend,
};
pub use config::{Chosen, Class, Classes, ConnectionConfig};
pub use connecting::Connecting;
pub use connection::{Connection, Incoming, Listener, Received};
pub use context::{Context, ContextConfig, ContextStats, DatapathKind, Progress, Wrap};
#[allow(deprecated, reason = "the old name stays for one version")]
pub use deprecated::WriteError;
pub use error::{
    CompletionQueueError, ConnectError, ContextError, OfferError, PollError, PostReadError,
    PostReceiveError, PostSendError, QueueError, QueuePairError, RangeError, ReadError,
    ReadFailure, RecvError, RegionError, SecretError, SendError, SendFailure, SliceError,
    WaitedFor,
};
pub use handles::{RecvHandle, SendHandle, Stream};
pub use handshake::PROTOCOL_VERSION;
pub use lacuna_trust as trust;
pub use offered::{OfferedPool, OfferedSend};
pub use one_sided::Written;
pub use place::RecvPlace;
pub use pool::Pool;
pub use queue_pair::QueuePair;
pub use reading::{READ_PART_BYTES, READ_PARTS_MAX, ReadHandle};
pub use region::{Region, RegionOptions, Rights, Window};
pub use security::{
    CERT_FILE_VARIABLE, CIPHER_VARIABLE, INSECURE_VARIABLE, Security, TOKEN_FILE_VARIABLE,
};
pub use stats::{AutoStats, ChannelStats, ConnectionStats, EndedStats, RttStats, SentStats};

pub use lacuna_datapath as datapath;
pub use lacuna_path::controller::Kind as ControllerKind;
pub use lacuna_path::{RtoConfig, controller};
pub use lacuna_place::buffer::{Gather, Memory, SendBuffer};
pub use lacuna_place::geometry::{Geometry, GeometryError};
pub use lacuna_place::parity::Layout;
pub use lacuna_place::reason::Reason;
pub use lacuna_place::region::{Granules, OutOfBounds, Slices, Stride};
pub use lacuna_proto::handshake::{ParseWireError, Wire};
pub use lacuna_proto::modes::{self, Mode};
pub use lacuna_proto::qp::{
    Failure, Gone, QpStats, READS_OPEN_MAX, ReceiveFailure, SendStatus, Target,
};
pub use lacuna_wire::ImmediateSplit;

// The code on these pages compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Library;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/own-scheme.md")]
struct OwnScheme;
