//! Writes large files through to the disk while they come in, and gives their
//! pages back.
//!
//! Without it a large file fills the memory with pages that wait for the disk,
//! until the kernel stops the writer; and everything else that was cached goes.
//! Memory touched for the first time may also be dear: on a virtual machine
//! whose host hands it out late, a file larger than what is cached is written
//! several times faster with the pages given back as it goes. And a
//! power failure then costs little of a large file.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Written between two calls to the disk: some tens of milliseconds of a fast
/// disk, and well above what a call itself costs.
const STEP_BYTES: u64 = 32 << 20;

/// The thread; it ends with this.
pub(crate) struct Behind {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// How far one file is.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// Everything before is on its way to the disk.
    up_to: u64,
    error: Arc<Mutex<Option<io::Error>>>,
}

struct Job {
    file: Arc<File>,
    from: u64,
    len: u64,
    error: Arc<Mutex<Option<io::Error>>>,
}

impl Behind {
    pub(crate) fn start() -> io::Result<Self> {
        // One step is written while the next one comes; then the writer waits.
        let (jobs, work) = sync_channel(1);
        let thread =
            std::thread::Builder::new().name("lacuna-disk".to_owned()).spawn(move || run(&work))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// The file has `len_bytes` now. An error is one of an earlier step: some
    /// file systems say only then that there is no space.
    pub(crate) fn advance(
        &self,
        file: &Arc<File>,
        written: &mut Written,
        len_bytes: u64,
    ) -> io::Result<()> {
        let len = len_bytes - written.up_to;
        if len < STEP_BYTES {
            return Ok(());
        }
        let failed = written.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = failed {
            return Err(error);
        }
        let error = written.error.clone();
        let job = Job { file: file.clone(), from: written.up_to, len, error };
        written.up_to = len_bytes;
        let jobs = self.jobs.as_ref().expect("taken only by drop");
        jobs.send(job).expect("the thread ends only when this is dropped");
        Ok(())
    }
}

impl Written {
    /// A file whose first `len_bytes` are not this transfer's.
    pub(crate) fn from(len_bytes: u64) -> Self {
        Self { up_to: len_bytes, error: Arc::default() }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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
