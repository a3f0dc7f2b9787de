//! `lacuna reproduce datagrams`, hidden: messages in UDP datagrams of up to 64 KiB, which IP cuts into fragments, as
//! the paper's send/recv sends them; to stand beside datagram queue pairs in `lacuna reproduce iwarp --live`.
//!
//! A datagram begins with the number and length of its message. The receiver counts bytes by message; the source
//! tells it over TCP when all was sent, and is told what came. UDP has no duplicates on an emulated link without
//! reordering, so bytes of a message that add up to its length are all of them.

use crate::failure::Failure;
use crate::output::Output;
use crate::units;
use clap::{Args, Subcommand};
use lacuna::datapath::limit::Said;
use lacuna_reproduce::iwarp::SEGMENT_BYTES;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Number and length of the message, and what else iWARP's headers and CRC take.
const HEADER_BYTES: usize = 22;
const DATAGRAM_BYTES: usize = HEADER_BYTES + SEGMENT_BYTES as usize;
/// Bytes of IP's header in each fragment, and what else a fragment has.
const IP_HEADER_BYTES: u64 = 20;
const FRAGMENT_BYTES: u64 = 1480;
const UDP_HEADER_BYTES: u64 = 8;
/// Nothing more comes if nothing has come for so long after the source was done.
const QUIET: Duration = Duration::from_millis(300);
/// The receiver's buffer: many datagrams, so that it is not what loses them.
const BUFFER_BYTES: usize = 32 << 20;
/// How long a source sleeps when it is ahead of its rate.
const NAP: Duration = Duration::from_micros(200);
/// How long the other end may take to say something.
const SAID_WITHIN: Duration = Duration::from_secs(30);
/// Messages of which a part is there, at most.
const OPEN_MAX: usize = 1 << 20;
const PORT: u16 = 7408;

/// Messages in UDP datagrams
#[derive(Debug, Args)]
pub(super) struct DatagramsArgs {
    #[command(subcommand)]
    end: End,
}

#[derive(Debug, Subcommand)]
enum End {
    /// Take the messages of one source, and tell it what came
    Receive(ReceiveArgs),
    /// Send for some time, and print what came
    Send(SendArgs),
}

#[derive(Debug, Args)]
struct ReceiveArgs {
    /// Port of TCP and UDP to listen at
    #[arg(long, default_value_t = PORT)]
    port: u16,
}

#[derive(Debug, Args)]
struct SendArgs {
    /// Where the receiver is
    host: Ipv4Addr,
    /// Its port
    #[arg(long, default_value_t = PORT)]
    port: u16,
    /// Bytes of a message
    #[arg(long, value_parser = units::some_bytes)]
    size: u64,
    /// Bits per second, headers included
    #[arg(long, value_parser = units::rate)]
    rate: u64,
    /// How long messages are begun
    #[arg(long, default_value = "5s", value_parser = units::some_duration, value_name = "TIME")]
    time: Duration,
}

/// What the receiver tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Taken {
    datagrams: u64,
    placed_bytes: u64,
    whole: u64,
    partial: u64,
}

/// What the source prints.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Brought {
    pub(super) messages: u64,
    pub(super) offered_bytes: u64,
    /// Packets of the path: fragments.
    pub(super) packets: u64,
    pub(super) seconds: f64,
    pub(super) placed_bytes: u64,
    pub(super) whole: u64,
    pub(super) partial: u64,
}

pub(super) fn run(args: &DatagramsArgs, output: Output) -> Result<(), Failure> {
    match &args.end {
        End::Receive(args) => {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port));
            let listener = TcpListener::bind(any).map_err(|error| cannot("listen", any, &error))?;
            let socket = UdpSocket::bind(any).map_err(|error| cannot("listen", any, &error))?;
            receive(&listener, &socket).map_err(|error| lost(&error))
        }
        End::Send(args) => {
            let to = SocketAddr::from((args.host, args.port));
            let size = usize::try_from(args.size).unwrap_or(usize::MAX);
            let brought = send(to, size, args.rate, args.time).map_err(|error| lost(&error))?;
            output.object(&brought)
        }
    }
}

fn cannot(what: &str, at: SocketAddr, error: &io::Error) -> Failure {
    Failure::Local(format!("cannot {what} at {at}: {}", Said(error)))
}

fn lost(error: &io::Error) -> Failure {
    Failure::Network(format!("lost the other end: {}", Said(error)))
}

