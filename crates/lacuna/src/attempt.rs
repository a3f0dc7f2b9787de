//! One attempt to connect: a TCP connection to one of the peer's addresses (`happy_eyeballs.rs`),
//! the handshake over it, and retries while the listener is busy, all within `connect_timeout`.
//!
//! A state machine that does not wait ([`Attempt::drive`]); [`connect`] drives one and blocks.
//!
//! Invariant: an attempt ends once, by its deadline at the latest; dropping it releases all it
//! holds.

use crate::address;
use crate::config::ConnectionConfig;
use crate::context::Context;
use crate::driver::Watch;
use crate::error::ConnectError;
use crate::handshake::{self, Agreed, Connected, ControlStream, Exchange};
use crate::happy_eyeballs::HappyEyeballs;
use lacuna_datapath::limit::Limit;
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First and longest pause before a retry; each is twice the one before. The actual pause is drawn
/// from its upper half, so that peers that were refused together do not return together.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How long a refused connection (RST) is retried: the listener may be about to start, but mostly
/// the address is wrong.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Descriptors that a name lookup needs at a time: files, sockets and some to spare.
const RESOLVER_DESCRIPTORS: usize = 4;

/// One attempt to connect to a peer.
pub(crate) struct Attempt {
    context: Context,
    /// The peer as the application named it.
    peer: String,
    /// The peer's addresses that this context's sockets can send to.
    addresses: Vec<SocketAddr>,
    /// Why the others are left out.
    unusable: Option<String>,
    config: ConnectionConfig,
    began: Instant,
    deadline: Instant,
    /// Before the next retry.
    pause: Duration,
    stage: Stage,
    /// Called when the prober has an answer.
    on_probed: Option<Arc<dyn Fn() + Send + Sync>>,
}

enum Stage {
    /// Until the next try begins.
    Pausing(Instant),
    ConnectingTcp(HappyEyeballs),
    Exchanging(Box<Exchange>),
    Ended,
}

impl Attempt {
    /// Looks up the name, which may block.
    pub(crate) fn new(
        context: &Context,
        peer: &(impl ToSocketAddrs + Display),
        config: ConnectionConfig,
    ) -> Result<Self, ConnectError> {
        config.check()?;
        config.check_wire(&context.capabilities())?;
        let began = Instant::now();
        let found = address::look_up(peer).map_err(|error| {
            // The system's resolver does not report a lack of descriptors as such.
            let limit = Limit::check_descriptors(RESOLVER_DESCRIPTORS).err();
            ConnectError::unreachable(peer, limit.unwrap_or(error))
        })?;
        let (mut addresses, mut unusable, mut unknown) = (Vec::new(), None, None);
        for address in found {
            if context.policy().towards(address.ip()).is_err() {
                unknown = Some(address);
                continue;
            }
            match handshake::host_of(address, context) {
                Ok(_) => addresses.push(address),
                Err(why) => unusable = Some(why),
            }
        }
        if let (true, None, Some(peer)) = (addresses.is_empty(), &unusable, unknown) {
            return Err(ConnectError::NobodyTrusted { peer });
        }
        Ok(Self {
            context: context.clone(),
            peer: peer.to_string(),
            addresses,
            unusable,
            deadline: began + handshake::timeout_of(&config),
            config,
            began,
            pause: PAUSE.0,
            stage: Stage::Pausing(began),
            on_probed: None,
        })
    }

    /// Has `tell` called when the prober has an answer.
    pub(crate) fn on_probed(&mut self, tell: impl Fn() + Send + Sync + 'static) {
        self.on_probed = Some(Arc::new(tell));
    }

