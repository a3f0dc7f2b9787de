//! Collective operations between ranks over Lacuna's connections: all-reduce and its kin, either whole and the same on
//! every rank, or by a deadline with what is there.
//!
//! Ranks meet ([`rendezvous`]), connect each with each, and carry out tables ([`lacuna_schedule`]) over their
//! connections, chunk by chunk as they come.

#![forbid(unsafe_code)]

mod adapt;
mod config;
mod control;
mod driver;
mod encode;
mod error;
mod fabric;
mod group;
mod lane;
mod membership;
mod mesh;
mod paths;
mod pool;
mod rc;
pub mod rendezvous;

pub use config::{Budget, GroupConfig, Options, Transport};
pub use encode::{Decoded, Encode, EncodeError, EncodeNameError, Scaling};
pub use error::{GroupError, OperationError};
pub use group::{Group, Operation, Outcome};
pub use lacuna_schedule::budget::Rule;
pub use lacuna_schedule::element::{Element, Op};
pub use lacuna_schedule::run::{
    Buffers, Divisor, Hop, Reason, Report, RunError, Settings, Vectors,
};
pub use lacuna_schedule::schedule::{Algorithm, Collective};
pub use mesh::MeshError;

/// The document's examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/collectives.md")]
struct Document;
