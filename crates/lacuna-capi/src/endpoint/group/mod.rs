//! Groups of ranks that compute together, and how one is formed.
//!
//! Each object holds a group of `lacuna-collective`. Its operations are in a pool of it, so that a handle which is used
//! after its end is an error.
//!
//! Locks: calls that use the group hold `current` for reading as long as they last, those that end it or form it again for
//! writing; an operation's state is locked after it, never before.

pub mod collectives;
pub mod membership;
mod memory;
pub mod names;
pub mod operation;
pub mod options;

use super::context::{connect_failure, context_failure};
use super::settings::{Values, lacuna_settings};
use crate::outcome::{self, Failure, code};
use crate::pointer::{self, Out};
use crate::pool::ObjectPool;
use lacuna::datapath::Process;
use lacuna::{ContextConfig, Mode};
use lacuna_collective::rendezvous::{Meeting, MeetingError};
use lacuna_collective::{Group, GroupConfig, GroupError, MeshError, OperationError, RunError};
use operation::lacuna_group_operation;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

/// A group of ranks that compute together.
pub struct lacuna_group {
    process: Process,
    operations: ObjectPool<lacuna_group_operation>,
    /// `None` once it could not be formed again.
    current: RwLock<Option<Arc<Group>>>,
}

impl pointer::Object for lacuna_group {
    fn process(&self) -> Process {
        self.process
    }
}

impl lacuna_group {
    fn give(group: Group, out: Out<*mut Self>) {
        out.set(Box::into_raw(Box::new(Self {
            process: Process::current(),
            operations: ObjectPool::new(usize::MAX),
            current: RwLock::new(Some(Arc::new(group))),
        })));
    }

    fn read(&self) -> RwLockReadGuard<'_, Option<Arc<Group>>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the group, which stays as long.
    fn with<R>(&self, act: impl FnOnce(&Arc<Group>) -> Result<R, Failure>) -> Result<R, Failure> {
        act(self.read().as_ref().ok_or_else(ended)?)
    }

    /// Puts another group in the place of this one. The operations that go on are lost.
    fn replace(
        &self,
        make: impl FnOnce(Group) -> Result<Group, GroupError>,
    ) -> Result<(), Failure> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let group = current.take().ok_or_else(ended)?;
        self.operations.for_each(lacuna_group_operation::lose);
        let group = Arc::into_inner(group)
            .ok_or_else(|| Failure::new(outcome::BUG, "bug in liblacuna: a group is in use"))?;
        *current = Some(Arc::new(make(group).map_err(|error| group_failure(&error))?));
        Ok(())
    }
}

fn ended() -> Failure {
    Failure::usage("the group could not be formed again: free it, and form another one")
}

fn group_failure(error: &GroupError) -> Failure {
    let code = match error {
        GroupError::Meeting(MeetingError::Rank { .. } | MeetingError::Address { .. }) => {
            outcome::USAGE
        }
        GroupError::Context(error) => return context_failure(error),
        GroupError::Listen(error) => return connect_failure(error),
        GroupError::Meeting(MeetingError::Listen { .. })
        | GroupError::Mesh(MeshError::Accept(_))
        | GroupError::Reserve(_)
        | GroupError::Thread(_) => outcome::SYSTEM,
        _ => outcome::PEER,
    };
    Failure::new(code, error.to_string())
}

fn operation_failure(error: &OperationError) -> Failure {
    let code = match error {
        OperationError::Run(RunError::Late { .. }) => outcome::DEADLINE,
        OperationError::Run(_) => outcome::PEER,
        _ => outcome::USAGE,
    };
    Failure::new(code, error.to_string())
}

/// The settings of a group with this meeting.
fn config(values: &Values, mut meeting: Meeting) -> Result<GroupConfig, Failure> {
    let Values { context, capture, connection, group } = values;
    if !connection.mode.is_reliable() && !matches!(connection.mode, Mode::Bounded(_)) {
        return Err(Failure::usage(format!(
            "mode {} repairs nothing and ends nothing: a group needs a reliable mode, or bounded",
            connection.mode
        )));
    }
    meeting.timeout = group.meeting_timeout;
    if let Some(job) = &group.job {
        meeting.job.clone_from(job);
    }
    let wrap = capture.around(ContextConfig::default())?.wrap;
    let usual = GroupConfig::new(meeting);
    Ok(GroupConfig {
        bind: context.bind,
        announce: group.announce,
        port: group.port,
        mode: connection.mode,
        controller: connection.controller,
        rate_bits_per_s: connection.rate_bits_per_s,
        chunk_bytes: group.chunk_bytes.unwrap_or(usual.chunk_bytes),
        silence: connection.silence,
        wrap,
        rule: group.rule,
        ..usual
    })
}

