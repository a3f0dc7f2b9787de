//! The client's measured side: keeps operations in flight, waits for them in order, and records the
//! time of each.

use super::protocol::{Counters, Done, Ended};
use super::{ClientArgs, pattern};
use crate::failure::Failure;
use crate::memory;
use crate::output::Output;
use crate::units::{show_bytes, show_count};
use lacuna::Reason;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Filling this much takes about a second, so the user is told.
const TOLD_FROM_BYTES: u64 = 1 << 30;
/// Bytes filled between two checks for a stop; whole words.
const FILL_BYTES: usize = 16 << 20;
/// How long the operations that are in flight at the end may take to end, at least.
const DRAINED_WITHIN: Duration = Duration::from_secs(2);

/// Operations of one kind, several of which are in flight.
pub(super) trait Operations {
    /// Starts operation `number`; returns when.
    fn post(&mut self, number: u64) -> Result<Instant, Failure>;

    /// Waits for the oldest one in flight, at most [`crate::interrupt::POLL_INTERVAL`]; returns whether it has ended.
    fn wait_oldest(&mut self, tally: &mut Tally) -> Result<bool, Failure>;

    /// Waits for any in flight; which has ended. For operations that end in another order than they began.
    fn wait_one(&mut self, oldest: u64, tally: &mut Tally) -> Result<Option<u64>, Failure> {
        Ok(self.wait_oldest(tally)?.then_some(oldest))
    }

    /// Whether those in flight at the end are waited for, so that the tally is exact.
    fn are_awaited(&self) -> bool;

    /// Gives those in flight up.
    fn give_up(&mut self);
}

/// How operations ended, as far as the client knows.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) ended: Ended,
    /// `None` if the server has to find out.
    pub(super) lost_bytes: Option<u64>,
    /// Operations that brought nothing, of those whose bytes come here.
    pub(super) missed: u64,
    /// Operations whose bytes are wrong, and the first of them.
    pub(super) wrong: u64,
    pub(super) first_wrong: Option<String>,
}

impl Tally {
    /// Counts an operation that has ended so, with so many bytes lost.
    pub(super) fn count(&mut self, reason: Reason, lost_bytes: u64) {
        *self.ended.entry(reason.name().to_owned()).or_default() += 1;
        *self.lost_bytes.get_or_insert_default() += lost_bytes;
    }

    /// Counts an operation whose bytes are wrong.
    pub(super) fn wrong(&mut self, number: u64, at: u64) {
        self.wrong += 1;
        self.first_wrong.get_or_insert_with(|| format!("message {number} at byte {at}"));
    }
}

/// A measurement over operations of one kind.
pub(super) struct Sending<'a, O> {
    args: &'a ClientArgs,
    operations: O,
    /// Operations in flight at a time.
    depth: u32,
    stop: &'a dyn Fn() -> bool,
    /// Those in flight, and when they were posted.
    in_flight: VecDeque<(u64, Instant)>,
    posted: u64,
    times: Vec<Duration>,
    tally: Tally,
}

/// Measured values.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Messages that completed, warm-up included.
    pub(super) messages: u64,
    /// Those that were given up at the end.
    pub(super) given_up: u64,
    /// Time of each measured message.
    pub(super) times: Vec<Duration>,
    /// How long the measurement took.
    pub(super) took: Duration,
    /// How the operations ended.
    pub(super) tally: Tally,
    /// Why it ended early, if it did.
    pub(super) ended: Option<Failure>,
    /// What this end received, if it is the end that receives.
    pub(super) received: Option<Counters>,
}

impl Measured {
    /// With half of the times: of rounds, of which one way is half.
    pub(super) fn halved(mut self) -> Self {
        self.times.iter_mut().for_each(|time| *time /= 2);
        self
    }

    /// Names the server in the failure of a network, if that ended it.
    pub(super) fn name_host(&mut self, host: &str) {
        self.ended = self.ended.take().map(|failure| match failure {
            Failure::Network(text) => Failure::Network(format!("{host}: {text}")),
            failure => failure,
        });
    }

