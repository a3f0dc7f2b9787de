//! Reliable datagrams (RD): messages to and of any number of peers that come once, and in the order of each peer.
//!
//! A *stream* is made for a peer with the first message, by one packet that says where its numbers begin, and is
//! dropped when it was idle for a while; nothing is negotiated. Both directions are streams of their own. A
//! source that begins anew, such as a program that was started again, is asked for a token first, so that
//! old or forged packets end nothing; so is every source once half of the streams are taken.
//!
//! A peer that stays silent, or that has lost what it knew, is in *error*: what was posted to it ends, and nothing can
//! be posted until the application resets it. The queue pair goes on with all others. (RDMA's RD puts
//! the end-to-end context into error likewise; the datagram-iWARP paper the whole queue pair, 2.1.1.)
//!
//! | module | contents |
//! |---|---|
//! | `position` | the line of messages as numbers |
//! | `outgoing` | what is sent until it has come |
//! | `incoming` | what comes, in order |
//!
//! Invariant: a stream is in `ready` once if its `is_ready` says so, and in `alarms` at its `alarm_ns`.

mod incoming;
mod outgoing;
pub(crate) mod position;

use crate::discard::Discard;
use crate::outgoing::{Left, Message};
use crate::peers::{PeerId, Peers};
use crate::reads::Reads;
use crate::run::Run;
use crate::work::Failure;
use core::net::SocketAddr;
use incoming::StreamIn;
pub(crate) use incoming::{Came, Host, What};
use lacuna_path::IP_UDP_BYTES;
use lacuna_path::controller::{ControllerConfig, Setup};
use lacuna_path::flow::Flow;
use lacuna_secure::datagram::Keyring;
use lacuna_wire::ddp::{ControlFrame, ControlReason};
pub(crate) use outgoing::Acknowledged;
use outgoing::StreamOut;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// A stream that has nothing to send goes after this long.
const IDLE_OUT_NS: u64 = 10_000_000_000;
/// A peer that owes only the answer to a READ is asked so often before it is taken for gone.
const PROBES_OF_SILENCE: u64 = 5;
/// One that nothing has come by: far longer than its source would send anything again.
const IDLE_IN_NS: u64 = 60_000_000_000;

/// Settings of reliable datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReliableConfig {
    /// Decides how much is sent to each peer and how fast.
    pub controller: ControllerConfig,
    /// A peer that says nothing for so long, while something is to be acknowledged, is in error.
    pub silence_ns: u64,
    /// Peers with streams at a time. Once half of them are taken, a source that begins is asked whether it is there.
    pub streams_max: usize,
}

impl Default for ReliableConfig {
    fn default() -> Self {
        let controller = ControllerConfig::default();
        Self { controller, silence_ns: 5_000_000_000, streams_max: 1 << 16 }
    }
}

