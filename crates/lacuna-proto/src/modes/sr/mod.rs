//! Selective repeat, SDR-RDMA 4.1.1.
//!
//! The receiver acknowledges with a cumulative count and a bitmap of chunks. The sender repairs in
//! one of two ways. With NACK, it retransmits a missing chunk as soon as packets sent after the chunk
//! have arrived, which is one round trip after the loss. There is no NACK frame: the receiver's
//! report has the highest sequence number, its acknowledgement has the chunks, and both are state
//! that may be lost. Without NACK, the sender retransmits a chunk when its timeout RTO = RTT + alpha
//! RTT has expired. In both ways a run that no report covers expires.
//!
//! A run is *judged* when it was passed or has expired: its missing chunks are retransmitted. A chunk
//! belongs to the run with its last packet. Each transmission of a chunk is judged once, so a chunk
//! is never in flight twice unless the path reorders more than it has shown.

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
