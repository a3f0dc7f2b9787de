//! Who makes progress: whoever waits for an operation, and a thread of the group while nobody does, so that what others
//! still miss is sent again while this rank computes.
//!
//! To hand over costs two changes of threads, so the thread leaves an application that calls again soon alone. Then it waits
//! for packets as long as anything is under way, for this rank or from it to others: an operation that is done here may
//! be one that others wait for. Else it looks now and then: to wait for packets is to poll for a while, and the core that
//! it takes is one that the ranks of this host lack.

use crate::adapt::Adapt;
use crate::config::Budget;
use crate::error::OperationError;
use crate::fabric::Sockets;
use lacuna::Context;
use lacuna_schedule::budget::Key;
use lacuna_schedule::run::{Divisor, Fabric, Finished, Job, RunError, Runner, Time};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long who waits polls before it sleeps.
const SPIN: Duration = Duration::from_micros(100);
/// The thread's pause while others wait for operations, each of which it may disturb.
const PAUSE_CALLED: Duration = Duration::from_millis(4);
/// Its first pause once nothing is under way; the next ones are twice as long each.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest: what others miss comes to them so much later.
const PAUSE_MAX: Duration = Duration::from_millis(8);
/// How long after something was under way the thread waits for packets, rather than pause.
const ACTIVE: Duration = Duration::from_millis(20);
/// Longest sleep, in case that nothing wakes it.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// How much of a given budget an operation usually takes, which nobody has said: as if the budget had the margin that
/// OptiNIC gives a first one (3.1.2).
const USUAL: f64 = 1.0 / 1.25;

struct Core {
    runner: Runner,
    sockets: Sockets,
    adapt: Adapt,
    ranks: usize,
    /// The kinds of operations in flight whose budgets are learned, and their bytes.
    learning: HashMap<u64, (Key, u64)>,
    finished: HashMap<u64, Finished>,
    /// Operations whose handles are gone.
    unwanted: Vec<u64>,
}

/// Of which kind an operation is, and how much time it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) key: Key,
    pub(crate) bytes: u64,
    pub(crate) budget: Budget,
    pub(crate) divisor: Divisor,
}

#[derive(Default)]
struct Turn {
    /// Who waits for operations.
    callers: usize,
    /// Somebody has waited since the thread looked last.
    was_called: bool,
    /// The thread may be asleep in the context.
    is_driving: bool,
    is_over: bool,
}

struct Shared {
    context: Context,
    core: Mutex<Core>,
    turn: Mutex<Turn>,
    may_go: Condvar,
}

/// See the module's text.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Does what there is to do; whether anything is over by it, and how long it may be let alone.
    fn step(&mut self) -> (bool, Duration) {
        self.runner.poll(&mut self.sockets);
        let mut has_any = false;
        while let Some(over) = self.runner.take() {
            has_any = true;
            if let Some((key, bytes)) = self.learning.remove(&over.sequence)
                && let Ok(report) = &over.result
            {
                self.hear();
                let word = self.adapt.on_finished(key, bytes, report);
                self.runner.publish(over.sequence + 1, &word);
            }
            let Self { finished, unwanted, .. } = self;
            match unwanted.iter().position(|sequence| *sequence == over.sequence) {
                Some(at) => drop(unwanted.swap_remove(at)),
                None => drop(finished.insert(over.sequence, over)),
            }
        }
        let now_ns = self.sockets.now_ns();
        let left = |due_ns: u64| Duration::from_nanos(due_ns.saturating_sub(now_ns));
        (has_any, self.runner.poll_timeout().map_or(SLEEP_MAX, left).min(SLEEP_MAX))
    }
}

impl Core {
    /// Whether anything is under way, here or from here to others.
    fn is_busy(&self) -> bool {
        self.runner.in_flight() > 0 || self.sockets.has_sends()
    }

    /// Takes in what other ranks say of their times.
    fn hear(&mut self) {
        let Self { runner, adapt, ranks, .. } = self;
        for rank in 0..*ranks {
            if let Some((stamp, word)) = runner.published(rank) {
                adapt.on_heard(rank, stamp, word);
            }
        }
    }

    fn start(&mut self, mut job: Job, limit: Limit) -> (u64, Option<u64>) {
        let Limit { key, bytes, budget, divisor } = limit;
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bounds_ns = match budget {
            Budget::Unlimited | Budget::Within(_) => None,
            Budget::Fixed(time) => Some((ns(time), ns(time.mul_f64(USUAL)))),
            Budget::Adaptive => {
                self.hear();
                Some(self.adapt.budget_ns(key, bytes))
            }
        };
        job.time = match (budget, bounds_ns) {
            (Budget::Within(time), _) => Time::Within { limit_ns: ns(time) },
            (_, Some((budget_ns, usual_ns))) => Time::Bounded { budget_ns, usual_ns, divisor },
            _ => Time::Unlimited,
        };
        let sequence = self.runner.start(&mut self.sockets, job);
        if budget == Budget::Adaptive {
            self.learning.insert(sequence, (key, bytes));
        }
        self.step();
        (sequence, bounds_ns.map(|(budget_ns, _)| budget_ns))
    }
}