#[derive(Debug)]
struct Stream {
    peer: PeerId,
    address: SocketAddr,
    out: Option<StreamOut>,
    into: Option<StreamIn>,
    /// Why the peer is in error.
    failed: Option<Failure>,
    /// The record of the peer, as its acknowledgements name it.
    record: Option<u32>,
    is_ready: bool,
    is_reporting: bool,
    alarm_ns: Option<u64>,
    used_ns: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Reliable {
    config: ReliableConfig,
    packet_bytes_max: usize,
    streams: HashMap<u32, Stream>,
    ready: VecDeque<u32>,
    /// Streams whose acknowledgement is to go.
    reports: VecDeque<u32>,
    alarms: BTreeSet<(u64, u32)>,
    /// Streams that dropped something for want of a receive.
    wanting: Vec<u32>,
    random: u64,
    secret: u64,
    pub(crate) bytes_again: u64,
    pub(crate) peers_failed: u64,
    open: usize,
    messages: usize,
    /// Peers that were put into error and why, until that was told.
    failures: Vec<(PeerId, Failure)>,
    /// What has come of sources that are gone, until that was ended.
    over: Vec<(PeerId, SocketAddr, StreamIn)>,
}

impl Reliable {
    pub(crate) fn new(config: ReliableConfig, packet_bytes_max: usize, seed: u64) -> Self {
        let mut random = seed ^ 0xd1b5_4a32_d192_ed03;
        let secret = u64::from(crate::endpoint::draw(&mut random)) << 32
            | u64::from(crate::endpoint::draw(&mut random));
        Self {
            config,
            packet_bytes_max,
            streams: HashMap::new(),
            ready: VecDeque::new(),
            reports: VecDeque::new(),
            alarms: BTreeSet::new(),
            wanting: Vec::new(),
            random,
            secret,
            bytes_again: 0,
            peers_failed: 0,
            open: 0,
            messages: 0,
            failures: Vec::new(),
            over: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Messages that have not been acknowledged.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Messages that are open.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Why a peer is in error, if it is.
    pub(crate) fn failed(&self, peer: PeerId) -> Option<Failure> {
        self.stream(peer)?.failed
    }

    fn stream(&self, peer: PeerId) -> Option<&Stream> {
        self.streams.get(&peer.index).filter(|stream| stream.peer == peer)
    }

    fn draw(&mut self) -> u32 {
        crate::endpoint::draw(&mut self.random)
    }

    /// The stream of a peer, made if it is not there; `false` if there are too many.
    pub(crate) fn make(&mut self, now_ns: u64, peers: &mut Peers, peer: PeerId) -> bool {
        if self.streams.contains_key(&peer.index) {
            return true;
        }
        let Some(address) = peers.address(peer) else { return false };
        if !self.has_room(None) {
            return false;
        }
        peers.keep(peer, true);
        let stream = Stream {
            peer,
            address,
            out: None,
            into: None,
            failed: None,
            record: None,
            is_ready: false,
            is_reporting: false,
            alarm_ns: None,
            used_ns: now_ns,
        };
        self.streams.insert(peer.index, stream);
        true
    }

    /// Whether a source may begin: it has a stream, or one can be made.
    pub(crate) fn has_room(&self, peer: Option<PeerId>) -> bool {
        self.streams.len() < self.config.streams_max
            || peer.is_some_and(|peer| self.stream(peer).is_some())
    }

    /// Posts a message; `cancelled` of one that only says why there is none. `false` if there are too many
    /// streams.
    pub(crate) fn post(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        peer: PeerId,
        message: Message,
        cancelled: Option<ControlReason>,
    ) -> bool {
        if !self.make(now_ns, peers, peer) {
            return false;
        }
        let is_new = self.stream(peer).is_some_and(|stream| stream.out.is_none());
        let begin = if is_new { (self.draw(), self.draw()) } else { (0, 0) };
        let Some(stream) = self.streams.get_mut(&peer.index) else { return false };
        let out = stream.out.get_or_insert_with(|| {
            let packet_bytes = self.packet_bytes_max as u64 + IP_UDP_BYTES;
            let setup = Setup { packet_bytes, seed: begin.0.into() };
            let flow = Flow::new(self.config.controller.build(setup), false);
            StreamOut::new(now_ns, peer, begin, flow, self.packet_bytes_max)
        });
        out.push(now_ns, message, cancelled);
        self.messages += 1;
        stream.used_ns = now_ns;
        self.after(peer.index);
        true
    }

    /// Ends the error of a peer.
    pub(crate) fn reset(&mut self, peers: &mut Peers, peer: PeerId) {
        let Some(stream) = self.streams.get_mut(&peer.index).filter(|stream| stream.peer == peer)
        else {
            return;
        };
        (stream.failed, stream.record) = (None, None);
        if stream.out.is_none() && stream.into.is_none() {
            peers.keep(peer, false);
            self.remove(peer.index);
        }
    }

    /// A segment came; `Err(None)` if it is not known where the source begins.
    pub(crate) fn on_segment(
        &mut self,
        now_ns: u64,
        host: &mut Host<'_>,
        segment: &Came<'_>,
    ) -> Result<(), Option<Discard>> {
        let index = host.peer.index;
        let stream = self.streams.get_mut(&index).ok_or(None)?;
        let into = stream.into.as_mut().ok_or(None)?;
        let before = into.open();
        into.hear(segment.datagram_bytes);
        let taken = into.on_segment(now_ns, host, segment);
        self.open = self.open + into.open() - before;
        if taken == Err(Discard::NoBuffer) && !self.wanting.contains(&index) {
            self.wanting.push(index);
        }
        self.after(index);
        taken.map_err(Some)
    }

    /// The token of a source that begins so, after what is known of it: so a token is good for one such change, and
    /// packets of an earlier beginning bring it back no more.
    fn token(&self, address: SocketAddr, instance: u32, record: u32) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.secret, address, instance, record).hash(&mut hasher);
        hasher.finish() | 1
    }

