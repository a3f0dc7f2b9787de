//! A path between two gateways in datagrams of UDP: frames of both local networks, each behind a header of
//! four bytes. So the two networks are one, as with a cable between them.
//!
//! | bytes | |
//! |---|---|
//! | 0, 1 | `L`, `G` |
//! | 2 | version of this header: 1 |
//! | 3 | what follows: 0, one Ethernet frame without its check sequence |
//!
//! Datagrams of anybody but the peer are dropped, as are those of another version. There is no encryption:
//! on a path that others share, use a tunnel that has it.

use super::interface::Frame;
use super::outbox::Outbox;
use crate::failure::Failure;
use lacuna::datapath::limit::Said;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// Default port.
pub(super) const PORT: u16 = 7406;

const HEADER: [u8; 4] = *b"LG\x01\x00";
const DATAGRAM_BYTES_MAX: usize = 65_535;
const BATCH: usize = 64;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Tunnel {
    socket: UdpSocket,
    peer: SocketAddr,
    buffer: Vec<u8>,
    pub(super) strangers: u64,
    pub(super) send_drops: u64,
}

impl Tunnel {
    pub(super) fn open(listen: SocketAddr, peer: SocketAddr) -> Result<Self, Failure> {
        let socket = UdpSocket::bind(listen)
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket))
            .map_err(|error| {
                let text = format!("cannot listen at {listen}: {}", Said(&error));
                Failure::listen(&text, Some(&error))
            })?;
        let buffer = vec![0; DATAGRAM_BYTES_MAX];
        Ok(Self { socket, peer, buffer, strangers: 0, send_drops: 0 })
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
    pub(super) fn receive(&mut self, take: &mut dyn FnMut(Frame<'_>)) -> Result<bool, Failure> {
        for _ in 0..BATCH {
            let (bytes, from) = match self.socket.recv_from(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                // Interrupted, or the peer is not there yet.
                Err(_) => continue,
            };
            match self.buffer[..bytes].strip_prefix(&HEADER) {
                Some(frame) if is_same(from, self.peer) => {
                    take(Frame { bytes: frame, offload: super::outbox::PLAIN, is_joined: false });
                }
                _ => self.strangers += 1,
            }
        }
        Ok(true)
    }

    pub(super) fn send(&mut self, outbox: &mut Outbox) {
        let mut datagram = Vec::new();
        for index in 0..outbox.len() {
            let Some((offload, frame)) = outbox.get(index) else { break };
            if *offload != super::outbox::PLAIN {
                // Several packets in one: nobody at the far end could cut it.
                self.send_drops += 1;
                continue;
            }
            datagram.clear();
            datagram.extend_from_slice(&HEADER);
            datagram.extend_from_slice(frame);
            let mut result = self.socket.send_to(&datagram, self.peer);
            if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                super::wait_writable(self.socket.as_fd());
                result = self.socket.send_to(&datagram, self.peer);
            }
            if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
                // Of an earlier datagram.
                result = self.socket.send_to(&datagram, self.peer);
            }
            self.send_drops += u64::from(result.is_err());
        }
        outbox.clear();
    }
}

/// Whether two addresses are the same, one of which may be IPv4 mapped into IPv6.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnels() -> [Tunnel; 2] {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut tunnels = [(); 2].map(|()| Tunnel::open(any, any).unwrap());
        let addresses = [0, 1].map(|at| tunnels[at].socket.local_addr().unwrap());
        (tunnels[0].peer, tunnels[1].peer) = (addresses[1], addresses[0]);
        tunnels
    }

    fn receive(tunnel: &mut Tunnel) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while tunnel.receive(&mut |frame| frames.push(frame.bytes.to_vec())).unwrap() {}
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
        one.socket.send_to(b"LG\x02\x00frame", to).unwrap();
        one.socket.send_to(b"LG", to).unwrap();
        one.socket.send_to(b"LG\x01\x00frame", to).unwrap();
        assert_eq!(receive(&mut other), [b"frame".to_vec()]);
        assert_eq!(other.strangers, 3);
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:5".parse().unwrap();
        assert!(is_same(mapped, "10.0.0.1:5".parse().unwrap()));
    }
}
