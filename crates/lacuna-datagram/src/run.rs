//! Packets that were polled under the queue pair's lock, and are made into bytes outside of it: those of one
//! message that leave together, or one of control.

use crate::peers::Numbered;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::{KeyTable, Rights};
use lacuna_wire::ddp::{
    About, ControlFrame, ControlReason, Operation, RecordFlags, Segment, Space,
    TAGGED_HEADER_BYTES, TRAILER_BYTES, Tagged, UNTAGGED_HEADER_BYTES, Untagged, emit_control,
};
use std::sync::Arc;

/// What a message's packets say besides their bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Header {
    Send { is_solicited: bool },
    Request,
    Record { key: u32, offset: u64, flags: RecordFlags },
}

impl Header {
    /// Payload of a full packet.
    pub(crate) fn payload_bytes(self, packet_bytes_max: usize) -> u32 {
        let header_bytes = match self {
            Self::Record { .. } => TAGGED_HEADER_BYTES,
            Self::Send { .. } | Self::Request => UNTAGGED_HEADER_BYTES,
        };
        packet_bytes_max.saturating_sub(header_bytes + TRAILER_BYTES).max(1) as u32
    }

    /// What its message is numbered with.
    pub(crate) fn numbered(self) -> Numbered {
        match self {
            Self::Record { .. } => Numbered::Records,
            Self::Send { .. } | Self::Request => Numbered::Sends,
        }
    }

    /// The key that its segments name; 0 if they name none.
    pub(crate) fn key(self) -> u32 {
        match self {
            Self::Record { key, .. } => key,
            Self::Send { .. } | Self::Request => 0,
        }
    }
}

/// Where a message's bytes are.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    Buffer(SendBuffer),
    /// Memory that a peer reads, as long as it may.
    Read {
        keys: Arc<KeyTable>,
        peer: u64,
        key: u32,
        offset: u64,
    },
}

impl Data {
    /// Whether so many bytes at this place are there to be sent.
    pub(crate) fn is_readable(&self, place: u32, bytes: u32) -> bool {
        match self {
            Self::Buffer(_) => true,
            Self::Read { keys, peer, key, offset } => {
                let start = offset + u64::from(place);
                let range = start..start + u64::from(bytes);
                keys.pin(*key, *peer, Rights::REMOTE_READ, range).is_ok()
            }
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Run(Kind);

#[derive(Debug)]
enum Kind {
    Message(Part),
    Control(Vec<u8>),
    /// A packet of the keyring, which is sent as it is.
    Greeting(Vec<u8>),
}

/// A part of a message.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) header: Header,
    pub(crate) is_reliable: bool,
    pub(crate) group: u32,
    pub(crate) number: u32,
    /// Of the message.
    pub(crate) length: u32,
    pub(crate) data: Data,
    /// Where the part begins in the message, and its bytes.
    pub(crate) place: u32,
    pub(crate) bytes: u32,
    /// Payload of each packet but the last.
    pub(crate) payload_bytes: u32,
}

impl Run {
    pub(crate) fn of(part: Part) -> Self {
        Self(Kind::Message(part))
    }

    pub(crate) fn control(frames: Vec<u8>) -> Self {
        Self(Kind::Control(frames))
    }

    pub(crate) fn greeting(packet: Vec<u8>) -> Self {
        Self(Kind::Greeting(packet))
    }

    /// Whether its packet is sent as it is, also where all others are sealed.
    #[must_use]
    pub fn is_greeting(&self) -> bool {
        matches!(self.0, Kind::Greeting(_))
    }

    /// Packets.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a run has a packet at least")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Message(part) => part.bytes.div_ceil(part.payload_bytes).max(1) as usize,
            Kind::Control(_) | Kind::Greeting(_) => 1,
        }
    }

    /// Bytes of a packet, at most.
    #[must_use]
    pub fn packet_bytes(&self, index: usize) -> usize {
        match &self.0 {
            Kind::Message(part) => {
                let (segment, payload) = part.segment(index);
                segment.packet_bytes(payload)
            }
            Kind::Control(frames) => UNTAGGED_HEADER_BYTES + frames.len() + TRAILER_BYTES,
            Kind::Greeting(packet) => packet.len(),
        }
    }

