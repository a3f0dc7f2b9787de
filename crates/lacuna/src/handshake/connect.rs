//! The connecting end of the handshake: a control connection, a reserved queue pair, and the state
//! machine that decides what to do with them.

use super::pump::{Ended, Pump};
use super::reservation::{Reservation, Terms};
use super::{Agreed, Siblings, host_of};
use crate::config::ConnectionConfig;
use crate::context::Context;
use crate::control::Control;
use crate::error::{ConnectError, QueuePairError};
use crate::queue_pair::check_config;
use crate::readiness;
use crate::reuse::{Origin, Pooled};
use lacuna_datapath::tcp_path;
use lacuna_engine::Machine;
use lacuna_proto::handshake::{
    self as words, Connect, ConnectStep, Offer, ProbePlan, Role, addresses,
};
use lacuna_proto::probe::{Prober, mtu_candidates};
use lacuna_secure::{Cipher, End as SecureEnd};
use lacuna_wire::Seal;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::time::Duration;

/// The control connection to use.
pub(crate) enum ControlStream {
    New(TcpStream),
    /// From the pool.
    Pooled(Pooled),
}

/// Outcome of a handshake.
pub(crate) enum Connected {
    /// It is done.
    Agreed(Box<Agreed>),
    /// Packets of the agreed size do not pass; those with this payload do. Repeat the handshake
    /// with it.
    Smaller(u32),
    /// The pooled control connection is dead.
    Stale(ConnectError),
}

/// A handshake under way.
pub(crate) struct Exchange {
    config: ConnectionConfig,
    peer_host: SocketAddr,
    pump: Pump,
    machine: Connect,
    reservation: Reservation,
    /// Further queue pairs that are wanted.
    siblings: Vec<(Role, Reservation)>,
    /// Called by a worker when the prober has an answer.
    on_probed: Option<Box<dyn Fn() + Send + Sync>>,
    /// The ends did not know each other yet, so the queue pairs have no keys.
    needs_keys: bool,
}

