//! Threads: one that a command starts, and one that works off jobs in order.

use crate::failure::Failure;
use crate::interrupt::LOOK;
use lacuna::datapath::limit::NoThread;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Starts a thread; that there is none to be had is an answer, not a panic.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    Builder::new().name(name.to_owned()).spawn(run).map_err(refused)
}

/// The same of a thread that ends within a scope.
pub(crate) fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Failure> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, run).map_err(refused)
}

/// Runs what cannot be told to stop: once `stop` says so it is left to itself, on
/// a thread of its own, and what comes of it is dropped.
pub(crate) fn unless<T: Send + 'static>(
    stop: &dyn Fn() -> bool,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let (result, done) = sync_channel(1);
    start(name, move || {
        // Nobody waits any more if it was stopped.
        let _ = result.send(run());
    })?;
    while !stop() {
        match done.recv_timeout(LOOK) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Local(format!("the thread {name} panicked")));
            }
        }
    }
    Err(Failure::Interrupted)
}

fn refused(error: io::Error) -> Failure {
    Failure::Local(format!("the system refused a thread: {}", NoThread(&error)))
}

/// Says that it is over when this goes, however that comes: a scope waits for its
/// threads, and they for this.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A thread that does jobs one after the other, in the order given; it ends
/// with this, after the last of them.
pub(crate) struct Worker<J> {
    jobs: Option<SyncSender<J>>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static> Worker<J> {
    /// `waiting_max` jobs may wait; then whoever gives one waits.
    pub(crate) fn start(
        name: &str,
        waiting_max: usize,
        run: impl FnOnce(&Receiver<J>) + Send + 'static,
    ) -> Result<Self, Failure> {
        let (jobs, work) = sync_channel(waiting_max);
        let thread = start(name, move || run(&work))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    pub(crate) fn give(&self, job: J) {
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
