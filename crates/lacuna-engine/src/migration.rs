//! Migration: when the peer's packets begin to come from another address, because a NAT has forgotten it or
//! its host has moved, this decides whether packets to it follow (RFC 9000, 8.2 and 9).
//!
//! A packet that is the peer's and newer than all before it, from another address than the channel's present
//! one, makes that address the channel's **candidate**. It proves that somebody sends from there, not that
//! the peer can be reached there: whoever sees packets can copy one and send it from elsewhere before the
//! original arrives. WireGuard would follow, and a whole flow would go to a victim. So the candidate gets a
//! path challenge, a value that nobody can guess, and only the response from there moves the path.
//!
//! An attacker who forwards packets both ways can answer (RFC 9000, 9.3.3). So the address before is
//! challenged at the same time, with another value. If it still answers, the peer is still there, and
//! packets go there, even if the candidate was faster. **Of the addresses that answer, the oldest wins.**
//! A peer that has really moved does not answer at the old one. The response for an address that was in
//! use may come from anywhere: that the challenge was received there is what counts, and from an attacker
//! who is always faster every response comes first.
//!
//! Until the candidate has answered:
//! - everything goes to the present address, so that nobody can stop the flow;
//! - the candidate gets challenges, and copies of the control packets, so that a sender whose NAT has changed
//!   hears of its data without a gap. Together these are at most three bytes for one that came from it
//!   ([`AMPLIFICATION`]), so that nobody can have a victim flooded.
//!
//! Challenges are repeated with growing intervals and then given up. After an older address has turned out
//! to be alive there is a pause before the next candidate, so that an attacker who copies each packet
//! causes no more than a few small packets in that time.
//!
//! There is state only while something is under way, for each channel its own, and all of it is bounded. No
//! clock and no randomness here: the caller passes the time and draws the values.

use core::cmp::Ordering;
use core::net::SocketAddr;
use lacuna_proto::path_frames::PathFrames;
use lacuna_wire::{Frame, PathChallenge, PathResponse};

/// Bytes that an address without proof gets for each byte that came from it (RFC 9000, 8.1).
const AMPLIFICATION: u64 = 3;
/// The part of them that copies may take. The rest is for challenges, which must not starve.
const AMPLIFICATION_BY_COPIES: u64 = 2;
/// Challenges to an address: now, and after 1, 3, 7 and 15 intervals. All are lost with a probability of
/// 1 in 100,000 where 5 % of packets are lost each way.
const ROUNDS: u32 = 5;
/// The interval is half of a round trip, within these limits: not more often than a busy host answers, and
/// often enough while the round trip is not known.
const INTERVAL_NS: (u64, u64) = (1_000_000, 500_000_000);
/// The interval while the round trip is not known: half of that of a path across a continent.
const INTERVAL_NS_UNKNOWN: u64 = 25_000_000;
/// Intervals without a new candidate after the old address has turned out to be alive: four round trips.
const PAUSE_INTERVALS: u64 = 8;
/// Addresses of a channel that may be in question: three quick moves, and a candidate.
const CLAIMS_MAX: usize = 4;
/// Responses that wait to be sent. They leave at the end of each step, so more are a flood.
const RESPONSES_MAX: usize = 8;

/// What has become of the addresses in question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The candidate has answered: the channel's packets go there now.
    Moved,
    /// An older address is alive: packets go there, and the newer ones are forgotten.
    Kept,
}

/// A packet of the peer, and where it came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard {
    pub(crate) now_ns: u64,
    pub(crate) channel: u8,
    pub(crate) source: SocketAddr,
    /// Bytes that came from there.
    pub(crate) bytes: u64,
    /// It is newer than all before it.
    pub(crate) is_newest: bool,
    pub(crate) frames: PathFrames,
}

/// What the caller knows of the path and of chance.
pub(crate) struct Facts<'f> {
    /// Time between challenges.
    pub(crate) interval_ns: u64,
    /// Draws a value that nobody can guess.
    pub(crate) draw: &'f mut dyn FnMut() -> u64,
}

