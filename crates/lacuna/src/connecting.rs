//! The application's handle on an attempt to connect. The monitor's thread drives the attempt
//! (`driver.rs`); in a context without threads, [`Connecting::poll`] and [`Connecting::wait`] do.

use crate::attempt::Attempt;
use crate::config::ConnectionConfig;
use crate::connection::Connection;
use crate::context::Context;
use crate::driver::Watch;
use crate::error::ConnectError;
use lacuna_datapath::process::Own;
use mio::Token;
use std::fmt::{self, Display};
use std::net::ToSocketAddrs;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for TCP events in a context without threads: the same thread has to read packets in
/// between.
const TCP_WAIT_MAX: Duration = Duration::from_millis(10);

/// An attempt to connect, begun by [`Context::connect_start`]. Dropping it cancels the attempt.
///
/// Any number of attempts may run at once. With [`Progress::Threads`](crate::Progress::Threads) a
/// thread of the context drives all of them; with [`Progress::Manual`](crate::Progress::Manual) each
/// makes progress while it is polled or waited for.
///
/// ```no_run
/// # use lacuna::{ConnectError, Connection, ConnectionConfig, Context, ContextConfig};
/// # use std::time::Duration;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::new(ContextConfig::default())?;
/// let peers = ["192.0.2.1:7400", "192.0.2.2:7400"];
/// let connecting = peers.map(|peer| context.connect_start(peer, ConnectionConfig::default()));
/// for connecting in connecting {
///     let connection: Connection = connecting?.wait(Duration::MAX).expect("for ever")?;
///     println!("connected to {}", connection.peer());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Connecting {
    inner: Own<Handle>,
}

struct Handle {
    context: Context,
    tracked: Arc<SharedAttempt>,
    /// Its token in the driver, if the monitor's thread drives it.
    token: Option<Token>,
}

/// An attempt and its outcome, shared by the application's handle and the driver.
pub(crate) struct SharedAttempt {
    state: Mutex<AttemptState>,
    ended: Condvar,
}

struct AttemptState {
    /// `None` once it has ended.
    attempt: Option<Attempt>,
    /// `None` before it has ended, and after the application took it.
    outcome: Option<Result<Connection, ConnectError>>,
}

impl SharedAttempt {
    /// Continues the attempt without waiting. Returns the latest time for the next call, `None`
    /// once it has ended.
    pub(crate) fn drive(&self, watch: &Watch<'_>) -> Option<Instant> {
        self.lock().drive(Some(watch), &self.ended)
    }

    fn lock(&self) -> MutexGuard<'_, AttemptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AttemptState {
    fn drive(&mut self, watch: Option<&Watch<'_>>, ended: &Condvar) -> Option<Instant> {
        let attempt = self.attempt.as_mut()?;
        let Some(outcome) = attempt.drive(watch) else { return Some(attempt.due(Instant::now())) };
        self.attempt = None;
        self.outcome = Some(outcome.and_then(|agreed| Connection::new(*agreed)));
        ended.notify_all();
        None
    }
}

impl Context {
    /// Begins to connect to a listener, as [`Connection::connect`], without waiting for it. Only the
    /// lookup of a name blocks; an address needs none.
    ///
    /// # Errors
    /// When the configuration makes no sense or the name cannot be looked up. Later errors are
    /// returned by [`Connecting::poll`].
    pub fn connect_start(
        &self,
        peer: impl ToSocketAddrs + Display,
        config: ConnectionConfig,
    ) -> Result<Connecting, ConnectError> {
        self.check_process()?;
        let attempt = Attempt::new(self, &peer, config)?;
        let state = AttemptState { attempt: Some(attempt), outcome: None };
        let tracked = Arc::new(SharedAttempt { state: Mutex::new(state), ended: Condvar::new() });
        // On other systems the monitor cannot watch streams of the standard library.
        let is_driven = cfg!(unix) && !self.is_manual();
        let token = is_driven.then(|| {
            let (monitor, token) = (self.monitor().clone(), self.monitor().token());
            if let Some(attempt) = &mut tracked.lock().attempt {
                attempt.on_probed(move || monitor.drive_soon(token));
            }
            self.monitor().drive(token, Arc::downgrade(&tracked));
            token
        });
        if token.is_none() {
            // Sends the first SYN now.
            tracked.lock().drive(None, &tracked.ended);
        }
        Ok(Connecting { inner: Own::new(Handle { context: self.clone(), tracked, token }) })
    }
}

impl Connecting {
    /// The outcome, once, if the attempt has ended; `None` before and after that. Does not wait. In
    /// a context without threads it makes progress.
    pub fn poll(&mut self) -> Option<Result<Connection, ConnectError>> {
        let Handle { context, tracked, token } = &*self.inner;
        if let Err(error) = context.check_process() {
            return Some(Err(error.into()));
        }
        if token.is_none() {
            context.progress();
            tracked.lock().drive(None, &tracked.ended);
        }
        tracked.lock().outcome.take()
    }

    /// Waits for the outcome, at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<Result<Connection, ConnectError>> {
        let end = Instant::now().checked_add(timeout);
        loop {
            if let Some(outcome) = self.poll() {
                return Some(outcome);
            }
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            let Handle { context, tracked, token } = &*self.inner;
            let mut state = tracked.lock();
            if left.is_zero() || state.attempt.is_none() && state.outcome.is_none() {
                return None;
            }
            let AttemptState { attempt: Some(attempt), outcome: None } = &mut *state else {
                continue;
            };
            if token.is_some() {
                // Bounded: some systems refuse a wait of centuries.
                let left = left.min(Duration::from_secs(3600));
                let waited = tracked.ended.wait_timeout(state, left);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            } else {
                let limit = if context.is_manual() { left.min(TCP_WAIT_MAX) } else { left };
                if let Err(error) = attempt.wait(limit) {
                    state.attempt = None;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting").field("token", &self.inner.token).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.context.monitor().forget(token);
        }
    }
}
