//! How fast two UDP datapaths exchange packets over loopback.
//!
//! One thread sends, one receives, each pinned to a core. Packets look like Lacuna's: 48 bytes of
//! header, a payload gathered from a large buffer that is walked from end to end, 4 bytes of
//! trailer. Without flow control a sender on loopback overruns its receiver, so the receiver feeds
//! a window.
//!
//! ```text
//! cargo run --release -p lacuna-datapath --example udp_rate -- [OPTION=VALUE]...
//!
//!   payload=4096   bytes of payload in a packet
//!   window=1024    packets in flight
//!   burst=64       packets handed to the datapath at once
//!   seconds=2      length of a round
//!   rounds=3       number of rounds
//!   buffer=268435456   bytes of the buffers; larger than the caches for a cold figure
//!   place=1        the receiver copies each payload to its place
//!   plain=0        one packet a call, without offloads
//!   spin=1         the receiver polls instead of sleeping
//! ```

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lacuna_datapath::{
    Burst, BurstBuffers, Datapath, Offload, Placer, ReceivedBatch, Udp, UdpConfig, Waiter,
};

const HEADER_BYTES: usize = 48;
const TRAILER_BYTES: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Options {
    payload: usize,
    window: u64,
    burst: u64,
    seconds: u64,
    rounds: u64,
    buffer: usize,
    place: bool,
    plain: bool,
    spin: bool,
}

fn parse() -> Option<Options> {
    let mut options = Options {
        payload: 4096,
        window: 1024,
        burst: 64,
        seconds: 2,
        rounds: 3,
        buffer: 256 << 20,
        place: true,
        plain: false,
        spin: true,
    };
    for argument in std::env::args().skip(1) {
        let (name, value) = argument.split_once('=')?;
        let value: u64 = value.parse().ok()?;
        match name {
            "payload" => options.payload = value.try_into().ok()?,
            "window" => options.window = value,
            "burst" => options.burst = value.min(Burst::PACKETS_MAX as u64),
            "seconds" => options.seconds = value,
            "rounds" => options.rounds = value,
            "buffer" => options.buffer = value.try_into().ok()?,
            "place" => options.place = value != 0,
            "plain" => options.plain = value != 0,
            "spin" => options.spin = value != 0,
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let Some(options) = parse() else {
        eprintln!(
            "options: payload, window, burst, seconds, rounds, buffer, place, plain, spin (=number)"
        );
        return ExitCode::FAILURE;
    };
    let mut received = vec![1u8; options.buffer];
    let sent = vec![2u8; options.buffer];
    for _ in 0..options.rounds {
        let round = round(options, &sent, &mut received);
        println!(
            "{:.1} Gbit/s of payload, {:.2} Mpps, {:.1} packets a batch, {} drops",
            round.packets as f64 * options.payload as f64 * 8.0 / round.seconds / 1e9,
            round.packets as f64 / round.seconds / 1e6,
            round.packets as f64 / round.batches as f64,
            round.drops,
        );
    }
    ExitCode::SUCCESS
}

#[derive(Clone, Copy, Debug)]
struct Round {
    packets: u64,
    batches: u64,
    drops: u64,
    seconds: f64,
}

fn bind(options: Options) -> Udp {
    let offload = if options.plain { Offload::Plain } else { Offload::Auto };
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    Udp::bind(UdpConfig { offload, ..UdpConfig::new(local) }).expect("loopback is there")
}

fn round(options: Options, sent: &[u8], received: &mut [u8]) -> Round {
    let mut sender = bind(options);
    let mut receiver = bind(options);
    let destination = receiver.local_addr();
    let progress = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            pin_to(1);
            let (mut waiter, _waker) = Waiter::new().expect("a file descriptor");
            let mut sink = Sink { received, at: 0, packets: 0, batches: 0, options };
            let start = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                let packets = receiver.receive(0, &mut sink).expect("a sound socket");
                progress.store(sink.packets, Ordering::Release);
                if packets == 0 && !options.spin {
                    let timeout = Some(Duration::from_millis(10));
                    waiter.wait([&receiver as &dyn Datapath], timeout).expect("a sound socket");
                }
            }
            Round {
                packets: sink.packets,
                batches: sink.batches,
                drops: receiver.receive_drops(),
                seconds: start.elapsed().as_secs_f64(),
            }
        });
        pin_to(0);
        send(options, sent, &mut sender, destination, &progress);
        stop.store(true, Ordering::Relaxed);
        receiving.join().expect("the receiver does not panic")
    })
}

fn send(
    options: Options,
    sent: &[u8],
    sender: &mut Udp,
    destination: SocketAddr,
    progress: &AtomicU64,
) {
    let mut buffers = BurstBuffers::new();
    let mut payloads = sent.chunks_exact(options.payload).cycle();
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut last_progress = (0, Instant::now());
    let mut packets = 0;
    while Instant::now() < end {
        let received = progress.load(Ordering::Acquire);
        let room = options.window.saturating_sub(packets - received);
        if room < options.burst.min(options.window) {
            // Should a packet be lost nevertheless, its place in the window comes back.
            if received != last_progress.0 {
                last_progress = (received, Instant::now());
            } else if last_progress.1.elapsed() > Duration::from_millis(100) {
                packets = received;
            }
            continue;
        }
        let mut burst = buffers.start(destination);
        for payload in payloads.by_ref().take(options.burst.min(room) as usize) {
            burst.push(&[1; HEADER_BYTES], payload, &[3; TRAILER_BYTES]);
        }
        packets += burst.len() as u64;
        send_all(sender, &mut burst);
    }
}

fn send_all(sender: &mut Udp, burst: &mut Burst<'_, '_>) {
    while !burst.is_empty() {
        let taken = sender.send(0, burst).expect("loopback takes any packet");
        burst.advance(taken);
    }
}

struct Sink<'a> {
    received: &'a mut [u8],
    at: usize,
    packets: u64,
    batches: u64,
    options: Options,
}

impl Placer for Sink<'_> {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        self.batches += 1;
        self.packets += batch.len() as u64;
        if !self.options.place {
            return;
        }
        for packet in batch.packets() {
            let payload = &packet[HEADER_BYTES..packet.len() - TRAILER_BYTES];
            if self.at + payload.len() > self.received.len() {
                self.at = 0;
            }
            self.received[self.at..][..payload.len()].copy_from_slice(payload);
            self.at += payload.len();
        }
    }
}

/// Keeps this thread on one core, where the system allows it.
fn pin_to(core: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: an all-zero cpu_set_t is an empty set; the call reads it for the calling thread only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = core;
}
