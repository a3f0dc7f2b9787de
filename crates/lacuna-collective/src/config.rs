//! Settings of a group, and of one operation.

use crate::encode::Encode;
use crate::rendezvous::Meeting;
use lacuna::rc::Repair;
use lacuna::{ConnectionConfig, ControllerKind, Mode, ScopedIp, Security, Wrap};
use lacuna_schedule::budget::Rule;
use lacuna_schedule::run::{Divisor, Settings};
use lacuna_schedule::schedule::Algorithm;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

/// Bytes of a chunk: what is reduced and passed on at once.
const CHUNK_BYTES: u64 = 64 << 10;

/// What carries long messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Lacuna's messages, in the mode of the group.
    #[default]
    Sdr,
    /// Reliable connections as RDMA cards have them, with this repair: to compare. They carry whole operations only.
    Rc(Repair),
}

/// How a group is formed.
#[derive(Clone)]
pub struct GroupConfig {
    /// Where its ranks meet.
    pub meeting: Meeting,
    /// The local address of its sockets.
    pub bind: ScopedIp,
    /// The address that others reach this rank at, if it is another one; without, the one that rank 0 sees.
    pub announce: Option<IpAddr>,
    /// The port for its connections; 0 is any.
    pub port: u16,
    /// What is done about gaps; `bounded` ends operations by their budgets, with what is there.
    pub mode: Mode,
    /// What carries long messages.
    pub transport: Transport,
    /// Congestion controller; `None` is as with connections.
    pub controller: Option<ControllerKind>,
    /// The rate to hold with the controller `fixed`, the rate to begin at with others.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that are reduced and passed on at once, rounded up to whole packets.
    pub chunk_bytes: u64,
    /// Within what time a rank that says nothing counts as gone.
    pub silence: Duration,
    /// Which connections are encrypted, and with whom.
    pub security: Security,
    /// Goes around the datapath of the group: to lose or delay packets on purpose.
    pub wrap: Option<Wrap>,
    /// How budgets are learned ([`Budget::Adaptive`]).
    pub rule: Rule,
    /// How operations are carried out.
    pub settings: Settings,
}

impl GroupConfig {
    /// The defaults: reliable, as the path calls for.
    #[must_use]
    pub fn new(meeting: Meeting) -> Self {
        Self {
            meeting,
            bind: ScopedIp::ANY,
            announce: None,
            port: 0,
            mode: ConnectionConfig::default().mode,
            transport: Transport::default(),
            controller: None,
            rate_bits_per_s: None,
            chunk_bytes: CHUNK_BYTES,
            silence: ConnectionConfig::default().silence,
            security: Security::default(),
            wrap: None,
            rule: Rule::default(),
            settings: Settings::default(),
        }
    }
}

impl std::fmt::Debug for GroupConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupConfig")
            .field("meeting", &self.meeting)
            .field("bind", &self.bind)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// How much time an operation has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Budget {
    /// As long as it takes.
    #[default]
    Unlimited,
    /// As long as it takes; if that is longer than this, it fails.
    Within(Duration),
    /// So long; then it goes on with what is there. For bounded modes.
    Fixed(Duration),
    /// As long as operations of its kind and size take, learned by the group's rule; then it goes on with what is
    /// there. For bounded modes.
    Adaptive,
}

/// How one operation is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// By which schedule; `None` chooses one by the size and, where ranks are far from each other, by their round
    /// trips: the same on all ranks.
    pub algorithm: Option<Algorithm>,
    /// How much time it has.
    pub budget: Budget,
    /// What an average is divided by, if the operation ends with what is there.
    pub divisor: Divisor,
    /// Encodes what is sent, so that what is lost makes all elements of many blocks a little wrong; the result is decoded.
    /// [`Report::missing`](crate::Report::missing) then is of encoded elements, [`Outcome::decoded`](crate::Outcome::decoded)
    /// says which blocks of the result that concerns.
    pub encode: Option<Encode>,
    /// Bytes that are lost on purpose although they come, as [`Hop::lost`](crate::Hop::lost) has them: of each receive of this
    /// rank, in the order of [`Report::hops`](crate::Report::hops). So the losses of another run can be repeated. Only for
    /// operations that end with what is there.
    pub losses: Vec<Vec<Range<usize>>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            algorithm: None,
            budget: Budget::Unlimited,
            divisor: Divisor::Contributors,
            encode: None,
            losses: Vec::new(),
        }
    }
}
