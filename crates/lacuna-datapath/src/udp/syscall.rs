//! The Linux calls of the UDP datapath: `sendmmsg`, `recvmmsg` (for a lone message `sendmsg` and
//! `recvmsg`, which cost less, and for a lone packet in one piece `sendto`) and socket options.
//!
//! Where a system has no calls for several messages, or a sandbox does not let them through, messages
//! go one by one.
//!
//! Those for a lone message go past the C library's functions, in which a thread may be cancelled:
//! with several threads that costs two atomic operations a call, some 0.03 us.
//!
//! All pointers handed to the kernel are made and used within one function here, so a reader can
//! check each against what it points to without leaving the page. The arrays that hold them are
//! kept from call to call only to save their allocation.

#![allow(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use std::{io, mem, ptr};

use super::address::RawAddress;
use super::control::{ReceiveControl, Received, SendControl};
use super::segments::{RUN_PACKETS_MAX, Run};
use crate::Burst;

/// A burst in the worst case: no two packets share a message, so each has three pieces.
const PIECES_MAX: usize = 3 * Burst::PACKETS_MAX;

/// Room for one message to receive: what UDP can carry, rounded up to 64 KiB, the most that the
/// kernel coalesces.
pub(super) const SLOT_BYTES: usize = 64 << 10;

/// Sets a socket option that is an int.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value points to an int that outlives the call, and its size is passed with it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads a socket option that is an int.
pub(super) fn option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value and its size outlive the call, which writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_mut(&mut value).cast(),
            &raw mut bytes,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// The kernel's count of packets that the socket dropped for want of room; `None` before Linux
/// 4.12.
pub(super) fn drops(socket: BorrowedFd<'_>) -> Option<u32> {
    /// `SK_MEMINFO_DROPS` of `linux/sock_diag.h`.
    const DROPS: usize = 8;
    memory(socket).map(|info| info[DROPS])
}

/// What waits to be received, by the kernel's accounting. What was taken may be in it for a while
/// where the socket was not found empty since.
pub(super) fn queued_bytes(socket: BorrowedFd<'_>) -> Option<u64> {
    /// `SK_MEMINFO_RMEM_ALLOC` of `linux/sock_diag.h`.
    const RECEIVE_ALLOCATED: usize = 0;
    memory(socket).map(|info| u64::from(info[RECEIVE_ALLOCATED]))
}

/// `SK_MEMINFO_VARS` of `linux/sock_diag.h`.
const MEMORY_VARS: usize = 9;

/// What a socket's memory is used for.
fn memory(socket: BorrowedFd<'_>) -> Option<[u32; MEMORY_VARS]> {
    let mut info = [0u32; MEMORY_VARS];
    let mut bytes = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the info points to an array that outlives the call, and `bytes` to its size, which
    // the kernel does not exceed and overwrites with what it wrote.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    (result == 0 && bytes as usize == size_of_val(&info)).then_some(info)
}

/// Whether nothing waits to be received.
pub(super) fn is_empty(socket: BorrowedFd<'_>) -> bool {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: no byte is written to where the null pointer points.
    let result = unsafe { libc::recv(socket.as_raw_fd(), ptr::null_mut(), 0, flags) };
    result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
}

/// When the message that was received last had come, by the system's clock: for a socket that does
/// not tell it beside the message any more.
pub(super) fn last_came(socket: BorrowedFd<'_>) -> Option<Duration> {
    /// Of `asm-generic/sockios.h`. Where it is another number the call fails, and nothing is known.
    const SIOCGSTAMPNS: u32 = 0x8907;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which outlives it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS as _, &raw mut time) };
    if result < 0 {
        return None;
    }
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// By which socket to send where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'s> {
    pub(super) socket: BorrowedFd<'s>,
    pub(super) to: SocketAddr,
    /// The socket goes there and nowhere else.
    pub(super) is_connected: bool,
}

/// The arrays of a send.
pub(super) struct SendArrays {
    /// The run of each message and the number of its pieces.
    runs: Vec<(Run, usize)>,
    pieces: Vec<libc::iovec>,
    controls: Vec<SendControl>,
    messages: Vec<libc::mmsghdr>,
    /// There is no call for several messages.
    is_one_by_one: bool,
}

// SAFETY: the raw pointers in `pieces` and `messages` are leftovers of the last call; every call
// clears the arrays before it fills and uses them.
unsafe impl Send for SendArrays {}

impl SendArrays {
    pub(super) fn new() -> Self {
        Self {
            runs: Vec::with_capacity(Burst::PACKETS_MAX),
            pieces: Vec::with_capacity(PIECES_MAX),
            controls: Vec::with_capacity(Burst::PACKETS_MAX),
            messages: Vec::with_capacity(Burst::PACKETS_MAX),
            is_one_by_one: false,
        }
    }

