//! What a context remembers of paths, by the peer's address: in memory, and in a file if
//! [`path_memory`](crate::ContextConfig::path_memory) names one.
//!
//! A queue pair saves a record of its path when it ends, and its present record is noted when
//! another queue pair to the same peer connects. The new one begins at the recorded rate, divided
//! by the number of queue pairs that are sending to that peer, and with the recorded loss
//! statistics. A rate that was found while several were sending counts as a share of the path's,
//! not as the path's.
//!
//! The file is read when the context is made. Other processes use it too, so every save reads it
//! again, merges, and replaces it as a whole, which no reader sees half done. A record that is lost
//! to a race costs the next flow one round trip.

mod file;

use crate::address::ScopedIp;
use crate::error::ContextError;
use lacuna_path::controller::StartRate;
use lacuna_path::memory::{PathLosses, PathMemory, PathRecord};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a new queue pair begins with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Remembered {
    /// Initial rate.
    pub(crate) start: Option<StartRate>,
    /// Loss statistics of the path, and their age in seconds.
    pub(crate) losses: Option<(PathLosses, u64)>,
    /// Round-trip time, within the range that the handshake measured.
    pub(crate) rtt_ns: Option<u64>,
}

/// The path memory of a context.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    memory: Mutex<PathMemory>,
    file: Option<PathBuf>,
}

impl Paths {
    /// Reads the memory from `file`, which need not exist yet; empty without one.
    pub(crate) fn open(file: Option<PathBuf>) -> Result<Self, ContextError> {
        let mut memory = PathMemory::default();
        if let Some(file) = &file {
            let kept = file::read(file)
                .map_err(|source| ContextError::PathMemory { file: file.clone(), source })?;
            memory.merge(&kept, now_s());
        }
        Ok(Self { memory: Mutex::new(memory), file })
    }

    /// What a queue pair to `peer` begins with, as one of `flows` that send there. `rtt_ns` is the
    /// range of the round trip that the handshake found; the record refines it.
    pub(crate) fn remembered(&self, peer: ScopedIp, rtt_ns: (u64, u64), flows: u64) -> Remembered {
        let Some(record) = self.lock().get(&key(peer)).copied() else {
            return Remembered::default();
        };
        let now_s = now_s();
        let (least_ns, most_ns) = rtt_ns;
        let rtt_ns = record.min_rtt_ns.max(least_ns).min(most_ns);
        let start = record.start_rate(now_s, rtt_ns, flows);
        // If the round trip says that the path is another one, its losses do not apply either.
        let losses = record.losses.filter(|_| start.is_some());
        let age_s = now_s.saturating_sub(record.saved_s);
        Remembered {
            start,
            losses: losses.map(|losses| (losses, age_s)),
            rtt_ns: start.is_some().then_some(rtt_ns),
        }
    }

    /// Notes the record of a queue pair in use. `is_share`: its rate may be a share of the path's.
    pub(crate) fn note(&self, peer: ScopedIp, record: PathRecord, is_share: bool) {
        note(&mut self.lock(), peer, record, is_share);
    }

    /// Saves the record of a queue pair that ends, also to the file.
    pub(crate) fn save(&self, peer: ScopedIp, record: PathRecord, is_share: bool) {
        let mut memory = self.lock();
        note(&mut memory, peer, record, is_share);
        let Some(file) = &self.file else { return };
        let written = file::read(file).and_then(|others| {
            memory.merge(&others, now_s());
            file::replace(file, &memory.to_text())
        });
        if let Err(error) = written {
            tracing::warn!(file = %file.display(), %error, "cannot keep what was learnt of the path");
        }
    }

    fn lock(&self) -> MutexGuard<'_, PathMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note(memory: &mut PathMemory, peer: ScopedIp, record: PathRecord, is_share: bool) {
    match is_share {
        true => memory.save_share(&key(peer), record),
        false => memory.save(&key(peer), record),
    }
}

