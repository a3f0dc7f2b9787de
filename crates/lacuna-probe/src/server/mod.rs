//! The server: takes in clients that proved their address, keeps a record of each one's trial, and
//! answers nobody else but with a challenge.
//!
//! An answer goes out when a packet came in, to where it came from, and is never longer: the server
//! sends nothing by itself. Seats are few, and each is given back by the client, by silence, or
//! when the time is up.

mod session;
#[cfg(test)]
mod tests;

use crate::host::Host;
use crate::proof::Proof;
use crate::wire::{Message, Refusal, WireError};
use session::Session;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Events that wait to be taken; older ones are forgotten.
const EVENTS_MAX: usize = 64;

/// How a server behaves.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Secret of the server, from a good source of randomness.
    pub key: [u8; 32],
    /// Clients at a time.
    pub clients_max: usize,
    /// How long a client may be served.
    pub session_ns_max: u64,
    /// How long a client may say nothing before its seat is free.
    pub silence_ns_max: u64,
}

/// Something to tell a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerEvent {
    /// A client was taken in.
    Opened {
        /// Where it is.
        peer: SocketAddr,
    },
    /// A client was told to try again later, or that it takes too long.
    Refused {
        /// Where it is.
        peer: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
    /// A client's seat is free.
    Ended {
        /// Where it was.
        peer: SocketAddr,
        /// Trials that it has fetched the result of.
        trials: u32,
        /// How it ended.
        end: End,
    },
}

/// How a client's seat got free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client said goodbye.
    Closed,
    /// It said nothing for too long.
    Silent,
    /// Its time was up.
    TimeUp,
}

/// What came and was of no use, for those who wonder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Not packets of a measurement.
    pub foreign: u64,
    /// Of another version.
    pub other_version: u64,
    /// Damaged on the way.
    pub damaged: u64,
    /// From addresses that are not those of a client, or of no trial that runs.
    pub strangers: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    proof: Proof,
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
            proof: Proof::new(config.key),
            config,
            sessions: BTreeMap::new(),
            events: VecDeque::new(),
            ignored: Ignored::default(),
        }
    }

    /// A datagram came. The answer, if there is one, goes to where it came from.
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
                let cookie = self.proof.cookie(now_ns, from, key);
                Some(Message::Challenge { cookie })
            }
            Message::Open { cookie, needed_s }
                if self.proof.is_valid(now_ns, from, key, cookie) =>
            {
                Some(self.open(now_ns, from, key, needed_s))
            }
            message => self.for_session(now_ns, from, key, message, host),
        };
        let answer = answer?.answer(key);
        // Our clients' questions are longer than any answer; others may ask shortly.
        (answer.len() <= bytes.len()).then_some(answer)
    }

    /// Takes seats back whose time has come.
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

    /// The next thing to tell.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Clients that are served.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.sessions.len()
    }

    /// What came and was of no use.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    fn open(&mut self, now_ns: u64, from: SocketAddr, nonce: u64, needed_s: u32) -> Message {
        let token = self.proof.token(from, nonce);
        if self.sessions.contains_key(&token) {
            // The answer to the first try was lost.
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
            // A client that says goodbye again did not hear the first answer; it is not a client any
            // more, and needs none.
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

/// A client's flows come from other ports, never from another host; on another link the same
/// link-local address is one.
fn is_same_host(a: SocketAddr, b: SocketAddr) -> bool {
    let zone = |address| match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    };
    a.ip() == b.ip() && zone(a) == zone(b)
}