    /// Writes a packet with its trailer; how many bytes it has.
    ///
    /// # Panics
    /// If there is no such packet, or `out` is shorter than [`Run::packet_bytes`].
    pub fn emit(&self, index: usize, out: &mut [u8]) -> usize {
        match &self.0 {
            Kind::Message(part) => part.emit(index, out),
            Kind::Control(frames) => emit_frames(frames, out),
            Kind::Greeting(packet) => {
                out[..packet.len()].copy_from_slice(packet);
                packet.len()
            }
        }
    }
}

impl Part {
    fn segment(&self, index: usize) -> (Segment, usize) {
        let ahead = index as u32 * self.payload_bytes;
        let payload = (self.bytes - ahead.min(self.bytes)).min(self.payload_bytes);
        let Self { is_reliable, group, number, length, .. } = *self;
        let place = self.place + ahead;
        let untagged = |operation| {
            Segment::Untagged(Untagged { operation, is_reliable, group, number, length, place })
        };
        let segment = match self.header {
            Header::Send { is_solicited: false } => untagged(Operation::Send),
            Header::Send { is_solicited: true } => untagged(Operation::SendSolicited),
            Header::Request => untagged(Operation::ReadRequest),
            Header::Record { key, offset, flags } => {
                let offset = offset.wrapping_add(place.into());
                let stag = key;
                Segment::Tagged(Tagged { stag, offset, number, length, place, flags, group })
            }
        };
        (segment, payload as usize)
    }

    fn emit(&self, index: usize, out: &mut [u8]) -> usize {
        let (segment, payload) = self.segment(index);
        let at = u64::from(self.place) + index as u64 * u64::from(self.payload_bytes);
        if let Data::Buffer(buffer) = &self.data
            && let Some(bytes) = buffer.try_range(at as usize, payload)
        {
            // Copied and summed in one pass.
            return segment.emit_packet(bytes, out);
        }
        let header = segment.emit(payload, out);
        let room = &mut out[header..header + payload];
        match &self.data {
            Data::Buffer(buffer) => buffer.copy_to(at as usize, room),
            Data::Read { keys, peer, key, offset } => {
                let start = offset + at;
                let range = start..start + payload as u64;
                let read = keys
                    .pin(*key, *peer, Rights::REMOTE_READ, range)
                    .is_ok_and(|pinned| pinned.read(start, room).is_ok());
                if !read {
                    return self.refuse(out);
                }
            }
        }
        let end = header + payload;
        let trailer = lacuna_wire::crc32c(&[&out[..end]]);
        out[end..end + TRAILER_BYTES].copy_from_slice(&trailer);
        end + TRAILER_BYTES
    }

    /// Instead of memory that may not be read any more: a word that says so. If it is longer than the packet
    /// would be, there is none, and the READ ends by its deadline.
    fn refuse(&self, out: &mut [u8]) -> usize {
        let (number, reason) = (self.number, ControlReason::Key);
        let mut frames = Vec::new();
        let frame = if self.is_reliable {
            let about = About { space: Space::Reliable, number };
            ControlFrame::Cancel { about, reason, key: self.header.key() }
        } else {
            ControlFrame::Error { about: About { space: Space::Reads, number }, reason }
        };
        emit_control(&frame, &mut frames);
        if UNTAGGED_HEADER_BYTES + frames.len() + TRAILER_BYTES > out.len() {
            frames.clear();
        }
        emit_frames(&frames, out)
    }
}

fn emit_frames(frames: &[u8], out: &mut [u8]) -> usize {
    let length = frames.len() as u32;
    let operation = Operation::Control;
    let (is_reliable, group, number, place) = (false, 0, 0, 0);
    let header = Untagged { operation, is_reliable, group, number, length, place };
    Segment::Untagged(header).emit_packet(frames, out)
}
