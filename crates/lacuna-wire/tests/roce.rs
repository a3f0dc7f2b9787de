//! Packets made by another implementation, compared byte for byte: headers, pad and ICRC.
//!
//! `fixtures/make_roce.py` made them with Scapy; it says how and what they contain.

mod fixtures;

use std::net::{IpAddr, SocketAddr};

use lacuna_wire::{
    Cancel, CancelReason, ControlHeader, ControlWriter, DataHeader, Frame, ICRC_BYTES, IcrcFlow,
    Packet, Probe, Qpn, Seal, pad_bytes, parse,
};

use fixtures::{ACK_REQUEST, BTH_ACK, BTH_VARIANT, Fixture, read, without_ignored_bits};

impl Fixture {
    fn data_header(&self) -> DataHeader {
        DataHeader {
            dest: Qpn::from_bits(self.field("dqpn")),
            psn: self.field("psn"),
            ends_message: self.field("solicited") == 1,
            carries_immediate: self.transport()[BTH_ACK] & ACK_REQUEST != 0,
            address: self.fields.get("va").copied(),
            // Of a Send it is in Lacuna's own trailer.
            rkey: if self.kind == "send" { 0 } else { self.field("rkey") },
            length: self.field("length"),
            behind: 0,
            immediate: self.field("imm"),
        }
    }

    fn control_header(&self) -> ControlHeader {
        ControlHeader {
            dest: Qpn::from_bits(self.field("dqpn")),
            psn: self.field("psn"),
            qkey: self.field("qkey"),
            source: Qpn::from_bits(self.field("sqpn")),
        }
    }

    /// The IPv4 identification.
    fn identification(&self) -> Option<u16> {
        let is_v4 = self.header_bytes() == 20;
        is_v4.then(|| u16::from_be_bytes([self.packet[4], self.packet[5]]))
    }

    /// From its source to its destination.
    fn flow(&self) -> IcrcFlow {
        let (ip, udp) = self.packet.split_at(self.header_bytes());
        let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        let address = |at: usize| match ip.len() {
            20 => IpAddr::from(*ip[12 + at * 4..].first_chunk::<4>().unwrap()),
            _ => IpAddr::from(*ip[8 + at * 16..].first_chunk::<16>().unwrap()),
        };
        let at = |end: usize| SocketAddr::new(address(end), port(end * 2));
        IcrcFlow::new(at(0), at(1)).unwrap()
    }
}

fn fixtures(kind: &str) -> Vec<Fixture> {
    let lines = read(include_str!("fixtures/roce.txt"));
    let fixtures: Vec<_> = lines.filter(|fixture| fixture.kind == kind).collect();
    assert!(!fixtures.is_empty(), "no {kind} fixtures");
    fixtures
}

#[test]
fn data_headers_are_emitted_byte_for_byte() {
    for fixture in fixtures("data").into_iter().chain(fixtures("send")) {
        let mut header = vec![0xa5; fixture.data_header().header_bytes()];
        fixture.data_header().emit(&mut header);
        let payload = fixture.payload();
        let pad = &[0; 3][..pad_bytes(payload.len())];
        let packet = [&header[..], &payload, pad].concat();

        let expected = without_ignored_bits(fixture.transport());
        let (expected, _icrc) = expected.split_last_chunk::<ICRC_BYTES>().unwrap();
        assert_eq!(packet, expected, "{}", fixture.name);
    }
}

#[test]
fn data_packets_are_parsed_whatever_the_ignored_bits() {
    for fixture in fixtures("data").into_iter().chain(fixtures("send")) {
        let expected = Packet::Data(fixture.data_header(), &fixture.payload());
        assert_eq!(parse(fixture.transport()), Ok(expected), "{}", fixture.name);
    }
}

#[test]
fn control_packets_are_emitted_byte_for_byte() {
    for fixture in fixtures("probe").into_iter().chain(fixtures("cancel")) {
        let frame = match fixture.kind {
            "probe" => {
                Frame::Probe(Probe { id: fixture.field("id"), sent_ns: fixture.fields["sent_ns"] })
            }
            _ => Frame::Cancel(Cancel {
                message: fixture.fields["message"],
                reason: CancelReason::from_code(fixture.fields["reason"] as u8),
            }),
        };
        let mut writer = ControlWriter::new(1400);
        writer.start(&fixture.control_header(), fixture.field("sequence"), Seal::Crc32c);
        assert!(writer.push(&frame));
        let (packet, _crc32c) =
            writer.finish().split_last_chunk::<{ Seal::Crc32c.bytes() }>().unwrap();
        let (expected, _icrc) = fixture.transport().split_last_chunk::<ICRC_BYTES>().unwrap();
        assert_eq!(packet, expected, "{}", fixture.name);
    }
}

#[test]
fn control_packets_are_parsed_whatever_the_ignored_bits() {
    for fixture in fixtures("control") {
        let expected = Packet::Control(fixture.control_header(), &fixture.payload());
        assert_eq!(parse(fixture.transport()), Ok(expected), "{}", fixture.name);
    }
}

#[test]
fn the_icrc_is_scapys() {
    for fixture in ["data", "send", "control", "probe", "cancel"].into_iter().flat_map(fixtures) {
        let (covered, icrc) = fixture.transport().split_last_chunk().unwrap();
        assert_eq!(fixture.icrc(&[covered]), *icrc, "{}", fixture.name);
    }
}

#[test]
fn the_icrc_of_two_parts_is_scapys() {
    for fixture in fixtures("data") {
        let mut flow = fixture.flow();
        let mut transport = fixture.transport().to_vec();
        let packet_bytes = transport.len();
        // Lacuna sends the bits that switches may set as zero.
        transport[BTH_VARIANT] = 0;
        let (covered, icrc) = transport.split_last_chunk::<ICRC_BYTES>().unwrap();
        let mut inner = [0xa5; ICRC_BYTES];
        Seal::Icrc.emit_trailer(&fixture.data_header(), &[covered], &mut inner);
        let identification = fixture.identification();
        let sealed = flow.seal(inner, packet_bytes, identification.unwrap_or(7));
        assert_eq!(sealed, *icrc, "{}", fixture.name);
        // Over IPv4 only those that a bundle has; IPv6 has none.
        let is_ours = identification.is_none_or(|identification| identification < 45);
        assert_eq!(flow.check(fixture.transport()).is_ok(), is_ours, "{}", fixture.name);
    }
}

#[test]
fn congestion_marks_do_not_change_the_icrc() {
    let fixtures = fixtures("data");
    let icrc = |name: &str| {
        let fixture = fixtures.iter().find(|fixture| fixture.name == name).unwrap();
        *fixture.transport().last_chunk::<ICRC_BYTES>().unwrap()
    };
    for version in ["ipv4", "ipv6"] {
        let plain = icrc(&format!("{version}-8"));
        for same in ["fecn", "becn", "marked"] {
            assert_eq!(icrc(&format!("{version}-{same}")), plain, "{version}-{same}");
        }
        for other in ["migreq", "ackreq"] {
            assert_ne!(icrc(&format!("{version}-{other}")), plain, "{version}-{other}");
        }
    }
}
