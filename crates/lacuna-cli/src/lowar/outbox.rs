//! Frames that wait to be sent, in one buffer.

use super::syscall::OFFLOAD_BYTES;

/// What an interface without offloads says: nothing was left undone.
pub(super) const PLAIN: [u8; OFFLOAD_BYTES] = [0; OFFLOAD_BYTES];

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    frames: Vec<(usize, [u8; OFFLOAD_BYTES])>,
}

impl Outbox {
    pub(super) fn push(&mut self, frame: &[u8]) {
        self.push_with(frame, PLAIN);
    }

    /// Adds a frame whose sender left something to the interface.
    pub(super) fn push_with(&mut self, frame: &[u8], offload: [u8; OFFLOAD_BYTES]) {
        self.bytes.extend_from_slice(frame);
        self.frames.push((self.bytes.len(), offload));
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<(&[u8; OFFLOAD_BYTES], &[u8])> {
        let (end, offload) = self.frames.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.frames[before].0);
        Some((offload, &self.bytes[start..*end]))
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }
}
