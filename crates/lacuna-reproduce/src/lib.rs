//! The experiments of the papers that Lacuna unites, done again with the transport's own code: in virtual
//! time, so that a path of 10 Gbit/s needs no network, and the same seed gives the same losses to all that
//! are compared.
//!
//! | module | contents |
//! |---|---|
//! | [`lowar`] | figures 3 and 9 to 13 of LoWAR |
//! | [`iwarp`] | figures 5, 6, 8 and 9 of datagram-iWARP |
//! | [`optinic`] | figure 7 and table 3 of OptiNIC |
//! | [`connections`] | reliable connections between two hosts in virtual time |
//! | [`cells`] | many workloads at once |
//! | [`outcome`] | the numbers, the paper's statements, how they stand |
//!
//! A statement's verdict is by what the same workload gives here. Where a baseline explains a difference,
//! the reason says so.

#![forbid(unsafe_code)]

pub mod cells;
pub mod connections;
pub mod iwarp;
pub mod lowar;
pub mod optinic;
pub mod outcome;
