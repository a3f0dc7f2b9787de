//! The connecting end of the handshake.
//!
//! It sends the hello, reads the welcome, and has the owner probe which packets pass. A reused
//! control connection may be dead: if TCP does not acknowledge the hello in time, or anything fails
//! before the welcome, the outcome is [`ConnectStep::Stale`] and the owner opens a new connection.

use super::goodbye::{self, Goodbye};
use super::info::{Disagreement, check_agreement, peer_of};
use super::message_reader::{MessageReader, Unreadable};
use super::messages::{
    End, Hello, HelloReports, PROTOCOL_VERSION, Welcome, agent, encode, printable,
};
use super::parameters::Parameters;
use super::rtt::{Rtt, SLACK_NS};
use super::siblings::{Role, Sibling, of_fields, to_fields};
use super::wire::{HelloWire, WireEnds};
use super::{MessageError, check_version, parse, probe_timeout_ns};
use crate::probe::{ProbeOutcome, Prober, mtu_candidates};
use crate::qp::Peer;
use core::net::SocketAddr;
use lacuna_path::report_policy::ReportPolicy;
use lacuna_place::geometry::{Geometry, GeometryError};
use lacuna_wire::{InfoError, QpInfo, ReportsInfo, Seal};

/// A reused control connection counts as dead if TCP has not acknowledged the hello after this time
/// plus four round trips. That is enough for a lost segment, which TCP retransmits after a round trip
/// and 200 ms. The wait for the welcome has the ordinary deadline, since the listener may be busy.
const PROBATION_NS_MIN: u64 = 1_000_000_000;
const PROBATION_RTTS: u64 = 4;
/// Interval of checking the prober's outcome (a judgement). An answer brings the next check forward.
const CHECK_INTERVAL_NS: u64 = 20_000_000;
/// How much longer than some round trips the answer to a probe over UDP is waited for: some rounds of
/// probes, of which any may be lost. A judgement.
const ANSWER_NS: u64 = 200_000_000;

/// Contents of the hello.
#[derive(Debug)]
pub struct Offer {
    /// The proposed parameters.
    pub parameters: Parameters,
    /// How to reach this end, with the ports of all its channels.
    pub end: End,
    /// Longest IP packet that this end's TCP would send, if known.
    pub packet_bytes: Option<u32>,
    /// Whether the control connection may be reused afterwards.
    pub keeps: bool,
    /// The report policy that this end's congestion controller wants, if not the usual one.
    pub reports: Option<ReportsInfo>,
    /// Further queue pairs of this end.
    pub siblings: Vec<Sibling>,
    /// The control connection's addresses as this end sees them; `None` if the system does not say.
    pub ends: Option<WireEnds>,
}

/// The next step of the owner.
#[derive(Debug)]
pub enum ConnectStep {
    /// Find out whether the peer's kernel has acknowledged everything that was sent, and call
    /// [`Connect::on_delivery`].
    CheckDelivery,
    /// Begin to probe and call [`Connect::on_probing`], then [`Connect::on_probe`] whenever the
    /// prober's state has changed.
    Probe(ProbePlan),
    /// The handshake is done.
    Connected(Box<Agreed>),
    /// Connect again with this packet size: packets of the agreed size do not pass, these do. The
    /// goodbye was sent.
    Reconnect {
        /// Payload bytes of a packet.
        mtu_bytes: u32,
    },
    /// The reused control connection is dead; the owner is to connect over another one.
    Stale(ConnectError),
    /// The handshake has failed.
    Failed(ConnectError),
}

/// Arguments for the owner's [`Prober`].
#[derive(Debug, Clone)]
pub struct ProbePlan {
    /// The peer's queue pair.
    pub peer: Peer,
    /// The peer's channels.
    pub ports: Vec<u16>,
    /// The seal of all packets.
    pub seal: Seal,
    /// Payload sizes, the largest first.
    pub candidates: Vec<u32>,
    /// Time limit of the search.
    pub probe_timeout_ns: u64,
}

