//! BLAKE3 of a file, computed while it is read or written.
//!
//! Large files are hashed on a thread of their own, which shares the blocks of disk and network and
//! releases them when it is done. For a small file, handing over the data would cost more than
//! hashing it.
//!
//! A hole counts as the zeros that it reads as, so the hash does not depend on how a file is
//! stored. Hashing a long hole takes a while (1 s for about 4 GB, an hour for 16 TB) and can be
//! abandoned with [`HashThread::abandon`].

use super::wire::Hash;
use blake3::Hasher;
use lacuna::SendBuffer;
use lacuna_service::thread::{ThreadError, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Longest file that is hashed in place: a fraction of a millisecond.
pub(crate) const INLINE_BYTES_MAX: u64 = 1 << 20;
/// Jobs that may wait for the thread. Their blocks are bounded, too (`pool.rs`).
const WAITING_MAX: usize = 64;

enum Job {
    Begin(Box<Hasher>),
    Update(SendBuffer),
    /// A number of zeros, in the file of this number.
    Zeros(u64, u64),
    Finish(SyncSender<Option<Hash>>),
}

/// The hash thread; it ends when this is dropped.
pub(crate) struct HashThread {
    worker: Worker<Job>,
    holes: Arc<Holes>,
}

/// State of long holes, shared by the thread and its users.
#[derive(Default)]
struct Holes {
    abandoned: AtomicBool,
    /// Number of the newest file: hashes of earlier ones are abandoned.
    file: AtomicU64,
    /// Zeros that are not hashed yet.
    left_bytes: AtomicU64,
}

/// The hash of one file in progress.
pub(crate) enum Digest {
    Inline(Box<Hasher>),
    /// Computed on the thread, which handles one file at a time.
    Thread,
}

impl HashThread {
    pub(crate) fn start() -> Result<Self, ThreadError> {
        let holes = Arc::new(Holes::default());
        let told = holes.clone();
        let run = move |work: &Receiver<Job>| run(work, &told);
        Ok(Self { worker: Worker::start("lacuna-hash", WAITING_MAX, run)?, holes })
    }

    /// Abandons the hash of a long hole, in this file or a later one.
    pub(crate) fn abandon(&self) {
        self.holes.abandoned.store(true, Ordering::Relaxed);
    }

    /// Zeros of holes that are still to be hashed.
    pub(crate) fn zeros_left_bytes(&self) -> u64 {
        self.holes.left_bytes.load(Ordering::Relaxed)
    }

    /// Begins a file of `size_bytes`; `so_far` has hashed its beginning.
    pub(crate) fn begin(&self, size_bytes: u64, so_far: Hasher) -> Digest {
        if size_bytes <= INLINE_BYTES_MAX {
            return Digest::Inline(Box::new(so_far));
        }
        self.holes.file.fetch_add(1, Ordering::Relaxed);
        self.worker.give(Job::Begin(Box::new(so_far)));
        Digest::Thread
    }

    pub(crate) fn update(&self, digest: &mut Digest, data: SendBuffer) {
        match digest {
            Digest::Inline(hasher) => {
                hasher.update(&data);
            }
            Digest::Thread => self.worker.give(Job::Update(data)),
        }
    }

    /// A hole of `len_bytes` follows.
    pub(crate) fn zeros(&self, digest: &mut Digest, len_bytes: u64) {
        match digest {
            Digest::Inline(hasher) => {
                hash_zeros(hasher, len_bytes, &|| false);
            }
            Digest::Thread => {
                self.holes.left_bytes.fetch_add(len_bytes, Ordering::Relaxed);
                let file = self.holes.file.load(Ordering::Relaxed);
                self.worker.give(Job::Zeros(len_bytes, file));
            }
        }
    }

    /// The hash, once all data was hashed; `None` if it was abandoned.
    pub(crate) fn finish(&self, digest: Digest) -> Option<Hash> {
        match digest {
            Digest::Inline(hasher) => Some(hasher.finalize().into()),
            Digest::Thread => {
                let (reply, hash) = sync_channel(1);
                self.worker.give(Job::Finish(reply));
                hash.recv().expect("the thread answers before it ends")
            }
        }
    }
}

impl Drop for HashThread {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Hashes `len_bytes` of zeros; `false` if `stop` ended it.
pub(crate) fn hash_zeros(hasher: &mut Hasher, len_bytes: u64, stop: &dyn Fn() -> bool) -> bool {
    // Fits the second-level cache, and is long enough for the vector units of any processor.
    static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
    let mut left = len_bytes;
    while left > 0 {
        if stop() {
            return false;
        }
        let len = left.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..len as usize]);
        left -= len;
    }
    true
}

