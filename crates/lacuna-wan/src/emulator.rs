//! The emulator: one thread that forwards frames between the hosts' devices.
//!
//! It reads a frame, asks its way how the bundle is cut and when its parts come out, and writes each
//! part when it is due. [`crate::way`] makes all decisions; this file has the clock and the system
//! calls. Frames are read into the arena ([`crate::arena`]) and parts are written from it behind new
//! headers, so only the kernel copies payload.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write, writev};
use rustix::time::{ClockId, clock_gettime};

use crate::arena::Arena;
use crate::bundle::{Bundle, FRAME_BYTES_MAX, PartHeader};
use crate::flight::Flight;
use crate::timeline::Timeline;
use crate::way::{Part, Way, WayConfig, WayCounters, WayError};

/// Frames read from one host before the next host's turn and before due parts are written.
pub(crate) const READS_MAX: usize = 16;

/// If the thread is awake, it writes parts early: by a hundredth of the delay, at most by this. At
/// 1 Gbit/s half of the processor time is for wake-ups, and parts close together then share one. A
/// sleeping thread wakes up some tens of microseconds late, so the error is no larger than without.
const EARLY_NS_MAX: u64 = 50_000;

/// Requests of other threads to the emulator.
pub(crate) enum Request {
    /// Change the settings of a way.
    Change { way: usize, config: Box<WayConfig>, answer: Sender<Result<(), WayError>> },
    /// Read the counters.
    Read { answer: Sender<Progress> },
    /// End the thread.
    Stop,
}

/// Counters of a path so far.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Time since the path was made.
    pub elapsed: Duration,
    /// To the server, to the client.
    pub ways: [WayCounters; 2],
    /// Processor time of the emulator.
    pub cpu: Duration,
}

/// The state of the thread.
pub(crate) struct Emulator {
    /// Source and destination device of each way.
    ends: [(Arc<OwnedFd>, Arc<OwnedFd>); 2],
    ways: [Way; 2],
    arena: Arena,
    flight: Flight,
    timeline: Timeline,
    requests: Receiver<Request>,
    /// An eventfd, readable when there is a request.
    waker: Arc<OwnedFd>,
    /// How much too early a part may be written; see [`EARLY_NS_MAX`].
    early_ns: u64,
    /// Clock time at which the path's time is 0.
    start_ns: u64,
    /// Whether each way's source may have frames to read.
    is_readable: [bool; 2],
    /// Reused from frame to frame.
    parts: Vec<Part>,
    writer: Writer,
}

/// Writes parts of frames to devices. Its buffers are reused from part to part.
pub(crate) struct Writer {
    header: PartHeader,
    /// A part that differs from its frame, or a frame that is dropped: [`FRAME_BYTES_MAX`] long.
    pub(crate) scratch: Vec<u8>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { header: PartHeader::default(), scratch: vec![0; FRAME_BYTES_MAX] }
    }

    /// Writes a part and counts it.
    pub(crate) fn write(
        &mut self,
        sink: &OwnedFd,
        bundle: &Bundle,
        frame: &[u8],
        part: &Part,
        counters: &mut WayCounters,
    ) -> io::Result<()> {
        let packets = part.start..part.end;
        let result = if let Some(bit) = part.flipped_bit {
            let out = &mut self.scratch;
            bundle.corrupt(frame, part.start, part.is_marked, bit, out);
            let result = write(sink, out);
            out.resize(FRAME_BYTES_MAX, 0);
            result
        } else {
            match bundle.cut(frame, packets.clone(), part.is_marked, &mut self.header) {
                [whole, []] => write(sink, whole),
                [head, payload] => writev(sink, &[IoSlice::new(head), IoSlice::new(payload)]),
            }
        };
        let count = u64::from(part.end - part.start);
        match result {
            Ok(_) => {
                counters.delivered_packets += count;
                counters.delivered_bytes += bundle.wire_bytes_of(packets);
            }
            // The device was removed.
            Err(error @ (Errno::BADF | Errno::BADFD)) => return Err(error.into()),
            Err(_) => counters.refused += count,
        }
        Ok(())
    }

    /// The frame that [`Writer::write`] would write.
    pub(crate) fn copy(&mut self, bundle: &Bundle, frame: &[u8], part: &Part, out: &mut Vec<u8>) {
        if let Some(bit) = part.flipped_bit {
            return bundle.corrupt(frame, part.start, part.is_marked, bit, out);
        }
        out.clear();
        for piece in bundle.cut(frame, part.start..part.end, part.is_marked, &mut self.header) {
            out.extend_from_slice(piece);
        }
    }
}

