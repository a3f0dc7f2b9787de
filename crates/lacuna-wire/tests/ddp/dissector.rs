//! The dissector for Wireshark, `wireshark/lacuna-datagram.lua`: tshark prints by it what the fixtures say.

use crate::captures::{Capture, SERVER_PORT, Tshark, installed, number, udp};
use crate::expected::{REFUSED, all, good};
use crate::fixtures::Fixture;
use lacuna_wire::ddp::{Operation, TRAILER_BYTES};

/// Fields of the dissector, and those of the fixtures that they show.
const FIELDS: [(&str, &str); 16] = [
    ("last", "last"),
    ("stag", "stag"),
    ("offset", "offset"),
    ("number", "number"),
    ("length", "message"),
    ("place", "place"),
    ("flags", "flags"),
    ("group", "group"),
    ("payload_bytes", "length"),
    ("read.sink_stag", "sink_stag"),
    ("read.sink_offset", "sink_offset"),
    ("read.length", "asked"),
    ("read.source_stag", "source_stag"),
    ("read.source_offset", "source_offset"),
    ("read.time_left", "time_left"),
    ("trailer", "trailer"),
];
/// The same of control frames.
const OF_FRAME: [(&str, &str); 14] = [
    ("frame.number", "number"),
    ("frame.bytes", "total"),
    ("frame.waited", "waited"),
    ("probe.unused", "unused"),
    ("reason", "reason"),
    ("cancel.key", "key"),
    ("sent.group", "group"),
    ("instance", "instance"),
    ("token", "token"),
    ("acknowledge.record", "record"),
    ("acknowledge.horizon_number", "horizon_number"),
    ("acknowledge.horizon_place", "horizon_place"),
    ("acknowledge.latest_number", "latest_number"),
    ("acknowledge.latest_place", "latest_place"),
];
const STRETCH: [&str; 4] = [
    "acknowledge.from_number",
    "acknowledge.from_place",
    "acknowledge.to_number",
    "acknowledge.to_place",
];
const BAD: u64 = 0;
const GOOD: u64 = 1;
const UNVERIFIED: u64 = 2;

fn has_lua() -> bool {
    if installed() < Tshark::WithLua {
        println!("skipped: no tshark with Lua to decode the packets");
        return false;
    }
    true
}

/// With the dissector, for all packets to its port.
fn options() -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wireshark/lacuna-datagram.lua");
    let decode_as = format!("udp.port=={SERVER_PORT},lacuna_ddp");
    vec!["-X".into(), format!("lua_script:{script}"), "-d".into(), decode_as]
}

