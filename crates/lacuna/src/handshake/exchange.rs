//! The control connection during the exchange: reads and writes that end by a
//! deadline, and errors that say at which step.

use super::words::{MAGIC, MESSAGE_BYTES_MAX, PROTOCOL_VERSION, opening, printable};
use crate::address::canonical;
use crate::error::ConnectError;
use crate::goodbye::{self, Goodbye};
use crate::reuse::Kept;
use lacuna_datapath::set_tcp_rto_min;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// After a round trip and this, what was said is said again: each end answers at once. It is
/// what QUIC's acknowledgements may be late by (RFC 9000, 18.2). Over 40 ms a lost hello
/// costs 65 to 120 ms with it, and 240 with TCP's own 200.
const RTO_MIN: Duration = Duration::from_millis(25);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) deadline: Instant,
    pub(super) doing: &'static str,
    /// Of the connection that was served before: it comes first.
    goodbye: Option<Goodbye>,
    /// What came of the first message.
    received: Vec<u8>,
}

impl Exchange {
    pub(crate) fn new(stream: TcpStream, deadline: Instant) -> Result<Self, ConnectError> {
        Self::begin(stream, None, deadline)
    }

    /// On a control connection that has served before.
    pub(crate) fn again(kept: Kept, deadline: Instant) -> Result<Self, ConnectError> {
        Self::begin(kept.stream, Some(kept.goodbye), deadline)
    }

    fn begin(
        stream: TcpStream,
        goodbye: Option<Goodbye>,
        deadline: Instant,
    ) -> Result<Self, ConnectError> {
        #[cfg(unix)]
        lacuna_datapath::process::descriptors::note(&stream);
        let peer = stream.peer_addr();
        let peer = peer
            .map(canonical)
            .map_err(|source| ConnectError::Unreachable { peer: "the peer".to_owned(), source })?;
        let doing = "starting";
        let exchange = Self { stream, peer, deadline, doing, goodbye, received: Vec::new() };
        exchange.stream.set_nodelay(true).map_err(|source| exchange.failed(source))?;
        // Where it cannot be had, connecting takes longer if a packet is lost.
        set_tcp_rto_min(&exchange.stream, RTO_MIN);
        Ok(exchange)
    }

