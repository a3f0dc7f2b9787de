//! A path between two gateways in datagrams of UDP: frames of both local networks, each behind a header. So the two
//! networks are one, as with a cable between them.
//!
//! | bytes | |
//! |---|---|
//! | 0, 1 | `L`, `G` |
//! | 2 | version of this header: 1 in clear, 2 encrypted (`sealed.rs`) |
//! | 3 | in clear, what follows: 0, one Ethernet frame without its check sequence |
//!
//! Datagrams of anybody but the peer's address are dropped by the kernel, and those of another version here.

use super::interface::{BATCH, Frame, send_all};
use super::outbox::{Outbox, PLAIN};
use super::sealed::{MORE_BYTES, Sealed};
use super::syscall::{self, Message};
use crate::failure::Failure;
use lacuna::datapath::limit::Said;
use lacuna_secure::Secret;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// Default port.
pub(super) const PORT: u16 = 7406;

const HEADER: [u8; 4] = *b"LG\x01\x00";
const DATAGRAM_BYTES_MAX: usize = 65_535;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Tunnel {
    socket: UdpSocket,
    peer: SocketAddr,
    buffers: Vec<u8>,
    messages: Vec<Message>,
    /// What encrypts datagrams; `None` if they are in clear.
    sealed: Option<Box<Sealed>>,
    /// Datagrams in clear, where they should be encrypted.
    pub(super) in_clear: u64,
    /// Datagrams that were of no tunnel, or another version.
    pub(super) strange: u64,
    pub(super) send_drops: u64,
}

impl Tunnel {
    /// Encrypted with keys that follow from a secret, or in clear.
    pub(super) fn open(
        listen: SocketAddr,
        peer: SocketAddr,
        secret: Option<Secret>,
    ) -> Result<Self, Failure> {
        let sealed = secret.map(|secret| Sealed::new(secret, DATAGRAM_BYTES_MAX));
        let sealed = sealed.transpose().map_err(super::no_random_numbers)?.map(Box::new);
        let socket = UdpSocket::bind(listen).map_err(|error| {
            let text = format!("cannot listen at {listen}: {}", Said(&error));
            Failure::listen(&text, Some(&error))
        })?;
        let tunnel = Self {
            socket,
            peer,
            buffers: vec![0; BATCH * DATAGRAM_BYTES_MAX],
            messages: Vec::new(),
            sealed,
            in_clear: 0,
            strange: 0,
            send_drops: 0,
        };
        tunnel.connect()?;
        Ok(tunnel)
    }

    /// From here on the kernel drops what others send.
    fn connect(&self) -> Result<(), Failure> {
        let connected = self.socket.connect(self.peer);
        connected
            .and_then(|()| self.socket.set_nonblocking(true))
            .map_err(|error| Failure::Network(format!("no way to {}: {}", self.peer, Said(&error))))
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What encrypts it, if it is encrypted.
    pub(super) fn sealed(&self) -> Option<&Sealed> {
        self.sealed.as_deref()
    }

    /// The longest frame.
    pub(super) fn frame_bytes_max(&self) -> usize {
        let more_bytes = if self.sealed.is_some() { MORE_BYTES } else { HEADER.len() };
        // The headers of IPv6, which are longer.
        DATAGRAM_BYTES_MAX - 48 - more_bytes
    }

    /// Does what is due to have keys.
    pub(super) fn on_timeout(&mut self, now_ns: u64) {
        if let Some(sealed) = &mut self.sealed {
            // What is lost is said again. An error is of the datagram before: the peer was not there.
            sealed.tend(now_ns, |datagram| _ = self.socket.send(datagram));
        }
    }

    /// When that is due.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        self.sealed.as_ref()?.poll_timeout()
    }

