//! Operations that go on while the program does something else, and how they went.

use super::super::connection::text_out;
use super::{lacuna_group, operation_failure};
use crate::outcome::{self, Failure, code};
use crate::pointer::{self, Out, Outs};
use crate::pool::FreeList;
use lacuna::datapath::Process;
use lacuna_collective::{Operation, OperationError, Outcome, Report};
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// No rank.
const NOBODY: u32 = u32::MAX;
/// How long a thread that waits keeps others from looking at the operation.
const WAIT_SLICE: Duration = Duration::from_millis(20);

/// An operation of a group, under way or over.
pub struct lacuna_group_operation {
    process: Process,
    index: usize,
    free: Arc<FreeList>,
    state: Mutex<State>,
}

impl pointer::Object for lacuna_group_operation {
    fn process(&self) -> Process {
        self.process
    }
}

enum State {
    Going(Operation<'static>),
    Over(Box<Done>),
    Failed(OperationError),
    /// The group was formed again in the meantime.
    Lost,
    /// The program has freed it.
    Freed,
}

struct Done {
    report: Report,
    algorithm: String,
    budget: Option<Duration>,
}

/// How an operation of a group went, for this rank.
#[repr(C)]
pub struct lacuna_group_report {
    /// Bytes that this rank was to receive.
    pub bytes: u64,
    /// Bytes of those that did not come.
    pub lost_bytes: u64,
    /// Nanoseconds from its start to its end.
    pub took_ns: u64,
    /// Nanoseconds that it had, if it was to end with what is there; else 0.
    pub budget_ns: u64,
    /// Elements of the output that lack a contribution, or may.
    pub missing_elements: u64,
    /// Nanoseconds that the straggler was waited for, beyond the phase before.
    pub straggler_ns: u64,
    /// The rank that was waited for longest; UINT32_MAX if none was.
    pub straggler_rank: u32,
    /// In which phase of the schedule, from 0 on.
    pub straggler_phase: u32,
    /// 0.
    pub more: [u64; 6],
}

/// A contribution that is missing.
#[repr(C)]
pub struct lacuna_group_missing {
    /// The first element of the output that lacks it.
    pub first: u64,
    /// How many do.
    pub count: u64,
    /// Whose contribution; UINT32_MAX where it is not known what is missing, if anything,
    /// because a rank did not say in time what it had lost.
    pub rank: u32,
    /// 0.
    pub reserved: u32,
}

impl State {
    /// How it stands: an error once it has failed, "call again" while it goes on.
    fn answer(&self) -> Result<&Done, Failure> {
        match self {
            Self::Over(done) => Ok(done),
            Self::Going(_) => Err(Failure::retry()),
            Self::Failed(error) => Err(operation_failure(error)),
            Self::Lost => Err(Failure::new(
                outcome::PEER,
                "the group was formed again while the operation went on: its result is lost",
            )),
            Self::Freed => Err(Failure::usage("this operation was freed")),
        }
    }

    /// Waits, for at most so long.
    fn wait(&mut self, limit: Duration) {
        let Self::Going(operation) = self else { return };
        *self = match operation.wait_within(Some(limit)) {
            Ok(None) => return,
            Ok(Some(Outcome { report, algorithm, budget, .. })) => {
                Self::Over(Box::new(Done { report, algorithm, budget }))
            }
            Err(error) => Self::Failed(error),
        };
    }
}

impl lacuna_group_operation {
    /// Gives an operation that was started to the program.
    pub(super) fn give(
        group: &lacuna_group,
        operation: Operation<'static>,
        out: Out<*mut Self>,
    ) -> Result<(), Failure> {
        let empty = |index, free| Self {
            process: Process::current(),
            index,
            free,
            state: Mutex::new(State::Freed),
        };
        let taken = group.operations.take(empty).ok_or_else(Failure::retry)?;
        *taken.lock() = State::Going(operation);
        out.set(std::ptr::from_ref(taken).cast_mut());
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the group, which is about to end.
    pub(super) fn lose(&self) {
        let mut state = self.lock();
        if matches!(*state, State::Going(_)) {
            *state = State::Lost;
        }
    }

    fn with<R>(&self, look: impl FnOnce(&Done) -> Result<R, Failure>) -> Result<R, Failure> {
        look(self.lock().answer()?)
    }
}

/// How an operation stands, without waiting: LACUNA_OK if it is over and the result in its
/// place, LACUNA_RETRY while it goes on, another code if it has failed. Its memory is the
/// program's again with every answer but LACUNA_RETRY. May be called from any thread.
///
/// # Safety
/// The operation's group was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_operation_poll(
    operation: *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let operation = unsafe { pointer::object(operation, "operation") }?;
        let mut state = match operation.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody waits for it, so it goes on.
            Err(TryLockError::WouldBlock) => return Err(Failure::retry()),
        };
        state.wait(Duration::ZERO);
        state.answer().map(drop)
    })
}

