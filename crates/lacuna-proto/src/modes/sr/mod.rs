//! Selective repeat, SDR-RDMA 4.1.1.
//!
//! The receiver acknowledges with a cumulative count and a bitmap of chunks.
//! The sender repairs in one of two ways. With NACK, a chunk that is missing
//! although packets sent after it came is sent again at once: one round trip
//! after the loss. The receiver's report names the highest sequence number that
//! came, its acknowledgement the chunks that are there; together they are the
//! negative acknowledgement, as state that may itself be lost. Without NACK, a
//! chunk is sent again when its timeout RTO = RTT + alpha RTT has expired. In
//! both, a run that nothing is heard of expires.
//!
//! A chunk is judged by the run that holds its last packet. Each transmission
//! of a chunk is judged once, so one chunk is never on its way twice unless the
//! path reorders beyond what it has shown.

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
    /// Repair gaps one round trip after they show, not at the timeout.
    pub nack: bool,
}
