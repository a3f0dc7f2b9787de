//! TCP between two threads: a write for each message, at once (`TCP_NODELAY`), or messages gathered into long ones.

use super::{End, Ends, Kind, TURN};
use lacuna_reproduce::iwarp::loopback::{Waiting, Way};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Bytes of a read, and of a write that gathers messages.
const PIECE_BYTES: usize = 256 << 10;

struct TcpEnd {
    stream: TcpStream,
    message: Vec<u8>,
    piece: Vec<u8>,
    /// It drops what is left when the other end reads no more.
    is_flow: bool,
}

pub(super) fn open(kind: Kind) -> io::Result<Ends> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    let message_bytes = match kind.way {
        // As many whole messages as a piece holds.
        Way::TcpGathered => (PIECE_BYTES / kind.message_bytes).max(1) * kind.message_bytes,
        _ => kind.message_bytes,
    };
    let end = |stream: TcpStream| {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(kind.waiting == Waiting::Polling)?;
        stream.set_read_timeout(Some(TURN))?;
        stream.set_write_timeout(Some(TURN))?;
        let (message, piece) = (vec![0x5a; message_bytes], vec![0; PIECE_BYTES]);
        io::Result::Ok(Box::new(TcpEnd { stream, message, piece, is_flow: kind.is_flow }))
    };
    Ok((end(near)?, end(far)?))
}

impl End for TcpEnd {
    fn send(&mut self) -> Result<(), String> {
        let mut left = &self.message[..];
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(written) => left = &left[written..],
                // Of one way the next bytes are as good as these.
                Err(error) if is_later(&error) && self.is_flow => return Ok(()),
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<u64, String> {
        match self.stream.read(&mut self.piece) {
            Ok(0) => Err("the other end has closed".to_owned()),
            Ok(bytes) => Ok(bytes as u64),
            Err(error) if is_later(&error) => Ok(0),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
