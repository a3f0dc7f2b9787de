//! What a host dropped by itself: packets that the path delivered and that nobody got.
//!
//! A trial during which the receiving host dropped anything says nothing about the path, and is
//! marked (SDR-RDMA, figure 2, leaves such trials out). Where the counters come from is the
//! caller's matter; here they are numbers that only grow.

/// Drops of a host so far, or within a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostDrops {
    /// By the socket that receives, for want of room in its buffer. Packets that arrived in one
    /// piece may count once.
    pub socket: u64,
    /// Between card and socket: the kernel's queue per processor, or no memory.
    pub kernel: u64,
    /// By the network cards, for want of room or of buffers.
    pub card: u64,
}

impl HostDrops {
    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.socket.saturating_add(self.kernel).saturating_add(self.card)
    }

    /// What was dropped since `before`. A counter that went back (a card was reset) counts as 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            socket: self.socket.saturating_sub(before.socket),
            kernel: self.kernel.saturating_sub(before.kernel),
            card: self.card.saturating_sub(before.card),
        }
    }
}

/// Reads the counters of the host, which may cost system calls: it is asked at the beginning and at
/// the end of a trial.
pub trait Host {
    /// Drops so far.
    fn drops(&mut self) -> HostDrops;
}

/// A host that drops nothing.
impl Host for () {
    fn drops(&mut self) -> HostDrops {
        HostDrops::default()
    }
}
