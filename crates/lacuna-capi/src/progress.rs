//! Progress for programs that poll.
//!
//! A program in the manner of SDR-RDMA 5.4.1 keeps a core busy polling. With worker threads on few
//! cores, both would compete for the core, so there the calls make progress themselves: a poll that
//! finds nothing reads the sockets. But such a program may also read only the bitmap in memory,
//! without calls, or sleep until the peer's reply comes. For that case there is one *covering*
//! thread: it sleeps while calls make progress, and takes over when they stop; calls that resume
//! take over from it.
//!
//! The two sides share a few counters and never wait for each other: a call that finds the worker
//! locked returns. It yields the core first, because a polling program that shares its only core
//! with the thread that sends would keep the core to the end of its time slice (each end pinned to
//! one core, the benchmark of 5.4.1 ran at half the rate). Waiting for the worker's lock was slower
//! than yielding. With enough cores there are worker threads, and none of this.

use crate::outcome::{self, Failure};
use lacuna::Context;
use lacuna::datapath::limit::NoThread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the covering thread checks whether calls go on. A check costs the program some
/// microseconds of its core; a program that has stopped calling waits this long for progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Longest sleep of the covering thread while it makes progress; packets and commands wake it.
const SLEEP_MAX: Duration = Duration::from_millis(10);
/// Binary logarithm of the most calls, all without a result, from one read of the sockets to the
/// next. Reading costs a system call per channel, so an idle call costs tens of nanoseconds on
/// average.
const EMPTY_STEPS_MAX: u32 = 7;
/// Bounds of the polls after which the covering thread hands over. A program that stops calling
/// again and again reads the bitmap alone, and handing over only costs time; one that stops once
/// may just have lost its core. So the number grows with each stop, and shrinks while calls go on.
const HANDOVER_POLLS_MIN: u32 = 2;
const HANDOVER_POLLS_MAX: u32 = 1024;
/// Of these polls, one in this many counts and yields the core, which costs some hundred
/// nanoseconds even if no other thread wants it.
const COVERED_SKIP: u32 = 8;
/// Least time between two wake-ups of the covering thread.
const WAKE_EVERY_NS: u64 = 200_000;

/// Makes progress for one context.
pub(crate) struct Driver {
    context: Context,
    /// `None` if the context has worker threads.
    handover: Option<Arc<Handover>>,
    /// The covering thread, if there is one.
    cover: Option<JoinHandle<()>>,
    started: Instant,
}

/// State shared by calls and the covering thread.
#[derive(Debug, Default)]
struct Handover {
    /// Steps that calls have made.
    steps: AtomicU64,
    /// Number of the latest steps in a row that found nothing.
    empty_steps: AtomicU32,
    /// Calls to come that do not read the sockets.
    skip: AtomicU32,
    /// The covering thread makes progress.
    is_covered: AtomicBool,
    /// Polls since the covering thread took over.
    polls: AtomicU32,
    /// Polls after which it hands over.
    polls_max: AtomicU32,
    /// The program is expected not to call for a while.
    is_away: AtomicBool,
    woken_ns: AtomicU64,
    is_stopped: AtomicBool,
    /// A step has panicked.
    is_poisoned: AtomicBool,
}

/// Sets `is_poisoned` while a panic unwinds.
struct PoisonOnPanic<'t>(&'t Handover);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_poisoned.store(true, Ordering::Release);
        }
    }
}

impl Driver {
    /// For a context with worker threads.
    pub(crate) fn threaded(context: Context) -> Self {
        let started = Instant::now();
        Self { context, handover: None, cover: None, started }
    }

    /// For a context with manual progress.
    pub(crate) fn in_calls(context: Context) -> Result<Self, Failure> {
        let handover = Arc::new(Handover { polls_max: AtomicU32::new(1), ..Handover::default() });
        let cover = {
            let (context, handover) = (context.clone(), handover.clone());
            lacuna::datapath::thread::start("lacuna-cover", move || {
                if catch_unwind(AssertUnwindSafe(|| handover.cover(&context))).is_err() {
                    handover.is_poisoned.store(true, Ordering::Release);
                }
            })
        };
        let cover = cover.map_err(|error| {
            let why = NoThread(&error);
            Failure::new(outcome::SYSTEM, format!("the system refused a thread: {why}"))
        })?;
        Ok(Self { context, handover: Some(handover), cover: Some(cover), started: Instant::now() })
    }

    /// The context whose progress this is.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// A poll has found nothing: makes progress, or leaves that to the covering thread.
    #[inline]
    pub(crate) fn poll(&self) {
        if let Some(handover) = &self.handover {
            let skip = handover.skip.load(Ordering::Relaxed);
            if skip > 0 {
                // Not exact with several threads, which is harmless.
                handover.skip.store(skip - 1, Ordering::Relaxed);
            } else {
                self.step(handover);
            }
        }
    }

