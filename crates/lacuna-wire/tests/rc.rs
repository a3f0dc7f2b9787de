//! Packets of the reliable connection made by another implementation, compared byte for byte.
//!
//! `fixtures/make_rc.py` made them with Scapy; it says how and what they contain.

mod fixtures;

use std::collections::BTreeSet;

use lacuna_wire::rc::{
    Aeth, AtomicHeader, Fields, NOTIFICATION_BYTES, NOTIFICATION_OPCODE, Nak, Opcode, RcHeader,
    Reth, Syndrome, emit_notification, parse_notification,
};
use lacuna_wire::{ICRC_BYTES, PacketError, Qpn, pad_bytes};

use fixtures::{Fixture, read, without_ignored_bits};

const NOTIFICATION: &str = "CNP";
/// Scapy's names; it does not know the last two opcodes.
const OPCODES: [(&str, Opcode); 23] = [
    ("SEND_FIRST", Opcode::SendFirst),
    ("SEND_MIDDLE", Opcode::SendMiddle),
    ("SEND_LAST", Opcode::SendLast),
    ("SEND_LAST_WITH_IMMEDIATE", Opcode::SendLastImmediate),
    ("SEND_ONLY", Opcode::SendOnly),
    ("SEND_ONLY_WITH_IMMEDIATE", Opcode::SendOnlyImmediate),
    ("RDMA_WRITE_FIRST", Opcode::WriteFirst),
    ("RDMA_WRITE_MIDDLE", Opcode::WriteMiddle),
    ("RDMA_WRITE_LAST", Opcode::WriteLast),
    ("RDMA_WRITE_LAST_WITH_IMMEDIATE", Opcode::WriteLastImmediate),
    ("RDMA_WRITE_ONLY", Opcode::WriteOnly),
    ("RDMA_WRITE_ONLY_WITH_IMMEDIATE", Opcode::WriteOnlyImmediate),
    ("RDMA_READ_REQUEST", Opcode::ReadRequest),
    ("RDMA_READ_RESPONSE_FIRST", Opcode::ReadResponseFirst),
    ("RDMA_READ_RESPONSE_MIDDLE", Opcode::ReadResponseMiddle),
    ("RDMA_READ_RESPONSE_LAST", Opcode::ReadResponseLast),
    ("RDMA_READ_RESPONSE_ONLY", Opcode::ReadResponseOnly),
    ("ACKNOWLEDGE", Opcode::Acknowledge),
    ("ATOMIC_ACKNOWLEDGE", Opcode::AtomicAcknowledge),
    ("COMPARE_SWAP", Opcode::CompareSwap),
    ("FETCH_ADD", Opcode::FetchAdd),
    ("SEND_LAST_WITH_INVALIDATE", Opcode::SendLastInvalidate),
    ("SEND_ONLY_WITH_INVALIDATE", Opcode::SendOnlyInvalidate),
];

impl Fixture {
    fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    fn label(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }

    fn syndrome(&self) -> Syndrome {
        let value = |name: &str| self.fields.get(name).map(|value| u8::try_from(*value).unwrap());
        if let Some(credits) = value("ack") {
            Syndrome::Ack { credits }
        } else if let Some(timer) = value("rnr") {
            Syndrome::ReceiverNotReady { timer }
        } else if let Some(byte) = value("reserved") {
            Syndrome::Reserved(byte)
        } else {
            Syndrome::Nak(match self.field("nak") {
                0 => Nak::PsnSequence,
                1 => Nak::InvalidRequest,
                2 => Nak::RemoteAccess,
                3 => Nak::RemoteOperational,
                4 => Nak::InvalidRdRequest,
                other => panic!("{}: refusal {other}", self.label()),
            })
        }
    }

    fn aeth(&self) -> Aeth {
        Aeth { syndrome: self.syndrome(), messages: self.field("msn") }
    }

    fn reth(&self) -> Reth {
        Reth { address: self.fields["va"], key: self.field("rkey"), length: self.field("dmalen") }
    }

    fn atomic(&self) -> AtomicHeader {
        AtomicHeader {
            address: self.fields["va"],
            key: self.field("rkey"),
            swap_or_add: self.fields["swap"],
            compare: self.fields["compare"],
        }
    }

    /// The headers that the line has values for, whatever the crate's own table says.
    fn extended(&self) -> Fields {
        match ["swap", "original", "msn", "dmalen", "imm", "ikey"].map(|field| self.has(field)) {
            [true, false, false, false, false, false] => Fields::Atomic(self.atomic()),
            [false, true, true, false, false, false] => {
                Fields::AtomicAck(self.aeth(), self.fields["original"])
            }
            [false, false, true, false, false, false] => Fields::Aeth(self.aeth()),
            [false, false, false, true, false, false] => Fields::Reth(self.reth()),
            [false, false, false, true, true, false] => {
                Fields::RethImmediate(self.reth(), self.field("imm"))
            }
            [false, false, false, false, true, false] => Fields::Immediate(self.field("imm")),
            [false, false, false, false, false, true] => Fields::Invalidate(self.field("ikey")),
            [false, false, false, false, false, false] => Fields::None,
            _ => panic!("{} has no such headers", self.label()),
        }
    }

