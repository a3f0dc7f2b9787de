//! The client's measured side: keeps messages in flight, waits for them in order, and records the
//! time of each.

use super::{ClientArgs, pattern};
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::memory;
use crate::output::Output;
use crate::units::{show_bytes, show_count};
use lacuna::{Connection, SendBuffer, SendError, SendHandle};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take to finish a message that was sent, in a mode without repair.
const FINISHED_WITHIN: Duration = Duration::from_secs(30);

/// Filling this much takes about a second, so the user is told.
const TOLD_FROM_BYTES: u64 = 1 << 30;
/// Bytes filled between two checks for a stop; whole words.
const FILL_BYTES: usize = 16 << 20;

/// A message on its way.
struct InFlight {
    handle: SendHandle,
    posted: Instant,
    buffer: Arc<Vec<u8>>,
}

/// The sending side of one measurement.
pub(super) struct Sending<'a> {
    args: &'a ClientArgs,
    measured: &'a Connection,
    stop: &'a dyn Fn() -> bool,
    in_flight: VecDeque<InFlight>,
    spare: Vec<Arc<Vec<u8>>>,
    posted: u64,
    times: Vec<Duration>,
}

/// Measured values.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Messages that completed, warm-up included.
    pub(super) messages: u64,
    /// Time of each measured message.
    pub(super) times: Vec<Duration>,
    /// How long the measurement took.
    pub(super) took: Duration,
    /// Why it ended early, if it did.
    pub(super) ended: Option<Failure>,
    /// Packets that this host refused before the measurement: probes of the MTU.
    pub(super) refused_before: u64,
}

/// A buffer per message in flight, so that, as with large writes, the bytes come from memory and
/// not from a cache.
pub(super) fn buffers(
    args: &ClientArgs,
    stop: &dyn Fn() -> bool,
    output: Output,
) -> Result<Vec<Arc<Vec<u8>>>, Failure> {
    let count = show_count(args.inflight.into(), "message");
    let what = format!("{count} of {} in flight", show_bytes(args.size));
    let needed_bytes = args.size.saturating_mul(args.inflight.into());
    memory::check(needed_bytes, &what, "choose a smaller --size or --inflight")?;
    if needed_bytes >= TOLD_FROM_BYTES {
        output.note(&format!("filling {what}: {}", show_bytes(needed_bytes)));
    }
    let filled = |number| filled(args.size as usize, number, stop).map(Arc::new);
    (0..u64::from(args.inflight)).map(filled).collect()
}

fn filled(len: usize, message: u64, stop: &dyn Fn() -> bool) -> Result<Vec<u8>, Failure> {
    let mut buffer = memory::reserved(len)?;
    while buffer.len() < len {
        if stop() {
            return Err(Failure::Interrupted);
        }
        let from = buffer.len();
        buffer.resize(len.min(from + FILL_BYTES), 0);
        pattern::fill(&mut buffer, from, message);
    }
    Ok(buffer)
}

impl<'a> Sending<'a> {
    pub(super) fn new(
        args: &'a ClientArgs,
        measured: &'a Connection,
        buffers: Vec<Arc<Vec<u8>>>,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        let (in_flight, times) = (VecDeque::new(), Vec::new());
        Self { args, measured, stop, in_flight, spare: buffers, posted: 0, times }
    }

    /// Sends until the limit, or until it is ended early; completed messages count.
    pub(super) fn run(mut self) -> Measured {
        let mut started: Option<Instant> = None;
        let refused_before = self.measured.stats().context.refused_by_datapath;
        let ended = self.send_all(&mut started).err();
        // Times of an unfinished warm-up do not count.
        let (times, took) = match started {
            Some(started) => (std::mem::take(&mut self.times), started.elapsed()),
            None => Default::default(),
        };
        // The remaining messages do not count, so cancel them. Newest first: a message that has not
        // begun leaves its receive to the next one, and the server would find the wrong content
        // there.
        let messages = self.posted - self.in_flight.len() as u64;
        for message in self.in_flight.drain(..).rev() {
            message.handle.cancel();
        }
        Measured { messages, times, took, ended, refused_before }
    }

    fn send_all(&mut self, started: &mut Option<Instant>) -> Result<(), Failure> {
        for _ in 0..self.args.inflight {
            self.post()?;
        }
        let warm_up = Instant::now();
        for _ in 0..self.args.warmup {
            // On a slow path the warm-up gets a quarter of the time.
            if warm_up.elapsed() > self.args.duration / 4 {
                break;
            }
            self.finish()?;
            self.post()?;
        }
        self.times.clear();
        let start = *started.insert(Instant::now());
        let goes_on = |run: &Self| match run.args.iters {
            Some(iters) => (run.times.len() as u64) < iters,
            // At least one message, however slow the path.
            None => run.times.is_empty() || start.elapsed() < run.args.duration,
        };
        while goes_on(self) {
            self.finish()?;
            self.post()?;
        }
        Ok(())
    }

    fn post(&mut self) -> Result<(), Failure> {
        let spare = self.spare.pop();
        let mut buffer = match spare {
            Some(buffer) => buffer,
            None => Arc::new(memory::zeroed(self.args.size as usize)?),
        };
        if self.args.validate {
            if Arc::get_mut(&mut buffer).is_none() {
                // A worker still holds the old buffer.
                buffer = Arc::new(memory::zeroed(self.args.size as usize)?);
            }
            if let Some(bytes) = Arc::get_mut(&mut buffer) {
                pattern::fill(bytes, 0, self.posted);
            }
        }
        let posted = Instant::now();
        let handle = self
            .measured
            .start_send(SendBuffer::new(buffer.clone()), None)
            .map_err(|error| Failure::Network(error.to_string()))?;
        self.posted += 1;
        self.in_flight.push_back(InFlight { handle, posted, buffer });
        Ok(())
    }

    /// Waits for the oldest message: until the server has all of it, or in a mode without repair
    /// has given it up.
    fn finish(&mut self) -> Result<(), Failure> {
        let Some(oldest) = self.in_flight.front() else { return Ok(()) };
        let mut sent = None;
        loop {
            if (self.stop)() {
                return Err(Failure::Interrupted);
            }
            if oldest.handle.wait_finished(POLL_INTERVAL) {
                break;
            }
            if oldest.handle.status().outcome.transpose().map_err(SendError::Failed)?.is_some() {
                // Sent: this end is done with it.
                if let Some(failure) = self.measured.failure() {
                    return Err(Failure::Network(failure.to_string()));
                }
                if sent.get_or_insert_with(Instant::now).elapsed() > FINISHED_WITHIN {
                    let text = "the server takes no more messages".to_owned();
                    return Err(Failure::Network(text));
                }
            }
        }
        let Some(oldest) = self.in_flight.pop_front() else { return Ok(()) };
        self.times.push(oldest.posted.elapsed());
        self.spare.push(oldest.buffer);
        Ok(())
    }
}
