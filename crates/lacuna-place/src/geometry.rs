//! The numbers that both ends of a queue pair agree on, and the arithmetic that maps messages to slots,
//! packets, chunks and channels.
//!
//! A message consists of packets of `mtu_bytes` payload each (the last may be shorter);
//! `chunk_packets` packets make a chunk, the unit of the bitmap that the application sees
//! (SDR-RDMA 3.1.1); `stripe_packets` packets in a row go to one channel (3.4.1). Message number `n`
//! uses slot `n mod slots` in generation `n / slots mod generations` (3.3.2), and slot `i` backs the
//! offsets `[iM, iM + M)` of the receiver's zero-based root key (figure 5).
//!
//! With an erasure code, parity packets have numbers and offsets after those of the data
//! (`parity/layout.rs`), and a stripe is a whole number of submessages with their parity.
//!
//! Invariants:
//! - a stripe is a whole number of chunks, so all packets of a chunk travel on one channel and its bits
//!   have one writer;
//! - slot and packet number alone determine the channel, of first transmissions and repairs alike, so
//!   exactly one worker may write each byte of a buffer.

use crate::parity::{Layout, data_packets_limit};
use lacuna_code::Code;
use lacuna_wire::{CHANNELS_MAX, DATA_HEADER_BYTES_MAX, GENERATIONS_MAX, ImmediateSplit, Seal};
use std::ops::Range;

/// The requested numbers of a queue pair; [`Geometry::new`] checks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeometryConfig {
    /// Payload bytes of a full packet. A multiple of 4, so that only the last
    /// packet of a message needs padding.
    pub mtu_bytes: u32,
    /// Packets per chunk.
    pub chunk_packets: u32,
    /// Packets in a row on one channel; rounded up to whole chunks.
    pub stripe_packets: u32,
    /// Channels: sockets, each with its own worker.
    pub channels: u8,
    /// Generations of a slot before the first one is used again.
    pub generations: u8,
    /// How the 32-bit immediate is divided.
    pub split: ImmediateSplit,
    /// Longest message of one slot, rounded up to whole chunks; 0 means as long as
    /// the split allows.
    pub max_message_bytes: u64,
    /// The code whose parity messages may carry, if any.
    pub code: Option<Code>,
    /// Interleaving depth: chunks of the bitmap that make up one chunk of the code. 0 is taken as 1.
    pub interleave: u32,
    /// The packets' trailer.
    pub seal: Seal,
}

impl GeometryConfig {
    /// Packets per chunk of the code.
    fn code_packets(&self) -> u32 {
        self.chunk_packets.saturating_mul(self.interleave.max(1))
    }
}

impl Default for GeometryConfig {
    /// 4 KiB packets and 64 KiB chunks, as in the paper's evaluation (figures 11, 14, 16), one channel,
    /// 4 generations (3.3.2), the 10 + 18 + 4 split, the default seal.
    fn default() -> Self {
        Self {
            mtu_bytes: 4096,
            chunk_packets: 16,
            stripe_packets: 64,
            channels: 1,
            generations: 4,
            split: ImmediateSplit::DEFAULT,
            max_message_bytes: 0,
            code: None,
            interleave: 1,
            seal: Seal::default(),
        }
    }
}

