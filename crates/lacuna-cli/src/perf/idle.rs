//! When a server gives up a client that is there and sends nothing.

use crate::failure::Failure;
use std::time::{Duration, Instant};

/// Looks at a count of packets, and ends a measurement in which none has come or gone for too long.
#[derive(Debug)]
pub(super) struct IdleWatch {
    limit: Duration,
    packets: u64,
    /// When the count was another one last.
    changed: Instant,
}

impl IdleWatch {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, packets: 0, changed: Instant::now() }
    }

    /// Packets that have come or gone so far.
    pub(super) fn check(&mut self, packets: u64) -> Result<(), Failure> {
        if packets != self.packets {
            (self.packets, self.changed) = (packets, Instant::now());
        }
        let quiet = self.changed.elapsed();
        if quiet < self.limit {
            return Ok(());
        }
        let quiet_s = quiet.as_secs_f64();
        Err(Failure::Network(format!("the client has sent nothing for {quiet_s:.0} s")))
    }
}
