//! The client: validates its address, measures the path's round trip and MTU, then sends trials one
//! after the other and fetches the server's counts of each.
//!
//! ```text
//! hello -> open -> time -> find the MTU -> [ start -> send -> wait -> fetch ]* -> close
//! ```
//!
//! All packets pass one token bucket, so the rate is never exceeded. A request is repeated until it is
//! answered, or until the server has been silent for [`SILENCE_NS_MAX`]. Trials of all payload sizes take
//! turns, so that a bad quarter of an hour affects all sizes alike.

mod config;
mod mtu;
mod packet;
mod refusals;
mod request;
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
pub use config::{ClientConfig, ClientError, ConfigError, RATE_BITS_PER_S_MIN};
pub use mtu::PathMtu;
use mtu::Search;
pub use packet::{Packet, filler};
use refusals::{REFUSED_NS_MAX, Refusals};
use request::Request;
use sending::Sending;
use timing::Timing;
pub use trial::Trial;

/// Longest silence of a server after a request, besides some round trips.
pub const SILENCE_NS_MAX: u64 = 10_000_000_000;
/// Longest silence once the user wants to stop.
const SILENCE_NS_MAX_STOPPED: u64 = 3_000_000_000;
/// Burst of a late sender; `iperf3` paces at the same interval.
const BURST_NS: u64 = 1_000_000;
/// How late packets may be before they count as lost, besides two round trips.
const LATE_NS: u64 = 250_000_000;

/// Progress of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// The current phase.
    pub doing: &'static str,
    /// Time of trials so far.
    pub done_ns: u64,
    /// Time of all trials.
    pub total_ns: u64,
    /// Finished trials.
    pub trials_done: u32,
    /// All trials.
    pub trials: u32,
}

#[derive(Debug)]
enum Phase {
    Hello(Request),
    Open(Request),
    /// Round trips without other traffic.
    Timing(Timing),
    Mtu(Box<Search>),
    Starting(Request),
    Sending(Box<Sending>),
    /// Waiting for late packets.
    Waiting {
        trial: Box<Sending>,
        until_ns: u64,
    },
    Fetching {
        trial: Box<Sending>,
        request: Request,
    },
    Closing(Request),
    Done,
}

