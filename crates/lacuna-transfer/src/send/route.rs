//! How a sender comes by its connections: it makes them, or takes those that the receiver makes.
//!
//! A receiver that connects again takes the place of its connection before, which this end may not
//! yet know to be broken. Another receiver is refused: a sender that listens serves one.

use super::item_queue::Ended;
use crate::error::SendError;
use crate::retry::{Retry, silence};
use crate::send::{SendOptions, failed};
use lacuna::{Connection, ConnectionConfig};
use lacuna_service::{AcceptError, Purpose, ReachError, STOP_POLL, Stop};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The way to the receiver.
pub(super) enum Route<'a> {
    /// To HOST:PORT.
    Connect(&'a str),
    /// From whoever connects.
    Accept(&'a Arrived),
}

/// Connections that a receiver has made and that are not yet used.
#[derive(Default)]
pub(super) struct Arrived {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The number by which the one receiver is known.
    receiver: Option<u32>,
    newest: Option<Connection>,
    /// Why none comes any more.
    ended: Option<AcceptError>,
}

impl Arrived {
    /// Takes the first receiver that comes, and takes it again.
    pub(super) fn admit(&self, tag: u64) -> Result<(), String> {
        let Some((Purpose::Fetch, number)) = Purpose::of(tag) else {
            return Err(Purpose::Fetch.refusal(tag));
        };
        let mut state = self.lock();
        match *state.receiver.get_or_insert(number) == number {
            true => Ok(()),
            false => Err("busy: it sends to another receiver".to_owned()),
        }
    }

    /// The receiver has connected.
    pub(super) fn add(&self, connection: Connection) {
        self.lock().newest = Some(connection);
        self.changed.notify_all();
    }

    /// Nobody can connect any more.
    pub(super) fn end(&self, error: AcceptError) {
        self.lock().ended = Some(error);
        self.changed.notify_all();
    }

    fn has_newer(&self) -> bool {
        self.lock().newest.is_some()
    }

    fn take_within(&self, within: Duration, stop: &Stop) -> Result<Connection, Ended> {
        let since = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(connection) = state.newest.take() {
                return Ok(connection);
            }
            if stop.is_requested() {
                return Err(Ended::Lost("stopped".to_owned()));
            }
            if let Some(error) = state.ended.take() {
                return Err(Ended::Failed(error.into()));
            }
            if since.elapsed() >= within {
                let reason = "no receiver connected".to_owned();
                return Err(Ended::Failed(SendError::Lost { reason, retry: within }));
            }
            let waited = self.changed.wait_timeout(state, STOP_POLL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Route<'_> {
    /// The next connection; `again` if there was one before.
    pub(super) fn next(
        &self,
        options: &SendOptions,
        tag: u64,
        retry: &Retry,
        again: bool,
    ) -> Result<Connection, Ended> {
        match self {
            Self::Connect(receiver) => connect(receiver, options, tag, retry, again),
            Self::Accept(arrived) => arrived.take_within(retry.left(Instant::now()), &options.stop),
        }
    }

    /// Whether the receiver has connected anew, so that the connection in use is over.
    pub(super) fn has_newer(&self) -> bool {
        matches!(self, Self::Accept(arrived) if arrived.has_newer())
    }

    /// The peer as the caller named it.
    pub(super) fn peer(&self) -> String {
        match self {
            Self::Connect(receiver) => (*receiver).to_owned(),
            Self::Accept(_) => String::new(),
        }
    }

    /// Whether the receiver is told of what is not sent. One that connects has nobody else to ask;
    /// one that listens may be older than the record for that.
    pub(super) fn tells_unsent(&self) -> bool {
        matches!(self, Self::Accept(_))
    }
}

fn connect(
    receiver: &str,
    options: &SendOptions,
    tag: u64,
    retry: &Retry,
    again: bool,
) -> Result<Connection, Ended> {
    let within = retry.connect_within(Instant::now());
    let first_within = options.connect_within.filter(|_| !again);
    let config = ConnectionConfig {
        silence: silence(options.retry),
        connect_timeout: first_within.map_or(within, |first| within.min(first)),
        tag,
        ..options.connection
    };
    let stop = &|| options.stop.is_requested();
    let connected = lacuna_service::connect(receiver, &options.sockets, config, stop);
    connected.map(|(_, connection)| connection).map_err(|error| match error {
        // The receiver was there before, so it may come back.
        ReachError::Connect(error) if again && error.is_retryable() => {
            Ended::Lost(error.to_string())
        }
        ReachError::Connect(error) => Ended::Failed(error.into()),
        ReachError::Thread(error) => failed(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_receiver_is_taken_as_often_as_it_comes_and_no_other() {
        let arrived = Arrived::default();
        assert!(arrived.admit(Purpose::Files.tag(7)).is_err(), "another sender");
        for _ in 0..2 {
            arrived.admit(Purpose::Fetch.tag(7)).unwrap();
        }
        assert!(arrived.admit(Purpose::Fetch.tag(8)).unwrap_err().contains("busy"));
    }

    #[test]
    fn who_waits_for_a_receiver_waits_until_it_comes_or_for_a_reason() {
        let arrived = Arrived::default();
        let take = |stop: &Stop| arrived.take_within(Duration::ZERO, stop).unwrap_err();
        let stop = Stop::new();
        let nobody = take(&stop);
        assert!(matches!(nobody, Ended::Failed(SendError::Lost { .. })), "{nobody:?}");
        arrived.end(AcceptError::Ended);
        let ended = take(&stop);
        assert!(matches!(ended, Ended::Failed(SendError::Accept(_))), "{ended:?}");
        stop.request();
        assert!(matches!(take(&stop), Ended::Lost(_)));
    }
}
