//! A queue pair: the SDR core as a library. Post receives, read their live bitmaps, send in one
//! shot or as a stream. Mode `raw` repairs nothing, for applications with a reliability scheme of
//! their own; other modes, the default among them, repair.
//!
//! The two ends exchange [`QueuePair::info`] by any means, as in the paper (SDR-RDMA 3.2.2, table
//! 1). [`crate::Connection`] does that over TCP and adds liveness, deadlines and statistics.

use crate::address::{ScopedIp, canonical, is_link_local};
use crate::borrowed::Borrowed;
use crate::clock::after;
use crate::completed::RecvOptions;
use crate::config::ConnectionConfig;
use crate::context::Context;
use crate::error::{PostReceiveError, PostSendError, QueuePairError, SendError};
use crate::exchanged::Nonce;
use crate::handles::{RecvHandle, SendHandle, Stream, wait_for};
use crate::paths::{Remembered, now_s};
use crate::place::RecvPlace;
use crate::shared::Shared;
use lacuna_code::Engine;
use lacuna_engine::{Lane, Machine, State};
use lacuna_path::report_policy::ReportPolicy;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::Geometry;
use lacuna_place::writer::ChannelWriter;
use lacuna_proto::handshake::{Rtt, check_agreement, info_of, peer_of};
use lacuna_proto::qp::{self, Failure, Grace, Peer, QpConfig, QpStats, RecvRequest, SendRequest};
use lacuna_wire::{QpInfo, Seal};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The SDR core: receives with live bitmaps; the peer's n-th send lands in the n-th receive.
///
/// [`Context::queue_pair`] makes one; the ends exchange their [`QueuePair::info`] by any means and
/// call [`QueuePair::connect`]. A connection has one, too ([`crate::Connection::queue_pair`]).
/// Whether losses are repaired depends on [`ConnectionConfig::mode`]: the default,
/// [`Mode::Auto`](crate::Mode::Auto), repairs one-shot sends; [`Mode::Raw`](crate::Mode::Raw)
/// repairs nothing. Streams ([`QueuePair::open_stream`]) are repaired in no mode.
///
/// Clones are the same queue pair. It ends with the last of them and the last of its handles.
#[derive(Clone)]
pub struct QueuePair {
    pub(crate) owner: Arc<Owner>,
}

/// What the clones and handles of one queue pair share; closes the queue pair when dropped.
pub(crate) struct Owner {
    pub(crate) context: Context,
    pub(crate) shared: Arc<Shared>,
    /// The host that it was connected to. Later packets may come from another one.
    pub(crate) peer: OnceLock<ScopedIp>,
    /// Its own remote key, kept from regions.
    reserved_key: OnceLock<u32>,
    /// In its info, if its keys follow from that.
    nonce: Nonce,
}

impl Owner {
    pub(crate) fn new(context: &Context, shared: Arc<Shared>) -> Self {
        Self::with_nonce(context, shared, None)
    }

    /// Of a queue pair whose info has this nonce.
    fn with_nonce(context: &Context, shared: Arc<Shared>, nonce: Nonce) -> Self {
        Self {
            context: context.clone(),
            shared,
            peer: OnceLock::new(),
            reserved_key: OnceLock::new(),
            nonce,
        }
    }

    /// Keeps this key of the queue pair from regions as long as the queue pair lives; `false` if one has
    /// it.
    pub(crate) fn reserve_key(&self, key: u32) -> bool {
        let is_reserved = self.context.keys().reserve(key);
        if is_reserved {
            // Called once.
            _ = self.reserved_key.set(key);
        }
        is_reserved
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.context.is_inherited() {
            // A thread of the parent may have been changing it at the fork: leak it.
            std::mem::forget(self.shared.clone());
            return;
        }
        if let Some(key) = self.reserved_key.get() {
            self.context.keys().release(*key);
        }
        let mut state = self.shared.lock();
        let peer = self.peer.get().copied().or_else(|| state.peer().map(ScopedIp::from));
        let mut found = None;
        if let Machine::Sdr(qp) = &mut state.machine {
            found = qp.path_record(now_s());
            qp.fail(Failure::Closed);
        }
        drop(state);
        if let Some(sink) = self.shared.sink() {
            sink.deliver(&self.shared);
            sink.close(&self.shared);
        }
        let roster = self.context.roster();
        let noted = self.peer.get();
        let is_share =
            noted.is_some_and(|peer| roster.unregister_peer(*peer, self.shared.number()));
        if let (Some(peer), Some(record)) = (peer, found) {
            self.context.paths().save(peer, record, is_share);
        }
        roster.close(self.shared.number());
    }
}