/// Why a [`GeometryConfig`] cannot be used. The caller's fault; never retryable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// The MTU is out of range or not a multiple of 4.
    #[error(
        "mtu of {mtu_bytes} bytes: must be a multiple of 4 between {MTU_BYTES_MIN} and {MTU_BYTES_MAX}"
    )]
    Mtu {
        /// The MTU asked for.
        mtu_bytes: u32,
    },
    /// A chunk must be at least one packet and fit the message.
    #[error(
        "chunk of {chunk_packets} packets: must be 1 to {packets_max}, the packets of the longest message"
    )]
    Chunk {
        /// The chunk asked for.
        chunk_packets: u32,
        /// Packets of the longest message.
        packets_max: u32,
    },
    /// No stripe, or one longer than any message.
    #[error("stripe of {stripe_packets} packets: must be at least 1")]
    Stripe {
        /// The stripe asked for.
        stripe_packets: u32,
    },
    /// Too many or no channels.
    #[error("{channels} channels: must be 1 to {CHANNELS_MAX}")]
    Channels {
        /// The channels asked for.
        channels: u8,
    },
    /// Too many or no generations.
    #[error("{generations} generations: must be 1 to {GENERATIONS_MAX}")]
    Generations {
        /// The generations asked for.
        generations: u8,
    },
    /// The message does not fit the packet offsets of the split.
    #[error(
        "messages of {max_message_bytes} bytes: the immediate's {packet_bits}-bit packet offset allows {limit_bytes} at this MTU"
    )]
    Message {
        /// The length asked for.
        max_message_bytes: u64,
        /// Packet-offset bits of the split.
        packet_bits: u8,
        /// The most that the split allows.
        limit_bytes: u64,
    },
    /// Parity takes all packet offsets of the split.
    #[error(
        "{code} over chunks of {chunk_packets} packets: the parity of one submessage leaves no room in the immediate's {packet_bits}-bit packet offset; use smaller chunks"
    )]
    Parity {
        /// The code asked for.
        code: Code,
        /// Packets per chunk.
        chunk_packets: u32,
        /// Packet-offset bits of the split.
        packet_bits: u8,
    },
}

/// Smallest payload of a full packet (the smallest MTU of the SDR API).
pub const MTU_BYTES_MIN: u32 = 64;
/// Largest payload of a full packet, whatever its seal: a UDP datagram holds 65,507 bytes over IPv4.
pub const MTU_BYTES_MAX: u32 = (65_507 - (DATA_HEADER_BYTES_MAX + Seal::BYTES_MAX) as u32) / 4 * 4;

/// Checked [`GeometryConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    config: GeometryConfig,
    layout: Option<Layout>,
    slot_bytes: u64,
}

