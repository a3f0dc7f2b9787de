//! A queue pair: the protocol of one connection without its sockets.
//!
//! The owner passes in the time, control packets and summaries of placed bursts, and polls for runs
//! of data packets, control packets, events and the next timer, as with quinn-proto's `Connection`.
//! Payloads are copied elsewhere: workers place them through their [`ChannelWriter`]s without the
//! queue pair's lock.
//!
//! This file orders the calls; each mechanism has a file of its own.

mod config;
mod control;
mod copies;
mod deadlines;
mod encode;
mod error;
mod event;
mod flush;
mod nudge;
mod one_sided;
mod outgoing;
mod peer_receives;
mod pmtu;
mod proof;
mod queues;
mod reads;
mod recv;
mod scratch;
mod send;
mod stats;
mod timers;
mod transmit;
mod user_send;
mod waiting;
mod words;

pub use config::{Peer, QpConfig};
pub use control::ControlError;
pub use error::{
    Failure, Gone, PostReceiveError, PostSendError, ReceiveFailure, SendFailure, WaitedFor,
};
pub use event::{Changes, Event};
pub use pmtu::Narrowed;
pub use reads::{
    PostReadError, READ_BYTES_MAX, READS_OPEN_MAX, ReadFailure, ReadId, ReadRequest, ReadStatus,
};
pub use recv::Written;
pub use recv::{EndStats, Grace, PostedReceive, RecvOptions, RecvRequest};
pub use send::{SendStats, Target};
pub use stats::{ChannelStats, QpStats};
pub use timers::Timer;
pub use transmit::Transmit;
pub use user_send::{SendId, SendRequest, SendStatus};

use control::Control;
use event::PendingEvents;
use lacuna_code::{Codec, Engine};
use lacuna_path::arrivals::{Arrivals, ArrivedBurst};
use lacuna_path::controller::{AnyController, Setup, StartRate};
use lacuna_path::lateness::Lateness;
use lacuna_path::memory::{PathLosses, PathRecord};
use lacuna_path::report_policy::ReportPolicy;
use lacuna_path::rtt::RttEstimator;
use lacuna_path::shared_credit::{Senders, SharedCredit};
use lacuna_path::small_vec::SmallVec;
use lacuna_path::{IP_UDP_BYTES, Path};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::discard::Discard;
use lacuna_place::placement::Placement;
use lacuna_place::region::KeyTable;
use lacuna_place::summary::BurstSummary;
use lacuna_place::table::RecvTable;
use lacuna_place::writer::ChannelWriter;
use lacuna_wire::{ControlWriter, Packet};
use recv::RecvSide;
use send::SendSide;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Slack on top of two round trips before a peer that was asked counts as silent: the time to the
/// next flush, and busy hosts. A judgement.
const ANSWER_SLACK_NS: u64 = 100_000_000;

/// The counts of a burst that the path needs.
fn arrived(burst: &BurstSummary) -> ArrivedBurst {
    let refused = Discard::REFUSING.map(|reason| burst.discarded[reason.index()]);
    let in_vain = burst.discarded[Discard::Late.index()] + refused.iter().sum::<u64>();
    ArrivedBurst {
        packets: burst.packets + burst.duplicates + in_vain,
        duplicate_packets: burst.duplicates,
        marked_packets: burst.marked,
        bytes: burst.bytes,
        repair_bytes: burst.parity_bytes,
        next_psn: burst.next_psn,
        reorder_packets: burst.reorder_packets,
        has_gap: burst.gap,
    }
}

/// The congestion controller at its start.
fn controller(config: &QpConfig) -> AnyController {
    let geometry = config.geometry;
    let packet_bytes = u64::from(geometry.mtu_bytes() + geometry.overhead_bytes(false));
    config.controller.build(Setup {
        packet_bytes: packet_bytes + IP_UDP_BYTES,
        // Different for each connection, and the same in a replay.
        seed: u64::from(config.rkey) << 32 | u64::from(config.qkey),
    })
}

