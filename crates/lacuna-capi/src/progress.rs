//! Who makes progress for a program that polls.
//!
//! A program in the manner of SDR-RDMA 5.4.1 keeps a core busy with polling. On a
//! machine with few cores a worker thread would compete with it for the core, so
//! there the calls themselves are the worker: a poll that finds nothing looks for
//! packets. But such a program may also read the bitmap alone, which is memory
//! and no call, or go to sleep until the peer's word comes. For that there is one
//! thread that *covers*: it sleeps while calls make progress and takes over when
//! they stop; calls that come back take over from it.
//!
//! The two sides share a few counters, and never wait for each other: a call that
//! finds the worker taken returns. It yields the core first: where both have only
//! one, a program that went on polling would keep it to the end of its time slice
//! from the thread that sends (pinned to a core each, the benchmark of 5.4.1 ran
//! at half the rate). Taking the worker over by a lock that is waited for was
//! slower than yielding. With enough cores there are worker threads
//! and nothing of this.

use crate::outcome::{self, Failure};
use lacuna::Context;
use lacuna::datapath::limit::NoThread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the covering thread looks whether calls go on. A look costs some
/// microseconds of a core that the program uses; a program that went away without
/// a word waits so long.
const PATROL: Duration = Duration::from_millis(1);
/// Longest sleep of the covering thread while it makes progress: packets and
/// requests wake it.
const NAP: Duration = Duration::from_millis(10);
/// Calls without progress, all found in vain, between two looks for packets
/// grow up to two to this power. A look costs a system call for each channel, so
/// a call costs tens of nanoseconds on average when there is nothing to do.
const VAIN_MAX: u32 = 7;
/// Looks after which the covering thread gives way, one in some calls. If calls stop without a word
/// again and again, the program has a way of reading the bitmap alone, and taking
/// turns only costs it; if once, the program may just have lost its core for a
/// while. So patience grows with each time, and shrinks while calls go on.
const PATIENCE_MIN: u32 = 2;
const PATIENCE_MAX: u32 = 1024;
/// Calls between two of these looks: a look yields the core, which costs some
/// hundred nanoseconds even if nobody wants it.
const COVERED_SKIP: u32 = 8;
/// The covering thread is not called more often than this.
const CALL_EVERY_NS: u64 = 200_000;

/// Progress of one context.
pub(crate) struct Driver {
    context: Context,
    /// `None` if the context has worker threads.
    turn: Option<Arc<Turn>>,
    /// The covering thread, if there is one.
    cover: Option<JoinHandle<()>>,
    started: Instant,
}

/// What calls and the covering thread share.
#[derive(Debug, Default)]
struct Turn {
    /// Rounds of progress that calls have made.
    rounds: AtomicU64,
    /// Of the last rounds in a row, those that found nothing.
    vain: AtomicU32,
    /// Calls that will not look for packets.
    skip: AtomicU32,
    /// The covering thread makes progress.
    is_covered: AtomicBool,
    /// Polls since it does.
    wishes: AtomicU32,
    /// Polls that it takes before it gives way.
    patience: AtomicU32,
    /// The program is expected to stay away for a while.
    is_left: AtomicBool,
    called_ns: AtomicU64,
    is_stopped: AtomicBool,
    /// Making progress has panicked.
    is_ruined: AtomicBool,
}

/// Notes a panic on its way out.
struct Ruin<'t>(&'t Turn);

impl Drop for Ruin<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_ruined.store(true, Ordering::Release);
        }
    }
}

impl Driver {
    /// For a context with threads of its own.
    pub(crate) fn threaded(context: Context) -> Self {
        let started = Instant::now();
        Self { context, turn: None, cover: None, started }
    }

    /// For a context with manual progress.
    pub(crate) fn in_calls(context: Context) -> Result<Self, Failure> {
        let turn = Arc::new(Turn { patience: AtomicU32::new(1), ..Turn::default() });
        let cover = {
            let (context, turn) = (context.clone(), turn.clone());
            lacuna::datapath::thread::start("lacuna-cover", move || {
                if catch_unwind(AssertUnwindSafe(|| turn.cover(&context))).is_err() {
                    turn.is_ruined.store(true, Ordering::Release);
                }
            })
        };
        let cover = cover.map_err(|error| {
            let why = NoThread(&error);
            Failure::new(outcome::SYSTEM, format!("the system refused a thread: {why}"))
        })?;
        Ok(Self { context, turn: Some(turn), cover: Some(cover), started: Instant::now() })
    }

    /// The context whose progress this is.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// A poll has found nothing: looks for packets, or leaves it to others.
    #[inline]
    pub(crate) fn poll(&self) {
        if let Some(turn) = &self.turn {
            let skip = turn.skip.load(Ordering::Relaxed);
            if skip > 0 {
                // Threads that count at once may skip some more or fewer.
                turn.skip.store(skip - 1, Ordering::Relaxed);
            } else {
                self.look(turn);
            }
        }
    }

