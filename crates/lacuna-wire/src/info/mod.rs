//! Description of a queue pair, exchanged before the first packet over a reliable, ordered
//! connection (`qp_info_get` and `qp_connect` of SDR-RDMA, table 1).
//!
//! ```text
//! | magic "LCQP" 4 | version 2 | bytes of fields 2 | fields … |
//! field: | tag 2 | length 2 | value |
//! ```
//!
//! Fields may come in any order, each at most once. All are required, except the erasure code, the
//! seal, the nonce and the report policy, which are there if they are not the default. An unknown tag is skipped if its
//! high bit is set, else it is an error: a later version sets the bit on fields that an earlier one
//! may ignore. The whole is at most [`QpInfo::BYTES_MAX`] long.
//!
//! Each value is checked by itself here, with an error that names the field. The handshake checks
//! that the values fit together and that both ends agree.

mod error;

pub use error::{InfoError, InfoField};

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use crate::{
    CHANNELS_MAX, DATA_HEADER_BYTES_MAX, GENERATIONS_MAX, ImmediateSplit, PSN_MASK, Qpn, SEALS,
    Seal,
};

const MAGIC: [u8; 4] = *b"LCQP";
/// 2: the code has an interleave. 3: a packet has no address if its number gives its place.
const VERSION: u16 = 3;
const HEADER_BYTES: usize = 8;
const FIELD_HEADER_BYTES: usize = 4;
/// Set in tags that a reader may skip if it does not know them.
const SKIPPABLE: u16 = 0x8000;

/// The largest payload of a data packet: UDP over IPv4 carries 65507 bytes, and the packet is a
/// whole number of words.
const MTU_BYTES_MAX: u32 = (65_507 & !3) - (DATA_HEADER_BYTES_MAX + Seal::BYTES_MAX) as u32;

const FAMILY_IPV4: u8 = 4;
const FAMILY_IPV6: u8 = 6;
/// Family, port and an IPv6 address.
const ADDRESS_BYTES_MAX: usize = 1 + 2 + 16;
/// Bytes of the number from which the keys of a queue pair's packets follow: so many that two ends never draw the same.
pub const NONCE_BYTES: usize = 16;
/// The values of all fields but the channels: eight of 4 bytes, and 8 + 7 + 3 + 1 + 1, the nonce, and the reports.
const SCALAR_BYTES: usize = 8 * 4 + 8 + 7 + 3 + 1 + 1 + NONCE_BYTES + ReportsInfo::BYTES;
/// The longest description that this version writes.
const EMITTED_BYTES_MAX: usize = HEADER_BYTES
    + InfoField::ALL.len() * FIELD_HEADER_BYTES
    + SCALAR_BYTES
    + CHANNELS_MAX * ADDRESS_BYTES_MAX;

/// Description of a queue pair for its peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QpInfo {
    /// The queue pair, [`Qpn::QUEUE_PAIR_MIN`] to [`Qpn::QUEUE_PAIR_MAX`].
    pub queue_pair: u32,
    /// The key of the peer's data packets.
    pub rkey: u32,
    /// The key of the peer's control packets.
    pub qkey: u32,
    /// Bytes of payload in each packet of a message but the last.
    pub mtu_bytes: u32,
    /// Packets in a chunk, the unit of the bitmap that the application sees.
    pub chunk_packets: u32,
    /// Widths of the immediate's fields.
    pub split: ImmediateSplit,
    /// Number of generations of a slot, 1 to [`GENERATIONS_MAX`].
    pub generations: u8,
    /// Consecutive packets of a message that go to the same channel.
    pub stripe_packets: u32,
    /// The longest message of a slot, in bytes.
    pub max_message_bytes: u64,
    /// The first sequence number of each channel, 24 bits.
    pub first_psn: u32,
    /// Bytes that may be in flight before the first report.
    pub credit_bytes: u32,
    /// One address per channel, 1 to [`CHANNELS_MAX`]. IPv6 flow label and scope are local and are
    /// not sent.
    pub channels: Vec<SocketAddr>,
    /// The erasure code of its messages, if any.
    pub code: Option<CodeInfo>,
    /// The trailer of its data packets, and with it their form.
    pub seal: Seal,
    /// A number that no other queue pair has, from which the keys of its packets follow; `None` if they are in clear,
    /// or keys are agreed on elsewhere.
    pub nonce: Option<[u8; NONCE_BYTES]>,
    /// When the peer must report, if not as by default.
    pub reports: Option<ReportsInfo>,
}

