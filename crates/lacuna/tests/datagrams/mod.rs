//! What tests of datagram queue pairs have in common.

// Each test file uses a part.
#![allow(dead_code)]

use lacuna::datagram::{Done, QueuePair};
use lacuna::{Region, RegionOptions, Rights};
use std::time::{Duration, Instant};

/// Ends what would hang; no test asserts a time.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

pub(crate) fn register(end: &QueuePair, bytes: Vec<u8>) -> Region {
    let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
    let options = RegionOptions { rights, ..RegionOptions::default() };
    end.context().register(bytes, options).unwrap()
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at * 7 + (at >> 9)) as u8).collect()
}

/// The next completion of an end; the other one makes progress meanwhile if it has no thread.
pub(crate) fn next(end: &QueuePair, other: &QueuePair) -> Done {
    let begin = Instant::now();
    while begin.elapsed() < WAIT {
        other.progress();
        if let Some(done) = end.wait(Duration::from_micros(200)) {
            return done;
        }
    }
    panic!("nothing ends: {:?} {:?}", end.stats(), other.stats());
}
