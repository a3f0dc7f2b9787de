//! Terminating signals: Ctrl-C, SIGTERM, SIGHUP. The first one asks the command to end cleanly and
//! to report what is finished; a second one ends the process at once.
//!
//! Signals often come in pairs: `timeout` signals the process and then its group, and a closed
//! terminal makes both the shell and the kernel send SIGHUP. So signals within [`PAIR`] count as
//! one request, and SIGHUP never counts as the second. If SIGHUP was ignored at the start
//! (`nohup`), it stays ignored.

use crate::failure::Failure;
use lacuna::datapath::limit::Said;
use lacuna_service::{Stop, thread};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The first signal; 0 before.
static REQUESTED: AtomicI32 = AtomicI32::new(0);

/// The token for libraries; requested by the first signal.
static STOP: LazyLock<Stop> = LazyLock::new(Stop::new);

/// How often a wait checks for a signal.
pub(crate) const POLL_INTERVAL: Duration = lacuna_service::STOP_POLL;

/// Signals that follow the first within this time belong to it: nobody presses Ctrl-C twice so fast
/// (a judgement).
const PAIR: Duration = Duration::from_millis(200);

/// Begins to listen for Ctrl-C (and for the signals that end a service).
pub(crate) fn install() -> Result<(), Failure> {
    let refused = |error: io::Error| {
        Failure::Local(format!("cannot listen for Ctrl-C and other signals: {}", Said(&error)))
    };
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let heard = heard.filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP));
    let mut signals = Signals::new(heard).map_err(refused)?;
    // Writing beyond the file size limit (`ulimit -f`) returns an error; without a handler, SIGXFSZ
    // would end the process.
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

/// Whether this signal, `since` the first one, is a second request.
fn is_impatient(signal: i32, since: Option<Duration>) -> bool {
    signal != SIGHUP && since.is_some_and(|since| since >= PAIR)
}

/// Whether this process was started with a signal ignored (Linux; elsewhere that is not known).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status) >> (signal - 1) & 1 == 1
}

/// The ignored signals of a process, from its status file: a bit mask.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a terminating signal has come.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed) != 0
}

/// The token that ends a library's operation on a signal.
pub(crate) fn stop() -> Stop {
    STOP.clone()
}

/// Name of the signal.
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