    fn look(&self, turn: &Turn) {
        if turn.is_covered.load(Ordering::Acquire) {
            let wishes = turn.wishes.fetch_add(1, Ordering::AcqRel) + 1;
            if wishes == turn.patience.load(Ordering::Relaxed) {
                self.context.interrupt();
            }
            // On one core the covering thread can neither send nor give way
            // before it has the core.
            turn.skip.store(COVERED_SKIP, Ordering::Relaxed);
            std::thread::yield_now();
            return;
        }
        let _ruin = Ruin(turn);
        match self.context.try_progress() {
            None => {}
            Some(true) => {
                turn.rounds.fetch_add(1, Ordering::Release);
                turn.vain.store(0, Ordering::Relaxed);
            }
            Some(false) => {
                turn.rounds.fetch_add(1, Ordering::Release);
                let vain = turn.vain.load(Ordering::Relaxed).min(VAIN_MAX - 1) + 1;
                turn.vain.store(vain, Ordering::Relaxed);
                turn.skip.store(1 << vain, Ordering::Relaxed);
                if vain == VAIN_MAX {
                    // On a machine with fewer cores than busy programs the one that
                    // is polled for may be waiting for this core.
                    std::thread::yield_now();
                }
            }
        }
    }

    /// The program has started something: a round at once, so that a short
    /// message leaves with the call that posts it.
    pub(crate) fn push(&self) {
        if let Some(turn) = &self.turn
            && !turn.is_covered.load(Ordering::Acquire)
        {
            self.look(turn);
        }
    }

    /// The program has what it polled for while there is more to do, and may wait
    /// for something else now.
    pub(crate) fn leave(&self) {
        let Some(turn) = &self.turn else { return };
        if turn.is_covered.load(Ordering::Acquire) {
            return;
        }
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let called_ns = turn.called_ns.load(Ordering::Relaxed);
        if now_ns < called_ns + CALL_EVERY_NS {
            return;
        }
        turn.called_ns.store(now_ns, Ordering::Relaxed);
        turn.is_left.store(true, Ordering::Release);
        if let Some(cover) = &self.cover {
            cover.thread().unpark();
        }
    }

    /// Makes progress in a call that cannot go on without.
    pub(crate) fn insist(&self) {
        if !self.context.progress() {
            std::thread::yield_now();
        }
    }

    /// Whether progress can still be made.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &self.turn {
            Some(turn) if turn.is_ruined.load(Ordering::Acquire) => Err(outcome::bug()),
            _ => Ok(()),
        }
    }
}

impl Turn {
    /// The covering thread.
    fn cover(&self, context: &Context) {
        let mut patience = PATIENCE_MIN;
        while !self.is_stopped.load(Ordering::Acquire) {
            let rounds = self.rounds.load(Ordering::Acquire);
            std::thread::park_timeout(PATROL);
            let is_left = self.is_left.swap(false, Ordering::AcqRel);
            if !is_left && self.rounds.load(Ordering::Acquire) != rounds {
                patience = (patience / 2).max(PATIENCE_MIN);
                continue;
            }
            if !is_left {
                patience = (patience * 4).min(PATIENCE_MAX);
            }
            self.patience.store(if is_left { 1 } else { patience }, Ordering::Relaxed);
            self.wishes.store(0, Ordering::Release);
            self.is_covered.store(true, Ordering::Release);
            while !self.is_stopped.load(Ordering::Acquire)
                && self.wishes.load(Ordering::Acquire) < self.patience.load(Ordering::Relaxed)
            {
                context.progress_within(NAP);
            }
            self.skip.store(0, Ordering::Relaxed);
            self.is_covered.store(false, Ordering::Release);
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let Some(turn) = &self.turn else { return };
        turn.is_stopped.store(true, Ordering::Release);
        if let Some(cover) = self.cover.take() {
            // Whether it is parked, asleep, or about to be: both of these last.
            cover.thread().unpark();
            self.context.interrupt();
            // What it panicked with is what the calls say.
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
        let turn = Turn {
            is_covered: AtomicBool::new(true),
            patience: AtomicU32::new(u32::MAX),
            ..Turn::default()
        };
        let mut driver = Driver::threaded(context.unwrap());
        driver.turn = Some(Arc::new(turn));
        driver
    }

    fn wishes(driver: &Driver) -> u32 {
        driver.turn.as_ref().unwrap().wishes.load(Ordering::Relaxed)
    }

    #[test]
    fn one_call_in_some_looks_while_another_thread_covers() {
        let driver = covered();
        for _ in 0..10 * (COVERED_SKIP + 1) {
            driver.poll();
        }
        assert_eq!(wishes(&driver), 10);
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