    /// A source says where it begins. The token to ask it with, if that is to be confirmed.
    pub(crate) fn on_begin(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        host: &mut Host<'_>,
        (number, instance): (u32, u32),
        (token, datagram_bytes): (u64, usize),
    ) -> Option<(u32, u64)> {
        let stream = self.stream(host.peer);
        let known = stream.and_then(|stream| stream.into.as_ref());
        let expected = self.token(host.address, instance, known.map_or(0, |into| into.record));
        // Half of the streams are for sources that answer, so forged ones cannot take all.
        let is_crowded = self.streams.len() >= self.config.streams_max / 2;
        if stream.is_none() && is_crowded && token != expected {
            return Some((0, expected));
        }
        if !self.make(now_ns, peers, host.peer) {
            return None;
        }
        let record = self.draw();
        let stream = self.streams.get_mut(&host.peer.index)?;
        if let Some(into) = &mut stream.into {
            if into.instance == instance {
                into.hear(datagram_bytes);
                into.used_ns = now_ns;
                // What a peer in error waits for was given up, so it is to find out.
                if stream.failed.is_none() {
                    into.due_now();
                }
                self.after(host.peer.index);
                return None;
            }
            if token != expected {
                return Some((into.instance, expected));
            }
            self.open -= into.open();
            into.end(host);
        }
        let mut into = StreamIn::new(now_ns, (instance, number), record);
        into.is_verified = token == expected;
        into.hear(datagram_bytes);
        stream.into = Some(into);
        self.after(host.peer.index);
        None
    }

    /// A peer asks where this end begins.
    pub(crate) fn on_ask(&mut self, now_ns: u64, peer: PeerId, token: u64) {
        if let Some(stream) = self.streams.get_mut(&peer.index)
            && let Some(out) = &mut stream.out
        {
            out.on_ask(now_ns, token);
            self.after(peer.index);
        }
    }

    /// An acknowledgement came.
    pub(crate) fn on_acknowledged(
        &mut self,
        now_ns: u64,
        peer: PeerId,
        record: u32,
        acknowledged: &Acknowledged<'_>,
        left: &mut Vec<Left>,
    ) {
        let Some(stream) = self.streams.get_mut(&peer.index) else { return };
        let Some(out) = stream.out.as_mut().filter(|out| out.instance() == acknowledged.instance)
        else {
            return;
        };
        if *stream.record.get_or_insert(record) != record {
            // What was acknowledged before is not known there any more.
            self.fail(peer.index, Failure::Restarted, left);
            return;
        }
        let before = out.messages();
        out.on_acknowledged(now_ns, acknowledged, left);
        self.messages = self.messages + out.messages() - before;
        self.after(peer.index);
    }

    /// The peer refuses a message.
    pub(crate) fn on_refused(
        &mut self,
        peer: PeerId,
        number: u32,
        reason: ControlReason,
        left: &mut Vec<Left>,
    ) {
        if let Some(stream) = self.streams.get_mut(&peer.index)
            && let Some(out) = &mut stream.out
        {
            out.on_refused(number, reason, left);
            self.after(peer.index);
        }
    }

    /// The source gives a message up.
    pub(crate) fn on_cancel(
        &mut self,
        now_ns: u64,
        host: &mut Host<'_>,
        (number, key): (u32, u32),
        reason: ControlReason,
    ) {
        let index = host.peer.index;
        if let Some(stream) = self.streams.get_mut(&index)
            && let Some(into) = &mut stream.into
        {
            let before = into.open();
            into.on_cancel(now_ns, host, (number, key), reason);
            self.open = self.open + into.open() - before;
            self.after(index);
        }
    }

    /// A receive was posted.
    pub(crate) fn on_receive(&mut self, now_ns: u64) {
        for index in std::mem::take(&mut self.wanting) {
            if let Some(stream) = self.streams.get_mut(&index)
                && let Some(into) = stream.into.as_mut().filter(|into| into.wants_receive())
            {
                into.on_receive(now_ns);
                self.after(index);
            }
        }
    }

