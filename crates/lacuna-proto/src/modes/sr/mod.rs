//! Selective repeat, SDR-RDMA 4.1.1.
//!
//! The receiver acknowledges with a cumulative count and a bitmap of chunks. The sender repairs in
//! one of two ways. With NACK, it sends a missing chunk again as soon as packets sent after the
//! chunk have come, which is one round trip after the loss. The receiver's report names the highest
//! sequence number that came and its acknowledgement the chunks that are there; together they are
//! the negative acknowledgement, as state that may itself be lost. Without NACK, the sender sends a
//! chunk again when its timeout RTO = RTT + alpha RTT has expired. In both ways a run of which
//! nothing is heard expires.
//!
//! A chunk is judged by the run that holds its last packet. Each transmission of a chunk is judged
//! once, so a chunk is never in flight twice unless the path reorders more than it has shown.

mod recv;
mod send;
#[cfg(test)]
mod tests;

pub(super) use recv::BitmapCursor;
pub use recv::Receiver;
pub use send::Sender;

/// Parameters that both ends agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Repair a gap one round trip after the loss, not at the timeout.
    pub nack: bool,
}
