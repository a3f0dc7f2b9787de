//! Reasons for discarding a data packet. Each has a counter in the statistics.

/// A reason for discarding a data packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Discard {
    /// The slot is closed or in another generation: the packet arrived after its receive was completed
    /// (SDR-RDMA 3.3).
    Late,
    /// The remote key is not that of this queue pair. If the key is part of the trailer, the packet may
    /// be damaged instead (`lacuna_wire::DataHeader::check`).
    Key,
    /// The packet arrived on another channel than that of its offset.
    Channel,
    /// The packet reaches past the end of the posted buffer.
    OutOfRange,
    /// Immediate, address and length contradict each other or an earlier packet.
    Inconsistent,
    /// The message has no place yet, and the key is that of no region.
    UnknownKey,
    /// The key of the region does not allow peers to write.
    Right,
    /// The key of the region is for another peer.
    Scope,
    /// The packet reaches past the end of the key's range.
    Window,
    /// The message has no place yet, and the packet's place in the message is unknown: it is parity, or
    /// empty, or a piece of the last packet.
    Unbound,
    /// The key was revoked.
    Revoked,
    /// The peer has named too many unknown keys, and is refused for a while.
    Guesses,
    /// The region is exclusive, and the packet touches valid bytes.
    Overlap,
    /// The receive takes its buffer from a pool, which had none.
    Pool,
    /// The application is told of the message by an entry of a queue, which had none free.
    Entry,
}

impl Discard {
    /// All reasons, in counter order.
    pub const ALL: [Self; 15] = [
        Self::Late,
        Self::Key,
        Self::Channel,
        Self::OutOfRange,
        Self::Inconsistent,
        Self::UnknownKey,
        Self::Right,
        Self::Scope,
        Self::Window,
        Self::Unbound,
        Self::Revoked,
        Self::Guesses,
        Self::Overlap,
        Self::Pool,
        Self::Entry,
    ];

    /// The reasons that only packets of receives without a buffer of their own are discarded for: their
    /// place is in a region, or in a buffer of a pool.
    pub const OF_REGIONS: [Self; 10] = [
        Self::UnknownKey,
        Self::Right,
        Self::Scope,
        Self::Window,
        Self::Unbound,
        Self::Revoked,
        Self::Guesses,
        Self::Overlap,
        Self::Pool,
        Self::Entry,
    ];

    /// The reasons that refuse the whole message: the peer has or had the key, but may not do this. Such packets
    /// are from the peer, and the path has carried them.
    pub const REFUSING: [Self; 3] = [Self::Right, Self::Window, Self::Revoked];

    /// Index of this reason's counter.
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::OutOfRange => "out_of_range",
            Self::Inconsistent => "inconsistent",
            Self::UnknownKey => "unknown_key",
            Self::Right => "right",
            Self::Scope => "scope",
            Self::Window => "window",
            Self::Unbound => "unbound",
            Self::Revoked => "revoked",
            Self::Guesses => "guesses",
            Self::Overlap => "overlap",
            Self::Pool => "pool",
            Self::Entry => "entry",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter() {
        for (index, reason) in Discard::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), index);
        }
    }
}
