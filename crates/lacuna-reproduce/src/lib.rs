//! The experiments of the papers that Lacuna unites, done again with the transport's own code: in virtual
//! time, so that a path of 10 Gbit/s needs no network, and the same seed gives the same losses to all that
//! are compared.
//!
//! | module | contents |
//! |---|---|
//! | [`lowar`] | figures 3 and 9 to 13 of LoWAR |
//! | [`iwarp`] | figures 5, 6, 8 and 9 of datagram-iWARP |
//! | [`optinic`] | figures 2 to 5 and 7 and table 3 of OptiNIC; collective operations in virtual time |
//! | [`celeris`] | figure 1 of Celeris; rules for the time that an operation gets |
//! | [`connections`] | reliable connections between two hosts in virtual time |
//! | [`cells`] | many workloads at once |
//! | [`outcome`] | the numbers, the paper's statements, how they stand |
//!
//! A statement's verdict is by what the same workload gives here. Where a baseline explains a difference,
//! the reason says so.

#![forbid(unsafe_code)]

pub mod celeris;
pub mod cells;
mod collectives;
pub mod connections;
pub mod iwarp;
pub mod lowar;
pub mod optinic;
pub mod outcome;
mod training;