    /// Takes a batch of frames; whether there may be more.
    pub(super) fn receive(&mut self, now_ns: u64, take: &mut dyn FnMut(Frame<'_>)) -> bool {
        let Self { socket, buffers, messages, sealed, .. } = self;
        let received = syscall::receive::<BATCH>(
            socket.as_fd(),
            // What is opened lies together.
            if sealed.is_some() { 0 } else { HEADER.len() },
            buffers,
            DATAGRAM_BYTES_MAX,
            messages,
        );
        // Nothing was there; or the peer is not there yet, which is told once.
        if received.is_err() {
            return false;
        }
        for (message, buffer) in messages.iter().zip(buffers.chunks_exact(DATAGRAM_BYTES_MAX)) {
            let frame = |bytes| Frame { bytes, offload: PLAIN, is_joined: false };
            if let Some(sealed) = sealed {
                let datagram = &buffer[..message.bytes];
                if datagram.starts_with(&HEADER) {
                    self.in_clear += 1;
                } else if let Some(opened) = sealed.open(now_ns, datagram) {
                    take(frame(opened));
                }
                continue;
            }
            if !message.header.starts_with(&HEADER) || message.is_cut {
                self.strange += 1;
                continue;
            }
            take(frame(&buffer[..message.bytes]));
        }
        self.messages.len() == BATCH
    }

    pub(super) fn send(&mut self, now_ns: u64, outbox: &mut Outbox) {
        if outbox.len() == 0 {
            return;
        }
        let frames = (0..outbox.len()).filter_map(|index| outbox.get(index));
        // Of several packets in one, which nobody at the far end could cut, none go.
        let frames: Vec<_> =
            frames.filter(|(offload, _)| **offload == PLAIN).map(|(_, frame)| frame).collect();
        self.send_drops += (outbox.len() - frames.len()) as u64;
        let datagrams = match &mut self.sealed {
            Some(sealed) => sealed.seal(now_ns, frames.into_iter()),
            None => frames.into_iter().map(|frame| (&HEADER[..], frame)).collect(),
        };
        self.send_drops += send_all(self.socket.as_fd(), &datagrams);
        outbox.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn tunnels() -> [Tunnel; 2] {
        tunnels_with([None, None])
    }

    fn tunnels_with(secrets: [Option<Secret>; 2]) -> [Tunnel; 2] {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        // Some peer to begin with.
        let other = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut tunnels = secrets.map(|secret| Tunnel::open(any, other, secret).unwrap());
        let addresses = [0, 1].map(|at| tunnels[at].socket.local_addr().unwrap());
        (tunnels[0].peer, tunnels[1].peer) = (addresses[1], addresses[0]);
        tunnels.iter().for_each(|tunnel| tunnel.connect().unwrap());
        tunnels
    }

    fn receive(tunnel: &mut Tunnel) -> Vec<Vec<u8>> {
        receive_at(tunnel, 0)
    }

    fn receive_at(tunnel: &mut Tunnel, now_ns: u64) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while tunnel.receive(now_ns, &mut |frame| frames.push(frame.bytes.to_vec())) {}
        frames
    }

    fn secret(byte: u8) -> Option<Secret> {
        Some(Secret::new([byte; 32]))
    }

    /// Both ends do what is due and take what came, for a virtual second.
    fn run(ends: &mut [&mut Tunnel; 2], now_ns: &mut u64) {
        for _ in 0..10 {
            *now_ns += SECOND / 10;
            for end in ends.iter_mut() {
                assert_eq!(receive_at(end, *now_ns), Vec::<Vec<u8>>::new());
                end.on_timeout(*now_ns);
            }
        }
    }

    fn send(tunnel: &mut Tunnel, now_ns: u64, frame: &[u8]) {
        let mut outbox = Outbox::default();
        outbox.push(frame);
        tunnel.send(now_ns, &mut outbox);
    }

    #[test]
    fn encrypted_frames_come_out_as_they_went_in_once_there_are_keys() {
        let [mut one, mut other] = tunnels_with([secret(1), secret(1)]);
        let mut now_ns = 0;
        send(&mut one, now_ns, b"too early");
        assert_eq!(one.sealed().unwrap().unsealed, 1);
        run(&mut [&mut one, &mut other], &mut now_ns);
        for (from, to) in [(0, 1), (1, 0)] {
            let ends = [&mut one, &mut other];
            let frames = [vec![1; 60], Vec::new(), vec![2; 9000], vec![3; 65_000]];
            let mut outbox = Outbox::default();
            frames.iter().for_each(|frame| outbox.push(frame));
            ends[from].send(now_ns, &mut outbox);
            assert_eq!(receive_at(ends[to], now_ns), frames);
        }
        assert_eq!((one.send_drops, other.sealed().unwrap().counters().frames_opened), (0, 4));
        assert!(one.frame_bytes_max() < tunnels()[0].frame_bytes_max());
        // The far gateway starts again.
        let (at, peer) = (other.socket.local_addr().unwrap(), other.peer);
        drop(other);
        let mut other = Tunnel::open(at, peer, secret(1)).unwrap();
        run(&mut [&mut one, &mut other], &mut now_ns);
        send(&mut one, now_ns, b"to the new one");
        assert_eq!(receive_at(&mut other, now_ns), [b"to the new one".to_vec()]);
        assert_eq!(one.sealed().unwrap().counters().sessions, 2);
    }

    #[test]
    fn nothing_passes_between_other_tokens_or_a_tunnel_in_clear() {
        for secrets in [[secret(1), secret(2)], [secret(1), None], [None, secret(1)]] {
            let [mut one, mut other] = tunnels_with(secrets);
            let mut now_ns = 0;
            run(&mut [&mut one, &mut other], &mut now_ns);
            send(&mut one, now_ns, b"a secret frame");
            send(&mut other, now_ns, b"another");
            run(&mut [&mut one, &mut other], &mut now_ns);
            let refused = |end: &Tunnel| {
                let forged = end.sealed().map_or(0, |sealed| sealed.counters().hellos_forged);
                end.strange + end.in_clear + forged
            };
            assert!(refused(&one) > 0 && refused(&other) > 0);
        }
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let [mut one, mut other] = tunnels();
        let mut outbox = Outbox::default();
        let frames = [vec![1; 60], Vec::new(), vec![2; 9000]];
        frames.iter().for_each(|frame| outbox.push(frame));
        // Several packets in one cannot go.
        outbox.push_with(&[3; 100], [1; 10]);
        one.send(0, &mut outbox);
        assert_eq!((outbox.len(), one.send_drops), (0, 1));
        assert_eq!(receive(&mut other), frames);
    }

    #[test]
    fn strangers_and_other_versions_are_dropped() {
        let [one, mut other] = tunnels();
        let to = other.socket.local_addr().unwrap();
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(b"LG\x01\x00frame", to).unwrap();
        one.socket.send(b"LG\x02\x00frame").unwrap();
        one.socket.send(b"LG").unwrap();
        one.socket.send(b"LG\x01\x00frame").unwrap();
        assert_eq!(receive(&mut other), [b"frame".to_vec()]);
        assert_eq!(other.strange, 2);
    }
}
