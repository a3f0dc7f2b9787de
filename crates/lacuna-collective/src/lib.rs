//! Collective operations between ranks over Lacuna's connections: all-reduce and its kin, either whole and the same on
//! every rank, or by a deadline with what is there.

pub mod rendezvous;