/// When a receiver should report, as the sender's congestion controller wants it. The protocol
/// checks the values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportsInfo {
    /// Unreported bytes after which a report is due.
    pub bytes_max: u32,
    /// Shortest time between two reports that only a timer causes, in nanoseconds.
    pub delay_ns_min: u32,
    /// Longest time between an arrival and its report, in nanoseconds.
    pub delay_ns_max: u32,
    /// Shortest time before a report that a gap causes, in nanoseconds.
    pub gap_delay_ns_min: u32,
    /// Reports per round trip.
    pub per_rtt: u32,
    /// Whether a congestion mark is reported as early as a gap.
    pub on_mark: bool,
}

impl ReportsInfo {
    const BYTES: usize = 5 * 4 + 1;

    /// ```text
    /// | bytes 4 | delay min 4 | delay max 4 | gap delay 4 | per round trip 4 | flags 1: on mark 0x01 |
    /// ```
    fn emit(self, out: &mut Vec<u8>) {
        let Self { bytes_max, delay_ns_min, delay_ns_max, gap_delay_ns_min, per_rtt, on_mark } =
            self;
        let words = [bytes_max, delay_ns_min, delay_ns_max, gap_delay_ns_min, per_rtt];
        words.iter().for_each(|word| out.extend(word.to_be_bytes()));
        out.push(u8::from(on_mark));
    }

    fn parse(bytes: [u8; Self::BYTES]) -> Self {
        let word = |index: usize| {
            let at = index * 4;
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            bytes_max: word(0),
            delay_ns_min: word(1),
            delay_ns_max: word(2),
            gap_delay_ns_min: word(3),
            per_rtt: word(4),
            on_mark: bytes[Self::BYTES - 1] & 1 != 0,
        }
    }
}

/// The erasure code of a queue pair's messages. The protocol checks the values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeInfo {
    /// 1 for XOR, 2 for MDS.
    pub kind: u8,
    /// Data chunks of a submessage.
    pub data_chunks: u8,
    /// Parity chunks of a submessage.
    pub parity_chunks: u8,
    /// Chunks of the bitmap in a chunk of the code. A chunk of the code has a packet in each row of a
    /// submessage, so the packets of a loss burst hit different rows.
    pub interleave: u32,
}

impl CodeInfo {
    /// ```text
    /// | kind 1 | data chunks 1 | parity chunks 1 | interleave 4 |
    /// ```
    fn emit(self, out: &mut Vec<u8>) {
        out.extend([self.kind, self.data_chunks, self.parity_chunks]);
        out.extend(self.interleave.to_be_bytes());
    }

    fn parse(
        [kind, data_chunks, parity_chunks, interleave @ ..]: [u8; 7],
    ) -> Result<Self, InfoError> {
        let interleave = within(InfoField::Code, u32::from_be_bytes(interleave), 1..=u32::MAX)?;
        Ok(Self { kind, data_chunks, parity_chunks, interleave })
    }
}

impl QpInfo {
    /// Longest description: more than twice what this version writes, to leave room for later
    /// fields.
    pub const BYTES_MAX: usize = 1024;

