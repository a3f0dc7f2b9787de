//! `--pcap`: what is in the file is what the command counted, and the file is whole whatever ends
//! the command.

mod process;

use process::{Finished, Running, lacuna, piped, spawn};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn run(args: &[&str]) -> Finished {
    spawn(&mut lacuna(args)).finish()
}

fn start(args: &[&str]) -> (Running, String) {
    let server = spawn(&mut lacuna(args));
    let address = server.address();
    (server, address)
}

/// A packet of a capture over IPv4.
struct Packet {
    ports: (u16, u16),
    payload: Vec<u8>,
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// All packets of a file, and how much of a record is at its end that is not whole.
fn read(path: &Path) -> (Vec<Packet>, usize) {
    let file = std::fs::read(path).expect("there is a capture");
    assert_eq!(file[..4], 0xa1b2_3c4d_u32.to_le_bytes(), "times in nanoseconds");
    let mut rest = &file[24..];
    let mut packets = Vec::new();
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let bytes = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some((frame, behind)) = behind.split_at_checked(bytes) else { break };
        assert_eq!(frame[0], 0x45, "IPv4 without options");
        let ports = (be16(frame, 20), be16(frame, 22));
        packets.push(Packet { ports, payload: frame[28..].to_vec() });
        rest = behind;
    }
    (packets, rest.len())
}

/// Packets by the port that they came from, the most first.
fn by_source(packets: &[Packet]) -> Vec<u64> {
    let mut counts = BTreeMap::new();
    for packet in packets {
        *counts.entry(packet.ports.0).or_insert(0) += 1;
    }
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

fn count(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("no {name} in {object}"))
}

/// That the file holds what a command's summary says of it; both ends have one socket.
fn check_file(path: &Path, capture: &Value) -> Vec<Packet> {
    let (packets, cut) = read(path);
    assert_eq!(cut, 0, "whole records");
    assert_eq!(capture["file"], path.to_str().expect("text"));
    assert_eq!((&capture["limit_hit"], &capture["error"]), (&false.into(), &Value::Null));
    assert_eq!(count(capture, "left_out_packets"), 0);
    assert_eq!(count(capture, "bytes"), std::fs::metadata(path).expect("it is there").len());
    assert_eq!(count(capture, "packets"), packets.len() as u64);
    let mut counted = [count(capture, "sent_packets"), count(capture, "received_packets")];
    counted.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(by_source(&packets), counted, "in each direction");
    packets
}

/// Queue pairs of the packets of data (Send with immediate, Write with RETH), and how many those are.
fn data_by_queue_pair(packets: &[Packet]) -> BTreeMap<[u8; 3], u64> {
    let mut counts = BTreeMap::new();
    for Packet { payload, .. } in packets {
        if matches!(payload[0], 0x25 | 0x2b) {
            *counts.entry([payload[5], payload[6], payload[7]]).or_insert(0) += 1;
        }
    }
    counts
}

#[test]
fn a_capture_of_perf_holds_the_packets_that_were_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let (here, there) = (dir.path().join("client.pcap"), dir.path().join("server.pcap"));
    let listen = ["perf", "server", "--listen", "127.0.0.1:0", "--once", "--json", "--pcap"];
    let (server, address) = start(&[&listen[..], &[there.to_str().expect("text")]].concat());
    // Two connections, one file.
    let client = run(&[
        "perf",
        "client",
        &address,
        "--size",
        "256KiB",
        "-n",
        "20",
        "--mtu",
        "1400",
        "--json",
        "--pcap",
        here.to_str().expect("text"),
    ]);
    assert_eq!(client.code, 0, "{client:?}");
    let server = server.finish();
    assert_eq!(server.code, 0, "{server:?}");
    for said in [&client.stderr, &server.stderr] {
        assert!(said.contains("port 4791 and the ICRC are made up"), "{said}");
    }
    let result = &client.objects()[0];
    let packets = check_file(&here, &result["capture"]);
    assert!(packets.iter().all(|packet| packet.ports.1 == 4791));
    let data = data_by_queue_pair(&packets);
    let measured = data.values().max().copied().expect("there is data");
    assert_eq!(measured, count(result, "sent_packets"));
    // The result was told before the last packets, the last line was not.
    let seen = read(&there).0;
    let told = format!("captured {} packets", seen.len());
    assert!(server.stderr.contains(&told), "{} of {}", told, server.stderr);
    assert_eq!(data_by_queue_pair(&seen).values().max(), Some(&measured), "nothing was lost");
}

