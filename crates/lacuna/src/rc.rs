//! Reliable connections over plain UDP: the verbs of RDMA (SEND, WRITE, READ, atomic operations), in order
//! and exactly once, with the packets of RoCEv2 and go-back-N, and LoWAR's repairs below it.
//!
//! For programs that want just these semantics, and as a baseline: on a lossy long path selective repeat
//! ([`crate::Connection`]) keeps far more of the rate than go-back-N alone. [`Settings::shim`] repairs most
//! losses before the connection sees them. The two ends exchange [`QueuePair::info`] by any means; where both contexts
//! have the same token, packets are encrypted.
//!
//! ```no_run
//! use lacuna::rc::{Flags, SendWork, Settings, Verb};
//! use lacuna::{Context, ContextConfig};
//! use std::time::Duration;
//!
//! # fn example(peer_info: &[u8], remote: lacuna::rc::Remote) -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::new(ContextConfig::default())?;
//! let queue_pair = context.rc_queue_pair(&Settings::default())?;
//! // Give `queue_pair.info(…)` to the peer and get its own, by any means.
//! queue_pair.connect(peer_info)?;
//! let verb = Verb::Write { data: vec![1; 4096].into(), remote, immediate: None };
//! queue_pair.post_send(SendWork { id: 1, verb, flags: Flags::default() })?;
//! let done = queue_pair.wait(Duration::from_secs(5)).ok_or("nothing has ended yet")?;
//! assert_eq!((done.id, done.status), (1, Ok(())));
//! # Ok(())
//! # }
//! ```
//!
//! With [`Settings::completions`], work requests of any number of queue pairs complete into one queue, which
//! can be polled, slept in, or waited for by a file descriptor.

use crate::Wire;
use crate::clock::after;
use crate::completion::{AnySink, CompletionQueue, VerbSink};
use crate::config::ConnectionConfig;
use crate::context::Context;
use crate::error::QueuePairError;
use crate::exchanged::Nonce;
use crate::handles::SLEEP_MAX;
use crate::queue_pair::Keys;
use crate::shared::Shared;
use lacuna_engine::{Lane, Machine, RcLane};
use lacuna_path::IP_UDP_BYTES;
use lacuna_path::controller::{ControllerConfig, Setup, StartRate};
use lacuna_wire::rc::RcInfoError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use crate::completion::{Full, SharedReceives};
pub use lacuna_lowar::{
    Counters as ShimCounters, DecoderCounters, EncoderCounters, Reason as ShimReason, StrengthError,
};
pub use lacuna_rc::{
    AckTimeout, ConfigError, Done, Failure, Flags, MTU_BYTES_MAX, MTU_BYTES_MIN, Operation,
    ParseRepairError, ParseShimError, PostError as WorkError, QpState, RcStats, Received, RecvWork,
    Refusals, Remote, Repair, SendWork, ShimSettings, Status, Verb,
};
pub use lacuna_wire::Qpn;
pub use lacuna_wire::rc::{CodeKind, RcInfo, Strength};

/// The UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
/// What InfiniBand knows (volume 1, section 9.2.1).
const FOREIGN_MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// The header of every packet.
const HEADER_BYTES: u64 = 12;