    /// The next packets for one peer.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        packets_max: usize,
        runs: &mut Vec<Run>,
        mut keyring: Option<&mut Keyring>,
    ) -> Option<SocketAddr> {
        let mut has_keys = |to| keyring.as_mut().is_none_or(|keyring| keyring.is_ready(now_ns, to));
        while let Some(index) = self.reports.pop_front() {
            let Some(stream) = self.streams.get_mut(&index) else { continue };
            stream.is_reporting = false;
            if !has_keys(stream.address) {
                // Another one is due once there are keys.
                continue;
            }
            let Some(into) = stream.into.as_mut().filter(|into| into.due_ns.is_some()) else {
                continue;
            };
            let mut frames = Vec::new();
            into.is_verified |= stream.out.as_ref().is_some_and(|out| out.is_begun);
            if !into.report(now_ns, &mut frames) {
                self.arm(index);
                continue;
            }
            runs.push(Run::control(frames));
            let address = stream.address;
            self.after(index);
            return Some(address);
        }
        while let Some(index) = self.ready.pop_front() {
            let Some(stream) = self.streams.get_mut(&index) else { continue };
            stream.is_ready = false;
            let Some(out) = &mut stream.out else { continue };
            if !has_keys(stream.address) {
                continue;
            }
            let before = out.bytes_again;
            let has_any = out.poll(now_ns, packets_max.max(2), runs);
            self.bytes_again += out.bytes_again - before;
            let address = stream.address;
            if has_any && out.has_data() {
                stream.is_ready = true;
                self.ready.push_back(index);
            }
            self.arm(index);
            if has_any {
                return Some(address);
            }
        }
        None
    }

    /// There are keys for a peer.
    pub(crate) fn on_keys(&mut self, peer: PeerId) {
        if self.stream(peer).is_some() {
            self.after(peer.index);
        }
    }

    /// A peer gives no keys.
    pub(crate) fn on_no_keys(&mut self, peer: PeerId, left: &mut Vec<Left>) {
        let out = self.stream(peer).and_then(|stream| stream.out.as_ref());
        if out.is_some_and(|out| !out.is_idle()) {
            self.fail(peer.index, Failure::Unreachable, left);
        }
    }