#[test]
fn captures_of_files_demo_and_probe_hold_what_was_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let name = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    std::fs::write(name("file"), vec![7; 300_000]).expect("written");
    let listen = ["recv", "--once", "--json", "--listen", "127.0.0.1:0", "--dir", &name("inbox")];
    let (receiver, address) = start(&[&listen[..], &["--pcap", &name("recv.pcap")]].concat());
    let sent = run(&["send", &name("file"), &address, "--json", "--pcap", &name("send.pcap")]);
    assert_eq!(sent.code, 0, "{sent:?}");
    check_file(Path::new(&name("send.pcap")), &sent.objects().last().expect("some")["capture"]);
    let received = receiver.finish();
    assert_eq!(received.code, 0, "{received:?}");
    assert!(received.objects().last().expect("some")["capture"].is_object());
    let (packets, _) = read(Path::new(&name("recv.pcap")));
    assert!(received.stderr.contains(&format!("captured {} packets", packets.len())));

    // Every mode has sockets of its own, and each packet is there once although both ends are here.
    let demo = [
        &["demo", "--size", "256KiB", "--rtt", "1ms", "--runs", "1", "--no-plot", "--json"][..],
        &["--mode", "sr", "--mode", "ec", "--pcap", &name("demo.pcap")],
    ];
    let demo = run(&demo.concat());
    assert_eq!(demo.code, 0, "{demo:?}");
    let (packets, cut) = read(Path::new(&name("demo.pcap")));
    assert_eq!((by_source(&packets).len(), cut), (4, 0));
    assert!(demo.stderr.contains(&format!("captured {} packets", packets.len())), "{demo:?}");

    let listen = ["probe", "server", "--once", "--listen", "127.0.0.1:0"];
    let (_server, address) = start(&listen);
    let probe = [
        &["probe", "client", &address, "-s", "1000", "-n", "1", "-D", "200ms", "--json"][..],
        &["--pcap", &name("probe.pcap")],
    ];
    let probe = run(&probe.concat());
    assert_eq!(probe.code, 0, "{probe:?}");
    assert!(!probe.stderr.contains("4791"), "probes keep their ports: {probe:?}");
    let capture = &probe.objects()[0]["capture"];
    let (packets, _) = read(Path::new(&name("probe.pcap")));
    let port: u16 = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let to_server = packets.iter().filter(|packet| packet.ports.1 == port).count() as u64;
    assert_eq!(to_server, count(capture, "sent_packets"));
    assert_eq!(packets.len() as u64 - to_server, count(capture, "received_packets"));
    assert!(packets.iter().all(|packet| packet.payload.starts_with(b"LPRB")));
}

#[test]
fn a_capture_ends_at_its_limit_and_says_so_once_while_the_command_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("small.pcap");
    let demo = [
        &["demo", "--size", "1MiB", "--rtt", "1ms", "--runs", "1", "--no-plot", "--json"][..],
        &["--mode", "sr", "--pcap-limit", "100KiB", "--pcap", path.to_str().expect("text")],
    ];
    let output = run(&demo.concat());
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.stderr.matches("is full").count(), 1, "{output:?}");
    let result = &output.objects()[0];
    assert_eq!(
        (&result["verified"], &result["capture"]["limit_hit"]),
        (&true.into(), &true.into())
    );
    let (packets, cut) = read(&path);
    let capture = &result["capture"];
    assert_eq!((count(capture, "packets"), cut), (packets.len() as u64, 0));
    assert!(std::fs::metadata(&path).expect("it is there").len() <= 100 << 10);
    let passed = count(capture, "sent_packets") + count(capture, "received_packets");
    assert_eq!(passed, count(capture, "packets") + count(capture, "left_out_packets"));
    assert!(passed > 256, "{capture}");
}

#[test]
fn a_file_that_cannot_be_written_is_said_at_once_in_one_line() {
    for command in [
        &["perf", "server", "--listen", "127.0.0.1:0"][..],
        &["perf", "client", "127.0.0.1:1"],
        &["send", ".", "127.0.0.1:1"],
        &["recv", "--listen", "127.0.0.1:0"],
        &["demo", "--no-plot"],
        &["probe", "server", "--listen", "127.0.0.1:0"],
        &["probe", "client", "127.0.0.1:1"],
    ] {
        let output = run(&[command, &["--pcap", "no such folder/file"]].concat());
        assert_eq!(output.code, 5, "{output:?}");
        assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
        assert!(output.stderr.contains("cannot write no such folder/file"), "{output:?}");
        let help = run(&[command, &["--help"]].concat());
        assert!(help.stdout.contains("--pcap-limit <SIZE>"), "{help:?}");
        let text = help.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("always 4791 and the trailer the ICRC"), "{help:?}");
    }
    let alone = run(&["demo", "--pcap-limit", "1MiB"]);
    assert_eq!(alone.code, 2, "{alone:?}");
}

#[cfg(unix)]
#[test]
fn a_killed_command_leaves_what_it_captured_and_tshark_decodes_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("killed.pcap");
    let (_server, address) = start(&["perf", "server", "--listen", "127.0.0.1:0"]);
    let client = [
        &["perf", "client", &address, "--rate", "10mbit", "-s", "64KiB", "-D", "1h"][..],
        &["--pcap", path.to_str().expect("text")],
    ];
    let client = spawn(&mut lacuna(&client.concat()));
    client.wait_for("mode auto");
    // Far less than any buffer would keep back.
    let since = std::time::Instant::now();
    while std::fs::metadata(&path).expect("it is there").len() < 100_000 {
        assert!(since.elapsed() < process::PATIENCE, "nothing gets into the file");
        std::thread::yield_now();
    }
    client.signal(rustix::process::Signal::KILL);
    client.finish();
    let (packets, cut) = read(&path);
    assert!(packets.len() > 10);
    // The system may cut short the very write that it kills the program in.
    if cut > 0 {
        println!("the last record is not whole: {cut} bytes");
    }
    if std::process::Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: no tshark to decode the capture");
        return;
    }
    let fields = ["-T", "fields", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed"];
    let path = path.to_str().expect("text");
    let decoded = spawn(&mut piped("tshark", &[&["-r", path][..], &fields].concat())).finish();
    assert_eq!(decoded.stdout.lines().count(), packets.len(), "{decoded:?}");
    for (line, packet) in decoded.stdout.lines().zip(&packets) {
        assert_eq!(line, format!("{}\t", packet.payload[0]), "well-formed InfiniBand");
    }
}
