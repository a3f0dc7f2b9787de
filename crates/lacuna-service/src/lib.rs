//! What services over the transport have in common: file transfer, measurements, and whatever else
//! connects by name or serves several peers.
//!
//! - [`Stop`]: a token by which a caller ends an operation early.
//! - [`connect`], [`addresses`]: connecting to a host by name, until a stop.
//! - [`Acceptor`]: the front of a server. One thread accepts, each peer has a thread of its own,
//!   and a peer that wants another service is refused in the handshake.
//! - [`Purpose`]: the tags by which a server knows what a connection is for.
//! - [`Fault`]: whose fault an error is.
//! - [`thread`]: threads that the system may refuse, and a worker thread that runs jobs in order.
//!
//! A service decides what it does with its connections, and prints by itself: an [`Acceptor`]
//! reports [`AcceptEvent`]s.

#![forbid(unsafe_code)]

mod acceptor;
mod connect;
mod fault;
mod purpose;
mod stop;
pub mod thread;

pub use acceptor::{
    AcceptError, AcceptEvent, Acceptor, Guest, ListenError, OnAcceptEvent, Served, busy, sockets,
};
pub use connect::{LookUpError, ReachError, addresses, connect, connect_again};
pub use fault::{Blames, Fault};
pub use purpose::{Purpose, random};
pub use stop::{STOP_POLL, Stop};
