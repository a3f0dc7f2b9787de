//! Every input that fuzzing kept, through the same checks, in the ordinary test run.

mod checks;

use std::fs;
use std::path::{Path, PathBuf};

use lacuna_wire::ddp::{
    About, ControlFrame, ControlReason, Operation, Position, ReadRequest, RecordFlags, Rows,
    Segment, Space, Tagged, Untagged, emit_control,
};
use lacuna_wire::{
    Ack, Cancel, CancelReason, ChannelReport, ControlHeader, ControlWriter, DataHeader, Flush,
    FlushMark, Frame, ImmediateSplit, Packet, PathChallenge, PathResponse, Probe, ProbeReply,
    QpInfo, Qpn, Read, ReadRefusal, ReadRefused, Receives, ReceivesBefore, Relayed, Report, Run,
    RunList, Seal, Sent, U64List, parse,
};

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn replay(target: &str, check: fn(&[u8])) {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder:?} has no inputs");
    for path in paths {
        // Shown only if the check fails, and then says which input it was.
        println!("{}", path.display());
        check(&fs::read(&path).unwrap());
    }
}

#[test]
fn packet_corpus() {
    replay("packet", checks::packet);
}

#[test]
fn control_corpus() {
    replay("control", checks::body);
}

#[test]
fn ddp_corpus() {
    replay("ddp", checks::ddp::datagram);
}

/// Writes the valid inputs that fuzzing starts from. Run it after a change of format.
#[test]
#[ignore = "writes into the source tree"]
fn write_seeds() {
    for (name, frames) in seed_frames() {
        let packet = control_packet(&frames);
        let Ok(Packet::Control(_, body)) = parse(&packet) else { unreachable!() };
        write("packet", &format!("seed-control-{name}"), &packet);
        write("control", &format!("seed-{name}"), body);
    }
    for length in [0, 1, 2, 3, 64] {
        write("packet", &format!("seed-data-{length}"), &data_packet(length));
    }
    for (name, segment, payload) in seed_segments() {
        let mut packet = vec![0; segment.packet_bytes(payload.len())];
        segment.emit_packet(&payload, &mut packet);
        write("ddp", &format!("seed-{name}"), &packet);
    }
    let ipv4 = "192.0.2.1:4791".parse().unwrap();
    let ipv6 = "[2001:db8::2]:4792".parse().unwrap();
    write("control", "seed-info-ipv4", &info(vec![ipv4]).emit());
    write("control", "seed-info-mixed", &info(vec![ipv4, ipv6]).emit());
}

fn write(target: &str, name: &str, bytes: &[u8]) {
    fs::write(folder(target).join(name), bytes).unwrap();
}

fn data_packet(length: usize) -> Vec<u8> {
    let header = DataHeader {
        dest: Qpn::new(7, 3, 1),
        psn: 0x1_0203,
        ends_message: length % 2 == 1,
        carries_immediate: length == 3,
        address: (length < 3).then_some(3 << 30),
        rkey: 0x1122_3344,
        length: length as u32,
        behind: 0,
        immediate: 0x0040_0120,
    };
    let mut packet = vec![0; Seal::Crc32c.packet_bytes(&header)];
    Seal::Crc32c.emit_packet(&header, &mut packet, &vec![0x5a; length]);
    packet
}

fn control_packet(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut writer = ControlWriter::new(1400);
    let (dest, source) = (Qpn::new(7, 0, 0), Qpn::new(9, 0, 0));
    writer.start(&ControlHeader { dest, psn: 5, qkey: 0x5566_7788, source }, 6, Seal::Crc32c);
    for frame in frames {
        assert!(writer.push(frame));
    }
    writer.finish().to_vec()
}

fn seed_frames() -> Vec<(&'static str, Vec<Frame<'static>>)> {
    const RUNS: [Run; 2] = [
        Run { count: 8, capacity_bytes: 1 << 20, continues: false },
        Run { count: 1, capacity_bytes: 4096, continues: true },
    ];
    let mut report = Report::new();
    let mut flush = Flush::new(41);
    for channel in 0..2 {
        report.push(ChannelReport {
            channel,
            next_psn: 100,
            credit_bytes: 1 << 16,
            ..Default::default()
        });
        flush.push(FlushMark { channel, next_psn: 0xff_fffe });
    }
    let receives = Frame::Receives(Receives {
        base: 40,
        posted: 49,
        finished: &[0b0000_0110],
        failed_from: 30,
        failed: U64List::from_values(&[33, 41]),
        runs: RunList::from_runs(&RUNS),
    });
    let ack = Frame::Ack(Ack {
        message: 40,
        cumulative: 12,
        immediate_fragments: 0xff,
        truncated: true,
        skipped_bytes: 0,
        chunks: &[0xfe, 0xff, 0x01],
    });
    let cancel = Frame::Cancel(Cancel { message: 42, reason: CancelReason::Deadline });
    let sent = Frame::Sent(Sent { channel: 1, next_psn: 0xff_fffe, before: 41 });
    let read = Frame::Read(Read {
        id: 3,
        key: 0x1122_3344,
        address: 4096,
        length: 65_536,
        sink_key: 0x5566_7788,
        sink_address: 0,
        left_us: 1_000_000,
    });
    let refused = Frame::ReadRefused(ReadRefused { id: 2, why: ReadRefusal::Range });
    let before = Frame::ReceivesBefore(ReceivesBefore { base: 40, receives: 36 });
    let relayed = Frame::Relayed(Relayed { queue_pair: 18, body: &[1, 0, 0, 0, 9] });
    let challenge = Frame::PathChallenge(PathChallenge { value: 0x1122_3344_5566_7788 });
    let response = Frame::PathResponse(PathResponse { value: 0x8877_6655_4433_2211 });
    let probe = Frame::Probe(Probe { id: 1, sent_ns: 1_000_000 });
    let reply = Frame::ProbeReply(ProbeReply { id: 1, echo_ns: 1_000_000, packet_bytes: 1400 });
    let (report, flush) = (Frame::Report(report), Frame::Flush(flush));
    vec![
        ("empty", vec![]),
        ("probe", vec![probe, Frame::Padding(20)]),
        ("reply", vec![reply]),
        ("report", vec![report]),
        ("receives", vec![receives]),
        ("receives_before", vec![before, receives]),
        ("relayed", vec![receives, relayed]),
        ("path", vec![challenge, response]),
        ("ack", vec![ack]),
        ("flush", vec![flush]),
        ("cancel", vec![cancel]),
        ("sent", vec![sent]),
        ("read", vec![read, refused]),
        ("all", vec![receives, ack, report, flush, cancel, sent, reply, probe, Frame::Padding(3)]),
    ]
}

