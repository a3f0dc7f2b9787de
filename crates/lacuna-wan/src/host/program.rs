//! A program that runs in a host: its exit status and resource usage.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::syscall;

/// Exit status and resource usage of a program.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Its exit code or the signal that ended it.
    pub status: ExitStatus,
    /// Time from its start to its end.
    pub took: Duration,
    /// Processor time in user mode, including children that it waited for.
    pub user: Duration,
    /// Processor time in the kernel, including children that it waited for.
    pub system: Duration,
    /// Largest memory of it or one of its children.
    pub memory_kib_max: u64,
}

/// A program that was started. It is not ended when dropped; the end of its host ends it.
#[derive(Debug)]
pub struct Program {
    pid: Pid,
    /// Readable when it has ended.
    process: OwnedFd,
    started: Instant,
    outcome: Option<Outcome>,
}

impl Program {
    /// Takes over a child; no other code may wait for it.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn new(child: &Child) -> io::Result<Self> {
        let started = Instant::now();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { pid, process, started, outcome: None })
    }

    /// Waits at most `timeout` for its end.
    ///
    /// # Errors
    ///
    /// When other code has waited for the child.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<Outcome>> {
        if self.outcome.is_some() {
            return Ok(self.outcome);
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut fds = [PollFd::from_borrowed_fd(self.process.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(ended) = syscall::take_status(self.pid)? {
            self.outcome = Some(Outcome {
                status: ExitStatus::from_raw(ended.status),
                took: self.started.elapsed(),
                user: ended.user,
                system: ended.system,
                memory_kib_max: ended.memory_kib_max,
            });
        }
        Ok(self.outcome)
    }

    /// Asks the program to end (SIGTERM).
    pub fn terminate(&self) {
        // It may have ended by itself.
        let _ = pidfd_send_signal(&self.process, Signal::TERM);
    }

    /// Kills the program (SIGKILL).
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}