/// What a queue pair is made with. The ends must have the same MTU.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of payload of a full packet: a multiple of 4 from 256 to 4096. The path must pass it.
    pub mtu_bytes: u32,
    /// What is done about lost packets.
    pub repair: Repair,
    /// How long an acknowledgement may take.
    pub ack_timeout: AckTimeout,
    /// Expired timeouts in a row before the queue pair fails, 0 to 7.
    pub retry_count: u8,
    /// Waits for a receive of the peer in a row before the queue pair fails, 0 to 6; 7 is for ever.
    pub rnr_retry_count: u8,
    /// How long the peer is to wait when no receive is posted.
    pub rnr_wait: Duration,
    /// READs and atomic operations that may be open at the peer, at least 1.
    pub reads_max: u8,
    /// READs and atomic operations of the peer that are answered at a time.
    pub answers_max: u8,
    /// Decides how much is sent and how fast. Answers to READs are paced at its rate, but nothing tells it how
    /// they fare: over a path that needs a pace, the end that is read should have `Fixed`.
    pub controller: ControllerConfig,
    /// Where a controller that finds the rate begins: bits per second, headers included.
    pub start_bits_per_s: Option<u64>,
    /// The path's round trip, if it is known from elsewhere: an end that only receives cannot measure it, and
    /// its repair shim waits for so long for what is missing.
    pub rtt: Option<Duration>,
    /// Receives that several queue pairs share; `None` are its own.
    pub receives: Option<Arc<SharedReceives>>,
    /// Where work requests complete to; `None` is a list of its own ([`QueuePair::poll`]). Each work request
    /// takes an entry until its completion was polled, or it has ended without one.
    pub completions: Option<CompletionQueue>,
    /// How packets end: with Lacuna's checksum, or with the ICRC of RDMA, which foreign peers expect. The ends
    /// must have the same. With a context that has a token they are encrypted instead ([`Wire::Sealed`]), which RDMA's
    /// cannot be.
    pub wire: Wire,
    /// Repairs of lost packets below the connection (LoWAR): which go along with what this end sends. Repairs
    /// of the peer are used by default, whatever this end sends.
    pub shim: ShimSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mtu_bytes: 1024,
            repair: Repair::default(),
            ack_timeout: AckTimeout::default(),
            retry_count: 7,
            rnr_retry_count: 7,
            rnr_wait: Duration::from_micros(640),
            reads_max: 16,
            answers_max: 16,
            controller: ControllerConfig::default(),
            start_bits_per_s: None,
            rtt: None,
            receives: None,
            completions: None,
            wire: Wire::default(),
            shim: ShimSettings::default(),
        }
    }
}

/// Why a queue pair could not be made or connected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting cannot be. The caller's fault.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// No repair shim can have the strength. The caller's fault.
    #[error(transparent)]
    Shim(#[from] StrengthError),
    /// The context has no more numbers, or the system refused something.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
    /// The peer's description cannot be read. The peer's fault.
    #[error("the peer's info cannot be read: {0}")]
    Info(#[from] RcInfoError),
    /// The ends were made with different MTUs.
    #[error(
        "the ends do not agree on the MTU: {here} bytes here, {there} at the peer; give both the same"
    )]
    Mtu {
        /// This end's.
        here: u32,
        /// The peer's.
        there: u32,
    },
    /// A foreign peer needs something that this end does not have. The caller's fault.
    #[error("a foreign peer {needs}, not {found}")]
    Foreign {
        /// What it needs.
        needs: &'static str,
        /// What this end has.
        found: String,
    },
    /// Shared receives and their queue pairs have completion queues all, or none has. The caller's fault.
    #[error(
        "shared receives and a queue pair that takes them must both have a completion queue, or neither"
    )]
    Completions,
    /// It is connected already, or closed. The caller's fault.
    #[error("the queue pair is in state {state:?}, it is connected once")]
    State {
        /// Its state.
        state: QpState,
    },
}

/// Why a work request was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// It cannot be, or not in this state. The caller's fault.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The completion queue has no free entry. Trying again helps once completions were polled.
    #[error(transparent)]
    Full(#[from] Full),
}

/// A reliable connection's end. Clones are the same queue pair; it closes with the last of them.
#[derive(Clone)]
pub struct QueuePair {
    owner: Arc<Owner>,
}

struct Owner {
    context: Context,
    shared: Arc<Shared>,
    start_bits_per_s: Option<u64>,
    rtt_ns: Option<u64>,
    shim: ShimSettings,
    wire: Wire,
    /// In its info, if its packets are encrypted.
    nonce: Nonce,
    receives: Option<Arc<SharedReceives>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.context.is_inherited() {
            std::mem::forget(self.shared.clone());
            return;
        }
        // What was posted goes with it. A completion queue is told; else nobody is left to be.
        if let Machine::Rc(qp) = &mut self.shared.lock().machine {
            qp.close();
        }
        self.shared.notify();
        self.context.roster().close(self.shared.number());
    }
}