/// Forms a group of so many ranks, of which this is number rank: rank 0 waits for the others
/// at host, as in "192.0.2.1:29500", and the others look for it there; then each connects
/// with each. settings may be NULL: meeting_timeout_ms is how long ranks wait for each
/// other, and all of them have to give the same mode, chunk_bytes and job. LACUNA_PEER says
/// who did not come.
///
/// # Safety
/// host is a terminated string; settings is NULL or was not freed; group points to a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_form(
    host: *const c_char,
    rank: u32,
    ranks: u32,
    settings: *const lacuna_settings,
    group: *mut *mut lacuna_group,
) -> c_int {
    code(|| {
        outcome::silence_panics();
        // SAFETY: the caller's promise.
        let host = unsafe { pointer::text(host, "host") }?.to_owned();
        // SAFETY: the caller's promise.
        let values = unsafe { Values::of(settings) }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(group, "group") }?;
        if ranks == 0 {
            return Err(Failure::usage("a group of 0 ranks: must be at least 1"));
        }
        let (rank, ranks) = (rank as usize, ranks as usize);
        let meeting =
            Meeting { host, rank, ranks, job: String::new(), timeout: Duration::default() };
        let formed = Group::form(&config(&values, meeting)?).map_err(|e| group_failure(&e))?;
        lacuna_group::give(formed, out);
        Ok(())
    })
}

/// The same with host, rank and number of ranks by the environment, as torchrun and others
/// set it: MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; LACUNA_RENDEZVOUS (HOST:PORT) and
/// LACUNA_JOB where they are wanted otherwise. The setting job goes before the latter. With LACUNA_JOIN
/// (HOST:PORT) it is lacuna_group_join() of that.
/// LACUNA_USAGE names the variable that is missing.
///
/// # Safety
/// settings is NULL or was not freed; group points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_form_from_environment(
    settings: *const lacuna_settings,
    group: *mut *mut lacuna_group,
) -> c_int {
    code(|| {
        outcome::silence_panics();
        // SAFETY: the caller's promise.
        let values = unsafe { Values::of(settings) }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(group, "group") }?;
        let meeting =
            Meeting::from_environment().map_err(|error| Failure::usage(error.to_string()))?;
        let formed = Group::form(&config(&values, meeting)?).map_err(|e| group_failure(&e))?;
        lacuna_group::give(formed, out);
        Ok(())
    })
}

/// This rank, from 0 on. May be called from any thread.
///
/// # Safety
/// group was not freed; rank points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_rank(group: *mut lacuna_group, rank: *mut u32) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let group = unsafe { pointer::object(group, "group") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(rank, "rank") }?;
        out.set(group.with(|group| Ok(group.rank() as u32))?);
        Ok(())
    })
}

/// How many ranks there are. May be called from any thread.
///
/// # Safety
/// group was not freed; ranks points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_ranks(group: *mut lacuna_group, ranks: *mut u32) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let group = unsafe { pointer::object(group, "group") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(ranks, "ranks") }?;
        out.set(group.with(|group| Ok(group.ranks() as u32))?);
        Ok(())
    })
}

/// Because of which rank the group has failed; UINT32_MAX if it has not, or if it is no
/// rank's fault. Once an operation has failed, all do, as ranks no longer agree on what was
/// sent. May be called from any thread.
///
/// # Safety
/// group was not freed; rank points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_failed_rank(
    group: *mut lacuna_group,
    rank: *mut u32,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let group = unsafe { pointer::object(group, "group") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(rank, "rank") }?;
        let rank = group.with(|group| Ok(group.failure().and_then(|error| error.rank())))?;
        out.set(rank.map_or(u32::MAX, |rank| rank as u32));
        Ok(())
    })
}

/// Frees a group. NULL is allowed. What was sent has up to two seconds to arrive; then its
/// operations end, and their memory is the program's when this returns. Other ranks may go
/// on with what does not need this one. Must be the last call with the group and its
/// operations. In a child process that has inherited it, see lacuna_context_free().
///
/// # Safety
/// If not NULL, group was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_free(group: *mut lacuna_group) {
    let _ = code(|| {
        // SAFETY: the caller's promise.
        if !group.is_null() && unsafe { pointer::to_free(group, "group") }?.is_some() {
            // SAFETY: made by `lacuna_group::give`, and this is the last call with it.
            drop(unsafe { Box::from_raw(group) });
        }
        Ok(())
    });
}
