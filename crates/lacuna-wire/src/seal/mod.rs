//! Seals: the trailer of a packet, with which the receiver checks all bytes before it.
//!
//! ```text
//! BTH … payload or body, pad | trailer
//! ```
//!
//! [`Seal`] is a closed enum with a table ([`SEALS`]). It gives the length of a trailer, and writes
//! and checks trailers. Both ends of a queue pair use the same seal from the first control packet
//! on; it is part of their geometry. Packets to unknown queue pairs are checked with CRC32C.
//!
//! To add a seal: a file here with a type that implements [`SealAlgorithm`], a variant of the enum
//! and of the macro `each!`, and a line of the table.
//!
//! In a data packet without an address, every seal also carries the remote key, a secret between
//! the ends. [`Seal::check`] computes the key; a damaged packet gives another.
//!
//! RoCE's own trailer, the ICRC, also covers addresses and the IP identification, which only the
//! datapath knows. Its seal writes the part of the packet's own bytes, and the datapath adds the rest
//! (`lacuna_burst::TrailerOffload::Icrc`, `icrc/flow.rs`). RDMA NICs expect no key in a trailer, so
//! all its packets have addresses ([`Seal::needs_address`]).
//!
//! Invariants: a seal covers every byte before its trailer, but for what an ICRC exempts; a trailer
//! is a whole number of words; its length depends on the seal only.

mod aead;
mod crc32c;
mod icrc;
#[cfg(test)]
mod tests;

use lacuna_crc::Crc32c;

use crate::control::FRAMES_AT;
use crate::{DATA_HEADER_BYTES, DATA_HEADER_BYTES_MAX, DataHeader, PacketError, pad_bytes};

pub use crc32c::{check_crc32c, crc32c};

/// How the packets of a queue pair are checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Seal {
    /// CRC32C over the UDP payload, between plain sockets.
    #[default]
    Crc32c,
    /// The ICRC of RoCEv2, as RDMA cards make and check it; with control packets as CRC32C's.
    Icrc,
    /// Encryption and authentication, with keys that the two ends alone have. What is here leaves
    /// room for it.
    Aead,
}

/// One line per seal, in the order of the enum.
pub const SEALS: &[SealEntry] = &[
    SealEntry {
        seal: Seal::Crc32c,
        name: "crc32c",
        bytes: 4,
        summary: "CRC32C of the UDP payload; finds damage, stops nobody",
    },
    SealEntry {
        seal: Seal::Icrc,
        name: "icrc",
        bytes: 4,
        summary: "RoCE's ICRC, IP and UDP headers included, as cards check it; finds damage, stops nobody",
    },
    SealEntry {
        seal: Seal::Aead,
        name: "aead",
        bytes: 20,
        summary: "encrypted and authenticated: only the peer can read, make or change a packet",
    },
];

/// Calls a function of the variant's algorithm.
macro_rules! each {
    ($seal:expr, $arm:ident => $call:expr) => {
        match $seal {
            Seal::Crc32c => {
                use crc32c::Castagnoli as $arm;
                $call
            }
            Seal::Icrc => {
                use icrc::Inner as $arm;
                $call
            }
            Seal::Aead => {
                use aead::Opened as $arm;
                $call
            }
        }
    };
}

/// An entry of [`SEALS`].
#[derive(Clone, Copy, Debug)]
pub struct SealEntry {
    /// The seal.
    pub seal: Seal,
    /// Its name: lower case, stable.
    pub name: &'static str,
    /// Bytes of its trailer.
    pub bytes: usize,
    /// One sentence.
    pub summary: &'static str,
}

/// The implementation of a seal. The length of its trailers is in [`SEALS`].
trait SealAlgorithm {
    /// Whether a packet is verified before any of it is read ([`Seal::check_while`]).
    const VERIFIES_FIRST: bool;

