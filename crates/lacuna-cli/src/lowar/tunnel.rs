//! A path between two gateways in datagrams of UDP: frames of both local networks, each behind a header of
//! four bytes. So the two networks are one, as with a cable between them.
//!
//! | bytes | |
//! |---|---|
//! | 0, 1 | `L`, `G` |
//! | 2 | version of this header: 1 |
//! | 3 | what follows: 0, one Ethernet frame without its check sequence |
//!
//! Datagrams of anybody but the peer are dropped by the kernel, and those of another version here. There is no encryption:
//! on a path that others share, use a tunnel that has it.

use super::interface::{BATCH, Frame, send_all};
use super::outbox::{Outbox, PLAIN};
use super::syscall::{self, Message};
use crate::failure::Failure;
use lacuna::datapath::limit::Said;
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
    /// Datagrams that were of no tunnel, or another version.
    pub(super) strange: u64,
    pub(super) send_drops: u64,
}

impl Tunnel {
    pub(super) fn open(listen: SocketAddr, peer: SocketAddr) -> Result<Self, Failure> {
        let socket = UdpSocket::bind(listen).map_err(|error| {
            let text = format!("cannot listen at {listen}: {}", Said(&error));
            Failure::listen(&text, Some(&error))
        })?;
        let tunnel = Self {
            socket,
            peer,
            buffers: vec![0; BATCH * DATAGRAM_BYTES_MAX],
            messages: Vec::new(),
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

    /// The longest frame.
    pub(super) fn frame_bytes_max() -> usize {
        // The headers of IPv6, which are longer.
        DATAGRAM_BYTES_MAX - 48 - HEADER.len()
    }

    /// Takes a batch of frames; whether there may be more.
    pub(super) fn receive(&mut self, take: &mut dyn FnMut(Frame<'_>)) -> bool {
        let Self { socket, buffers, messages, .. } = self;
        let received = syscall::receive::<BATCH>(
            socket.as_fd(),
            HEADER.len(),
            buffers,
            DATAGRAM_BYTES_MAX,
            messages,
        );
        // Nothing was there; or the peer is not there yet, which is told once.
        if received.is_err() {
            return false;
        }
        for (message, buffer) in messages.iter().zip(buffers.chunks_exact(DATAGRAM_BYTES_MAX)) {
            if !message.header.starts_with(&HEADER) || message.is_cut {
                self.strange += 1;
                continue;
            }
            take(Frame { bytes: &buffer[..message.bytes], offload: PLAIN, is_joined: false });
        }
        self.messages.len() == BATCH
    }

    pub(super) fn send(&mut self, outbox: &mut Outbox) {
        let frames = (0..outbox.len()).filter_map(|index| outbox.get(index));
        // Of several packets in one, which nobody at the far end could cut, none go.
        let frames = frames.filter(|(offload, _)| **offload == PLAIN);
        let frames: Vec<_> = frames.map(|(_, frame)| (&HEADER[..], frame)).collect();
        self.send_drops += (outbox.len() - frames.len()) as u64;
        self.send_drops += send_all(self.socket.as_fd(), &frames);
        outbox.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnels() -> [Tunnel; 2] {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        // Some peer to begin with.
        let other = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut tunnels = [(); 2].map(|()| Tunnel::open(any, other).unwrap());
        let addresses = [0, 1].map(|at| tunnels[at].socket.local_addr().unwrap());
        (tunnels[0].peer, tunnels[1].peer) = (addresses[1], addresses[0]);
        tunnels.iter().for_each(|tunnel| tunnel.connect().unwrap());
        tunnels
    }

    fn receive(tunnel: &mut Tunnel) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while tunnel.receive(&mut |frame| frames.push(frame.bytes.to_vec())) {}
        frames
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let [mut one, mut other] = tunnels();
        let mut outbox = Outbox::default();
        let frames = [vec![1; 60], Vec::new(), vec![2; 9000]];
        frames.iter().for_each(|frame| outbox.push(frame));
        // Several packets in one cannot go.
        outbox.push_with(&[3; 100], [1; 10]);
        one.send(&mut outbox);
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