/// Random keys and the first packet sequence number of one end.
pub(crate) struct Keys {
    pub(crate) rkey: u32,
    pub(crate) qkey: u32,
    pub(crate) first_psn: u32,
}

impl Keys {
    pub(crate) fn random() -> Result<Self, QueuePairError> {
        let mut bytes = [0u8; 12];
        getrandom::fill(&mut bytes).map_err(|error| QueuePairError::System {
            what: "random numbers",
            source: std::io::Error::other(error),
        })?;
        let word =
            |i: usize| u32::from_be_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        Ok(Self { rkey: word(0), qkey: word(4), first_psn: word(8) & 0xFF_FFFF })
    }
}

impl Context {
    /// Makes a queue pair that is not connected yet. Without an MTU in `config`, its packets carry
    /// 4096 bytes. They are encrypted if the context has a token.
    pub fn queue_pair(&self, config: &ConnectionConfig) -> Result<QueuePair, QueuePairError> {
        check_config(config)?;
        let nonce = self.new_nonce()?;
        let config = &config.secured(nonce.is_some())?;
        config.check_wire(&self.capabilities())?;
        self.check_process()?;
        let geometry = config.geometry(config.mtu_bytes.unwrap_or(4096), self.config().channels)?;
        let keys = Keys::random()?;
        let qkey = keys.qkey;
        let seal = if nonce.is_some() { Seal::Aead } else { Seal::default() };
        let shared = self.roster().open_sealed(qkey, seal, |number| {
            // No credit yet: the roster announces it once the queue pair is counted.
            Machine::Sdr(new_qp(number, config, geometry, &keys, 0))
        })?;
        Ok(QueuePair { owner: Arc::new(Owner::with_nonce(self, shared, nonce)) })
    }
}

/// Makes the protocol's state machine of a queue pair.
pub(crate) fn new_qp(
    number: u32,
    config: &ConnectionConfig,
    geometry: Geometry,
    keys: &Keys,
    credit_bytes: u32,
) -> lacuna_proto::qp::QueuePair {
    let qp = lacuna_proto::qp::QueuePair::new(QpConfig {
        geometry,
        mode: config.mode,
        policy: lacuna_proto::modes::auto::plan,
        controller: config.controller(),
        rto: config.rto,
        queue_pair: number,
        rkey: keys.rkey,
        qkey: keys.qkey,
        first_psn: keys.first_psn,
        credit_bytes,
        silence_max_ns: config.silence.as_nanos().min(u128::from(u64::MAX)) as u64,
    });
    qp.table().yield_by(std::thread::yield_now);
    qp
}

/// Connects the state machine to its peer; returns the writers for its channels.
pub(crate) fn connect_qp(
    context: &Context,
    qp: &mut lacuna_proto::qp::QueuePair,
    addresses: &[Option<SocketAddr>],
    peer: Peer,
    rtt: Option<Rtt>,
    remembered: Remembered,
) -> Vec<ChannelWriter> {
    let now_ns = context.clock().now_ns();
    let pools = addresses.iter().map(|to| to.map(|to| context.credit_pool(to)).unwrap_or_default());
    qp.share(pools.collect(), context.senders());
    qp.connect(now_ns, peer);
    match rtt {
        Some(Rtt::Measured(rtt_ns)) => qp.on_rtt_sample(now_ns, rtt_ns),
        Some(Rtt::Guessed(_, most_ns)) => qp.on_rtt_guess(most_ns),
        None => qp.probe(now_ns),
    }
    if let Some(start) = remembered.start {
        qp.start_at(now_ns, start);
    }
    if let Some((losses, age_s)) = &remembered.losses {
        qp.remember_losses(losses, *age_s);
    }
    qp.take_writers()
}