/// Waits until an operation is over, for at most timeout_ms: LACUNA_OK if it is and the
/// result is in its place, LACUNA_RETRY if it goes on. Other codes say that it has failed,
/// and with it the group: lacuna_group_failed_rank() says because of whom, and
/// lacuna_group_form_again() goes on without it. Of these LACUNA_DEADLINE is for an
/// operation that took longer than its budget. Its memory is the program's again with every
/// answer but LACUNA_RETRY. May be called from any thread.
///
/// # Safety
/// The operation's group was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_operation_wait(
    operation: *mut lacuna_group_operation,
    timeout_ms: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let operation = unsafe { pointer::object(operation, "operation") }?;
        let begin = Instant::now();
        loop {
            let left = Duration::from_millis(timeout_ms).saturating_sub(begin.elapsed());
            let mut state = operation.lock();
            state.wait(left.min(WAIT_SLICE));
            match state.answer() {
                Ok(_) => return Ok(()),
                Err(failure) if !failure.is_retry() || left.is_zero() => return Err(failure),
                Err(_) => {}
            }
            drop(state);
            std::thread::yield_now();
        }
    })
}

/// How an operation that is over went. LACUNA_RETRY while it goes on. May be called from
/// any thread.
///
/// # Safety
/// The operation's group was not freed; report points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_operation_report(
    operation: *mut lacuna_group_operation,
    report: *mut lacuna_group_report,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let operation = unsafe { pointer::object(operation, "operation") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(report, "report") }?;
        let told = operation.with(|done| {
            let report = &done.report;
            let straggler = report.straggler.as_ref();
            let ranges = report.missing.iter().map(|(range, _)| range).chain(&report.uncertain);
            Ok(lacuna_group_report {
                bytes: report.bytes(),
                lost_bytes: report.lost_bytes(),
                took_ns: report.ended_ns.saturating_sub(report.started_ns),
                budget_ns: done.budget.map_or(0, |budget| budget.as_nanos() as u64),
                missing_elements: ranges.map(|range| range.len() as u64).sum(),
                straggler_ns: straggler.map_or(0, |straggler| straggler.waited_ns),
                straggler_rank: straggler.map_or(NOBODY, |straggler| straggler.rank as u32),
                straggler_phase: straggler.map_or(0, |straggler| straggler.phase as u32),
                more: [0; 6],
            })
        })?;
        out.set(told);
        Ok(())
    })
}

/// Which contributions the output lacks, of an operation that is over: an entry for each
/// range of elements and rank, in order. Writes as many as fit; count gets the number of
/// all, and may be NULL. missing may be NULL if capacity is 0. LACUNA_RETRY while it goes
/// on. May be called from any thread.
///
/// # Safety
/// The operation's group was not freed; missing points to capacity structs; count is NULL
/// or points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_operation_missing(
    operation: *mut lacuna_group_operation,
    missing: *mut lacuna_group_missing,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let operation = unsafe { pointer::object(operation, "operation") }?;
        // SAFETY: the caller's promise.
        let outs = unsafe { Outs::new(missing, capacity, "missing") }?;
        // SAFETY: the caller's promise.
        let count = unsafe { Out::optional(count, "count") }?;
        let mut all: Vec<(usize, usize, u32)> = operation.with(|done| {
            let report = &done.report;
            let of_ranks = report.missing.iter().flat_map(|(range, ranks)| {
                ranks.iter().map(|rank| (range.start, range.len(), rank as u32))
            });
            let unknown = report.uncertain.iter().map(|range| (range.start, range.len(), NOBODY));
            Ok(of_ranks.chain(unknown).collect())
        })?;
        all.sort_unstable();
        for (at, (first, len, rank)) in all.iter().enumerate().take(capacity) {
            let (first, count) = (*first as u64, *len as u64);
            outs.set(at, lacuna_group_missing { first, count, rank: *rank, reserved: 0 });
        }
        if let Some(count) = count {
            count.set(all.len());
        }
        Ok(())
    })
}

/// The schedule that an operation which is over was carried out by. LACUNA_RETRY while it
/// goes on. The rest as lacuna_describe().
///
/// # Safety
/// The operation's group was not freed; buffer points to capacity bytes; length is NULL or
/// points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_operation_algorithm(
    operation: *mut lacuna_group_operation,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let operation = unsafe { pointer::object(operation, "operation") }?;
        let algorithm = operation.with(|done| Ok(done.algorithm.clone()))?;
        // SAFETY: the caller's promise.
        unsafe { text_out(&algorithm, buffer, capacity, length) }
    })
}

/// Frees an operation that is over. LACUNA_RETRY while it goes on: its memory is in use, so
/// wait for it first; lacuna_group_free() ends those that go on. May be called from any
/// thread. In a child process that has inherited it, see lacuna_context_free().
///
/// # Safety
/// The operation's group was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_operation_free(
    operation: *mut lacuna_group_operation,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let Some(operation) = unsafe { pointer::to_free(operation, "operation") }? else {
            return Ok(());
        };
        let mut state = operation.lock();
        state.wait(Duration::ZERO);
        match *state {
            State::Going(_) => Err(Failure::retry()),
            State::Freed => Err(Failure::usage("this operation was freed")),
            _ => {
                *state = State::Freed;
                operation.free.put(operation.index);
                Ok(())
            }
        }
    })
}
