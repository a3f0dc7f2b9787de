//! The capture file: the classic pcap format with nanoseconds and raw IP frames.
//!
//! The format is that of libpcap (`pcap-savefile(5)`). The writer is shared by all channels of a
//! context. What goes wrong with the file never disturbs the traffic: it is remembered, nothing
//! more is written, and [`PcapWriter::finish`] tells.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::headers::Flow;

/// Nanosecond timestamps, in the byte order of the writer; here always little-endian.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: (u16, u16) = (2, 4);
/// The longest frame: what an IP packet can be.
const SNAPSHOT_BYTES: u32 = 65_535;
/// `LINKTYPE_RAW`: frames begin with an IPv4 or IPv6 header.
const LINK_TYPE: u32 = 101;

const FILE_HEADER_BYTES: u64 = 24;
const RECORD_HEADER_BYTES: u64 = 16;

/// Written to the file at a time (a judgement).
const BUFFER_BYTES: usize = 1 << 20;

/// A capture file; clones write to the same one. What is buffered is written when the last clone is
/// dropped; to learn whether that worked, call [`PcapWriter::finish`].
#[derive(Clone)]
pub struct PcapWriter {
    shared: Arc<Mutex<Shared>>,
}

/// What to capture, and how to date it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PcapOptions {
    /// What the clock of the datapath showed as 0, in nanoseconds of Unix time. 0 dates packets to
    /// 1970, which is right for a fake clock.
    pub epoch_ns: u64,
    /// The file does not become larger than this; further packets are counted but not written.
    pub bytes_max: Option<u64>,
}

/// What a capture file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapSummary {
    /// Packets in the file.
    pub packets: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Packets that were left out because the file would have become too large.
    pub left_out: u64,
}

struct Shared {
    output: BufWriter<Box<dyn Write + Send>>,
    options: PcapOptions,
    summary: PcapSummary,
    /// Why nothing is written any more.
    error: Option<io::Error>,
    /// The frame being built.
    frame: Vec<u8>,
}

impl PcapWriter {
    /// Creates the file, or empties it. No bound, and times as the datapath's clock shows them.
    ///
    /// # Errors
    ///
    /// When the file cannot be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::create_with(path, PcapOptions::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    ///
    /// When the file cannot be created.
    pub fn create_with(path: impl AsRef<Path>, options: PcapOptions) -> io::Result<Self> {
        Self::new(Box::new(File::create(path)?), options)
    }

    /// A capture that goes anywhere.
    ///
    /// # Errors
    ///
    /// When the file header cannot be written.
    pub fn new(output: Box<dyn Write + Send>, options: PcapOptions) -> io::Result<Self> {
        let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
        output.write_all(&file_header())?;
        let summary = PcapSummary { bytes: FILE_HEADER_BYTES, ..PcapSummary::default() };
        let frame = Vec::with_capacity(SNAPSHOT_BYTES as usize);
        let shared = Shared { output, options, summary, error: None, frame };
        Ok(Self { shared: Arc::new(Mutex::new(shared)) })
    }

    /// Writes out what is buffered and says what the file holds. Other clones may go on writing.
    ///
    /// # Errors
    ///
    /// The first error that this file has ever met. What was captured before it is in the file.
    pub fn finish(&self) -> io::Result<PcapSummary> {
        let mut shared = self.lock();
        if shared.error.is_none() {
            shared.error = shared.output.flush().err();
        }
        match &shared.error {
            None => Ok(shared.summary),
            Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }

    /// Writes packets of one flow, all of the same moment. `next` appends a packet to what it is
    /// handed, and says whether it did.
    pub(super) fn write(
        &self,
        now_ns: u64,
        flow: Flow,
        mut next: impl FnMut(&mut Vec<u8>) -> bool,
    ) {
        let mut shared = self.lock();
        let mut frame = std::mem::take(&mut shared.frame);
        loop {
            let mut is_packet = false;
            flow.frame(&mut frame, |frame| is_packet = next(frame));
            if !is_packet {
                break;
            }
            shared.write(now_ns, &frame);
        }
        shared.frame = frame;
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn write(&mut self, now_ns: u64, frame: &[u8]) {
        if self.error.is_some() {
            return;
        }
        let bytes = self.summary.bytes + RECORD_HEADER_BYTES + frame.len() as u64;
        if self.options.bytes_max.is_some_and(|max| bytes > max) {
            self.summary.left_out += 1;
            return;
        }
        let header = record_header(self.options.epoch_ns.saturating_add(now_ns), frame.len());
        let written = self.output.write_all(&header).and_then(|()| self.output.write_all(frame));
        match written {
            Ok(()) => {
                self.summary.packets += 1;
                self.summary.bytes = bytes;
            }
            Err(error) => self.error = Some(error),
        }
    }
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

impl fmt::Debug for PcapWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapWriter").field("summary", &self.lock().summary).finish_non_exhaustive()
    }
}
