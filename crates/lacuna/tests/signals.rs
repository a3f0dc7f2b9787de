//! Signals to a program that uses the library must go to the program's own threads.

#![cfg(target_os = "linux")]

use lacuna::{Context, ContextConfig, Progress};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// SIGBUS, SIGSEGV and SIGPROF concern the thread itself, which must not block them.
const OWN: [u32; 3] = [7, 11, 27];

/// The blocked signals of each thread of this process, a bit a signal, by the thread's id.
fn masks() -> BTreeMap<OsString, u64> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a list of threads");
    let masks = tasks.filter_map(|task| {
        let task = task.ok()?;
        // It may have ended meanwhile.
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
        Some((task.file_name(), u64::from_str_radix(mask.trim(), 16).expect("a number")))
    });
    masks.collect()
}

/// The same once no thread blocks a signal about itself. While a thread begins, the C library
/// and a sanitizer block all signals or many of them for it, so what is read then says nothing.
fn settled() -> BTreeMap<OsString, u64> {
    let since = Instant::now();
    loop {
        let masks = masks();
        let reports = |mask: &u64| OWN.iter().all(|signal| !is_blocked(*mask, *signal));
        if masks.values().all(reports) {
            return masks;
        }
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "a thread cannot report its own faults: it blocks {masks:x?}"
        );
        std::thread::yield_now();
    }
}

fn is_blocked(mask: u64, signal: u32) -> bool {
    mask >> (signal - 1) & 1 == 1
}

#[test]
fn threads_of_a_context_take_no_signals_of_the_program() {
    let own = settled();
    for workers in [1, 2] {
        let progress = Progress::Threads { workers, spin: Duration::ZERO };
        let config =
            ContextConfig { bind: LOCALHOST.into(), channels: 2, progress, ..Default::default() };
        let context = Context::new(config).expect("sockets on loopback");
        let (own_then, made): (BTreeMap<_, _>, BTreeMap<_, _>) =
            settled().into_iter().partition(|(thread, _)| own.contains_key(thread));
        assert_eq!(made.len(), 1 + workers);
        for mask in made.into_values() {
            // SIGHUP, SIGINT, SIGUSR1, SIGPIPE, SIGALRM, SIGTERM, SIGCHLD, SIGIO, a real-time one.
            for signal in [1, 2, 10, 13, 14, 15, 17, 29, 40] {
                assert!(is_blocked(mask, signal), "signal {signal} is taken");
            }
        }
        assert_eq!(own_then, own, "who makes it takes what it took");
        drop(context);
    }
}