/// Protocol state of one end of a connection.
#[derive(Debug)]
pub struct QueuePair {
    config: QpConfig,
    table: Arc<RecvTable>,
    /// Keys of the regions that the peer writes, if this is a one-sided queue pair.
    keys: Option<(Arc<KeyTable>, u64)>,
    reads: reads::Reads,
    copies: copies::Copies,
    writers: Vec<ChannelWriter>,
    peer: Option<Peer>,
    send: SendSide,
    recv: RecvSide,
    path: Path,
    arrivals: Arrivals,
    /// The peer may wait for receives that the next report announces, and it is far away. If that is lost,
    /// the peer finds out a round trip later, so a second report follows.
    announces_again: bool,
    control: Control,
    nudge: nudge::Nudge,
    /// The sender's words, in a mode that repairs nothing and ends in time.
    words: Option<words::Words>,
    /// How late packets come, in the same modes.
    lateness: Option<Lateness>,
    /// Proof of the packet size; `None` once full packets are known to pass.
    proof: Option<proof::Proof>,
    mtu: pmtu::PathMtu,
    failure: Arc<OnceLock<Failure>>,
    channels: SmallVec<ChannelStats>,
    timeouts: u64,
    /// Channels for which runs were polled since [`QueuePair::on_polled`]; a mask.
    polled_on: u32,
    /// Events that the owner has not polled yet.
    pending_events: PendingEvents,
}

impl QueuePair {
    /// A queue pair that is not connected.
    ///
    /// # Panics
    /// If the mode's code is not the geometry's.
    pub fn new(config: QpConfig) -> Self {
        let geometry = config.geometry;
        let code = config.mode.code();
        assert_eq!(code, geometry.config().code, "the geometry is made for the mode's code");
        // An engine that is forced and missing was reported when connecting.
        let engine = || Engine::chosen().unwrap_or_else(|_| Engine::fastest());
        let codec = code.map(|code| Codec::shared(code, engine()));
        let (rkey, first_psn) = (config.rkey, config.first_psn);
        let (table, writers) = ChannelWriter::of_table(geometry, rkey, first_psn, codec.as_ref());
        let channels = geometry.channels();
        let mut arrivals = Arrivals::new(channels, config.first_psn);
        arrivals.set_credit(config.credit_bytes);
        let controller = controller(&config);
        let ends_in_time = config.mode.watch(channels).is_some();
        Self {
            send: SendSide::new(geometry, config.mode, config.policy, codec),
            recv: RecvSide::new(geometry, config.mode, table.clone()),
            path: Path::new(channels, config.first_psn, controller, config.rto),
            arrivals,
            announces_again: false,
            control: Control::new(channels),
            nudge: nudge::Nudge::default(),
            words: ends_in_time.then(|| words::Words::new(channels)),
            lateness: ends_in_time.then(|| Lateness::new(channels)),
            proof: None,
            mtu: pmtu::PathMtu::default(),
            table,
            keys: None,
            reads: reads::Reads::default(),
            copies: copies::Copies::default(),
            writers,
            peer: None,
            failure: Arc::default(),
            channels: (0..channels).map(|_| ChannelStats::default()).collect(),
            timeouts: 0,
            polled_on: 0,
            pending_events: PendingEvents::default(),
            config,
        }
    }

    /// Connects the queue pair to the peer's. To be called once.
    pub fn connect(&mut self, now_ns: u64, peer: Peer) {
        debug_assert!(self.peer.is_none(), "a queue pair has one peer");
        self.peer = Some(peer);
        self.send.connect(peer.queue_pair, peer.rkey);
        for channel in 0..self.channels.len() {
            self.path.set_credit(channel, u64::from(peer.credit_bytes));
        }
        let channels = self.config.geometry.channels();
        for writer in &mut self.writers {
            writer.expect_psn(peer.first_psn);
        }
        self.arrivals = Arrivals::new(channels, peer.first_psn);
        self.arrivals.set_credit(self.config.credit_bytes);
        self.control.heard(now_ns);
        // Report the receives that were posted before the peer was known.
        self.arrivals.request(now_ns);
    }

    /// The report policy that this end's congestion controller wants of the peer.
    pub fn report_policy(&self) -> ReportPolicy {
        self.config.controller.report_policy()
    }

