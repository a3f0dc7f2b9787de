//! Drops of a host: packets that the path delivered and the host dropped.
//!
//! If the receiving host dropped packets during a trial, the trial says nothing about the path and is
//! marked (SDR-RDMA, figure 2, leaves such trials out). The caller reads the counters, which only grow.

/// Drops of a host so far, or within a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostDrops {
    /// By the receiving socket, because its buffer was full. Packets that arrived as one bundle may
    /// count once.
    pub socket: u64,
    /// Between card and socket: the kernel's per-processor queue was full, or no memory.
    pub kernel: u64,
    /// By the network cards, because their buffers were full.
    pub card: u64,
}

impl HostDrops {
    /// The sum.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.socket.saturating_add(self.kernel).saturating_add(self.card)
    }

    /// Drops since `before`. A counter that decreased (a card was reset) counts as 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            socket: self.socket.saturating_sub(before.socket),
            kernel: self.kernel.saturating_sub(before.kernel),
            card: self.card.saturating_sub(before.card),
        }
    }
}

/// Reads the counters of the host, at the beginning and the end of a trial; this may cost system calls.
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