fn fields(capture: &Capture, options: &[String], fields: &[&str]) -> Vec<Vec<String>> {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let names: Vec<_> = fields.iter().map(|field| format!("lacuna_ddp.{field}")).collect();
    capture.fields(&options, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// All occurrences of a field in a packet, in their order.
fn numbers(text: &str) -> Vec<u64> {
    text.split(',').filter_map(number).collect()
}

/// Whether a payload that is no frames is shown as if it were.
fn is_pattern_as_control(fixture: &Fixture) -> bool {
    let is_plain = fixture.kind == "control" && fixture.frames().is_none();
    is_plain && fixture.is("last") && fixture.field("place") == 0
}

fn capture(name: &str, fixtures: &[Fixture]) -> Capture {
    let packets: Vec<_> = fixtures.iter().map(|fixture| udp(&fixture.packet)).collect();
    Capture::write(name, &packets, usize::MAX)
}

#[test]
fn the_dissector_shows_every_field_of_the_headers() {
    if !has_lua() {
        return;
    }
    let fixtures: Vec<_> = good().collect();
    let capture = capture("headers", &fixtures);
    let names: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
    for (fixture, line) in fixtures.iter().zip(fields(&capture, &options(), &names)) {
        for ((name, of_fixture), text) in FIELDS.iter().zip(&line) {
            let trailer = fixture.packet.last_chunk::<TRAILER_BYTES>().unwrap();
            let expected = match *of_fixture {
                "trailer" => Some(u64::from(u32::from_le_bytes(*trailer))),
                // All bits are shown, those that are ignored as well.
                "flags" if fixture.fields.contains_key("flags") => Some(fixture.packet[26].into()),
                // In a record it is always there.
                "group" if fixture.operation() == Operation::WriteRecord => {
                    Some(fixture.fields.get("group").copied().unwrap_or(0))
                }
                _ => fixture.fields.get(of_fixture).copied(),
            };
            assert_eq!(number(text), expected, "{name} of {}", fixture.label());
        }
    }

    let names = ["tagged", "version", "rdmap_version", "opcode", "queue", "solicited", "answer"];
    let names =
        [&names[..], &["named", "reliable", "trailer.status", "malformed", "damaged", "payload"]];
    for (fixture, line) in fixtures.iter().zip(fields(&capture, &options(), &names.concat())) {
        let label = fixture.label();
        let operation = fixture.operation();
        let flags = fixture.fields.get("flags");
        let mut expected =
            vec![Some(u64::from(operation == Operation::WriteRecord)), Some(1), Some(1)];
        expected.push(Some(operation as u64));
        expected.push(fixture.queue());
        expected.extend([1, 2, 4, 8].map(|bit| flags.map(|flags| u64::from(flags & bit != 0))));
        expected.push(Some(GOOD));
        let (columns, rest) = line.split_at(expected.len());
        let found: Vec<_> = columns.iter().map(|text| number(text)).collect();
        assert_eq!(found, expected, "{label}");
        let [malformed, damaged, payload] = rest else { panic!("{rest:?}") };
        assert_eq!(damaged, "", "{label}");
        if is_pattern_as_control(fixture) {
            continue;
        }
        assert_eq!(malformed, "", "{label}");
        let is_plain = fixture.request().is_none() && fixture.frames().is_none();
        let bytes = if is_plain { fixture.payload() } else { Vec::new() };
        // tshark prints long fields in part.
        if bytes.len() < 500 {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(payload.replace(':', ""), digits, "{label}");
        }
    }
}

#[test]
fn the_dissector_shows_every_frame_of_control() {
    if !has_lua() {
        return;
    }
    let fixtures: Vec<_> = good().filter(|fixture| fixture.fields.contains_key("frames")).collect();
    let capture = capture("frames", &fixtures);
    let names: Vec<_> = OF_FRAME.iter().map(|(name, _)| *name).collect();
    let rest = ["frame.kind", "frame.space", "missing.begin", "missing.end"];
    let names = [&names[..], &rest, &STRETCH].concat();
    for (fixture, line) in fixtures.iter().zip(fields(&capture, &options(), &names)) {
        let label = fixture.label();
        let field = |at: u64, name: &str| fixture.fields.get(&*format!("f{at}.{name}")).copied();
        let all = |name: &str| -> Vec<u64> {
            (0..fixture.fields["frames"]).filter_map(|at| field(at, name)).collect()
        };
        let (of_frame, line) = line.split_at(OF_FRAME.len());
        for ((_, name), text) in OF_FRAME.iter().zip(of_frame) {
            assert_eq!(numbers(text), all(name), "{name} of {label}");
        }
        let (heads, rows) = line.split_at(2);
        let frames = fixture.frames().unwrap();
        let ranges = frames.iter().flat_map(|frame| frame.ranges.iter().map(|row| row.to_vec()));
        let stretches =
            frames.iter().flat_map(|frame| frame.stretches.iter().map(|row| row.to_vec()));
        let (ranges, stretches): (Vec<_>, Vec<_>) = (ranges.collect(), stretches.collect());
        let column =
            |rows: &[Vec<u32>], at| rows.iter().map(|row| u64::from(row[at])).collect::<Vec<_>>();
        for (at, text) in rows.iter().enumerate() {
            let expected: Vec<u64> = match at {
                0 | 1 => column(&ranges, at),
                _ => column(&stretches, at - 2),
            };
            assert_eq!(numbers(text), expected, "{label}");
        }
        if !fixture.is("skipped") {
            assert_eq!(numbers(&heads[0]), all("kind"), "{label}");
            assert_eq!(numbers(&heads[1]), all("space"), "{label}");
        }
    }
}

#[test]
fn what_is_no_packet_is_marked_by_the_dissector() {
    if !has_lua() {
        return;
    }
    // tshark calls no dissector for a datagram without bytes.
    let fixtures: Vec<_> =
        all().filter(|fixture| fixture.kind == REFUSED && !fixture.packet.is_empty()).collect();
    let capture = capture("refused", &fixtures);
    let lines = fields(&capture, &options(), &["malformed", "trailer.status", "damaged"]);
    assert_eq!(lines.len(), fixtures.len());
    for (fixture, line) in fixtures.iter().zip(lines) {
        let is_damaged = fixture.name.starts_with("trailer:");
        let label = fixture.label();
        // The damaged ones of control are no frames.
        if !fixture.name.starts_with("trailer:control") {
            assert_eq!(line[0].is_empty(), is_damaged, "{label}: {line:?}");
        }
        assert_eq!(!line[2].is_empty(), number(&line[1]) == Some(BAD), "{label}: {line:?}");
        if is_damaged {
            assert_eq!(number(&line[1]), Some(BAD), "{label}");
        }
    }
}

#[test]
fn packets_are_recognized_without_a_port_and_others_left_alone() {
    if !has_lua() {
        return;
    }
    let of = |fixtures: Vec<Fixture>| -> Vec<_> {
        fixtures.iter().map(|fixture| udp(&fixture.packet)).collect()
    };
    let script = &options()[..2];
    let good: Vec<_> = good().collect();
    let count = good.len();
    let capture = Capture::write("recognized", &of(good), usize::MAX);
    let lines = fields(&capture, script, &["opcode"]);
    assert_eq!(lines.iter().filter(|line| !line[0].is_empty()).count(), count);

    for reason in ["too_short", "version", "opcode", "trailer"] {
        let is_so = |fixture: &Fixture| fixture.name.split(':').next() == Some(reason);
        let refused = of(all().filter(is_so).collect());
        assert!(refused.len() > 10, "{reason}");
        let capture = Capture::write(reason, &refused, usize::MAX);
        let lines = fields(&capture, script, &["opcode"]);
        assert!(lines.iter().all(|line| line[0].is_empty()), "{reason}: {lines:?}");
    }
}

#[test]
fn a_packet_that_was_captured_in_part_has_no_verdict() {
    if !has_lua() {
        return;
    }
    let fixtures: Vec<_> =
        good().filter(|fixture| fixture.name == "first" || fixture.name == "middle").collect();
    let packets: Vec<_> = fixtures.iter().map(|fixture| udp(&fixture.packet)).collect();
    let capture = Capture::write("part", &packets, 20 + 8 + 60);
    let lines = fields(&capture, &options(), &["trailer.status", "malformed", "payload_bytes"]);
    assert_eq!(lines.len(), 10);
    for line in lines {
        let found: Vec<_> = line.iter().map(|text| number(text)).collect();
        assert_eq!(found, [Some(UNVERIFIED), None, Some(100)]);
    }
}

#[test]
fn the_column_says_in_one_line_what_a_packet_is() {
    if !has_lua() {
        return;
    }
    let names = [
        "write_record first",
        "write_record flags-15",
        "write_record group-0abcde",
        "send group-0abcde",
        "send reliable",
        "read_request asks-plain-reliably",
        "send_solicited only",
        "read_request asks-plain",
        "control one-of-each",
        "refused trailer:send-byte-25",
    ];
    let find = |name: &&str| all().find(|fixture| fixture.label() == **name).expect(name);
    let fixtures: Vec<_> = names.iter().map(find).collect();
    let capture = capture("column", &fixtures);
    let options = options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let lines = capture.lines(&options);
    assert_eq!(lines.len(), names.len());
    let expected = [
        "Write-Record 168496141, bytes 0 to 100 of 300 to STag 0x89abcdef at 283687190287992",
        "Write-Record 168496141, bytes 0 to 4 of 4 to STag 0x89abcdef at 283687190287992 \
         [last, solicited, answer, named, reliable]",
        "Write-Record 168496141, bytes 0 to 4 of 4 to STag 0x89abcdef at 283687190287992 of group 703710 \
         [last]",
        "Send 168496141, bytes 0 to 5 of 5 to group 703710 [last]",
        "Send 168496141, bytes 0 to 5 of 5 [last, reliable]",
        "READ request 7: 555885348 bytes of STag 0x31323334 at 4702394921427289928 within 1364349780 us \
         [reliable]",
        "Send with Solicited Event 168496141, bytes 0 to 5 of 5 [last]",
        "READ request 7: 555885348 bytes of STag 0x31323334 at 4702394921427289928 within 1364349780 us",
        "Control: Report to probe 1: 3 bytes in all; Error of Send 5: no buffer; \
         Cancel of Write-Record 6: deadline; Sent up to Send 7; Sent up to group Send 7 of group 8; \
         Missing of group Write-Record 8: 2 ranges; Begin at reliable message 13 of instance 0x0000000e; \
         Ask at reliable message 15; \
         Acknowledge before reliable message 17, up to 825373492 at 1094861636 but for 2 stretches; \
         Probe 18; Error of READ 20: key",
        "Send 168496141, bytes 0 to 4 of 4 [last] [trailer does not match]",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        let (_, info) = line.split_once("DDP/UDP").unwrap_or_else(|| panic!("{line}"));
        // Behind the packet's length.
        let (_, info) = info.trim().split_once(' ').unwrap();
        assert_eq!(info, expected);
    }
}