    /// Copies a payload to its place, and writes pad and trailer.
    fn copy_and_seal(header: &DataHeader, payload: &[u8], parts: PacketPartsMut<'_>);

    /// Writes the trailer of a data packet. `pieces` are headers, payload and pad, in order.
    fn seal(header: &DataHeader, pieces: &[&[u8]], trailer: &mut [u8]);

    /// Verifies a data packet; returns its remote key.
    fn verify(header: &DataHeader, covered: &[u8], trailer: &[u8]) -> Result<u32, PacketError>;

    /// The same, while `take` reads the payload. Returns whether the key is `rkey`
    /// ([`Seal::check_while`]). Cuts the packet itself, so that no seal's call makes the compiler
    /// write the parts to memory for another's.
    fn verify_while(
        header: &DataHeader,
        packet: &[u8],
        rkey: u32,
        take: impl FnOnce(Option<&mut Crc32c>, &[u8], &[u8]),
    ) -> Result<bool, PacketError>;

    /// Writes the trailer of a control packet.
    fn seal_control(covered: &[u8], trailer: &mut [u8]);

    /// Verifies a control packet.
    fn verify_control(covered: &[u8], trailer: &[u8]) -> Result<(), PacketError>;
}

/// Places of a data packet's parts. The headers are already written.
struct PacketPartsMut<'o> {
    headers: &'o [u8],
    payload: &'o mut [u8],
    pad: &'o mut [u8],
    trailer: &'o mut [u8],
}

/// Parts of a received data packet.
struct PacketParts<'p> {
    headers: &'p [u8],
    payload: &'p [u8],
    pad: &'p [u8],
    trailer: &'p [u8],
}

impl<'p> PacketParts<'p> {
    /// Cuts the packet that `header` was read from, with the trailer of this seal.
    #[inline]
    fn cut(seal: Seal, header: &DataHeader, packet: &'p [u8]) -> Result<Self, PacketError> {
        let (covered, trailer) = seal.split(packet)?;
        let header_bytes = header.header_bytes();
        let Some((headers, behind)) = covered.split_at_checked(header_bytes) else {
            return Err(PacketError::TooShort { needed: header_bytes, found: covered.len() });
        };
        let Some((payload, pad)) = behind.split_at_checked(header.length as usize) else {
            return Err(PacketError::Length { announced: header.length, found: behind.len() });
        };
        Ok(Self { headers, payload, pad, trailer })
    }
}

impl Seal {
    /// Length of the longest trailer.
    pub const BYTES_MAX: usize = {
        let (mut most, mut index) = (0, 0);
        while index < SEALS.len() {
            assert!(SEALS[index].seal as usize == index, "the table is in the enum's order");
            assert!(SEALS[index].bytes.is_multiple_of(4), "packets are whole words");
            assert!(SEALS[index].bytes == SEALS[index].seal.bytes(), "the table and `bytes` agree");
            if SEALS[index].bytes > most {
                most = SEALS[index].bytes;
            }
            index += 1;
        }
        most
    };

