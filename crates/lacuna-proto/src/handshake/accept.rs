//! The accepting end of the handshake.
//!
//! It reads the peer's hello and hands it to the owner, who welcomes the peer or refuses it. This
//! machine itself refuses a peer of another version.

use super::goodbye::Goodbye;
use super::message_reader::{MessageReader, Unreadable};
use super::messages::{AnyHello, Hello, PROTOCOL_VERSION, Welcome, agent, opening, printable};
use super::{MessageError, check_version, parse, patience_ns};

/// The next step of the owner.
#[derive(Debug)]
pub enum AcceptStep {
    /// Judge the hello, and then [`Accept::welcome`] the peer or [`Accept::refuse`] it.
    Judge(Box<Hello>),
    /// The handshake is done: the welcome was sent.
    Welcomed,
    /// The handshake has failed. The peer was told why if it could be told.
    Failed(AcceptError),
}

/// Contents of the welcome.
#[derive(Debug)]
pub struct Welcoming {
    /// Whether either end's configuration fixes the packet size.
    pub is_mtu_given: bool,
    /// The queue pair's info, as bytes.
    pub info: Vec<u8>,
    /// Whether the control connection is reused afterwards.
    pub keeps: bool,
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

/// See the module's text.
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
    Hearing,
    /// The owner judges the hello.
    Judging,
    Welcoming,
    /// The error to end with once the refusal was sent.
    Refusing(AcceptError),
    Ended,
}

impl Accept {
    /// Waits for the hello. The handshake ends by `deadline_ns`.
    pub fn new(deadline_ns: u64) -> Self {
        Self {
            deadline_ns,
            stage: Stage::Hearing,
            reader: MessageReader::default(),
            outgoing: Vec::new(),
            step: None,
        }
    }

    /// As [`Accept::new`], on a control connection that is reused: `goodbye` is what has come of
    /// the peer's goodbye to its last use.
    pub fn behind(goodbye: Goodbye, deadline_ns: u64) -> Self {
        Self { reader: MessageReader::behind(goodbye), ..Self::new(deadline_ns) }
    }

    /// What the machine is doing, for errors.
    pub fn doing(&self) -> &'static str {
        match self.stage {
            Stage::Welcoming => "sending the welcome",
            _ => "waiting for the hello",
        }
    }

    /// Whether the peer's message was read whole, or was found unreadable.
    pub fn has_heard(&self) -> bool {
        !matches!(self.stage, Stage::Hearing)
    }

    /// Whether the peer has begun to speak.
    pub fn has_begun(&self) -> bool {
        self.reader.has_begun()
    }

    /// When the handshake ends at the latest.
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Time for proving that packets pass.
    pub fn patience_ns(&self, now_ns: u64) -> u64 {
        patience_ns(now_ns, self.deadline_ns)
    }

    /// Most bytes to read next; 0 once the hello has come.
    pub fn wanted(&self) -> usize {
        if self.has_heard() { 0 } else { self.reader.wanted() }
    }

    /// Takes in bytes from the control connection. Returns how many of them belong to this machine.
    pub fn on_bytes(&mut self, _now_ns: u64, bytes: &[u8]) -> usize {
        if self.has_heard() {
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
                    self.stage = Stage::Judging;
                    self.step = Some(AcceptStep::Judge(Box::new(hello)));
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

    /// Welcomes the peer: the owner has everything ready for it.
    pub fn welcome(&mut self, welcoming: Welcoming) {
        if !matches!(self.stage, Stage::Judging) {
            return;
        }
        let Welcoming { is_mtu_given, info, keeps } = welcoming;
        let (version, agent) = (PROTOCOL_VERSION, agent());
        self.outgoing = opening(&Welcome::Accepted { version, agent, is_mtu_given, info, keeps });
        self.stage = Stage::Welcoming;
    }

    /// Refuses the peer.
    pub fn refuse(&mut self, reason: String) {
        if matches!(self.stage, Stage::Judging) {
            let error = AcceptError::Unacceptable(printable(&reason));
            self.refuse_with(reason, error);
        }
    }

    fn refuse_with(&mut self, reason: String, error: AcceptError) {
        self.outgoing = opening(&Welcome::Refused { version: PROTOCOL_VERSION, reason });
        self.stage = Stage::Refusing(error);
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
            Stage::Welcoming => self.end(AcceptStep::Welcomed),
            Stage::Refusing(error) => self.end(AcceptStep::Failed(error)),
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