fn run(work: &Receiver<Job>, holes: &Holes) {
    // Hashed between two updates of the progress.
    const STEP_BYTES: u64 = 64 << 20;
    // `None` once a hole was abandoned.
    let mut hasher = None;
    while let Ok(job) = work.recv() {
        match job {
            Job::Begin(so_far) => hasher = Some(so_far),
            Job::Update(data) => {
                if let Some(hasher) = &mut hasher {
                    hasher.update(&data);
                }
            }
            Job::Zeros(mut len_bytes, file) => {
                let stop = || {
                    let is_given_up = holes.file.load(Ordering::Relaxed) != file;
                    is_given_up || holes.abandoned.load(Ordering::Relaxed)
                };
                while len_bytes > 0 && hasher.is_some() {
                    let step_bytes = len_bytes.min(STEP_BYTES);
                    hasher = hasher.take().and_then(|mut hasher: Box<Hasher>| {
                        hash_zeros(&mut hasher, step_bytes, &stop).then_some(hasher)
                    });
                    holes.left_bytes.fetch_sub(step_bytes, Ordering::Relaxed);
                    len_bytes -= step_bytes;
                }
                holes.left_bytes.fetch_sub(len_bytes, Ordering::Relaxed);
            }
            Job::Finish(reply) => {
                let _ = reply.send(hasher.as_ref().map(|hasher| hasher.finalize().into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_same_hash() {
        let hashes = HashThread::start().unwrap();
        let data: Vec<u8> = (0..300_000u32).map(|i| (i * 7 % 251) as u8).collect();
        let expected: Hash = blake3::hash(&data).into();
        for size_bytes in [data.len() as u64, INLINE_BYTES_MAX + 1] {
            let mut so_far = Hasher::new();
            so_far.update(&data[..1000]);
            let mut digest = hashes.begin(size_bytes, so_far);
            for piece in data[1000..].chunks(70_000) {
                hashes.update(&mut digest, piece.to_vec().into());
            }
            assert_eq!(hashes.finish(digest), Some(expected));
        }
    }

    #[test]
    fn a_hole_has_the_hash_of_its_zeros() {
        let hashes = HashThread::start().unwrap();
        for len in [0, 1, 4096, (256 << 10) - 1, 256 << 10, (1 << 20) + 7] {
            let data = [vec![1; 5], vec![0; len], vec![2; 3]].concat();
            let expected: Hash = blake3::hash(&data).into();
            for size_bytes in [data.len() as u64, INLINE_BYTES_MAX + 1] {
                let mut digest = hashes.begin(size_bytes, Hasher::new());
                hashes.update(&mut digest, vec![1; 5].into());
                hashes.zeros(&mut digest, len as u64);
                hashes.update(&mut digest, vec![2; 3].into());
                assert_eq!(hashes.finish(digest), Some(expected), "{len}");
            }
        }
    }

    #[test]
    fn an_endless_hole_can_be_abandoned_and_data_goes_on() {
        let hashes = HashThread::start().unwrap();
        // One file is given up when the next begins.
        let mut digest = hashes.begin(u64::MAX, Hasher::new());
        hashes.zeros(&mut digest, u64::MAX);
        let mut digest = hashes.begin(u64::MAX, Hasher::new());
        hashes.update(&mut digest, vec![1; 3].into());
        assert_eq!(hashes.finish(digest), Some(blake3::hash(&[1; 3]).into()));
        let mut digest = hashes.begin(u64::MAX, Hasher::new());
        hashes.zeros(&mut digest, u64::MAX);
        hashes.update(&mut digest, vec![1; 3].into());
        hashes.abandon();
        assert_eq!(hashes.finish(digest), None);
        assert_eq!(hashes.zeros_left_bytes(), 0);
        // What holds no hole is hashed all the same.
        let mut digest = hashes.begin(u64::MAX, Hasher::new());
        hashes.update(&mut digest, vec![1; 3].into());
        assert_eq!(hashes.finish(digest), Some(blake3::hash(&[1; 3]).into()));
        // And one that nobody waits for ends with the thread.
        let mut digest = hashes.begin(u64::MAX, Hasher::new());
        hashes.zeros(&mut digest, u64::MAX);
        drop(hashes);
    }
}
