//! One client's session at a server, from request to counters. Every step has a time limit, so a
//! client that is silent, never opens the measured connection, or dies releases its seat.

use super::cpu;
use super::protocol::{
    Answer, Awaited, Counters, Done, LENT_BYTES_MAX, Request, TOLD_WITHIN, send,
};
use super::receiving::{Receiving, lost};
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::memory;
use crate::output::{Output, start_line};
use crate::units::{show_bytes, show_count};
use lacuna::Connection;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The parts of the server that a session uses.
pub(super) struct Session<'a> {
    pub(super) connection: &'a Connection,
    /// Delivers the measured connection.
    pub(super) measured: &'a Receiver<Connection>,
    /// How long the client may take to open it.
    pub(super) pairing: Duration,
    /// How long a client may send nothing.
    pub(super) idle: Duration,
    /// Whether the server had no other client so far.
    pub(super) is_alone: &'a dyn Fn() -> bool,
    pub(super) stop: &'a dyn Fn() -> bool,
    pub(super) output: Output,
}

/// The counters of a client, complete or not.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) mode: String,
    pub(super) size_bytes: u64,
    pub(super) took: Duration,
    pub(super) counters: Counters,
}

impl Session<'_> {
    /// Serves the client; its counters are in `taken` however it ends.
    pub(super) fn serve(&self, taken: &mut Option<Taken>) -> Result<(), Failure> {
        let request = Awaited::<Request>::post(self.connection)
            .map_err(Into::into)
            .and_then(|request| request.wait(TOLD_WITHIN, self.stop))
            .map_err(lost)?;
        let buffers = match lend(&request) {
            Ok(buffers) => buffers,
            Err(reason) => {
                let failure = Failure::Network(format!("refused: {reason}"));
                send(self.connection, &Answer::Refused { reason })?;
                return Err(failure);
            }
        };
        let done = Awaited::<Done>::post(self.connection).map_err(Into::into).map_err(lost)?;
        send(self.connection, &Answer::Ready)?;
        let measured = self.await_measured()?;
        self.output.note(&start_line(&measured));
        let cpu_before_s = cpu::process_s();
        let mut receiving = Receiving::new(&measured, &request, buffers, self.idle)?;
        let result = receiving.take(done, self.stop);
        let cpu_s = (self.is_alone)().then(|| cpu::process_s() - cpu_before_s);
        let counters = Counters { cpu_s, ..receiving.counters() };
        *taken = Some(Taken {
            mode: measured.chosen().mode.clone(),
            size_bytes: request.size_bytes,
            took: receiving.elapsed(),
            counters: counters.clone(),
        });
        result?;
        send(self.connection, &counters)
    }

    fn await_measured(&self) -> Result<Connection, Failure> {
        let since = Instant::now();
        loop {
            match self.measured.recv_timeout(POLL_INTERVAL) {
                Ok(measured) => return Ok(measured),
                Err(RecvTimeoutError::Timeout) => {}
                // The seat holds the sender, so this does not happen.
                Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(POLL_INTERVAL),
            }
            if (self.stop)() {
                return Err(Failure::Interrupted);
            }
            if let Some(failure) = self.connection.failure() {
                return Err(Failure::Network(format!("lost the client: {failure}")));
            }
            if since.elapsed() >= self.pairing {
                let pairing_s = self.pairing.as_secs_f64();
                let text = format!("connected nothing to measure within {pairing_s:.0} s");
                return Err(Failure::Network(text));
            }
        }
    }
}

/// Allocates the memory that a client requests, or says why not.
fn lend(request: &Request) -> Result<Vec<Vec<u8>>, String> {
    let Request { size_bytes, inflight, .. } = *request;
    let what = format!("{} of {}", show_count(inflight.into(), "message"), show_bytes(size_bytes));
    let lent_bytes = size_bytes.saturating_mul(u64::from(inflight));
    if lent_bytes == 0 {
        return Err(format!("{what}: nothing to measure"));
    }
    if lent_bytes > LENT_BYTES_MAX {
        return Err(format!("{what}: this server lends {} at most", show_bytes(LENT_BYTES_MAX)));
    }
    memory::check(lent_bytes, &what, "choose a smaller --size or --inflight")
        .and_then(|()| (0..inflight).map(|_| memory::zeroed(size_bytes as usize)).collect())
        .map_err(|failure| failure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_lent_within_bounds() {
        let request = |size_bytes, inflight| Request { size_bytes, inflight, validate: false };
        let buffers = lend(&request(1000, 3)).expect("little");
        assert_eq!(buffers, vec![vec![0; 1000]; 3]);
        for (request, part) in [
            (request(0, 3), "nothing to measure"),
            (request(3, 0), "nothing to measure"),
            (request(u64::MAX, u32::MAX), "lends 16 GiB at most"),
            (request(17 << 30, 1), "1 message of 17 GiB: this server lends 16 GiB at most"),
        ] {
            let reason = lend(&request).expect_err(part);
            assert!(reason.contains(part), "{reason}");
        }
    }
}