/// The outcome of a successful handshake.
#[derive(Debug)]
pub struct Agreed {
    /// The agreed parameters.
    pub parameters: Parameters,
    /// Geometry of both queue pairs.
    pub geometry: Geometry,
    /// The peer's queue pair.
    pub peer: Peer,
    /// The peer's report policy, if not the default.
    pub reports: Option<ReportPolicy>,
    /// The peer's further queue pairs; only such as this end has offered.
    pub siblings: Vec<Sibling>,
    /// The peer's channels.
    pub ports: Vec<u16>,
    /// The round-trip time.
    pub rtt: Rtt,
    /// Whether the control connection is reused afterwards.
    pub keeps: bool,
    /// Time limit for proving that packets pass.
    pub probe_timeout_ns: u64,
}

/// Why connecting has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
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
    /// The peer is no listener of this protocol.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The peer refused, and said why.
    #[error("refused: {0}")]
    Refused(String),
    /// The peer has no room just now.
    #[error("busy: {0}")]
    Busy(String),
    /// The peer's info does not parse.
    #[error("the peer's info cannot be read: {0}")]
    Info(#[from] InfoError),
    /// The packet size that the peer gives makes no geometry.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The ends do not agree.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
    /// No packets pass on some channels.
    #[error("{answered} of {channels} channels answered over UDP")]
    NoUdp {
        /// Channels that got an answer.
        answered: u32,
        /// All channels.
        channels: u32,
        /// How long it was tried.
        waited_ns: u64,
    },
}

/// State machine of the connecting end.
#[derive(Debug)]
pub struct Connect {
    parameters: Parameters,
    /// Channels of this end.
    channels: u8,
    /// Further queue pairs that the hello offers.
    offered: Vec<Role>,
    deadline_ns: u64,
    /// On a reused control connection: when to check that TCP has delivered the hello.
    probation_ns: Option<u64>,
    is_reused: bool,
    /// When the hello was sent, as far as is known.
    hello_ns: u64,
    stage: Stage,
    reader: MessageReader,
    /// Bytes still to be sent.
    outgoing: Vec<u8>,
    step: Option<ConnectStep>,
}

#[derive(Debug)]
enum Stage {
    /// The hello was sent, or is being sent.
    AwaitingWelcome,
    /// The welcome was read; the owner is to begin probing.
    Welcomed(Welcomed),
    Probing(Probing),
    /// The goodbye is being sent; then the owner connects again with this smaller payload.
    Closing(u32),
    Ended,
}

/// Contents of the welcome.
#[derive(Debug)]
struct Welcomed {
    is_mtu_given: bool,
    keeps: bool,
    geometry: Geometry,
    peer: Peer,
    reports: Option<ReportPolicy>,
    siblings: Vec<Sibling>,
    ports: Vec<u16>,
    probe_timeout_ns: u64,
    /// When the welcome came.
    welcome_ns: u64,
}

#[derive(Debug)]
struct Probing {
    welcomed: Welcomed,
    /// Round-trip time from the exchange over TCP.
    rtt: Rtt,
    /// If the peer's UDP packets come later than this, UDP takes a slower path than TCP.
    udp_due_ns: u64,
    /// When to stop waiting for a round-trip time over UDP.
    gives_up_ns: u64,
    /// When to check the prober's outcome again.
    next_check_ns: u64,
}

impl Probing {
    /// The round-trip time while none was measured over UDP; `None` if one is still to be waited for.
    fn rtt_unmeasured(&self, now_ns: u64, prober: &Prober) -> Option<Rtt> {
        let Some(probed_ns) = prober.peer_probed_ns() else {
            return (now_ns >= self.gives_up_ns).then_some(self.rtt);
        };
        if probed_ns <= self.udp_due_ns {
            return Some(self.rtt);
        }
        // Either UDP takes a slower path, by so much each way, and answers come within some round trips; or
        // the peer has nothing that answers: without threads, its application may wait in this one.
        let late_ns = probed_ns.saturating_sub(self.welcomed.welcome_ns);
        let (least_ns, most_ns) = self.rtt.range_ns();
        let most_ns = most_ns.saturating_add(late_ns.saturating_mul(2));
        let due_ns = probed_ns.saturating_add(most_ns.saturating_mul(2)).saturating_add(ANSWER_NS);
        (now_ns >= due_ns.min(self.gives_up_ns)).then_some(Rtt::Guessed(least_ns, most_ns))
    }
}