    /// Sets the report policy that the peer's congestion controller wants. To be called after
    /// [`QueuePair::connect`], if it is not the default.
    pub fn set_report_policy(&mut self, policy: ReportPolicy) {
        self.arrivals.set_policy(policy);
        self.arrivals.set_credit(self.config.credit_bytes);
    }

    /// Whether the receive of the next send is posted, as far as known. If not, this end asks the
    /// peer until it is.
    pub fn is_clear_to_send(&mut self) -> bool {
        self.send.next_receive().is_ok()
    }

    /// Whether this end asks the peer for a receive to send to.
    pub fn asks_for_receives(&self) -> bool {
        self.send.wants_receive()
    }

    /// The error of a send for which no receive is posted.
    pub fn unposted(&self) -> PostSendError {
        self.send.unposted()
    }

    /// Whether no send is waiting or in progress.
    pub fn is_idle(&self) -> bool {
        !self.send.awaits_peer()
    }

    /// Whether [`QueuePair::connect`] was called.
    pub fn is_connected(&self) -> bool {
        self.peer.is_some()
    }

    /// Makes the next control packet a full report.
    pub fn request_report(&mut self, now_ns: u64) {
        self.arrivals.request(now_ns);
    }

    /// Takes in a round-trip time measured before the queue pair was connected.
    pub fn on_rtt_sample(&mut self, now_ns: u64, sample_ns: u64) {
        self.path.on_rtt_sample(now_ns, sample_ns);
    }

    /// Takes in an estimate of the round-trip time, maybe of another path; timeouts use it until
    /// there is a sample.
    pub fn on_rtt_guess(&mut self, guess_ns: u64) {
        self.path.on_rtt_guess(guess_ns);
    }

    /// Starts at a rate known from elsewhere. To be called after the first round-trip sample and
    /// before anything is sent.
    pub fn start_at(&mut self, now_ns: u64, start: StartRate) {
        self.path.start_at(now_ns, start);
    }

    /// Starts with the loss estimate of an earlier connection, `age_s` seconds old. To be called
    /// before anything is sent.
    pub fn remember_losses(&mut self, losses: &PathLosses, age_s: u64) {
        let packets = losses.evidence_packets(age_s);
        self.path.loss_mut().start_at(losses.loss(), losses.burst_packets(), packets);
    }

    /// A record of the path for the path memory, with the time `now_s`.
    pub fn path_record(&self, now_s: u64) -> Option<PathRecord> {
        let (rate_bits_per_s, min_rtt_ns) = self.path.found()?;
        let losses = Some(PathLosses::of(self.path.loss()));
        Some(PathRecord { rate_bits_per_s, min_rtt_ns, saved_s: now_s, losses })
    }

    /// Sets this queue pair's share of its sockets' receive buffers: the bytes that one socket can
    /// hold for this peer.
    pub fn set_share(&mut self, now_ns: u64, credit_bytes: u32) {
        self.config.credit_bytes = credit_bytes;
        self.arrivals.set_credit(credit_bytes);
        self.arrivals.request(now_ns);
    }

    /// Sets the state that this queue pair shares with others: per channel, the credit of the peer's
    /// socket, shared by all queue pairs that send to it; and the number of senders, shared by all
    /// queue pairs of the owner, because they share this host's caches. To be called before anything
    /// is sent.
    pub fn share(&mut self, shared_credits: Vec<Arc<SharedCredit>>, senders: Arc<Senders>) {
        for (channel, shared_credit) in
            shared_credits.into_iter().enumerate().take(self.channels.len())
        {
            self.path.join(channel, shared_credit);
        }
        self.path.count_among(senders);
    }

    /// Sets how many packets the datapath sends in one call (a bundle; 1 if it cannot send
    /// several). Runs that the window cuts off end with a whole bundle.
    pub fn set_bundle(&mut self, packets: u32) {
        self.path.set_bundle(packets);
    }

    /// The writers of all channels, which place its packets. To be taken once, after
    /// [`QueuePair::connect`].
    pub fn take_writers(&mut self) -> Vec<ChannelWriter> {
        std::mem::take(&mut self.writers)
    }

