//! Reads one packet without control messages (`recvfrom`).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use super::chooser::Taken;
use super::{now, waited_ns};
use crate::udp::syscall::{self, ReceiveArrays};
use crate::{Placer, ReceivedBatch};

/// Reads one packet from a socket that is connected to `peer`. With `is_timed`, asks the kernel
/// afterwards for the packet's arrival time.
pub(super) fn take(
    socket: &UdpSocket,
    peer: SocketAddr,
    local: Option<IpAddr>,
    is_timed: bool,
    arrays: &mut ReceiveArrays,
    placer: &mut dyn Placer,
) -> io::Result<Taken> {
    let bytes = loop {
        match arrays.receive_plain(socket.as_fd()) {
            Ok(bytes) => break bytes,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return Ok(Taken::default()),
                _ => return Err(error),
            },
        }
    };
    let waited_ns =
        if is_timed { waited_ns(now(), syscall::last_arrival(socket.as_fd())) } else { 0 };
    let taken = Taken { packets: 1, bytes: bytes.len(), is_drained: false };
    placer.on_packets(ReceivedBatch {
        source: peer,
        local,
        segment_bytes: bytes.len(),
        bytes,
        congestion_experienced: false,
        waited_ns,
    });
    Ok(taken)
}