impl Connect {
    /// Sends the hello. The handshake ends by `deadline_ns`. For a reused control connection, `reused`
    /// is the peer's goodbye to its last use, as far as it was read, and TCP's round-trip time.
    pub fn new(
        now_ns: u64,
        offer: Offer,
        deadline_ns: u64,
        reused: Option<(Goodbye, u64)>,
    ) -> Self {
        let Offer { parameters, end, packet_bytes, keeps, reports, siblings, ends } = offer;
        let channels = end.ports.len() as u8;
        let Parameters {
            mode,
            chunk_bytes,
            mtu_bytes,
            split,
            generations,
            max_message_bytes,
            tag,
            wire,
        } = parameters;
        let hello = Hello {
            version: PROTOCOL_VERSION,
            agent: agent(),
            mode: mode.to_string(),
            chunk_bytes,
            mtu_bytes,
            packet_bytes,
            generations,
            split: [split.message_bits(), split.packet_bits(), split.user_bits()],
            max_message_bytes,
            tag,
            keeps,
            reports: reports.map(HelloReports),
            siblings: to_fields(&siblings),
            wire: HelloWire::new(wire, ends),
            end,
        };
        let probation_ns = reused.as_ref().map(|(_, rtt_ns)| {
            let probation_ns =
                PROBATION_NS_MIN.saturating_add(PROBATION_RTTS.saturating_mul(*rtt_ns));
            now_ns + probation_ns.min(deadline_ns.saturating_sub(now_ns) / 3)
        });
        Self {
            parameters,
            channels,
            offered: siblings.iter().map(|sibling| sibling.role).collect(),
            deadline_ns,
            probation_ns,
            is_reused: reused.is_some(),
            hello_ns: now_ns,
            stage: Stage::AwaitingWelcome,
            reader: reused.map_or_else(MessageReader::default, |(goodbye, _)| {
                MessageReader::after_goodbye(goodbye)
            }),
            outgoing: encode(&hello),
            step: None,
        }
    }