impl Geometry {
    /// Checks and completes a configuration: rounds the stripe and the longest message up to whole
    /// chunks, and replaces a message length of 0 by the longest possible.
    pub fn new(mut config: GeometryConfig) -> Result<Self, GeometryError> {
        let GeometryConfig {
            mtu_bytes, chunk_packets, stripe_packets, channels, generations, ..
        } = config;
        if !(MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(&mtu_bytes) || !mtu_bytes.is_multiple_of(4) {
            return Err(GeometryError::Mtu { mtu_bytes });
        }
        if channels == 0 || usize::from(channels) > CHANNELS_MAX {
            return Err(GeometryError::Channels { channels });
        }
        if generations == 0 || usize::from(generations) > GENERATIONS_MAX {
            return Err(GeometryError::Generations { generations });
        }
        if stripe_packets == 0 || stripe_packets > 1 << 30 {
            return Err(GeometryError::Stripe { stripe_packets });
        }
        let code_packets = config.code_packets();
        let limit_packets = Self::limit_packets(config.split, code_packets, config.code);
        if let Some(code) = config.code
            && limit_packets == 0
            && chunk_packets > 0
        {
            let packet_bits = config.split.packet_bits();
            return Err(GeometryError::Parity { code, chunk_packets: code_packets, packet_bits });
        }
        let limit_bytes = u64::from(limit_packets) * u64::from(mtu_bytes);
        if config.max_message_bytes == 0 {
            config.max_message_bytes = limit_bytes;
        }
        if config.max_message_bytes > limit_bytes {
            return Err(GeometryError::Message {
                max_message_bytes: config.max_message_bytes,
                packet_bits: config.split.packet_bits(),
                limit_bytes,
            });
        }
        let packets_max = config.max_message_bytes.div_ceil(u64::from(mtu_bytes)) as u32;
        if chunk_packets == 0 || chunk_packets > packets_max {
            return Err(GeometryError::Chunk { chunk_packets, packets_max });
        }
        // Whole chunks, so that in a message of several slots each chunk starts at a multiple of the
        // chunk length.
        let packets_max = match packets_max.next_multiple_of(chunk_packets) {
            whole if whole <= limit_packets => whole,
            // The split has too few packet numbers for another whole chunk.
            _ => packets_max,
        };
        config.max_message_bytes = u64::from(packets_max) * u64::from(mtu_bytes);
        config.stripe_packets = stripe_packets.next_multiple_of(chunk_packets);
        let layout = match config.code {
            None => None,
            Some(code) => {
                // Also after the numbers of empty packets that carry fragments of an immediate.
                let base = packets_max.max(config.split.fragments());
                let packet_bits = config.split.packet_bits();
                let no_room =
                    GeometryError::Parity { code, chunk_packets: code_packets, packet_bits };
                let layout = Layout::new(code, code_packets, base).ok_or(no_room)?;
                if u64::from(base) + layout.numbers(packets_max) > config.split.packets().into() {
                    return Err(no_room);
                }
                config.stripe_packets = stripe_packets.next_multiple_of(layout.data_packets());
                Some(layout)
            }
        };
        let parity_packets = layout.map_or(0, |layout| layout.numbers(packets_max));
        let slot_bytes = config.max_message_bytes + parity_packets * u64::from(mtu_bytes);
        Ok(Self { config, layout, slot_bytes })
    }

    /// Data packets of the longest message that a split can number together with its parity, if a chunk
    /// of the code has `code_packets` packets. Rounded down to whole chunks unless it is less than one.
    pub fn limit_packets(split: ImmediateSplit, code_packets: u32, code: Option<Code>) -> u32 {
        let code_packets = code_packets.max(1);
        let limit_packets = match code {
            None => split.packets(),
            Some(code) => data_packets_limit(
                split.packets().saturating_sub(split.fragments()),
                code_packets,
                code,
            ),
        };
        match limit_packets % code_packets {
            rest if limit_packets > code_packets => limit_packets - rest,
            _ => limit_packets,
        }
    }

    /// The checked configuration.
    #[inline]
    pub fn config(&self) -> &GeometryConfig {
        &self.config
    }

    /// Payload bytes of a full packet.
    #[inline]
    pub fn mtu_bytes(&self) -> u32 {
        self.config.mtu_bytes
    }

    /// Packets per chunk.
    #[inline]
    pub fn chunk_packets(&self) -> u32 {
        self.config.chunk_packets
    }

    /// The numbering of parity packets, if messages may carry parity.
    #[inline]
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// Whether the number is that of a parity packet.
    #[inline]
    pub fn is_parity(&self, packet: u32) -> bool {
        self.layout.is_some_and(|layout| layout.is_parity(packet))
    }

    /// Bytes per chunk.
    #[inline]
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.config.chunk_packets) * u64::from(self.config.mtu_bytes)
    }

    /// Number of channels.
    #[inline]
    pub fn channels(&self) -> u8 {
        self.config.channels
    }

    /// The split of the immediate.
    #[inline]
    pub fn split(&self) -> ImmediateSplit {
        self.config.split
    }

    /// The packets' trailer.
    #[inline]
    pub fn seal(&self) -> Seal {
        self.config.seal
    }

    /// Bytes of a data packet that are neither payload nor pad. `has_address`: its number does not
    /// give its place. With some seals every packet has an address.
    #[inline]
    pub fn overhead_bytes(&self, has_address: bool) -> u32 {
        let seal = self.config.seal;
        seal.overhead_bytes(has_address || seal.needs_address()) as u32
    }

    /// Message slots: the distance after which a message number uses the same slot.
    #[inline]
    pub fn slots(&self) -> u32 {
        self.config.split.messages()
    }

    /// Longest message of one slot.
    #[inline]
    pub fn max_message_bytes(&self) -> u64 {
        self.config.max_message_bytes
    }

    /// Slot of message `number`.
    #[inline]
    pub fn slot_of(&self, number: u64) -> u32 {
        (number & u64::from(self.slots() - 1)) as u32
    }

    /// Generation of message `number`.
    #[inline]
    pub fn generation_of(&self, number: u64) -> u8 {
        let turn = number >> self.config.split.message_bits();
        (turn % u64::from(self.config.generations)) as u8
    }

    /// Packets of a message of `bytes`; an empty message still is one packet.
    #[inline]
    pub fn packets(&self, bytes: u64) -> u32 {
        debug_assert!(bytes <= self.max_message_bytes());
        let mtu_bytes = u64::from(self.config.mtu_bytes);
        // Called some ten times per message; a small message needs no division.
        if bytes <= mtu_bytes { 1 } else { bytes.div_ceil(mtu_bytes) as u32 }
    }

    /// Chunks of a message of `bytes`.
    #[inline]
    pub fn chunks(&self, bytes: u64) -> u32 {
        match self.packets(bytes) {
            1 => 1,
            packets => packets.div_ceil(self.config.chunk_packets),
        }
    }

    /// Slots that a message or a receive of `bytes` takes.
    #[inline]
    pub fn slots_for(&self, bytes: u64) -> u64 {
        let slot_bytes = self.max_message_bytes();
        if bytes <= slot_bytes { 1 } else { bytes.div_ceil(slot_bytes) }
    }

    /// The channel of a packet.
    ///
    /// Consecutive messages start on different channels, so that many messages of one stripe spread
    /// like one long message.
    #[inline]
    pub fn channel_of(&self, slot: u32, packet: u32) -> u8 {
        let channels = u32::from(self.config.channels);
        if channels == 1 {
            return 0;
        }
        let (first, stripe_packets) = self.stripes(packet);
        ((slot % channels + (packet - first) / stripe_packets % channels) % channels) as u8
    }

    /// The channels of the first `packets` packets of a message, a mask.
    pub fn channels_of(&self, slot: u32, packets: u32) -> u32 {
        let channels = u32::from(self.config.channels);
        if channels == 1 {
            return 1;
        }
        let stripes = packets.div_ceil(self.config.stripe_packets).clamp(1, channels);
        (0..stripes).fold(0, |mask, stripe| mask | 1 << ((slot % channels + stripe) % channels))
    }

    /// The first packet number and the packets per stripe of the data, or of the parity if `packet` is
    /// parity. Parity has a stripe length of its own, so that it travels on the channel of its data.
    #[inline]
    fn stripes(&self, packet: u32) -> (u32, u32) {
        match &self.layout {
            Some(layout) if layout.is_parity(packet) => {
                let submessages = self.config.stripe_packets / layout.data_packets();
                (layout.base(), submessages.saturating_mul(layout.parity_packets()))
            }
            _ => (0, self.config.stripe_packets),
        }
    }

    /// The data packets of the stripe of `packet`, which share its channel.
    #[inline]
    pub fn stripe_of(&self, packet: u32) -> Range<u32> {
        let end = self.layout.map_or(u32::MAX, |layout| layout.base());
        if self.config.channels == 1 {
            return 0..end;
        }
        let start = packet - packet % self.config.stripe_packets;
        start..start.saturating_add(self.config.stripe_packets).min(end)
    }

    /// The next run of packets in `range` that travels on `channel`: from the first such packet to the
    /// end of its stripe or of the range. The range must not contain both data and parity.
    #[inline]
    pub fn next_run(&self, slot: u32, channel: u8, range: Range<u32>) -> Option<Range<u32>> {
        if range.is_empty() {
            return None;
        }
        let channels = u32::from(self.config.channels);
        if channels == 1 {
            return Some(range);
        }
        let (first, stripe_packets) = self.stripes(range.start);
        let stripe = (range.start - first) / stripe_packets;
        let here = u32::from(self.channel_of(slot, range.start));
        let ahead = (u32::from(channel) + channels - here) % channels;
        let start = if ahead == 0 {
            range.start
        } else {
            (stripe + ahead).checked_mul(stripe_packets)?.checked_add(first)?
        };
        if start >= range.end {
            return None;
        }
        let stripe_end = ((start - first) / stripe_packets + 1).saturating_mul(stripe_packets);
        Some(start..stripe_end.saturating_add(first).min(range.end))
    }

    /// Offset of a slot in the root key.
    #[inline]
    pub fn slot_address(&self, slot: u32) -> u64 {
        u64::from(slot) * self.slot_bytes()
    }

    /// Offset of a packet in its slot: from its address, or from its number if it has none. `None` if
    /// the offset is invalid: data after the end of the longest message, or parity without an address,
    /// from which the receiver computes the message's length.
    #[inline]
    pub fn offset_of(&self, slot: u32, packet: u32, address: Option<u64>) -> Option<u64> {
        let is_parity = self.is_parity(packet);
        let offset = match address {
            Some(address) => address.checked_sub(self.slot_address(slot))?,
            None if is_parity => return None,
            None => u64::from(packet) * u64::from(self.mtu_bytes()),
        };
        let end = if is_parity { self.slot_bytes() } else { self.max_message_bytes() };
        (offset <= end).then_some(offset)
    }

    /// Bytes of a slot in the root key: the longest message and its parity.
    #[inline]
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }
}

#[cfg(test)]
mod tests;
