//! The hash of a file, computed beside its reading or writing.
//!
//! Large files are hashed on a thread of their own, which works on the same
//! blocks as disk and network and lets go of them when done. For a small file
//! the hand-over would cost more than the hash.

use super::wire::Hash;
use crate::failure::Failure;
use crate::thread::Worker;
use blake3::Hasher;
use lacuna::SendBuffer;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Files up to here are hashed in place: a fraction of a millisecond.
pub(crate) const INLINE_BYTES_MAX: u64 = 1 << 20;
/// Pieces that may wait for the thread. They hold blocks, whose number is
/// bounded too.
const WAITING_MAX: usize = 64;

enum Job {
    Begin(Box<Hasher>),
    Update(SendBuffer),
    Finish(SyncSender<Hash>),
}

/// The thread; it ends with this.
pub(crate) struct HashThread(Worker<Job>);

/// One file's hash as it grows.
pub(crate) enum Digest {
    Inline(Box<Hasher>),
    /// On the thread, which serves one file at a time.
    Thread,
}

impl HashThread {
    pub(crate) fn start() -> Result<Self, Failure> {
        Worker::start("lacuna-hash", WAITING_MAX, run).map(Self)
    }

    /// Begins a file of `size_bytes` whose beginning is hashed already.
    pub(crate) fn begin(&self, size_bytes: u64, so_far: Hasher) -> Digest {
        if size_bytes <= INLINE_BYTES_MAX {
            return Digest::Inline(Box::new(so_far));
        }
        self.0.give(Job::Begin(Box::new(so_far)));
        Digest::Thread
    }

    pub(crate) fn update(&self, digest: &mut Digest, data: SendBuffer) {
        match digest {
            Digest::Inline(hasher) => {
                hasher.update(&data);
            }
            Digest::Thread => self.0.give(Job::Update(data)),
        }
    }

    /// The hash, once everything given was worked on.
    pub(crate) fn finish(&self, digest: Digest) -> Hash {
        match digest {
            Digest::Inline(hasher) => hasher.finalize().into(),
            Digest::Thread => {
                let (reply, hash) = sync_channel(1);
                self.0.give(Job::Finish(reply));
                hash.recv().expect("the thread answers before it ends")
            }
        }
    }
}

fn run(work: &Receiver<Job>) {
    let mut hasher = Hasher::new();
    while let Ok(job) = work.recv() {
        match job {
            Job::Begin(so_far) => hasher = *so_far,
            Job::Update(data) => {
                hasher.update(&data);
            }
            Job::Finish(reply) => {
                let _ = reply.send(hasher.finalize().into());
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
            assert_eq!(hashes.finish(digest), expected);
        }
    }
}
