//! Tests that every seal of the table must pass.

use super::*;
use crate::bth::PAD_MAX;
use crate::{ControlHeader, ControlWriter, Frame, Packet, Probe, Qpn, parse_data};

const WRITE: DataHeader = DataHeader {
    dest: Qpn::from_bits(0x12_3456),
    psn: 0x78_9abc,
    ends_message: true,
    carries_immediate: false,
    address: Some(0x0102_0304_0506_0708),
    rkey: 0x1122_3344,
    length: 5,
    behind: 0,
    immediate: 0x5566_7788,
};

const SEND: DataHeader = DataHeader { address: None, ..WRITE };

fn seals() -> impl Iterator<Item = Seal> {
    SEALS.iter().map(|entry| entry.seal)
}

/// Those that are checked here: encrypted packets are opened before.
fn seals_of_sums() -> impl Iterator<Item = Seal> {
    seals().filter(|seal| !seal.is_secure())
}

fn payload(length: u32) -> Vec<u8> {
    (0..length).map(|i| ((i * 7) >> 3) as u8).collect()
}

/// A data packet, written in one call.
fn whole(seal: Seal, header: &DataHeader, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xa5; seal.packet_bytes(header)];
    seal.emit_packet(header, &mut packet, payload);
    packet
}

/// Appends the trailer to a packet.
fn append(seal: Seal, header: &DataHeader, mut packet: Vec<u8>) -> Vec<u8> {
    let end = packet.len();
    packet.resize(end + seal.bytes(), 0xa5);
    let (covered, trailer) = packet.split_at_mut(end);
    seal.emit_trailer(header, &[covered], trailer);
    packet
}

/// Receives a data packet with the key of [`WRITE`], checked both before and while it is copied.
fn taken(seal: Seal, packet: &[u8]) -> Result<(DataHeader, Vec<u8>), PacketError> {
    let Packet::Data(mut header, payload) = seal.parse(packet)? else {
        return Err(PacketError::Opcode { found: packet[0] });
    };
    let mut copy = vec![0xa5; payload.len()];
    let mut was_read = false;
    let has_key = seal.check_while(&header, packet, WRITE.rkey, |sum, headers, payload| {
        was_read = true;
        assert_eq!(sum.is_none(), seal.judges_first());
        match sum {
            Some(sum) => sum.copy(headers, payload, &mut copy),
            None => copy.copy_from_slice(payload),
        }
    });
    assert_eq!(was_read, has_key == Ok(true) || !seal.judges_first());
    assert_eq!(has_key, seal.check(&mut header, packet).map(|()| header.rkey == WRITE.rkey));
    has_key?;
    Ok((header, copy))
}

fn control(seal: Seal) -> Vec<u8> {
    let mut writer = ControlWriter::new(200);
    let header = ControlHeader { dest: WRITE.dest, psn: 3, qkey: 5, source: Qpn::from_bits(7) };
    writer.start(&header, 9, seal);
    assert!(writer.push(&Frame::Probe(Probe { id: 1, sent_ns: 2 })));
    writer.finish().to_vec()
}

#[test]
fn a_seal_is_found_by_its_line() {
    for (index, entry) in SEALS.iter().enumerate() {
        assert_eq!((entry.seal.name(), entry.seal.bytes()), (entry.name, entry.bytes));
        assert!(SEALS[..index].iter().all(|other| other.name != entry.name));
        assert!(entry.bytes <= Seal::BYTES_MAX);
    }
    assert_eq!(SEALS[0].seal, Seal::default());
}