    /// Encodes the description.
    ///
    /// # Panics
    /// When there is no channel, or more than [`CHANNELS_MAX`]. Other values are not checked: the
    /// peer's [`parse`](Self::parse) names a value that is out of range.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        assert!(
            (1..=CHANNELS_MAX).contains(&self.channels.len()),
            "a queue pair has 1 to {CHANNELS_MAX} channels, not {}",
            self.channels.len(),
        );
        let split = [self.split.message_bits(), self.split.packet_bits(), self.split.user_bits()];
        let mut out = Vec::with_capacity(EMITTED_BYTES_MAX);
        out.extend(MAGIC);
        out.extend(VERSION.to_be_bytes());
        out.extend([0; 2]);
        for field in InfoField::ALL {
            let is_there = match field {
                InfoField::Code => self.code.is_some(),
                InfoField::Seal => self.seal != Seal::default(),
                InfoField::Nonce => self.nonce.is_some(),
                InfoField::Reports => self.reports.is_some(),
                _ => true,
            };
            if !is_there {
                continue;
            }
            let header_at = out.len();
            out.extend(field.tag().to_be_bytes());
            out.extend([0; 2]);
            match field {
                InfoField::QueuePair => out.extend(self.queue_pair.to_be_bytes()),
                InfoField::Rkey => out.extend(self.rkey.to_be_bytes()),
                InfoField::Qkey => out.extend(self.qkey.to_be_bytes()),
                InfoField::Mtu => out.extend(self.mtu_bytes.to_be_bytes()),
                InfoField::Chunk => out.extend(self.chunk_packets.to_be_bytes()),
                InfoField::Split => out.extend(split),
                InfoField::Generations => out.push(self.generations),
                InfoField::Stripe => out.extend(self.stripe_packets.to_be_bytes()),
                InfoField::MaxMessage => out.extend(self.max_message_bytes.to_be_bytes()),
                InfoField::FirstPsn => out.extend(self.first_psn.to_be_bytes()),
                InfoField::Credit => out.extend(self.credit_bytes.to_be_bytes()),
                InfoField::Channels => {
                    self.channels.iter().for_each(|address| emit_address(*address, &mut out));
                }
                InfoField::Code => self.code.into_iter().for_each(|code| code.emit(&mut out)),
                InfoField::Seal => out.push(self.seal as u8),
                InfoField::Nonce => out.extend(self.nonce.iter().flatten()),
                InfoField::Reports => {
                    self.reports.into_iter().for_each(|reports| reports.emit(&mut out));
                }
            }
            set_length(&mut out, header_at + 2, header_at + FIELD_HEADER_BYTES);
        }
        set_length(&mut out, HEADER_BYTES - 2, HEADER_BYTES);
        debug_assert!(out.len() <= EMITTED_BYTES_MAX);
        out
    }

    /// What both ends must know alike for their packets to open: all of it but the addresses, which a translator may
    /// change, the credit, which changes with time, and the nonce, which has a place of its own.
    ///
    /// # Panics
    /// As [`emit`](Self::emit).
    #[must_use]
    pub fn agreed_bytes(&self) -> Vec<u8> {
        let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let channels = vec![nowhere; self.channels.len()];
        Self { channels, credit_bytes: 0, nonce: None, ..self.clone() }.emit()
    }

    /// Decodes a whole description.
    ///
    /// # Errors
    /// When the bytes are no description of this version, or a field is missing, repeated, unknown
    /// or out of its range.
    pub fn parse(bytes: &[u8]) -> Result<Self, InfoError> {
        use InfoField as F;

        let fields = Fields::parse(bytes)?;
        let [message_bits, packet_bits, user_bits] = fields.array(F::Split)?;
        Ok(Self {
            queue_pair: fields.u32(F::QueuePair, Qpn::QUEUE_PAIR_MIN..=Qpn::QUEUE_PAIR_MAX)?,
            rkey: fields.u32(F::Rkey, 0..=u32::MAX)?,
            qkey: fields.u32(F::Qkey, 0..=u32::MAX)?,
            mtu_bytes: fields.u32(F::Mtu, 1..=MTU_BYTES_MAX)?,
            chunk_packets: fields.u32(F::Chunk, 1..=u32::MAX)?,
            split: ImmediateSplit::new(message_bits, packet_bits, user_bits)?,
            generations: fields.u8(F::Generations, 1..=GENERATIONS_MAX as u8)?,
            stripe_packets: fields.u32(F::Stripe, 1..=u32::MAX)?,
            max_message_bytes: fields.u64(F::MaxMessage, 1..=u64::MAX)?,
            first_psn: fields.u32(F::FirstPsn, 0..=PSN_MASK)?,
            credit_bytes: fields.u32(F::Credit, 0..=u32::MAX)?,
            channels: parse_addresses(fields.value(F::Channels)?)?,
            code: match fields.values[F::Code.index()] {
                None => None,
                Some(_) => Some(CodeInfo::parse(fields.array(F::Code)?)?),
            },
            seal: match fields.values[F::Seal.index()] {
                None => Seal::default(),
                Some(_) => SEALS[usize::from(fields.u8(F::Seal, 0..=SEALS.len() as u8 - 1)?)].seal,
            },
            nonce: match fields.values[F::Nonce.index()] {
                None => None,
                Some(_) => Some(fields.array(F::Nonce)?),
            },
            reports: match fields.values[F::Reports.index()] {
                None => None,
                Some(_) => Some(ReportsInfo::parse(fields.array(F::Reports)?)),
            },
        })
    }
}

const _: () = assert!(2 * EMITTED_BYTES_MAX <= QpInfo::BYTES_MAX);
const _: () = assert!(QpInfo::BYTES_MAX <= u16::MAX as usize);

/// Writes the number of bytes from `from` on to the length field at `at`.
fn set_length(out: &mut [u8], at: usize, from: usize) {
    let length = u16::try_from(out.len() - from).expect("the whole is shorter than that");
    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
}

/// ```text
/// | family 1: 4 or 6 | port 2 | address 4 or 16 |
/// ```
fn emit_address(address: SocketAddr, out: &mut Vec<u8>) {
    out.push(if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 });
    out.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => out.extend(ip.octets()),
        IpAddr::V6(ip) => out.extend(ip.octets()),
    }
}