impl Context {
    /// Makes an end of a reliable connection that is not connected yet. Receives may be posted. Its packets are encrypted
    /// if the context has a token.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn rc_queue_pair(&self, settings: &Settings) -> Result<QueuePair, Error> {
        self.check_process().map_err(QueuePairError::from)?;
        let nonce = self.new_nonce()?;
        let plain = ConnectionConfig { wire: settings.wire, ..ConnectionConfig::default() };
        let plain = plain.secured(nonce.is_some())?;
        plain.check_wire(&self.capabilities())?;
        let seal = plain.wire.seal();
        let keys = Keys::random()?;
        let overhead_bytes = HEADER_BYTES + seal.bytes() as u64 + IP_UDP_BYTES;
        let config = |number: u32| {
            let setup = Setup {
                packet_bytes: u64::from(settings.mtu_bytes) + overhead_bytes,
                seed: keys.qkey.into(),
            };
            let controller = settings.controller.build(setup);
            let rnr_wait_ns = settings.rnr_wait.as_nanos().min(u128::from(u64::MAX)) as u64;
            lacuna_rc::RcConfig {
                first_psn: keys.first_psn,
                repair: settings.repair,
                ack_timeout: settings.ack_timeout,
                retry_count: settings.retry_count,
                rnr_retry_count: settings.rnr_retry_count,
                rnr_timer: lacuna_wire::rc::rnr_timer_of(rnr_wait_ns),
                reads_max: settings.reads_max,
                answers_max: settings.answers_max,
                ..lacuna_rc::RcConfig::new(Qpn::new(number, 0, 0), settings.mtu_bytes, controller)
            }
        };
        config(Qpn::QUEUE_PAIR_MIN).check()?;
        settings.shim.check()?;
        let shares = settings.receives.as_ref();
        if shares.is_some_and(|shared| shared.completes() != settings.completions.is_some()) {
            return Err(Error::Completions);
        }
        let receives = shares.map(|shared| shared.queue().clone()).unwrap_or_default();
        let shared = self.roster().open_sealed(keys.qkey, seal, |number| {
            let qp = lacuna_rc::QueuePair::new(config(number), self.keys().clone(), receives);
            Machine::Rc(Box::new(qp.expect("the same values were checked before")))
        })?;
        if let Some(queue) = &settings.completions {
            shared.set_sink(AnySink::Verbs(VerbSink::new(queue, settings.receives.clone())));
        }
        Ok(QueuePair {
            owner: Arc::new(Owner {
                context: self.clone(),
                shared,
                start_bits_per_s: settings.start_bits_per_s,
                rtt_ns: settings.rtt.map(|rtt| rtt.as_nanos().min(u128::from(u64::MAX)) as u64),
                shim: settings.shim,
                wire: plain.wire,
                nonce,
                receives: settings.receives.clone(),
            }),
        })
    }
}

impl QueuePair {
    /// The bytes to hand to the peer. `advertise` is this host's address as the peer sees it; used when the
    /// context is bound to a wildcard address.
    pub fn info(&self, advertise: IpAddr) -> Vec<u8> {
        self.describe(advertise).emit()
    }

    /// The same as numbers: what a peer that is no Lacuna's has to be told.
    pub fn describe(&self, advertise: IpAddr) -> RcInfo {
        let bound = self.owner.context.addresses()[0];
        let ip = if bound.ip().is_unspecified() { advertise } else { bound.ip() };
        let address = SocketAddr::new(ip, bound.port());
        self.with(|qp| {
            let lacuna_rc::Peer { number, first_psn, answers_max } = qp.describe();
            let (mtu_bytes, nonce) = (qp.config().mtu_bytes, self.owner.nonce);
            RcInfo { number, first_psn, mtu_bytes, answers_max, address, nonce }
        })
    }