    /// The slots, for closing receives without the queue pair's lock.
    pub fn table(&self) -> &Arc<RecvTable> {
        &self.table
    }

    /// Its configuration.
    pub fn config(&self) -> &QpConfig {
        &self.config
    }

    /// Why the queue pair has failed, if it has.
    pub fn failure(&self) -> Option<Failure> {
        // Every call checks this. This copy is in cache; the cell is in memory of its own.
        self.recv.failure()
    }

    /// The failure for readers without the queue pair's lock; set when it fails.
    pub fn failure_cell(&self) -> &Arc<OnceLock<Failure>> {
        &self.failure
    }

    /// The peer's number of this queue pair, once it is connected.
    pub fn peer_number(&self) -> Option<u32> {
        self.peer.map(|peer| peer.queue_pair)
    }

    /// The body of a control packet with this end's state: its last words before it fails.
    pub fn last_words(&mut self, now_ns: u64, writer: &mut ControlWriter) -> Option<Vec<u8>> {
        self.request_report(now_ns);
        let seal = self.config.geometry.seal();
        match seal.parse(self.poll_control(now_ns, 0, writer)?) {
            Ok(Packet::Control(_, body)) => Some(body.to_vec()),
            _ => None,
        }
    }

    // ---- receives ----

    /// Posts a receive of any length and opens the peer's window for it.
    pub fn post_receive(
        &mut self,
        now_ns: u64,
        buffer: Placement,
    ) -> Result<PostedReceive, PostReceiveError> {
        self.post_receive_with(
            now_ns,
            RecvRequest { buffer, options: RecvOptions::default(), notifies: false },
        )
    }

    /// As [`QueuePair::post_receive`], with a deadline or a grace. The caller must wake the owner if
    /// [`QueuePair::receive_due_ns`] comes forward by it.
    pub fn post_receive_with(
        &mut self,
        now_ns: u64,
        request: RecvRequest,
    ) -> Result<PostedReceive, PostReceiveError> {
        let safe_ns = match &self.lateness {
            Some(lateness) => {
                let rtt_ns = self.path.rtt().smoothed_ns().unwrap_or(0);
                (recv::ROUND_TRIPS * rtt_ns).max(lateness.window_ns())
            }
            None => 0,
        };
        let posted = self.recv.post(now_ns, request, safe_ns)?;
        if self.recv.sender_runs_short() {
            self.arrivals.request(now_ns);
            self.announces_again = self.path.rtt().smoothed_ns() >= Some(control::FAR_NS);
        } else {
            self.arrivals.request_some_time(now_ns);
        }
        Ok(posted)
    }

    /// When the next report to the peer is due. Posting or closing a receive may bring it forward;
    /// the caller must then wake the owner.
    pub fn report_due_ns(&self) -> Option<u64> {
        self.arrivals.due_ns()
    }

    /// When the next receive ends if nothing more of it comes, by its deadline or its grace.
    pub fn receive_due_ns(&self) -> Option<u64> {
        self.recv.poll_timeout()
    }

    /// Why a receive will never be complete, if that is known.
    pub fn receive_failure(&self, posted: &PostedReceive) -> Option<ReceiveFailure> {
        self.recv.failure_of(posted)
    }

    /// Reports to the peer that the application has closed these slots. ([`RecvTable::close`],
    /// which waits for workers, comes first and needs no lock.)
    pub fn on_receive_closed(&mut self, now_ns: u64, posted: &PostedReceive) {
        if self.recv.on_closed(posted) {
            self.arrivals.request(now_ns);
        }
        self.pending_events.add(Changes::RECEIVE_ENDED);
    }

    /// Has the owner told once ([`Changes::CHUNKS`]) when this many chunks of a receive are here; at once
    /// if they are. The end of the receive is told anyway.
    pub fn watch_chunks(&mut self, posted: &PostedReceive, chunks: u32) {
        if self.recv.watch_chunks(posted, chunks) {
            self.pending_events.add(Changes::CHUNKS);
        }
    }

    // ---- sends ----

    /// Queues a send of any length; it waits until its receive is posted.
    pub fn queue_send(&mut self, request: SendRequest) -> Result<SendId, PostSendError> {
        self.check()?;
        self.send.queue(request)
    }

