//! Threads that the system may refuse, and a worker thread that runs jobs in order.

use crate::STOP_POLL;
use lacuna::datapath::limit::NoThread;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// A thread was not started, or gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The system refused a thread. This host's fault; retrying may help.
    #[error("the system refused a thread: {}", NoThread(.0))]
    Refused(io::Error),
    /// A defect of this program.
    #[error("the thread {name} panicked")]
    Panicked {
        /// Its name.
        name: String,
    },
    /// A stop was requested before there was a result.
    #[error("interrupted")]
    Stopped,
}

/// Starts a thread. A refusal of the system is an error and not a panic.
///
/// # Errors
/// When the system refuses it.
pub fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, ThreadError> {
    Builder::new().name(name.to_owned()).spawn(run).map_err(ThreadError::Refused)
}

/// Starts a thread within a scope.
///
/// # Errors
/// When the system refuses it.
pub fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, ThreadError> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, run).map_err(ThreadError::Refused)
}

/// Runs a function that cannot be interrupted on a thread of its own. When `stop` returns true, the
/// thread is abandoned and its result dropped.
///
/// # Errors
/// When `stop` returns true, or the thread is refused or panics.
pub fn unless<T: Send + 'static>(
    stop: &dyn Fn() -> bool,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ThreadError> {
    let (result, done) = sync_channel(1);
    start(name, move || {
        // Nobody receives the result after a stop.
        let _ = result.send(run());
    })?;
    while !stop() {
        match done.recv_timeout(STOP_POLL) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ThreadError::Panicked { name: name.to_owned() });
            }
        }
    }
    Err(ThreadError::Stopped)
}

/// Sets a flag when it is dropped, also by a panic: the threads of a scope wait for the flag, and
/// the scope waits for its threads.
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread that runs jobs in order. Dropping it waits for the last one.
#[derive(Debug)]
pub struct Worker<J> {
    jobs: Option<SyncSender<J>>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static> Worker<J> {
    /// Starts the thread. At most `waiting_max` jobs wait; then [`Worker::give`] blocks.
    ///
    /// # Errors
    /// When the system refuses the thread.
    pub fn start(
        name: &str,
        waiting_max: usize,
        run: impl FnOnce(&Receiver<J>) + Send + 'static,
    ) -> Result<Self, ThreadError> {
        let (jobs, work) = sync_channel(waiting_max);
        let thread = start(name, move || run(&work))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Gives the thread a job.
    ///
    /// # Panics
    /// When the thread has panicked.
    pub fn give(&self, job: J) {
        let jobs = self.jobs.as_ref().expect("taken only by drop");
        jobs.send(job).expect("the thread ends only when this is dropped");
    }
}

impl<J> Drop for Worker<J> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn every_job_that_was_given_is_done_in_order_before_it_ends() {
        let done = Arc::new(Mutex::new(Vec::new()));
        let doing = done.clone();
        let worker = Worker::start("test", 1, move |work: &Receiver<u32>| {
            work.iter().for_each(|job| doing.lock().unwrap().push(job));
        });
        let worker = worker.unwrap();
        (0..100).for_each(|job| worker.give(job));
        drop(worker);
        assert_eq!(*done.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_scope_that_fails_half_way_does_not_wait_for_its_threads_for_ever() {
        let over = AtomicBool::new(false);
        let failed = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                let _ends = Over(&over);
                let waits = || {
                    while !over.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                };
                start_in(scope, "test", waits).unwrap();
                panic!("half way");
            })
        });
        assert!(failed.is_err());
    }
}