    /// Connects to the peer that made `peer_info`. Both ends call it, once. Requests that arrive before are
    /// dropped and sent again by the peer.
    ///
    /// # Errors
    /// See [`Error`]; nothing changes then.
    pub fn connect(&self, peer_info: &[u8]) -> Result<(), Error> {
        let info = RcInfo::parse(peer_info)?;
        let address = info.address;
        self.connect_to(info, address, false)
    }

    /// As [`QueuePair::connect`], to a peer that is no Lacuna's, such as a card or a kernel's RoCE: its queue
    /// pair, brought to RTR with what [`QueuePair::describe`] says, and its address, with port 4791. This end
    /// needs [`Wire::Rdma`], one of InfiniBand's MTUs, and a context that is bound to one address and port
    /// 4791, and encrypts nothing ([`Security::Insecure`](crate::Security::Insecure)), for cards do not. Over IPv4 half of a packet's ICRC is checked ([`RcStats::half_checked_packets`]). Keys of this
    /// end cover addresses from 0 on; those of the peer have its virtual addresses.
    ///
    /// # Errors
    /// As [`QueuePair::connect`], and [`Error::Foreign`].
    pub fn connect_foreign(&self, peer: RcInfo) -> Result<(), Error> {
        let foreign = |needs, found: &dyn fmt::Display| {
            Err(Error::Foreign { needs, found: found.to_string() })
        };
        let bound = self.owner.context.addresses()[0];
        if self.owner.wire != Wire::Rdma {
            return foreign("needs wire rdma", &self.owner.wire);
        }
        if !FOREIGN_MTUS.contains(&peer.mtu_bytes) {
            return foreign("has an MTU of 256, 512, 1024, 2048 or 4096", &peer.mtu_bytes);
        }
        if bound.port() != ROCE_PORT {
            return foreign("sends to port 4791", &bound.port());
        }
        if bound.ip().is_unspecified() {
            return foreign("needs this end bound to one address", &bound.ip());
        }
        let address = peer.address;
        self.connect_to(peer, address, true)
    }

    /// As [`QueuePair::connect`], to a peer whose host is known from elsewhere: of `peer_info` only the port
    /// counts, of `host` all but the port.
    ///
    /// # Errors
    /// As [`QueuePair::connect`].
    pub fn connect_at(&self, peer_info: &[u8], mut host: SocketAddr) -> Result<(), Error> {
        let info = RcInfo::parse(peer_info)?;
        host.set_port(info.address.port());
        self.connect_to(info, host, false)
    }

    fn connect_to(&self, info: RcInfo, address: SocketAddr, is_foreign: bool) -> Result<(), Error> {
        let own = self.describe(Ipv4Addr::UNSPECIFIED.into());
        let association = self.owner.context.agree(
            "reliable connection",
            (own.nonce, &own.agreed_bytes()),
            (info.nonce, &info.agreed_bytes()),
            &[crate::address::canonical(address)],
        )?;
        let lane = {
            let mut state = self.owner.shared.lock();
            let Machine::Rc(qp) = &mut state.machine else { unreachable!("made so") };
            let (here, there) = (qp.config().mtu_bytes, info.mtu_bytes);
            if here != there {
                return Err(Error::Mtu { here, there });
            }
            let RcInfo { number, first_psn, answers_max, .. } = info;
            let peer = lacuna_rc::Peer { number, first_psn, answers_max };
            let responder = qp.accept(peer).ok_or(Error::State { state: qp.state() })?;
            let lane = lacuna_rc::Lane::new(qp.config(), self.owner.shim, responder)?;
            if let Some(association) = association {
                self.owner.shared.books().secure(association);
            }
            let rate = self.owner.start_bits_per_s;
            let rate = rate.map(|rate_bits_per_s| StartRate { rate_bits_per_s });
            qp.start_at(self.owner.context.clock().now_ns(), rate, self.owner.rtt_ns);
            qp.start();
            if let Some(known) = state.addresses.iter_mut().next() {
                *known = Some(crate::address::canonical(address));
            }
            lane
        };
        let lane = RcLane::new(0, lane);
        let lane = Lane::Rc(Box::new(if is_foreign { lane.of_foreign_peer() } else { lane }));
        self.owner.context.roster().hand_out(self.owner.shared.number(), [lane]);
        self.owner.shared.kick();
        Ok(())
    }