    /// What the machine is doing, for errors.
    pub fn doing(&self) -> &'static str {
        match self.stage {
            Stage::AwaitingWelcome if !self.outgoing.is_empty() => "introducing itself",
            Stage::AwaitingWelcome => "waiting for the welcome",
            _ => "probing the path",
        }
    }

    /// Most bytes to read next; 0 once the welcome has come.
    pub fn wanted(&self) -> usize {
        match self.stage {
            Stage::AwaitingWelcome => self.reader.wanted(),
            _ => 0,
        }
    }

    /// Takes in bytes from the control connection. Returns how many of them belong to this machine.
    pub fn on_bytes(&mut self, now_ns: u64, bytes: &[u8]) -> usize {
        if self.wanted() == 0 {
            return 0;
        }
        let taken = match self.reader.take(bytes) {
            Ok(taken) => taken,
            Err(Unreadable::Goodbye) => {
                self.on_broken(now_ns);
                return bytes.len();
            }
            Err(Unreadable::Message(why)) => {
                self.end(ConnectStep::Failed(MessageError::NotLacuna(why).into()));
                return bytes.len();
            }
        };
        if self.reader.body().is_some() {
            self.on_welcome(now_ns);
        }
        taken
    }

    /// The peer has closed the control connection, or the connection has failed.
    pub fn on_broken(&mut self, now_ns: u64) {
        let error = ConnectError::Broken { doing: self.doing() };
        match self.stage {
            Stage::Ended => {}
            // The peer left before it read the goodbye.
            Stage::Closing(mtu_bytes) => self.end(ConnectStep::Reconnect { mtu_bytes }),
            _ if self.is_on_probation() && now_ns < self.deadline_ns => {
                self.end(ConnectStep::Stale(error));
            }
            _ => self.end(ConnectStep::Failed(error)),
        }
    }

    /// Bytes came after the welcome, which can only be a goodbye: the peer has closed the connection
    /// since. The handshake succeeds; the first use of the connection reports the close.
    pub fn on_goodbye(&mut self) {
        if let Stage::Probing(probing) = &self.stage {
            let rtt = probing.rtt;
            self.agree(None, rtt);
        }
    }

    /// Bytes to send next.
    pub fn poll_bytes(&self) -> &[u8] {
        &self.outgoing
    }

    /// `count` of these bytes were sent.
    pub fn on_sent(&mut self, count: usize) {
        self.outgoing.drain(..count);
        if let Stage::Closing(mtu_bytes) = self.stage
            && self.outgoing.is_empty()
        {
            self.end(ConnectStep::Reconnect { mtu_bytes });
        }
    }

    /// When to call [`Connect::on_timeout`], and while probing [`Connect::on_probe`].
    pub fn poll_timeout(&self) -> Option<u64> {
        match &self.stage {
            Stage::Ended => None,
            Stage::AwaitingWelcome => {
                Some(self.probation_ns.unwrap_or(u64::MAX).min(self.deadline_ns))
            }
            Stage::Probing(probing) => Some(probing.next_check_ns),
            Stage::Welcomed(_) | Stage::Closing(_) => Some(self.deadline_ns),
        }
    }

    /// Handles the timers that are due.
    pub fn on_timeout(&mut self, now_ns: u64) {
        match self.stage {
            Stage::Closing(mtu_bytes) if self.deadline_ns <= now_ns => {
                self.end(ConnectStep::Reconnect { mtu_bytes });
            }
            // The prober has a time limit of its own.
            Stage::Probing(_) | Stage::Closing(_) | Stage::Ended => {}
            Stage::AwaitingWelcome | Stage::Welcomed(_) if self.deadline_ns <= now_ns => {
                self.end(ConnectStep::Failed(ConnectError::TimedOut { doing: self.doing() }));
            }
            Stage::AwaitingWelcome if self.probation_ns.is_some_and(|end_ns| end_ns <= now_ns) => {
                self.step = Some(ConnectStep::CheckDelivery);
            }
            Stage::AwaitingWelcome | Stage::Welcomed(_) => {}
        }
    }

    /// A handshake below this one, TLS's, has ended, and the hello leaves only now: the time before is no part of the
    /// round trip that the welcome measures.
    pub fn on_authenticated(&mut self, now_ns: u64) {
        self.hello_ns = now_ns;
    }

    /// The owner's answer to [`ConnectStep::CheckDelivery`].
    pub fn on_delivery(&mut self, is_acknowledged: bool) {
        if !matches!(self.stage, Stage::AwaitingWelcome) {
            return;
        }
        self.probation_ns = None;
        if !is_acknowledged {
            self.end(ConnectStep::Stale(ConnectError::TimedOut { doing: self.doing() }));
        }
    }

    /// The owner's answer to [`ConnectStep::Probe`], with the round-trip time that TCP has measured.
    pub fn on_probing(&mut self, now_ns: u64, tcp_rtt_ns: Option<u64>) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        let Stage::Welcomed(welcomed) = stage else {
            self.stage = stage;
            return;
        };
        let rtt = Rtt::of_exchange(tcp_rtt_ns, welcomed.welcome_ns.saturating_sub(self.hello_ns));
        self.stage = Stage::Probing(Probing {
            rtt,
            udp_due_ns: welcomed.welcome_ns.saturating_add(rtt.most_ns() / 2 + SLACK_NS),
            gives_up_ns: now_ns.saturating_add(welcomed.probe_timeout_ns),
            next_check_ns: now_ns,
            welcomed,
        });
    }

    /// Checks the prober's outcome. The handshake ends once the prober knows which packets pass and,
    /// if the peer's own probes came late, the round-trip time over UDP.
    pub fn on_probe(&mut self, now_ns: u64, prober: &Prober) {
        let Stage::Probing(probing) = &mut self.stage else { return };
        probing.next_check_ns = now_ns.saturating_add(CHECK_INTERVAL_NS);
        match prober.outcome(now_ns) {
            ProbeOutcome::Settled { mtu_bytes } => {
                let measured = prober.rtt().min_ns().map(Rtt::Measured);
                if let Some(rtt) = measured.or_else(|| probing.rtt_unmeasured(now_ns, prober)) {
                    self.agree(Some(mtu_bytes), rtt);
                }
            }
            ProbeOutcome::NoAnswer { answered } => {
                let channels = u32::from(prober.channels());
                let waited_ns = probing.welcomed.probe_timeout_ns;
                let error = ConnectError::NoUdp { answered, channels, waited_ns };
                self.end(ConnectStep::Failed(error));
            }
            ProbeOutcome::Pending => {}
        }
    }

    /// The next step of the owner, if there is one. Bytes of [`Connect::poll_bytes`] go first.
    pub fn poll(&mut self) -> Option<ConnectStep> {
        self.step.take()
    }

    /// Whether the machine waits for the prober.
    pub fn is_probing(&self) -> bool {
        matches!(self.stage, Stage::Probing(_))
    }

    /// Whether a failure means that the control connection was dead from the start.
    fn is_on_probation(&self) -> bool {
        self.is_reused && matches!(self.stage, Stage::AwaitingWelcome)
    }

    fn end(&mut self, step: ConnectStep) {
        self.stage = Stage::Ended;
        self.outgoing.clear();
        self.step = Some(step);
    }

    fn on_welcome(&mut self, now_ns: u64) {
        match self.read_welcome(now_ns) {
            Ok(welcomed) => {
                let candidates = match welcomed.is_mtu_given {
                    true => vec![welcomed.geometry.mtu_bytes()],
                    false => {
                        let largest = welcomed.geometry.mtu_bytes();
                        let all = mtu_candidates(welcomed.geometry.seal());
                        all.into_iter().filter(|mtu| *mtu <= largest).collect()
                    }
                };
                self.step = Some(ConnectStep::Probe(ProbePlan {
                    peer: welcomed.peer,
                    ports: welcomed.ports.clone(),
                    seal: welcomed.geometry.seal(),
                    candidates,
                    probe_timeout_ns: welcomed.probe_timeout_ns,
                }));
                self.stage = Stage::Welcomed(welcomed);
            }
            Err(error) => self.end(ConnectStep::Failed(error)),
        }
    }

    fn read_welcome(&self, welcome_ns: u64) -> Result<Welcomed, ConnectError> {
        let body = self.reader.body().unwrap_or_default();
        let (is_mtu_given, info, keeps, siblings) = match parse(body, self.doing())? {
            Welcome::Refused { version, reason } => {
                check_version(version)?;
                return Err(ConnectError::Refused(printable(&reason)));
            }
            Welcome::Busy { version, reason } => {
                check_version(version)?;
                return Err(ConnectError::Busy(printable(&reason)));
            }
            Welcome::Accepted { version, is_mtu_given, info, keeps, siblings, .. } => {
                check_version(version)?;
                (is_mtu_given, QpInfo::parse(&info)?, keeps, siblings)
            }
        };
        if let Some(channel) = info.channels.iter().position(|address| address.port() == 0) {
            let why = format!("port 0 for channel {channel}: nothing can be sent there");
            return Err(MessageError::NotLacuna(why).into());
        }
        let channels = info.channels.len().min(usize::from(self.channels)) as u8;
        let geometry = self.parameters.geometry(info.mtu_bytes, channels)?;
        check_agreement(&geometry, &info)?;
        let probe_timeout_ns = probe_timeout_ns(welcome_ns, self.deadline_ns);
        let (peer, ports) = (peer_of(&info), info.channels.iter().map(SocketAddr::port).collect());
        let reports = info.reports.as_ref().map(ReportPolicy::of_peer);
        let mut siblings = of_fields(&siblings);
        siblings.retain(|sibling| self.offered.contains(&sibling.role));
        Ok(Welcomed {
            is_mtu_given,
            keeps,
            geometry,
            peer,
            reports,
            siblings,
            ports,
            probe_timeout_ns,
            welcome_ns,
        })
    }

    /// Ends with packets of `found` payload bytes, or of the agreed size if that is `None`.
    fn agree(&mut self, found: Option<u32>, rtt: Rtt) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended);
        let Stage::Probing(Probing { welcomed, .. }) = stage else { return };
        let Welcomed {
            is_mtu_given,
            keeps,
            geometry,
            peer,
            reports,
            siblings,
            ports,
            probe_timeout_ns,
            ..
        } = welcomed;
        let agreed_bytes = geometry.mtu_bytes();
        if let Some(mtu_bytes) = found.filter(|found| *found < agreed_bytes) {
            self.outgoing = goodbye::message(&[]);
            self.stage = Stage::Closing(mtu_bytes);
            return;
        }
        let parameters =
            Parameters { mtu_bytes: is_mtu_given.then_some(agreed_bytes), ..self.parameters };
        let agreed = Agreed {
            parameters,
            geometry,
            peer,
            reports,
            siblings,
            ports,
            rtt,
            keeps,
            probe_timeout_ns,
        };
        self.end(ConnectStep::Connected(Box::new(agreed)));
    }
}