impl Emulator {
    /// `server` and `client` are the devices of the hosts.
    pub(crate) fn new(
        [server, client]: [OwnedFd; 2],
        ways: [Way; 2],
        timeline: Timeline,
        requests: Receiver<Request>,
        waker: Arc<OwnedFd>,
    ) -> Self {
        let (server, client) = (Arc::new(server), Arc::new(client));
        Self {
            ends: [(Arc::clone(&client), Arc::clone(&server)), (server, client)],
            early_ns: early_ns(&ways),
            ways,
            arena: Arena::new(2 * WayConfig::HELD_BYTES_MAX),
            flight: Flight::default(),
            timeline,
            requests,
            waker,
            start_ns: clock_ns(),
            is_readable: [true; 2],
            parts: vec![],
            writer: Writer::new(),
        }
    }

    /// Runs until it is asked to stop.
    pub(crate) fn run(mut self) -> io::Result<(Progress, Timeline)> {
        sharpen_timers()?;
        loop {
            for way in 0..self.ways.len() {
                if self.is_readable[way] {
                    self.is_readable[way] = self.read_frames(way)?;
                }
            }
            let now_ns = self.now_ns();
            self.write_due(now_ns)?;
            if now_ns >= self.timeline.next_ns() {
                self.sample(now_ns);
            }
            if !self.answer_requests() {
                let now_ns = self.now_ns();
                self.sample(now_ns);
                let progress = self.progress();
                return Ok((progress, self.timeline));
            }
            if self.is_readable == [false; 2] {
                self.sleep()?;
            } else {
                // One device is busy; the other was not polled.
                self.is_readable = [true; 2];
            }
        }
    }

    fn now_ns(&self) -> u64 {
        clock_ns() - self.start_ns
    }