    fn with<R>(&self, each: impl FnOnce(&mut lacuna_rc::QueuePair) -> R) -> R {
        match &mut self.owner.shared.lock().machine {
            Machine::Rc(qp) => each(qp),
            _ => unreachable!("made so"),
        }
    }

    /// How its packets end; [`Wire::Sealed`] if they are encrypted.
    pub fn wire(&self) -> Wire {
        self.owner.wire
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.owner.context
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.with(|qp| qp.state())
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> RcStats {
        self.with(|qp| qp.stats())
    }

    /// Posts a work request. It is done in the order of posting.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then.
    pub fn post_send(&self, work: SendWork) -> Result<(), PostError> {
        let shared = &self.owner.shared;
        let post = || Ok::<(), PostError>(self.with(|qp| qp.post_send(work))?);
        match shared.verb_sink() {
            Some(sink) => sink.post_send(shared, post),
            None => post(),
        }?;
        shared.kick();
        Ok(())
    }

    /// Posts a receive, for the next SEND or WRITE with immediate; with shared receives one of those
    /// ([`SharedReceives::post`]).
    ///
    /// # Errors
    /// When the queue pair has failed or is closed, or when the completion queue has no free entry.
    pub fn post_recv(&self, work: RecvWork) -> Result<(), PostError> {
        if let Some(shared) = &self.owner.receives {
            return Ok(shared.post(work)?);
        }
        let post = || Ok::<(), PostError>(self.with(|qp| qp.post_recv(work))?);
        match self.owner.shared.verb_sink() {
            Some(sink) => sink.post_recv(post),
            None => post(),
        }
    }

    /// The next completion, if there is one. None with a completion queue, where they are.
    pub fn poll(&self) -> Option<Done> {
        self.with(lacuna_rc::QueuePair::poll_done)
    }

    /// Waits for the next completion, at most so long. With a completion queue it comes there.
    pub fn wait(&self, timeout: Duration) -> Option<Done> {
        let Owner { context, shared, .. } = &*self.owner;
        let clock = context.clock();
        let deadline_ns = after(clock.now_ns(), timeout);
        let mut state = shared.lock();
        loop {
            if let Machine::Rc(qp) = &mut state.machine
                && let Some(done) = qp.poll_done()
            {
                return Some(done);
            }
            let left = clock.until(deadline_ns);
            if left.is_zero() {
                return None;
            }
            if context.is_manual() {
                drop(state);
                context.progress_within(left.min(SLEEP_MAX));
                state = shared.lock();
            } else {
                state = shared.wait(state, left.min(SLEEP_MAX));
            }
        }
    }

    /// Begins no new request (SQD); those that have begun are finished.
    pub fn drain(&self) {
        self.with(lacuna_rc::QueuePair::drain);
    }

    /// Whether it drains and everything that had begun is done.
    pub fn is_drained(&self) -> bool {
        self.with(|qp| qp.is_drained())
    }

    /// Begins requests again after [`QueuePair::drain`].
    pub fn resume(&self) {
        self.with(lacuna_rc::QueuePair::resume);
        self.owner.shared.kick();
    }

    /// Closes it: everything that was posted completes, flushed.
    pub fn close(&self) {
        self.with(lacuna_rc::QueuePair::close);
        self.owner.shared.notify();
        self.owner.shared.kick();
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.owner.shared.number();
        f.debug_struct("QueuePair").field("number", &number).finish_non_exhaustive()
    }
}
