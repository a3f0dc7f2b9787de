//! A receive as the application posts it and gets it back.

use lacuna_path::small_vec::SmallVec;
use lacuna_place::placement::Placement;
use lacuna_place::reason::Reason;
use lacuna_place::receive::Receive;
use std::sync::Arc;

/// How long a receive that could end waits for packets which the path may have reordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grace {
    /// As long as packets have been late on this path; not at all while none was.
    #[default]
    Path,
    /// This long.
    Fixed {
        /// Nanoseconds.
        ns: u64,
    },
}

/// When a receive ends if it does not become whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecvOptions {
    /// Deadline, on the caller's clock: the receive is over then, whatever is there.
    pub deadline_ns: Option<u64>,
    /// Grace in the mode where receives end with gaps; others repair them.
    pub grace: Grace,
}

/// A receive to be posted.
#[derive(Debug)]
pub struct RecvRequest {
    /// Where the message goes; any length.
    pub buffer: Placement,
    /// When it ends.
    pub options: RecvOptions,
    /// Its end is told by [`QueuePair::poll_ended_receive`](super::super::QueuePair::poll_ended_receive),
    /// too.
    pub notifies: bool,
}

/// A posted receive, with one record per slot.
#[derive(Debug)]
pub struct PostedReceive {
    /// Number of its first message.
    pub first: u64,
    /// The records, in order of offset.
    pub parts: SmallVec<Arc<Receive>>,
}

impl PostedReceive {
    /// Returns the memory, once every part's slot was closed and the queue pair was told. `None` for
    /// foreign memory, or while a part has other references.
    pub fn into_vec(mut self) -> Option<Vec<u8>> {
        let mut placement = None;
        for part in self.parts.iter_mut() {
            placement = Some(Arc::get_mut(part)?.take_placement());
        }
        placement?.into_vec().ok()
    }

    /// Whether the message is complete: every part up to the one in which the message ends.
    pub fn is_complete(&self) -> bool {
        for part in &self.parts {
            if !part.is_complete() {
                return false;
            }
            if part.length_bytes().is_some() {
                return true;
            }
        }
        true
    }

    /// Length of the message, once its end is known; the length of the buffer if the message filled
    /// it without an end mark.
    pub fn length_bytes(&self) -> Option<u64> {
        let mut before = 0;
        for part in &self.parts {
            if let Some(length) = part.length_bytes() {
                return Some(before + length);
            }
            before += part.capacity_bytes();
        }
        self.is_complete().then_some(before)
    }

    /// The user immediate, once all of its fragments came; it travels with the first part.
    pub fn immediate(&self) -> Option<u32> {
        self.parts.first()?.immediate()
    }

    /// Why the receive is over; `None` while it goes on.
    #[inline]
    pub fn reason(&self) -> Option<Reason> {
        self.parts.first()?.reason()
    }

    /// Bytes of the message that are here; copies count once.
    pub fn placed_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.placed_bytes()).sum()
    }

    /// Packets of the message that are here; copies count once.
    pub fn placed_packets(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.placed_packets())).sum()
    }

    /// When the first and the last packet arrived, on the owner's clock.
    pub fn arrivals_ns(&self) -> Option<(u64, u64)> {
        let of_part =
            |part: &Arc<Receive>| Some((part.first_arrival_ns()?, part.last_arrival_ns()?));
        self.parts.iter().filter_map(of_part).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Zeroes what did not arrive of the message, or of the buffer while the message's end is not known,
    /// and returns how many bytes that are. Once every part's slot was closed and the queue pair was
    /// told; a part that has other references is left alone.
    pub fn zero_missing(&mut self) -> u64 {
        let mut zeroed = 0;
        for part in self.parts.iter_mut() {
            let is_end = part.length_bytes().is_some();
            zeroed += Arc::get_mut(part).map_or(0, Receive::zero_missing);
            if is_end {
                break;
            }
        }
        zeroed
    }
}
