//! Write-behind: writes large files through to the disk while they come in, and releases their page cache.
//!
//! Without this a large file fills the memory with dirty pages, until the kernel blocks the writer and evicts
//! everything else that was cached. On a virtual machine whose host hands memory out late, a file larger than
//! the cache is written several times faster if its pages are released as it goes. And a power failure costs
//! little of a large file.

use lacuna_service::thread::{ThreadError, Worker};
use std::fs::File;
use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

/// Written between two calls to the disk: some tens of milliseconds of a fast
/// disk, and well above what a call itself costs.
const STEP_BYTES: u64 = 32 << 20;

/// The thread; it ends with this.
pub(crate) struct Behind(Worker<Job>);

/// How far one file is.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// Everything before is on its way to the disk.
    up_to: u64,
    /// Data behind, of which holes are none.
    waiting_bytes: u64,
    error: Arc<Mutex<Option<io::Error>>>,
}

struct Job {
    file: Arc<File>,
    from: u64,
    len: u64,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl Behind {
    pub(crate) fn start() -> Result<Self, ThreadError> {
        // One step is written while the next one comes; then the writer waits.
        Worker::start("lacuna-disk", 1, run).map(Self)
    }

    /// The file has `len_bytes` now. An error is one of an earlier step: some
    /// file systems say only then that there is no space.
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
    /// A file whose first `len_bytes` are not this transfer's.
    pub(crate) fn from(len_bytes: u64) -> Self {
        Self { up_to: len_bytes, waiting_bytes: 0, error: Arc::default() }
    }

    /// So much data was written.
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

/// Tells the kernel that the pages are not needed; if it does not care, no harm.
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
