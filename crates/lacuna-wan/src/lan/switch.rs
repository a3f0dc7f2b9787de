//! The switch: one thread that forwards frames between the devices of a LAN's hosts.
//!
//! As the emulator of a path does ([`crate::emulator`]): it reads a frame, asks the way of each host that the frame
//! goes to ([`super::table`]) what comes out of it and when, and writes the parts when they are due. A frame to many
//! hosts is read once and stays in one place of the arena until its last part is written.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use rustix::io::{Errno, read};

use super::table::{Destination, Table};
use crate::arena::Arena;
use crate::bundle::ethernet::Header;
use crate::bundle::{Bundle, VNET_BYTES};
use crate::emulator::{
    READS_MAX, Writer, clock_ns, cpu_time, early_ns, sharpen_timers, wait_readable,
};
use crate::flight::Flight;
use crate::way::{Part, Way, WayConfig, WayCounters, WayError};

/// Requests of other threads to the switch.
pub(super) enum Request {
    /// Change the ways to all hosts.
    Change { config: Box<WayConfig>, answer: Sender<Result<(), WayError>> },
    /// Read the counters.
    Read { answer: Sender<LanProgress> },
    /// End the thread.
    Stop,
}

/// Counters of a LAN so far.
#[derive(Clone, Debug)]
pub struct LanProgress {
    /// Time since the LAN was made.
    pub elapsed: Duration,
    /// Of each host, in order.
    pub hosts: Vec<PortCounters>,
    /// Processor time of the switch.
    pub cpu: Duration,
}

/// Counters of one host of a LAN. Packets are those on the wire, not bundles; bytes include the IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortCounters {
    /// Packets that the host sent.
    pub sent_packets: u64,
    /// Bytes that the host sent.
    pub sent_bytes: u64,
    /// Of these packets, those for a group or for all.
    pub group_packets: u64,
    /// Of these packets, those that went to all as nobody was known to have their address.
    pub flooded_packets: u64,
    /// Frames that were no packets or could not be cut.
    pub malformed_frames: u64,
    /// The way from the switch to the host: what others sent to it, and what became of that.
    pub to_host: WayCounters,
}

/// The state of the thread.
pub(super) struct Switch {
    devices: Vec<OwnedFd>,
    /// To each host.
    ways: Vec<Way>,
    /// What each host sent; the ways have the rest.
    sent: Vec<PortCounters>,
    table: Table,
    arena: Arena,
    flight: Flight,
    requests: Receiver<Request>,
    /// An eventfd, readable when there is a request.
    waker: Arc<OwnedFd>,
    early_ns: u64,
    start_ns: u64,
    /// Whether each device may have frames to read.
    is_readable: Vec<bool>,
    // Buffers that are reused from frame to frame.
    parts: Vec<Part>,
    all_parts: Vec<(usize, Part)>,
    writer: Writer,
}

impl Switch {
    pub(super) fn new(
        devices: Vec<OwnedFd>,
        ways: Vec<Way>,
        table: Table,
        requests: Receiver<Request>,
        waker: Arc<OwnedFd>,
    ) -> Self {
        let hosts = devices.len();
        Self {
            devices,
            early_ns: early_ns(&ways),
            ways,
            sent: vec![PortCounters::default(); hosts],
            table,
            arena: Arena::new(2 * WayConfig::HELD_BYTES_MAX),
            flight: Flight::default(),
            requests,
            waker,
            start_ns: clock_ns(),
            is_readable: vec![true; hosts],
            parts: vec![],
            all_parts: vec![],
            writer: Writer::new(),
        }
    }

    /// Runs until it is asked to stop.
    pub(super) fn run(mut self) -> io::Result<LanProgress> {
        sharpen_timers()?;
        loop {
            for host in 0..self.devices.len() {
                if self.is_readable[host] {
                    self.is_readable[host] = self.read_frames(host)?;
                }
            }
            self.write_due(self.now_ns())?;
            if !self.answer_requests() {
                return Ok(self.progress());
            }
            match self.is_readable.contains(&true) {
                // Some devices are busy; the others were not polled.
                true => self.is_readable.fill(true),
                false => {
                    let next_ns = self.flight.next_ns();
                    let timeout_ns = next_ns.map(|next_ns| next_ns.saturating_sub(self.now_ns()));
                    wait_readable(&self.devices, &self.waker, timeout_ns, &mut self.is_readable)?;
                }
            }
        }
    }

