//! The numbers that both ends of a queue pair must agree on, and the
//! arithmetic that follows from them.
//!
//! A message is a run of packets of `mtu_bytes` payload each (the last may be
//! shorter); `chunk_packets` packets make a chunk, the unit of the bitmap that
//! the application sees (SDR-RDMA 3.1.1); `stripe_packets` packets in a row go
//! to one channel (3.4.1). Message number `n` uses slot `n mod slots` in
//! generation `n / slots mod generations` (3.3.2), and slot `i` backs the
//! offsets `[iM, iM + M)` of the receiver's zero-based root key (figure 5).
//!
//! Invariants:
//! - a stripe is a whole number of chunks, so all packets of a chunk travel on
//!   one channel and its bits have one writer;
//! - the channel is a function of slot and packet alone, for first
//!   transmissions and repairs alike, so each byte of a buffer has exactly one
//!   worker that may write it.

use lacuna_wire::{CHANNELS_MAX, DATA_OVERHEAD_BYTES, GENERATIONS_MAX, ImmediateSplit};
use std::ops::Range;

/// What a queue pair is asked to use; [`Geometry::new`] checks it.
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
    /// Generations a slot passes through before its first one comes back.
    pub generations: u8,
    /// How the 32-bit immediate is divided.
    pub split: ImmediateSplit,
    /// Longest message of one slot; 0 means as long as the split allows.
    pub max_message_bytes: u64,
}

impl Default for GeometryConfig {
    /// 4 KiB packets and 64 KiB chunks, as in the paper's evaluation (figures
    /// 11, 14, 16), one channel, 4 generations (3.3.2), the 10 + 18 + 4 split.
    fn default() -> Self {
        Self {
            mtu_bytes: 4096,
            chunk_packets: 16,
            stripe_packets: 64,
            channels: 1,
            generations: 4,
            split: ImmediateSplit::DEFAULT,
            max_message_bytes: 0,
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
}

/// Smallest payload of a full packet (the smallest MTU of the SDR API).
pub const MTU_BYTES_MIN: u32 = 64;
/// Largest payload of a full packet: a UDP datagram holds 65,507 bytes over IPv4.
pub const MTU_BYTES_MAX: u32 = (65_507 - DATA_OVERHEAD_BYTES as u32) / 4 * 4;

/// Checked [`GeometryConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    config: GeometryConfig,
}

impl Geometry {
    /// Checks and completes a configuration: the stripe becomes a whole number
    /// of chunks, a message length of 0 the longest possible.
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
        let limit_bytes = u64::from(config.split.packets()) * u64::from(mtu_bytes);
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
        // Whole packets, so that a message of several slots breaks between packets.
        config.max_message_bytes = config.max_message_bytes.next_multiple_of(u64::from(mtu_bytes));
        let packets_max = (config.max_message_bytes / u64::from(mtu_bytes)) as u32;
        if chunk_packets == 0 || chunk_packets > packets_max {
            return Err(GeometryError::Chunk { chunk_packets, packets_max });
        }
        if stripe_packets == 0 || stripe_packets > 1 << 30 {
            return Err(GeometryError::Stripe { stripe_packets });
        }
        config.stripe_packets = stripe_packets.next_multiple_of(chunk_packets);
        Ok(Self { config })
    }