/// The client; see the module's text.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    began_ns: u64,
    bucket: TokenBucket,
    phase: Phase,
    /// The nonce; the token once there is one.
    key: u64,
    /// Payload sizes that fit the path.
    sizes: Vec<u32>,
    /// Trials begun.
    begun: u32,
    /// Sending times of probes outside trials, by number.
    lone_probes: Vec<u64>,
    /// The longest round trip so far.
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
    /// Those of [`ClientConfig::validate`].
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
            phase: Phase::Hello(Request::new(Message::Hello, now_ns, 0)),
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

    /// The next packet that may be sent now. Reads the drops of `host` when a trial begins and ends.
    pub fn poll_transmit(&mut self, now_ns: u64, host: &mut dyn Host) -> Option<Packet> {
        self.on_timeout(now_ns, host);
        match &mut self.phase {
            Phase::Hello(request)
            | Phase::Open(request)
            | Phase::Starting(request)
            | Phase::Fetching { request, .. }
            | Phase::Closing(request) => {
                let overhead_bytes = self.config.overhead_bytes;
                let bytes = crate::wire::CONTROL_BYTES as u64 + u64::from(overhead_bytes);
                if !request.is_due(now_ns) || !self.bucket.take(now_ns, bytes) {
                    return None;
                }
                Some(request.send(now_ns, self.key))
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
            Phase::Hello(request)
            | Phase::Open(request)
            | Phase::Starting(request)
            | Phase::Fetching { request, .. }
            | Phase::Closing(request) => {
                Some(request.next_ns().max(paid(crate::wire::CONTROL_BYTES as u64)))
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

    /// A datagram has arrived, on any lane.
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
                if let Phase::Hello(request) = &self.phase {
                    self.rtt_ns_max = request.waited_ns(now_ns);
                    let open = Message::Open { cookie, needed_s: self.config.needed_s() };
                    self.phase = Phase::Open(Request::new(open, now_ns, self.rtt_ns_max));
                }
            }
            Message::Accepted { token } => {
                if let Phase::Open(_) = &self.phase {
                    self.key = token;
                    self.phase = Phase::Timing(Timing::new(now_ns));
                    // The round trip of a repeated request is not reliable.
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

    /// Whether the client searches for the MTU now: then a packet too large for the first hop is a result
    /// ([`on_too_large`](Self::on_too_large)) and not a refusal.
    #[must_use]
    pub fn is_finding_mtu(&self) -> bool {
        matches!(self.phase, Phase::Mtu(_))
    }

    /// This host refused a packet of `payload_bytes`, because it is larger than the first hop takes.
    pub fn on_too_large(&mut self, payload_bytes: usize) {
        if let Phase::Mtu(search) = &mut self.phase {
            search.on_too_large(payload_bytes);
        }
    }

    /// A packet was handed to the system.
    pub fn on_taken(&mut self) {
        self.refusals.on_taken();
    }

    /// This host refused to send a packet of this lane; a later one may be sent.
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
            Phase::Hello(request)
            | Phase::Open(request)
            | Phase::Starting(request)
            | Phase::Fetching { request, .. }
            | Phase::Closing(request) => request.on_refused(now_ns),
            Phase::Timing(timing) => timing.on_refused(now_ns),
            Phase::Mtu(search) => search.on_refused(now_ns),
            Phase::Sending(_) | Phase::Waiting { .. } | Phase::Done => {}
        }
    }

    /// Ends the measurement: the current trial is cut short and still counts.
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

    /// Whether the measurement has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Why the measurement failed, if it did.
    #[must_use]
    pub fn error(&self) -> Option<&ClientError> {
        self.error.as_ref()
    }

    /// Whether [`Client::stop`] was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Finished trials.
    #[must_use]
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// The path's MTU, once known.
    #[must_use]
    pub fn path_mtu(&self) -> Option<PathMtu> {
        self.mtu
    }

    /// The payload sizes to measure; once the MTU is known, those that fit.
    #[must_use]
    pub fn payloads_bytes(&self) -> &[u32] {
        &self.sizes
    }

    /// The progress.
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
        if self.is_refused_by_host(now_ns) {
            return self.on_silence(now_ns, 0);
        }
        // The end of a phase may begin one that ends at once, but never in a cycle.
        match &mut self.phase {
            Phase::Hello(request) | Phase::Open(request) | Phase::Starting(request) => {
                let waited_ns = request.waited_ns(now_ns);
                if waited_ns >= self.patience_ns() {
                    self.on_silence(now_ns, waited_ns);
                }
            }
            Phase::Timing(timing) => {
                if timing.is_over(now_ns, self.rtt_ns_max) {
                    let waited_ns = timing.waited_ns(now_ns);
                    if self.rtt_ns_max == 0 {
                        self.on_silence(now_ns, waited_ns);
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
                    self.wait_for_late_packets(now_ns);
                }
            }
            Phase::Waiting { until_ns, .. } if now_ns >= *until_ns => {
                self.fetch(now_ns, host);
            }
            Phase::Waiting { .. } => {}
            Phase::Fetching { request, .. } => {
                let waited_ns = request.waited_ns(now_ns);
                if waited_ns >= self.patience_ns() {
                    self.on_silence(now_ns, waited_ns);
                }
            }
            // Closing is a courtesy: the client does not insist on an answer.
            Phase::Closing(request) => {
                if request.sent() >= 3 && request.is_due(now_ns) {
                    self.phase = Phase::Done;
                }
            }
            Phase::Done => {}
        }
    }

    /// Whether this host has refused all packets for so long that the measurement fails. Refusals during
    /// a trial count in the trial, and afterwards the request times out.
    fn is_refused_by_host(&self, now_ns: u64) -> bool {
        let Some(refused_ns) = self.refusals.for_ns(now_ns) else { return false };
        match &self.phase {
            Phase::Hello(_) => !self.was_heard && refused_ns >= REFUSED_NS_MAX,
            Phase::Timing(_) | Phase::Mtu(_) => refused_ns >= self.patience_ns(),
            _ => false,
        }
    }

    /// How long a request may be without an answer.
    fn patience_ns(&self) -> u64 {
        let silence = if self.is_stopped { SILENCE_NS_MAX_STOPPED } else { SILENCE_NS_MAX };
        silence.saturating_add(4 * self.rtt_ns_max)
    }

    /// A probe outside trials, which requests an echo.
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
        self.phase = Phase::Starting(Request::new(start, now_ns, self.rtt_ns_max));
    }

    /// The settings of the trial that was begun last.
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

    fn wait_for_late_packets(&mut self, now_ns: u64) {
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
            let request = Request::new(fetch, now_ns, self.rtt_ns_max);
            self.phase = Phase::Fetching { trial, request };
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

    fn on_silence(&mut self, now_ns: u64, waited_ns: u64) {
        let asked = match &self.phase {
            Phase::Hello(_) => "the first packet",
            Phase::Open(_) => "the request for a seat",
            Phase::Timing(_) => "any probe",
            Phase::Fetching { .. } => "the question for a trial's result",
            _ => "the start of a trial",
        };
        if self.is_stopped {
            // The user wants to stop: end with the finished trials.
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
        self.phase = Phase::Closing(Request::new(Message::Close, now_ns, self.rtt_ns_max));
    }

    fn fail(&mut self, error: ClientError) {
        self.error = Some(error);
        self.phase = Phase::Done;
    }
}
