//! iWARP as the paper's baseline has it, *RC*: Sends and RDMA Writes by DDP and RDMAP over MPA over TCP.
//!
//! A message is cut into segments whose FPDUs fit TCP's; all of its FPDUs are written by one system call, or, in
//! the coalescing form, those of many messages. Sends go to receives in their order, and Writes into memory that
//! has an STag, after the bounds were checked. The target of a Write is told nothing; a peer looks at the last byte
//! that is to come. Here it counts segments that are the last of their message, which costs as much.

use super::ddp::{HEADER_BYTES_MAX, Header, Place};
use super::end::{End, LONG, Role, Wait, look_until};
use super::mpa::{Deframer, Framer, segment_bytes_max};
use anyhow::{Context as _, Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// FPDUs of a write, about, where messages are coalesced or longer than this.
const WRITE_BYTES: usize = 64 << 10;
/// So much of a long message goes in one write.
const LONG_WRITE_BYTES: usize = 256 << 10;
/// The key of each end's memory.
const STAG: u32 = 0x4c41_4355;
/// Receives that are posted.
const RECEIVES: usize = 16;
/// `MPA ID Req Frame`, then markers and CRC wanted, revision 1, no private data (section 7.1).
const REQUEST: &[u8; 20] = b"MPA ID Req Frame\xc0\x01\x00\x00";
const REPLY: &[u8; 20] = b"MPA ID Rep Frame\xc0\x01\x00\x00";

/// The verb of an end's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Send,
    Write,
}

/// How messages become writes to the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writes {
    /// One for each message.
    Each,
    /// Many messages in one.
    Coalesced,
}

/// See the module's text.
pub(super) struct Rc {
    stream: TcpStream,
    framer: Framer,
    deframer: Deframer,
    segment_bytes_max: usize,
    verb: Verb,
    writes: Writes,
    wait: Wait,
    role: Role,
    /// What is sent.
    data: Vec<u8>,
    /// What the peer writes to.
    memory: Vec<u8>,
    /// Buffers of Sends, used in turns.
    receives: Vec<Vec<u8>>,
    /// Of the next Send to the peer, and of the peer's.
    next_number: u32,
    expected_number: u32,
    /// Messages of which the last segment came, and which were taken.
    came: u64,
    taken: u64,
}

impl Rc {
    /// Both ends, over two sockets that are connected; `mss_bytes` is what a TCP segment holds.
    pub(super) fn pair(
        [active, passive]: [TcpStream; 2],
        (verb, writes): (Verb, Writes),
        bytes: usize,
        mss_bytes: usize,
    ) -> Result<[Self; 2]> {
        let end = |stream: TcpStream| -> Result<Self> {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LONG))?;
            Ok(Self {
                stream,
                framer: Framer::default(),
                deframer: Deframer::new(),
                segment_bytes_max: segment_bytes_max(mss_bytes),
                verb,
                writes,
                wait: Wait::Block,
                role: Role::PingPong,
                data: vec![0x5A; bytes],
                memory: vec![0; bytes],
                receives: vec![vec![0; bytes]; RECEIVES],
                next_number: 1,
                expected_number: 1,
                came: 0,
                taken: 0,
            })
        };
        let (mut active, mut passive) = (end(active)?, end(passive)?);
        active.stream.write_all(REQUEST)?;
        passive.expect(REQUEST)?;
        passive.stream.write_all(REPLY)?;
        active.expect(REPLY)?;
        Ok([active, passive])
    }

    fn expect(&mut self, frame: &[u8; 20]) -> Result<()> {
        let mut found = [0; 20];
        self.stream.read_exact(&mut found)?;
        ensure!(found == *frame, "no MPA start-up frame: {found:x?}");
        Ok(())
    }

    /// Frames a message, and writes it out if it is to go by itself.
    fn push(&mut self, verb: Verb, bytes: usize) -> Result<()> {
        let number = self.next_number;
        self.next_number += u32::from(verb == Verb::Send);
        let header_bytes = match verb {
            Verb::Send => Header { place: Place::Send { number, offset: 0 }, is_last: true }.len(),
            Verb::Write => {
                Header { place: Place::Write { stag: 0, offset: 0 }, is_last: true }.len()
            }
        };
        let payload_max = self.segment_bytes_max - header_bytes;
        let mut at = 0;
        while at < bytes {
            let payload = (bytes - at).min(payload_max);
            let place = match verb {
                Verb::Send => Place::Send { number, offset: at as u32 },
                Verb::Write => Place::Write { stag: STAG, offset: at as u64 },
            };
            let mut header = [0; HEADER_BYTES_MAX];
            let length = Header { place, is_last: at + payload == bytes }.emit(&mut header);
            self.framer.push(&header[..length], &self.data[at..at + payload]);
            at += payload;
            if self.framer.staged.len() >= LONG_WRITE_BYTES {
                self.flush()?;
            }
        }
        let goes_on = self.role == Role::Sender && self.writes == Writes::Coalesced;
        if !goes_on || self.framer.staged.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        write_out(&mut self.stream, &self.framer.staged)?;
        self.framer.staged.clear();
        Ok(())
    }

    /// Reads once, and places what came; whether anything did.
    fn progress(&mut self) -> Result<bool> {
        let read = match self.stream.read(self.deframer.room()) {
            Ok(0) => anyhow::bail!("the peer has closed"),
            Ok(read) => read,
            Err(error) if is_nothing(&error, self.wait) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        self.deframer.filled(read);
        while let Some(framed) = self.deframer.next()? {
            let mut front = [0; HEADER_BYTES_MAX];
            let front = &mut front[..framed.len().min(HEADER_BYTES_MAX)];
            framed.copy_to(0, front);
            let header = Header::parse(front).context("no segment of a Send or a Write")?;
            let payload = framed.len() - header.len();
            let (into, offset) = match header.place {
                Place::Send { number, offset } => {
                    let expected = self.expected_number;
                    ensure!(number == expected, "Send {number} came, expected {expected}");
                    self.expected_number += u32::from(header.is_last);
                    (&mut self.receives[number as usize % RECEIVES], u64::from(offset))
                }
                Place::Write { stag, offset } => {
                    ensure!(stag == STAG, "nothing is registered under {stag:#x}");
                    (&mut self.memory, offset)
                }
            };
            let (start, length) = (offset as usize, into.len());
            let room = into.get_mut(start..start.saturating_add(payload));
            let room = room.with_context(|| format!("{payload} bytes at {offset} of {length}"))?;
            framed.copy_to(header.len(), room);
            self.came += u64::from(header.is_last);
        }
        Ok(true)
    }
}

