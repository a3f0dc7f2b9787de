//! Ten thousand peers in one socket: it is bound to every address of 127.0.0.0/8 and sends each datagram back from
//! the address that it was sent to.
//!
//! What a queue pair sent to a peer is a packet that the peer could have sent, so it takes the echo for one: a Send of
//! that peer. So nothing of what is measured runs at the peers, and the kernel has one socket for all of them.

use super::end::Wait;
use anyhow::{Context as _, Result, ensure};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

/// A packet of a small message.
const PACKET_BYTES: usize = 2048;
/// Room for the control message that has the address.
const CONTROL_BYTES: usize = 64;
/// Looks whether it is over so often.
const LOOK: Duration = Duration::from_millis(20);
/// Of the socket: what one phase brings, with room.
const BUFFER_BYTES: i32 = 8 << 20;

/// See the module's text.
pub(super) struct Echo {
    socket: UdpSocket,
    port: u16,
}

impl Echo {
    pub(super) fn new() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(LOOK))?;
        for (level, name, value) in [
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
            (libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES),
        ] {
            // SAFETY: the value points to an int that outlives the call, with its size.
            let result = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    level,
                    name,
                    ptr::from_ref(&value).cast(),
                    size_of::<i32>() as libc::socklen_t,
                )
            };
            ensure!(result == 0, "an option of the echo: {}", io::Error::last_os_error());
        }
        let port = socket.local_addr()?.port();
        Ok(Self { socket, port })
    }

    /// The address of a peer; there are 2^16.
    pub(super) fn peer(&self, number: usize) -> SocketAddr {
        let [high, low] = (number as u16).to_be_bytes();
        SocketAddr::from(([127, 1, high, low], self.port))
    }

    /// Sends the next datagram back; `false` if there is none, or none came for a while.
    pub(super) fn once(&self, wait: Wait) -> Result<bool> {
        let mut packet = [0u8; PACKET_BYTES];
        let mut control = [0u64; CONTROL_BYTES / 8];
        let mut from = MaybeUninit::<libc::sockaddr_in>::zeroed();
        let mut piece = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
        // SAFETY: an all-zero msghdr is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = from.as_mut_ptr().cast();
        message.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        let socket = self.socket.as_raw_fd();
        let flags = if wait == Wait::Poll { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: name, piece and control point to locals that outlive the call, with their sizes.
        let received = unsafe { libc::recvmsg(socket, &raw mut message, flags) };
        let Ok(bytes) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                _ => Err(error).context("the echo receives"),
            };
        };
        // SAFETY: the kernel filled in the control buffer, whose length is in the message.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        ensure!(!header.is_null(), "no address came with a datagram");
        // SAFETY: the only control message that was asked for is this one, and it is within the buffer.
        let info = unsafe { libc::CMSG_DATA(header).cast::<libc::in_pktinfo>() };
        // SAFETY: as above; it leaves by the address that it came to, whatever the device.
        unsafe {
            let mut back = info.read_unaligned();
            back.ipi_spec_dst = back.ipi_addr;
            back.ipi_ifindex = 0;
            info.write_unaligned(back);
        }
        // SAFETY: the message still points to `piece`.
        unsafe { (*message.msg_iov).iov_len = bytes };
        // SAFETY: as for the call above; it only reads.
        let sent = unsafe { libc::sendmsg(socket, &raw const message, 0) };
        ensure!(sent == received, "the echo sends: {}", io::Error::last_os_error());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_comes_back_from_the_address_that_it_was_sent_to() {
        let echo = Echo::new().unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for number in [0, 1, 300, 9_999] {
            socket.send_to(&[7; 100], echo.peer(number)).unwrap();
            assert!(echo.once(Wait::Block).unwrap());
            let mut packet = [0; 200];
            let (bytes, from) = socket.recv_from(&mut packet).unwrap();
            assert_eq!((bytes, from), (100, echo.peer(number)));
        }
    }
}
