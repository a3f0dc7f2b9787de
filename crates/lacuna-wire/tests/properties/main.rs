//! For any values: what is written is read back. For any bytes: nothing panics, and nothing that
//! was altered passes.

#[path = "../checks/mod.rs"]
mod checks;
mod strategies;

use lacuna_wire::{
    Cancel, CancelReason, ControlBody, ControlHeader, ControlWriter, DataHeader, Frame,
    ImmediateFields, Packet, Probe, QpInfo, Qpn, Seal, pad_bytes, parse, parse_checked, parse_data,
};
use proptest::collection::vec;
use proptest::prelude::*;

use strategies::{
    any_control, any_data, any_frame, any_info, any_split, nearly_body, nearly_packet,
};

const SEAL: Seal = Seal::Crc32c;
/// What a packet without frames has, whatever its seal.
const CONTROL_BYTES_MIN: usize = SEAL.control_overhead_bytes() - SEAL.bytes() + Seal::BYTES_MAX;

fn data_packet(header: &DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut head = vec![0xa5; header.header_bytes()];
    header.emit(&mut head);
    let pad = &[0; 3][..pad_bytes(payload.len())];
    let mut trailer = [0xa5; SEAL.bytes()];
    SEAL.emit_trailer(header, &[&head, payload, pad], &mut trailer);
    [&head, payload, pad, &trailer].concat()
}

/// As whoever has this key would take the packet, checked before or while it is copied.
fn accepted(packet: &[u8], rkey: u32) -> bool {
    let checked = parse_checked(packet);
    if let Some((mut header, payload)) = parse_data(packet) {
        let mut copy = vec![0xa5; payload.len()];
        let has_key = SEAL.check_while(&header, packet, rkey, |sum, headers, payload| {
            sum.expect("this seal sums").copy(headers, payload, &mut copy);
        });
        assert_eq!(copy, payload);
        assert_eq!(has_key, SEAL.check(&mut header, packet).map(|()| header.rkey == rkey));
        assert_eq!(checked, has_key.map(|_| Packet::Data(header, payload)));
        let other = DataHeader { length: header.length + 4, ..header };
        let never = |_: Option<&mut _>, _: &[u8], _: &[u8]| panic!("none of that packet's");
        assert!(SEAL.check_while(&other, packet, rkey, never).is_err());
    }
    match checked {
        Ok(Packet::Data(header, _)) => header.rkey == rkey,
        Ok(Packet::Control(..)) => true,
        Err(_) => false,
    }
}

/// Every truncation, and every single-byte alteration up to a bound on the packet's length.
fn assert_damage_is_rejected(packet: &[u8], rkey: u32, mask: u8) {
    assert!(accepted(packet, rkey));
    for length in 0..packet.len() {
        assert!(!accepted(&packet[..length], rkey), "cut to {length}");
    }
    let mut damaged = packet.to_vec();
    for at in 0..packet.len() {
        damaged[at] ^= mask;
        assert!(!accepted(&damaged, rkey), "byte {at} altered by {mask:#04x}");
        damaged[at] ^= mask;
    }
}

