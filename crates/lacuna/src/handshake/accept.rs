//! The accepting end of the handshake: reads a peer's hello, makes the queue pair, and sends the
//! answer.

use super::pump::Pump;
use super::reservation::{Reservation, Terms};
use super::{Agreed, Siblings, header_bytes, host_of};
use crate::clock::Clock;
use crate::config::{Chosen, ConnectionConfig};
use crate::context::Context;
use crate::control::Control;
use crate::error::{ConnectError, ENCRYPTED_ONLY};
use crate::queue_pair::{QueuePair, check_config};
use crate::readiness;
use crate::reuse::Origin;
use lacuna_datapath::tcp_path;
use lacuna_place::geometry::Geometry;
use lacuna_proto::handshake::{
    Accept, AcceptStep, Hello, HostLimits, Role, Rtt, Sibling, Welcoming, Wire, addresses, info_of,
};
use lacuna_secure::End as SecureEnd;
use lacuna_wire::Seal;
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::time::Duration;

/// A peer that has connected and whose hello is being read.
#[derive(Debug)]
pub(crate) struct Incoming {
    pump: Pump,
    machine: Accept,
    /// The hello, or how it failed, once it is complete.
    asked: Option<AcceptStep>,
}

/// An answer to a peer that is not sent completely.
#[derive(Debug)]
pub(crate) struct Answer {
    pump: Pump,
    machine: Accept,
    /// The accepted connection; `None` if the peer was refused.
    accepted: Option<Accepted>,
}

/// An accepted connection without its control connection, which still carries the answer.
#[derive(Debug)]
struct Accepted {
    queue_pair: QueuePair,
    siblings: Siblings,
    config: ConnectionConfig,
    chosen: Chosen,
    origin: Option<Origin>,
}

impl Incoming {
    /// Begins to read a hello that must be complete within `timeout`.
    pub(crate) fn new(
        clock: Clock,
        control: Control,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let machine = Accept::new(clock.end_of(timeout));
        Ok(Self { pump: Pump::new(control)?, machine, asked: None })
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.pump.peer()
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.pump.stream()
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.machine.deadline_ns()
    }

    /// Reads what has arrived, without waiting. `true` once the hello is complete or has failed.
    pub(crate) fn read_hello(&mut self, now_ns: u64) -> bool {
        if !self.machine.has_read_hello() {
            self.pump.run(now_ns, &mut self.machine);
        }
        if self.machine.deadline_ns() <= now_ns {
            self.machine.on_timeout(now_ns);
        }
        if self.asked.is_none() {
            self.asked = self.machine.poll();
        }
        self.machine.has_read_hello()
    }

    /// `self` if the hello is complete, else its error.
    pub(crate) fn into_result(mut self) -> Result<Self, ConnectError> {
        match self.asked.take() {
            Some(AcceptStep::Failed(error)) => Err(self.pump.accept_error(error)),
            asked => Ok(Self { asked, ..self }),
        }
    }

    /// Whether the peer reset the connection before it sent anything.
    pub(crate) fn was_abandoned(&self) -> bool {
        !self.machine.has_begun() && self.pump.is_reset()
    }

    /// Answers the hello. `config` has this end's own choices (rate, deadlines, timeouts, an MTU if
    /// given); mode and geometry are the connecting end's. `takes` sees the connecting end's tag
    /// and may refuse it with a reason.
    pub(crate) fn answer(
        mut self,
        context: &Context,
        config: &ConnectionConfig,
        origin: Origin,
        takes: impl FnOnce(u64) -> Result<(), String>,
    ) -> Result<Answer, ConnectError> {
        let hello = match self.asked.take() {
            Some(AcceptStep::Decide(hello)) => hello,
            Some(AcceptStep::Failed(error)) => return Err(self.pump.accept_error(error)),
            // Of another version, which the machine has already answered.
            Some(AcceptStep::Welcomed) | None => {
                return Ok(Answer { pump: self.pump, machine: self.machine, accepted: None });
            }
        };
        let accepted = match self.negotiate(context, &hello, config, takes) {
            Ok((config, geometry, peer_host)) => {
                Some(self.accept(context, &hello, config, geometry, peer_host, origin)?)
            }
            Err(reason) => {
                self.machine.refuse(reason);
                None
            }
        };
        Ok(Answer { pump: self.pump, machine: self.machine, accepted })
    }

