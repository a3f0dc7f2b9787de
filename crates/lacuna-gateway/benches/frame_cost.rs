//! What a frame costs in a gateway, without loss: at the end where it leaves for the path and at the other,
//! by strength and size of payload.
//!
//! `cargo bench -p lacuna-gateway`. Each figure is the fastest of many runs over one message of 256 packets,
//! per data frame, its share of the repairs included; reading the frame and checking its ICRC are in it.
//! The bytes stay in the processor's cache. Under `cargo test --benches` each case runs once.

use lacuna_gateway::{AutoConfig, Config, Gateway};
use lacuna_wire::icrc_ipv4;
use std::hint::black_box;
use std::time::{Duration, Instant};

const PACKETS: u32 = 256;
const RUNS: u32 = 200;

/// A packet in the middle of a WRITE, or its first or last one.
fn frame(place: u32, psn: u32, payload_bytes: usize) -> Vec<u8> {
    let opcode = match place {
        0 => 0x06,
        _ if place + 1 == PACKETS => 0x08,
        _ => 0x07,
    };
    let [_, p2, p1, p0] = psn.to_be_bytes();
    let mut packet = vec![opcode, 0, 0xff, 0xff, 0, 0, 0x12, 0x34, 0, p2, p1, p0];
    let reth_bytes = if place == 0 { 16 } else { 0 };
    packet.resize(12 + reth_bytes + payload_bytes, place as u8);
    let udp_bytes = 8 + packet.len() as u16 + 4;
    let [t1, t0] = (20 + udp_bytes).to_be_bytes();
    let [l1, l0] = udp_bytes.to_be_bytes();
    let ip = [0x45, 0, t1, t0, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let udp = [0xc0, 0x12, 0x12, 0xb7, l1, l0, 0, 0];
    let mut frame = vec![2; 12];
    frame.extend([8, 0]);
    frame.extend(ip);
    frame.extend(udp);
    frame.extend(&packet);
    frame.extend(icrc_ipv4(&ip, &udp, &[&packet]));
    frame
}

fn main() {
    let runs = if std::env::args().any(|arg| arg == "--bench") { RUNS } else { 1 };
    println!("{:>8}  {:>9}  {:>11}  {:>11}", "payload", "", "to path ns", "from it ns");
    for payload_bytes in [256, 1024, 4096] {
        for text in ["off", "auto", "32:1", "8:1", "64:8", "mds:32:2"] {
            // With auto nothing is asked for, since time stands still: it is the cost of watching.
            let auto = (text == "auto").then(AutoConfig::default);
            let config = Config { auto, ..Config::new(text.parse().ok()) };
            let mut near = Gateway::new(config).expect("blocks may have it");
            let mut far = Gateway::new(config).expect("blocks may have it");
            let mut fastest = [Duration::MAX; 2];
            for run in 0..runs + 1 {
                let psn = |place: u32| (run * PACKETS + place) & 0xff_ffff;
                let frames: Vec<_> =
                    (0..PACKETS).map(|place| frame(place, psn(place), payload_bytes)).collect();
                let mut path = Vec::with_capacity(2 * frames.len());
                let start = Instant::now();
                for frame in &frames {
                    near.on_local(1, frame, &mut |frame| {
                        black_box(frame);
                    });
                }
                fastest[0] = fastest[0].min(start.elapsed());
                // The same again, to keep what leaves: a retransmission, which is coded as well.
                for frame in &frames {
                    near.on_local(1, frame, &mut |frame| path.push(frame.to_vec()));
                }
                let start = Instant::now();
                for frame in &path {
                    far.on_remote(1, frame, &mut |frame| {
                        black_box(frame);
                    });
                }
                fastest[1] = fastest[1].min(start.elapsed());
            }
            let [to, from] = fastest.map(|time| time.as_nanos() as f64 / f64::from(PACKETS));
            println!("{payload_bytes:>8}  {text:>9}  {to:>11.1}  {from:>11.1}");
        }
    }
}