    fn step(&self, handover: &Handover) {
        if handover.is_covered.load(Ordering::Acquire) {
            let polls = handover.polls.fetch_add(1, Ordering::AcqRel) + 1;
            if polls == handover.polls_max.load(Ordering::Relaxed) {
                self.context.interrupt();
            }
            // On one core the covering thread can neither send nor hand over before it gets the
            // core.
            handover.skip.store(COVERED_SKIP, Ordering::Relaxed);
            std::thread::yield_now();
            return;
        }
        let _poison = PoisonOnPanic(handover);
        match self.context.try_progress() {
            None => {}
            Some(true) => {
                handover.steps.fetch_add(1, Ordering::Release);
                handover.empty_steps.store(0, Ordering::Relaxed);
            }
            Some(false) => {
                handover.steps.fetch_add(1, Ordering::Release);
                let empty_steps =
                    handover.empty_steps.load(Ordering::Relaxed).min(EMPTY_STEPS_MAX - 1) + 1;
                handover.empty_steps.store(empty_steps, Ordering::Relaxed);
                handover.skip.store(1 << empty_steps, Ordering::Relaxed);
                if empty_steps == EMPTY_STEPS_MAX {
                    // On a machine with fewer cores than busy programs, the peer may be waiting for
                    // this core.
                    std::thread::yield_now();
                }
            }
        }
    }

    /// The program has started an operation: makes a step at once, so that a short message leaves
    /// within the call that posts it.
    pub(crate) fn push(&self) {
        if let Some(handover) = &self.handover
            && !handover.is_covered.load(Ordering::Acquire)
        {
            self.step(handover);
        }
    }

    /// The program has its result while there is more to do, and may not call for a while: wakes
    /// the covering thread.
    pub(crate) fn leave(&self) {
        let Some(handover) = &self.handover else { return };
        if handover.is_covered.load(Ordering::Acquire) {
            return;
        }
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let woken_ns = handover.woken_ns.load(Ordering::Relaxed);
        if now_ns < woken_ns + WAKE_EVERY_NS {
            return;
        }
        handover.woken_ns.store(now_ns, Ordering::Relaxed);
        handover.is_away.store(true, Ordering::Release);
        if let Some(cover) = &self.cover {
            cover.thread().unpark();
        }
    }

    /// Makes progress in a call that has to wait.
    pub(crate) fn insist(&self) {
        if !self.context.progress() {
            std::thread::yield_now();
        }
    }

    /// An error if progress has panicked.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &self.handover {
            Some(handover) if handover.is_poisoned.load(Ordering::Acquire) => Err(outcome::bug()),
            _ => Ok(()),
        }
    }
}

impl Handover {
    /// The covering thread's loop.
    fn cover(&self, context: &Context) {
        let mut polls_max = HANDOVER_POLLS_MIN;
        while !self.is_stopped.load(Ordering::Acquire) {
            let steps = self.steps.load(Ordering::Acquire);
            std::thread::park_timeout(CHECK_INTERVAL);
            let is_away = self.is_away.swap(false, Ordering::AcqRel);
            if !is_away && self.steps.load(Ordering::Acquire) != steps {
                polls_max = (polls_max / 2).max(HANDOVER_POLLS_MIN);
                continue;
            }
            if !is_away {
                polls_max = (polls_max * 4).min(HANDOVER_POLLS_MAX);
            }
            self.polls_max.store(if is_away { 1 } else { polls_max }, Ordering::Relaxed);
            self.polls.store(0, Ordering::Release);
            self.is_covered.store(true, Ordering::Release);
            while !self.is_stopped.load(Ordering::Acquire)
                && self.polls.load(Ordering::Acquire) < self.polls_max.load(Ordering::Relaxed)
            {
                context.progress_within(SLEEP_MAX);
            }
            self.skip.store(0, Ordering::Relaxed);
            self.is_covered.store(false, Ordering::Release);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Some(handover) = &self.handover else { return };
        handover.is_stopped.store(true, Ordering::Release);
        if let Some(cover) = self.cover.take() {
            // The thread is parked, asleep in `progress_within`, or about to be; both wake-ups are
            // remembered.
            cover.thread().unpark();
            self.context.interrupt();
            // The calls report its panic.
            let _ = cover.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna::datapath::MemNetwork;
    use lacuna::{ContextConfig, DatapathKind, Progress};

    /// With the worker said to be covered, by nobody.
    fn covered() -> Driver {
        let context = Context::new(ContextConfig {
            datapath: DatapathKind::Mem(MemNetwork::new()),
            progress: Progress::Manual,
            ..ContextConfig::default()
        });
        let handover = Handover {
            is_covered: AtomicBool::new(true),
            polls_max: AtomicU32::new(u32::MAX),
            ..Handover::default()
        };
        let mut driver = Driver::threaded(context.unwrap());
        driver.handover = Some(Arc::new(handover));
        driver
    }

    fn polls(driver: &Driver) -> u32 {
        driver.handover.as_ref().unwrap().polls.load(Ordering::Relaxed)
    }

    #[test]
    fn one_call_in_some_looks_while_another_thread_covers() {
        let driver = covered();
        for _ in 0..10 * (COVERED_SKIP + 1) {
            driver.poll();
        }
        assert_eq!(polls(&driver), 10);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_that_polls_leaves_its_core_to_the_thread_that_covers() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let all = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
        // Threads begin where the one that makes them may run.
        sched_setaffinity(None, &one).unwrap();
        let driver = covered();
        let (steps, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    steps.fetch_add(1, Ordering::Relaxed);
                }
            });
            while steps.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            // Some microseconds if the core is kept: no time slice ends in them.
            let before = steps.load(Ordering::Relaxed);
            for _ in 0..200 * (COVERED_SKIP + 1) {
                driver.poll();
            }
            let after = steps.load(Ordering::Relaxed);
            is_over.store(true, Ordering::Relaxed);
            assert_ne!(before, after, "the other thread never had the core");
        });
    }
}