    /// Whether something may leave at once.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty() || !self.reports.is_empty()
    }

    /// When [`Reliable::on_timeout`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.alarms.first().map(|(ns, _)| *ns)
    }

    /// Time has passed.
    pub(crate) fn on_timeout(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        reads: &Reads,
        left: &mut Vec<Left>,
    ) {
        while let Some((_, index)) = self.alarms.first().copied().filter(|(ns, _)| *ns <= now_ns) {
            let Some(stream) = self.streams.get_mut(&index) else {
                self.alarms.pop_first();
                continue;
            };
            let mut is_silent = false;
            if let Some(out) = &mut stream.out {
                let silence_ns = self.config.silence_ns;
                is_silent = out.silent_since_ns().is_some_and(|ns| ns + silence_ns <= now_ns);
                let before = out.messages();
                out.on_timeout(now_ns, left);
                self.messages = self.messages + out.messages() - before;
                if idle_due_ns(out, stream.used_ns, silence_ns).is_some_and(|ns| ns <= now_ns) {
                    if reads.has_any_of(stream.peer) {
                        out.probe(now_ns);
                        stream.used_ns = now_ns;
                    } else {
                        stream.out = None;
                        stream.record = None;
                    }
                }
            }
            if let Some(into) = stream.into.take_if(|into| into.used_ns + IDLE_IN_NS <= now_ns) {
                self.open -= into.open();
                self.over.push((stream.peer, stream.address, into));
            }
            if is_silent {
                self.fail(index, Failure::Unreachable, left);
                continue;
            }
            let is_over = stream.out.is_none() && stream.into.is_none() && stream.failed.is_none();
            if is_over {
                peers.keep(stream.peer, false);
                self.remove(index);
                continue;
            }
            if let Some(into) = &mut stream.into
                && into.due_ns.is_some_and(|ns| ns <= now_ns)
            {
                into.due_now();
            }
            self.after_at(index, Some(now_ns));
        }
    }

    /// Puts a peer into error.
    fn fail(&mut self, index: u32, failure: Failure, left: &mut Vec<Left>) {
        let Some(stream) = self.streams.get_mut(&index) else { return };
        stream.failed = Some(failure);
        stream.record = None;
        self.peers_failed += 1;
        self.failures.push((stream.peer, failure));
        if let Some(mut out) = stream.out.take() {
            self.messages -= out.messages();
            out.fail(failure, left);
        }
        self.after(index);
    }

    fn remove(&mut self, index: u32) {
        if let Some(Stream { alarm_ns: Some(ns), .. }) = self.streams.remove(&index) {
            self.alarms.remove(&(ns, index));
        }
    }

    /// Peers that were put into error since this was called last, and why.
    pub(crate) fn take_failures(&mut self) -> Vec<(PeerId, Failure)> {
        std::mem::take(&mut self.failures)
    }

    /// What has come of sources that are gone.
    pub(crate) fn take_over(&mut self) -> Vec<(PeerId, SocketAddr, StreamIn)> {
        std::mem::take(&mut self.over)
    }

    /// All peers with streams, in the same order each time.
    pub(crate) fn peers(&self) -> Vec<(PeerId, SocketAddr)> {
        let mut peers: Vec<_> =
            self.streams.values().map(|stream| (stream.peer, stream.address)).collect();
        peers.sort_unstable();
        peers
    }

    /// The peer's messages are over, whole or not.
    pub(crate) fn end(&mut self, host: &mut Host<'_>) {
        if let Some(stream) = self.streams.get_mut(&host.peer.index)
            && let Some(mut into) = stream.into.take()
        {
            self.open -= into.open();
            into.end(host);
        }
    }

    /// Gives everything up.
    pub(crate) fn flush(&mut self, left: &mut Vec<Left>) {
        for (peer, _) in self.peers() {
            if let Some(mut out) = self.streams.get_mut(&peer.index).and_then(|at| at.out.take()) {
                out.fail(Failure::Flushed, left);
            }
        }
        self.messages = 0;
    }

    /// A stream has changed: it may have something to send, and another time when it wants to be looked at.
    fn after(&mut self, index: u32) {
        self.after_at(index, None);
    }

    fn after_at(&mut self, index: u32, now_ns: Option<u64>) {
        let Some(stream) = self.streams.get_mut(&index) else { return };
        if !stream.is_reporting && stream.into.as_ref().is_some_and(|into| into.due_ns == Some(0)) {
            stream.is_reporting = true;
            self.reports.push_back(index);
        }
        let is_waiting = |out: &StreamOut| {
            out.paced_until_ns().is_some_and(|ns| now_ns.is_none_or(|now_ns| now_ns < ns))
        };
        if let Some(out) = &stream.out
            && !stream.is_ready
            && out.has_data()
            && !is_waiting(out)
        {
            stream.is_ready = true;
            self.ready.push_back(index);
        }
        self.arm(index);
    }

    fn arm(&mut self, index: u32) {
        let silence_ns = self.config.silence_ns;
        let Some(stream) = self.streams.get_mut(&index) else { return };
        let out = stream.out.as_ref();
        let into = stream.into.as_ref();
        let due = [
            out.and_then(StreamOut::timeout_ns),
            out.and_then(StreamOut::paced_until_ns).filter(|_| !stream.is_ready),
            out.and_then(StreamOut::silent_since_ns).map(|ns| ns + silence_ns),
            out.and_then(|out| idle_due_ns(out, stream.used_ns, silence_ns)),
            into.and_then(|into| into.due_ns).filter(|ns| *ns > 0),
            into.map(|into| into.used_ns + IDLE_IN_NS),
        ];
        let alarm_ns = due.into_iter().flatten().min();
        if alarm_ns != stream.alarm_ns {
            if let Some(ns) = stream.alarm_ns {
                self.alarms.remove(&(ns, index));
            }
            self.alarms.extend(alarm_ns.map(|ns| (ns, index)));
            stream.alarm_ns = alarm_ns;
        }
    }
}

/// When a line without work is looked at: it goes, or its peer is asked whether it is still there.
fn idle_due_ns(out: &StreamOut, used_ns: u64, silence_ns: u64) -> Option<u64> {
    let asked_ns = out.probed_ns.map(|(_, last_ns)| last_ns + silence_ns / PROBES_OF_SILENCE);
    out.is_idle().then(|| asked_ns.unwrap_or(used_ns + IDLE_OUT_NS))
}

/// The frames of a question where a source begins.
pub(crate) fn ask(about: lacuna_wire::ddp::About, (instance, token): (u32, u64)) -> Vec<u8> {
    let mut frames = Vec::new();
    lacuna_wire::ddp::emit_control(&ControlFrame::Ask { about, instance, token }, &mut frames);
    frames
}
