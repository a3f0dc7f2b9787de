//! A reliable connection with go-back-N, and LoWAR's shim below it, in closed form.
//!
//! Zuo et al., "LoWAR: Enhancing RDMA over Lossy WANs with Transparent Error Correction". Such a
//! connection takes packets in order. When one is missing, its receiver says so once, and its sender sends
//! everything again from there on: a loss costs the `W` packets of a round trip. The shim makes blocks of
//! `r` packets with `c` repairs, and only a block that its repairs do not save costs `W`.
//!
//! # Goodput of a connection that always has something to send
//!
//! Time is counted in packets on the link. It passes in cycles: blocks in order until one fails; the rest of
//! that block, which its receiver waits for; and the packets in flight, which are sent again.
//!
//! | | |
//! |---|---|
//! | blocks in order | `x = pi (I + M + M^2 + ...) v`, `M` the chance that a message's blocks all come, by state of the link |
//! | a cycle on the link | the same with repairs, `+ r + c + D + W (1 + (tau - 1) q)` |
//! | `D` | losses in a row behind the first, until a packet says that something is missing |
//! | `q` | the first packet that is sent again is lost again: the receiver does not say so twice, the timeout `tau RTT` ends it |
//! | goodput | useful packets of a cycle over all |
//!
//! Independent losses and no shim make this `(1 - p) / (1 + p W (1 + (tau - 1) p))`, so `1 / (1 + p W)`
//! for small `p`; bursts of mean length `L` about `1 / (1 + (p / L) W)`. With the shim it is about
//! `r / (r + c) / (1 + f W)`, where `f` is the chance that a block fails, over `r`. What a go-back finds of
//! the failed block is counted as a third of it, which is exact for two losses.
//!
//! # A message alone: [`ConnectionMessage`].

mod connection;
mod message;
mod protected;

pub use connection::{ConnectionPath, GoBackN, Shim};
pub use message::ConnectionMessage;