/// Refuses a configuration that cannot work here: bad settings, or an erasure code whose engine the
/// environment forces and this processor lacks.
pub(crate) fn check_config(config: &ConnectionConfig) -> Result<(), QueuePairError> {
    config.check()?;
    if config.mode.code().is_some() {
        Engine::chosen()?;
    }
    Ok(())
}

/// Completes the peer's channel addresses: a link-local one comes without a zone, since zones are
/// local, and gets that of this end's own address, `local`.
fn with_zone(
    channels: Vec<SocketAddr>,
    local: SocketAddr,
) -> Result<Vec<SocketAddr>, QueuePairError> {
    let zone = ScopedIp::from(local).scope_id();
    let on_link = |mut channel: SocketAddr| {
        if let SocketAddr::V6(v6) = &mut channel
            && is_link_local((*v6.ip()).into())
        {
            if zone == 0 {
                return Err(QueuePairError::NoZone { ip: *v6.ip() });
            }
            v6.set_scope_id(zone);
        }
        Ok(canonical(channel))
    };
    channels.into_iter().map(on_link).collect()
}

impl QueuePair {
    /// Longest result of [`QueuePair::info`].
    pub const INFO_BYTES_MAX: usize = QpInfo::BYTES_MAX;

    /// The bytes to hand to the peer. `advertise` is this host's address as the peer sees it; used
    /// when the context is bound to a wildcard address. The zone of a link-local address is not
    /// included: zones are local to a host.
    pub fn info(&self, advertise: IpAddr) -> Vec<u8> {
        self.describe(advertise).emit()
    }

    fn describe(&self, advertise: IpAddr) -> QpInfo {
        let at = |address: &SocketAddr| {
            let bound = address.ip();
            let ip = if bound.is_unspecified() { advertise } else { bound };
            SocketAddr::new(ip, address.port())
        };
        let channels = self.owner.context.addresses().iter().map(at).collect();
        let info = self.owner.shared.with_qp(|qp| info_of(qp.config(), channels));
        QpInfo { nonce: self.owner.nonce, ..info }
    }

    /// Connects to the peer that made `peer_info`. Both ends call it, once. A peer at a link-local
    /// address must be on the link that the context is bound to.
    ///
    /// # Errors
    /// When `peer_info` does not parse, the two ends were made with different parameters, one of them
    /// encrypts and the other does not, the peer's address is link-local and the context's is not, or
    /// the queue pair is connected already. Nothing changes then.
    pub fn connect(&self, peer_info: &[u8]) -> Result<(), QueuePairError> {
        let info = QpInfo::parse(peer_info)?;
        let geometry = self.geometry();
        let context = &self.owner.context;
        let channels = with_zone(info.channels.clone(), context.addresses()[0])?;
        let own = self.describe(Ipv4Addr::UNSPECIFIED.into());
        let association = context.agree(
            "slots",
            (own.nonce, &own.agreed_bytes()),
            (info.nonce, &info.agreed_bytes()),
            &channels,
        )?;
        check_agreement(&geometry, &info)?;
        let peer = peer_of(&info);
        let host = channels.first().copied().map(ScopedIp::from);
        let writers = {
            let mut state = self.owner.shared.lock();
            let State { machine, addresses, .. } = &mut *state;
            let Machine::Sdr(qp) = machine else { unreachable!("made so") };
            if qp.is_connected() {
                return Err(QueuePairError::Connected);
            }
            if let Some(association) = association {
                self.owner.shared.books().secure(association);
            }
            *addresses = channels.into_iter().map(Some).collect();
            let writers = connect_qp(context, qp, addresses, peer, None, Remembered::default());
            if let Some(reports) = &info.reports {
                qp.set_report_policy(ReportPolicy::of_peer(reports));
            }
            writers
        };
        context.roster().hand_out(self.owner.shared.number(), writers.into_iter().map(Lane::Sdr));
        if let Some(host) = host {
            context.roster().register_peer(host, &self.owner.shared);
            self.owner.peer.set(host).ok();
        }
        Ok(())
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.owner.context
    }

