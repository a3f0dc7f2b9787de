//! Moves bytes between a control connection and a state machine of the handshake, without waiting,
//! and translates failures to [`ConnectError`].

use crate::address::canonical;
use crate::control::Control;
use crate::error::{ConnectError, QueuePairError};
use crate::readiness::{self, For};
use lacuna_datapath::set_tcp_rto_min;
use lacuna_proto::handshake::{self as words, Accept, Connect, MessageError, WireEnds};
use lacuna_trust::SessionError;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Least retransmission timeout of the control connection, on top of the round trip: each end
/// answers at once, so a later answer is a loss. The value is QUIC's default `max_ack_delay` (RFC
/// 9000, 18.2). Measured: M-handshake-1.
const RTO_MIN: Duration = Duration::from_millis(25);
/// Size of the read buffer: most handshake messages fit.
const READ_BYTES: usize = 2 << 10;

/// A state machine of the handshake: [`Connect`] or [`Accept`].
pub(super) trait HandshakeMachine {
    fn wanted(&self) -> usize;
    fn on_bytes(&mut self, now_ns: u64, bytes: &[u8]) -> usize;
    fn on_broken(&mut self, now_ns: u64);
    fn poll_bytes(&self) -> &[u8];
    fn on_sent(&mut self, count: usize);
}

/// A control connection during the handshake.
#[derive(Debug)]
pub(super) struct Pump {
    control: Control,
    /// Bytes of the machine that a session has taken, and the stream not wholly.
    taken: usize,
    peer: SocketAddr,
    /// The error that ended it, until it is reported.
    broken: Option<io::Error>,
}

impl Pump {
    /// Takes over the control connection and makes it non-blocking.
    pub(super) fn new(control: Control) -> Result<Self, ConnectError> {
        let stream = control.stream();
        #[cfg(unix)]
        lacuna_datapath::process::descriptors::note(stream);
        let peer = stream.peer_addr();
        let peer = peer
            .map(canonical)
            .map_err(|source| ConnectError::Unreachable { peer: "the peer".to_owned(), source })?;
        let set = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
        // Where the system cannot set it, connecting takes longer after a loss.
        set_tcp_rto_min(stream, RTO_MIN);
        let pump = Self { control, taken: 0, peer, broken: None };
        set.map_err(|source| pump.failed("starting", source))?;
        Ok(pump)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        self.control.stream()
    }

    pub(super) fn is_secure(&self) -> bool {
        self.control.is_secure()
    }

    pub(super) fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The control connection's addresses, if the system says its own.
    pub(super) fn ends(&self) -> Option<WireEnds> {
        let here = canonical(self.stream().local_addr().ok()?);
        Some(WireEnds { here, peer: self.peer })
    }

    pub(super) fn into_parts(self) -> (SocketAddr, Control) {
        (self.peer, self.control)
    }

    /// Writes and reads as much as is possible now.
    pub(super) fn run(&mut self, now_ns: u64, machine: &mut impl HandshakeMachine) {
        let moved = self
            .write(machine)
            .and_then(|()| self.read(now_ns, machine))
            .and_then(|()| self.write(machine));
        if let Err(error) = moved {
            self.broken(now_ns, error, machine);
        }
    }

    /// Reports a failure of the control connection to the machine.
    pub(super) fn broken(
        &mut self,
        now_ns: u64,
        error: io::Error,
        machine: &mut impl HandshakeMachine,
    ) {
        self.broken = Some(error);
        machine.on_broken(now_ns);
    }