impl Exchange {
    /// Reserves a queue pair and prepares the hello. The handshake ends within `left`. Callers that
    /// do not block in [`Exchange::wait`] give `on_probed`, which is called when it is time to
    /// drive.
    pub(crate) fn new(
        context: &Context,
        stream: ControlStream,
        config: ConnectionConfig,
        left: Duration,
        on_probed: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Result<Self, ConnectError> {
        // Refuse bad settings before the peer hears of them.
        check_config(&config)?;
        let (control, goodbye) = match stream {
            ControlStream::New(stream) => {
                let unreachable = |source| ConnectError::unreachable(&"the peer", source);
                let peer = stream.peer_addr().map_err(unreachable)?;
                let trust = context.policy().towards(peer.ip());
                let trust = trust.map_err(|_| ConnectError::NobodyTrusted { peer })?;
                (Control::connecting(stream, trust).map_err(unreachable)?, None)
            }
            ControlStream::Pooled(pooled) => (pooled.control, Some(pooled.goodbye)),
        };
        let config = config.secured(control.is_secure())?;
        let seal = config.wire.seal();
        let mtu_bytes = config.mtu_bytes.unwrap_or(mtu_candidates(seal)[0]);
        config.geometry(mtu_bytes, context.config().channels).map_err(QueuePairError::from)?;
        let pump = Pump::new(control)?;
        let peer_host = host_of(pump.peer(), context).map_err(|why| ConnectError::Unreachable {
            peer: pump.peer().to_string(),
            source: io::Error::new(io::ErrorKind::Unsupported, why),
        })?;
        let own_seal = if seal.is_secure() { seal } else { Seal::default() };
        let reservation = Reservation::new(context, own_seal)?;
        let reserve = |role| Ok((role, Reservation::new(context, own_seal)?));
        let siblings: Result<Vec<_>, ConnectError> = config.roles().map(reserve).collect();
        let siblings = siblings?;
        let offered = siblings.iter().map(|(role, reserved)| reserved.sibling(*role));
        let tcp = tcp_path(pump.stream());
        let offer = Offer {
            parameters: config.parameters(),
            end: reservation.end(),
            packet_bytes: tcp.map(|path| path.packet_bytes),
            // Without the kernel's word of what the peer's TCP acknowledged, a dead peer cannot be
            // told from a busy one.
            keeps: tcp.is_some(),
            reports: config.controller().report_policy().to_peer(),
            siblings: offered.collect(),
            ends: pump.ends(),
        };
        let reused = goodbye.map(|goodbye| (goodbye, tcp.map_or(0, |path| path.rtt_ns)));
        let now_ns = context.clock().now_ns();
        let deadline_ns = context.clock().end_of(left);
        let machine = Connect::new(now_ns, offer, deadline_ns, reused);
        let needs_keys = seal.is_secure();
        Ok(Self { config, peer_host, pump, machine, reservation, siblings, on_probed, needs_keys })
    }

    /// Continues without waiting. `Break` once it has ended, with the outcome.
    pub(crate) fn drive(
        mut self: Box<Self>,
        context: &Context,
    ) -> ControlFlow<Result<Connected, ConnectError>, Box<Self>> {
        loop {
            let now_ns = context.clock().now_ns();
            self.pump.run(now_ns, &mut self.machine);
            if let Err(error) = self.set_keys(now_ns) {
                self.pump.broken(now_ns, error, &mut self.machine);
            }
            if self.machine.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
                self.machine.on_timeout(now_ns);
            }
            self.look_at_prober(now_ns);
            if !self.machine.poll_bytes().is_empty() {
                // A goodbye may be waiting: the path was too narrow.
                self.pump.run(now_ns, &mut self.machine);
            }
            let Some(step) = self.machine.poll() else { return ControlFlow::Continue(self) };
            match step {
                ConnectStep::CheckDelivery => {
                    let path = tcp_path(self.pump.stream());
                    self.machine.on_delivery(path.is_some_and(|path| path.is_acknowledged));
                }
                ConnectStep::Probe(plan) => self.probe(context, plan),
                end => return ControlFlow::Break(self.end(context, end)),
            }
        }
    }

    /// Gives the queue pairs their keys, once the ends know each other: before the hello is sent, so that the peer's
    /// packets can be read whenever they come.
    fn set_keys(&mut self, now_ns: u64) -> io::Result<()> {
        if !self.needs_keys || self.pump.control().is_handshaking() {
            return Ok(());
        }
        if let Some(secret) = self.pump.control().secret()? {
            self.needs_keys = false;
            self.machine.on_authenticated(now_ns);
            self.reservation.secure(&secret, SecureEnd::Connecting, None);
            for (role, reserved) in &self.siblings {
                reserved.secure(&secret, SecureEnd::Connecting, Some(*role));
            }
        }
        Ok(())
    }

    /// Time until `drive` must be called again.
    pub(crate) fn due_in(&self, context: &Context) -> Duration {
        context.clock().until(self.machine.poll_timeout().unwrap_or(u64::MAX))
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.pump.stream()
    }

    /// Waits until `drive` can make progress, at most `limit`.
    pub(crate) fn wait(&mut self, context: &Context, limit: Duration) -> io::Result<()> {
        let limit = limit.min(self.due_in(context));
        if !self.machine.is_probing() {
            readiness::wait([self.pump.interest(&self.machine)], Some(limit))?;
        } else if context.is_manual() {
            context.progress_within(limit);
        } else {
            let shared = self.reservation.shared();
            let state = shared.lock();
            // Under the lock, so that no answer slips in between looking and waiting.
            if let Machine::Probing(prober, _) = &state.machine {
                self.machine.on_probe(context.clock().now_ns(), prober);
            }
            if self.machine.is_probing() {
                drop(shared.wait(state, limit));
            }
        }
        Ok(())
    }

