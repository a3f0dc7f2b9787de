//! What must hold for any bytes whatever. The fuzz targets call these, the corpus test replays
//! them over every input that was ever kept, and the property tests feed them random bytes.

// Each user takes the checks that it needs.
#![allow(dead_code)]

pub(crate) mod ddp;

use lacuna_wire::{
    CONTROL_HEADER_BYTES, ControlBody, ControlHeader, ControlWriter, DataHeader,
    FRAME_HEADER_BYTES, Frame, Packet, QpInfo, RejectKind, Seal, check_crc32c, crc32c, pad_bytes,
    parse, parse_checked, parse_data,
};

const SEAL: Seal = Seal::Crc32c;
const TRAILER_BYTES: usize = SEAL.bytes();

/// For datagrams: what is accepted can be made again from what was read.
pub(crate) fn packet(bytes: &[u8]) {
    match check_crc32c(bytes) {
        Ok(()) => {
            let (covered, trailer) = bytes.split_last_chunk::<TRAILER_BYTES>().unwrap();
            let (head, tail) = covered.split_at(covered.len() / 3);
            assert_eq!(crc32c(&[head, tail]), *trailer);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let parsed = parse(bytes);
    match (parse_data(bytes), &parsed) {
        (Some(found), Ok(Packet::Data(header, payload))) => assert_eq!(found, (*header, *payload)),
        (found, _) => assert_eq!(found, None),
    }
    match parse_checked(bytes) {
        // Of the key in a trailer any is as good here.
        Ok(Packet::Data(header, payload)) => {
            let layout = DataHeader { rkey: header.address.map_or(0, |_| header.rkey), ..header };
            assert_eq!(parsed, Ok(Packet::Data(layout, payload)));
        }
        Ok(control) => assert_eq!(parsed.as_ref(), Ok(&control)),
        Err(error) => assert!(parsed == Err(error) || error.kind() == RejectKind::Trailer),
    }
    match parsed {
        Ok(Packet::Data(header, payload)) => data(bytes, &header, payload),
        Ok(Packet::Control(header, body)) => control(bytes, &header, body),
        Err(error) => assert!(error.to_string().contains(|c: char| c.is_ascii_digit())),
    }
}

/// For what comes after the headers of a control packet, and for the description of a queue pair,
/// which share an input: the first byte chooses.
pub(crate) fn body(bytes: &[u8]) {
    match bytes.split_first() {
        Some((b'L', _)) => info(bytes),
        _ => frames(&ANY_HEADER, bytes),
    }
}

const ANY_HEADER: ControlHeader = ControlHeader {
    dest: lacuna_wire::Qpn::new(5, 4, 3),
    psn: 2,
    qkey: 1,
    source: lacuna_wire::Qpn::new(6, 7, 1),
};

fn data(bytes: &[u8], header: &DataHeader, payload: &[u8]) {
    let (pad, headers) = (pad_bytes(payload.len()), header.header_bytes());
    assert_eq!(bytes.len(), headers + payload.len() + pad + TRAILER_BYTES);
    assert_eq!(payload.len(), header.length as usize);

    let mut packet = vec![0xa5; headers];
    header.emit(&mut packet);
    assert_eq!(packet, without_ignored_bits(&bytes[..headers]));
    packet.extend(payload);
    packet.extend(&[0; 3][..pad]);
    // Whatever the key of a Send was, it can be written again.
    let mut keyed = *header;
    SEAL.check(&mut keyed, bytes).unwrap_or_default();
    let mut trailer = [0xa5; TRAILER_BYTES];
    SEAL.emit_trailer(&keyed, &[&packet], &mut trailer);
    packet.extend(trailer);
    let mut read = *header;
    assert_eq!(SEAL.check(&mut read, &packet), Ok(()));
    assert_eq!(read, keyed);
    assert_eq!(parse(&packet), Ok(Packet::Data(*header, payload)));
}

fn control(bytes: &[u8], header: &ControlHeader, body: &[u8]) {
    let end = CONTROL_HEADER_BYTES + body.len();
    assert_eq!(bytes.len(), end + pad_bytes(end) + TRAILER_BYTES);
    frames(header, body);
}

/// Iterating ends, and frames written again are read as the same frames.
fn frames(header: &ControlHeader, bytes: &[u8]) {
    let Ok(body) = ControlBody::parse(bytes) else { return };
    let mut writer = ControlWriter::new(1 << 20);
    writer.start(header, body.sequence, SEAL);
    let mut items_left = bytes.len() / FRAME_HEADER_BYTES + 1;
    let mut frames = body.frames();
    let mut read = Vec::new();
    for frame in frames.by_ref() {
        items_left = items_left.checked_sub(1).expect("each item takes a frame header's bytes");
        match frame {
            Ok(frame) => {
                let room = writer.room();
                assert!(writer.push(&frame));
                assert!(frame.payload_bytes() <= room);
                read.push(frame);
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    assert!(frames.next().is_none(), "nothing comes after an error or the end");

    let packet = writer.finish();
    assert_eq!(check_crc32c(packet), Ok(()));
    let Ok(Packet::Control(same_header, same_body)) = parse(packet) else {
        panic!("a written packet is not read");
    };
    assert_eq!(same_header, *header);
    let same_body = ControlBody::parse(same_body).unwrap();
    assert_eq!(same_body.sequence, body.sequence);
    let same_frames: Vec<Frame<'_>> = same_body.frames().map(Result::unwrap).collect();
    assert_eq!(same_frames, read);
}

/// A description that is accepted is bounded, and read the same when written again.
fn info(bytes: &[u8]) {
    match QpInfo::parse(bytes) {
        Ok(info) => {
            let again = info.emit();
            assert!(bytes.len() <= QpInfo::BYTES_MAX && again.len() <= QpInfo::BYTES_MAX);
            assert_eq!(QpInfo::parse(&again), Ok(info));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Clears what is sent as zero and ignored on receipt: MigReq, the congestion byte, the
/// reserved bits beside AckReq.
fn without_ignored_bits(header: &[u8]) -> Vec<u8> {
    let mut header = header.to_vec();
    header[1] &= !0x40;
    header[4] = 0;
    header[8] &= 0x80;
    header
}