    /// Continues without waiting. `Some` is the outcome, returned once. `watch` registers the
    /// attempt's sockets.
    pub(crate) fn drive(
        &mut self,
        watch: Option<&Watch<'_>>,
    ) -> Option<Result<Box<Agreed>, ConnectError>> {
        loop {
            let now = Instant::now();
            let continued = match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Ended => return None,
                Stage::Pausing(until) if now < until => {
                    self.stage = Stage::Pausing(until);
                    return None;
                }
                Stage::Pausing(_) => self.begin(now, watch),
                Stage::ConnectingTcp(mut tcp) => match tcp.drive(now, watch) {
                    None => {
                        // The peer's answer is on its way meanwhile.
                        self.context.policy().prepare_sessions();
                        self.stage = Stage::ConnectingTcp(tcp);
                        return None;
                    }
                    Some(Ok(stream)) => self.exchange(ControlStream::New(stream), watch),
                    Some(Err(error)) => Err(self.unreachable(error)),
                },
                Stage::Exchanging(exchange) => match exchange.drive(&self.context) {
                    ControlFlow::Continue(exchange) => {
                        self.stage = Stage::Exchanging(exchange);
                        return None;
                    }
                    ControlFlow::Break(Ok(Connected::Agreed(agreed))) => {
                        let unwatched =
                            watch.map_or(Ok(()), |w| w.remove_stream(agreed.control.stream()));
                        return Some(unwatched.map(|()| agreed).map_err(not_watched));
                    }
                    ControlFlow::Break(Ok(Connected::Smaller(mtu_bytes))) => {
                        self.config.mtu_bytes = Some(mtu_bytes);
                        self.begin(now, watch)
                    }
                    ControlFlow::Break(Ok(Connected::Stale(error))) => {
                        let peer = &self.peer;
                        tracing::debug!(%peer, %error, "a pooled control connection is dead");
                        self.begin(now, watch)
                    }
                    ControlFlow::Break(Err(error)) => Err(error),
                },
            };
            if let Err(error) = continued.or_else(|error| self.try_again(error)) {
                self.stage = Stage::Ended;
                return Some(Err(error));
            }
        }
    }

    /// Takes a control connection from the pool, or opens a new one.
    fn begin(&mut self, now: Instant, watch: Option<&Watch<'_>>) -> Result<(), ConnectError> {
        let pool = self.context.control_pool();
        let pooled = self.addresses.iter().find_map(|address| pool.checkout(*address));
        if let Some(pooled) = pooled {
            return self.exchange(ControlStream::Pooled(pooled), watch);
        }
        let tcp = HappyEyeballs::new(&self.addresses, now, self.deadline, watch.is_some());
        self.stage = Stage::ConnectingTcp(tcp.map_err(|error| self.unreachable(error))?);
        Ok(())
    }

    fn exchange(
        &mut self,
        stream: ControlStream,
        watch: Option<&Watch<'_>>,
    ) -> Result<(), ConnectError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let on_probed = self.on_probed.clone();
        let on_probed = on_probed.map(|tell| Box::new(move || tell()) as Box<_>);
        let exchange = Exchange::new(&self.context, stream, self.config, left, on_probed)?;
        if let Some(watch) = watch {
            watch.add_stream(exchange.stream()).map_err(not_watched)?;
        }
        self.stage = Stage::Exchanging(Box::new(exchange));
        Ok(())
    }

    /// The error for a peer none of whose addresses was reached.
    fn unreachable(&self, error: io::Error) -> ConnectError {
        let source = match &self.unusable {
            Some(why) if self.addresses.is_empty() => {
                io::Error::new(io::ErrorKind::Unsupported, why.clone())
            }
            _ => error,
        };
        ConnectError::unreachable(&self.peer, source)
    }

    /// Schedules a retry if that may help and there is time for one; else returns the error.
    fn try_again(&mut self, error: ConnectError) -> Result<(), ConnectError> {
        let until = match retry_after(&error) {
            None => return Err(error),
            Some(Retry::UntilDeadline) => self.deadline,
            Some(Retry::Briefly) => self.deadline.min(self.began + REFUSED_FOR),
        };
        let drawn = self.pause / 2 + self.pause.mul_f64(f64::from(random_byte()) / 512.0);
        let next = Instant::now() + drawn;
        if next >= until {
            return Err(error);
        }
        tracing::debug!(peer = %self.peer, %error, "trying again");
        self.stage = Stage::Pausing(next);
        self.pause = (self.pause * 2).min(PAUSE.1);
        Ok(())
    }

    /// Latest time for the next call of `drive`.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        match &self.stage {
            Stage::Ended => now,
            Stage::Pausing(until) => *until,
            Stage::ConnectingTcp(tcp) => tcp.due(),
            Stage::Exchanging(exchange) => now + exchange.due_in(&self.context),
        }
    }

    /// Waits until `drive` can make progress, at most `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<(), ConnectError> {
        let now = Instant::now();
        let waited = match &mut self.stage {
            Stage::Ended => Ok(()),
            Stage::Pausing(until) => {
                std::thread::sleep(until.saturating_duration_since(now).min(limit));
                Ok(())
            }
            Stage::ConnectingTcp(tcp) => tcp.wait(now, limit),
            Stage::Exchanging(exchange) => exchange.wait(&self.context, limit),
        };
        waited.map_err(|error| self.unreachable(error))
    }
}

/// Connects and blocks until the outcome.
pub(crate) fn connect(
    context: &Context,
    peer: &(impl ToSocketAddrs + Display),
    config: ConnectionConfig,
) -> Result<Box<Agreed>, ConnectError> {
    let mut attempt = Attempt::new(context, peer, config)?;
    loop {
        if let Some(outcome) = attempt.drive(None) {
            return outcome;
        }
        attempt.wait(Duration::MAX)?;
    }
}

fn not_watched(source: io::Error) -> ConnectError {
    crate::ContextError::System { what: "to watch the control connection", source }.into()
}

/// How long an error is worth retrying.
enum Retry {
    UntilDeadline,
    Briefly,
}

/// How long to retry after an error; `None` if it will not pass.
fn retry_after(error: &ConnectError) -> Option<Retry> {
    match error {
        ConnectError::Busy { .. } => Some(Retry::UntilDeadline),
        ConnectError::Unreachable { source, .. } | ConnectError::Exchange { source, .. } => {
            match source.kind() {
                io::ErrorKind::ConnectionRefused => Some(Retry::Briefly),
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                // Reset between two calls: the socket has no peer any more.
                | io::ErrorKind::NotConnected
                | io::ErrorKind::BrokenPipe => Some(Retry::UntilDeadline),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A random byte for the pause; 0 where the system has no randomness.
fn random_byte() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).map_or(0, |()| byte[0])
}