    fn header(&self) -> RcHeader {
        let (_, opcode) = OPCODES.iter().find(|(name, _)| *name == self.kind).unwrap();
        RcHeader {
            opcode: *opcode,
            destination: Qpn::from_bits(self.field("dqpn")),
            psn: self.field("psn"),
            asks_ack: self.field("ackreq") == 1,
            is_solicited: self.field("solicited") == 1,
            fields: self.extended(),
        }
    }
}

fn all() -> impl Iterator<Item = Fixture> {
    read(include_str!("fixtures/rc.txt"))
}

fn connection_packets() -> impl Iterator<Item = Fixture> {
    all().filter(|fixture| fixture.kind != NOTIFICATION)
}

fn notifications() -> impl Iterator<Item = Fixture> {
    all().filter(|fixture| fixture.kind == NOTIFICATION)
}

#[test]
fn packets_are_emitted_byte_for_byte() {
    for fixture in connection_packets() {
        let (header, payload) = (fixture.header(), fixture.payload());
        let mut bytes = vec![0xa5; header.header_bytes()];
        header.emit(payload.len(), &mut bytes);
        bytes.extend_from_slice(&payload);
        bytes.resize(bytes.len() + pad_bytes(payload.len()), 0);
        assert_eq!(bytes.len(), header.packet_bytes(payload.len()), "{}", fixture.label());

        let expected = without_ignored_bits(fixture.transport());
        let (expected, _icrc) = expected.split_last_chunk::<ICRC_BYTES>().unwrap();
        assert_eq!(bytes, expected, "{}", fixture.label());
    }
}

#[test]
fn packets_are_parsed_whatever_the_ignored_bits() {
    for fixture in connection_packets() {
        let expected = (fixture.header(), &fixture.payload()[..]);
        let parsed = RcHeader::parse(fixture.transport(), ICRC_BYTES);
        assert_eq!(parsed, Ok(expected), "{}", fixture.label());
    }
}

#[test]
fn truncated_packets_are_refused_or_shorter() {
    for fixture in connection_packets() {
        let (header, payload) = (fixture.header(), fixture.payload());
        for cut in 0..fixture.transport().len() {
            // A length is only in the datagram, so a packet without its last words is one as well;
            // its trailer, which the seal checks, is wrong.
            if let Ok((parsed, rest)) = RcHeader::parse(&fixture.transport()[..cut], ICRC_BYTES) {
                let lost = fixture.transport().len() - cut;
                assert_eq!(parsed, header, "{} of {cut} bytes", fixture.label());
                assert_eq!(rest, &payload[..payload.len() - lost], "{}", fixture.label());
            }
        }
    }
}

#[test]
fn notifications_are_emitted_byte_for_byte_and_parsed() {
    for fixture in notifications() {
        let destination = Qpn::from_bits(fixture.field("dqpn"));
        let mut bytes = [0xa5; NOTIFICATION_BYTES];
        emit_notification(destination, &mut bytes);
        let (expected, _icrc) = fixture.transport().split_last_chunk::<ICRC_BYTES>().unwrap();
        assert_eq!(bytes, expected, "{}", fixture.label());

        let parsed = parse_notification(fixture.transport(), ICRC_BYTES);
        assert_eq!(parsed, Ok(destination), "{}", fixture.label());
        let other = RcHeader::parse(fixture.transport(), ICRC_BYTES);
        assert_eq!(other, Err(PacketError::Opcode { found: NOTIFICATION_OPCODE }));
        for cut in 0..fixture.transport().len() {
            assert!(parse_notification(&fixture.transport()[..cut], ICRC_BYTES).is_err());
        }
    }
}

#[test]
fn no_other_packet_is_a_notification() {
    for fixture in connection_packets() {
        let parsed = parse_notification(fixture.transport(), ICRC_BYTES);
        assert!(parsed.is_err(), "{}", fixture.label());
    }
}

#[test]
fn the_icrc_is_scapys() {
    for fixture in all() {
        let (covered, icrc) = fixture.transport().split_last_chunk().unwrap();
        assert_eq!(fixture.icrc(&[covered]), *icrc, "{}", fixture.label());
        // As it is computed for a packet that is sent: headers, payload with pad.
        let headers = covered.len() - fixture.payload().len().next_multiple_of(4);
        let (headers, padded) = covered.split_at(headers);
        assert_eq!(fixture.icrc(&[headers, padded]), *icrc, "{}", fixture.label());
    }
}

#[test]
fn every_opcode_occurs_over_both_ip_versions() {
    let expected: BTreeSet<_> = Opcode::all()
        .map(|opcode| opcode as u8)
        .chain([NOTIFICATION_OPCODE])
        .flat_map(|opcode| [(20, opcode), (40, opcode)])
        .collect();
    let found: BTreeSet<_> =
        all().map(|fixture| (fixture.header_bytes(), fixture.transport()[0])).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_syndrome_with_a_meaning_occurs() {
    let acknowledgements = all().filter(|fixture| fixture.kind == "ACKNOWLEDGE");
    let found: BTreeSet<_> = acknowledgements.map(|fixture| fixture.transport()[12]).collect();
    for syndrome in (0x00..0x20).chain(0x20..0x40).chain(0x60..0x65) {
        assert!(found.contains(&syndrome), "{syndrome:#04x}");
    }
    assert!(found.contains(&0x65) && found.contains(&0x40) && found.contains(&0xff), "reserved");
}