/// Takes the messages of the first source that connects, until it is done and nothing more comes.
fn receive(listener: &TcpListener, socket: &UdpSocket) -> io::Result<()> {
    // As much as the system grants.
    let _ = sockopt::set_socket_recv_buffer_size(socket, BUFFER_BYTES);
    socket.set_read_timeout(Some(QUIET))?;
    let (mut control, source) = listener.accept()?;
    control.set_nonblocking(true)?;
    let mut counts = Counts::default();
    let mut datagram = vec![0; DATAGRAM_BYTES + 1];
    let mut is_done = false;
    loop {
        match socket.recv_from(&mut datagram) {
            Ok((bytes, from)) if same(from.ip(), source.ip()) => counts.take(&datagram[..bytes]),
            Ok(_) => {}
            Err(error) if is_timeout(&error) && is_done => break,
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        let is_asked = counts.taken.datagrams.is_multiple_of(64) || counts.is_quiet();
        if !is_done && is_asked {
            is_done = match control.read(&mut [0; 16]) {
                // It has closed its side.
                Ok(0) => true,
                Ok(_) => false,
                Err(error) if is_timeout(&error) => false,
                Err(error) => return Err(error),
            };
        }
    }
    control.set_nonblocking(false)?;
    counts.taken.partial = counts.open.len() as u64;
    let told = serde_json::to_vec(&counts.taken).map_err(io::Error::other)?;
    control.write_all(&told)
}

fn same(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// What came so far.
#[derive(Debug)]
struct Counts {
    taken: Taken,
    /// Bytes of messages of which not all is there.
    open: HashMap<u64, u64>,
    last: Instant,
}

impl Default for Counts {
    fn default() -> Self {
        Self { taken: Taken::default(), open: HashMap::new(), last: Instant::now() }
    }
}

impl Counts {
    fn is_quiet(&self) -> bool {
        self.last.elapsed() >= QUIET
    }

    fn take(&mut self, datagram: &[u8]) {
        let Some((header, payload)) = datagram.split_at_checked(HEADER_BYTES) else { return };
        let (number, length) = (word(&header[..8]), word(&header[8..16]));
        let bytes = payload.len() as u64;
        self.last = Instant::now();
        self.taken.datagrams += 1;
        self.taken.placed_bytes += bytes;
        let there = self.open.remove(&number).unwrap_or(0) + bytes;
        if there >= length {
            self.taken.whole += 1;
        } else if self.open.len() < OPEN_MAX {
            self.open.insert(number, there);
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Sends messages of this size at a rate for some time, and says what came of them.
fn send(to: SocketAddr, size: usize, rate: u64, time: Duration) -> io::Result<Brought> {
    let mut control = TcpStream::connect(to)?;
    control.set_read_timeout(Some(SAID_WITHIN))?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    let mut datagram = vec![0x5a; HEADER_BYTES + size.min(SEGMENT_BYTES as usize)];
    datagram[8..16].copy_from_slice(&(size as u64).to_le_bytes());
    let (mut messages, mut packets, mut wire_bytes) = (0u64, 0, 0);
    let began = Instant::now();
    while began.elapsed() < time {
        datagram[..8].copy_from_slice(&messages.to_le_bytes());
        messages += 1;
        let mut left = size;
        while left > 0 {
            let bytes = left.min(SEGMENT_BYTES as usize);
            left -= bytes;
            let payload = (HEADER_BYTES + bytes) as u64 + UDP_HEADER_BYTES;
            let fragments = payload.div_ceil(FRAGMENT_BYTES);
            packets += fragments;
            wire_bytes += payload + fragments * IP_HEADER_BYTES;
            push(&socket, &datagram[..HEADER_BYTES + bytes])?;
            while (wire_bytes as f64 * 8.0 / rate as f64) > began.elapsed().as_secs_f64() {
                std::thread::sleep(NAP);
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    control.shutdown(Shutdown::Write)?;
    let mut told = String::new();
    control.read_to_string(&mut told)?;
    let Taken { placed_bytes, whole, partial, .. } =
        serde_json::from_str(&told).map_err(io::Error::other)?;
    let offered_bytes = messages * size as u64;
    Ok(Brought { messages, offered_bytes, packets, seconds, placed_bytes, whole, partial })
}

/// Hands a datagram to the network; one that the system has no room for now is tried again.
fn push(socket: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
    loop {
        match socket.send(datagram) {
            Ok(_) => return Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS)) => {
                std::thread::sleep(NAP);
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_and_of_several_datagrams_come_and_are_counted() {
        for size in [1000, 200_000] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let address = listener.local_addr().expect("it is bound");
            let socket = UdpSocket::bind(address).expect("the same of UDP");
            let receiver = std::thread::spawn(move || receive(&listener, &socket));
            let time = Duration::from_millis(100);
            let brought = send(address, size, 200_000_000, time).expect("it is there");
            receiver.join().expect("no panic").expect("it hears the source");
            assert!(brought.messages > 5, "{brought:?}");
            assert_eq!(brought.offered_bytes, brought.messages * size as u64);
            assert_eq!((brought.whole, brought.partial), (brought.messages, 0), "{brought:?}");
            assert_eq!(brought.placed_bytes, brought.offered_bytes);
        }
    }

    #[test]
    fn a_part_of_a_message_is_placed_and_not_whole() {
        let mut counts = Counts::default();
        let mut datagram = vec![0; HEADER_BYTES + 10];
        datagram[8..16].copy_from_slice(&20u64.to_le_bytes());
        counts.take(&datagram);
        counts.take(&datagram[..5]);
        let taken = Taken { datagrams: 1, placed_bytes: 10, whole: 0, partial: 0 };
        assert_eq!((counts.taken, counts.open.len()), (taken, 1));
        counts.take(&datagram);
        assert_eq!((counts.taken.whole, counts.open.len()), (1, 0));
    }
}