/// Unix time in seconds.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// With the interface's name, because its number may change when the host restarts.
fn key(peer: ScopedIp) -> String {
    peer.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6};

    const RECORD: PathRecord = PathRecord {
        rate_bits_per_s: 1_000_000,
        min_rtt_ns: 40_000_000,
        saved_s: 0,
        losses: Some(PathLosses { lost_ppb: 1_000_000, burst_thousandths: 1000, packets: 99 }),
    };

    fn record() -> PathRecord {
        PathRecord { saved_s: now_s(), ..RECORD }
    }

    fn peer(last: u8) -> ScopedIp {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    #[test]
    fn what_two_processes_learn_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths");
        let [a, b] = [1, 2].map(|_| Paths::open(Some(file.clone())).unwrap());
        a.save(peer(1), record(), false);
        b.save(peer(2), record(), false);
        let later = Paths::open(Some(file)).unwrap();
        for last in [1, 2] {
            let remembered = later.remembered(peer(last), (40_000_000, 40_000_000), 1);
            assert_eq!(remembered.start, Some(StartRate { rate_bits_per_s: 1_000_000 }));
            assert_eq!(remembered.losses.map(|(losses, _)| losses), RECORD.losses);
            let elsewhere = later.remembered(peer(last), (900_000_000, 900_000_000), 1);
            assert!(elsewhere.start.is_none() && elsewhere.losses.is_none());
            assert!(elsewhere.rtt_ns.is_none());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_cannot_be_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Paths::open(Some(dir.path().to_owned())).is_err());
        let file = dir.path().join("binary");
        std::fs::write(&file, b"\xff\xfe").unwrap();
        let error = Paths::open(Some(file.clone())).unwrap_err().to_string();
        let named =
            format!("cannot use {} as path memory: it holds something else", file.display());
        assert!(error.starts_with(&named), "{error}");
    }

    #[test]
    fn an_address_is_the_same_whichever_socket_saw_it() {
        let paths = Paths::default();
        paths.save(peer(1), record(), false);
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into();
        assert!(paths.remembered(mapped, (40_000_000, 40_000_000), 1).start.is_some());
    }

    #[test]
    fn a_link_local_address_is_another_host_on_another_link() {
        let paths = Paths::default();
        let on = |zone: u32| {
            let address = SocketAddrV6::new("fe80::1".parse().unwrap(), 7400, 0, zone);
            ScopedIp::from(SocketAddr::from(address))
        };
        paths.save(on(1), record(), false);
        for (zone, is_known) in [(1, true), (2, false)] {
            let remembered = paths.remembered(on(zone), (40_000_000, 40_000_000), 1);
            assert_eq!(remembered.start.is_some(), is_known, "{zone}");
        }
        if cfg!(target_os = "linux") {
            assert_eq!(key(on(1)), "fe80::1%lo", "numbers of interfaces change");
        }
    }

    #[test]
    fn a_share_of_a_path_is_not_shared_out_again() {
        let paths = Paths::default();
        let rate = |flows| {
            let start = paths.remembered(peer(1), (40_000_000, 40_000_000), flows).start;
            start.map(|start| start.rate_bits_per_s / 1_000_000)
        };
        let of = |mbit: u64| PathRecord { rate_bits_per_s: mbit * 1_000_000, ..record() };
        paths.note(peer(1), of(800), false);
        paths.note(peer(1), of(200), true);
        assert_eq!(rate(4), Some(200));
        paths.save(peer(1), of(200), true);
        assert_eq!(rate(1), Some(800), "who comes when they are gone");
        paths.save(peer(1), of(200), false);
        assert_eq!(rate(1), Some(200), "one that was alone knows");
    }

    #[test]
    fn where_a_round_trip_is_not_known_closely_the_record_decides() {
        let paths = Paths::default();
        paths.save(peer(1), record(), false);
        let rtt_ns = |least_ns, most_ns| {
            let remembered = paths.remembered(peer(1), (least_ns, most_ns), 1);
            let start = remembered
                .start
                .is_some_and(|start| start.rate_bits_per_s == RECORD.rate_bits_per_s);
            (start, remembered.rtt_ns)
        };
        // Ranges after a lost handshake packet, and behind a proxy that answers for the peer.
        assert_eq!(rtt_ns(41_000_000, 290_000_000), (true, Some(41_000_000)));
        assert_eq!(rtt_ns(100_000, 45_000_000), (true, Some(40_000_000)));
        assert_eq!(rtt_ns(80_000_000, 300_000_000), (false, Some(80_000_000)));
    }
}
