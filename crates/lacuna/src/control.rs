//! A control connection: a TCP stream, and a session of TLS over it where the ends know each other by their keys.
//!
//! The end that accepts sees by the first byte which it is.
//!
//! Bytes that the peer sent before somebody wants them wait in the kernel, or in the session. So a control connection
//! moves as a whole: from the handshake to the monitor, to a pool, and to the next handshake.

use lacuna_secure::{Cipher, Secret};
use lacuna_trust::alert::{CLEAR_ONLY, TLS_FIRST_BYTE};
use lacuna_trust::{Session, SessionError, Trust};
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// What carries a control connection. Non-blocking.
pub(crate) trait Stream: Read + Write {
    /// As [`TcpStream::peek`].
    fn peek(&self, bytes: &mut [u8]) -> io::Result<usize>;
}

impl Stream for TcpStream {
    fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.peek(bytes)
    }
}

impl Stream for mio::net::TcpStream {
    fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.peek(bytes)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Control<S = TcpStream> {
    stream: S,
    layer: Layer,
}

/// What is over the stream.
#[derive(Debug)]
enum Layer {
    Clear,
    Session(Box<Session>),
    /// The peer decides, by its first byte. Whom to believe if it begins a session.
    PeerDecides(Option<Trust>),
}

impl<S> Control<S> {
    /// Without a session.
    pub(crate) fn clear(stream: S) -> Self {
        Self { stream, layer: Layer::Clear }
    }

    /// Of the end that connects: with a session if there is something to trust by.
    pub(crate) fn connecting(stream: S, trust: Option<&Trust>) -> io::Result<Self> {
        let Some(trust) = trust else { return Ok(Self::clear(stream)) };
        let session = Session::connecting(trust).map_err(to_io)?;
        Ok(Self { stream, layer: Layer::Session(Box::new(session)) })
    }

    /// Of the end that accepts.
    pub(crate) fn accepting(stream: S, trust: Option<&Trust>) -> Self {
        Self { stream, layer: Layer::PeerDecides(trust.cloned()) }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The same connection over another handle of its stream.
    pub(crate) fn map<T>(self, change: impl FnOnce(S) -> T) -> Control<T> {
        Control { stream: change(self.stream), layer: self.layer }
    }

    /// Whether what is said is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        matches!(self.layer, Layer::Session(_))
    }

    /// Whether the ends do not know each other yet, so that nothing can be said.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session().is_some_and(Session::is_handshaking)
    }

    /// Whether the session has bytes that the stream did not take.
    pub(crate) fn wants_write(&self) -> bool {
        self.session().is_some_and(Session::wants_write)
    }

    /// The secret of the next connection and the cipher; `None` without a session.
    pub(crate) fn secret(&mut self) -> io::Result<Option<(Cipher, Secret)>> {
        let Layer::Session(session) = &mut self.layer else { return Ok(None) };
        let secret = session.secret().map_err(to_io)?;
        Ok(self.cipher().map(|cipher| (cipher, Secret::new(*secret))))
    }

    /// The cipher of packets; `None` without a session.
    pub(crate) fn cipher(&self) -> Option<Cipher> {
        self.session().and_then(Session::cipher)
    }

    fn session(&self) -> Option<&Session> {
        match &self.layer {
            Layer::Session(session) => Some(session),
            Layer::Clear | Layer::PeerDecides(_) => None,
        }
    }
}

impl<S: Stream> Control<S> {
    /// Fetches what the peer said; 0 if it has ended the stream. Goes on with a session that has begun.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.decide()?;
        let Layer::Session(session) = &mut self.layer else { return self.stream.read(bytes) };
        let pumped = session.pump(&mut self.stream);
        fetched(session.read(bytes), pumped)
    }

    /// Whether there is something to fetch: how many bytes are known of, 0 if the peer has ended the stream.
    pub(crate) fn look(&mut self) -> io::Result<usize> {
        self.decide()?;
        let Layer::Session(session) = &mut self.layer else { return self.stream.peek(&mut [0]) };
        let pumped = session.pump(&mut self.stream);
        fetched(session.look(), pumped)
    }

    /// Says something; how much was taken. What a session has taken leaves with later calls at the latest.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Layer::Session(session) = &mut self.layer else { return self.stream.write(bytes) };
        let count = session.write(bytes)?;
        session.flush(&mut self.stream)?;
        Ok(count)
    }

    /// Has the stream take what a session holds, as far as it does now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.layer {
            Layer::Session(session) => session.flush(&mut self.stream),
            Layer::Clear | Layer::PeerDecides(_) => Ok(()),
        }
    }

    /// Sees which the peer has begun, once its first byte is there.
    fn decide(&mut self) -> io::Result<()> {
        let Layer::PeerDecides(trust) = &self.layer else { return Ok(()) };
        let mut first = [0];
        self.layer = match (self.stream.peek(&mut first)?, first, trust) {
            (1.., [TLS_FIRST_BYTE], Some(trust)) => {
                Layer::Session(Box::new(Session::accepting(trust).map_err(to_io)?))
            }
            (1.., [TLS_FIRST_BYTE], None) => {
                // Best effort: the stream is new, so it takes that much.
                let _ = self.stream.write(&CLEAR_ONLY);
                return Err(to_io(SessionError::NoKeys));
            }
            _ => Layer::Clear,
        };
        Ok(())
    }

    /// Says all of it, if the stream takes that much now.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What reading comes to: what is there goes before what was found wrong behind it.
fn fetched(read: io::Result<usize>, pumped: Result<bool, SessionError>) -> io::Result<usize> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => match pumped {
            Ok(false) => Err(error),
            Ok(true) => Ok(0),
            Err(error) => Err(to_io(error)),
        },
        read => read,
    }
}

/// As an error of the stream. What the session found stays inside.
fn to_io(error: SessionError) -> io::Error {
    match error {
        SessionError::Stream(error) => error,
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}