    /// The parameters that both ends agreed on.
    pub fn geometry(&self) -> Geometry {
        self.owner.shared.with_qp(|qp| qp.config().geometry)
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> QpStats {
        self.owner.shared.stats()
    }

    /// Why the queue pair has failed, if so.
    pub fn failure(&self) -> Option<Failure> {
        self.owner.shared.failure()
    }

    /// Posts a receive over all of `place` and announces it to the peer, whose n-th send lands in
    /// the n-th receive.
    pub fn post_recv(&self, place: impl Into<RecvPlace>) -> Result<RecvHandle, PostReceiveError> {
        self.post_recv_with(place, RecvOptions::default())
    }

    /// As [`QueuePair::post_recv`], with a deadline, a grace, or zeros for what is missing.
    pub fn post_recv_with(
        &self,
        place: impl Into<RecvPlace>,
        options: RecvOptions,
    ) -> Result<RecvHandle, PostReceiveError> {
        let place = place.into();
        let options = place.usual(options);
        let (now_ns, request) = self.recv_request(place, options, false);
        let post = |qp: &mut qp::QueuePair| qp.post_receive_with(now_ns, request);
        let posted = self.owner.shared.with_receives(post)?;
        if options.deadline.is_some() {
            // It may be the next thing that a sleeping worker has to do.
            self.owner.shared.kick();
        }
        Ok(RecvHandle::new(self.owner.clone(), posted, options.missing))
    }

    /// The time, and a receive with these options for the protocol.
    pub(crate) fn recv_request(
        &self,
        place: RecvPlace,
        options: RecvOptions,
        notifies: bool,
    ) -> (u64, RecvRequest) {
        let now_ns = self.owner.context.clock().now_ns();
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let ends = qp::RecvOptions {
            deadline_ns: options.deadline.map(|deadline| after(now_ns, deadline)),
            grace: options.grace.map_or(Grace::Path, |grace| Grace::Fixed { ns: ns(grace) }),
        };
        (now_ns, RecvRequest { buffer: place.placement, options: ends, notifies })
    }

    /// Queues a one-shot send of any length. Sends wait in order until their receives are posted,
    /// here without a deadline. [`crate::Connection::start_send`] says what holds for the memory.
    pub fn send(
        &self,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
    ) -> Result<SendHandle, PostSendError> {
        self.send_within(data.into(), immediate, None)
    }

    /// As [`QueuePair::send`], with a deadline.
    ///
    /// # Errors
    /// As [`QueuePair::send`].
    pub fn send_within(
        &self,
        data: SendBuffer,
        immediate: Option<u32>,
        deadline: Option<Duration>,
    ) -> Result<SendHandle, PostSendError> {
        let clock = self.owner.context.clock();
        let deadline_ns = deadline.map(|deadline| clock.end_of(deadline));
        let request = SendRequest { data, immediate, deadline_ns };
        let id = self.owner.shared.with_qp(|qp| qp.queue_send(request))?;
        self.owner.shared.kick();
        Ok(SendHandle::new(self.owner.clone(), id))
    }

    /// Starts a send whose bytes may be sent once they were offered ([`SendHandle::offer`]). Until then the
    /// transport does not read them: for memory of the application's own that becomes ready part by
    /// part. [`QueuePair::send_offered`] brings such memory.
    ///
    /// # Errors
    /// As [`QueuePair::send`].
    pub fn send_when_offered(
        &self,
        data: SendBuffer,
        immediate: Option<u32>,
        deadline: Option<Duration>,
    ) -> Result<SendHandle, PostSendError> {
        let clock = self.owner.context.clock();
        let deadline_ns = deadline.map(|deadline| clock.end_of(deadline));
        let request = SendRequest { data, immediate, deadline_ns };
        let id = self.owner.shared.with_qp(|qp| qp.queue_send_offered(request))?;
        self.owner.shared.kick();
        Ok(SendHandle::new(self.owner.clone(), id))
    }

    /// Whether the peer has posted the receive for the next send, as far as this end knows: then
    /// [`QueuePair::try_send`] starts at once. If not, this end asks the peer until it has. Cheap
    /// enough to be polled.
    pub fn is_clear_to_send(&self) -> bool {
        let (is_clear, is_asking) = self.owner.shared.with_qp(|qp| {
            let was_asking = qp.asks_for_receives();
            (qp.is_clear_to_send(), was_asking)
        });
        if !is_clear && !is_asking {
            self.owner.shared.kick();
        }
        is_clear
    }

    /// Sends a message and waits until the peer has all of it (mode `raw` and bounded modes: until all of it
    /// is on the wire), at most until `deadline`.
    ///
    /// # Errors
    /// As [`QueuePair::send`], and when the deadline passes or the peer gives the message up.
    pub fn send_and_wait(
        &self,
        data: &[u8],
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<(), SendError> {
        let owner = &self.owner;
        Borrowed::lend(
            data,
            |memory| {
                let handle = self.send_within(memory, immediate, Some(deadline))?;
                let result = handle.wait();
                handle.cancel();
                result
            },
            || {
                // A worker drops its reference in its next step, after sending what it holds.
                owner.shared.kick();
                if !owner.context.progress() {
                    std::thread::yield_now();
                }
            },
        )
    }

    /// Waits until the peer has posted the receive for the next message, as far as this end knows:
    /// a send that is started then leaves at once.
    ///
    /// # Errors
    /// When it has not within `timeout`, or the queue pair has failed.
    pub fn wait_clear_to_send(&self, timeout: Duration) -> Result<(), SendError> {
        let owner = &self.owner;
        let deadline_ns = after(owner.context.clock().now_ns(), timeout);
        if !owner.shared.with_qp(lacuna_proto::qp::QueuePair::is_clear_to_send) {
            // The workers ask the peer from now on.
            owner.shared.kick();
        }
        let clear = wait_for(owner, deadline_ns, |qp| match qp.failure() {
            Some(failure) => Some(Err(PostSendError::Failed(failure))),
            None => qp.is_clear_to_send().then_some(Ok(())),
        });
        let not_yet = || Err(owner.shared.with_qp(|qp| qp.unposted()));
        Ok(clear.unwrap_or_else(not_yet)?)
    }

    /// One-shot send that fails at once if its receive is not posted yet.
    pub fn try_send(
        &self,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
    ) -> Result<SendHandle, PostSendError> {
        let request = SendRequest { data: data.into(), immediate, deadline_ns: None };
        let posted = self.owner.shared.with_qp(|qp| qp.post_send(request));
        // To send, or to ask the peer for the receive.
        self.owner.shared.kick();
        Ok(SendHandle::new(self.owner.clone(), posted?))
    }

    /// Opens a streaming send into the peer's next receive.
    pub fn open_stream(&self, immediate: Option<u32>) -> Result<Stream, PostSendError> {
        let opened = self.owner.shared.with_qp(|qp| qp.open_stream(immediate));
        // If that is not posted, the workers ask the peer for it.
        self.owner.shared.kick();
        Ok(Stream::new(self.owner.clone(), opened?))
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.owner.shared.number())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_of_a_peer_is_that_of_this_ends_own_address() {
        let read = |text: &str| text.parse::<SocketAddr>().unwrap();
        let told = || vec![read("[fe80::2]:1"), read("[fe80::2]:2")];
        let here = with_zone(told(), read("[fe80::1%3]:9")).unwrap();
        assert_eq!(here, [read("[fe80::2%3]:1"), read("[fe80::2%3]:2")]);
        for local in ["[::]:9", "[2001:db8::1]:9", "0.0.0.0:9"] {
            let error = with_zone(told(), read(local)).unwrap_err();
            assert!(error.to_string().contains("fe80::2 is link-local: bind"), "{error}");
        }
        // Only link-local addresses get a zone, and IPv4-mapped addresses become IPv4.
        let told = vec![read("[2001:db8::2]:1"), read("[::ffff:192.0.2.1]:1")];
        let here = with_zone(told, read("[fe80::1%3]:9")).unwrap();
        assert_eq!(here, [read("[2001:db8::2]:1"), read("192.0.2.1:1")]);
    }
}