/// Segments of datagram queue pairs, with their payloads.
fn seed_segments() -> Vec<(&'static str, Segment, Vec<u8>)> {
    let of = |operation, is_reliable, group, (length, place)| {
        Segment::Untagged(Untagged { operation, is_reliable, group, number: 7, length, place })
    };
    let untagged = |operation, length, place| of(operation, false, 0, (length, place));
    let record = |length, place, flags: RecordFlags| {
        let (stag, offset) = (0x0102_0304, 4096 + u64::from(place));
        let group = if flags.is_named { 0x0001_0203 } else { 0 };
        Segment::Tagged(Tagged { stag, offset, number: 9, length, place, flags, group })
    };
    let named = RecordFlags { is_named: true, ..RecordFlags::default() };
    let reliable = RecordFlags { is_reliable: true, ..RecordFlags::default() };
    let answer = RecordFlags { is_answer: true, ..RecordFlags::default() };
    let request = ReadRequest {
        sink_stag: 0x0506_0708,
        sink_offset: 0,
        length: 8192,
        source_stag: 0x0102_0304,
        source_offset: 4096,
        time_left_us: 1000,
    };
    let mut seeds = vec![
        ("send", untagged(Operation::Send, 5, 0), vec![1; 5]),
        ("send-empty", untagged(Operation::Send, 0, 0), Vec::new()),
        ("send-first", untagged(Operation::SendSolicited, 300, 0), vec![2; 100]),
        ("record-middle", record(300, 100, RecordFlags::default()), vec![3; 100]),
        ("record-last", record(300, 200, answer), vec![4; 100]),
        ("record-reliable", record(300, 0, reliable), vec![5; 100]),
        ("record-group", record(100, 0, named), vec![6; 100]),
        ("send-reliable", of(Operation::Send, true, 0, (300, 100)), vec![7; 100]),
        ("send-group", of(Operation::Send, false, 0x0001_0203, (5, 0)), vec![8; 5]),
        ("read", untagged(Operation::ReadRequest, 32, 0), request.emit().to_vec()),
        ("read-reliable", of(Operation::ReadRequest, true, 0, (32, 0)), request.emit().to_vec()),
    ];
    let about = |space| About { space, number: 11 };
    let reason = ControlReason::Bounds;
    let (instance, token, reliable) = (13, 1 << 40, about(Space::Reliable));
    let [horizon, latest] = [100, 1].map(|place| Position { number: 12, place });
    let acknowledge = ControlFrame::Acknowledge {
        about: reliable,
        instance,
        record: 14,
        horizon,
        latest,
        bytes: 1 << 33,
        waited_us: 5,
        missing: Rows::new(&[[11, 10, 11, 20], [11, 30, 12, 0]]),
    };
    let frames = [
        (
            "report",
            ControlFrame::Report { about: about(Space::Sends), bytes: 1 << 33, waited_us: 5 },
        ),
        ("probe", ControlFrame::Probe { about: about(Space::Sends), bytes: 1 << 33, unused: 0 }),
        ("error", ControlFrame::Error { about: about(Space::Reads), reason }),
        ("cancel", ControlFrame::Cancel { about: reliable, reason, key: 15 }),
        ("sent", ControlFrame::Sent { about: about(Space::GroupSends), group: 0x0001_0203 }),
        (
            "missing",
            ControlFrame::Missing {
                about: about(Space::GroupRecords),
                ranges: Rows::new(&[[0, 100], [200, 300]]),
            },
        ),
        ("begin", ControlFrame::Begin { about: reliable, instance, token }),
        ("ask", ControlFrame::Ask { about: reliable, instance, token }),
        ("acknowledge", acknowledge),
    ];
    let mut all = Vec::new();
    for (name, frame) in frames {
        let mut payload = Vec::new();
        assert!(emit_control(&frame, &mut payload) && emit_control(&frame, &mut all));
        seeds.push((name, untagged(Operation::Control, payload.len() as u32, 0), payload));
    }
    // Of a kind that a later version may have.
    all.extend([99, 0, 0, 3, 1, 2, 3]);
    seeds.push(("control-all", untagged(Operation::Control, all.len() as u32, 0), all));
    seeds
}

fn info(channels: Vec<std::net::SocketAddr>) -> QpInfo {
    QpInfo {
        queue_pair: 7,
        rkey: 0x1122_3344,
        qkey: 0x5566_7788,
        mtu_bytes: 1400,
        chunk_packets: 16,
        split: ImmediateSplit::DEFAULT,
        generations: 4,
        stripe_packets: 64,
        max_message_bytes: 1 << 28,
        first_psn: 0,
        credit_bytes: 212_992,
        channels,
        code: None,
        seal: Seal::Crc32c,
        nonce: None,
        reports: None,
    }
}
