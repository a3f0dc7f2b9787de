//! What an engine tells its owner.

use lacuna_proto::qp;
use std::io;

/// Something that happened in an engine. Each is about one queue pair, by its number, or about one of
/// the engine's datapaths.
#[derive(Debug)]
pub enum Event {
    /// Something happened to a connected queue pair.
    QueuePair(u32, qp::Event),
    /// An answer came to a queue pair that looks for the way to its peer, or the next question is due:
    /// whoever waits for the outcome looks at it.
    Probed(u32),
    /// The other engines of the queue pair have something to do for it: runs wait for their channels,
    /// or the last of them can place its packets now.
    OthersWanted(u32),
    /// A datapath could not be read.
    CannotReceive {
        /// The channel.
        channel: u8,
        /// What the system said.
        error: io::Error,
    },
}
