//! Packets that the script made are read to the values that it put into them, and written again bit by bit.

use crate::expected::{REFUSED, SPACES, all, good, group_numbers};
use crate::fixtures::Fixture;
use lacuna_wire::ddp::{
    CONTROL_BYTES_MAX, ControlFrame, ControlFrames, ControlReason, DdpErrorKind, MissingRanges,
    MissingStretches, Operation, ReadRequest, TRAILER_BYTES, check, emit_control, group_number,
    parse,
};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

/// Bits that Lacuna sends as zero, by their place in a tagged packet and an untagged one.
const IGNORED_TAGGED: [(usize, u8); 3] = [(0, 0x3c), (1, 0x30), (26, 0xf0)];
const IGNORED_UNTAGGED: [(usize, u8); 2] = [(0, 0x3c), (1, 0x30)];

/// The packet as Lacuna would send it: ignored bits are zero, so that the trailer is another one.
fn without_ignored_bits(fixture: &Fixture) -> Vec<u8> {
    let mut packet = fixture.packet.clone();
    if !fixture.is("ignored") {
        return packet;
    }
    let ignored: &[(usize, u8)] = match fixture.operation() {
        Operation::WriteRecord => &IGNORED_TAGGED,
        _ => &IGNORED_UNTAGGED,
    };
    let before = packet.clone();
    ignored.iter().for_each(|(at, bits)| packet[*at] &= !bits);
    assert_ne!(packet, before, "{}", fixture.label());
    let end = packet.len() - TRAILER_BYTES;
    let trailer = lacuna_wire::crc32c(&[&packet[..end]]);
    packet[end..].copy_from_slice(&trailer);
    packet
}

/// The payload as the line says it, where the line says it all.
fn payload(fixture: &Fixture) -> Option<Vec<u8>> {
    if let Some(request) = fixture.request() {
        return Some(request.emit().to_vec());
    }
    let Some(frames) = fixture.frames() else { return Some(fixture.payload()) };
    let mut payload = Vec::new();
    let is_written = frames.iter().all(|frame| emit_control(&frame.frame(), &mut payload));
    assert!(is_written, "{}", fixture.label());
    (!fixture.is("skipped")).then_some(payload)
}

#[test]
fn every_field_is_read_whatever_the_ignored_bits() {
    for fixture in good() {
        let label = fixture.label();
        assert_eq!(check(&fixture.packet), Ok(()), "{label}");
        let (segment, payload) = parse(&fixture.packet).unwrap_or_else(|e| panic!("{label}: {e}"));
        assert_eq!(segment, fixture.segment(), "{label}");
        assert_eq!(payload.len() as u64, fixture.fields["length"], "{label}");
        if let Some(request) = fixture.request() {
            assert_eq!(ReadRequest::parse(payload), Ok(request), "{label}");
        } else if let Some(frames) = fixture.frames() {
            let expected: Vec<_> = frames.iter().map(|frame| Ok(frame.frame())).collect();
            let found: Vec<_> = ControlFrames::new(payload).collect();
            assert_eq!(found, expected, "{label}");
        } else {
            assert_eq!(payload, fixture.payload(), "{label}");
        }
    }
}

#[test]
fn packets_are_written_byte_for_byte() {
    for fixture in good() {
        let label = fixture.label();
        let Some(payload) = payload(&fixture) else { continue };
        let segment = fixture.segment();
        let mut packet = vec![0xa5; segment.packet_bytes(payload.len())];
        assert_eq!(segment.emit_packet(&payload, &mut packet), packet.len(), "{label}");
        assert_eq!(packet, without_ignored_bits(&fixture), "{label}");
    }
}

#[test]
fn what_is_no_packet_is_refused_for_its_reason() {
    let mut reasons = BTreeSet::new();
    for fixture in all().filter(|fixture| fixture.kind == REFUSED) {
        let (reason, _) = fixture.name.split_once(':').unwrap();
        let error = parse(&fixture.packet).and_then(|_| check(&fixture.packet)).unwrap_err();
        assert_eq!(error.kind().name(), reason, "{}: {error}", fixture.label());
        reasons.insert(reason);
    }
    // Bodies are refused behind the headers.
    let expected = DdpErrorKind::ALL.map(DdpErrorKind::name).into_iter();
    let expected: BTreeSet<_> = expected.filter(|name| *name != "body").collect();
    assert_eq!(reasons, expected);
}

#[test]
fn no_packet_that_was_cut_is_taken() {
    for fixture in good().filter(|fixture| fixture.packet.len() < 1500) {
        for cut in 0..fixture.packet.len() {
            let packet = &fixture.packet[..cut];
            let taken = parse(packet).and_then(|_| check(packet));
            assert!(taken.is_err(), "{} of {cut} bytes", fixture.label());
        }
    }
}

#[test]
fn control_that_is_cut_ends_with_one_error_at_most() {
    for fixture in good().filter(|fixture| fixture.fields.contains_key("frames")) {
        let (_, payload) = parse(&fixture.packet).unwrap();
        let whole: Vec<_> = ControlFrames::new(payload).map(Result::unwrap).collect();
        for cut in 0..payload.len() {
            let mut frames: Vec<_> = ControlFrames::new(&payload[..cut]).collect();
            if frames.last().is_some_and(Result::is_err) {
                frames.pop();
            }
            let frames: Vec<_> = frames.into_iter().map(Result::unwrap).collect();
            assert_eq!(frames, whole[..frames.len()], "{} of {cut} bytes", fixture.label());
        }
    }
}

