//! At most [`CHANNELS_MAX`] entries, one per channel, stored inline: a frame from the network is
//! kept without allocating.

use std::fmt;

use super::FrameError;
use super::cursor::Reader;
use crate::{CHANNELS_MAX, PSN_MASK};

#[derive(Clone, Copy)]
pub(super) struct PerChannel<T> {
    /// The first `len` entries are used, the others are default values.
    entries: [T; CHANNELS_MAX],
    len: u8,
}

impl<T: Copy + Default> PerChannel<T> {
    pub(super) fn new() -> Self {
        Self { entries: [T::default(); CHANNELS_MAX], len: 0 }
    }

    pub(super) fn push(&mut self, entry: T) {
        let len = usize::from(self.len);
        assert!(len < CHANNELS_MAX, "a frame has at most one entry per channel");
        self.entries[len] = entry;
        self.len += 1;
    }

    pub(super) fn as_slice(&self) -> &[T] {
        &self.entries[..usize::from(self.len)]
    }

    /// Reads entries of `size` bytes each to the end of the payload.
    pub(super) fn parse(
        payload: &mut Reader<'_>,
        size: usize,
        entry: impl Fn(&mut Reader<'_>) -> Result<T, FrameError>,
    ) -> Result<Self, FrameError> {
        let frame = payload.kind();
        let bytes = payload.rest_of(size)?;
        let found = bytes.len() / size;
        if found > CHANNELS_MAX {
            return Err(FrameError::TooManyChannels { frame, found });
        }
        let mut entries = Self::new();
        for bytes in bytes.chunks_exact(size) {
            let mut reader = Reader::new(frame, bytes);
            entries.push(entry(&mut reader)?);
            reader.end()?;
        }
        Ok(entries)
    }
}

/// Packs a channel and a sequence number into a word, like the reserved byte and PSN of the BTH.
pub(super) fn channel_psn(channel: u8, psn: u32) -> u32 {
    debug_assert!(usize::from(channel) < CHANNELS_MAX && psn <= PSN_MASK);
    u32::from(channel) << 24 | psn & PSN_MASK
}

/// Unpacks [`channel_psn`]. Checks the channel, so it may index a table.
pub(super) fn parse_channel_psn(payload: &mut Reader<'_>) -> Result<(u8, u32), FrameError> {
    let word = payload.u32()?;
    let channel = (word >> 24) as u8;
    if usize::from(channel) >= CHANNELS_MAX {
        return Err(FrameError::Channel { frame: payload.kind(), found: channel });
    }
    Ok((channel, word & PSN_MASK))
}

impl<T: Copy + Default + PartialEq> PartialEq for PerChannel<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Copy + Default + Eq> Eq for PerChannel<T> {}

impl<T: Copy + Default + fmt::Debug> fmt::Debug for PerChannel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}