    /// Sends the packets of `burst` from `start` on in one call, in runs of up to
    /// `run_packets_max`, in this traffic `class` or the socket's, and returns how many packets the
    /// kernel took. An error is about the first run.
    pub(super) fn send(
        &mut self,
        way: Way<'_>,
        burst: &Burst<'_, '_>,
        start: usize,
        run_packets_max: usize,
        class: Option<u8>,
    ) -> io::Result<usize> {
        debug_assert!((1..=RUN_PACKETS_MAX).contains(&run_packets_max));
        let Way { socket, to, is_connected } = way;
        // A connected socket that is told the address looks up the route again.
        let address = (!is_connected).then(|| RawAddress::from_socket_addr(to));
        let (name, name_bytes) = match &address {
            None => (ptr::null(), 0),
            Some((address, bytes)) => (ptr::from_ref(address), *bytes as libc::socklen_t),
        };
        // A lone packet in one piece, as small ones are, goes without any list: over loopback that
        // spares the kernel 0.18 of 2.6 us: M-udp-4.
        if class.is_none()
            && burst.len() - start == 1
            && let Some(packet) = burst.whole_packet(start)
        {
            // SAFETY: the call only reads, and address and packet outlive it.
            let sent = unsafe {
                libc::syscall(
                    libc::SYS_sendto,
                    socket.as_raw_fd(),
                    packet.as_ptr(),
                    packet.len(),
                    0,
                    name,
                    name_bytes,
                )
            };
            return if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(1) };
        }
        self.runs.clear();
        self.pieces.clear();
        self.controls.clear();
        self.messages.clear();
        // A mapped address is one of IPv4, on whatever socket.
        let is_v6 = to.ip().to_canonical().is_ipv6();

        // First everything that is pointed to, each array to its end, so that none moves any more.
        let mut next = start;
        while next < burst.len() {
            let run = Run::starting_at(next, burst, run_packets_max);
            let first_piece = self.pieces.len();
            burst.for_each_piece(next..next + run.packets, |piece| {
                let base = piece.as_ptr().cast_mut().cast();
                self.pieces.push(libc::iovec { iov_base: base, iov_len: piece.len() });
            });
            // SAFETY: an all-zero mmsghdr is valid: null pointers, and lengths of 0.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            let pieces = self.pieces.len() - first_piece;
            message.msg_hdr.msg_iovlen = pieces as _;
            self.messages.push(message);
            let mut control = SendControl::new();
            if let Ok(bytes) = u16::try_from(run.segment_bytes)
                && run.packets > 1
            {
                control.segment(bytes);
            }
            if let Some(class) = class {
                control.class(class, is_v6);
            }
            self.controls.push(control);
            next += run.packets;
            self.runs.push((run, pieces));
        }

        // Then the pointers.
        let mut first_piece = 0;
        for ((message, control), (_, pieces)) in
            self.messages.iter_mut().zip(&mut self.controls).zip(&self.runs)
        {
            let header = &mut message.msg_hdr;
            header.msg_name = name.cast_mut().cast();
            header.msg_namelen = name_bytes;
            header.msg_iov = self.pieces[first_piece..].as_mut_ptr();
            first_piece += pieces;
            if control.used() > 0 {
                header.msg_controllen = control.used() as _;
                header.msg_control = control.as_mut_ptr().cast();
            }
        }

        // A lone message, as small ones are: spares the kernel the list.
        if self.messages.len() == 1 || self.is_one_by_one {
            return self.send_first(socket);
        }
        // SAFETY: the call only reads. Each message points to the address on this stack, to its own
        // range of `pieces` and to its control message, all of which outlive the call; the pieces
        // point into `burst`, which is borrowed during the call.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                self.messages.len() as libc::c_uint,
                0,
            )
        };
        if let Ok(sent) = usize::try_from(sent) {
            return Ok(self.runs[..sent].iter().map(|(run, _)| run.packets).sum());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOSYS) => self.is_one_by_one = true,
            // A firewall's word on the first message, or a sandbox's on the call: the other call tells.
            Some(libc::EPERM) => {}
            _ => return Err(error),
        }
        self.send_first(socket)
    }

    /// Sends the first message alone: of its run, how many packets the kernel took.
    fn send_first(&self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let header = &raw const self.messages[0].msg_hdr;
        // SAFETY: as for the call for several, of the first message.
        let sent = unsafe { libc::syscall(libc::SYS_sendmsg, socket.as_raw_fd(), header, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(self.runs[0].0.packets) }
    }
}

/// The arrays of a receive, and the buffers.
pub(super) struct ReceiveArrays {
    bytes: Box<[u8]>,
    addresses: Box<[RawAddress]>,
    controls: Box<[ReceiveControl]>,
    pieces: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
    /// How many messages the last call received.
    received: usize,
    /// There is no call for several messages.
    is_one_by_one: bool,
}

// SAFETY: the raw pointers in `pieces` and `messages` point into the other arrays of this struct,
// on the heap, and are written anew by every call.
unsafe impl Send for ReceiveArrays {}

