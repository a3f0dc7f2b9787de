//! The capture file: the classic pcap format with nanoseconds and raw IP frames.
//!
//! The format is that of libpcap (`pcap-savefile(5)`). All channels of a context share the writer, and
//! any number of contexts can. An error of the file never disturbs the traffic: the writer keeps it,
//! writes nothing more, and returns it from [`PcapWriter::finish`].
//!
//! The file can be read at any time, also after its process was killed: each burst is written at once
//! in one call of whole records, and the header is never changed. After a partial write (a full disk)
//! the file is cut to its last whole record.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::headers::{Flow, Framing};
use crate::process::Process;

/// Nanosecond timestamps, in the byte order of the writer; here always little-endian.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: (u16, u16) = (2, 4);
/// The longest frame: the longest IP packet.
const SNAPSHOT_BYTES: u32 = 65_535;
/// `LINKTYPE_RAW`: frames begin with an IPv4 or IPv6 header.
const LINK_TYPE: u32 = 101;

const FILE_HEADER_BYTES: u64 = 24;
const RECORD_HEADER_BYTES: u64 = 16;

/// A capture file; clones write to the same one.
#[derive(Clone)]
pub struct PcapWriter {
    shared: Arc<Mutex<Shared>>,
}

/// Options of a capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct PcapOptions {
    /// Clock of the timestamps.
    pub time: PcapTime,
    /// Largest size of the file: the first packet that does not fit ends the capture, and later
    /// packets are only counted.
    pub bytes_max: Option<u64>,
    /// The packets are not RoCEv2 packets: they keep their UDP destination port and all their bytes.
    pub is_foreign: bool,
}

/// Clock of the timestamps of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapTime {
    /// The datapath's clock plus this many nanoseconds: the Unix time at which it showed 0. The
    /// default is 0, which dates packets to 1970, as suits a fake clock.
    Since(u64),
    /// The system's clock, for datapaths whose clocks started at different times.
    System,
}

impl Default for PcapTime {
    fn default() -> Self {
        Self::Since(0)
    }
}

/// Contents of a capture file, and counts of all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapSummary {
    /// Packets in the file.
    pub packets: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Packets that were sent, whether in the file or not.
    pub sent: u64,
    /// Packets that were received, whether in the file or not.
    pub received: u64,
    /// Packets that are not in the file, because it was full or could not be written.
    pub left_out: u64,
    /// Whether the file has reached its largest size.
    pub is_full: bool,
}

/// Direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Sent,
    Received,
}

/// Callback for the end of a capture.
type OnEnd = Box<dyn FnOnce(Result<PcapSummary, &io::Error>) + Send>;

struct Shared {
    output: Box<dyn Write + Send>,
    /// The same file, to cut off a partial record and to free its lock.
    file: Option<File>,
    /// The one that has the lock.
    process: Process,
    options: PcapOptions,
    summary: PcapSummary,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
    on_end: Option<OnEnd>,
    is_closed: bool,
    /// The frame being built.
    frame: Vec<u8>,
    /// Whole records that are to be written.
    records: Vec<u8>,
}

/// A child process has a copy of the descriptor, and the lock would stay for as long as the child has it.
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.process.is_current()) {
            let _ = file.unlock();
        }
    }
}

impl PcapWriter {
    /// Creates or truncates the file, without a bound, with timestamps of the datapath's clock.
    ///
    /// # Errors
    ///
    /// When the file cannot be created, or another process is capturing to it.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::create_with(path, PcapOptions::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    ///
    /// When the file cannot be created, or another writer is capturing to it.
    pub fn create_with(path: impl AsRef<Path>, options: PcapOptions) -> io::Result<Self> {
        // Truncated only when no other writer has it.
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        if !file.metadata()?.is_file() {
            return Self::new(Box::new(file), options);
        }
        // Not every file system has locks.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let text = "another capture is being written to it";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        file.set_len(0)?;
        let same = file.try_clone()?;
        Self::with_file(Box::new(file), Some(same), options)
    }

    /// A capture to any output.
    ///
    /// # Errors
    ///
    /// When the file header cannot be written.
    pub fn new(output: Box<dyn Write + Send>, options: PcapOptions) -> io::Result<Self> {
        Self::with_file(output, None, options)
    }

    pub(super) fn with_file(
        mut output: Box<dyn Write + Send>,
        file: Option<File>,
        options: PcapOptions,
    ) -> io::Result<Self> {
        output.write_all(&file_header())?;
        output.flush()?;
        let summary = PcapSummary { bytes: FILE_HEADER_BYTES, ..PcapSummary::default() };
        let frame = Vec::with_capacity(SNAPSHOT_BYTES as usize);
        let shared = Shared {
            output,
            file,
            process: Process::current(),
            options,
            summary,
            error: None,
            on_end: None,
            is_closed: false,
            frame,
            records: Vec::new(),
        };
        Ok(Self { shared: Arc::new(Mutex::new(shared)) })
    }

    /// Sets a callback for the end of the capture: full file or error. The thread that sends or
    /// receives the first packet that is left out calls it, once.
    pub fn on_end(&self, callback: impl FnOnce(Result<PcapSummary, &io::Error>) + Send + 'static) {
        self.lock().on_end = Some(Box::new(callback));
    }

    /// The counts so far. Other clones may go on writing.
    pub fn summary(&self) -> PcapSummary {
        self.lock().summary
    }

