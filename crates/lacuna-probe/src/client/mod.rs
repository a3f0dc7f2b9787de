//! The client: proves its address, finds the path's round trip and MTU, then sends trials, one after
//! the other, and asks what came of each.
//!
//! ```text
//! hello -> open -> time -> find the MTU -> [ start -> send -> wait -> fetch ]* -> close
//! ```
//!
//! Every packet passes one token bucket, so whatever is asked for, the rate is never exceeded. Every
//! question is repeated until it is answered, or until the server has said nothing for
//! [`SILENCE_NS_MAX`]. Trials of all payload sizes take turns, so that a bad quarter of an hour hits
//! all sizes alike.

mod asking;
mod config;
mod mtu;
mod packet;
mod refusals;
mod sending;
#[cfg(test)]
mod tests;
mod timing;
mod trial;

use crate::PAYLOAD_BYTES_MIN;
use crate::bucket::TokenBucket;
use crate::counted::Counted;
use crate::host::Host;
use crate::wire::{Message, Refusal, TrialPlan};
use asking::Asking;
pub use config::{ClientConfig, ClientError, ConfigError, RATE_BITS_PER_S_MIN};
pub use mtu::PathMtu;
use mtu::Search;
pub use packet::{Packet, filler};
use refusals::{REFUSED_NS_MAX, Refusals};
use sending::Sending;
use timing::Timing;
pub use trial::Trial;

/// How long a server may say nothing to a question, besides some round trips.
pub const SILENCE_NS_MAX: u64 = 10_000_000_000;
/// The same once the user wants to stop.
const SILENCE_NS_MAX_STOPPED: u64 = 3_000_000_000;
/// What may go at once when a sender was late: what `iperf3` paces by.
const BURST_NS: u64 = 1_000_000;
/// Besides two round trips: how long packets may be late before they count as lost.
const LATE_NS: u64 = 250_000_000;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// What it is doing.
    pub doing: &'static str,
    /// Time of trials that is over, and of all.
    pub done_ns: u64,
    /// See `done_ns`.
    pub total_ns: u64,
    /// Trials that are over, and all.
    pub trials_done: u32,
    /// See `trials_done`.
    pub trials: u32,
}

#[derive(Debug)]
enum Phase {
    Hello(Asking),
    Open(Asking),
    /// Round trips with nothing else on the way.
    Timing(Timing),
    Mtu(Box<Search>),
    Starting(Asking),
    Sending(Box<Sending>),
    /// What is late may still come.
    Waiting {
        trial: Box<Sending>,
        until_ns: u64,
    },
    Fetching {
        trial: Box<Sending>,
        asking: Asking,
    },
    Closing(Asking),
    Done,
}

/// See the module's text.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    began_ns: u64,
    bucket: TokenBucket,
    phase: Phase,
    /// The nonce, then the token.
    key: u64,
    /// Sizes that fit the path.
    sizes: Vec<u32>,
    /// Trials begun.
    begun: u32,
    /// When probes that belong to no trial were sent, by number.
    lone_probes: Vec<u64>,
    /// The longest round trip that was seen.
    rtt_ns_max: u64,
    refusals: Refusals,
    mtu: Option<PathMtu>,
    trials: Vec<Trial>,
    error: Option<ClientError>,
    is_stopped: bool,
    was_heard: bool,
}

impl Client {
    /// A client that begins now.
    ///
    /// # Errors
    ///
    /// What [`ClientConfig::validate`] has against it.
    pub fn new(config: ClientConfig, now_ns: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut sizes: Vec<u32> = Vec::new();
        for size in &config.payloads_bytes {
            if !sizes.contains(size) {
                sizes.push(*size);
            }
        }
        Ok(Self {
            began_ns: now_ns,
            bucket: TokenBucket::new(config.rate_bits_per_s, BURST_NS, now_ns),
            phase: Phase::Hello(Asking::new(Message::Hello, now_ns, 0)),
            key: config.nonce,
            sizes,
            begun: 0,
            lone_probes: Vec::new(),
            rtt_ns_max: 0,
            refusals: Refusals::default(),
            mtu: None,
            trials: Vec::new(),
            error: None,
            is_stopped: false,
            was_heard: false,
            config,
        })
    }

