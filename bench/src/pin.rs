//! Threads and processes on cores of their own.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// The cores that this process may use.
pub(crate) fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("which cores may be used")?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Pins the calling thread.
pub(crate) fn this_thread(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).with_context(|| format!("cannot use core {core}"))
}

/// A command that will run on `core`: this program again, which pins itself and
/// then becomes the other.
pub(crate) fn command(core: usize, program: &std::ffi::OsStr) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("pinned").arg(core.to_string()).arg(program);
    Ok(command)
}

/// The other half of [`command`]; comes back only to say why it failed.
pub(crate) fn become_pinned(core: usize, program: &[std::ffi::OsString]) -> Result<()> {
    this_thread(core)?;
    let (program, arguments) = program.split_first().context("no program to run")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Processor time of all threads of this process.
pub(crate) fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
