//! The seal: the trailer of a packet, by which the receiver checks all bytes before it.
//!
//! ```text
//! BTH … payload or body, pad | trailer
//! ```
//!
//! [`Seal`] is a closed enum with a table ([`SEALS`]), and knows the length of a trailer, how it is
//! made and how it is checked. Both ends of a queue pair use the same seal from its first control
//! packet on; it is part of their geometry. Packets to unknown numbers are checked as CRC32C.
//!
//! Adding a seal takes a file here with a type that implements [`Arm`], an arm of the enum and of
//! the macro `each!`, and a line of the table. With one arm the enum has no bytes and costs
//! nothing.
//!
//! In a data packet without an address, every seal carries the remote key as well, which strangers
//! cannot guess: [`Seal::check`] gives it back, and damage makes it a wrong one.
//!
//! RoCE's own trailer, the ICRC (`icrc.rs`), also covers addresses and the IP identification, which
//! only the datapath knows. An arm for it will leave its four bytes free, and a queue pair will use
//! it only over a datapath that promises to fill them: `lacuna_burst::TrailerOffload::Icrc`. RDMA
//! cards know no key in a trailer, so all packets with this seal will have addresses.
//!
//! Invariants: a seal covers every byte before its trailer, except those that an ICRC exempts; a
//! trailer is a whole number of words; the length of a trailer depends on the seal alone.

mod crc32c;
#[cfg(test)]
mod tests;

use lacuna_crc::Crc32c;

use crate::control::FRAMES_AT;
use crate::{DATA_HEADER_BYTES, DATA_HEADER_BYTES_MAX, DataHeader, PacketError, pad_bytes};

pub use crc32c::{check_crc32c, crc32c};

/// Seal of a queue pair's packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Seal {
    /// CRC32C over the UDP payload, between plain sockets.
    #[default]
    Crc32c,
}

/// One line per seal, in the order of the enum.
pub const SEALS: &[SealEntry] = &[SealEntry {
    seal: Seal::Crc32c,
    name: "crc32c",
    bytes: 4,
    summary: "CRC32C of the UDP payload; finds damage, stops nobody",
}];

