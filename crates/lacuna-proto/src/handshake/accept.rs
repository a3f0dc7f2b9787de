//! The accepting end of the handshake.
//!
//! It reads the peer's hello and hands it to the owner, who answers with a welcome or a refusal. A
//! peer of another version is refused without asking the owner.

use super::goodbye::Goodbye;
use super::message_reader::{MessageReader, Unreadable};
use super::messages::{AnyHello, Hello, PROTOCOL_VERSION, Welcome, agent, encode, printable};
use super::siblings::{Sibling, to_fields};
use super::{MessageError, check_version, parse, probe_timeout_ns};

/// The next step of the owner.
#[derive(Debug)]
pub enum AcceptStep {
    /// Decide on the hello: call [`Accept::welcome`] or [`Accept::refuse`].
    Decide(Box<Hello>),
    /// The handshake is done: the welcome was sent.
    Welcomed,
    /// The handshake has failed. The peer was told why, if possible.
    Failed(AcceptError),
}

/// Contents of the welcome.
#[derive(Debug)]
pub struct Welcoming {
    /// Whether either end's configuration fixes the packet size.
    pub is_mtu_given: bool,
    /// The queue pair's info, as bytes.
    pub info: Vec<u8>,
    /// Whether the control connection is reused afterwards (HTTP's keep-alive).
    pub keeps: bool,
    /// Queue pairs that answer those in the hello.
    pub siblings: Vec<Sibling>,
}

/// Why accepting has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// The deadline has passed.
    #[error("timed out while {doing}")]
    TimedOut {
        /// Step of the handshake.
        doing: &'static str,
    },
    /// The control connection broke or was closed; the owner knows how.
    #[error("the control connection broke while {doing}")]
    Broken {
        /// Step of the handshake.
        doing: &'static str,
    },
    /// The peer does not speak this protocol, or this version of it.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The peer asked for something that this end cannot do, and was told so.
    #[error("unacceptable: {0}")]
    Unacceptable(String),
}

/// State machine of the accepting end.
#[derive(Debug)]
pub struct Accept {
    deadline_ns: u64,
    stage: Stage,
    reader: MessageReader,
    /// Bytes still to be sent.
    outgoing: Vec<u8>,
    step: Option<AcceptStep>,
}

#[derive(Debug)]
enum Stage {
    AwaitingHello,
    /// The owner decides on the hello.
    Deciding,
    SendingWelcome,
    /// Holds the error to end with once the refusal was sent.
    SendingRefusal(AcceptError),
    Ended,
}

impl Accept {
    /// Waits for the hello. The handshake ends by `deadline_ns`.
    pub fn new(deadline_ns: u64) -> Self {
        Self {
            deadline_ns,
            stage: Stage::AwaitingHello,
            reader: MessageReader::default(),
            outgoing: Vec::new(),
            step: None,
        }
    }

    /// As [`Accept::new`], on a reused control connection. `goodbye` is the peer's goodbye to the
    /// connection before, as far as it was read.
    pub fn after_goodbye(goodbye: Goodbye, deadline_ns: u64) -> Self {
        Self { reader: MessageReader::after_goodbye(goodbye), ..Self::new(deadline_ns) }
    }