    /// Reads frames that a host has sent; returns whether there may be more.
    fn read_frames(&mut self, way: usize) -> io::Result<bool> {
        for _ in 0..READS_MAX {
            let source = &self.ends[way].0;
            // Without room, frames are read and dropped: a full path must lose packets and not block
            // the host.
            let (room, has_room) = match self.arena.room() {
                Some(room) => (room, true),
                None => (&mut self.writer.scratch[..], false),
            };
            let frame_bytes = match read(source, &mut *room) {
                Ok(frame_bytes) => frame_bytes,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let frame = &room[..frame_bytes];
            let counters = self.ways[way].counters_mut();
            let bundle = match Bundle::parse(frame) {
                Ok(bundle) if bundle.is_link_local_multicast(frame) => {
                    counters.link_local += u64::from(bundle.packets());
                    continue;
                }
                Ok(bundle) => bundle,
                Err(_) => {
                    counters.malformed_frames += 1;
                    continue;
                }
            };
            if !has_room {
                counters.sent_packets += u64::from(bundle.packets());
                counters.sent_bytes += bundle.wire_bytes();
                counters.held_dropped += u64::from(bundle.packets());
                continue;
            }
            let is_ecn_capable = bundle.is_ecn_capable(frame);
            let now_ns = clock_ns() - self.start_ns;
            self.parts.clear();
            self.ways[way].on_bundle(now_ns, &bundle, is_ecn_capable, &mut self.parts);
            if self.parts.is_empty() {
                continue;
            }
            let place = self.arena.keep(frame_bytes);
            self.flight.insert(place, bundle, self.parts.iter().map(|part| (way, *part)));
            // Write frames without delay at once, while they are in the cache.
            self.write_due(now_ns)?;
        }
        Ok(true)
    }

    /// Writes the parts that are due.
    fn write_due(&mut self, now_ns: u64) -> io::Result<()> {
        while let Some((held, (way, part), is_last)) = self.flight.pop_due(now_ns + self.early_ns) {
            let frame = self.arena.frame(held.place);
            let counters = self.ways[way].counters_mut();
            self.writer.write(&self.ends[way].1, &held.bundle, frame, &part, counters)?;
            if is_last {
                self.arena.release(held.place);
            }
        }
        Ok(())
    }

    fn sample(&mut self, now_ns: u64) {
        let counters = [*self.ways[0].counters(), *self.ways[1].counters()];
        let queues = [0, 1].map(|way: usize| {
            let way = &mut self.ways[way];
            (way.queue_bytes(now_ns), way.take_queue_bytes_max(now_ns))
        });
        self.timeline.push(now_ns, counters, queues);
    }

    /// Answers requests; returns `false` when the thread is to end.
    fn answer_requests(&mut self) -> bool {
        use std::sync::mpsc::TryRecvError;
        loop {
            match self.requests.try_recv() {
                Ok(Request::Change { way, config, answer }) => {
                    // The requesting thread may have ended.
                    let _ = answer.send(self.ways[way].change(*config));
                    self.early_ns = early_ns(&self.ways);
                }
                Ok(Request::Read { answer }) => {
                    let _ = answer.send(self.progress());
                }
                Ok(Request::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            elapsed: Duration::from_nanos(self.now_ns()),
            ways: [*self.ways[0].counters(), *self.ways[1].counters()],
            cpu: cpu_time(),
        }
    }

    /// Sleeps until a part or a sample is due, a frame arrives or a request is made.
    fn sleep(&mut self) -> io::Result<()> {
        let sample_ns = self.timeline.next_ns();
        let next_ns = self.flight.next_ns().map_or(sample_ns, |next_ns| next_ns.min(sample_ns));
        let timeout = timespec(next_ns.saturating_sub(self.now_ns()));
        let [to_server, to_client] = &self.ends;
        let mut fds = [
            PollFd::from_borrowed_fd(to_server.0.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(to_client.0.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.waker.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [to_server, to_client, waker] = fds.each_ref().map(|fd| !fd.revents().is_empty());
        self.is_readable = [to_server, to_client];
        if waker {
            let mut count = [0; 8];
            let _ = read(&self.waker, &mut count);
        }
        Ok(())
    }
}

/// Sleeps until one of the devices or the waker is readable, or the time is over, and notes which devices may have
/// frames.
pub(crate) fn wait_readable(
    devices: &[OwnedFd],
    waker: &OwnedFd,
    timeout_ns: Option<u64>,
    is_readable: &mut [bool],
) -> io::Result<()> {
    let timeout = timeout_ns.map(timespec);
    let all = devices.iter().chain([waker]);
    let mut fds: Vec<_> =
        all.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    for (is_readable, fd) in is_readable.iter_mut().zip(&fds) {
        *is_readable = !fd.revents().is_empty();
    }
    if fds.last().is_some_and(|waker| !waker.revents().is_empty()) {
        let _ = read(waker, &mut [0; 8]);
    }
    Ok(())
}

/// The default timer slack of a thread, 50 us, would be added to every delay.
pub(crate) fn sharpen_timers() -> io::Result<()> {
    if let Some(least) = std::num::NonZeroU64::new(1) {
        rustix::thread::set_current_timer_slack(Some(least))?;
    }
    Ok(())
}

/// See [`EARLY_NS_MAX`]. All ways share one schedule, so the shortest delay decides.
pub(crate) fn early_ns(ways: &[Way]) -> u64 {
    let hundredths = ways.iter().map(|way| way.config().delay.min_ns() / 100);
    hundredths.min().unwrap_or(0).min(EARLY_NS_MAX)
}

pub(crate) fn clock_ns() -> u64 {
    ns(clock_gettime(ClockId::Monotonic))
}

/// Processor time of this thread.
pub(crate) fn cpu_time() -> Duration {
    Duration::from_nanos(ns(clock_gettime(ClockId::ThreadCPUTime)))
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

fn ns(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