/// One received message.
pub(super) struct Message<'a> {
    pub(super) bytes: &'a mut [u8],
    /// `None` when the kernel named no address that we know, or was not asked.
    pub(super) source: Option<SocketAddr>,
    pub(super) control: Received,
    /// The message was longer than its slot.
    pub(super) truncated: bool,
}

impl ReceiveArrays {
    /// Room for `slots` messages. The memory is touched as far as messages fill it.
    pub(super) fn new(slots: usize) -> Self {
        let no_piece = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: an all-zero mmsghdr is valid: null pointers, and lengths of 0.
        let no_message: libc::mmsghdr = unsafe { mem::zeroed() };
        Self {
            bytes: vec![0; slots * SLOT_BYTES].into(),
            addresses: vec![RawAddress::default(); slots].into(),
            controls: vec![ReceiveControl::default(); slots].into(),
            pieces: vec![no_piece; slots].into(),
            messages: vec![no_message; slots].into(),
            received: 0,
            is_one_by_one: false,
        }
    }

    /// The most messages that one call receives.
    pub(super) fn slots(&self) -> usize {
        if self.is_one_by_one { 1 } else { self.messages.len() }
    }

    /// Receives up to `slots` messages in one call and returns their number. Who sent them is not
    /// asked of a connected socket.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        is_connected: bool,
        slots: usize,
    ) -> io::Result<usize> {
        self.received = 0;
        let slots = slots.min(self.slots());
        let buffers = self.bytes.chunks_exact_mut(SLOT_BYTES);
        let beside = self.addresses.iter_mut().zip(&mut self.controls);
        let arrays = self.messages.iter_mut().zip(&mut self.pieces).zip(buffers).zip(beside);
        for (((message, piece), buffer), (address, control)) in arrays.take(slots) {
            piece.iov_base = buffer.as_mut_ptr().cast();
            piece.iov_len = buffer.len();
            let header = &mut message.msg_hdr;
            (header.msg_name, header.msg_namelen) = match is_connected {
                true => (ptr::null_mut(), 0),
                false => {
                    (ptr::from_mut(address).cast(), size_of::<RawAddress>() as libc::socklen_t)
                }
            };
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            header.msg_control = ptr::from_mut(control).cast();
            header.msg_controllen = size_of::<ReceiveControl>() as _;
            header.msg_flags = 0;
        }
        if slots == 1 {
            let message = &mut self.messages[0];
            // SAFETY: as below.
            let bytes = unsafe {
                libc::syscall(
                    libc::SYS_recvmsg,
                    socket.as_raw_fd(),
                    &raw mut message.msg_hdr,
                    libc::MSG_DONTWAIT,
                )
            };
            message.msg_len = u32::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
            self.received = 1;
            return Ok(1);
        }
        // SAFETY: each message points to one buffer, address (or none) and control of its own in the
        // arrays of `self`, which is exclusively borrowed, with their sizes; a null timeout is
        // allowed.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                slots as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        if let Ok(received) = usize::try_from(received) {
            self.received = received;
            return Ok(received);
        }
        let error = io::Error::last_os_error();
        // The second is a sandbox's: no firewall keeps anybody from asking.
        if let Some(libc::ENOSYS | libc::EPERM) = error.raw_os_error() {
            self.is_one_by_one = true;
            return self.receive(socket, is_connected, 1);
        }
        Err(error)
    }

    /// Receives one message and returns its bytes; what the kernel could tell besides is not asked.
    pub(super) fn receive_plain(&mut self, socket: BorrowedFd<'_>) -> io::Result<&mut [u8]> {
        self.received = 0;
        let buffer = &mut self.bytes[..SLOT_BYTES];
        // SAFETY: the buffer is exclusively borrowed, and passed with its size; null for the address
        // asks for none.
        let bytes = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                socket.as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.len(),
                libc::MSG_DONTWAIT,
                ptr::null_mut::<libc::sockaddr>(),
                ptr::null_mut::<libc::socklen_t>(),
            )
        };
        match usize::try_from(bytes) {
            Ok(bytes) => Ok(&mut buffer[..bytes.min(SLOT_BYTES)]),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// The messages of the last call.
    pub(super) fn messages(&mut self) -> impl Iterator<Item = Message<'_>> {
        let buffers = self.bytes.chunks_exact_mut(SLOT_BYTES);
        let beside = self.addresses.iter().zip(&self.controls);
        let received = self.messages.iter().zip(buffers).zip(beside).take(self.received);
        received.map(|((message, buffer), (address, control))| {
            let header = &message.msg_hdr;
            #[allow(clippy::unnecessary_cast, reason = "u32 with the C library musl")]
            let control_bytes = header.msg_controllen as usize;
            let bytes = (message.msg_len as usize).min(SLOT_BYTES);
            Message {
                bytes: &mut buffer[..bytes],
                source: address.to_socket_addr(header.msg_namelen as usize),
                control: control.parse(control_bytes),
                truncated: header.msg_flags & libc::MSG_TRUNC != 0,
            }
        })
    }
}
