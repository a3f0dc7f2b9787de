//! Events that an engine reports to its caller.

use lacuna_proto::qp;
use std::io;

/// An event of one queue pair, given by its number, or of a datapath.
#[derive(Debug)]
pub enum Event {
    /// An event of a connected queue pair.
    QueuePair(u32, qp::Event),
    /// Work requests of a reliable connection have ended.
    Completed(u32),
    /// A queue pair's prober has received an answer, or its next probe is due: time to check the
    /// outcome.
    Probed(u32),
    /// Other engines have work for this queue pair: runs wait for their channels, or the last
    /// engine has received its lanes.
    OthersWanted(u32),
    /// A datapath cannot be read.
    CannotReceive {
        /// The channel.
        channel: u8,
        /// The system's error.
        error: io::Error,
    },
}
