//! Groups that come from another one: split by colour, with newcomers, without ranks that are gone.

use super::super::settings::{Values, lacuna_settings};
use super::{config, group_failure, lacuna_group};
use crate::outcome::{self, code};
use crate::pointer::{self, Out};
use lacuna_collective::Group;
use lacuna_collective::rendezvous::Meeting;
use std::ffi::{c_char, c_int};
use std::time::Duration;

/// Joins a group that is there: waits at host until the ranks there call
/// lacuna_group_form_with(). host may be several, with commas between them, as in
/// "node0:29500,node1:29500". The setting job has to be the one that the group was formed
/// with, and mode and chunk_bytes those of the others; meeting_timeout_ms is how long it
/// waits. lacuna_group_rank() and lacuna_group_ranks() say what it has become.
///
/// # Safety
/// host is a terminated string; settings is NULL or was not freed; group points to a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_join(
    host: *const c_char,
    settings: *const lacuna_settings,
    group: *mut *mut lacuna_group,
) -> c_int {
    code(|| {
        outcome::silence_panics();
        // SAFETY: the caller's promise.
        let host = unsafe { pointer::text(host, "host") }?;
        // SAFETY: the caller's promise.
        let values = unsafe { Values::of(settings) }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(group, "group") }?;
        let config = config(&values, Meeting::joining(host))?;
        lacuna_group::give(Group::form(&config).map_err(|error| group_failure(&error))?, out);
        Ok(())
    })
}

/// Forms the group again, of the ranks that are left when one is gone: in the order of their
/// old ranks, so lacuna_group_rank() and lacuna_group_ranks() answer anew. All that are left
/// have to call it within timeout_ms of each other; who does not is no part of it any more.
/// Operations that go on are lost, and their memory is the program's when this returns. If
/// it fails, the group can only be freed. Waits for other calls with the group.
///
/// # Safety
/// group was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_form_again(
    group: *mut lacuna_group,
    timeout_ms: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let group = unsafe { pointer::object(group, "group") }?;
        group.replace(|group| group.form_again(Duration::from_millis(timeout_ms)))
    })
}

/// The same with newcomers, which call lacuna_group_join() and come behind the old ranks: so
/// many are waited for, for at most timeout_ms; then the group goes on with who came. The
/// lowest of the old ranks listens for them at address, as in "[::]:29500", while this
/// lasts. Which host that is depends on who is left, so it is an address that each of them
/// has. All old ranks have to give the same. The group need not have failed.
///
/// # Safety
/// group was not freed; address is a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_form_with(
    group: *mut lacuna_group,
    address: *const c_char,
    newcomers: u32,
    timeout_ms: u64,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let group = unsafe { pointer::object(group, "group") }?;
        // SAFETY: the caller's promise.
        let address = unsafe { pointer::text(address, "address") }?;
        lacuna::address::parse(address).map_err(|error| {
            let text = format!("address: {error}; write ADDRESS:PORT, as in [::]:29500");
            outcome::Failure::usage(text)
        })?;
        let (newcomers, timeout) = (newcomers as usize, Duration::from_millis(timeout_ms));
        group.replace(|group| group.form_with(address, newcomers, timeout))
    })
}

/// Splits the group, as MPI_Comm_split() does: the ranks that give the same color get a
/// group of their own, in the order of their keys, and of their old ranks where those are
/// the same. With a negative color there is none, and part gets NULL. All ranks call it, in
/// the same order as other splits of the group. The group goes on beside its parts:
/// operations of all of them may be in flight at once, and a failure of one does nothing to
/// the others. LACUNA_PEER says who did not come within the setting meeting_timeout_ms; the
/// group is as it was then. May be called from any thread.
///
/// # Safety
/// group was not freed; part points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_group_split(
    group: *mut lacuna_group,
    color: i64,
    key: i64,
    part: *mut *mut lacuna_group,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let group = unsafe { pointer::object(group, "group") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(part, "part") }?;
        let color = u64::try_from(color).ok();
        let split = group.with(|group| group.split(color, key).map_err(|e| group_failure(&e)))?;
        match split {
            Some(split) => lacuna_group::give(split, out),
            None => out.set(std::ptr::null_mut()),
        }
        Ok(())
    })
}
