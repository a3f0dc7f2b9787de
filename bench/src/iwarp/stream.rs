//! TCP itself: messages of one length in a stream, without headers.
//!
//! One `write` for each message, or for many (the coalescing form). The receiver reads as much as there is, into the
//! memory that messages are for, and counts; nothing is copied again.

use super::end::{End, LONG, Role, Wait, look_until};
use super::rc::{Writes, is_nothing, write_out};
use anyhow::{Result, bail};
use std::io::Read;
use std::net::TcpStream;

/// What a read may bring.
const READ_BYTES: usize = 256 << 10;
const WRITE_BYTES: usize = 64 << 10;

/// See the module's text.
pub(super) struct Stream {
    stream: TcpStream,
    writes: Writes,
    wait: Wait,
    role: Role,
    data: Vec<u8>,
    memory: Vec<u8>,
    at: usize,
    staged: Vec<u8>,
    /// Bytes that came and were not taken.
    untaken: usize,
}

impl Stream {
    pub(super) fn new(stream: TcpStream, writes: Writes, bytes: usize) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONG))?;
        Ok(Self {
            stream,
            writes,
            wait: Wait::Block,
            role: Role::PingPong,
            data: vec![0x5A; bytes],
            memory: vec![0; READ_BYTES.max(bytes)],
            at: 0,
            staged: Vec::new(),
            untaken: 0,
        })
    }

    fn take_bytes(&mut self, bytes: usize) -> Result<()> {
        while self.untaken < bytes {
            let end = (self.at + READ_BYTES).min(self.memory.len());
            let (stream, wait) = (&mut self.stream, self.wait);
            let room = &mut self.memory[self.at..end];
            let read = look_until(|| match stream.read(room) {
                Ok(0) => bail!("the peer has closed"),
                Ok(read) => Ok(Some(read)),
                Err(error) if is_nothing(&error, wait) => Ok(None),
                Err(error) => Err(error.into()),
            })?;
            self.at = if self.at + read == self.memory.len() { 0 } else { self.at + read };
            self.untaken += read;
        }
        self.untaken -= bytes;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        write_out(&mut self.stream, &self.staged)?;
        self.staged.clear();
        Ok(())
    }
}

impl End for Stream {
    fn begin(&mut self, wait: Wait, role: Role) -> Result<()> {
        (self.wait, self.role) = (wait, role);
        Ok(self.stream.set_nonblocking(wait == Wait::Poll)?)
    }

    fn send(&mut self) -> Result<()> {
        if self.writes == Writes::Each || self.role != Role::Sender {
            return write_out(&mut self.stream, &self.data);
        }
        self.staged.extend_from_slice(&self.data);
        if self.staged.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn take(&mut self) -> Result<()> {
        self.take_bytes(self.data.len())
    }

    fn await_peer(&mut self) -> Result<()> {
        self.flush()?;
        self.take_bytes(1)
    }

    fn tell_peer(&mut self) -> Result<()> {
        write_out(&mut self.stream, &[1])
    }
}