    /// Starts a send of any length, if its receive is posted.
    pub fn post_send(&mut self, request: SendRequest) -> Result<SendId, PostSendError> {
        self.check()?;
        self.send.post(request)
    }

    /// As [`QueuePair::queue_send`], for data that become ready part by part: bytes are sent once they
    /// were offered ([`QueuePair::offer`]), and repaired like others.
    pub fn queue_send_offered(&mut self, request: SendRequest) -> Result<SendId, PostSendError> {
        self.check()?;
        self.send.queue_offered(request)
    }

    /// Bytes of such a send are ready, and do not change any more. Parts of whole chunks spare repeated
    /// packets.
    pub fn offer(&mut self, id: SendId, bytes: Range<u64>) -> Result<(), PostSendError> {
        self.check()?;
        self.send.offer(id, bytes)
    }

    /// Opens a streaming send to the next posted receive. Nothing is retransmitted: the caller
    /// decides what is sent and when.
    pub fn open_stream(&mut self, immediate: Option<u32>) -> Result<SendId, PostSendError> {
        self.check()?;
        self.send.open_stream(immediate)
    }

    /// Sends data of a stream at a chunk's offset: any chunk, in any order, again if wanted.
    pub fn push_stream(
        &mut self,
        id: SendId,
        offset_bytes: u64,
        data: SendBuffer,
        ends_message: bool,
    ) -> Result<(), PostSendError> {
        self.check()?;
        self.send.push_stream(id, offset_bytes, data, ends_message)
    }

    /// Ends a stream.
    pub fn end_stream(&mut self, id: SendId) -> Result<(), PostSendError> {
        self.check()?;
        self.send.end_stream(id)
    }

    /// State of a send; `None` once it was released.
    pub fn send_status(&self, id: SendId) -> Option<SendStatus> {
        self.send.status(id)
    }

    /// Has [`QueuePair::poll_ended_send`] tell when a send has ended. It is not to be released.
    pub fn notify_send(&mut self, id: SendId) {
        self.send.notify(id);
    }

    /// The next send that has ended, of those that [`QueuePair::notify_send`] was called for. To be asked
    /// for when [`Event::Changed`] or [`Event::Failed`] was told.
    pub fn poll_ended_send(&mut self) -> Option<(SendId, Result<(), SendFailure>)> {
        self.send.poll_ended()
    }

    /// The first message of the next receive that is over, of those that were posted to be told of.
    pub fn poll_ended_receive(&mut self) -> Option<u64> {
        self.recv.poll_ended()
    }

    /// Forgets a send once it has ended.
    pub fn release_send(&mut self, id: SendId) {
        self.send.release(id);
    }

    /// Cancels a send and tells the peer.
    pub fn cancel_send(&mut self, now_ns: u64, id: SendId) {
        self.send.cancel(now_ns, id);
    }