impl Driver {
    pub(crate) fn new(
        context: Context,
        runner: Runner,
        sockets: Sockets,
        (adapt, ranks): (Adapt, usize),
    ) -> std::io::Result<Self> {
        let core = Core {
            runner,
            sockets,
            adapt,
            ranks,
            learning: HashMap::new(),
            finished: HashMap::new(),
            unwanted: Vec::new(),
        };
        let shared = Arc::new(Shared {
            context,
            core: Mutex::new(core),
            turn: Mutex::default(),
            may_go: Condvar::new(),
        });
        let at_work = shared.clone();
        let thread = std::thread::Builder::new()
            .name("lacuna-group".to_owned())
            .spawn(move || at_work.work())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Starts an operation: its number, and its budget if it has one.
    pub(crate) fn start(&self, job: Job, limit: Limit) -> (u64, Option<u64>) {
        let _calling = self.shared.call();
        lock(&self.shared.core).start(job, limit)
    }

    /// Waits for an operation, for at most this long; `None` if it is not over then.
    pub(crate) fn wait(&self, sequence: u64, limit: Option<Duration>) -> Option<Finished> {
        let _calling = self.shared.call();
        let begin = Instant::now();
        let mut busy = begin;
        loop {
            let mut core = lock(&self.shared.core);
            let (has_any, rest) = core.step();
            if let Some(finished) = core.finished.remove(&sequence) {
                return Some(finished);
            }
            drop(core);
            let now = Instant::now();
            if has_any {
                busy = now;
            }
            let left = limit.map(|limit| limit.saturating_sub(now - begin));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            if now - busy > SPIN {
                let rest = left.map_or(rest, |left| left.min(rest));
                Sockets::wait(&self.shared.context, rest);
            }
        }
    }

    /// Nobody waits for an operation any more; its memory is freed when it is over.
    pub(crate) fn forget(&self, sequence: u64) {
        let mut core = lock(&self.shared.core);
        if core.finished.remove(&sequence).is_none() {
            core.unwanted.push(sequence);
        }
    }

    /// Why the group has to be formed again, if it has.
    pub(crate) fn failure(&self) -> Option<RunError> {
        lock(&self.shared.core).runner.failure().cloned()
    }

    /// Ends the thread; what was sent has some time to arrive.
    pub(crate) fn close(&mut self, limit: Duration) {
        let Some(thread) = self.thread.take() else { return };
        let calling = self.shared.call();
        lock(&self.shared.turn).is_over = true;
        drop(calling);
        self.shared.may_go.notify_all();
        self.shared.context.interrupt();
        if thread.join().is_err() {
            tracing::error!("the thread of a group panicked");
        }
        lock(&self.shared.core).sockets.close(limit);
    }

    pub(crate) fn check(&self) -> Result<(), OperationError> {
        self.failure().map_or(Ok(()), |error| Err(OperationError::Run(error)))
    }
}

/// While it lives, the thread sleeps.
struct Calling<'s>(&'s Shared);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        let mut turn = lock(&self.0.turn);
        turn.callers -= 1;
        turn.was_called = true;
    }
}

impl Shared {
    fn call(&self) -> Calling<'_> {
        let mut turn = lock(&self.turn);
        turn.callers += 1;
        if turn.is_driving {
            self.context.interrupt();
        }
        Calling(self)
    }

    fn work(&self) {
        let mut pause = PAUSE_CALLED;
        let mut turn = lock(&self.turn);
        while !turn.is_over {
            turn.was_called = false;
            turn = self.may_go.wait_timeout(turn, pause).unwrap_or_else(PoisonError::into_inner).0;
            if turn.callers > 0 || turn.was_called {
                pause = PAUSE_CALLED;
                continue;
            }
            let mut active = None;
            // Once at least; then as long as there is something to do, and for a while after that.
            while turn.callers == 0 && !turn.was_called && !turn.is_over {
                turn.is_driving = true;
                drop(turn);
                let mut core = lock(&self.core);
                let (has_any, rest) = core.step();
                let is_busy = has_any || core.is_busy();
                drop(core);
                if is_busy {
                    (active, pause) = (Some(Instant::now()), PAUSE_MIN);
                }
                let is_active = active.is_some_and(|since: Instant| since.elapsed() < ACTIVE);
                if is_active {
                    Sockets::wait(&self.context, rest);
                }
                turn = lock(&self.turn);
                turn.is_driving = false;
                if !is_active {
                    pause = PAUSE_MAX.min(2 * pause);
                    break;
                }
            }
        }
    }
}
