//! What a packet costs in this crate: reading its layout, checking its trailer, writing its
//! headers; by size of payload.
//!
//! `cargo bench -p lacuna-wire`. Each figure is the fastest of many short runs, which is what the
//! code costs when nothing disturbs it. The bytes stay in the processor's cache, so the checksum
//! is at its best; a packet fresh from the kernel is, too. Under `cargo test --benches` each case
//! runs once, so that it does not rot.

use std::hint::black_box;
use std::time::{Duration, Instant};

use lacuna_wire::{
    DATA_HEADER_BYTES, DataHeader, Packet, Qpn, Seal, check_crc32c, crc32c, icrc_ipv4, parse,
    parse_checked,
};

/// Calls in a run: enough to hide the clock's own cost, few enough to fit between interruptions.
const CALLS: u32 = 1000;
const RUNS: u32 = 2000;

fn main() {
    let runs = if std::env::args().any(|arg| arg == "--bench") { RUNS } else { 1 };
    println!("{:>8}  {:>28}  {:>10}  {:>8}", "payload", "", "ns", "GB/s");
    for length in [0, 64, 1400, 4096, 8192] {
        let header = header(length);
        let packet = packet(&header, length);
        let payload = &packet[DATA_HEADER_BYTES..][..length];
        let report = |name: &str, time: Duration| {
            let ns = time.as_secs_f64() * 1e9 / f64::from(CALLS);
            println!("{length:>8}  {name:>28}  {ns:>10.2}  {:>8.1}", packet.len() as f64 / ns);
        };
        report("parse", fastest(runs, || parse(black_box(&packet))));
        report("check_crc32c", fastest(runs, || check_crc32c(black_box(&packet))));
        report("parse and check", fastest(runs, || receive(black_box(&packet))));
        report("emit", fastest(runs, || emit(black_box(&header))));
        report(
            "crc32c of header and payload",
            fastest(runs, || crc32c(black_box(&[&packet[..DATA_HEADER_BYTES], payload]))),
        );
        report(
            "icrc_ipv4",
            fastest(runs, || {
                icrc_ipv4(&[0x45; 20], &[0; 8], black_box(&[&packet[..DATA_HEADER_BYTES], payload]))
            }),
        );
    }
}

fn receive(packet: &[u8]) -> u32 {
    match parse_checked(packet) {
        Ok(Packet::Data(header, _)) => header.rkey,
        _ => unreachable!("the packet is whole"),
    }
}

fn emit(header: &DataHeader) -> [u8; DATA_HEADER_BYTES] {
    let mut out = [0; DATA_HEADER_BYTES];
    header.emit(&mut out);
    out
}

fn fastest<T>(runs: u32, mut call: impl FnMut() -> T) -> Duration {
    let run = |_| {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(call());
        }
        start.elapsed()
    };
    (0..runs).map(run).min().expect("at least one run")
}

fn header(length: usize) -> DataHeader {
    DataHeader {
        dest: Qpn::new(7, 3, 1),
        psn: 0x1_0203,
        ends_message: false,
        carries_immediate: false,
        address: None,
        rkey: 0x1122_3344,
        length: length as u32,
        behind: 0,
        immediate: 0x0040_0120,
    }
}

fn packet(header: &DataHeader, length: usize) -> Vec<u8> {
    let mut packet = vec![0; Seal::Crc32c.packet_bytes(header)];
    Seal::Crc32c.emit_packet(header, &mut packet, &vec![0x5a; length]);
    packet
}