    /// The checked configuration.
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
        (bytes.div_ceil(u64::from(self.config.mtu_bytes)) as u32).max(1)
    }

    /// Chunks of a message of `bytes`.
    #[inline]
    pub fn chunks(&self, bytes: u64) -> u32 {
        self.packets(bytes).div_ceil(self.config.chunk_packets)
    }

    /// Slots that a message or a receive of `bytes` takes.
    #[inline]
    pub fn slots_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.max_message_bytes()).max(1)
    }

    /// The channel of a packet.
    ///
    /// Messages start on different channels, so that many one-stripe messages
    /// spread as one long message does.
    #[inline]
    pub fn channel_of(&self, slot: u32, packet: u32) -> u8 {
        let channels = u32::from(self.config.channels);
        if channels == 1 {
            return 0;
        }
        ((slot % channels + packet / self.config.stripe_packets % channels) % channels) as u8
    }

    /// The packets that share their channel with `packet` for being in its stripe.
    pub fn stripe_of(&self, packet: u32) -> Range<u32> {
        if self.config.channels == 1 {
            return 0..u32::MAX;
        }
        let start = packet - packet % self.config.stripe_packets;
        start..start.saturating_add(self.config.stripe_packets)
    }

    /// The next run of packets of `range` that travels on `channel`: the first
    /// such packet and those after it up to the end of the stripe or the range.
    pub fn next_run(&self, slot: u32, channel: u8, range: Range<u32>) -> Option<Range<u32>> {
        if range.is_empty() {
            return None;
        }
        let channels = u32::from(self.config.channels);
        if channels == 1 {
            return Some(range);
        }
        let stripe_packets = self.config.stripe_packets;
        let stripe = range.start / stripe_packets;
        let here = u32::from(self.channel_of(slot, range.start));
        let ahead = (u32::from(channel) + channels - here) % channels;
        let start =
            if ahead == 0 { range.start } else { (stripe + ahead).checked_mul(stripe_packets)? };
        if start >= range.end {
            return None;
        }
        let stripe_end = (start / stripe_packets + 1).saturating_mul(stripe_packets);
        Some(start..stripe_end.min(range.end))
    }

    /// Offset of a slot in the root key.
    #[inline]
    pub fn slot_address(&self, slot: u32) -> u64 {
        u64::from(slot) * self.max_message_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn geometry(channels: u8, stripe_packets: u32, chunk_packets: u32) -> Geometry {
        Geometry::new(GeometryConfig {
            channels,
            stripe_packets,
            chunk_packets,
            ..GeometryConfig::default()
        })
        .unwrap()
    }

    #[test]
    fn defaults_are_the_papers() {
        let g = Geometry::new(GeometryConfig::default()).unwrap();
        assert_eq!((g.slots(), g.max_message_bytes()), (1024, 1 << 30));
        assert_eq!((g.chunk_bytes(), g.config().generations), (65536, 4));
    }

    #[test]
    fn an_empty_message_is_one_packet_and_one_chunk() {
        let g = geometry(1, 16, 4);
        assert_eq!((g.packets(0), g.chunks(0), g.slots_for(0)), (1, 1, 1));
    }

    #[test]
    fn generations_advance_when_the_slots_wrap() {
        let g = geometry(1, 16, 1);
        assert_eq!((g.slot_of(1023), g.generation_of(1023)), (1023, 0));
        assert_eq!((g.slot_of(1024), g.generation_of(1024)), (0, 1));
        assert_eq!((g.slot_of(4096), g.generation_of(4096)), (0, 0));
    }

    #[test]
    fn nonsense_is_refused_with_its_numbers() {
        let config = GeometryConfig::default();
        for (bad, text) in [
            (GeometryConfig { mtu_bytes: 62, ..config }, "mtu of 62"),
            (GeometryConfig { mtu_bytes: 1401, ..config }, "mtu of 1401"),
            (GeometryConfig { channels: 17, ..config }, "17 channels"),
            (GeometryConfig { generations: 9, ..config }, "9 generations"),
            (GeometryConfig { chunk_packets: 0, ..config }, "chunk of 0"),
            (GeometryConfig { max_message_bytes: 1 << 31, ..config }, "allows 1073741824"),
        ] {
            let error = Geometry::new(bad).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    proptest! {
        #[test]
        fn runs_of_all_channels_cover_every_packet_once(
            channels in 1u8..=16, stripe in 1u32..40, chunk in 1u32..8,
            slot in 0u32..1024, start in 0u32..500, length in 0u32..500,
        ) {
            let g = geometry(channels, stripe, chunk);
            let mut seen = vec![0u8; 1000];
            for channel in 0..channels {
                let mut rest = start..start + length;
                while let Some(run) = g.next_run(slot, channel, rest.clone()) {
                    for packet in run.clone() {
                        prop_assert_eq!(g.channel_of(slot, packet), channel);
                        seen[packet as usize] += 1;
                    }
                    rest.start = run.end;
                }
            }
            for (packet, count) in seen.iter().enumerate() {
                let inside = (start..start + length).contains(&(packet as u32));
                prop_assert_eq!(*count, u8::from(inside));
            }
        }

        #[test]
        fn packets_of_a_chunk_share_a_channel(
            channels in 1u8..=16, stripe in 1u32..40, chunk in 1u32..8,
            slot in 0u32..1024, packet in 0u32..100_000,
        ) {
            let g = geometry(channels, stripe, chunk);
            let first = packet / chunk * chunk;
            prop_assert_eq!(g.channel_of(slot, packet), g.channel_of(slot, first));
        }
    }
}
