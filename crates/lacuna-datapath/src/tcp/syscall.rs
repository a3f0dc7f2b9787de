//! The Linux call behind [`tcp_path`](super::tcp_path): the socket option `TCP_INFO`, which the
//! safe libraries that this crate stands on do not have.

#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What the kernel tells of a TCP connection. What an older kernel does not know stays zero.
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