    fn write(&mut self, machine: &mut impl HandshakeMachine) -> io::Result<()> {
        loop {
            // What a session has taken is sent when the stream has it.
            self.control.flush()?;
            if !self.control.wants_write() && self.taken > 0 {
                machine.on_sent(std::mem::take(&mut self.taken));
            }
            let bytes = &machine.poll_bytes()[self.taken..];
            if bytes.is_empty() {
                return Ok(());
            }
            match self.control.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.taken += count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn read(&mut self, now_ns: u64, machine: &mut impl HandshakeMachine) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        while machine.wanted() > 0 {
            let bytes = &mut bytes[..machine.wanted().min(READ_BYTES)];
            match self.control.read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    machine.on_bytes(now_ns, &bytes[..count]);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// The event that the machine waits for: readable, or writable while it has bytes to send.
    pub(super) fn interest(&self, machine: &impl HandshakeMachine) -> (readiness::Source<'_>, For) {
        let waits_for_peer = self.control.is_handshaking() || machine.poll_bytes().is_empty();
        let what = match self.control.wants_write() {
            false if waits_for_peer => For::Reading,
            _ => For::Writing,
        };
        (readiness::source(self.stream()), what)
    }

    /// Whether and how the peer has ended the control connection behind its welcome. Does not wait.
    pub(super) fn ended(&mut self) -> Option<Ended> {
        match self.control.look() {
            Ok(0) => Some(Ended::Broken),
            // Nothing but a goodbye follows the welcome.
            Ok(_) => Some(Ended::InGoodOrder),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => None,
                _ => Some(Ended::Broken),
            },
        }
    }

    /// Closes the sending direction behind this end's goodbye.
    pub(super) fn close_in_good_order(&self) {
        let _ = self.stream().shutdown(Shutdown::Write);
    }

    /// Closes with a reset, so that bytes which have not arrived are discarded: another hello
    /// follows on a new stream, and the listener must not see two.
    pub(super) fn abandon(self) {
        #[cfg(unix)]
        {
            let now = Some(Duration::ZERO);
            let _ = rustix::net::sockopt::set_socket_linger(self.stream(), now);
        }
    }

    /// Whether the peer has reset the stream.
    pub(super) fn is_reset(&self) -> bool {
        let kind = self.broken.as_ref().map(io::Error::kind);
        kind == Some(io::ErrorKind::ConnectionReset)
    }

    pub(super) fn failed(&self, doing: &'static str, source: io::Error) -> ConnectError {
        let found = source.get_ref().and_then(|found| found.downcast_ref::<SessionError>());
        match found {
            Some(SessionError::Busy) => {
                let reason = "it has no room for further peers now".to_owned();
                return ConnectError::Busy { peer: self.peer, reason };
            }
            Some(SessionError::CodeWanted) => return ConnectError::CodeWanted { peer: self.peer },
            Some(found) => {
                return ConnectError::Secure { peer: self.peer, why: found.to_string() };
            }
            None => {}
        }
        let source = match source.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
                if self.control.is_handshaking() =>
            {
                let why = "the peer closed the connection before the ends knew each other: it may take none that are encrypted";
                return ConnectError::Secure { peer: self.peer, why: why.to_owned() };
            }
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection")
            }
            _ => source,
        };
        ConnectError::Exchange { peer: self.peer, doing, source }
    }

    pub(super) fn timed_out(&self, doing: &'static str) -> ConnectError {
        self.failed(doing, io::Error::new(io::ErrorKind::TimedOut, "timed out"))
    }

    /// The error of a control connection that failed, or carried invalid data.
    pub(super) fn broken_error(&mut self, doing: &'static str) -> ConnectError {
        let source = self.broken.take();
        self.failed(doing, source.unwrap_or_else(|| io::ErrorKind::InvalidData.into()))
    }

    pub(super) fn message_error(&self, error: MessageError) -> ConnectError {
        match error {
            MessageError::NotLacuna(why) => ConnectError::NotLacuna { peer: self.peer, why },
            MessageError::Version { there } => {
                ConnectError::Version { peer: self.peer, here: words::PROTOCOL_VERSION, there }
            }
        }
    }

    /// Translates an error of the connecting end.
    pub(super) fn connect_error(&mut self, error: words::ConnectError) -> ConnectError {
        use words::ConnectError as Error;
        let peer = self.peer;
        match error {
            Error::TimedOut { doing } => self.timed_out(doing),
            Error::Broken { doing } => self.broken_error(doing),
            Error::Message(error) => self.message_error(error),
            Error::Refused(reason) => ConnectError::Refused { peer, reason },
            Error::Busy(reason) => ConnectError::Busy { peer, reason },
            Error::Info(error) => QueuePairError::from(error).into(),
            Error::Geometry(error) => QueuePairError::from(error).into(),
            Error::Disagreement(error) => QueuePairError::from(error).into(),
            Error::NoUdp { answered, channels, waited_ns } => {
                let waited = Duration::from_nanos(waited_ns);
                ConnectError::NoUdp { peer, answered, channels, waited }
            }
        }
    }

    /// Translates an error of the accepting end.
    pub(super) fn accept_error(&mut self, error: words::AcceptError) -> ConnectError {
        use words::AcceptError as Error;
        match error {
            Error::TimedOut { doing } => self.timed_out(doing),
            Error::Broken { doing } => self.broken_error(doing),
            Error::Message(error) => self.message_error(error),
            Error::Unacceptable(reason) => ConnectError::Unacceptable { peer: self.peer, reason },
        }
    }
}

/// How the peer ended the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// With a goodbye.
    InGoodOrder,
    /// Without one.
    Broken,
}

impl HandshakeMachine for Connect {
    fn wanted(&self) -> usize {
        self.wanted()
    }

    fn on_bytes(&mut self, now_ns: u64, bytes: &[u8]) -> usize {
        self.on_bytes(now_ns, bytes)
    }

    fn on_broken(&mut self, now_ns: u64) {
        self.on_broken(now_ns);
    }

    fn poll_bytes(&self) -> &[u8] {
        self.poll_bytes()
    }

    fn on_sent(&mut self, count: usize) {
        self.on_sent(count);
    }
}

impl HandshakeMachine for Accept {
    fn wanted(&self) -> usize {
        self.wanted()
    }

    fn on_bytes(&mut self, now_ns: u64, bytes: &[u8]) -> usize {
        self.on_bytes(now_ns, bytes)
    }

    fn on_broken(&mut self, _now_ns: u64) {
        self.on_broken();
    }

    fn poll_bytes(&self) -> &[u8] {
        self.poll_bytes()
    }

    fn on_sent(&mut self, count: usize) {
        self.on_sent(count);
    }
}