    /// The next packet that may go now. `host` is asked what it dropped when a trial begins and when
    /// it ends.
    pub fn poll_transmit(&mut self, now_ns: u64, host: &mut dyn Host) -> Option<Packet> {
        self.on_timeout(now_ns, host);
        match &mut self.phase {
            Phase::Hello(asking)
            | Phase::Open(asking)
            | Phase::Starting(asking)
            | Phase::Fetching { asking, .. }
            | Phase::Closing(asking) => {
                let overhead_bytes = self.config.overhead_bytes;
                let bytes = crate::wire::CONTROL_BYTES as u64 + u64::from(overhead_bytes);
                if !asking.is_due(now_ns) || !self.bucket.take(now_ns, bytes) {
                    return None;
                }
                Some(asking.ask(now_ns, self.key))
            }
            Phase::Timing(timing) => {
                timing.next_ns().filter(|next_ns| now_ns >= *next_ns)?;
                let packet = self.lone_probe(now_ns, PAYLOAD_BYTES_MIN)?;
                if let Phase::Timing(timing) = &mut self.phase {
                    timing.on_sent(now_ns);
                }
                Some(packet)
            }
            Phase::Mtu(search) => {
                let bytes = search.wants(now_ns)?;
                let packet = self.lone_probe(now_ns, bytes)?;
                if let Phase::Mtu(search) = &mut self.phase {
                    search.on_sent(now_ns);
                }
                Some(packet)
            }
            Phase::Sending(sending) => {
                let payload_bytes = sending.plan.payload_bytes;
                let bytes = u64::from(payload_bytes) + u64::from(self.config.overhead_bytes);
                if !self.bucket.take(now_ns, bytes) {
                    return None;
                }
                let (message, lane) = sending.next(now_ns);
                Some(message.packet(self.key, lane, filler()))
            }
            Phase::Waiting { .. } | Phase::Done => None,
        }
    }