/// Time between challenges on a path with this round trip.
pub(crate) fn interval_ns(rtt_ns: Option<u64>) -> u64 {
    rtt_ns.map_or(INTERVAL_NS_UNKNOWN, |rtt_ns| (rtt_ns / 2).clamp(INTERVAL_NS.0, INTERVAL_NS.1))
}

/// The migration of all channels of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Migration {
    /// Channels whose present address the peer has sent from; a mask.
    heard: u32,
    /// When this end last announced its channels.
    announced_ns: u64,
    /// In a box: on most queue pairs there is never anything under way.
    active: Option<Box<Active>>,
}

/// What is under way.
#[derive(Debug, Default)]
struct Active {
    /// At most one for each channel.
    validations: Vec<Validation>,
    /// Frames to send: at most [`RESPONSES_MAX`] responses, and per channel one announcement and the
    /// challenges of one round.
    outgoing: Vec<Outgoing>,
}

/// A frame to send in a packet of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) channel: u8,
    pub(crate) to: SocketAddr,
    pub(crate) frame: Frame<'static>,
}

impl Migration {
    /// Whether a packet from the channel's present address changes nothing.
    #[inline]
    pub(crate) fn is_settled(&self, channel: u8) -> bool {
        self.active.is_none() && self.heard >> channel & 1 == 1
    }

    /// Whether anything is under way.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// A packet of the peer came. `present` is the channel's address; it changes when the path moves.
    pub(crate) fn on_heard(
        &mut self,
        heard: &Heard,
        present: &mut Option<SocketAddr>,
        mut facts: Facts<'_>,
    ) -> Option<Outcome> {
        let Heard { now_ns, channel, source, is_newest, frames, .. } = *heard;
        if let Some(value) = frames.challenge {
            self.respond(channel, source, value);
            // A copy of the challenge may have been faster, from where the response goes nowhere.
            if let Some(present) = present.filter(|present| *present != source) {
                self.respond(channel, present, value);
            }
        }
        let pause_ns = PAUSE_INTERVALS * facts.interval_ns;
        let mut outcome = None;
        if let Some(validation) = self.validation(channel) {
            validation.on_bytes(source, heard.bytes);
            if let Some(value) = frames.response {
                outcome = validation.on_response(source, value);
                *present = validation.present_address().or(*present);
            }
            if outcome == Some(Outcome::Kept) {
                validation.paused_until_ns = now_ns + pause_ns;
            }
        }
        if !is_newest {
            return outcome;
        }
        let is_heard = self.heard >> channel & 1 == 1;
        match *present {
            // The handshake has shown that the peer is at the IP address that it named. The port may be
            // what a NAT has made of the peer's own.
            Some(known) if known != source && (is_heard || known.ip() != source.ip()) => {
                self.on_candidate(heard, known, &mut facts);
            }
            _ => {
                *present = Some(source);
                self.heard |= 1 << channel;
            }
        }
        outcome
    }

    /// Queues the response to a challenge, to where that came from.
    fn respond(&mut self, channel: u8, to: SocketAddr, value: u64) {
        let outgoing = &mut self.active.get_or_insert_default().outgoing;
        let is_response = |one: &&Outgoing| matches!(one.frame, Frame::PathResponse(_));
        if outgoing.iter().filter(is_response).count() < RESPONSES_MAX {
            let frame = Frame::PathResponse(PathResponse { value });
            outgoing.push(Outgoing { channel, to, frame });
        }
    }

    /// The peer has sent a challenge, so this end's address has changed on one channel, and may have on
    /// others. The peer learns of that on each from a packet, and from those that only receive none might
    /// come. `others`: those channels, with the peer's addresses.
    pub(crate) fn announce(
        &mut self,
        now_ns: u64,
        others: impl Iterator<Item = (u8, SocketAddr)>,
        interval_ns: u64,
    ) {
        if now_ns < self.announced_ns + interval_ns {
            return;
        }
        self.announced_ns = now_ns;
        let outgoing = &mut self.active.get_or_insert_default().outgoing;
        for (channel, to) in others {
            let announcement = Outgoing { channel, to, frame: Frame::Padding(0) };
            if !outgoing.contains(&announcement) {
                outgoing.push(announcement);
            }
        }
    }