    fn now_ns(&self) -> u64 {
        clock_ns() - self.start_ns
    }

    /// Reads frames that a host has sent; returns whether there may be more.
    fn read_frames(&mut self, from: usize) -> io::Result<bool> {
        for _ in 0..READS_MAX {
            // Without room, frames are read and dropped: a full LAN must lose packets and not block the host.
            let (room, has_room) = match self.arena.room() {
                Some(room) => (room, true),
                None => (&mut self.writer.scratch[..], false),
            };
            let frame_bytes = match read(&self.devices[from], &mut *room) {
                Ok(frame_bytes) => frame_bytes,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let frame = &room[..frame_bytes];
            let sent = &mut self.sent[from];
            let parsed = Bundle::parse_ethernet(frame).ok();
            let header = frame.get(VNET_BYTES..).and_then(Header::parse);
            let (Some(bundle), Some(header)) = (parsed, header) else {
                sent.malformed_frames += 1;
                continue;
            };
            let destination = self.table.on_frame(from, &header);
            let packets = u64::from(bundle.packets());
            sent.sent_packets += packets;
            sent.sent_bytes += bundle.wire_bytes();
            match destination {
                Destination::Group => sent.group_packets += packets,
                Destination::Flood => sent.flooded_packets += packets,
                Destination::One(_) | Destination::Nobody => {}
            }
            let is_ecn_capable = bundle.is_ecn_capable(frame);
            let now_ns = clock_ns() - self.start_ns;
            self.all_parts.clear();
            for (host, way) in self.ways.iter_mut().enumerate() {
                if !destination.has(host, from) {
                    continue;
                }
                if !has_room {
                    let counters = way.counters_mut();
                    counters.sent_packets += packets;
                    counters.sent_bytes += bundle.wire_bytes();
                    counters.held_dropped += packets;
                    continue;
                }
                self.parts.clear();
                way.on_bundle(now_ns, &bundle, is_ecn_capable, &mut self.parts);
                self.all_parts.extend(self.parts.iter().map(|part| (host, *part)));
            }
            if self.all_parts.is_empty() {
                continue;
            }
            let place = self.arena.keep(frame_bytes);
            self.flight.insert(place, bundle, self.all_parts.iter().copied());
            // Write frames without delay at once, while they are in the cache.
            self.write_due(now_ns)?;
        }
        Ok(true)
    }

    /// Writes the parts that are due.
    fn write_due(&mut self, now_ns: u64) -> io::Result<()> {
        while let Some((held, (host, part), is_last)) = self.flight.pop_due(now_ns + self.early_ns)
        {
            let frame = self.arena.frame(held.place);
            let counters = self.ways[host].counters_mut();
            self.writer.write(&self.devices[host], &held.bundle, frame, &part, counters)?;
            if is_last {
                self.arena.release(held.place);
            }
        }
        Ok(())
    }

    /// Answers requests; returns `false` when the thread is to end.
    fn answer_requests(&mut self) -> bool {
        loop {
            match self.requests.try_recv() {
                Ok(Request::Change { config, answer }) => {
                    let changed =
                        self.ways.iter_mut().try_for_each(|way| way.change((*config).clone()));
                    self.early_ns = early_ns(&self.ways);
                    // The requesting thread may have ended.
                    let _ = answer.send(changed);
                }
                Ok(Request::Read { answer }) => {
                    let _ = answer.send(self.progress());
                }
                Ok(Request::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn progress(&self) -> LanProgress {
        let hosts = self.sent.iter().zip(&self.ways);
        LanProgress {
            elapsed: Duration::from_nanos(self.now_ns()),
            hosts: hosts
                .map(|(sent, way)| PortCounters { to_host: *way.counters(), ..*sent })
                .collect(),
            cpu: cpu_time(),
        }
    }
}
