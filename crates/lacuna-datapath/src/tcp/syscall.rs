//! The socket options `TCP_INFO` and `TCP_RTO_MIN_US` of Linux, which `socket2` does not offer.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, mem};

/// Of `linux/tcp.h`.
const TCP_RTO_MIN_US: libc::c_int = 45;

/// Reads `TCP_INFO`. Fields that an older kernel does not know stay zero.
pub(super) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    // SAFETY: a tcp_info is integers, for all of which zero is a value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut bytes = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the info outlives the call, and `bytes` is its size, which the kernel does not exceed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

/// Sets the minimum retransmission timeout beyond the round trip.
pub(super) fn set_tcp_rto_min_us(socket: BorrowedFd<'_>, least_us: u32) -> io::Result<()> {
    // SAFETY: the value outlives the call, and its size is that which is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MIN_US,
            (&raw const least_us).cast(),
            size_of_val(&least_us) as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads it back.
#[cfg(test)]
pub(super) fn tcp_rto_min_us(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut least_us = 0u32;
    let mut bytes = size_of_val(&least_us) as libc::socklen_t;
    // SAFETY: the value outlives the call, and `bytes` is its size, which the kernel does not exceed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MIN_US,
            (&raw mut least_us).cast(),
            &raw mut bytes,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(least_us) }
}
