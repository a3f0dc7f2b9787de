//! One attempt to connect: reaching one of a name's addresses (`reach.rs`), the handshake there, and
//! both again if the listener has no room just now, all within the time that it may take.
//!
//! It is a state machine that waits for nothing ([`Attempt::drive`]); who has nothing else to do waits
//! with [`connect`].
//!
//! Invariant: it ends once, by its deadline, and when it is dropped nothing of it is left.

use crate::address;
use crate::config::ConnectionConfig;
use crate::context::Context;
use crate::driver::Watch;
use crate::error::ConnectError;
use crate::handshake::{self, Agreed, Connected, Exchange, Line};
use crate::reach::Reach;
use lacuna_datapath::limit::Limit;
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First and longest pause before another try; it doubles. Drawn from its upper
/// half, so that a crowd that was turned away does not come back at once.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// A port that nobody listens on is tried again for so long: a listener may be
/// about to start, but most often the address is wrong.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Descriptors that looking up a name takes at a time: files and sockets, and some to spare.
const RESOLVER_DESCRIPTORS: usize = 4;

/// What to connect to, and how far that is.
pub(crate) struct Attempt {
    context: Context,
    /// As the application has named it.
    peer: String,
    /// Those that this context's sockets can send to.
    addresses: Vec<SocketAddr>,
    /// Why others are left out.
    unusable: Option<String>,
    config: ConnectionConfig,
    began: Instant,
    deadline: Instant,
    /// Before the next try.
    pause: Duration,
    stage: Stage,
    /// To be called when the queue pair that looks for the way to the peer has news.
    on_probed: Option<Arc<dyn Fn() + Send + Sync>>,
}

enum Stage {
    /// The next try begins then.
    Pausing(Instant),
    Reaching(Reach),
    Exchanging(Box<Exchange>),
    Ended,
}

impl Attempt {
    /// Looks up the name, which may wait for others.
    pub(crate) fn new(
        context: &Context,
        peer: &(impl ToSocketAddrs + Display),
        config: ConnectionConfig,
    ) -> Result<Self, ConnectError> {
        config.check()?;
        let began = Instant::now();
        let found = address::look_up(peer).map_err(|error| {
            // The system's resolver does not say it.
            let limit = Limit::check_descriptors(RESOLVER_DESCRIPTORS).err();
            ConnectError::unreachable(peer, limit.unwrap_or(error))
        })?;
        let (mut addresses, mut unusable) = (Vec::new(), None);
        for address in found {
            match handshake::host_of(address, context) {
                Ok(_) => addresses.push(address),
                Err(why) => unusable = Some(why),
            }
        }
        Ok(Self {
            context: context.clone(),
            peer: peer.to_string(),
            addresses,
            unusable,
            deadline: began + handshake::patience_of(&config),
            config,
            began,
            pause: PAUSE.0,
            stage: Stage::Pausing(began),
            on_probed: None,
        })
    }

    /// Has `tell` called when the queue pair that looks for the way to the peer has news.
    pub(crate) fn on_probed(&mut self, tell: impl Fn() + Send + Sync + 'static) {
        self.on_probed = Some(Arc::new(tell));
    }

