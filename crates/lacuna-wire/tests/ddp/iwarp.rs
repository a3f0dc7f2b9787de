//! The same segments as iWARP has them, framed by MPA in a TCP stream, and what tshark's own dissectors say of them.
//!
//! tshark knows DDP and RDMAP from RFC 5040 and RFC 5041, so it is a second reader of all that Lacuna has from them:
//! flags, versions, opcodes, STag, offset, queue, numbers, READ requests. Of Lacuna's own it shows what it
//! would be in iWARP: the opcodes 0xc and 0xe have no name, a record is no field, and the length of a message is
//! in the reserved bytes of Sends and READ requests, never an STag to invalidate.

use crate::captures::{Capture, Stream, Tshark, installed, number};
use crate::expected::good;
use crate::fixtures::Fixture;
use lacuna_wire::ddp::{Operation, Segment, TRAILER_BYTES};

/// Bytes of a segment, at most: one segment of TCP holds it, in a capture that others could have made.
const SEGMENT_BYTES_MAX: usize = 2000;
/// Packets before the first FPDU: three of TCP's, MPA's request and reply.
const PACKETS_AHEAD: usize = 5;

/// The startup frames of MPA (RFC 5044, section 7.1): no markers, CRC.
fn startup(key: &[u8; 16]) -> Vec<u8> {
    const CRC: u8 = 0x40;
    const REVISION: u8 = 1;
    [&key[..], &[CRC, REVISION, 0, 0]].concat()
}

/// A segment in a frame of MPA (RFC 5044, section 4): its length, itself, zeros up to a word, CRC32C.
fn frame(segment: &[u8]) -> Vec<u8> {
    let mut frame = (segment.len() as u16).to_be_bytes().to_vec();
    frame.extend(segment);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let crc = lacuna_wire::crc32c(&[&frame]);
    frame.extend(crc);
    frame
}

/// What Lacuna would send, without the trailer.
fn segment(fixture: &Fixture) -> Vec<u8> {
    let end = fixture.packet.len() - TRAILER_BYTES;
    let segment = fixture.segment();
    let mut bytes = vec![0xa5; segment.header_bytes()];
    let payload = &fixture.packet[segment.header_bytes()..end];
    segment.emit(payload.len(), &mut bytes);
    bytes.extend(payload);
    bytes
}

const FIELDS: [&str; 22] = [
    "iwarp_ddp.tagged_flag",
    "iwarp_ddp.last_flag",
    "iwarp_ddp.rsvd",
    "iwarp_ddp.dv",
    "iwarp_rdma.version",
    "iwarp_rdma.opcode",
    "iwarp_ddp.stag",
    "iwarp_ddp.tagged_offset",
    "iwarp_ddp.qn",
    "iwarp_ddp.msn",
    "iwarp_ddp.mo",
    "iwarp_rdma.sinkstag",
    "iwarp_rdma.sinkto",
    "iwarp_rdma.rdmardsz",
    "iwarp_rdma.srcstag",
    "iwarp_rdma.srcto",
    "iwarp_mpa.ulpdulength",
    "iwarp_mpa.crc_check",
    "iwarp_mpa.bad_length",
    "_ws.malformed",
    "iwarp_rdma.inval_stag",
    "iwarp_rdma.reserved",
];
const RESERVED: usize = FIELDS.len() - 1;

/// What tshark should print for `FIELDS`.
fn expected(fixture: &Fixture, segment: &[u8]) -> [Option<u64>; FIELDS.len()] {
    let value = |name: &str| fixture.fields.get(name).copied();
    let mut expected = [None; FIELDS.len()];
    let is_tagged = matches!(fixture.segment(), Segment::Tagged(_));
    let operation = fixture.operation();
    expected[0] = Some(is_tagged.into());
    expected[1] = value("last");
    expected[2] = Some(0);
    expected[3] = Some(1);
    expected[4] = Some(1);
    expected[5] = Some(operation as u64);
    match fixture.queue() {
        None => (expected[6], expected[7]) = (value("stag"), value("offset")),
        Some(queue) => {
            expected[8] = Some(queue);
            (expected[9], expected[10]) = (value("number"), value("place"));
        }
    }
    for (at, name) in ["sink_stag", "sink_offset", "asked", "source_stag", "source_offset"]
        .into_iter()
        .enumerate()
    {
        expected[11 + at] = value(name);
    }
    expected[16] = Some(segment.len() as u64);
    let frame = frame(segment);
    let crc = frame.last_chunk::<4>().unwrap();
    // tshark reads the bytes in their order.
    expected[17] = Some(u64::from(u32::from_be_bytes(*crc)));
    if !matches!(operation, Operation::WriteRecord | Operation::Control) {
        expected[RESERVED] = value("message");
    }
    expected
}

/// Whether tshark reads it as iWARP has it. A READ request has its header whole, in one segment.
fn is_of_iwarp(fixture: &&Fixture) -> bool {
    fixture.packet.len() <= SEGMENT_BYTES_MAX
        && (fixture.operation() != Operation::ReadRequest || fixture.request().is_some())
}

#[test]
fn tshark_reads_the_same_values_in_a_stream_of_iwarp() {
    if installed() == Tshark::Missing {
        println!("skipped: no tshark to decode the packets");
        return;
    }
    let fixtures: Vec<_> = good().collect();
    let fixtures: Vec<_> = fixtures.iter().filter(is_of_iwarp).collect();
    assert!(fixtures.len() > 150);
    let mut stream = Stream::open();
    stream.send(true, &startup(b"MPA ID Req Frame"));
    stream.send(false, &startup(b"MPA ID Rep Frame"));
    assert_eq!(stream.packets.len(), PACKETS_AHEAD);
    let segments: Vec<_> = fixtures.iter().map(|fixture| segment(fixture)).collect();
    segments.iter().for_each(|segment| stream.send(true, &frame(segment)));
    let capture = Capture::write("iwarp", &stream.packets, usize::MAX);

    // They guess what is in a Send, and the pattern is none of it.
    let guess = ["--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"];
    let lines = capture.fields(&[&guess[..], &["-E", "occurrence=f"]].concat(), &FIELDS);
    assert_eq!(lines.len(), PACKETS_AHEAD + fixtures.len());
    for ((fixture, segment), line) in fixtures.iter().zip(&segments).zip(&lines[PACKETS_AHEAD..]) {
        let value = |(at, text): (usize, &String)| match at {
            RESERVED if !text.is_empty() => Some(u64::from_str_radix(text, 16).unwrap()),
            _ => number(text),
        };
        let found: Vec<_> = line.iter().enumerate().map(value).collect();
        assert_eq!(found, expected(fixture, segment), "{}: {line:?}", fixture.label());
    }
}