    pub(crate) fn into_parts(self) -> (SocketAddr, TcpStream) {
        (self.peer, self.stream)
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn left(&self) -> Result<Duration, ConnectError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.failed(io::ErrorKind::TimedOut.into()));
        }
        Ok(left)
    }

    pub(crate) fn failed(&self, source: io::Error) -> ConnectError {
        // A read timeout shows as "would block"; say what it is.
        let source = match source.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "timed out"),
            io::ErrorKind::UnexpectedEof => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection")
            }
            _ => source,
        };
        ConnectError::Exchange { peer: self.peer, doing: self.doing, source }
    }

    pub(super) fn not_lacuna(&self, why: String) -> ConnectError {
        ConnectError::NotLacuna { peer: self.peer, why }
    }

    pub(super) fn check_version(&self, there: u32) -> Result<(), ConnectError> {
        if there == PROTOCOL_VERSION {
            return Ok(());
        }
        Err(ConnectError::Version { peer: self.peer, here: PROTOCOL_VERSION, there })
    }

    /// Sends this end's first message, in one piece.
    pub(super) fn open(&mut self, message: &impl Serialize) -> Result<(), ConnectError> {
        self.write(&opening(message))
    }

    pub(super) fn parse<M: for<'d> Deserialize<'d>>(&self, body: &[u8]) -> Result<M, ConnectError> {
        serde_json::from_slice(body).map_err(|error| {
            let error = printable(&error.to_string());
            self.not_lacuna(format!("while {}: {error}", self.doing))
        })
    }

    /// The body of the peer's first message, if all of it was received.
    fn body(&self) -> Result<Option<&[u8]>, ConnectError> {
        let begun = self.received.len().min(MAGIC.len());
        if self.received[..begun] != MAGIC[..begun] {
            let magic = self.received[..begun].escape_ascii();
            return Err(self.not_lacuna(format!("it began with \"{magic}\"")));
        }
        let Some((length, body)) =
            self.received.get(MAGIC.len()..).and_then(|rest| rest.split_first_chunk())
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MESSAGE_BYTES_MAX {
            let why = format!("a message of {length} bytes, at most {MESSAGE_BYTES_MAX} expected");
            return Err(self.not_lacuna(why));
        }
        Ok(body.get(..length))
    }

    /// Bytes to read next: never any behind the message.
    fn wanted(&self) -> usize {
        let head = MAGIC.len() + size_of::<u32>();
        let Some(length) = self.received.get(MAGIC.len()..head) else {
            return head - self.received.len();
        };
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        (head + length.min(MESSAGE_BYTES_MAX)).saturating_sub(self.received.len())
    }

    /// Reads what is there of the peer's first message; whether all of it is.
    /// For a stream that does not block.
    pub(crate) fn read_some(&mut self) -> Result<bool, ConnectError> {
        while self.body()?.is_none() {
            match self.read_once() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(true)
    }

    /// Whether it failed as the peer has reset the connection before it said anything.
    pub(crate) fn was_forgotten(&self, error: &ConnectError) -> bool {
        let is_reset = |source: &io::Error| source.kind() == io::ErrorKind::ConnectionReset;
        self.received.is_empty()
            && matches!(error, ConnectError::Exchange { source, .. } if is_reset(source))
    }

    /// Waits for the peer's first message and gives its body.
    pub(super) fn receive(&mut self) -> Result<Vec<u8>, ConnectError> {
        loop {
            if let Some(body) = self.body()? {
                return Ok(body.to_vec());
            }
            // The deadline holds for the whole, not for each byte of a slow peer.
            let left = self.left()?;
            let read = self.stream.set_read_timeout(Some(left)).and_then(|()| self.read_once());
            read.map_err(|source| self.failed(source))?;
        }
    }

    fn read_once(&mut self) -> io::Result<()> {
        if let Some(goodbye) = &mut self.goodbye {
            goodbye.read(&mut self.stream)?;
            self.goodbye = None;
        }
        let start = self.received.len();
        self.received.resize(start + self.wanted(), 0);
        let read = self.stream.read(&mut self.received[start..]);
        self.received.truncate(start + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ConnectError> {
        let left = self.left()?;
        let written =
            self.stream.set_write_timeout(Some(left)).and_then(|()| self.stream.write_all(bytes));
        written.map_err(|source| self.failed(source))
    }

    /// Closes it so that what has not arrived yet never does: another hello follows
    /// elsewhere, and the listener is to hear one.
    pub(super) fn abandon(self) {
        #[cfg(unix)]
        {
            let now = Some(Duration::ZERO);
            let _ = rustix::net::sockopt::set_socket_linger(&self.stream, now);
        }
    }

    /// Ends a connection that the peer has agreed to, in good order.
    pub(super) fn say_goodbye(&mut self) {
        let _ = self.write(&goodbye::message(&[]));
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Whether the peer has closed the control connection, without waiting.
    pub(super) fn has_ended(&self) -> Option<Ended> {
        if self.stream.set_nonblocking(true).is_err() {
            return Some(Ended::Broken);
        }
        let ended = match self.stream.peek(&mut [0]) {
            Ok(0) => Some(Ended::Broken),
            // Behind the welcome there is nothing but last words.
            Ok(_) => Some(Ended::InGoodOrder),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => None,
                _ => Some(Ended::Broken),
            },
        };
        self.stream.set_nonblocking(false).map_or(Some(Ended::Broken), |()| ended)
    }
}

/// Tells a peer whose first message has not come that it is not served. As far as
/// its socket takes it at once: nobody waits for it.
pub(super) fn turn_away(mut stream: &TcpStream, message: &impl Serialize) {
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream.write_all(&opening(message));
    }
}

/// How a peer has ended the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It has said goodbye.
    InGoodOrder,
    /// Without a word.
    Broken,
}