    /// What the machine is doing, for errors.
    pub fn doing(&self) -> &'static str {
        match self.stage {
            Stage::SendingWelcome => "sending the welcome",
            _ => "waiting for the hello",
        }
    }

    /// Whether the hello was read, or found unreadable.
    pub fn has_read_hello(&self) -> bool {
        !matches!(self.stage, Stage::AwaitingHello)
    }

    /// Whether any byte of the hello was read.
    pub fn has_begun(&self) -> bool {
        self.reader.has_begun()
    }

    /// When the handshake ends at the latest.
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Time limit for proving that packets pass.
    pub fn probe_timeout_ns(&self, now_ns: u64) -> u64 {
        probe_timeout_ns(now_ns, self.deadline_ns)
    }

    /// Most bytes to read next; 0 once the hello has come.
    pub fn wanted(&self) -> usize {
        if self.has_read_hello() { 0 } else { self.reader.wanted() }
    }

    /// Takes in bytes from the control connection. Returns how many of them belong to this machine.
    pub fn on_bytes(&mut self, _now_ns: u64, bytes: &[u8]) -> usize {
        if self.has_read_hello() {
            return 0;
        }
        let taken = match self.reader.take(bytes) {
            Ok(taken) => taken,
            Err(Unreadable::Goodbye) => {
                self.on_broken();
                return bytes.len();
            }
            Err(Unreadable::Message(why)) => {
                self.end(AcceptStep::Failed(MessageError::NotLacuna(why).into()));
                return bytes.len();
            }
        };
        if let Some(body) = self.reader.body() {
            match read_hello(body, self.doing()) {
                Ok(hello) => {
                    self.stage = Stage::Deciding;
                    self.step = Some(AcceptStep::Decide(Box::new(hello)));
                }
                Err(error @ MessageError::Version { .. }) => {
                    let reason = format!("this end speaks version {PROTOCOL_VERSION}");
                    self.refuse_with(reason, error.into());
                }
                Err(error) => self.end(AcceptStep::Failed(error.into())),
            }
        }
        taken
    }

    /// The peer has closed the control connection, or the connection has failed.
    pub fn on_broken(&mut self) {
        if !matches!(self.stage, Stage::Ended) {
            self.end(AcceptStep::Failed(AcceptError::Broken { doing: self.doing() }));
        }
    }

    /// Sends the welcome. The queue pair must be ready to receive.
    pub fn welcome(&mut self, welcoming: Welcoming) {
        if !matches!(self.stage, Stage::Deciding) {
            return;
        }
        let Welcoming { is_mtu_given, info, keeps, siblings } = welcoming;
        let siblings = to_fields(&siblings);
        let (version, agent) = (PROTOCOL_VERSION, agent());
        self.outgoing =
            encode(&Welcome::Accepted { version, agent, is_mtu_given, info, keeps, siblings });
        self.stage = Stage::SendingWelcome;
    }

    /// Sends a refusal.
    pub fn refuse(&mut self, reason: String) {
        if matches!(self.stage, Stage::Deciding) {
            let error = AcceptError::Unacceptable(printable(&reason));
            self.refuse_with(reason, error);
        }
    }

    fn refuse_with(&mut self, reason: String, error: AcceptError) {
        self.outgoing = encode(&Welcome::Refused { version: PROTOCOL_VERSION, reason });
        self.stage = Stage::SendingRefusal(error);
    }

    /// Bytes to send next.
    pub fn poll_bytes(&self) -> &[u8] {
        &self.outgoing
    }

    /// `count` of these bytes were sent.
    pub fn on_sent(&mut self, count: usize) {
        self.outgoing.drain(..count);
        if !self.outgoing.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::SendingWelcome => self.end(AcceptStep::Welcomed),
            Stage::SendingRefusal(error) => self.end(AcceptStep::Failed(error)),
            other => self.stage = other,
        }
    }

    /// When to call [`Accept::on_timeout`].
    pub fn poll_timeout(&self) -> Option<u64> {
        (!matches!(self.stage, Stage::Ended)).then_some(self.deadline_ns)
    }

    /// Fails if the deadline has passed.
    pub fn on_timeout(&mut self, now_ns: u64) {
        if now_ns >= self.deadline_ns && !matches!(self.stage, Stage::Ended) {
            self.end(AcceptStep::Failed(AcceptError::TimedOut { doing: self.doing() }));
        }
    }

    /// The next step of the owner, if there is one.
    pub fn poll(&mut self) -> Option<AcceptStep> {
        self.step.take()
    }

    fn end(&mut self, step: AcceptStep) {
        self.stage = Stage::Ended;
        self.outgoing.clear();
        self.step = Some(step);
    }
}

fn read_hello(body: &[u8], doing: &str) -> Result<Hello, MessageError> {
    let AnyHello { version } = parse(body, doing)?;
    check_version(version)?;
    parse(body, doing)
}
