//! The receive queue of an in-process endpoint: batches in order of arrival, bounded in bytes.
//!
//! The event source is made at its first use, so that an endpoint that is only polled needs no file
//! descriptor and no system calls. It is level-triggered: it changes under the queue's lock only, so
//! it is readable exactly while the queue holds a batch.

use std::collections::VecDeque;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
#[cfg(unix)]
use std::sync::OnceLock;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(unix)]
use crate::wait::Signal;
use crate::{Burst, PACKET_BYTES_MAX};

/// A batch holds no more than UDP's coalescing would put into one: 64 packets (the kernel's
/// `UDP_MAX_SEGMENTS`) and the bytes of one UDP packet.
const BATCH_PACKETS_MAX: usize = 64;

/// Empty buffers kept for reuse: at most as many as one burst can need.
const SPARES_MAX: usize = Burst::PACKETS_MAX;
/// Most bytes of their capacities together (a judgement: a few bursts of usual packets).
const SPARE_BYTES_MAX: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Batch {
    pub(super) source: SocketAddr,
    pub(super) segment_bytes: usize,
    pub(super) bytes: Vec<u8>,
    /// Bytes that this batch counts against the queue's bound.
    charge_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Queue {
    bytes_max: usize,
    inner: Mutex<Inner>,
    #[cfg(unix)]
    signal: OnceLock<Signal>,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<Batch>,
    /// Sum of the batches' charges; at most `bytes_max` of the queue.
    charge_bytes: usize,
    drops: u64,
    spares: Vec<Vec<u8>>,
    /// Sum of the spares' capacities.
    spare_bytes: usize,
}

impl Queue {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            inner: Mutex::default(),
            #[cfg(unix)]
            signal: OnceLock::new(),
        }
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(super) fn drops(&self) -> u64 {
        self.lock().drops
    }

    /// Appends the first `packets` packets of the burst; drops those that do not fit.
    pub(super) fn push(&self, source: SocketAddr, burst: &Burst<'_, '_>, packets: usize) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let was_empty = inner.batches.is_empty();
        // Packets in the batch that can still grow, 0 if none can: a packet joins it if it has the
        // batch's packet size, and a shorter one closes it.
        let mut open_packets = 0;
        for packet in burst.packets().take(packets) {
            // An empty packet counts as one byte, so that a flood of them is bounded.
            let charge_bytes = packet.len().max(1);
            if inner.charge_bytes + charge_bytes > self.bytes_max {
                inner.drops += 1;
                continue;
            }
            inner.charge_bytes += charge_bytes;
            let open = inner.batches.back_mut().filter(|batch| {
                (1..BATCH_PACKETS_MAX).contains(&open_packets)
                    && !packet.is_empty()
                    && packet.len() <= batch.segment_bytes
                    && batch.bytes.len() + packet.len() <= PACKET_BYTES_MAX
            });
            if let Some(batch) = open {
                packet.copy_to(&mut batch.bytes);
                batch.charge_bytes += charge_bytes;
                let closes = packet.len() < batch.segment_bytes;
                open_packets = if closes { 0 } else { open_packets + 1 };
            } else {
                let mut bytes = inner.spares.pop().unwrap_or_default();
                inner.spare_bytes -= bytes.capacity();
                packet.copy_to(&mut bytes);
                let segment_bytes = packet.len();
                inner.batches.push_back(Batch { source, segment_bytes, bytes, charge_bytes });
                open_packets = usize::from(!packet.is_empty());
            }
        }
        if was_empty && !inner.batches.is_empty() {
            self.signal(true);
        }
    }

    /// Moves up to `batches_max` batches to `taken`.
    pub(super) fn take(&self, batches_max: usize, taken: &mut Vec<Batch>) {
        // Left over if a placer panicked.
        taken.clear();
        let mut inner = self.lock();
        if inner.batches.is_empty() {
            return;
        }
        let batches = inner.batches.len().min(batches_max);
        taken.extend(inner.batches.drain(..batches));
        inner.charge_bytes -= taken.iter().map(|batch| batch.charge_bytes).sum::<usize>();
        if inner.batches.is_empty() {
            self.signal(false);
        }
    }

    /// Keeps the buffers of delivered batches for reuse.
    pub(super) fn give_back(&self, taken: &mut Vec<Batch>) {
        if taken.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for mut batch in taken.drain(..) {
            let spare_bytes = inner.spare_bytes + batch.bytes.capacity();
            if inner.spares.len() < SPARES_MAX && spare_bytes <= SPARE_BYTES_MAX {
                batch.bytes.clear();
                inner.spares.push(batch.bytes);
                inner.spare_bytes = spare_bytes;
            }
        }
    }

    #[cfg(unix)]
    pub(super) fn event_source(&self) -> Option<BorrowedFd<'_>> {
        if let Some(signal) = self.signal.get() {
            return Some(signal.as_fd());
        }
        // The lock is held until the signal is published, so that no packet arrives in between
        // without setting it.
        let inner = self.lock();
        let signal = Signal::new().ok()?;
        if !inner.batches.is_empty() {
            signal.set();
        }
        Some(self.signal.get_or_init(|| signal).as_fd())
    }

    /// The caller holds the lock.
    fn signal(&self, readable: bool) {
        #[cfg(unix)]
        if let Some(signal) = self.signal.get() {
            if readable { signal.set() } else { signal.clear() }
        }
        #[cfg(not(unix))]
        let _ = readable;
    }

    /// Nothing panics in the middle of a change under the lock, so a poisoned lock still guards a
    /// consistent queue.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
