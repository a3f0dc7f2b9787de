//! The bitmap engine on its own, as in figures 14 to 16 of SDR-RDMA: packets
//! fed from memory, so that the cost of slot lookup, generation check, packet
//! bit and chunk bit is seen without sockets. Packets carry the least payload
//! that a geometry allows (64 bytes), which is placed as always.

use crate::pin;
use crate::run::spread;
use anyhow::{Context as _, Result, anyhow};
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::{Geometry, GeometryConfig, MTU_BYTES_MIN};
use lacuna_place::placement::Placement;
use lacuna_place::writer::ChannelWriter;
use lacuna_proto::modes::{Mode, auto};
use lacuna_proto::qp::{Peer, PostedReceive, QpConfig, QueuePair};
use lacuna_wire::{DataHeader, ImmediateFields, ImmediateSplit, Qpn};
use serde::Serialize;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Packets of one burst: a bundle of segmentation offload.
const BURST_PACKETS: usize = 64;
/// Packets of all messages that are open at once: their buffers, 4 MiB, and
/// their headers do not outgrow the caches.
const OPEN_PACKETS: u32 = 1 << 16;
const RKEY: u32 = 0x5EED;

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Point {
    pub(crate) chunk_packets: u32,
    pub(crate) workers: usize,
    pub(crate) slots: u32,
    /// All workers together.
    pub(crate) mpackets_per_s: f64,
}

/// Measures each point of the three axes `rounds` times; prints a table.
pub(crate) fn run(rounds: u32, json: bool) -> Result<()> {
    let cores = pin::allowed()?;
    let base = Point { chunk_packets: 16, workers: 1, slots: 1, mpackets_per_s: 0.0 };
    let mut points: Vec<Point> =
        [1, 2, 4, 8, 16, 32, 64].map(|c| Point { chunk_packets: c, ..base.clone() }).into();
    points.extend((2..=cores.len()).map(|workers| Point { workers, ..base.clone() }));
    points.extend([16, 64, 256, 1024].map(|slots| Point { slots, ..base.clone() }));
    let mut rates = vec![Vec::new(); points.len()];
    for _ in 0..rounds {
        for (point, rates) in points.iter().zip(&mut rates) {
            rates.push(measure(point, &cores)?);
        }
    }
    if !json {
        println!("packets per chunk  workers  slots in use  million packets/s [least-most]");
    }
    for (point, rates) in points.iter_mut().zip(rates) {
        let rate = spread(rates).context("no rounds")?;
        point.mpackets_per_s = rate.median;
        if json {
            println!("{}", serde_json::to_string(point)?);
        } else {
            println!(
                "{:>17}  {:>7}  {:>12}  {:>8.1} [{:.1}-{:.1}]",
                point.chunk_packets, point.workers, point.slots, rate.median, rate.least, rate.most
            );
        }
    }
    Ok(())
}

/// Million packets a second of all workers, each with a queue pair of its own.
fn measure(point: &Point, cores: &[usize]) -> Result<f64> {
    let barrier = Barrier::new(point.workers);
    let times = std::thread::scope(|scope| -> Result<Vec<(u64, Duration)>> {
        let workers: Vec<_> = (0..point.workers)
            .map(|worker| {
                let barrier = &barrier;
                scope.spawn(move || -> Result<_> {
                    pin::this_thread(cores[worker % cores.len()])?;
                    let mut engine = Engine::new(point.chunk_packets, point.slots)?;
                    engine.round()?;
                    barrier.wait();
                    let (mut packets, mut busy) = (0, Duration::ZERO);
                    while busy < Duration::from_millis(100) {
                        let (placed, took) = engine.round()?;
                        packets += placed;
                        busy += took;
                    }
                    Ok((packets, busy))
                })
            })
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Result<_>>| {
            worker.join().map_err(|_| anyhow!("a worker panicked"))?
        };
        workers.into_iter().map(join).collect()
    })?;
    let rate = |(packets, busy): &(u64, Duration)| *packets as f64 / busy.as_secs_f64() / 1e6;
    Ok(times.iter().map(rate).sum())
}

/// The receiving side of one queue pair, and the packets it is fed with.
struct Engine {
    qp: QueuePair,
    writer: ChannelWriter,
    geometry: Geometry,
    slots: u32,
    /// Next message to be posted.
    next: u64,
    buffers: Vec<Vec<u8>>,
}

