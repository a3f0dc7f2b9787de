//! Ctrl-C: the first asks the command to end in good order and to tell what was
//! finished so far, the second ends the process at once.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// How often a wait looks whether it was asked to end.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Begins to listen for Ctrl-C (and for the signals that end a service).
pub(crate) fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .map_err(|error| Failure::Local(format!("cannot listen for Ctrl-C: {error}")))?;
    outlive_long_files()
}

/// A file beyond the system's limit (`ulimit -f`) fails by itself, where it is written;
/// unheard, its signal would end the process.
#[cfg(unix)]
fn outlive_long_files() -> Result<(), Failure> {
    let heard = std::sync::Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, heard)
        .map(drop)
        .map_err(|error| Failure::Local(format!("cannot listen for signals: {error}")))
}

#[cfg(not(unix))]
fn outlive_long_files() -> Result<(), Failure> {
    Ok(())
}

/// Whether it was pressed.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Sleeps, but not past a Ctrl-C.
pub(crate) fn sleep(duration: Duration) {
    let end = Instant::now() + duration;
    while !requested() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK));
    }
}
