//! Signals that ask a command to end: Ctrl-C, SIGTERM, SIGHUP. The first asks it to end in good
//! order and to tell what was finished so far; one more, later, ends the process at once.
//!
//! Signals come in pairs without anybody having lost patience: `timeout` sends each to the process
//! and then to its group, and of a terminal that is closed the shell tells as well as the kernel. So
//! what follows within [`PAIR`] is the same request, and SIGHUP is never an impatient one. Where
//! SIGHUP was ignored from the start (`nohup`), it still is.

use crate::failure::Failure;
use lacuna::datapath::limit::Said;
use lacuna_service::{Stop, thread};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The signal that asked; 0 while none has.
static REQUESTED: AtomicI32 = AtomicI32::new(0);

/// What libraries are given: requested once a signal has asked.
static STOP: LazyLock<Stop> = LazyLock::new(Stop::new);

/// How often a wait looks whether it was asked to end.
pub(crate) const LOOK: Duration = lacuna_service::STOP_POLL;

/// What follows so soon belongs to the first: nobody presses Ctrl-C twice within it (a judgement).
const PAIR: Duration = Duration::from_millis(200);

/// Begins to listen for Ctrl-C (and for the signals that end a service).
pub(crate) fn install() -> Result<(), Failure> {
    let refused = |error: io::Error| {
        Failure::Local(format!("cannot listen for Ctrl-C and other signals: {}", Said(&error)))
    };
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let heard = heard.filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP));
    let mut signals = Signals::new(heard).map_err(refused)?;
    // A file beyond the system's limit (`ulimit -f`) fails by itself, where it is written; unheard,
    // its signal would end the process.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map_err(refused)?;
    thread::start("lacuna-signals", move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            let since = first.map(|first| first.elapsed());
            if is_impatient(signal, since) {
                std::process::exit(130);
            }
            if first.is_none() {
                first = Some(Instant::now());
                REQUESTED.store(signal, Ordering::Relaxed);
                STOP.request();
            }
        }
    })?;
    Ok(())
}

/// Whether this signal comes from somebody who will not wait, so long after the first one.
fn is_impatient(signal: i32, since: Option<Duration>) -> bool {
    signal != SIGHUP && since.is_some_and(|since| since >= PAIR)
}

/// Whether this process was started with a signal ignored (Linux; elsewhere that is not known).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status) >> (signal - 1) & 1 == 1
}

/// The signals that are ignored, a bit each, from a process's status.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a signal asked the command to end.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed) != 0
}

/// A token for a library, which ends its operation when a signal asks.
pub(crate) fn stop() -> Stop {
    STOP.clone()
}

/// What asked it to.
pub(crate) fn by_what() -> &'static str {
    match REQUESTED.load(Ordering::Relaxed) {
        SIGINT => "Ctrl-C",
        SIGTERM => "SIGTERM",
        SIGHUP => "SIGHUP",
        _ => "asked to stop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_signal_of_somebody_at_the_keyboard_ends_it_at_once() {
        for (signal, since_ms, ends) in [
            (SIGINT, None, false),
            // `timeout` sends each twice.
            (SIGTERM, Some(0), false),
            (SIGINT, Some(1), false),
            (SIGINT, Some(1000), true),
            (SIGTERM, Some(1000), true),
            // A terminal that is closed: the kernel's and the shell's.
            (SIGHUP, Some(1000), false),
        ] {
            let since = since_ms.map(Duration::from_millis);
            assert_eq!(is_impatient(signal, since), ends, "{signal} after {since_ms:?} ms");
        }
    }

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\tlacuna\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored(status), 0x1001);
        assert_eq!((ignored(""), ignored("SigIgn:\t?\n")), (0, 0));
    }
}