    fn negotiate(
        &self,
        context: &Context,
        hello: &Hello,
        config: &ConnectionConfig,
        takes: impl FnOnce(u64) -> Result<(), String>,
    ) -> Result<(ConnectionConfig, Geometry, SocketAddr), String> {
        let peer_host = host_of(self.pump.peer(), context)?;
        let host = HostLimits {
            mtu_bytes: config.mtu_bytes,
            packet_bytes: tcp_path(self.pump.stream()).map(|path| path.packet_bytes),
            header_bytes: header_bytes(peer_host),
            channels: context.config().channels,
        };
        let (parameters, geometry) = hello.negotiate(&host)?;
        let is_secure = self.pump.is_secure();
        if (parameters.wire == Wire::Sealed) != is_secure {
            return Err("packets are encrypted just if the control connection is".to_owned());
        }
        if !is_secure && !context.policy().allows_clear(self.pump.peer().ip()) {
            let what = match context.policy().encrypts_all() {
                true => ENCRYPTED_ONLY,
                false => "it takes connections in clear from its own host only",
            };
            return Err(format!("{what}: both ends need a token or keys"));
        }
        let config = config.with(&parameters);
        check_config(&config).map_err(|error| error.to_string())?;
        config.check_wire(&context.capabilities()).map_err(|error| error.to_string())?;
        hello.check_path(self.pump.ends())?;
        // Last, because the application may allocate something for a peer that it accepts.
        takes(config.tag)?;
        Ok((config, geometry, peer_host))
    }

    /// Makes the queue pair before the welcome is sent, so that the peer's first packets find it.
    fn accept(
        &mut self,
        context: &Context,
        hello: &Hello,
        config: ConnectionConfig,
        geometry: Geometry,
        peer_host: SocketAddr,
        origin: Origin,
    ) -> Result<Accepted, ConnectError> {
        let failed =
            |source| ConnectError::Exchange { peer: peer_host, doing: "agreeing on keys", source };
        let secret = self.pump.control().secret().map_err(failed)?;
        let seal = if secret.is_some() { Seal::Aead } else { Seal::default() };
        let reserve = |role: Option<Role>| {
            let reserved = Reservation::new(context, seal)?;
            if let Some(secret) = &secret {
                reserved.secure(secret, SecureEnd::Accepting, role);
            }
            Ok::<_, ConnectError>(reserved)
        };
        let reservation = reserve(None)?;
        let ports = hello.end.ports.iter().copied().take(usize::from(geometry.channels()));
        // A control connection is reused only with threads and `poll`: without threads nobody reads
        // the goodbye while this end waits for a hello, and without `poll` nobody sees the next
        // hello (`accept_queue.rs`).
        let keeps = hello.keeps && cfg!(unix) && !context.is_manual();
        let tcp = tcp_path(self.pump.stream());
        let terms = Terms {
            config,
            geometry,
            peer: hello.end.peer(),
            reports: hello.reports(),
            addresses: addresses(peer_host, ports),
            rtt: tcp.map(|path| Rtt::Guessed(path.rtt_ns, path.rtt_ns)),
            probe_timeout_ns: self.machine.probe_timeout_ns(context.clock().now_ns()),
        };
        let (mut made, mut siblings) = (Siblings::default(), Vec::new());
        for Sibling { role, peer } in hello.siblings() {
            let reserved = reserve(Some(role))?;
            let here = reserved.sibling(role);
            if let Some(sibling) = reserved.into_sibling(role, &terms, peer) {
                made.0.push((role, sibling));
                siblings.push(here);
            }
        }
        let (queue_pair, mut chosen) = reservation.into_queue_pair(terms);
        chosen.cipher = secret.map(|(cipher, _)| cipher.name());
        let local = context.addresses()[..usize::from(geometry.channels())].to_vec();
        let info = queue_pair.owner.shared.with_qp(|qp| info_of(qp.config(), local));
        let is_mtu_given = config.mtu_bytes.is_some();
        let info = info.emit();
        self.machine.welcome(Welcoming { is_mtu_given, info, keeps, siblings });
        Ok(Accepted { queue_pair, siblings: made, config, chosen, origin: keeps.then_some(origin) })
    }
}

impl Answer {
    /// Sends what the socket takes now. `Break` once all is sent, with the outcome.
    pub(crate) fn drive(
        mut self,
        context: &Context,
    ) -> ControlFlow<Result<Box<Agreed>, ConnectError>, Self> {
        let now_ns = context.clock().now_ns();
        self.pump.run(now_ns, &mut self.machine);
        self.machine.on_timeout(now_ns);
        match self.machine.poll() {
            None => ControlFlow::Continue(self),
            Some(AcceptStep::Failed(error)) => {
                ControlFlow::Break(Err(self.pump.accept_error(error)))
            }
            Some(_) => {
                // Without threads, the first packets leave now or in the application's next call.
                context.progress();
                let Accepted { queue_pair, siblings, config, chosen, origin } =
                    self.accepted.expect("a peer that was welcomed has a queue pair");
                let (peer, control) = self.pump.into_parts();
                let agreed = Agreed { queue_pair, siblings, config, chosen, peer, control, origin };
                ControlFlow::Break(Ok(Box::new(agreed)))
            }
        }
    }

    /// Waits until the answer is sent completely.
    pub(crate) fn finish(mut self, context: &Context) -> Result<Box<Agreed>, ConnectError> {
        loop {
            self = match self.drive(context) {
                ControlFlow::Break(done) => return done,
                ControlFlow::Continue(answer) => answer,
            };
            let limit = Some(context.clock().until(self.machine.deadline_ns()));
            readiness::wait([self.pump.interest(&self.machine)], limit)
                .map_err(|source| self.pump.failed(self.machine.doing(), source))?;
        }
    }
}