/// Calls a verb of the type behind an arm.
macro_rules! each {
    ($seal:expr, $arm:ident => $call:expr) => {
        match $seal {
            Seal::Crc32c => {
                use crc32c::Castagnoli as $arm;
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

/// The verbs of a seal. Its trailers are as long as the table says.
trait Arm {
    /// Whether a packet is checked before anything of it is read ([`Seal::check_while`]).
    const JUDGES_FIRST: bool;

    /// Copies a payload behind its headers, and writes pad and trailer.
    fn copy(header: &DataHeader, payload: &[u8], room: Room<'_>);

    /// Writes the trailer of a data packet whose headers, payload and pad are given in order.
    fn make(header: &DataHeader, pieces: &[&[u8]], trailer: &mut [u8]);

    /// Checks a data packet, and returns its remote key.
    fn judge(header: &DataHeader, covered: &[u8], trailer: &[u8]) -> Result<u32, PacketError>;

    /// Checks a data packet while `take` reads the payload. Returns whether the key is `rkey`
    /// ([`Seal::check_while`]).
    fn judge_while(
        header: &DataHeader,
        cut: Cut<'_>,
        rkey: u32,
        take: impl FnOnce(Option<&mut Crc32c>, &[u8], &[u8]),
    ) -> Result<bool, PacketError>;

    /// Writes the trailer of a control packet.
    fn make_of_control(covered: &[u8], trailer: &mut [u8]);

    /// Checks a control packet.
    fn judge_control(covered: &[u8], trailer: &[u8]) -> Result<(), PacketError>;
}

/// The parts of a data packet to be written, with the headers already written.
struct Room<'o> {
    headers: &'o [u8],
    payload: &'o mut [u8],
    pad: &'o mut [u8],
    trailer: &'o mut [u8],
}

/// The parts of a received data packet.
struct Cut<'p> {
    headers: &'p [u8],
    payload: &'p [u8],
    pad: &'p [u8],
    trailer: &'p [u8],
}

impl Seal {
    /// Bytes of the longest trailer there is.
    pub const BYTES_MAX: usize = {
        let (mut most, mut index) = (0, 0);
        while index < SEALS.len() {
            assert!(SEALS[index].seal as usize == index, "the table is in the enum's order");
            assert!(SEALS[index].bytes.is_multiple_of(4), "packets are whole words");
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

    /// Its name: lower case, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Bytes of its trailers.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.entry().bytes
    }

    /// Bytes of a data packet that are neither payload nor pad, with an address of its own or
    /// without.
    #[inline]
    #[must_use]
    pub const fn overhead_bytes(self, has_address: bool) -> usize {
        self.bytes() + if has_address { DATA_HEADER_BYTES_MAX } else { DATA_HEADER_BYTES }
    }

    /// The largest overhead of a data packet.
    #[inline]
    #[must_use]
    pub const fn overhead_bytes_max(self) -> usize {
        self.overhead_bytes(true)
    }

    /// Bytes of a control packet that are neither frames nor pad.
    #[inline]
    #[must_use]
    pub const fn control_overhead_bytes(self) -> usize {
        FRAMES_AT + self.bytes()
    }

    /// Bytes of the whole packet with these headers.
    #[inline]
    #[must_use]
    pub const fn packet_bytes(self, header: &DataHeader) -> usize {
        let length = header.length as usize;
        self.overhead_bytes(header.address.is_some()) + length + pad_bytes(length)
    }

    /// Writes a whole data packet, and reads the payload once.
    ///
    /// # Panics
    /// If `out` is not as long as the packet, or the payload not as long as the header says.
    #[inline]
    pub fn emit_packet(self, header: &DataHeader, out: &mut [u8], payload: &[u8]) {
        assert_eq!(payload.len(), header.length as usize, "the header announces its payload");
        let end = out.len().checked_sub(self.bytes()).expect("there is room for the trailer");
        let (out, trailer) = out.split_at_mut(end);
        let (headers, behind) = out.split_at_mut(header.header_bytes());
        let (place, pad) = behind.split_at_mut(payload.len());
        header.emit(headers);
        assert_eq!(pad.len(), pad_bytes(payload.len()), "a packet ends behind its trailer");
        let room = Room { headers, payload: place, pad, trailer };
        each!(self, A => A::copy(header, payload, room));
    }

    /// Writes the trailer of the data packet whose headers, payload and pad are given in order.
    ///
    /// # Panics
    /// If `out` is not as long as the trailer.
    #[inline]
    pub fn emit_trailer(self, header: &DataHeader, pieces: &[&[u8]], out: &mut [u8]) {
        each!(self, A => A::make(header, pieces, out));
    }

    /// Checks the trailer of the whole packet that `header` was read from. A header without an
    /// address gets its key from there; that of a damaged packet is wrong.
    ///
    /// # Errors
    /// When the trailer of a packet with an address does not match the bytes before it, or there
    /// is no trailer.
    #[inline]
    pub fn check(self, header: &mut DataHeader, packet: &[u8]) -> Result<(), PacketError> {
        let (covered, trailer) = self.split(packet)?;
        header.rkey = each!(self, A => A::judge(header, covered, trailer))?;
        Ok(())
    }

    /// As [`Seal::check`], while `take` reads headers and payload, in this order. Returns whether
    /// the remote key is `rkey`.
    ///
    /// If `take` gets a sum, it adds all of both to it, in order and once, and what it reads is not
    /// checked yet. A seal that [judges first](Self::judges_first) passes no sum, and calls `take`
    /// only for a good packet with that key.
    ///
    /// Those of [`check`](Self::check), and if the header was not read from this packet.
    #[inline]
    pub fn check_while(
        self,
        header: &DataHeader,
        packet: &[u8],
        rkey: u32,
        take: impl FnOnce(Option<&mut Crc32c>, &[u8], &[u8]),
    ) -> Result<bool, PacketError> {
        let (covered, trailer) = self.split(packet)?;
        let header_bytes = header.header_bytes();
        let Some((headers, behind)) = covered.split_at_checked(header_bytes) else {
            return Err(PacketError::TooShort { needed: header_bytes, found: covered.len() });
        };
        let Some((payload, pad)) = behind.split_at_checked(header.length as usize) else {
            return Err(PacketError::Length { announced: header.length, found: behind.len() });
        };
        let cut = Cut { headers, payload, pad, trailer };
        each!(self, A => A::judge_while(header, cut, rkey, take))
    }

    /// Whether a packet is checked before anything of it is read, so that nothing of a refused
    /// packet was written anywhere.
    #[inline]
    #[must_use]
    pub const fn judges_first(self) -> bool {
        each!(self, A => A::JUDGES_FIRST)
    }

    /// Writes the trailer of the control packet before it.
    #[inline]
    pub(crate) fn emit_control_trailer(self, covered: &[u8], out: &mut [u8]) {
        each!(self, A => A::make_of_control(covered, out));
    }

    /// Checks the trailer of a whole control packet.
    ///
    /// # Errors
    /// When the trailer does not match the bytes before it, or there is no trailer.
    #[inline]
    pub fn check_control(self, packet: &[u8]) -> Result<(), PacketError> {
        let (covered, trailer) = self.split(packet)?;
        each!(self, A => A::judge_control(covered, trailer))
    }

    /// Splits a whole packet into covered bytes and trailer.
    #[inline]
    fn split(self, packet: &[u8]) -> Result<(&[u8], &[u8]), PacketError> {
        let (needed, found) = (self.bytes(), packet.len());
        match found.checked_sub(needed) {
            Some(end) => Ok(packet.split_at(end)),
            None => Err(PacketError::TooShort { needed, found }),
        }
    }
}