impl Engine {
    fn new(chunk_packets: u32, slots: u32) -> Result<Self> {
        let packets = OPEN_PACKETS / slots;
        let geometry = Geometry::new(GeometryConfig {
            mtu_bytes: MTU_BYTES_MIN,
            chunk_packets: chunk_packets.min(packets),
            stripe_packets: 64,
            channels: 1,
            generations: 4,
            split: ImmediateSplit::default(),
            max_message_bytes: u64::from(packets) * u64::from(MTU_BYTES_MIN),
            code: None,
            ..GeometryConfig::default()
        })?;
        let mut qp = QueuePair::new(QpConfig {
            geometry,
            mode: Mode::Raw,
            policy: auto::plan,
            controller: ControllerConfig::Fixed { rate_bits_per_s: 1_000_000_000 },
            rto: RtoConfig::default(),
            queue_pair: 1,
            rkey: RKEY,
            qkey: 0,
            first_psn: 0,
            credit_bytes: 1 << 20,
            silence_max_ns: u64::MAX,
        });
        qp.connect(0, Peer { queue_pair: 1, rkey: 0, qkey: 0, first_psn: 0, credit_bytes: 1 });
        let writer = qp.take_writers().pop().context("one channel has one writer")?;
        let bytes = packets as usize * MTU_BYTES_MIN as usize;
        let buffers = (0..slots).map(|_| vec![0; bytes]).collect();
        Ok(Self { qp, writer, geometry, slots, next: 0, buffers })
    }

    /// Posts as many messages as slots are in use, places all their packets, a
    /// burst of each message in turn, and completes them. Only the placing
    /// counts: packets, and the time they took.
    fn round(&mut self) -> Result<(u64, Duration)> {
        let first = self.next;
        let mut posted: Vec<PostedReceive> = Vec::new();
        for buffer in std::mem::take(&mut self.buffers) {
            posted.push(self.qp.post_receive(0, Placement::from_vec(buffer))?);
        }
        self.next += posted.len() as u64;
        let headers = self.headers(first);
        let payload = [0x5A; MTU_BYTES_MIN as usize];
        let mut placed = 0;
        let begun = Instant::now();
        for burst in headers.chunks(BURST_PACKETS) {
            let mut placer = self.writer.burst();
            for header in burst {
                placer.place(header, &payload, false);
            }
            placed += placer.finish().packets;
        }
        let took = begun.elapsed();
        anyhow::ensure!(placed == headers.len() as u64, "only {placed} packets were placed");
        for posted in posted {
            anyhow::ensure!(posted.is_complete(), "a message is not complete");
            for part in &posted.parts {
                self.qp.table().close(part.number());
            }
            self.qp.on_receive_closed(0, &posted);
            self.buffers.push(posted.into_vec().context("somebody holds the buffer")?);
        }
        Ok((placed, took))
    }

    /// The packets of all messages from `first` on.
    fn headers(&self, first: u64) -> Vec<DataHeader> {
        let packets = OPEN_PACKETS / self.slots;
        let turns = packets.div_ceil(BURST_PACKETS as u32);
        let mut headers = Vec::with_capacity(OPEN_PACKETS as usize);
        for turn in 0..turns {
            for number in first..first + u64::from(self.slots) {
                let range =
                    turn * BURST_PACKETS as u32..packets.min((turn + 1) * BURST_PACKETS as u32);
                headers.extend(range.map(|packet| self.header(number, packet, packets)));
            }
        }
        // The sequence numbers are in the order of sending.
        for (header, psn) in headers.iter_mut().zip(first * u64::from(packets)..) {
            header.psn = (psn & 0xFF_FFFF) as u32;
        }
        headers
    }

    fn header(&self, number: u64, packet: u32, packets: u32) -> DataHeader {
        let slot = self.geometry.slot_of(number);
        let fields = ImmediateFields { message: slot, packet, fragment: 0 };
        DataHeader {
            dest: Qpn::new(1, 0, self.geometry.generation_of(number)),
            psn: 0,
            ends_message: packet + 1 == packets,
            carries_immediate: false,
            address: None,
            rkey: RKEY,
            length: MTU_BYTES_MIN,
            behind: 0,
            immediate: self.geometry.split().pack(fields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Engine;

    #[test]
    fn every_packet_is_placed_round_after_round() {
        for (chunk_packets, slots) in [(1, 1), (16, 16), (64, 1024)] {
            let mut engine = Engine::new(chunk_packets, slots).unwrap();
            for _ in 0..6 {
                engine.round().unwrap();
            }
        }
    }
}
