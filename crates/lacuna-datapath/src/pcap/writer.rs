//! The capture file: the classic pcap format with nanoseconds and raw IP frames.
//!
//! The format is that of libpcap (`pcap-savefile(5)`). The writer is shared by all channels of a
//! context, and by any number of contexts. What goes wrong with the file never disturbs the traffic:
//! it is remembered, nothing more is written, and [`PcapWriter::finish`] tells.
//!
//! The file can be read at any time, also after its process was killed: nothing is kept back, each
//! burst goes out in one write of whole records, and the header is never touched again. After a write
//! that failed half way (a full disk) the file is cut to its last whole record.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::headers::{Dress, Flow};

/// Nanosecond timestamps, in the byte order of the writer; here always little-endian.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: (u16, u16) = (2, 4);
/// The longest frame: what an IP packet can be.
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

/// What to capture, and how to date it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PcapOptions {
    /// Whose time packets are dated with.
    pub time: PcapTime,
    /// The file does not become larger than this: the first packet that does not fit ends the
    /// capture, and from there on packets are only counted.
    pub bytes_max: Option<u64>,
    /// Packets that are no RoCEv2 packets: the UDP destination port is the true one, not that of
    /// RoCEv2, and their bytes are left as they are.
    pub is_foreign: bool,
}

/// Whose time packets of a capture are dated with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapTime {
    /// The datapath's clock, and what it showed as 0, in nanoseconds of Unix time. The default is 0,
    /// which dates packets to 1970: right for a fake clock.
    Since(u64),
    /// The system's clock, for datapaths whose clocks began at different times.
    System,
}

impl Default for PcapTime {
    fn default() -> Self {
        Self::Since(0)
    }
}

/// What a capture file holds, and what came past.
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
    /// Packets that are not in the file, because it would have become too large or could not be
    /// written.
    pub left_out: u64,
    /// Whether the file has become as large as it may.
    pub is_full: bool,
}

/// Which way packets went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Sent,
    Received,
}

/// Told of the end of a capture.
type OnEnd = Box<dyn FnOnce(Result<PcapSummary, &io::Error>) + Send>;

struct Shared {
    output: Box<dyn Write + Send>,
    /// The same file, to cut off a record that was not written as a whole.
    file: Option<File>,
    options: PcapOptions,
    summary: PcapSummary,
    /// Why nothing is written any more.
    error: Option<io::Error>,
    on_end: Option<OnEnd>,
    is_closed: bool,
    /// The frame being built.
    frame: Vec<u8>,
    /// Whole records on their way to the file.
    records: Vec<u8>,
}

impl PcapWriter {
    /// Creates the file, or empties it. No bound, and times as the datapath's clock shows them.
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
        // Emptied only once it is known that nobody is writing to it.
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
        Self::over(Box::new(file), Some(same), options)
    }

    /// A capture that goes anywhere.
    ///
    /// # Errors
    ///
    /// When the file header cannot be written.
    pub fn new(output: Box<dyn Write + Send>, options: PcapOptions) -> io::Result<Self> {
        Self::over(output, None, options)
    }

    pub(super) fn over(
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

    /// Has `tell` called once, by whoever sends or receives, when nothing more is written although
    /// there are more packets: with what the file holds if it is full, else with what went wrong.
    pub fn on_end(&self, tell: impl FnOnce(Result<PcapSummary, &io::Error>) + Send + 'static) {
        self.lock().on_end = Some(Box::new(tell));
    }

    /// What the file holds by now, and what came past. Other clones may go on writing.
    pub fn summary(&self) -> PcapSummary {
        self.lock().summary
    }

    /// The same, or what went wrong.
    ///
    /// # Errors
    ///
    /// The first error that this file has ever met. What was captured before it is in the file.
    pub fn finish(&self) -> io::Result<PcapSummary> {
        let shared = self.lock();
        match &shared.error {
            None => Ok(shared.summary),
            Some(error) => Err(copy(error)),
        }
    }

    /// Ends the capture, so that what this says of the file stays true: what comes past from now on is
    /// neither written nor counted.
    ///
    /// # Errors
    ///
    /// As of [`PcapWriter::finish`].
    pub fn close(&self) -> io::Result<PcapSummary> {
        self.lock().is_closed = true;
        self.finish()
    }

    /// Writes packets of one flow, all of the same moment. `next` appends a packet to what it is
    /// handed, and says whether it did.
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
        let dress = if shared.options.is_foreign { Dress::Plain } else { Dress::Roce };
        let mut frame = std::mem::take(&mut shared.frame);
        let time_ns = shared.options.time.of(now_ns);
        loop {
            let mut is_packet = false;
            flow.frame(dress, &mut frame, |frame| is_packet = next(frame));
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
        let tell = if shared.has_ended() { shared.on_end.take() } else { None };
        let Some(tell) = tell else { return };
        let ended = shared.error.as_ref().map_or(Ok(shared.summary), |error| Err(copy(error)));
        // Whoever is told may ask this writer.
        drop(shared);
        tell(ended.as_ref().copied());
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

    /// Puts a frame behind those that are to be written, if there is room in the file.
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
            self.keep_whole(written);
            self.error = Some(error);
        }
        self.records.clear();
    }

    /// What is in the file after only `written` bytes of the records got there.
    fn keep_whole(&mut self, written: usize) {
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
            // What cannot be cut off either stays: readers stop in front of it.
            let _ = file.set_len(self.summary.bytes);
        }
    }
}

/// Errors cannot be cloned.
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

/// Bytes of the frame behind a header of a record.
fn record_bytes(header: &[u8; RECORD_HEADER_BYTES as usize]) -> usize {
    u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize
}

impl fmt::Debug for PcapWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapWriter").field("summary", &self.lock().summary).finish_non_exhaustive()
    }
}
