//! The kernel's own limit: the least that any transport over UDP with these
//! offloads must do, and nothing else. No bitmap, no check, no reliability.
//!
//! A packet is what Lacuna's is: 20 bytes that are not payload, and the payload
//! gathered from a large message. The receiver puts each payload where it
//! belongs, in one of two ways:
//!
//! - *copy*: coalesced packets come into one buffer, payloads are copied out;
//! - *scatter*: the kernel puts headers and payloads apart, each payload where
//!   it belongs if the packets come in order, as they do on loopback.
//!
//! A sender on loopback overruns its receiver, so the receiver opens a window,
//! through memory that both threads share.

#![allow(unsafe_code)]

mod syscall;

pub(crate) use syscall::{use_checksum, use_segmentation};

use crate::cell::Cell;
use crate::contestant::{Place, Sample};
use crate::meter::Meter;
use crate::pin;
use anyhow::{Result, ensure};
use lacuna_wire::Seal;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use syscall::{Gather, ReceiveCopy, ReceiveScatter};

/// How the receiver puts payloads in their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receive {
    Copy,
    Scatter,
}

/// What a data packet has beside its payload.
const OVERHEAD_BYTES: usize = Seal::Crc32c.overhead_bytes(false);
/// The most that one segmentation offload may take: the kernel's limits of
/// segments (`UDP_MAX_SEGMENTS`) and of bytes.
const SEGMENTS_MAX: usize = 64;
const BUNDLE_BYTES_MAX: usize = 65_507;

/// The best of the cell's windows.
pub(crate) fn throughput(cell: &Cell, place: &Place, receive: Receive) -> Result<Sample> {
    let mut best: Option<Sample> = None;
    for window in &cell.windows {
        let sample = with_window(cell, place, receive, *window)?;
        if best.as_ref().is_none_or(|best| best.value < sample.value) {
            best = Some(sample);
        }
    }
    best.ok_or_else(|| anyhow::anyhow!("the cell has no windows"))
}

fn with_window(cell: &Cell, place: &Place, receive: Receive, window: u64) -> Result<Sample> {
    let mtu = cell.mtu as usize;
    let segment_bytes = mtu + OVERHEAD_BYTES;
    let segments = SEGMENTS_MAX.min(BUNDLE_BYTES_MAX / segment_bytes);
    ensure!(segments > 0, "packets of {mtu} bytes do not fit into UDP");
    // Whole bundles, so that every message ends with one.
    let bundle_bytes = segments * mtu;
    let buffer_bytes = (cell.size as usize * cell.inflight as usize) / bundle_bytes * bundle_bytes;
    ensure!(buffer_bytes > 0, "no bundle of {bundle_bytes} bytes fits into the messages");
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    syscall::use_buffers(&sender, 4 << 20)?;
    syscall::use_buffers(&receiver, 32 << 20)?;
    syscall::use_segmentation(&sender, segment_bytes)?;
    syscall::use_coalescing(&receiver)?;
    sender.connect(receiver.local_addr()?)?;
    receiver.set_nonblocking(true)?;

    let received = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| -> Result<_> {
        let receiving = scope.spawn(|| -> Result<u64> {
            pin::this_thread(place.receive_core)?;
            let mut buffer = vec![0u8; buffer_bytes];
            let count = |bytes: usize| {
                received.fetch_add(bytes as u64, Ordering::Release);
            };
            match receive {
                Receive::Copy => {
                    let mut into = ReceiveCopy::new(segment_bytes, OVERHEAD_BYTES);
                    while !is_over.load(Ordering::Relaxed) {
                        into.receive(&receiver, &mut buffer, count)?;
                    }
                    Ok(0)
                }
                Receive::Scatter => {
                    let mut into = ReceiveScatter::new(segments, mtu, OVERHEAD_BYTES);
                    while !is_over.load(Ordering::Relaxed) {
                        into.receive(&receiver, &mut buffer, count)?;
                    }
                    Ok(into.wrong())
                }
            }
        });
        let sending = scope.spawn(|| -> Result<(f64, u64)> {
            pin::this_thread(place.send_core)?;
            let message = vec![0x5Au8; buffer_bytes];
            let headers = vec![0u8; OVERHEAD_BYTES];
            let mut gather = Gather::new();
            let (mut sent, mut at) = (0u64, 0);
            let mut meter = Meter::start(place.duration);
            let stalled = Instant::now() + 3 * place.duration;
            while meter.goes_on(received.load(Ordering::Acquire)) {
                // Looked at once a bundle, as a transport would.
                while sent - received.load(Ordering::Acquire) > window && Instant::now() < stalled {
                    std::hint::spin_loop();
                }
                gather.send(&sender, &headers, &message[at..at + bundle_bytes], mtu)?;
                sent += bundle_bytes as u64;
                at = (at + bundle_bytes) % buffer_bytes;
            }
            let rate = meter.gbit_per_s(received.load(Ordering::Acquire));
            // What is still under way is let come, so that a loss shows.
            let patience = Instant::now();
            while received.load(Ordering::Acquire) < sent
                && patience.elapsed() < Duration::from_millis(100)
            {
                std::hint::spin_loop();
            }
            is_over.store(true, Ordering::Relaxed);
            let lost = sent.saturating_sub(received.load(Ordering::Acquire)) / mtu as u64;
            Ok((rate, lost))
        });
        let sent = sending.join();
        is_over.store(true, Ordering::Relaxed);
        let wrong = receiving.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
        let (rate, lost) = sent.map_err(|_| anyhow::anyhow!("the sender panicked"))??;
        Ok((rate, lost, wrong))
    });
    let (value, lost, wrong) = taken?;
    Ok(Sample {
        value,
        lost: Some(lost),
        note: Some(format!("window {} KiB, {wrong} guessed wrong", window >> 10)),
        ..Sample::default()
    })
}