fn parse_addresses(mut value: &[u8]) -> Result<Vec<SocketAddr>, InfoError> {
    let bad_length = InfoError::Length { field: InfoField::Channels, found: value.len() };
    // The loop is bounded by the field's length, which [`QpInfo::BYTES_MAX`] bounds.
    let mut addresses = Vec::new();
    while let Some(([family, port @ ..], rest)) = value.split_first_chunk::<3>() {
        let (ip, rest) = match *family {
            FAMILY_IPV4 => {
                rest.split_first_chunk::<4>().map(|(ip, rest)| (IpAddr::from(*ip), rest))
            }
            FAMILY_IPV6 => {
                rest.split_first_chunk::<16>().map(|(ip, rest)| (IpAddr::from(*ip), rest))
            }
            found => return Err(InfoError::AddressFamily { found }),
        }
        .ok_or_else(|| bad_length.clone())?;
        addresses.push(SocketAddr::new(ip, u16::from_be_bytes(*port)));
        value = rest;
    }
    if !value.is_empty() {
        return Err(bad_length);
    }
    within(InfoField::Channels, addresses.len() as u64, 1..=CHANNELS_MAX as u64)?;
    Ok(addresses)
}

/// The values by [`InfoField::index`], before the check that all are there.
struct Fields<'a> {
    values: [Option<&'a [u8]>; InfoField::ALL.len()],
}

impl<'a> Fields<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, InfoError> {
        if bytes.len() > QpInfo::BYTES_MAX {
            return Err(InfoError::TooLong { found: bytes.len() });
        }
        let Some(([m0, m1, m2, m3, v0, v1, length @ ..], mut rest)) =
            bytes.split_first_chunk::<HEADER_BYTES>()
        else {
            return Err(InfoError::TooShort { needed: HEADER_BYTES, found: bytes.len() });
        };
        let magic = [*m0, *m1, *m2, *m3];
        if magic != MAGIC {
            return Err(InfoError::Magic { found: magic });
        }
        let version = u16::from_be_bytes([*v0, *v1]);
        if version != VERSION {
            return Err(InfoError::Version { found: version });
        }
        let announced = usize::from(u16::from_be_bytes(*length));
        if announced != rest.len() {
            return Err(InfoError::Bytes { announced, found: rest.len() });
        }

        let mut values = [None; InfoField::ALL.len()];
        while !rest.is_empty() {
            let (tag, value) = take_field(&mut rest)?;
            match InfoField::ALL.into_iter().find(|field| field.tag() == tag) {
                Some(field) if values[field.index()].is_some() => {
                    return Err(InfoError::Duplicate { field });
                }
                Some(field) => values[field.index()] = Some(value),
                None if tag & SKIPPABLE != 0 => {}
                None => return Err(InfoError::UnknownField { tag }),
            }
        }
        Ok(Self { values })
    }

    fn value(&self, field: InfoField) -> Result<&'a [u8], InfoError> {
        self.values[field.index()].ok_or(InfoError::Missing { field })
    }

    fn array<const N: usize>(&self, field: InfoField) -> Result<[u8; N], InfoError> {
        let value = self.value(field)?;
        value.try_into().map_err(|_| InfoError::Length { field, found: value.len() })
    }

    fn u8(&self, field: InfoField, range: RangeInclusive<u8>) -> Result<u8, InfoError> {
        self.array(field).and_then(|bytes| within(field, u8::from_be_bytes(bytes), range))
    }

    fn u32(&self, field: InfoField, range: RangeInclusive<u32>) -> Result<u32, InfoError> {
        self.array(field).and_then(|bytes| within(field, u32::from_be_bytes(bytes), range))
    }

    fn u64(&self, field: InfoField, range: RangeInclusive<u64>) -> Result<u64, InfoError> {
        self.array(field).and_then(|bytes| within(field, u64::from_be_bytes(bytes), range))
    }
}

/// Removes a field from the front: its tag and value.
fn take_field<'a>(rest: &mut &'a [u8]) -> Result<(u16, &'a [u8]), InfoError> {
    let Some(([t0, t1, length @ ..], behind)) = rest.split_first_chunk::<FIELD_HEADER_BYTES>()
    else {
        return Err(InfoError::Truncated { needed: FIELD_HEADER_BYTES, found: rest.len() });
    };
    let needed = usize::from(u16::from_be_bytes(*length));
    let Some((value, behind)) = behind.split_at_checked(needed) else {
        return Err(InfoError::Truncated { needed, found: behind.len() });
    };
    *rest = behind;
    Ok((u16::from_be_bytes([*t0, *t1]), value))
}

fn within<T>(field: InfoField, value: T, range: RangeInclusive<T>) -> Result<T, InfoError>
where
    T: Copy + PartialOrd + Into<u64>,
{
    if range.contains(&value) {
        return Ok(value);
    }
    let (min, max) = range.into_inner();
    Err(InfoError::Range { field, found: value.into(), min: min.into(), max: max.into() })
}

#[cfg(test)]
mod tests;