impl End for Rc {
    fn begin(&mut self, wait: Wait, role: Role) -> Result<()> {
        (self.wait, self.role) = (wait, role);
        Ok(self.stream.set_nonblocking(wait == Wait::Poll)?)
    }

    fn send(&mut self) -> Result<()> {
        self.push(self.verb, self.data.len())
    }

    fn take(&mut self) -> Result<()> {
        while self.came == self.taken {
            look_until(|| Ok(self.progress()?.then_some(())))?;
        }
        self.taken += 1;
        Ok(())
    }

    fn await_peer(&mut self) -> Result<()> {
        self.flush()?;
        self.take()
    }

    fn tell_peer(&mut self) -> Result<()> {
        self.push(Verb::Send, 1)
    }
}

/// Whether a socket that does not block had nothing, or no room. One that blocks says so when its time is over.
pub(super) fn is_nothing(error: &std::io::Error, wait: Wait) -> bool {
    wait == Wait::Poll && error.kind() == ErrorKind::WouldBlock
}

/// Writes everything, to a socket that blocks or does not.
pub(super) fn write_out(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let written = look_until(|| match stream.write(bytes) {
            Ok(written) => Ok(Some(written)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        })?;
        bytes = &bytes[written..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    fn sockets() -> [TcpStream; 2] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [active, listener.accept().unwrap().0]
    }

    fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 7 + (at >> 9) + seed) as u8).collect()
    }

    #[test]
    fn messages_of_many_lengths_are_placed_as_they_were_sent() {
        for verb in [Verb::Send, Verb::Write] {
            for writes in [Writes::Each, Writes::Coalesced] {
                for bytes in [1, 64, 1024, 2048, 100_000] {
                    let [mut near, mut far] =
                        Rc::pair(sockets(), (verb, writes), bytes, 1448).unwrap();
                    near.begin(Wait::Block, Role::Sender).unwrap();
                    far.begin(Wait::Block, Role::Receiver).unwrap();
                    for seed in 0..5 {
                        near.data = pattern(bytes, seed);
                        near.send().unwrap();
                    }
                    near.flush().unwrap();
                    for seed in 0..5 {
                        far.take().unwrap();
                        if verb == Verb::Send {
                            assert!(far.receives[seed + 1] == pattern(bytes, seed), "{bytes}");
                        }
                    }
                    if verb == Verb::Write {
                        assert!(far.memory == pattern(bytes, 4), "{bytes}");
                    }
                    far.tell_peer().unwrap();
                    near.await_peer().unwrap();
                }
            }
        }
    }

    #[test]
    fn a_write_beyond_the_memory_and_a_damaged_frame_end_the_connection() {
        let kind = (Verb::Write, Writes::Each);
        let [mut near, mut far] = Rc::pair(sockets(), kind, 100, 1448).unwrap();
        near.data = vec![0; 101];
        near.send().unwrap();
        assert!(far.take().unwrap_err().to_string().contains("101 bytes at 0 of 100"));

        let [mut near, mut far] = Rc::pair(sockets(), kind, 100, 1448).unwrap();
        near.role = Role::Sender;
        near.writes = Writes::Coalesced;
        near.send().unwrap();
        near.framer.staged[60] ^= 1;
        near.flush().unwrap();
        assert!(far.take().unwrap_err().to_string().contains("CRC"));
        assert_eq!(far.memory, [0; 100], "nothing of it was placed");
    }
}
