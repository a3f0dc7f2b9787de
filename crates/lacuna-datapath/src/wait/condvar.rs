//! Sleeping on systems without file descriptors to poll: short timed waits on a condition variable.
//! The caller polls its datapaths after each, because nothing reports their packets.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::BLIND_SLEEP_MAX;
use crate::Datapath;

/// The flag that a waker sets to end a sleep.
#[derive(Debug)]
pub(super) struct Alarm {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { rung: Mutex::new(false), changed: Condvar::new() })
    }

    pub(super) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    #[cfg(test)]
    pub(super) fn is_ringing(&self) -> bool {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Poller;

impl Poller {
    pub(super) fn new() -> Self {
        Self
    }

    pub(super) fn sleep<'d>(
        &mut self,
        alarm: &Alarm,
        sources: impl IntoIterator<Item = &'d dyn Datapath>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let mut rung = alarm.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let blind = sources.into_iter().next().is_some();
        if blind || timeout.is_some() {
            let limit = if blind { BLIND_SLEEP_MAX } else { Duration::MAX };
            let timeout = timeout.unwrap_or(limit).min(limit);
            if !*rung {
                // Spurious wake-ups are allowed.
                let (guard, _) = alarm
                    .changed
                    .wait_timeout(rung, timeout)
                    .unwrap_or_else(PoisonError::into_inner);
                rung = guard;
            }
        } else {
            while !*rung {
                rung = alarm.changed.wait(rung).unwrap_or_else(PoisonError::into_inner);
            }
        }
        *rung = false;
        Ok(())
    }
}