    /// What the server is told at the end.
    pub(super) fn done(&self) -> Done {
        Done {
            messages: self.messages,
            ended: self.tally.ended.clone(),
            given_up: self.given_up,
            lost_bytes: self.tally.lost_bytes,
        }
    }
}

/// A buffer per message in flight, so that, as with large writes, the bytes come from memory and
/// not from a cache.
pub(super) fn buffers(
    args: &ClientArgs,
    stop: &dyn Fn() -> bool,
    output: Output,
) -> Result<Vec<Arc<Vec<u8>>>, Failure> {
    check_memory(args, output)?;
    let filled = |number| filled(args.size as usize, number, stop).map(Arc::new);
    (0..u64::from(args.depth())).map(filled).collect()
}

/// Checks whether there is memory for what is in flight, and tells the user if filling it takes a while.
pub(super) fn check_memory(args: &ClientArgs, output: Output) -> Result<(), Failure> {
    let count = show_count(args.depth().into(), "message");
    let what = format!("{count} of {} in flight", show_bytes(args.size));
    let needed_bytes = args.size.saturating_mul(args.depth().into());
    memory::check(needed_bytes, &what, "choose a smaller --size or --inflight")?;
    if needed_bytes >= TOLD_FROM_BYTES {
        output.note(&format!("filling {what}: {}", show_bytes(needed_bytes)));
    }
    Ok(())
}

/// A filled message.
pub(super) fn filled(
    len: usize,
    message: u64,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<u8>, Failure> {
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

impl<'a, O: Operations> Sending<'a, O> {
    pub(super) fn new(args: &'a ClientArgs, operations: O, stop: &'a dyn Fn() -> bool) -> Self {
        let (in_flight, times, tally) = (VecDeque::new(), Vec::new(), Tally::default());
        let depth = args.depth() * u32::from(args.lines());
        Self { args, operations, depth, stop, in_flight, posted: 0, times, tally }
    }

    /// Measures until the limit, or until it is ended early; completed messages count.
    pub(super) fn run(mut self) -> Measured {
        let mut started: Option<Instant> = None;
        let mut ended = self.send_all(&mut started).err();
        // Times of an unfinished warm-up do not count.
        let (times, took) = match started {
            Some(started) => (std::mem::take(&mut self.times), started.elapsed()),
            None => Default::default(),
        };
        if ended.is_none() && self.operations.are_awaited() {
            ended = self.drain().err();
        }
        let given_up = self.in_flight.len() as u64;
        self.operations.give_up();
        Measured {
            messages: self.posted - given_up,
            given_up,
            times,
            took,
            tally: self.tally,
            ended,
            ..Measured::default()
        }
    }

    fn send_all(&mut self, started: &mut Option<Instant>) -> Result<(), Failure> {
        for _ in 0..self.depth {
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

    /// Waits for those in flight, for a while.
    fn drain(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + self.args.duration.max(DRAINED_WITHIN);
        while !self.in_flight.is_empty() && Instant::now() < until {
            self.finish_within(Some(until))?;
        }
        Ok(())
    }

    fn post(&mut self) -> Result<(), Failure> {
        let posted = self.operations.post(self.posted)?;
        self.in_flight.push_back((self.posted, posted));
        self.posted += 1;
        Ok(())
    }

    /// Waits for the oldest operation.
    fn finish(&mut self) -> Result<(), Failure> {
        self.finish_within(None)
    }

    fn finish_within(&mut self, until: Option<Instant>) -> Result<(), Failure> {
        let Some((oldest, _)) = self.in_flight.front() else { return Ok(()) };
        let oldest = *oldest;
        let ended = loop {
            if (self.stop)() {
                return Err(Failure::Interrupted);
            }
            if let Some(ended) = self.operations.wait_one(oldest, &mut self.tally)? {
                break ended;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
        };
        let found = self.in_flight.binary_search_by_key(&ended, |(number, _)| *number);
        let Some((_, posted)) = found.ok().and_then(|at| self.in_flight.remove(at)) else {
            return Ok(());
        };
        self.times.push(posted.elapsed());
        Ok(())
    }
}
