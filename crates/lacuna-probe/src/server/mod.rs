//! The server: admits clients with a validated address, records each one's trial, and answers others
//! with a challenge only.
//!
//! The server sends only answers: to the source of a packet, and never longer than it. It has a bounded
//! number of sessions. A session ends when the client closes it, when the client is silent for too long,
//! or at its time limit.

mod session;
#[cfg(test)]
mod tests;

use crate::address_validation::AddressValidator;
use crate::host::Host;
use crate::wire::{Message, Refusal, WireError};
use session::Session;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Events that wait for the caller; beyond this the oldest are dropped.
const EVENTS_MAX: usize = 64;

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Secret of the server, from a good source of randomness.
    pub key: [u8; 32],
    /// Most clients at a time.
    pub clients_max: usize,
    /// Longest session.
    pub session_ns_max: u64,
    /// Longest silence of a client before its session ends.
    pub silence_ns_max: u64,
}

/// An event for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// A client was admitted.
    Opened {
        /// Its address.
        peer: SocketAddr,
    },
    /// A client was refused: the server is busy, or the client needs too long.
    Refused {
        /// Its address.
        peer: SocketAddr,
        /// The reason.
        refusal: Refusal,
    },
    /// A client's session has ended.
    Ended {
        /// Its address.
        peer: SocketAddr,
        /// Trials whose result it has fetched.
        trials: u32,
        /// How it ended.
        end: End,
    },
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client closed it.
    Closed,
    /// The client was silent for too long.
    Silent,
    /// Its time limit was reached.
    TimeUp,
}

/// Counters of ignored packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Not packets of a measurement.
    pub foreign: u64,
    /// Of another version.
    pub other_version: u64,
    /// Damaged on the path.
    pub damaged: u64,
    /// From an address without a session.
    pub strangers: u64,
}

/// The server; see the module's text.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    validator: AddressValidator,
    /// By token.
    sessions: BTreeMap<u64, Session>,
    events: VecDeque<ServerEvent>,
    ignored: Ignored,
}

impl Server {
    /// A server without clients.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self {
            validator: AddressValidator::new(config.key),
            config,
            sessions: BTreeMap::new(),
            events: VecDeque::new(),
            ignored: Ignored::default(),
        }
    }

    /// A datagram has arrived. Returns the answer to its source, if there is one.
    pub fn on_datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        bytes: &[u8],
        host: &mut dyn Host,
    ) -> Option<Vec<u8>> {
        self.on_timeout(now_ns);
        let (key, message) = match Message::parse(bytes) {
            Ok(parsed) => parsed,
            Err(error) => {
                match error {
                    WireError::Foreign => self.ignored.foreign += 1,
                    WireError::Version { .. } => self.ignored.other_version += 1,
                    WireError::Damaged => self.ignored.damaged += 1,
                }
                return None;
            }
        };
        let answer = match message {
            Message::Hello => {
                let cookie = self.validator.cookie(now_ns, from, key);
                Some(Message::Challenge { cookie })
            }
            Message::Open { cookie, needed_s }
                if self.validator.is_valid(now_ns, from, key, cookie) =>
            {
                Some(self.open(now_ns, from, key, needed_s))
            }
            message => self.for_session(now_ns, from, key, message, host),
        };
        let answer = answer?.answer(key);
        // Requests of our clients are longer than any answer; those of others may be short.
        (answer.len() <= bytes.len()).then_some(answer)
    }

    /// Ends sessions that are silent or over their time limit.
    pub fn on_timeout(&mut self, now_ns: u64) {
        let over: Vec<(u64, End)> = self
            .sessions
            .iter()
            .filter_map(|(token, session)| session.end(now_ns).map(|end| (*token, end)))
            .collect();
        for (token, end) in over {
            self.end(token, end);
        }
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.sessions.values().map(Session::ends_ns).min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Number of sessions.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.sessions.len()
    }

    /// Counters of ignored packets.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    fn open(&mut self, now_ns: u64, from: SocketAddr, nonce: u64, needed_s: u32) -> Message {
        let token = self.validator.token(from, nonce);
        if self.sessions.contains_key(&token) {
            // The client repeats its request because the answer was lost.
            return Message::Accepted { token };
        }
        let limit_s = self.config.session_ns_max / 1_000_000_000;
        let refusal = if self.sessions.len() >= self.config.clients_max {
            Refusal::Busy
        } else if u64::from(needed_s) > limit_s {
            Refusal::TooLong { limit_s: u32::try_from(limit_s).unwrap_or(u32::MAX) }
        } else {
            let session = Session::new(now_ns, from, &self.config);
            self.sessions.insert(token, session);
            self.tell(ServerEvent::Opened { peer: from });
            return Message::Accepted { token };
        };
        self.tell(ServerEvent::Refused { peer: from, refusal });
        Message::Refused(refusal)
    }

    fn for_session(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        token: u64,
        message: Message,
        host: &mut dyn Host,
    ) -> Option<Message> {
        let session =
            self.sessions.get_mut(&token).filter(|session| is_same_host(session.peer(), from));
        let Some(session) = session else {
            self.ignored.strangers += 1;
            // This includes a repeated close whose answer was lost; the client does without.
            return None;
        };
        session.heard(now_ns);
        match message {
            Message::Close => {
                self.end(token, End::Closed);
                Some(Message::Closed)
            }
            message => session.on_message(now_ns, message, host),
        }
    }

    fn end(&mut self, token: u64, end: End) {
        if let Some(session) = self.sessions.remove(&token) {
            let (peer, trials) = (session.peer(), session.trials());
            self.tell(ServerEvent::Ended { peer, trials, end });
        }
    }

    fn tell(&mut self, event: ServerEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

/// Whether both addresses are of one host: ports may differ, as a client's flows have their own; a
/// link-local address on another link is another host.
fn is_same_host(a: SocketAddr, b: SocketAddr) -> bool {
    let zone = |address| match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    a.ip() == b.ip() && zone(a) == zone(b)
}