    /// Goes on as far as it can without waiting; what became of it, once it has ended. Its sockets are
    /// watched with `watch`.
    pub(crate) fn drive(
        &mut self,
        watch: Option<&Watch<'_>>,
    ) -> Option<Result<Box<Agreed>, ConnectError>> {
        loop {
            let now = Instant::now();
            let gone_on = match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Ended => return None,
                Stage::Pausing(until) if now < until => {
                    self.stage = Stage::Pausing(until);
                    return None;
                }
                Stage::Pausing(_) => self.begin(now, watch),
                Stage::Reaching(mut reach) => match reach.drive(now, watch) {
                    None => {
                        self.stage = Stage::Reaching(reach);
                        return None;
                    }
                    Some(Ok(stream)) => self.exchange(Line::New(stream), watch),
                    Some(Err(error)) => Err(self.unreachable(error)),
                },
                Stage::Exchanging(exchange) => match exchange.drive(&self.context) {
                    ControlFlow::Continue(exchange) => {
                        self.stage = Stage::Exchanging(exchange);
                        return None;
                    }
                    ControlFlow::Break(Ok(Connected::Agreed(agreed))) => {
                        let unwatched = watch.map_or(Ok(()), |w| w.remove_stream(&agreed.control));
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
            if let Err(error) = gone_on.or_else(|error| self.try_again(error)) {
                self.stage = Stage::Ended;
                return Some(Err(error));
            }
        }
    }

    /// Takes a control connection from the pool, or looks for a new one.
    fn begin(&mut self, now: Instant, watch: Option<&Watch<'_>>) -> Result<(), ConnectError> {
        let pool = self.context.control_pool();
        let pooled = self.addresses.iter().find_map(|address| pool.checkout(*address));
        if let Some(pooled) = pooled {
            return self.exchange(Line::Pooled(pooled), watch);
        }
        let reach = Reach::new(&self.addresses, now, self.deadline, watch.is_some());
        self.stage = Stage::Reaching(reach.map_err(|error| self.unreachable(error))?);
        Ok(())
    }

    fn exchange(&mut self, line: Line, watch: Option<&Watch<'_>>) -> Result<(), ConnectError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let on_probed = self.on_probed.clone();
        let on_probed = on_probed.map(|tell| Box::new(move || tell()) as Box<_>);
        let exchange = Exchange::new(&self.context, line, self.config, left, on_probed)?;
        if let Some(watch) = watch {
            watch.add_stream(exchange.stream()).map_err(not_watched)?;
        }
        self.stage = Stage::Exchanging(Box::new(exchange));
        Ok(())
    }

    /// Why none of the addresses was reached.
    fn unreachable(&self, error: io::Error) -> ConnectError {
        let source = match &self.unusable {
            Some(why) if self.addresses.is_empty() => {
                io::Error::new(io::ErrorKind::Unsupported, why.clone())
            }
            _ => error,
        };
        ConnectError::unreachable(&self.peer, source)
    }

    /// Waits for the next try, if it may help and there is time for one.
    fn try_again(&mut self, error: ConnectError) -> Result<(), ConnectError> {
        let until = match may_pass(&error) {
            None => return Err(error),
            Some(Passing::Soon) => self.deadline,
            Some(Passing::Perhaps) => self.deadline.min(self.began + REFUSED_FOR),
        };
        let drawn = self.pause / 2 + self.pause.mul_f64(f64::from(fraction()) / 512.0);
        let next = Instant::now() + drawn;
        if next >= until {
            return Err(error);
        }
        tracing::debug!(peer = %self.peer, %error, "trying again");
        self.stage = Stage::Pausing(next);
        self.pause = (self.pause * 2).min(PAUSE.1);
        Ok(())
    }

    /// When it is to be driven again at the latest.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        match &self.stage {
            Stage::Ended => now,
            Stage::Pausing(until) => *until,
            Stage::Reaching(reach) => reach.due(),
            Stage::Exchanging(exchange) => now + exchange.due_in(&self.context),
        }
    }

    /// Waits until it is to be driven again, at most `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<(), ConnectError> {
        let now = Instant::now();
        let waited = match &mut self.stage {
            Stage::Ended => Ok(()),
            Stage::Pausing(until) => {
                std::thread::sleep(until.saturating_duration_since(now).min(limit));
                Ok(())
            }
            Stage::Reaching(reach) => reach.wait(now, limit),
            Stage::Exchanging(exchange) => exchange.wait(&self.context, limit),
        };
        waited.map_err(|error| self.unreachable(error))
    }
}

/// Connects, and waits for it.
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

/// How likely it is that trying again helps.
enum Passing {
    Soon,
    Perhaps,
}

/// Whether an error is that of a host or a listener with too much to do.
fn may_pass(error: &ConnectError) -> Option<Passing> {
    match error {
        ConnectError::Busy { .. } => Some(Passing::Soon),
        ConnectError::Unreachable { source, .. } | ConnectError::Exchange { source, .. } => {
            match source.kind() {
                io::ErrorKind::ConnectionRefused => Some(Passing::Perhaps),
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe => Some(Passing::Soon),
                _ => None,
            }
        }
        _ => None,
    }
}

/// 0 to 255; the same every time where the system has no randomness.
fn fraction() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).map_or(0, |()| byte[0])
}