    /// Its line of the table.
    #[inline]
    const fn entry(self) -> &'static SealEntry {
        &SEALS[self as usize]
    }

    /// Name: lower case, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Length of its trailers.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        // The packet path asks often; without the table it is a comparison.
        match self {
            Self::Crc32c | Self::Icrc => 4,
            Self::Aead => 20,
        }
    }

    /// Bytes of a data packet besides payload and pad, with or without an address.
    #[inline]
    #[must_use]
    pub const fn overhead_bytes(self, has_address: bool) -> usize {
        self.bytes() + if has_address { DATA_HEADER_BYTES_MAX } else { DATA_HEADER_BYTES }
    }

    /// Whether every data packet must have an address: cards know no packet without one.
    #[inline]
    #[must_use]
    pub const fn needs_address(self) -> bool {
        matches!(self, Self::Icrc)
    }

    /// Whether packets are encrypted, so that the engine has to seal what the protocol has written, and to open
    /// what it is to read.
    #[inline]
    #[must_use]
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Aead)
    }

    /// The larger of the two.
    #[inline]
    #[must_use]
    pub const fn overhead_bytes_max(self) -> usize {
        self.overhead_bytes(true)
    }

    /// Bytes of a control packet besides frames and pad.
    #[inline]
    #[must_use]
    pub const fn control_overhead_bytes(self) -> usize {
        FRAMES_AT + self.bytes()
    }

    /// Length of the whole packet with these headers.
    #[inline]
    #[must_use]
    pub const fn packet_bytes(self, header: &DataHeader) -> usize {
        let length = header.length as usize;
        self.overhead_bytes(header.address.is_some()) + length + pad_bytes(length)
    }

    /// Writes a whole data packet, and reads the payload once.
    ///
    /// # Panics
    /// If `out` does not have the packet's length, or the payload not the length in the header.
    #[inline]
    pub fn emit_packet(self, header: &DataHeader, out: &mut [u8], payload: &[u8]) {
        assert_eq!(payload.len(), header.length as usize, "the header announces its payload");
        let end = out.len().checked_sub(self.bytes()).expect("there is room for the trailer");
        let (out, trailer) = out.split_at_mut(end);
        let (headers, behind) = out.split_at_mut(header.header_bytes());
        let (place, pad) = behind.split_at_mut(payload.len());
        header.emit(headers);
        assert_eq!(pad.len(), pad_bytes(payload.len()), "a packet ends behind its trailer");
        let parts = PacketPartsMut { headers, payload: place, pad, trailer };
        each!(self, A => A::copy_and_seal(header, payload, parts));
    }

    /// Writes the trailer of a data packet. `pieces` are headers, payload and pad, in order.
    ///
    /// # Panics
    /// If `out` does not have the trailer's length.
    #[inline]
    pub fn emit_trailer(self, header: &DataHeader, pieces: &[&[u8]], out: &mut [u8]) {
        each!(self, A => A::seal(header, pieces, out));
    }

    /// Checks the trailer of the packet that `header` was read from. If the header has no address,
    /// sets its remote key from the trailer; a damaged packet gives a wrong key.
    ///
    /// # Errors
    /// When the trailer of a packet with an address does not match the bytes before it, or the
    /// packet is shorter than a trailer.
    #[inline]
    pub fn check(self, header: &mut DataHeader, packet: &[u8]) -> Result<(), PacketError> {
        let (covered, trailer) = self.split(packet)?;
        header.rkey = each!(self, A => A::verify(header, covered, trailer))?;
        Ok(())
    }

    /// The same, while `take` reads headers and payload, in this order. Returns whether the remote
    /// key is `rkey`.
    ///
    /// If `take` gets a sum, it must add all bytes of both to it, in order and once; they are not
    /// verified yet. A seal that [verifies first](Self::judges_first) passes no sum, and calls
    /// `take` only for a good packet with this key.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and if `header` was not read from this packet.
    #[inline]
    pub fn check_while(
        self,
        header: &DataHeader,
        packet: &[u8],
        rkey: u32,
        take: impl FnOnce(Option<&mut Crc32c>, &[u8], &[u8]),
    ) -> Result<bool, PacketError> {
        each!(self, A => A::verify_while(header, packet, rkey, take))
    }

    /// Whether a packet is verified before any of it is read, so that a refused packet was not
    /// copied anywhere.
    #[inline]
    #[must_use]
    pub const fn judges_first(self) -> bool {
        each!(self, A => A::VERIFIES_FIRST)
    }

    /// Writes the trailer of the control packet `covered`.
    #[inline]
    pub(crate) fn emit_control_trailer(self, covered: &[u8], out: &mut [u8]) {
        each!(self, A => A::seal_control(covered, out));
    }

    /// Writes the trailer of a packet that has no key in its trailer, such as those of reliable
    /// connections. Of an ICRC it is the protocol's part.
    #[inline]
    pub fn emit_trailer_of(self, covered: &[u8], out: &mut [u8]) {
        match self {
            Self::Crc32c => crc32c::Castagnoli::seal_control(covered, out),
            Self::Icrc => {
                out.copy_from_slice(&crate::icrc::inner_without_variant(covered).to_le_bytes());
            }
            Self::Aead => out.fill(0),
        }
    }

    /// Checks the trailer of a whole control packet.
    ///
    /// # Errors
    /// When the trailer does not match the bytes before it, or the packet is shorter than a
    /// trailer.
    #[inline]
    pub fn check_control(self, packet: &[u8]) -> Result<(), PacketError> {
        let (covered, trailer) = self.split(packet)?;
        each!(self, A => A::verify_control(covered, trailer))
    }

    /// Splits a packet before its trailer.
    #[inline]
    fn split(self, packet: &[u8]) -> Result<(&[u8], &[u8]), PacketError> {
        let (needed, found) = (self.bytes(), packet.len());
        match found.checked_sub(needed) {
            Some(end) => Ok(packet.split_at(end)),
            None => Err(PacketError::TooShort { needed, found }),
        }
    }
}
