//! For datagrams of datagram queue pairs: what is accepted can be made again from what was read.

use lacuna_wire::ddp::{
    CONTROL_BYTES_MAX, ControlFrame, ControlFrames, DdpError, DdpErrorKind, MissingRanges,
    MissingStretches, Operation, ReadRequest, Segment, TRAILER_BYTES, Tagged, Untagged, check,
    emit_control, parse,
};

/// What takes the fewest bytes of a control payload: a frame's header.
const ITEM_BYTES_MIN: usize = 4;

pub(crate) fn datagram(bytes: &[u8]) {
    match check(bytes) {
        Ok(()) => {
            let (covered, trailer) = bytes.split_last_chunk::<TRAILER_BYTES>().unwrap();
            assert_eq!(lacuna_wire::crc32c(&[covered]), *trailer);
        }
        Err(error) => refusal(&error),
    }
    match parse(bytes) {
        Ok((segment, payload)) => {
            again(bytes, &segment, payload);
            let operation = match segment {
                Segment::Tagged(_) => Operation::WriteRecord,
                Segment::Untagged(Untagged { operation, .. }) => operation,
            };
            if operation == Operation::ReadRequest {
                request(payload);
            }
            frames(payload);
        }
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &DdpError) {
    assert!(error.to_string().contains(|c: char| c.is_ascii_digit()));
    assert!(DdpErrorKind::ALL.contains(&error.kind()));
}

fn again(bytes: &[u8], segment: &Segment, payload: &[u8]) {
    assert_eq!(segment.packet_bytes(payload.len()), bytes.len());
    let (Segment::Tagged(Tagged { place, length, .. })
    | Segment::Untagged(Untagged { place, length, .. })) = segment;
    assert!(u64::from(*place) + payload.len() as u64 <= u64::from(*length));
    let mut packet = vec![0xa5; bytes.len()];
    assert_eq!(segment.emit_packet(payload, &mut packet), packet.len());
    assert_eq!(check(&packet), Ok(()));
    assert_eq!(parse(&packet), Ok((*segment, payload)));
    let end = bytes.len() - TRAILER_BYTES;
    assert_eq!(packet[..end], without_ignored_bits(&bytes[..end], segment));
}

/// Clears what is sent as zero and ignored on receipt.
fn without_ignored_bits(bytes: &[u8], segment: &Segment) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[0] &= !0x3c;
    bytes[1] &= !0x30;
    if matches!(segment, Segment::Tagged(_)) {
        bytes[26] &= 0x0f;
    }
    bytes
}

fn request(payload: &[u8]) {
    match ReadRequest::parse(payload) {
        Ok(request) => assert_eq!(request.emit(), payload),
        Err(error) => refusal(&error),
    }
}

/// Iterating ends, and frames written again are read as the same frames.
fn frames(payload: &[u8]) {
    let mut items_left = payload.len() / ITEM_BYTES_MIN + 1;
    let mut frames = ControlFrames::new(payload);
    for frame in frames.by_ref() {
        items_left = items_left.checked_sub(1).expect("each item takes some bytes");
        let Ok(frame) = frame else {
            refusal(&frame.unwrap_err());
            break;
        };
        let mut again = Vec::new();
        if emit_control(&frame, &mut again) {
            assert_eq!(again.len(), frame.bytes());
            assert!(ControlFrames::new(&again).eq([Ok(frame)]));
        } else {
            assert!(frame.bytes() > CONTROL_BYTES_MAX && again.is_empty());
            match frame {
                ControlFrame::Missing { ranges, .. } => {
                    assert!(ranges.iter().count() > MissingRanges::MAX);
                }
                ControlFrame::Acknowledge { missing, .. } => {
                    assert!(missing.iter().count() > MissingStretches::MAX);
                }
                _ => panic!("{frame:?} is long"),
            }
        }
    }
    assert!(frames.next().is_none(), "nothing comes after an error or the end");
}