    fn validation(&mut self, channel: u8) -> Option<&mut Validation> {
        let validations = &mut self.active.as_mut()?.validations;
        validations.iter_mut().find(|one| one.channel == channel)
    }

    /// The peer's newest packet came from elsewhere than from the known address.
    fn on_candidate(&mut self, heard: &Heard, known: SocketAddr, facts: &mut Facts<'_>) {
        let channel = heard.channel;
        if self.validation(channel).is_none() {
            let validations = &mut self.active.get_or_insert_default().validations;
            validations.push(Validation::new(channel));
        }
        if let Some(validation) = self.validation(channel) {
            validation.on_candidate(heard, known, facts);
        }
    }

    /// Begins the rounds of challenges that are due on the channels for which `owns` is true, in packets
    /// of this length, and gives up what was not answered. Returns how many candidates were given up.
    pub(crate) fn on_timeout(
        &mut self,
        now_ns: u64,
        owns: impl Fn(u8) -> bool,
        packet_bytes: usize,
        interval_ns: u64,
    ) -> u64 {
        let Some(active) = &mut self.active else { return 0 };
        let Active { validations, outgoing } = &mut **active;
        let mut given_up = 0;
        for validation in validations.iter_mut().filter(|one| owns(one.channel)) {
            if validation.claims.is_empty() || now_ns < validation.due_ns {
                continue;
            }
            if validation.rounds < ROUNDS {
                validation.begin_round(now_ns, packet_bytes, interval_ns, outgoing);
            } else {
                given_up += u64::from(validation.candidate().is_some());
                validation.claims.clear();
            }
        }
        validations.retain(|one| !one.claims.is_empty() || now_ns < one.paused_until_ns);
        if validations.is_empty() && outgoing.is_empty() {
            self.active = None;
        }
        given_up
    }

    /// When [`Migration::on_timeout`] wants to be called.
    pub(crate) fn poll_timeout(&self, owns: impl Fn(u8) -> bool) -> Option<u64> {
        let validations = &self.active.as_ref()?.validations;
        let waiting = validations.iter().filter(|one| owns(one.channel) && !one.claims.is_empty());
        waiting.map(|one| one.due_ns).min()
    }

    /// Whether frames wait for channels.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.active.as_ref().is_some_and(|active| !active.outgoing.is_empty())
    }

    /// The next frame to send on the channels for which `owns` is true.
    pub(crate) fn poll(&mut self, owns: impl Fn(u8) -> bool) -> Option<Outgoing> {
        let outgoing = &mut self.active.as_mut()?.outgoing;
        let at = outgoing.iter().position(|one| owns(one.channel))?;
        Some(outgoing.remove(at))
    }

    /// Where else a control packet of this length may go: to the candidate, if it has room.
    #[inline]
    pub(crate) fn copy_to(&mut self, channel: u8, packet_bytes: usize) -> Option<SocketAddr> {
        let candidate = self.validation(channel)?.candidate()?;
        candidate.take(packet_bytes, AMPLIFICATION_BY_COPIES).then_some(candidate.address)
    }
}

/// The addresses that are in question on one channel.
#[derive(Debug)]
struct Validation {
    channel: u8,
    /// In the order in which they were used, at most [`CLAIMS_MAX`]: earlier ones, the present one, the
    /// candidate. Empty during the pause after an attempt.
    claims: Vec<Claim>,
    /// Index of the present address.
    present: usize,
    /// Rounds of challenges for the newest of them.
    rounds: u32,
    /// When the next round may be sent at the earliest.
    next_round_ns: u64,
    /// When it is, or the time of the last one is over.
    due_ns: u64,
    /// There is no candidate before.
    paused_until_ns: u64,
}

/// An address, and the value that shows that it was reached.
#[derive(Debug)]
struct Claim {
    address: SocketAddr,
    value: u64,
    /// Bytes that came from there, while it was the candidate.
    received_bytes: u64,
    /// Bytes that went there, while it was the candidate.
    sent_bytes: u64,
}