    /// The counts so far, or the error.
    ///
    /// # Errors
    ///
    /// The file's first error. The packets captured before it are in the file.
    pub fn finish(&self) -> io::Result<PcapSummary> {
        let shared = self.lock();
        match &shared.error {
            None => Ok(shared.summary),
            Some(error) => Err(copy(error)),
        }
    }

    /// Ends the capture: later packets are neither written nor counted, so the returned counts are
    /// final.
    ///
    /// # Errors
    ///
    /// As of [`PcapWriter::finish`].
    pub fn close(&self) -> io::Result<PcapSummary> {
        self.lock().is_closed = true;
        self.finish()
    }

    /// Writes packets of one flow with one timestamp. `next` appends the next packet to its argument;
    /// false: there is none.
    pub(super) fn write(
        &self,
        now_ns: u64,
        flow: Flow,
        direction: Direction,
        mut next: impl FnMut(&mut Vec<u8>) -> bool,
    ) {
        let mut shared = self.lock();
        if shared.is_closed {
            return;
        }
        let framing = if shared.options.is_foreign { Framing::Plain } else { Framing::Roce };
        let mut frame = std::mem::take(&mut shared.frame);
        let time_ns = shared.options.time.of(now_ns);
        loop {
            let mut is_packet = false;
            flow.frame(framing, &mut frame, |frame| is_packet = next(frame));
            if !is_packet {
                break;
            }
            match direction {
                Direction::Sent => shared.summary.sent += 1,
                Direction::Received => shared.summary.received += 1,
            }
            shared.add(time_ns, &frame);
        }
        shared.frame = frame;
        shared.write_out();
        let callback = if shared.has_ended() { shared.on_end.take() } else { None };
        let Some(callback) = callback else { return };
        let ended = shared.error.as_ref().map_or(Ok(shared.summary), |error| Err(copy(error)));
        // The callback may use this writer.
        drop(shared);
        callback(ended.as_ref().copied());
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PcapTime {
    fn of(self, now_ns: u64) -> u64 {
        match self {
            Self::Since(epoch_ns) => epoch_ns.saturating_add(now_ns),
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
            }
        }
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.summary.is_full || self.error.is_some()
    }

    /// Appends a frame to the records, if the file has room for it.
    fn add(&mut self, time_ns: u64, frame: &[u8]) {
        let bytes = self.summary.bytes + RECORD_HEADER_BYTES + frame.len() as u64;
        self.summary.is_full |= self.options.bytes_max.is_some_and(|max| bytes > max);
        if self.has_ended() {
            self.summary.left_out += 1;
            return;
        }
        self.records.extend_from_slice(&record_header(time_ns, frame.len()));
        self.records.extend_from_slice(frame);
        self.summary.packets += 1;
        self.summary.bytes = bytes;
    }

    fn write_out(&mut self) {
        if self.records.is_empty() {
            return;
        }
        let mut written = 0;
        let result = loop {
            match self.output.write(&self.records[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(some) => written += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => break Err(error),
            }
            if written == self.records.len() {
                break self.output.flush();
            }
        };
        if let Err(error) = result {
            self.cut_partial_record(written);
            self.error = Some(error);
        }
        self.records.clear();
    }

    /// After a write of only the first `written` bytes of the records: corrects the counts and cuts the
    /// file to its last whole record.
    fn cut_partial_record(&mut self, written: usize) {
        let bytes_before = self.summary.bytes - self.records.len() as u64;
        let (mut whole, mut lost) = (0, 0);
        let mut at = 0;
        while let Some(header) =
            self.records[at..].first_chunk::<{ RECORD_HEADER_BYTES as usize }>()
        {
            at += header.len() + record_bytes(header);
            if at <= written {
                whole = at;
            } else {
                lost += 1;
            }
        }
        self.summary.packets -= lost;
        self.summary.left_out += lost;
        self.summary.bytes = bytes_before + whole as u64;
        if let Some(file) = &self.file {
            // If that fails too, readers stop at the partial record.
            let _ = file.set_len(self.summary.bytes);
        }
    }
}

/// `io::Error` is not `Clone`.
fn copy(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

fn file_header() -> [u8; FILE_HEADER_BYTES as usize] {
    let mut header = [0; FILE_HEADER_BYTES as usize];
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..6].copy_from_slice(&VERSION.0.to_le_bytes());
    header[6..8].copy_from_slice(&VERSION.1.to_le_bytes());
    // Bytes 8 to 15, time zone and accuracy, are always 0.
    header[16..20].copy_from_slice(&SNAPSHOT_BYTES.to_le_bytes());
    header[20..24].copy_from_slice(&LINK_TYPE.to_le_bytes());
    header
}

fn record_header(time_ns: u64, frame_bytes: usize) -> [u8; RECORD_HEADER_BYTES as usize] {
    const NS_PER_S: u64 = 1_000_000_000;
    let mut header = [0; RECORD_HEADER_BYTES as usize];
    // Seconds have 32 bits in this format, which lasts until 2106.
    header[0..4].copy_from_slice(&((time_ns / NS_PER_S) as u32).to_le_bytes());
    header[4..8].copy_from_slice(&((time_ns % NS_PER_S) as u32).to_le_bytes());
    let bytes = (frame_bytes as u32).to_le_bytes();
    header[8..12].copy_from_slice(&bytes);
    header[12..16].copy_from_slice(&bytes);
    header
}

/// Length of the frame that follows a record header.
fn record_bytes(header: &[u8; RECORD_HEADER_BYTES as usize]) -> usize {
    u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize
}

impl fmt::Debug for PcapWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapWriter").field("summary", &self.lock().summary).finish_non_exhaustive()
    }
}