/// One datagram there and back, both ends busy polling: microseconds one way.
pub(crate) fn ping(cell: &Cell, place: &Place) -> Result<Sample> {
    let here = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let there = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    here.set_nonblocking(true)?;
    there.set_nonblocking(true)?;
    let packet = vec![0u8; cell.size as usize + OVERHEAD_BYTES];
    let is_over = AtomicBool::new(false);
    let times = std::thread::scope(|scope| -> Result<Vec<Duration>> {
        let echoing = scope.spawn(|| -> Result<()> {
            pin::this_thread(place.receive_core)?;
            let mut buffer = packet.clone();
            while poll(&there, &mut buffer, &is_over)? {
                there.send(&buffer)?;
            }
            Ok(())
        });
        let pinging = scope.spawn(|| -> Result<Vec<Duration>> {
            pin::this_thread(place.send_core)?;
            let mut buffer = packet.clone();
            let mut times = Vec::new();
            let begun = Instant::now();
            while begun.elapsed() < place.duration {
                let sent = Instant::now();
                here.send(&packet)?;
                if !poll(&here, &mut buffer, &is_over)? {
                    break;
                }
                times.push(sent.elapsed());
            }
            Ok(times)
        });
        let times = pinging.join();
        is_over.store(true, Ordering::Relaxed);
        echoing.join().map_err(|_| anyhow::anyhow!("the echo panicked"))??;
        times.map_err(|_| anyhow::anyhow!("the ping panicked"))?
    });
    Ok(one_way(times?))
}

/// The median of half the round trips.
pub(crate) fn one_way(mut round_trips: Vec<Duration>) -> Sample {
    round_trips.sort();
    let at = |share: f64| {
        let index = ((round_trips.len() as f64 * share) as usize).min(round_trips.len() - 1);
        round_trips[index].as_secs_f64() * 1e6 / 2.0
    };
    if round_trips.is_empty() {
        return Sample { value: f64::INFINITY, ..Sample::default() };
    }
    let note = format!("p99 {:.2} us, {} round trips", at(0.99), round_trips.len());
    Sample { value: at(0.5), note: Some(note), ..Sample::default() }
}

/// Receives one datagram without sleeping; `false` when it is over.
fn poll(socket: &UdpSocket, buffer: &mut [u8], is_over: &AtomicBool) -> Result<bool> {
    loop {
        match socket.recv(buffer) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if is_over.load(Ordering::Relaxed) {
            return Ok(false);
        }
        std::hint::spin_loop();
    }
}