#[test]
fn every_operation_occurs_at_each_place_of_its_message_and_with_the_edges_of_its_fields() {
    for operation in ["read_request", "send", "send_solicited", "write_record", "control"] {
        let fixtures: Vec<_> = good().filter(|fixture| fixture.kind == operation).collect();
        let places = |fixture: &&Fixture| {
            (fixture.field("place") == 0, fixture.is("last"), fixture.field("message") == 0)
        };
        let found: BTreeSet<_> = fixtures.iter().map(|fixture| places(&fixture)).collect();
        let (first, middle, last) = ((true, false), (false, false), (false, true));
        for (is_first, is_last) in [first, middle, last, (true, true)] {
            assert!(
                found.contains(&(is_first, is_last, false)),
                "{operation} {is_first} {is_last}"
            );
        }
        assert!(found.contains(&(true, true, true)), "{operation}, an empty message");
        for (field, value) in [("number", 0), ("number", u32::MAX), ("message", u32::MAX)] {
            let occurs = fixtures.iter().any(|fixture| fixture.field(field) == value);
            assert!(occurs, "{operation}: {field} {value}");
        }
        assert!(fixtures.iter().any(|fixture| fixture.is("ignored")), "{operation}");
    }
    let records: Vec<_> = good().filter(|fixture| fixture.kind == "write_record").collect();
    let found: BTreeSet<_> = records.iter().map(|fixture| fixture.field("flags")).collect();
    assert!(found.into_iter().eq(0..16));
    for stag in [0, u32::MAX] {
        assert!(records.iter().any(|fixture| fixture.field("stag") == stag));
    }
    let wraps = |fixture: &Fixture| {
        fixture.fields["offset"].checked_add(fixture.fields["length"]).is_none()
    };
    assert!(records.iter().any(wraps));
}

#[test]
fn every_frame_occurs_in_every_space_and_every_reason_with_it() {
    let mut found = BTreeSet::new();
    let mut reasons = BTreeSet::new();
    let mut rows_max = (0, 0);
    for fixture in good() {
        for expected in fixture.frames().unwrap_or_default() {
            let frame = expected.frame();
            match frame {
                ControlFrame::Error { reason, .. } => reasons.insert((2, reason.code())),
                ControlFrame::Cancel { reason, .. } => reasons.insert((3, reason.code())),
                _ => false,
            };
            found.insert((expected.kind, frame.about().space));
            rows_max.0 = rows_max.0.max(expected.ranges.len());
            rows_max.1 = rows_max.1.max(expected.stretches.len());
        }
    }
    let expected: BTreeSet<_> =
        (1..=9).flat_map(|kind| SPACES.map(|space| (kind, space))).collect();
    assert_eq!(found, expected);
    let named = |code: &u8| !matches!(ControlReason::from_code(*code), ControlReason::Other(_));
    assert_eq!(reasons.iter().filter(|(_, code)| named(code)).count(), 2 * 7);
    assert!(reasons.iter().any(|(_, code)| !named(code)));
    assert_eq!(rows_max, (MissingRanges::MAX, MissingStretches::MAX));
    let fullest = good().filter(|fixture| fixture.fields.contains_key("frames"));
    assert!(
        fullest.map(|fixture| fixture.fields["length"]).max() == Some(CONTROL_BYTES_MAX as u64)
    );
}

#[test]
fn messages_occur_reliably_and_to_groups_and_never_both_of_an_untagged_one() {
    let mut found = BTreeSet::new();
    for fixture in good() {
        let groups = [0, 1, (1 << 24) - 1].map(|group| fixture.fields.get("group") == Some(&group));
        found.insert((fixture.kind, fixture.is("reliable"), groups));
    }
    for kind in ["read_request", "send", "send_solicited"] {
        assert!(found.contains(&(kind, true, [false; 3])), "{kind}");
    }
    for kind in ["write_record", "send", "send_solicited"] {
        assert!(found.contains(&(kind, false, [false, true, false])), "{kind}");
        assert!(found.contains(&(kind, false, [false, false, true])), "{kind}");
    }
}

#[test]
fn a_group_has_the_number_that_others_compute() {
    let mut count = 0;
    for fixture in group_numbers() {
        let (ip, port) = fixture.packet.split_first_chunk::<16>().unwrap();
        let (ip, port) = (Ipv6Addr::from(*ip), u16::from_be_bytes(port.try_into().unwrap()));
        assert_eq!(u64::from(port), fixture.fields["port"]);
        let group = fixture.field("group");
        assert_eq!(group_number(IpAddr::V6(ip), port), group, "{}", fixture.label());
        if let Some(ip) = ip.to_ipv4_mapped() {
            assert_eq!(group_number(IpAddr::V4(ip), port), group, "{}", fixture.label());
        }
        count += 1;
    }
    assert!(count > 8);
    assert!(group_numbers().any(|fixture| fixture.field("group") == 1), "1 instead of 0");
}
