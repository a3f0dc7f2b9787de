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
}

impl Discard {
    /// All reasons, in counter order.
    pub const ALL: [Self; 5] =
        [Self::Late, Self::Key, Self::Channel, Self::OutOfRange, Self::Inconsistent];

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
