//! What the connecting end wants of a connection, and what follows from it: the geometry of the
//! queue pairs at both ends.
//!
//! Both ends compute the geometry by themselves from the same wishes, so that only the wishes travel.
//! At the accepting end they are a stranger's words: [`Hello::judge`] refuses what cannot be with a
//! text that has the numbers.

use super::messages::{Hello, smaller};
use crate::modes::Mode;
use crate::probe::candidates_within;
use lacuna_place::geometry::{Geometry, GeometryConfig, GeometryError};
use lacuna_wire::{ImmediateSplit, Seal};

/// A code's chunks are no shorter: packets lost in a row hit as many of its rows as
/// they have packets. Measured: M-handshake-2.
const CODE_CHUNK_BYTES: u64 = 4 << 10;

/// The connecting end's choices, which hold for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// Reliability of all messages, in both directions.
    pub mode: Mode,
    /// Bytes per chunk: rounded up to whole packets.
    pub chunk_bytes: u64,
    /// Payload bytes of a packet; `None` finds the largest that passes. The only one that the accepting
    /// end may have a word on: of two that are given the smaller holds.
    pub mtu_bytes: Option<u32>,
    /// How the 32-bit immediate is divided.
    pub split: ImmediateSplit,
    /// Generations of a slot.
    pub generations: u8,
    /// Longest message of one slot, rounded up to whole chunks; 0 means what the
    /// split allows.
    pub max_message_bytes: u64,
    /// The application's word on what the connection is for.
    pub tag: u64,
}

/// What the accepting end is, for judging a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Payload bytes of a packet, if this end gives them too.
    pub mtu_bytes: Option<u32>,
    /// Longest IP packet that this end's TCP would send, if known.
    pub packet_bytes: Option<u32>,
    /// Headers of IP and UDP towards the peer.
    pub header_bytes: u32,
    /// Channels of this end.
    pub channels: u8,
}

impl Wishes {
    /// The geometry that follows for a packet size and a number of channels.
    ///
    /// # Errors
    /// When there is none, with the numbers.
    pub fn geometry(&self, mtu_bytes: u32, channels: u8) -> Result<Geometry, GeometryError> {
        let mtu = u64::from(mtu_bytes.max(1));
        let code = self.mode.code();
        // As many packets as the split has numbers for each chunk of a submessage.
        let room_packets = code.map(|code| {
            let numbers = self.split.packets().saturating_sub(self.split.fragments());
            numbers / code.chunks() as u32
        });
        let asked_packets = self.chunk_bytes.div_ceil(mtu).min(1 << 30) as u32;
        let asked_packets = match room_packets {
            // Who did not ask for a code did not choose its chunk either: one that
            // leaves no room for a submessage and its parity is cut.
            Some(room_packets) if self.mode == Mode::Auto => asked_packets.min(room_packets).max(1),
            _ => asked_packets,
        };
        let interleave = room_packets.map_or(1, |room| interleave(asked_packets, mtu, room));
        let code_packets = asked_packets.saturating_mul(interleave);
        let limit_packets = Geometry::limit_packets(self.split, code_packets, code);
        let limit_bytes = u64::from(limit_packets) * mtu;
        // A longest message that the smaller packets cannot number is cut:
        // the message takes more slots then.
        let max_message_bytes = self.max_message_bytes.min(limit_bytes);
        let slot_packets = match max_message_bytes {
            0 => u64::from(limit_packets),
            bytes => bytes.div_ceil(mtu),
        };
        let chunk_packets = match code {
            // The chunk of a code is made of it: it is taken as it is or refused.
            Some(_) if self.mode != Mode::Auto => asked_packets,
            // A short slot is one chunk.
            _ => u64::from(asked_packets).min(slot_packets) as u32,
        };
        // A stripe fills one segmentation-offloaded send.
        let seal = Seal::default();
        let packet_bytes = mtu_bytes.saturating_add(seal.overhead_bytes(false) as u32);
        let bundle_packets = 65_507 / packet_bytes.max(1);
        Geometry::new(GeometryConfig {
            mtu_bytes,
            chunk_packets,
            stripe_packets: bundle_packets.max(chunk_packets).max(1),
            channels,
            generations: self.generations,
            split: self.split,
            max_message_bytes,
            code,
            interleave,
            seal,
        })
    }
}

/// Chunks in a chunk of the code, which take its submessages in turn: as many as make it
/// [`CODE_CHUNK_BYTES`], as far as there is room for so many packets.
fn interleave(chunk_packets: u32, mtu: u64, room_packets: u32) -> u32 {
    let chunk_packets = chunk_packets.max(1);
    let chunk_bytes = mtu * u64::from(chunk_packets);
    let wanted = CODE_CHUNK_BYTES.div_ceil(chunk_bytes) as u32;
    wanted.min(room_packets / chunk_packets).max(1)
}

impl Hello {
    /// What the connecting end wants, as far as `host` can do it, and the geometry that follows: with the
    /// largest packets that both ends' TCP would send, unless an end gives a size.
    ///
    /// # Errors
    /// What cannot be, in words for the peer.
    pub fn judge(&self, host: &Host) -> Result<(Wishes, Geometry), String> {
        let mode: Mode = self.mode.parse().map_err(|error| format!("{error}"))?;
        let [message_bits, packet_bits, user_bits] = self.split;
        let split = ImmediateSplit::new(message_bits, packet_bits, user_bits)
            .map_err(|error| error.to_string())?;
        let wishes = Wishes {
            mode,
            chunk_bytes: self.chunk_bytes,
            mtu_bytes: smaller(host.mtu_bytes, self.mtu_bytes),
            split,
            generations: self.generations,
            max_message_bytes: self.max_message_bytes,
            tag: self.tag,
        };
        let channels = self.end.check()?.min(host.channels);
        let packet_bytes = smaller(host.packet_bytes, self.packet_bytes);
        let mtu_bytes = match wishes.mtu_bytes {
            Some(given) => given,
            None => candidates_within(packet_bytes, host.header_bytes)[0],
        };
        let geometry = wishes.geometry(mtu_bytes, channels).map_err(|error| error.to_string())?;
        Ok((wishes, geometry))
    }
}
