//! What a packet costs in the shim, without loss: encoder and decoder, by strength and size of payload.
//!
//! `cargo bench -p lacuna-lowar`. Each figure is the fastest of many runs over one message of 256 packets,
//! per data packet, its share of the repairs included. The bytes stay in the processor's cache. Under
//! `cargo test --benches` each case runs once, so that it does not rot.

use lacuna_lowar::{
    AutoConfig, Decoder, DecoderConfig, Encoder, How, Shared, Shim, ShimConfig, Upper,
};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{CodeKind, Fields, Opcode, RcHeader, RepairHeader, Strength};
use std::hint::black_box;
use std::time::{Duration, Instant};

const PACKETS: usize = 256;
const RUNS: u32 = 400;

/// Takes everything and does nothing.
struct Sink;

impl Upper for Sink {
    fn take(&mut self, packet: &[u8], _: How) {
        black_box(packet);
    }
}

fn message(payload_bytes: usize) -> Vec<Vec<u8>> {
    let packet = |place: usize| {
        let opcode = match place {
            0 => Opcode::SendFirst,
            _ if place + 1 == PACKETS => Opcode::SendLast,
            _ => Opcode::SendMiddle,
        };
        let header = RcHeader {
            opcode,
            destination: Qpn::from_bits(0x1234),
            psn: place as u32,
            asks_ack: false,
            is_solicited: false,
            fields: Fields::None,
        };
        let mut packet = vec![place as u8; header.packet_bytes(payload_bytes)];
        header.emit(payload_bytes, &mut packet);
        packet
    };
    (0..PACKETS).map(packet).collect()
}

/// Each packet of all runs has a number of its own.
fn renumber(packets: &mut [Vec<u8>], run: u32) {
    for (place, packet) in packets.iter_mut().enumerate() {
        let psn = (run * PACKETS as u32 + place as u32) & 0xff_ffff;
        packet[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
    }
}

fn main() {
    let runs = if std::env::args().any(|arg| arg == "--bench") { RUNS } else { 1 };
    println!("{:>8}  {:>12}  {:>10}  {:>10}", "payload", "", "encode ns", "decode ns");
    let strength = |block_packets, repairs, code| Some(Strength { block_packets, repairs, code });
    for payload_bytes in [256, 1024, 4096] {
        let mut packets = message(payload_bytes);
        for (name, strength) in [
            ("off", None),
            ("xor 32:1", strength(32, 1, CodeKind::Xor)),
            ("xor 8:2", strength(8, 2, CodeKind::Xor)),
            ("xor 64:8", strength(64, 8, CodeKind::Xor)),
            ("mds 32:2", strength(32, 2, CodeKind::Mds)),
            ("mds 32:8", strength(32, 8, CodeKind::Mds)),
        ] {
            let mut shared = Shared::default();
            let (mut encoder, mut decoder) =
                (Encoder::new(), Decoder::new(DecoderConfig::new(Qpn::from_bits(0x1234))));
            encoder.set_strength(strength).expect("blocks may have it");
            let mut fastest = [Duration::MAX; 2];
            for run in 0..runs {
                renumber(&mut packets, run);
                let mut leaving = Vec::new();
                for packet in &packets {
                    leaving.extend(encoder.announcement(packet).map(|bytes| bytes.to_vec()));
                    leaving.push(packet.clone());
                    encoder.on_packet(&mut shared.encode, packet, &mut |repair| {
                        leaving.push(repair.to_vec());
                    });
                }
                // The same again, without keeping anything.
                renumber(&mut packets, run + runs);
                let start = Instant::now();
                for packet in &packets {
                    encoder.on_packet(&mut shared.encode, packet, &mut |repair| {
                        black_box(repair);
                    });
                }
                fastest[0] = fastest[0].min(start.elapsed());
                let start = Instant::now();
                for packet in &leaving {
                    receive(&mut decoder, &mut shared, packet);
                }
                fastest[1] = fastest[1].min(start.elapsed());
            }
            let [encode, decode] = fastest.map(|time| time.as_nanos() as f64 / PACKETS as f64);
            println!("{payload_bytes:>8}  {name:>12}  {encode:>10.1}  {decode:>10.1}");
        }
    }
    choosing(runs);
}

/// What a packet costs a receiver that also chooses the strength, on average over all: 64 packets are taken at
/// a time, as from a socket, at a gigabit per second, and a hundredth of them is lost.
fn choosing(runs: u32) {
    for is_auto in [false, true] {
        let auto = is_auto.then(AutoConfig::default);
        let config = ShimConfig { auto, ..ShimConfig::new(Qpn::from_bits(0x1234)) };
        let mut shim = Shim::new(config).expect("no strength");
        let mut shared = Shared::default();
        let mut packets = message(1024);
        let (mut took, mut now_ns) = (Duration::ZERO, 0);
        for run in 0..runs {
            renumber(&mut packets, run);
            let start = Instant::now();
            for (place, packet) in packets.iter().enumerate() {
                if !(place + 37 * run as usize).is_multiple_of(100) {
                    shim.on_receive(now_ns, &mut shared, packet, &mut Sink);
                }
                if place % 64 == 63 {
                    now_ns += 64 * 8_600;
                    black_box(shim.poll_request(now_ns, 40_000_000, Qpn::from_bits(1)));
                }
            }
            took += start.elapsed();
        }
        let each = took.as_nanos() as f64 / f64::from(runs) / PACKETS as f64;
        let name = if is_auto { "and chooses" } else { "only passes" };
        println!("{:>8}  {name:>12}  {:>10}  {each:>10.1}", 1024, "");
    }
}

fn receive(decoder: &mut Decoder, shared: &mut Shared, packet: &[u8]) {
    if packet[0] != 0x1f {
        return decoder.on_packet(0, shared, packet, &mut Sink);
    }
    match RepairHeader::parse(packet, 0) {
        Ok((_, RepairHeader::Repair { block, index }, sum)) => {
            decoder.on_repair(0, shared, &block, index, sum, &mut Sink);
        }
        Ok((_, RepairHeader::Announce { first_psn, strength, .. }, _)) => {
            decoder.on_announce(first_psn, strength);
        }
        _ => unreachable!("the encoder made it"),
    }
}
