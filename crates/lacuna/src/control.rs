//! A control connection: a TCP stream, and a session of TLS over it where the ends know each other by their keys.
//!
//! Bytes that the peer sent before somebody wants them wait in the kernel, or in the session. So a control connection
//! moves as a whole: from the handshake to the monitor, to a pool, and to the next handshake.

use lacuna_secure::{End, Secret};
use lacuna_trust::{Session, SessionError, Trust};
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// What carries a control connection. Non-blocking.
pub(crate) trait Stream: Read + Write {
    /// As [`TcpStream::peek`] of a byte.
    fn look(&self) -> io::Result<usize>;
}

impl Stream for TcpStream {
    fn look(&self) -> io::Result<usize> {
        self.peek(&mut [0])
    }
}

impl Stream for mio::net::TcpStream {
    fn look(&self) -> io::Result<usize> {
        self.peek(&mut [0])
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Control<S = TcpStream> {
    stream: S,
    session: Option<Box<Session>>,
}

impl<S> Control<S> {
    /// Without a session.
    pub(crate) fn clear(stream: S) -> Self {
        Self { stream, session: None }
    }

    /// With a session if there is something to trust by; without, if not.
    pub(crate) fn new(stream: S, trust: Option<&Trust>, own: End) -> io::Result<Self> {
        let session = trust.map(|trust| match own {
            End::Connecting => Session::connecting(trust),
            End::Accepting => Session::accepting(trust),
        });
        let session = session.transpose().map_err(to_io)?.map(Box::new);
        Ok(Self { stream, session })
    }

    /// The same at the accepting end, with a session if there is something to trust by.
    pub(crate) fn secured(self, trust: Option<&Trust>) -> io::Result<Self> {
        match self.session {
            Some(_) => Ok(self),
            None => Self::new(self.stream, trust, End::Accepting),
        }
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The same connection over another handle of its stream.
    pub(crate) fn map<T>(self, change: impl FnOnce(S) -> T) -> Control<T> {
        Control { stream: change(self.stream), session: self.session }
    }

    /// Whether what is said is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the ends do not know each other yet, so that nothing can be said.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Whether the session has bytes that the stream did not take.
    pub(crate) fn wants_write(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.wants_write())
    }

    /// The secret of the next connection; `None` without a session.
    pub(crate) fn secret(&mut self) -> io::Result<Option<Secret>> {
        let Some(session) = &mut self.session else { return Ok(None) };
        let secret = session.secret().map_err(to_io)?;
        Ok(Some(Secret::new(*secret)))
    }
}

impl<S: Stream> Control<S> {
    /// Fetches what the peer said; 0 if it has ended the stream. Goes on with a session that has begun.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.stream.read(bytes) };
        let pumped = session.pump(&mut self.stream);
        fetched(session.read(bytes), pumped)
    }

    /// Whether there is something to fetch: how many bytes are known of, 0 if the peer has ended the stream.
    pub(crate) fn look(&mut self) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.stream.look() };
        let pumped = session.pump(&mut self.stream);
        fetched(session.look(), pumped)
    }

    /// Says something; how much was taken. What a session has taken leaves with later calls at the latest.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.stream.write(bytes) };
        let count = session.write(bytes)?;
        session.flush(&mut self.stream)?;
        Ok(count)
    }

    /// Has the stream take what a session holds, as far as it does now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.session.as_mut().map_or(Ok(()), |session| session.flush(&mut self.stream))
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