proptest! {
    #[test]
    fn immediates_are_read_back(split in any_split(), m: u32, p: u32, f: u32) {
        let fields = ImmediateFields {
            message: m % split.messages(),
            packet: p % split.packets(),
            fragment: f & ((1 << split.user_bits()) - 1),
        };
        prop_assert_eq!(split.unpack(split.pack(fields)), fields);
        // The other way too: every immediate is the immediate of its parts.
        prop_assert_eq!(split.pack(split.unpack(m)), m);
    }

    #[test]
    fn user_immediates_are_rebuilt_from_any_run_of_packets(
        split in any_split(), user: u32, first in 0..1u32 << 20
    ) {
        let placed = |packet| split.fragment_placed(split.fragment_of(user, packet), packet);
        let rebuilt = (first..first + split.fragments()).map(placed).fold(0, |all, part| all | part);
        prop_assert_eq!(rebuilt, if split.fragments() == 0 { 0 } else { user });
    }

    #[test]
    fn qpns_are_read_back(qp in 0..1u32 << 17, channel in 0..16u8, generation in 0..8u8) {
        let qpn = Qpn::new(qp, channel, generation);
        let parts = (qpn.queue_pair(), qpn.channel(), qpn.generation());
        prop_assert_eq!(parts, (qp, channel, generation));
        prop_assert_eq!(Qpn::from_bits(qpn.bits()), qpn);
    }

    #[test]
    fn data_packets_are_read_back((header, payload) in any_data()) {
        let packet = data_packet(&header, &payload);
        prop_assert_eq!(parse_checked(&packet), Ok(Packet::Data(header, &payload)));
    }

    #[test]
    fn control_packets_are_read_back(
        header in any_control(),
        sequence: u32,
        frames in vec(any_frame(), 0..6),
        max_packet_bytes in CONTROL_BYTES_MIN..2000,
    ) {
        let mut writer = ControlWriter::new(max_packet_bytes);
        writer.start(&header, sequence, SEAL);
        let mut pushed = Vec::new();
        for frame in &frames {
            let (room, payload) = (writer.room(), frame.borrow().payload_bytes());
            if writer.push(&frame.borrow()) {
                prop_assert!(payload <= room);
                pushed.push(frame.borrow());
            } else {
                // A room of 0 may mean that not even a frame's header fits.
                prop_assert!(payload > room || room == 0);
            }
        }
        prop_assert_eq!(writer.is_empty(), pushed.is_empty());
        let packet = writer.finish();
        prop_assert!(packet.len() <= max_packet_bytes && packet.len().is_multiple_of(4));
        prop_assert_eq!(SEAL.check_control(packet), Ok(()));
        let Ok(Packet::Control(read_header, body)) = parse(packet) else {
            return Err(TestCaseError::fail("not a control packet"));
        };
        prop_assert_eq!(read_header, header);
        let body = ControlBody::parse(body).unwrap();
        prop_assert_eq!(body.sequence, sequence);
        let read: Vec<_> = body.frames().map(Result::unwrap).collect();
        prop_assert_eq!(read, pushed);
    }

    #[test]
    fn descriptions_are_read_back(info in any_info()) {
        let bytes = info.emit();
        prop_assert!(bytes.len() <= QpInfo::BYTES_MAX);
        prop_assert_eq!(QpInfo::parse(&bytes), Ok(info));
    }

    #[test]
    fn any_bytes_are_handled(bytes in vec(any::<u8>(), 0..300)) {
        checks::packet(&bytes);
        checks::body(&bytes);
        checks::ddp::datagram(&bytes);
    }

    #[test]
    fn bytes_that_look_like_a_packet_are_handled(bytes in nearly_packet()) {
        checks::packet(&bytes);
    }

    #[test]
    fn bytes_that_look_like_a_body_are_handled(bytes in nearly_body()) {
        checks::body(&bytes);
    }

    #[test]
    fn damaged_descriptions_are_handled(
        info in any_info(), at: prop::sample::Index, mask in 1..=u8::MAX, cut: prop::sample::Index
    ) {
        let mut bytes = info.emit();
        prop_assert!(QpInfo::parse(&bytes[..cut.index(bytes.len())]).is_err());
        let at = at.index(bytes.len());
        bytes[at] ^= mask;
        checks::body(&bytes);
    }

    /// Frames whose trailer is right but one of whose lengths lies: no panic, and the frames
    /// before it stand.
    #[test]
    fn frames_with_lying_lengths_are_handled(
        frames in vec(any_frame(), 1..5), which: prop::sample::Index, length: u16
    ) {
        let mut writer = ControlWriter::new(1 << 16);
        let header = ControlHeader {
            dest: Qpn::new(1, 0, 0), psn: 0, qkey: 0, source: Qpn::new(2, 0, 0),
        };
        writer.start(&header, 0, SEAL);
        let which = which.index(frames.len());
        let mut lies_at = 8;
        for (index, frame) in frames.iter().enumerate() {
            prop_assert!(writer.push(&frame.borrow()));
            if index < which {
                lies_at += 4 + frame.borrow().payload_bytes();
            }
        }
        let Ok(Packet::Control(_, body)) = parse(writer.finish()) else { unreachable!() };
        let mut body = body.to_vec();
        body[lies_at + 2..lies_at + 4].copy_from_slice(&length.to_be_bytes());
        checks::body(&body);
        let read: Vec<_> = ControlBody::parse(&body).unwrap().frames().take(which).collect();
        let stand: Vec<_> = frames[..which].iter().map(|frame| Ok(frame.borrow())).collect();
        prop_assert_eq!(read, stand);
    }
}

proptest! {
    // Each case tries every truncation and every byte.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn damaged_data_packets_are_rejected((header, payload) in any_data(), mask in 1..=u8::MAX) {
        assert_damage_is_rejected(&data_packet(&header, &payload), header.rkey, mask);
    }

    #[test]
    fn damaged_control_packets_are_rejected(
        header in any_control(), frames in vec(any_frame(), 0..4), mask in 1..=u8::MAX
    ) {
        let mut writer = ControlWriter::new(2000);
        writer.start(&header, 1, SEAL);
        for frame in &frames {
            writer.push(&frame.borrow());
        }
        assert_damage_is_rejected(writer.finish(), 0, mask);
    }
}

/// All 255 alterations of every byte, once, on a packet of each kind.
#[test]
fn every_alteration_of_every_byte_is_rejected() {
    let header = DataHeader {
        dest: Qpn::new(77, 3, 1),
        psn: 1000,
        ends_message: false,
        carries_immediate: false,
        address: Some(1 << 33),
        rkey: 5,
        length: 6,
        behind: 0,
        immediate: 7 << 4,
    };
    let mut writer = ControlWriter::new(200);
    let control =
        ControlHeader { dest: Qpn::new(77, 0, 0), psn: 3, qkey: 4, source: Qpn::new(78, 0, 0) };
    writer.start(&control, 5, SEAL);
    assert!(writer.push(&Frame::Probe(Probe { id: 1, sent_ns: 2 })));
    assert!(writer.push(&Frame::Cancel(Cancel { message: 3, reason: CancelReason::Deadline })));
    for mask in 1..=u8::MAX {
        for header in [header, DataHeader { address: None, ..header }] {
            assert_damage_is_rejected(&data_packet(&header, b"lacuna"), header.rkey, mask);
        }
        assert_damage_is_rejected(writer.finish(), 0, mask);
    }
}
