//! The connection parameters that the connecting end proposes, and the geometry of both queue pairs
//! that follows from them.
//!
//! The hello carries the parameters; each end computes the geometry by itself. The accepting end
//! does not trust them: [`Hello::negotiate`] refuses impossible ones with a text that has the numbers.

use super::messages::{Hello, smaller};
use super::wire::Wire;
use crate::modes::Mode;
use crate::probe::candidates_within;
use lacuna_place::geometry::{Geometry, GeometryConfig, GeometryError};
use lacuna_wire::ImmediateSplit;

/// Smallest chunk of the erasure code. A chunk of several packets spreads a burst of losses over as
/// many rows of the code. Measured: M-handshake-2.
const CODE_CHUNK_BYTES: u64 = 4 << 10;

/// Parameters of a connection. The connecting end chooses them for both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Reliability of all messages, in both directions.
    pub mode: Mode,
    /// Bytes per chunk: rounded up to whole packets.
    pub chunk_bytes: u64,
    /// Payload bytes of a packet; `None` means the largest that passes. This is the only parameter
    /// that the accepting end may also fix; the smaller value is used.
    pub mtu_bytes: Option<u32>,
    /// How the 32-bit immediate is divided.
    pub split: ImmediateSplit,
    /// Generations of a slot.
    pub generations: u8,
    /// Longest message of one slot, rounded up to whole chunks; 0 means the longest that the split
    /// allows.
    pub max_message_bytes: u64,
    /// The application's number for the purpose of the connection (compare ALPN).
    pub tag: u64,
    /// The form of data packets.
    pub wire: Wire,
}

/// The accepting end's side of the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLimits {
    /// Payload bytes of a packet, if this end's configuration fixes them.
    pub mtu_bytes: Option<u32>,
    /// Longest IP packet that this end's TCP would send, if known.
    pub packet_bytes: Option<u32>,
    /// Headers of IP and UDP towards the peer.
    pub header_bytes: u32,
    /// Channels of this end.
    pub channels: u8,
}

impl Parameters {
    /// The geometry for a packet size and a number of channels.
    ///
    /// # Errors
    /// If there is no such geometry, with the numbers.
    pub fn geometry(&self, mtu_bytes: u32, channels: u8) -> Result<Geometry, GeometryError> {
        let mtu = u64::from(mtu_bytes.max(1));
        let code = self.mode.code();
        // Packet numbers that the split has for each chunk of a submessage, parity included.
        let room_packets = code.map(|code| {
            let numbers = self.split.packets().saturating_sub(self.split.fragments());
            numbers / code.chunks() as u32
        });
        let asked_packets = self.chunk_bytes.div_ceil(mtu).min(1 << 30) as u32;
        let asked_packets = match room_packets {
            // With `auto` the user chose neither a code nor its chunk, so a chunk that leaves no room
            // for a submessage and its parity is shortened. With `ec` it is an error.
            Some(room_packets) if self.mode == Mode::Auto => asked_packets.min(room_packets).max(1),
            _ => asked_packets,
        };
        let interleave = room_packets.map_or(1, |room| interleave(asked_packets, mtu, room));
        let code_packets = asked_packets.saturating_mul(interleave);
        let limit_packets = Geometry::limit_packets(self.split, code_packets, code);
        let limit_bytes = u64::from(limit_packets) * mtu;
        // Smaller packets may leave too few packet numbers for the longest message. Shorten it: a
        // longer message then takes several slots.
        let max_message_bytes = self.max_message_bytes.min(limit_bytes);
        let slot_packets = match max_message_bytes {
            0 => u64::from(limit_packets),
            bytes => bytes.div_ceil(mtu),
        };
        let chunk_packets = match code {
            // A chunk of the code consists of these chunks, so a size that does not fit is an error.
            Some(_) if self.mode != Mode::Auto => asked_packets,
            // A slot shorter than a chunk is one chunk.
            _ => u64::from(asked_packets).min(slot_packets) as u32,
        };
        // A stripe fills one send with segmentation offload: 65,507 bytes of UDP payload.
        let seal = self.wire.seal();
        let overhead_bytes = seal.overhead_bytes(seal.needs_address()) as u32;
        let packet_bytes = mtu_bytes.saturating_add(overhead_bytes);
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

/// Bitmap chunks per chunk of the code: enough for [`CODE_CHUNK_BYTES`], as far as the packet numbers
/// suffice.
fn interleave(chunk_packets: u32, mtu: u64, room_packets: u32) -> u32 {
    let chunk_packets = chunk_packets.max(1);
    let chunk_bytes = mtu * u64::from(chunk_packets);
    let wanted = CODE_CHUNK_BYTES.div_ceil(chunk_bytes) as u32;
    wanted.min(room_packets / chunk_packets).max(1)
}

impl Hello {
    /// The parameters of the connection, and their geometry. Unless an end fixes the packet size, it
    /// is the largest candidate that both ends' TCP would send.
    ///
    /// # Errors
    /// If a parameter is impossible, with a text for the peer.
    pub fn negotiate(&self, host: &HostLimits) -> Result<(Parameters, Geometry), String> {
        let mode: Mode = self.mode.parse().map_err(|error| format!("{error}"))?;
        let [message_bits, packet_bits, user_bits] = self.split;
        let split = ImmediateSplit::new(message_bits, packet_bits, user_bits)
            .map_err(|error| error.to_string())?;
        let parameters = Parameters {
            mode,
            chunk_bytes: self.chunk_bytes,
            mtu_bytes: smaller(host.mtu_bytes, self.mtu_bytes),
            split,
            generations: self.generations,
            max_message_bytes: self.max_message_bytes,
            tag: self.tag,
            wire: self.wire()?,
        };
        let channels = self.end.check()?.min(host.channels);
        let packet_bytes = smaller(host.packet_bytes, self.packet_bytes);
        let mtu_bytes = match parameters.mtu_bytes {
            Some(given) => given,
            None => candidates_within(packet_bytes, host.header_bytes, parameters.wire.seal())[0],
        };
        let geometry =
            parameters.geometry(mtu_bytes, channels).map_err(|error| error.to_string())?;
        Ok((parameters, geometry))
    }
}