impl Claim {
    fn new(address: SocketAddr, value: u64, received_bytes: u64) -> Self {
        Self { address, value, received_bytes, sent_bytes: 0 }
    }

    /// Counts a packet to a candidate; `false` if it must not be sent.
    fn take(&mut self, packet_bytes: usize, amplification: u64) -> bool {
        let sent_bytes = self.sent_bytes + packet_bytes as u64;
        let fits = sent_bytes <= self.received_bytes.saturating_mul(amplification);
        if fits {
            self.sent_bytes = sent_bytes;
        }
        fits
    }
}

impl Validation {
    fn new(channel: u8) -> Self {
        Self {
            channel,
            claims: Vec::new(),
            present: 0,
            rounds: 0,
            next_round_ns: 0,
            due_ns: 0,
            paused_until_ns: 0,
        }
    }

    fn present_address(&self) -> Option<SocketAddr> {
        self.claims.get(self.present).map(|claim| claim.address)
    }

    fn candidate(&mut self) -> Option<&mut Claim> {
        self.claims.get_mut(self.present + 1)
    }

    fn on_bytes(&mut self, source: SocketAddr, bytes: u64) {
        if let Some(candidate) = self.candidate().filter(|claim| claim.address == source) {
            candidate.received_bytes += bytes;
        }
    }

    fn on_response(&mut self, source: SocketAddr, value: u64) -> Option<Outcome> {
        let index = self.claims.iter().position(|claim| claim.value == value)?;
        if index <= self.present {
            let is_news = index < self.present || self.candidate().is_some();
            // It is alive, so the newer ones are not the peer's.
            self.claims.truncate(index + 1);
            self.present = index;
            return is_news.then_some(Outcome::Kept);
        }
        if self.claims[index].address != source {
            return None;
        }
        self.present = index;
        Some(Outcome::Moved)
    }

    fn on_candidate(&mut self, heard: &Heard, known: SocketAddr, facts: &mut Facts<'_>) {
        let Heard { now_ns, source, bytes, .. } = *heard;
        if now_ns < self.paused_until_ns || self.claims.iter().any(|one| one.address == source) {
            return;
        }
        let had_candidate = self.candidate().is_some();
        match self.claims.get_mut(self.present) {
            // It is challenged already.
            Some(_) if had_candidate => {}
            // A response to an earlier challenge says nothing of now.
            Some(present) => present.value = (facts.draw)(),
            None => {
                self.claims.clear();
                self.present = 0;
                self.claims.push(Claim::new(known, (facts.draw)(), 0));
            }
        }
        self.claims.truncate(self.present + 1);
        if self.claims.len() == CLAIMS_MAX {
            self.claims.remove(0);
            self.present -= 1;
        }
        self.claims.push(Claim::new(source, (facts.draw)(), bytes));
        self.rounds = 0;
        // However often the source changes, rounds keep their distance.
        self.due_ns = now_ns.max(self.next_round_ns);
    }

    /// Challenges all addresses that have to answer; the oldest first, since it wins.
    fn begin_round(
        &mut self,
        now_ns: u64,
        packet_bytes: usize,
        interval_ns: u64,
        outgoing: &mut Vec<Outgoing>,
    ) {
        self.due_ns = now_ns + (interval_ns << self.rounds);
        self.next_round_ns = now_ns + interval_ns;
        self.rounds += 1;
        let (channel, present) = (self.channel, self.present);
        let has_candidate = self.candidate().is_some();
        for (index, claim) in self.claims.iter_mut().enumerate() {
            let is_asked = match index.cmp(&present) {
                Ordering::Less => true,
                Ordering::Equal => has_candidate,
                Ordering::Greater => claim.take(packet_bytes, AMPLIFICATION),
            };
            if is_asked {
                let frame = Frame::PathChallenge(PathChallenge { value: claim.value });
                outgoing.push(Outgoing { channel, to: claim.address, frame });
            }
        }
    }
}

#[cfg(test)]
mod tests;