#[test]
fn a_packet_in_one_go_is_the_same_as_in_parts_and_is_read_back() {
    for seal in seals_of_sums() {
        for length in [0, 1, 4, 63, 1000, 1400, 8999] {
            for header in [WRITE, SEND].map(|header| DataHeader { length, ..header }) {
                let payload = payload(length);
                let (head, pad) = (header.header_bytes(), pad_bytes(payload.len()));
                let mut parts = vec![0; head];
                header.emit(&mut parts);
                let pad = &[0; PAD_MAX][..pad];
                let mut trailer = vec![0xa5; seal.bytes()];
                seal.emit_trailer(&header, &[&parts, &payload, pad], &mut trailer);
                let parts = [&parts, &payload, pad, &trailer].concat();
                let overhead_bytes = seal.overhead_bytes(header.address.is_some());
                assert_eq!(parts.len(), overhead_bytes + payload.len() + pad.len());
                assert_eq!(whole(seal, &header, &payload), parts, "{seal:?}, {length} bytes");
                assert_eq!(taken(seal, &parts), Ok((header, payload)), "{seal:?}, {length} bytes");
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed_or_makes_another_key() {
    for seal in seals_of_sums() {
        for header in [WRITE, SEND] {
            let packet = whole(seal, &header, &payload(5));
            for bit in 0..packet.len() * 8 {
                let found = taken(seal, &flip(&packet, bit));
                assert!(
                    found.is_err() || found.is_ok_and(|(found, _)| found.rkey != header.rkey),
                    "{seal:?}: bit {bit} of {header:?}"
                );
            }
        }
        let packet = control(seal);
        assert!(seal.parse_checked(&packet).is_ok());
        for bit in 0..packet.len() * 8 {
            assert!(seal.parse_checked(&flip(&packet, bit)).is_err(), "{seal:?}: bit {bit}");
        }
    }
}

#[test]
fn less_than_a_trailer_is_too_short() {
    for seal in seals() {
        for found in 0..seal.bytes() {
            let error = Err(PacketError::TooShort { needed: seal.bytes(), found });
            assert_eq!(seal.check(&mut { WRITE }, &vec![0; found]), error);
            assert_eq!(seal.check_control(&vec![0; found]), error);
        }
    }
}

#[test]
fn the_layout_is_read_by_the_common_trailer_length_or_the_seals_own() {
    for seal in seals_of_sums() {
        for header in [WRITE, SEND] {
            let payload = payload(5);
            let packet = whole(seal, &header, &payload);
            let parsed = match seal.has_common_length() {
                true => parse_data(&packet),
                false => seal.parse_data(&packet).ok(),
            };
            let (mut found, found_payload) = parsed.unwrap();
            seal.check(&mut found, &packet).unwrap();
            assert_eq!((found, found_payload), (header, &payload[..]), "{seal:?}");
        }
    }
}

#[test]
fn a_control_packet_has_its_seals_overhead() {
    for seal in seals() {
        let mut writer = ControlWriter::new(200);
        writer.start(
            &ControlHeader { dest: WRITE.dest, psn: 3, qkey: 5, source: WRITE.dest },
            9,
            seal,
        );
        assert_eq!(writer.finish().len(), seal.control_overhead_bytes());
        writer.pad_to(100);
        assert_eq!(writer.finish().len(), 100);
        seal.check_control(writer.finish()).unwrap();
    }
}

#[test]
#[should_panic(expected = "ends behind its trailer")]
fn a_packet_has_no_more_room_than_it_needs() {
    let room = Seal::default().packet_bytes(&WRITE) + 4;
    Seal::default().emit_packet(&WRITE, &mut vec![0; room], &payload(5));
}

#[test]
fn without_an_address_the_key_is_in_the_trailer() {
    for seal in seals_of_sums() {
        let mut packet = whole(seal, &SEND, &payload(5));
        let Ok(Packet::Data(mut header, _)) = seal.parse(&packet) else { unreachable!() };
        assert_eq!(header.rkey, 0);
        seal.check(&mut header, &packet).unwrap();
        assert_eq!(header, SEND);
        // A sender that does not know the key.
        packet.truncate(packet.len() - seal.bytes());
        let plain = append(seal, &DataHeader { rkey: 0, ..SEND }, packet);
        seal.check(&mut header, &plain).unwrap();
        assert_eq!(header.rkey, 0);
    }
}

#[test]
fn a_write_has_its_key_in_front() {
    for seal in seals_of_sums() {
        let packet = whole(seal, &WRITE, &payload(5));
        let mut header = WRITE;
        assert_eq!(seal.check(&mut header, &packet), Ok(()));
        assert_eq!(header, WRITE);
        assert!(matches!(
            seal.check(&mut header, &flip(&packet, 0)),
            Err(PacketError::Trailer { .. })
        ));
    }
}

fn flip(packet: &[u8], bit: usize) -> Vec<u8> {
    let mut flipped = packet.to_vec();
    flipped[bit / 8] ^= 1 << (bit % 8);
    flipped
}
