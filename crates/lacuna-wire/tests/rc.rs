//! Packets of the reliable connection made by another implementation, compared byte for byte.
//!
//! `fixtures/make_rc.py` made them with Scapy; it says how and what they contain. Where tshark is
//! installed, it decodes Lacuna's packets as well: a second reader that knows all opcodes.

mod fixtures;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{self, Command};

use lacuna_wire::rc::{
    Aeth, AtomicHeader, Fields, NOTIFICATION_BYTES, NOTIFICATION_OPCODE, Nak, Opcode, Operation,
    RcHeader, Reth, Syndrome, emit_notification, parse_notification,
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

    /// What Lacuna emits, from the BTH to the pad.
    fn emitted(&self) -> Vec<u8> {
        if self.kind == NOTIFICATION {
            let mut bytes = [0xa5; NOTIFICATION_BYTES];
            emit_notification(Qpn::from_bits(self.field("dqpn")), &mut bytes);
            return bytes.to_vec();
        }
        let (header, payload) = (self.header(), self.payload());
        let mut bytes = vec![0xa5; header.header_bytes()];
        header.emit(payload.len(), &mut bytes);
        bytes.extend_from_slice(&payload);
        bytes.resize(bytes.len() + pad_bytes(payload.len()), 0);
        bytes
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
        let bytes = fixture.emitted();
        let announced = fixture.header().packet_bytes(fixture.payload().len());
        assert_eq!(bytes.len(), announced, "{}", fixture.label());

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
fn truncated_packets_are_refused_or_have_another_trailer() {
    for fixture in connection_packets() {
        let (header, payload) = (fixture.header(), fixture.payload());
        let overhead = header.header_bytes() + pad_bytes(payload.len()) + ICRC_BYTES;
        for cut in 0..fixture.transport().len() {
            let label = format!("{} of {cut} bytes", fixture.label());
            let packet = &fixture.transport()[..cut];
            let parsed = RcHeader::parse(packet, ICRC_BYTES);
            match cut.checked_sub(overhead) {
                // A length is only in the datagram, so a packet without its last words is one as
                // well. The seal refuses it.
                Some(length) if cut.is_multiple_of(4) => {
                    assert_eq!(parsed, Ok((header, &payload[..length])), "{label}");
                    let (covered, trailer) = packet.split_last_chunk().unwrap();
                    assert_ne!(fixture.icrc(&[covered]), *trailer, "{label}");
                }
                _ => assert!(parsed.is_err(), "{label}"),
            }
        }
    }
}

#[test]
fn notifications_are_emitted_byte_for_byte_and_parsed() {
    for fixture in notifications() {
        let destination = Qpn::from_bits(fixture.field("dqpn"));
        let (expected, _icrc) = fixture.transport().split_last_chunk::<ICRC_BYTES>().unwrap();
        assert_eq!(fixture.emitted(), expected, "{}", fixture.label());

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
fn every_opcode_occurs_with_all_flags_and_each_length_that_it_may_have() {
    for opcode in Opcode::all() {
        use Operation::{ReadResponse, Send, Write};
        let lengths: &[u32] = match opcode.operation() {
            Send | Write | ReadResponse => &[0, 1, 2, 3, 4, 1024, 4096],
            _ => &[0],
        };
        for header_bytes in [20, 40] {
            let label = format!("{} behind {header_bytes} bytes", opcode.name());
            let fixtures: Vec<_> = connection_packets()
                .filter(|fixture| fixture.transport()[0] == opcode as u8)
                .filter(|fixture| fixture.header_bytes() == header_bytes)
                .collect();
            let values = |name| fixtures.iter().map(move |fixture| fixture.field(name));
            for length in lengths {
                assert!(values("length").any(|found| found == *length), "{label}: {length}");
            }
            for psn in [0, 0xff_fffe, 0xff_ffff] {
                assert!(values("psn").any(|found| found == psn), "{label}: number {psn}");
            }
            let flags: BTreeSet<_> = values("solicited").zip(values("ackreq")).collect();
            assert_eq!(flags.len(), 4, "{label}");
        }
    }
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

/// A field of a line, tshark's name for it, and how tshark prints it.
const TSHARK_FIELDS: [(&str, &str, Printed); 13] = [
    ("dqpn", "infiniband.bth.destqp", Printed::Number),
    ("psn", "infiniband.bth.psn", Printed::Number),
    ("solicited", "infiniband.bth.se", Printed::Flag),
    ("ackreq", "infiniband.bth.a", Printed::Flag),
    ("va", "infiniband.reth.va", Printed::Number),
    ("rkey", "infiniband.reth.r_key", Printed::Number),
    ("dmalen", "infiniband.reth.dmalen", Printed::Number),
    ("imm", "infiniband.immdt", Printed::Bytes),
    ("ikey", "infiniband.ieth", Printed::Bytes),
    ("msn", "infiniband.aeth.msn", Printed::Number),
    ("swap", "infiniband.atomiceth.swapdt", Printed::Number),
    ("compare", "infiniband.atomiceth.cmpdt", Printed::Number),
    ("original", "infiniband.atomicacketh.origremdt", Printed::Number),
];

/// How tshark prints a value.
#[derive(Clone, Copy)]
enum Printed {
    /// Decimal, or hexadecimal with 0x.
    Number,
    /// A digit or a word, by its version.
    Flag,
    /// Hexadecimal digits, with colons or without, by its version.
    Bytes,
}

impl Printed {
    /// The value; `None` where the packet has no such field.
    fn value(self, text: &str) -> Option<u64> {
        if text.is_empty() {
            return None;
        }
        let value = match (self, text.strip_prefix("0x")) {
            (Self::Flag, _) => return Some(u64::from(matches!(text, "1" | "True"))),
            (Self::Number, None) => text.parse(),
            (Self::Number, Some(digits)) => u64::from_str_radix(digits, 16),
            (Self::Bytes, _) => u64::from_str_radix(&text.replace(':', ""), 16),
        };
        Some(value.unwrap_or_else(|error| panic!("tshark prints {text}: {error}")))
    }
}

impl Fixture {
    /// What Lacuna would send, from the IP header to the ICRC.
    fn sent(&self) -> Vec<u8> {
        let transport = self.emitted();
        let headers = &self.packet[..self.packet.len() - self.transport().len()];
        [headers, &transport, &self.icrc(&[&transport])].concat()
    }

    fn is_to_subnet_management(&self) -> bool {
        self.field("dqpn") == 0
    }
}

/// Writes packets that begin with their IP headers.
fn write_pcap(path: &Path, packets: impl Iterator<Item = Vec<u8>>) {
    const LINK_TYPE_RAW: u32 = 101;
    const RECORD_BYTES_MAX: u32 = 1 << 16;
    // Version 2.4; the time zone and its accuracy are zero.
    let header = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, RECORD_BYTES_MAX, LINK_TYPE_RAW];
    let mut file = header.map(u32::to_le_bytes).concat();
    for packet in packets {
        let bytes = u32::try_from(packet.len()).unwrap();
        file.extend([0, 0, bytes, bytes].map(u32::to_le_bytes).concat());
        file.extend(packet);
    }
    std::fs::write(path, file).unwrap();
}

/// The lines that tshark prints about a capture.
fn tshark(path: &Path, options: &[&str]) -> Vec<String> {
    // It guesses what is in a SEND, and the pattern is no RPC.
    let guess = ["--disable-protocol", "rpcordma"];
    let output =
        Command::new("tshark").args(["-n", "-r"]).arg(path).args(guess).args(options).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn tshark_decodes_every_packet_to_the_same_values() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: no tshark to decode the packets");
        return;
    }
    let name = format!("rc-{}.pcap", process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let fixtures: Vec<_> = all().collect();
    write_pcap(&path, fixtures.iter().map(Fixture::sent));

    // Without the names of AETH codes, which are called "OpCode".
    let opcodes = tshark(&path, &["-O", "infiniband"]);
    let opcodes: Vec<_> =
        opcodes.iter().filter_map(|line| line.trim().strip_prefix("Opcode: ")).collect();
    let names = ["_ws.malformed", "infiniband.bth.opcode", "infiniband.bth.padcnt"]
        .into_iter()
        .chain(["infiniband.aeth.syndrome", "infiniband.invariant.crc"])
        .chain(TSHARK_FIELDS.map(|(_, name, _)| name));
    let options = ["-T", "fields", "-E", "occurrence=f"].into_iter();
    let options: Vec<_> = options.chain(names.flat_map(|name| ["-e", name])).collect();
    let lines = tshark(&path, &options);
    assert_eq!((lines.len(), opcodes.len()), (fixtures.len(), fixtures.len()));

    for (fixture, (line, opcode)) in fixtures.iter().zip(lines.iter().zip(opcodes)) {
        let label = format!("{}: {opcode}: {line}", fixture.label());
        let columns: Vec<_> = line.split('\t').collect();
        let ([malformed, byte, pad, syndrome, icrc], values) = columns.split_first_chunk().unwrap();
        assert_eq!(*malformed, "", "{label}");
        let number = |text: &str| Printed::Number.value(text);
        assert_eq!(number(byte), Some(fixture.transport()[0].into()), "{label}");
        if fixture.kind == NOTIFICATION {
            // Versions that do not know this opcode decode the BTH alone.
            assert_eq!(number(values[0]), Some(fixture.fields["dqpn"]), "{label}");
            continue;
        }
        let header = fixture.header();
        // tshark writes "response", the specification "Response".
        let name = format!("Reliable Connection (RC) - {} ({byte})", header.opcode.name());
        assert!(opcode.eq_ignore_ascii_case(&name), "{label}");
        let length = fixture.payload().len();
        assert_eq!(number(pad), Some(pad_bytes(length) as u64), "{label}");
        let expected = header.fields.aeth().map(|_| fixture.transport()[12].into());
        assert_eq!(number(syndrome), expected, "{label}");
        // To tshark, a payload for queue pair 0 is subnet management and has no end.
        if !(fixture.is_to_subnet_management() && length > 0) {
            // tshark prints the bytes in their order.
            let expected = u32::from_be_bytes(fixture.icrc(&[&fixture.emitted()]));
            assert_eq!(number(icrc), Some(expected.into()), "{label}");
        }
        for ((field, _, printed), text) in TSHARK_FIELDS.iter().zip(values) {
            assert_eq!(
                printed.value(text),
                fixture.fields.get(field).copied(),
                "{field} of {label}"
            );
        }
    }
    // A capture that is not as it should be stays.
    std::fs::remove_file(path).unwrap();
}
