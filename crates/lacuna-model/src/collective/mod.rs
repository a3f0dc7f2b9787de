//! Collectives over `N` sites, as stages of messages that depend on each other (SDR-RDMA 5.3).
//!
//! A stage takes as long as one message does for its sender, with the final round trip: the
//! project's decision, as the paper does not say. Counting only to the receiver, half a round trip
//! less, changes the 99.9th percentile by at most 9 %.
//!
//! | | |
//! |---|---|
//! | ring allreduce | `2N - 2` stages of `size / N` bytes; a site starts a stage when its own message and its neighbour's of the stage before are done |
//! | tree allreduce | reduce up and broadcast down a binary tree, the whole buffer on each edge |
//!
//! A tree's parts are independent of each other, so its distribution is computed: sums and maxima
//! of distributions on a grid ([`Grid`]). A ring's are not: neighbours share their past. Its times
//! are drawn ([`ring_allreduce`]), and enclosed by two computations: the mean is at least
//! `2N - 2` times that of a stage (appendix C of the paper), and the distribution lies below that
//! of a ring whose sites wait for all others after every stage ([`lockstep_ring_allreduce`]), with
//! which it is identical for `N = 2`.

mod grid;
mod ring;
mod tree;

pub use grid::Grid;
pub use ring::{
    Narrow, lockstep_ring_allreduce, ring_allreduce, ring_allreduce_until, ring_mean_s_min,
    ring_stages,
};
pub use tree::{draw_tree_allreduce, tree_allreduce};

/// Most sites that are computed.
pub const SITES_MAX: u32 = 4096;

#[cfg(test)]
mod tests;