    fn check(&self) -> Result<(), PostSendError> {
        match self.failure() {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    // ---- the worker's calls ----

    /// A worker has placed a burst. Returns when the next report is due, the only timer that a burst
    /// changes.
    pub fn on_burst(&mut self, now_ns: u64, channel: u8, burst: &BurstSummary) -> Option<u64> {
        if burst.is_of_the_peer() {
            self.control.heard(now_ns);
            self.control.on_data();
        }
        let stats = &mut self.channels[usize::from(channel)];
        stats.packets += burst.packets;
        stats.bytes += burst.bytes;
        stats.chunks += burst.chunks;
        stats.parity_packets += burst.parity_packets;
        stats.parity_bytes += burst.parity_bytes;
        stats.repaired_packets += burst.repaired_packets;
        stats.repaired_chunks += burst.repaired_chunks;
        stats.decode_ns += burst.decode_ns;
        stats.duplicates += burst.duplicates;
        stats.marked += burst.marked;
        if burst.has_discarded {
            for (total, count) in stats.discarded.iter_mut().zip(burst.discarded) {
                *total += count;
            }
        }
        let srtt_ns = self.path.rtt().smoothed_ns();
        self.arrivals.on_burst(now_ns, channel, &arrived(burst), srtt_ns);
        self.update_span(channel);
        if let Some(lateness) = &mut self.lateness {
            let behind = burst.reorder_packets.max(burst.late_packets);
            lateness.on_burst(now_ns, channel, burst.next_psn, behind, srtt_ns);
        }
        if let Some((keys, _)) = &self.keys {
            let guessed = [Discard::UnknownKey, Discard::Scope, Discard::Guesses];
            if guessed.iter().any(|reason| burst.discarded[reason.index()] > 0) {
                keys.forgive_each_second(now_ns);
            }
        }
        if let Some(number) = burst.refused {
            self.recv.refuse(number);
            self.reap(now_ns);
            self.arrivals.request(now_ns);
        }
        let grace_ns = self.grace_ns();
        if let Some(touched) = burst.touched
            && self.recv.on_touched(now_ns, channel, touched, grace_ns)
        {
            // In an unreliable mode the sender does not wait for this, so the next report is soon
            // enough.
            if self.config.mode.is_reliable() {
                self.arrivals.request(now_ns);
            }
            self.pending_events.add(Changes::RECEIVE_ENDED);
            self.reap(now_ns);
        }
        if self.recv.are_chunks_here() {
            self.pending_events.add(Changes::CHUNKS);
        }
        self.arrivals.due_ns()
    }

    /// How long packets may be late that the path has reordered.
    fn grace_ns(&self) -> u64 {
        self.lateness.as_ref().map_or(0, Lateness::window_ns)
    }

    /// The next run of data packets for `channel`, of at most `packets_max`.
    pub fn poll_transmit(
        &mut self,
        now_ns: u64,
        channel: u8,
        packets_max: u32,
    ) -> Option<Transmit> {
        let transmit = self.poll_run(now_ns, channel, packets_max);
        self.on_polled(now_ns);
        transmit
    }

    /// As [`QueuePair::poll_transmit`], without [`QueuePair::on_polled`]. The owner calls that once
    /// the polled runs are on the wire, so that sending does not wait for the accounting.
    pub fn poll_run(&mut self, now_ns: u64, channel: u8, packets_max: u32) -> Option<Transmit> {
        let transmit = self.send.poll_transmit(now_ns, channel, packets_max, &mut self.path)?;
        self.polled_on |= 1 << channel;
        Some(transmit)
    }

    /// Accounts for the runs polled since the last call: updates sends that have nothing left to
    /// send, flush timers, and whether the sender is out of data.
    pub fn on_polled(&mut self, now_ns: u64) {
        self.send.on_polled();
        if self.reads.has_waiting() {
            self.answer_reads(now_ns);
        }
        if !self.send.has_queued() {
            self.path.on_out_of_data();
        }
        self.update_words();
        if self.polled_on == 0 {
            return;
        }
        let srtt_ns = self.path.rtt().smoothed_ns().unwrap_or(0);
        let polled_on = std::mem::take(&mut self.polled_on);
        for channel in (0..self.channels.len()).filter(|channel| polled_on >> channel & 1 == 1) {
            self.control.on_sent(now_ns, channel, srtt_ns);
        }
        let owes = self.peer_owes_answer();
        self.control.track_silence(now_ns, owes);
    }

    /// Everything before sequence number `psn` of `channel` was handed to the kernel. For owners that
    /// send polled runs later, as several workers do: a flush must not overtake the data that it
    /// covers.
    pub fn on_handed(&mut self, channel: u8, psn: u64) {
        self.path.on_handed(usize::from(channel), psn);
    }

    /// Whether data are in flight or queued.
    pub fn is_sending(&self) -> bool {
        self.path.in_flight_bytes() > 0 || self.send.has_queued()
    }

    /// Whether sending depends on the peer's next packet: the window is full, or everything was
    /// sent and only acknowledgements are missing.
    #[inline]
    pub fn awaits_answer(&self) -> bool {
        self.path.is_blocked() || (self.is_sending() && !self.send.has_queued())
    }

    /// Round-trip times to the peer.
    #[inline]
    pub fn rtt(&self) -> &RttEstimator {
        self.path.rtt()
    }

    /// Whether at most `bytes` are left of some message that is being sent or received.
    pub fn is_near_end(&self, bytes: u64) -> bool {
        self.send.is_near_end(bytes) || self.recv.is_near_end(bytes)
    }

    /// Whether data waits for any channel.
    pub fn has_queued(&self) -> bool {
        self.send.has_queued()
    }

    /// Whether data waits for `channel`, held back by window or pacing.
    pub fn has_queued_on(&self, channel: u8) -> bool {
        self.send.has_queued_on(usize::from(channel))
    }

    /// Packets that wait for `channel`, counted only until they are more than `most`.
    pub fn queued_packets_on(&self, channel: u8, most: u32) -> u32 {
        self.send.queued_packets_on(usize::from(channel), most)
    }

    /// Handles the timers that are due.
    pub fn on_timeout(&mut self, now_ns: u64) {
        if self.failure().is_some() || self.peer.is_none() {
            return;
        }
        let owes = self.peer_owes_answer();
        self.control.track_silence(now_ns, owes);
        if self.silence_ends_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            let silent_ms = self.config.silence_max_ns / 1_000_000;
            self.fail(Failure::Silent { silent_ms });
            return;
        }
        self.on_proof_timeout(now_ns);
        self.on_mtu_timeout(now_ns);
        self.expire(now_ns);
        self.path.on_timeout(now_ns);
        let silent_ms = self.silent_ms(now_ns);
        self.timeouts += self.send.on_timeout(now_ns, silent_ms);
        if self.recv.on_timeout(now_ns, self.grace_ns()) {
            if self.config.mode.is_reliable() {
                // The sender still works on it.
                self.arrivals.request(now_ns);
            }
            self.pending_events.add(Changes::RECEIVE_ENDED);
        }
        if self.nudge.on_timeout(now_ns) && self.recv.is_in_progress() {
            self.arrivals.request(now_ns);
        }
        self.reap(now_ns);
        if self.reads.on_timeout(now_ns) {
            self.pending_events.add(Changes::READ_ENDED);
            self.on_reads_changed();
        }
    }

    fn expire(&mut self, now_ns: u64) {
        let mut any = false;
        while let Some(entry) = self.path.pop_expired(now_ns) {
            any = true;
            self.timeouts += 1;
            self.send.on_expired(entry);
        }
        if any {
            self.path.on_expired(now_ns);
        }
    }

    /// Whether this channel sends flushes: everything that may be sent was sent, and some of it is
    /// not acknowledged; or, on the first channel, nothing is in flight and the peer owes an answer.
    // The compiler does not inline it by itself.
    #[inline(always)]
    fn flushes_on(&self, channel: usize) -> bool {
        let is_idle = !self.send.has_queued() || self.path.is_blocked();
        let waits = match self.path.in_flight_bytes() {
            0 => channel == 0 && self.peer_owes_answer(),
            _ => self.path.in_flight_bytes_on(channel) > 0,
        };
        is_idle && waits
    }

    /// Whether the peer owes an answer: data or messages are unacknowledged, or a send waits for a
    /// receive.
    fn peer_owes_answer(&self) -> bool {
        self.path.in_flight_bytes() > 0
            || self.send.awaits_peer()
            || self.send.wants_receive()
            || self.reads.awaits_peer()
    }

    /// Time in which a peer that owes an answer has sent nothing, if longer than answers take; else 0.
    fn silent_ms(&self, now_ns: u64) -> u64 {
        let answer_ns = 2 * self.path.rtt().smoothed_ns().unwrap_or(0) + ANSWER_SLACK_NS;
        let silent_ns = self.control.silent_ns(now_ns);
        if silent_ns < answer_ns { 0 } else { silent_ns / 1_000_000 }
    }

    fn silence_ends_ns(&self) -> Option<u64> {
        self.control.silence_ends_ns(self.config.silence_max_ns)
    }

    /// Ends all operations with this failure.
    pub fn fail(&mut self, failure: Failure) {
        if self.failure.set(failure).is_ok() {
            self.send.fail(failure);
            self.recv.fail(failure);
            self.reads.fail(failure);
            self.pending_events.add_failure();
        }
    }
}
