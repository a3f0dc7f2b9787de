//! Write-behind: writes large files to the disk while they are received, and releases their page
//! cache.
//!
//! Without it a large file fills the memory with dirty pages, until the kernel blocks the writer
//! and evicts everything else from the cache. On a virtual machine whose host grants memory lazily,
//! a file larger than the cache is written several times faster if its pages are released on the
//! way. A power failure also costs less of the file.

use lacuna_service::thread::{ThreadError, Worker};
use std::fs::File;
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

/// Data written between two system calls for write-behind: some tens of milliseconds of a fast
/// disk, well above the cost of the calls.
const STEP_BYTES: u64 = 32 << 20;

/// The write-behind thread; it ends when this is dropped.
pub(crate) struct WriteBehind(Worker<Job>);

/// Progress of one file.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// Everything before this offset was handed to the disk.
    up_to: u64,
    /// Data after `up_to`, without holes.
    waiting_bytes: u64,
    error: Arc<Mutex<Option<io::Error>>>,
}

struct Job {
    file: Arc<File>,
    from: u64,
    len: u64,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl WriteBehind {
    pub(crate) fn start() -> Result<Self, ThreadError> {
        // One step may wait while another is written; then the receiver blocks.
        Worker::start("lacuna-disk", 1, run).map(Self)
    }

    /// The file has `len_bytes` now. Reports errors of earlier steps: some file systems report a
    /// full disk only at writeback.
    pub(crate) fn advance(
        &self,
        file: &Arc<File>,
        written: &mut Written,
        len_bytes: u64,
    ) -> io::Result<()> {
        if written.waiting_bytes < STEP_BYTES {
            return Ok(());
        }
        let failed = written.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = failed {
            return Err(error);
        }
        let error = written.error.clone();
        let len = len_bytes - written.up_to;
        let job = Job { file: file.clone(), from: written.up_to, len, error };
        (written.up_to, written.waiting_bytes) = (len_bytes, 0);
        self.0.give(job);
        Ok(())
    }
}

impl Written {
    /// A file whose first `len_bytes` were there before this transfer.
    pub(crate) fn from(len_bytes: u64) -> Self {
        Self { up_to: len_bytes, waiting_bytes: 0, error: Arc::default() }
    }

    /// Data was written.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.waiting_bytes += bytes;
    }
}

fn run(work: &Receiver<Job>) {
    while let Ok(job) = work.recv() {
        match job.file.sync_data() {
            Ok(()) => give_back(&job),
            Err(error) => {
                *job.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        }
    }
}

/// Releases the pages from the cache; best effort.
fn give_back(job: &Job) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{Advice, fadvise};
        let len = std::num::NonZeroU64::new(job.len);
        let _ = fadvise(&*job.file, job.from, len, Advice::DontNeed);
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = (job.from, job.len);
}