    /// When [`poll_transmit`](Self::poll_transmit) has something to do; `None` once it is done.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let overhead = u64::from(self.config.overhead_bytes);
        let paid = |bytes: u64| self.bucket.ready_ns(bytes + overhead);
        match &self.phase {
            Phase::Hello(asking)
            | Phase::Open(asking)
            | Phase::Starting(asking)
            | Phase::Fetching { asking, .. }
            | Phase::Closing(asking) => {
                Some(asking.next_ns().max(paid(crate::wire::CONTROL_BYTES as u64)))
            }
            Phase::Timing(timing) => Some(match timing.next_ns() {
                Some(next_ns) => next_ns.max(paid(PAYLOAD_BYTES_MIN.into())),
                None => timing.ends_ns(self.rtt_ns_max),
            }),
            Phase::Mtu(search) => Some(match search.next() {
                Some((next_ns, bytes)) => next_ns.max(paid(bytes.into())),
                None => search.round_ends_ns(self.rtt_ns_max),
            }),
            Phase::Sending(sending) => {
                Some(paid(sending.plan.payload_bytes.into()).min(sending.ends_ns))
            }
            Phase::Waiting { until_ns, .. } => Some(*until_ns),
            Phase::Done => None,
        }
    }

    /// A datagram came, on any lane.
    pub fn on_datagram(&mut self, now_ns: u64, bytes: &[u8]) {
        let (key, message) = match Message::parse(bytes) {
            Ok(parsed) => parsed,
            Err(crate::wire::WireError::Version { found }) if !self.was_heard => {
                return self.fail(ClientError::Version { found });
            }
            Err(_) => return,
        };
        if key != self.key {
            return;
        }
        self.was_heard = true;
        match message {
            Message::Challenge { cookie } => {
                if let Phase::Hello(asking) = &self.phase {
                    self.rtt_ns_max = asking.waited_ns(now_ns);
                    let open = Message::Open { cookie, needed_s: self.config.needed_s() };
                    self.phase = Phase::Open(Asking::new(open, now_ns, self.rtt_ns_max));
                }
            }
            Message::Accepted { token } => {
                if let Phase::Open(_) = &self.phase {
                    self.key = token;
                    self.phase = Phase::Timing(Timing::new(now_ns));
                    // The exchange may have had to be repeated.
                    self.rtt_ns_max = 0;
                }
            }
            Message::Refused(refusal) => self.fail(match refusal {
                Refusal::Busy => ClientError::Busy,
                Refusal::TooLong { limit_s } => {
                    ClientError::TooLong { needed_s: self.config.needed_s(), limit_s }
                }
                Refusal::Impossible => ClientError::Refused,
            }),
            Message::Started { trial } => {
                if let Phase::Starting(_) = &self.phase
                    && trial == self.begun
                {
                    self.send(now_ns);
                }
            }
            Message::Echo { trial, index, sent_ns, bytes } => {
                self.on_echo(now_ns, trial, index, sent_ns, bytes);
            }
            Message::Report { trial, counted } => self.on_report(now_ns, trial, *counted),
            Message::Closed => {
                if let Phase::Closing(_) = &self.phase {
                    self.phase = Phase::Done;
                }
            }
            _ => {}
        }
    }

    /// Whether it looks for the MTU now, so that a packet too large for the first hop is an answer
    /// ([`on_too_large`](Self::on_too_large)) and no refusal like others.
    #[must_use]
    pub fn is_finding_mtu(&self) -> bool {
        matches!(self.phase, Phase::Mtu(_))
    }

    /// A packet with so much payload was refused by this host: it is larger than the first hop takes.
    pub fn on_too_large(&mut self, payload_bytes: usize) {
        if let Phase::Mtu(search) = &mut self.phase {
            search.on_too_large(payload_bytes);
        }
    }

    /// A packet was handed to the system.
    pub fn on_taken(&mut self) {
        self.refusals.on_taken();
    }

    /// This host refused a packet of this lane, which so did not leave; another may.
    pub fn on_refused(&mut self, now_ns: u64, lane: usize) {
        self.refusals.on_refused(now_ns);
        match &mut self.phase {
            Phase::Sending(trial)
            | Phase::Waiting { trial, .. }
            | Phase::Fetching { trial, .. }
                if lane > 0 =>
            {
                trial.refused += 1;
            }
            Phase::Hello(asking)
            | Phase::Open(asking)
            | Phase::Starting(asking)
            | Phase::Fetching { asking, .. }
            | Phase::Closing(asking) => asking.on_refused(now_ns),
            Phase::Timing(timing) => timing.on_refused(now_ns),
            Phase::Mtu(search) => search.on_refused(now_ns),
            Phase::Sending(_) | Phase::Waiting { .. } | Phase::Done => {}
        }
    }

    /// Ends it: the trial that is being sent is cut short and counts.
    pub fn stop(&mut self, now_ns: u64) {
        if self.is_stopped {
            return;
        }
        self.is_stopped = true;
        match &mut self.phase {
            Phase::Sending(sending) => sending.ends_ns = sending.ends_ns.min(now_ns),
            Phase::Waiting { .. } | Phase::Fetching { .. } | Phase::Closing(_) | Phase::Done => {}
            Phase::Hello(_) => self.phase = Phase::Done,
            _ => self.close(now_ns),
        }
    }

    /// Whether there is nothing more to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Why it ended before it was done, if it did.
    #[must_use]
    pub fn error(&self) -> Option<&ClientError> {
        self.error.as_ref()
    }

    /// Whether it was asked to end early.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// What was measured so far.
    #[must_use]
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// How large a packet the path takes, once known.
    #[must_use]
    pub fn path_mtu(&self) -> Option<PathMtu> {
        self.mtu
    }

    /// The payloads that are measured: once the MTU is known, those that fit.
    #[must_use]
    pub fn payloads_bytes(&self) -> &[u32] {
        &self.sizes
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self, now_ns: u64) -> Progress {
        let trials = self.sizes.len() as u32 * self.config.trials;
        let done = self.trials.len() as u32;
        let (doing, within_ns) = match &self.phase {
            Phase::Hello(_) | Phase::Open(_) => ("asking the server", 0),
            Phase::Timing(_) => ("timing round trips", 0),
            Phase::Mtu(_) => ("finding the MTU", 0),
            Phase::Starting(_) => ("starting a trial", 0),
            Phase::Sending(sending) => {
                ("sending", now_ns.saturating_sub(sending.begins_ns).min(self.config.duration_ns))
            }
            Phase::Waiting { .. } | Phase::Fetching { .. } => {
                ("waiting for the result", self.config.duration_ns)
            }
            Phase::Closing(_) | Phase::Done => ("done", 0),
        };
        Progress {
            doing,
            done_ns: u64::from(done) * self.config.duration_ns + within_ns,
            total_ns: u64::from(trials) * self.config.duration_ns,
            trials_done: done,
            trials,
        }
    }

    fn on_timeout(&mut self, now_ns: u64, host: &mut dyn Host) {
        if self.is_shut_in(now_ns) {
            return self.silent(now_ns, 0);
        }
        // A phase that ends may begin one that ends at once, but never in a circle.
        match &mut self.phase {
            Phase::Hello(asking) | Phase::Open(asking) | Phase::Starting(asking) => {
                let waited_ns = asking.waited_ns(now_ns);
                if waited_ns >= self.patience_ns() {
                    self.silent(now_ns, waited_ns);
                }
            }
            Phase::Timing(timing) => {
                if timing.is_over(now_ns, self.rtt_ns_max) {
                    let waited_ns = timing.waited_ns(now_ns);
                    if self.rtt_ns_max == 0 {
                        self.silent(now_ns, waited_ns);
                    } else {
                        self.find_mtu();
                    }
                }
            }
            Phase::Mtu(search) => {
                search.on_time(now_ns, self.rtt_ns_max);
                if let Some(found) = search.found() {
                    self.on_mtu(now_ns, found);
                }
            }
            Phase::Sending(sending) => {
                sending.drops_before.get_or_insert_with(|| host.drops());
                if now_ns >= sending.ends_ns || sending.is_full() {
                    self.wait_for_the_late(now_ns);
                }
            }
            Phase::Waiting { until_ns, .. } if now_ns >= *until_ns => {
                self.fetch(now_ns, host);
            }
            Phase::Waiting { .. } => {}
            Phase::Fetching { asking, .. } => {
                let waited_ns = asking.waited_ns(now_ns);
                if waited_ns >= self.patience_ns() {
                    self.silent(now_ns, waited_ns);
                }
            }
            // It is polite, and no more.
            Phase::Closing(asking) => {
                if asking.asked() >= 3 && asking.is_due(now_ns) {
                    self.phase = Phase::Done;
                }
            }
            Phase::Done => {}
        }
    }

    /// Whether this host has refused all packets for so long that nothing is to be expected of it.
    /// While it sends a trial, it is the trial's loss, and afterwards a matter of the question.
    fn is_shut_in(&self, now_ns: u64) -> bool {
        let Some(refused_ns) = self.refusals.for_ns(now_ns) else { return false };
        match &self.phase {
            Phase::Hello(_) => !self.was_heard && refused_ns >= REFUSED_NS_MAX,
            Phase::Timing(_) | Phase::Mtu(_) => refused_ns >= self.patience_ns(),
            _ => false,
        }
    }

    /// How long a question may be without an answer.
    fn patience_ns(&self) -> u64 {
        let silence = if self.is_stopped { SILENCE_NS_MAX_STOPPED } else { SILENCE_NS_MAX };
        silence.saturating_add(4 * self.rtt_ns_max)
    }

    /// A probe that belongs to no trial and wants an echo.
    fn lone_probe(&mut self, now_ns: u64, bytes: u32) -> Option<Packet> {
        let charged = u64::from(bytes) + u64::from(self.config.overhead_bytes);
        if !self.bucket.take(now_ns, charged) {
            return None;
        }
        let index = self.lone_probes.len() as u32;
        self.lone_probes.push(now_ns);
        let probe = Message::Probe { trial: 0, index, sent_ns: now_ns, wants_echo: true, bytes };
        Some(probe.packet(self.key, 0, filler()))
    }

    fn on_echo(&mut self, now_ns: u64, trial: u32, index: u32, sent_ns: u64, bytes: u32) {
        let rtt_ns = now_ns.saturating_sub(sent_ns);
        if trial == 0 {
            if self.lone_probes.get(index as usize) == Some(&sent_ns) {
                self.rtt_ns_max = self.rtt_ns_max.max(rtt_ns.max(1));
                if let Phase::Mtu(search) = &mut self.phase {
                    search.on_echo(bytes);
                }
            }
            return;
        }
        if let Phase::Sending(sending)
        | Phase::Waiting { trial: sending, .. }
        | Phase::Fetching { trial: sending, .. } = &mut self.phase
            && sending.number == trial
            && sending.on_echo(index, sent_ns, rtt_ns)
        {
            self.rtt_ns_max = self.rtt_ns_max.max(rtt_ns);
        }
    }

    fn find_mtu(&mut self) {
        let search = Search::new(self.config.largest_bytes, self.config.overhead_bytes);
        self.phase = Phase::Mtu(Box::new(search));
    }

    fn on_mtu(&mut self, now_ns: u64, found: PathMtu) {
        self.mtu = Some(found);
        let fits = |size: &u32| self.config.fragments || *size <= found.payload_bytes;
        self.sizes.retain(fits);
        if self.sizes.is_empty() {
            self.close(now_ns);
            let payload_bytes_max = found.payload_bytes;
            self.error = Some(ClientError::NothingFits { payload_bytes_max });
            return;
        }
        self.next_trial(now_ns);
    }

    fn next_trial(&mut self, now_ns: u64) {
        let trials = self.sizes.len() as u32 * self.config.trials;
        if self.begun == trials || self.is_stopped {
            return self.close(now_ns);
        }
        self.begun += 1;
        let start = Message::Start { trial: self.begun, plan: self.plan() };
        self.phase = Phase::Starting(Asking::new(start, now_ns, self.rtt_ns_max));
    }

    /// Of the trial that was begun last.
    fn plan(&self) -> TrialPlan {
        TrialPlan {
            payload_bytes: self.sizes[(self.begun as usize - 1) % self.sizes.len()],
            flows: self.config.flows,
            duration_ns: self.config.duration_ns,
        }
    }

    fn send(&mut self, now_ns: u64) {
        let plan = self.plan();
        let packets = self.config.packets(plan.payload_bytes);
        let sending = Sending::new(self.begun, plan, now_ns, self.config.seed, packets);
        self.phase = Phase::Sending(Box::new(sending));
    }

    fn wait_for_the_late(&mut self, now_ns: u64) {
        if let Phase::Sending(mut trial) = std::mem::replace(&mut self.phase, Phase::Done) {
            trial.ended_ns = now_ns.min(trial.ends_ns);
            let until_ns = now_ns + 2 * self.rtt_ns_max + LATE_NS;
            self.phase = Phase::Waiting { trial, until_ns };
        }
    }

    fn fetch(&mut self, now_ns: u64, host: &mut dyn Host) {
        if let Phase::Waiting { mut trial, .. } = std::mem::replace(&mut self.phase, Phase::Done) {
            let before = trial.drops_before.unwrap_or_default();
            trial.drops = host.drops().since(&before);
            let fetch = Message::Fetch { trial: trial.number, sent: trial.sent };
            let asking = Asking::new(fetch, now_ns, self.rtt_ns_max);
            self.phase = Phase::Fetching { trial, asking };
        }
    }

    fn on_report(&mut self, now_ns: u64, number: u32, counted: Counted) {
        let phase = std::mem::replace(&mut self.phase, Phase::Done);
        match phase {
            Phase::Fetching { trial, .. } if trial.number == number => {
                self.trials.push(trial.into_trial(self.began_ns, counted));
                self.next_trial(now_ns);
            }
            other => self.phase = other,
        }
    }

    fn silent(&mut self, now_ns: u64, waited_ns: u64) {
        let asked = match &self.phase {
            Phase::Hello(_) => "the first packet",
            Phase::Open(_) => "the request for a seat",
            Phase::Timing(_) => "any probe",
            Phase::Fetching { .. } => "the question for a trial's result",
            _ => "the start of a trial",
        };
        if self.is_stopped {
            // Whoever wants to stop gets what there is.
            self.phase = Phase::Done;
            return;
        }
        let was_heard = self.was_heard;
        self.fail(match self.refusals.for_ns(now_ns) {
            Some(refused_ns) => {
                let packets = self.refusals.in_a_row();
                ClientError::Unsendable { packets, refused_ns, was_heard }
            }
            None => ClientError::Silent { asked, waited_ns, was_heard },
        });
    }

    fn close(&mut self, now_ns: u64) {
        self.phase = Phase::Closing(Asking::new(Message::Close, now_ns, self.rtt_ns_max));
    }

    fn fail(&mut self, error: ClientError) {
        self.error = Some(error);
        self.phase = Phase::Done;
    }
}
