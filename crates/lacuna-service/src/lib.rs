//! What services over the transport have in common: file transfer, measurements, and whatever else connects
//! by name or serves several peers.
//!
//! - [`Stop`]: a token by which a caller ends an operation early.
//! - [`connect`], [`addresses`]: connecting to a host by its name, until a token says stop.
//! - [`Acceptor`]: the front of a server. One thread accepts, each peer has a thread of its own, and a peer
//!   that wants another service is refused in the handshake.
//! - [`Purpose`]: the tags by which a server knows what a connection is for.
//! - [`Fault`]: whose fault an error is.
//! - [`thread`]: threads that may be refused, and a worker that does jobs in order.
//!
//! What a service does with its connections is left to it, and so is printing: an [`Acceptor`] reports
//! [`AcceptEvent`]s.

#![forbid(unsafe_code)]

mod acceptor;
mod arrivals;
mod connect;
mod fault;
mod purpose;
mod stop;
pub mod thread;

pub use acceptor::{
    AcceptError, AcceptEvent, Acceptor, Guest, ListenError, OnAcceptEvent, Served, busy, sockets,
};
pub use arrivals::Arrival;
pub use connect::{LookUpError, ReachError, addresses, connect, connect_again};
pub use fault::{Blames, Fault};
pub use purpose::{Purpose, random};
pub use stop::{STOP_POLL, Stop};
