//! The calls of the bare loops. Pointers are made and used within one function
//! each.

use anyhow::{Context, Result};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::ptr;

/// Messages of one `recvmmsg`: what Lacuna's own datapath takes.
const MESSAGES: usize = 4;
const SLOT_BYTES: usize = 64 << 10;

fn set(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
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
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Asks for socket buffers, beyond the system's limit where that is allowed.
pub(super) fn use_buffers(socket: &UdpSocket, bytes: i32) -> Result<()> {
    for (plain, forced) in
        [(libc::SO_RCVBUF, libc::SO_RCVBUFFORCE), (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE)]
    {
        if set(socket, libc::SOL_SOCKET, forced, bytes).is_err() {
            set(socket, libc::SOL_SOCKET, plain, bytes).context("socket buffers")?;
        }
    }
    Ok(())
}

pub(crate) fn use_segmentation(socket: &UdpSocket, segment_bytes: usize) -> Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, segment_bytes as i32)
        .context("segmentation offload")
}

/// Whether UDP packets over IPv4 that leave have a checksum.
pub(crate) fn use_checksum(socket: &UdpSocket, is_on: bool) -> Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, i32::from(!is_on)).context("UDP's checksum")
}

pub(super) fn use_coalescing(socket: &UdpSocket) -> Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1).context("receive coalescing")
}

/// Sends bundles of packets, gathered.
pub(super) struct Gather {
    pieces: Vec<libc::iovec>,
}

impl Gather {
    pub(super) fn new() -> Self {
        Self { pieces: Vec::new() }
    }

    /// One bundle: before each `mtu` bytes of `payload` the same `headers`.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        headers: &[u8],
        payload: &[u8],
        mtu: usize,
    ) -> Result<()> {
        self.pieces.clear();
        for packet in payload.chunks(mtu) {
            for piece in [headers, packet] {
                let base = piece.as_ptr().cast_mut().cast();
                self.pieces.push(libc::iovec { iov_base: base, iov_len: piece.len() });
            }
        }
        // SAFETY: an all-zero msghdr is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.pieces.as_mut_ptr();
        message.msg_iovlen = self.pieces.len() as _;
        loop {
            // SAFETY: the call only reads; the pieces point to borrowed slices.
            let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN | libc::ENOBUFS) => {}
                _ => return Err(error).context("sendmsg"),
            }
        }
    }
}

/// Receives into one buffer a message, and copies payloads out.
pub(super) struct ReceiveCopy {
    segment_bytes: usize,
    overhead: usize,
    bytes: Vec<u8>,
    at: usize,
}

impl ReceiveCopy {
    pub(super) fn new(segment_bytes: usize, overhead: usize) -> Self {
        Self { segment_bytes, overhead, bytes: vec![0; MESSAGES * SLOT_BYTES], at: 0 }
    }

    /// One call's worth of packets, if any.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        buffer: &mut [u8],
        mut count: impl FnMut(usize),
    ) -> Result<()> {
        // SAFETY: all-zero iovecs and mmsghdrs are valid.
        let (mut pieces, mut messages): ([libc::iovec; MESSAGES], [libc::mmsghdr; MESSAGES]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES);
        for ((piece, message), slot) in pieces.iter_mut().zip(&mut messages).zip(slots) {
            *piece = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            message.msg_hdr.msg_iov = piece;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each message points to one piece, each piece to its own part
        // of `bytes`, which is exclusively borrowed.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                MESSAGES as _,
                0,
                ptr::null_mut(),
            )
        };
        let Some(received) = ok(received as isize)? else { return Ok(()) };
        for (message, slot) in messages.iter().zip(self.bytes.chunks(SLOT_BYTES)).take(received) {
            let mut moved = 0;
            for packet in slot[..message.msg_len as usize].chunks(self.segment_bytes) {
                let payload = packet.get(self.overhead..).unwrap_or_default();
                if self.at + payload.len() > buffer.len() {
                    self.at = 0;
                }
                buffer[self.at..self.at + payload.len()].copy_from_slice(payload);
                self.at += payload.len();
                moved += payload.len();
            }
            count(moved);
        }
        Ok(())
    }
}

/// Lets the kernel put payloads where they belong.
pub(super) struct ReceiveScatter {
    mtu: usize,
    overhead: usize,
    headers: Vec<u8>,
    pieces: Vec<libc::iovec>,
    at: usize,
    wrong: u64,
}

impl ReceiveScatter {
    pub(super) fn new(segments: usize, mtu: usize, overhead: usize) -> Self {
        let headers = vec![0; segments * overhead];
        Self { mtu, overhead, headers, pieces: Vec::with_capacity(2 * segments), at: 0, wrong: 0 }
    }

    /// Packets that were not what was guessed.
    pub(super) fn wrong(&self) -> u64 {
        self.wrong
    }

    /// One call's worth of packets, if any.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        buffer: &mut [u8],
        mut count: impl FnMut(usize),
    ) -> Result<()> {
        self.pieces.clear();
        let places = buffer[self.at..].chunks_exact_mut(self.mtu);
        for (header, place) in self.headers.chunks_exact_mut(self.overhead).zip(places) {
            for piece in [header, place] {
                let base = piece.as_mut_ptr().cast();
                self.pieces.push(libc::iovec { iov_base: base, iov_len: piece.len() });
            }
        }
        // SAFETY: an all-zero msghdr is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.pieces.as_mut_ptr();
        message.msg_iovlen = self.pieces.len() as _;
        // SAFETY: the pieces are disjoint parts of two exclusively borrowed
        // buffers.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
        let Some(received) = ok(received)? else { return Ok(()) };
        let segment_bytes = self.mtu + self.overhead;
        let packets = received / segment_bytes;
        if received % segment_bytes != 0 || message.msg_flags & libc::MSG_TRUNC != 0 {
            self.wrong += 1;
        }
        self.at += packets * self.mtu;
        if self.at + self.mtu > buffer.len() {
            self.at = 0;
        }
        count(packets * self.mtu);
        Ok(())
    }
}

/// `None` when there was nothing to receive.
fn ok(result: isize) -> Result<Option<usize>> {
    if let Ok(value) = usize::try_from(result) {
        return Ok(Some(value));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINTR | libc::EAGAIN) => Ok(None),
        _ => Err(error).context("receive"),
    }
}