    /// Has the reserved queue pair probe the channels.
    fn probe(&mut self, context: &Context, plan: ProbePlan) {
        let ProbePlan { peer, ports, seal, candidates, probe_timeout_ns } = plan;
        let (shared, now_ns) = (self.reservation.shared(), context.clock().now_ns());
        if let Some(on_probed) = self.on_probed.take() {
            shared.on_probed(on_probed);
        }
        let channels = ports.len() as u8;
        let (local, there) = (self.reservation.local(), (peer.queue_pair, peer.qkey));
        let sizes = (seal, candidates);
        let prober = Prober::new(now_ns, local, there, channels, sizes, probe_timeout_ns);
        let is_settled = {
            let mut state = shared.lock();
            state.addresses = addresses(self.peer_host, ports.into_iter()).into_iter().collect();
            state.machine.probe(prober);
            let tcp_rtt_ns = tcp_path(self.pump.stream()).map(|path| path.rtt_ns);
            self.machine.on_probing(now_ns, tcp_rtt_ns);
            if let Machine::Probing(prober, _) = &state.machine {
                self.machine.on_probe(now_ns, prober);
            }
            !self.machine.is_probing()
        };
        // Mostly the peer's own first packets have already answered; if not, the workers send
        // probes.
        if !is_settled {
            shared.kick();
        }
    }

    fn look_at_prober(&mut self, now_ns: u64) {
        if !self.machine.is_probing() {
            return;
        }
        if let Machine::Probing(prober, _) = &self.reservation.shared().lock().machine {
            self.machine.on_probe(now_ns, prober);
        }
        if !self.machine.is_probing() {
            return;
        }
        match self.pump.ended() {
            None => {}
            Some(Ended::Broken) => {
                let error = io::ErrorKind::UnexpectedEof.into();
                self.pump.broken(now_ns, error, &mut self.machine);
            }
            Some(Ended::InGoodOrder) => self.machine.on_goodbye(),
        }
    }

    fn end(self, context: &Context, step: ConnectStep) -> Result<Connected, ConnectError> {
        let Self { config, peer_host, mut pump, reservation, siblings: reserved, .. } = self;
        match step {
            ConnectStep::Connected(agreed) => {
                let words::Agreed {
                    parameters,
                    geometry,
                    peer,
                    reports,
                    siblings,
                    ports,
                    rtt,
                    keeps,
                    probe_timeout_ns,
                } = *agreed;
                let config = config.with(&parameters);
                let addresses = addresses(peer_host, ports.into_iter());
                let rtt = Some(rtt);
                let terms =
                    Terms { config, geometry, peer, reports, addresses, rtt, probe_timeout_ns };
                let made = reserved.into_iter().filter_map(|(role, reserved)| {
                    let there = siblings.iter().find(|sibling| sibling.role == role)?;
                    Some((role, reserved.into_sibling(role, &terms, there.peer)?))
                });
                let siblings = Siblings(made.collect());
                let (queue_pair, mut chosen) = reservation.into_queue_pair(terms);
                chosen.cipher = pump.control().cipher().map(Cipher::name);
                let origin =
                    keeps.then(|| Origin::Pool(context.control_pool().clone(), pump.peer()));
                let (peer, control) = pump.into_parts();
                let agreed = Agreed { queue_pair, siblings, config, chosen, peer, control, origin };
                Ok(Connected::Agreed(Box::new(agreed)))
            }
            ConnectStep::Reconnect { mtu_bytes } => {
                let peer = pump.peer();
                tracing::info!(%peer, mtu_bytes, "the path takes smaller packets than TCP knows");
                pump.close_in_good_order();
                Ok(Connected::Smaller(mtu_bytes))
            }
            ConnectStep::Stale(error) => {
                // Other pooled streams to this peer are probably dead, too.
                context.control_pool().evict(pump.peer());
                let error = pump.connect_error(error);
                pump.abandon();
                Ok(Connected::Stale(error))
            }
            ConnectStep::Failed(error) => Err(pump.connect_error(error)),
            ConnectStep::CheckDelivery | ConnectStep::Probe(_) => unreachable!("these are no ends"),
        }
    }
}
