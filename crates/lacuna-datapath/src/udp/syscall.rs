//! The Linux system calls of the UDP datapath: `sendmmsg` and `recvmmsg`; the cheaper `sendmsg` and
//! `recvmsg` for a single message; `sendto` for a single packet in one buffer; and socket options.
//!
//! Where the system lacks `sendmmsg` or `recvmmsg`, or a sandbox forbids them, messages go one by one.
//!
//! The calls for a single message bypass the C library, whose functions are cancellation points: in a
//! multi-threaded process that costs two atomic operations per call, some 0.03 us.
//!
//! Each pointer handed to the kernel is made and used within one function here, so a reader can check
//! it against its target on one page. The arrays that hold the pointers are kept from call to call
//! only to save allocations.

#![allow(unsafe_code)]

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use std::{io, mem, ptr};

use lacuna_wire::{ICRC_BYTES, IcrcFlow};

use super::address::RawAddress;
use super::control::{ReceiveControl, Received, SendControl};
use super::icrc;
use super::segments::Bundle;
use crate::{BUNDLE_PACKETS_MAX, Burst};

/// Iovecs of a burst in the worst case: each packet is a message of its own with three iovecs.
const IOVECS_MAX: usize = 3 * Burst::PACKETS_MAX;

/// Receive buffer of one message: 64 KiB, the most that the kernel coalesces.
pub(super) const SLOT_BYTES: usize = 64 << 10;

/// The interface that packets to IPv4 groups leave by.
pub(super) fn set_group_interface(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let any = libc::in_addr { s_addr: 0 };
    let index = interface.cast_signed();
    let request = libc::ip_mreqn { imr_multiaddr: any, imr_address: any, imr_ifindex: index };
    // SAFETY: the option's value is a whole `ip_mreqn`, which the call only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MULTICAST_IF,
            ptr::from_ref(&request).cast(),
            size_of::<libc::ip_mreqn>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

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

/// Packets that the socket dropped because its buffer was full; `None` before Linux 4.12.
pub(super) fn drops(socket: BorrowedFd<'_>) -> Option<u32> {
    /// `SK_MEMINFO_DROPS` of `linux/sock_diag.h`.
    const DROPS: usize = 8;
    memory(socket).map(|info| info[DROPS])
}

/// Bytes that wait to be received, by the kernel's accounting. Until the socket is read empty, the
/// figure may include bytes that were already read.
pub(super) fn queued_bytes(socket: BorrowedFd<'_>) -> Option<u64> {
    /// `SK_MEMINFO_RMEM_ALLOC` of `linux/sock_diag.h`.
    const RECEIVE_ALLOCATED: usize = 0;
    memory(socket).map(|info| u64::from(info[RECEIVE_ALLOCATED]))
}

/// `SK_MEMINFO_VARS` of `linux/sock_diag.h`.
const MEMORY_VARS: usize = 9;

/// The socket's memory use (`SO_MEMINFO`).
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

/// Arrival time of the last received message, by the system's clock: for a socket whose control
/// messages do not include it.
pub(super) fn last_arrival(socket: BorrowedFd<'_>) -> Option<Duration> {
    /// Of `asm-generic/sockios.h`. On systems with another number the call fails and returns `None`.
    const SIOCGSTAMPNS: u32 = 0x8907;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which outlives it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS as _, &raw mut time) };
    if result < 0 {
        return None;
    }
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// A socket and the destination to send to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'s> {
    pub(super) socket: BorrowedFd<'s>,
    pub(super) to: SocketAddr,
    /// The socket is connected to `to`.
    pub(super) is_connected: bool,
}

/// The arrays of a send call.
pub(super) struct SendArrays {
    /// The bundle of each message and the number of its iovecs.
    bundles: Vec<(Bundle, usize)>,
    iovecs: Vec<libc::iovec>,
    controls: Vec<SendControl>,
    messages: Vec<libc::mmsghdr>,
    /// Trailers of packets whose ICRC is completed here, by packet; empty until there are any, then
    /// of fixed length.
    trailers: Vec<[u8; ICRC_BYTES]>,
    /// `sendmmsg` is not available.
    is_one_by_one: bool,
}

// SAFETY: the raw pointers in `iovecs` and `messages` are leftovers of the last call; every call
// clears the arrays before it fills and uses them.
unsafe impl Send for SendArrays {}

impl SendArrays {
    pub(super) fn new() -> Self {
        Self {
            bundles: Vec::with_capacity(Burst::PACKETS_MAX),
            iovecs: Vec::with_capacity(IOVECS_MAX),
            controls: Vec::with_capacity(Burst::PACKETS_MAX),
            messages: Vec::with_capacity(Burst::PACKETS_MAX),
            trailers: Vec::new(),
            is_one_by_one: false,
        }
    }

    /// Sends the packets of `burst` from `start` on in one call, in bundles of up to
    /// `bundle_packets_max` packets, with traffic class `class` or else the socket's. With `icrc`, their
    /// trailers become ICRCs; the socket is not connected then. Returns how many packets the kernel
    /// took. An error is about the first bundle.
    #[inline]
    pub(super) fn send(
        &mut self,
        target: Target<'_>,
        burst: &Burst<'_, '_>,
        start: usize,
        bundle_packets_max: usize,
        class: Option<u8>,
        mut icrc: Option<&mut IcrcFlow>,
    ) -> io::Result<usize> {
        debug_assert!((1..=BUNDLE_PACKETS_MAX).contains(&bundle_packets_max));
        let Target { socket, to, is_connected } = target;
        debug_assert!(icrc.is_none() || !is_connected);
        // With an address, a connected socket would look up the route again.
        let address = (!is_connected).then(|| RawAddress::from_socket_addr(to));
        let (name, name_bytes) = match &address {
            None => (ptr::null(), 0),
            Some((address, bytes)) => (ptr::from_ref(address), *bytes as libc::socklen_t),
        };
        // A single packet in one buffer, as small ones are, needs no list: over loopback that saves
        // 0.18 of 2.6 us. Measured: M-udp-4.
        if class.is_none()
            && icrc.is_none()
            && burst.source().is_none()
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
        self.bundles.clear();
        self.iovecs.clear();
        self.controls.clear();
        self.messages.clear();
        // An IPv4-mapped address is sent as IPv4, whatever the socket's family.
        let is_v6 = to.ip().to_canonical().is_ipv6();

        // First fill all arrays that are pointed to, so that none is reallocated afterwards.
        let mut next = start;
        while next < burst.len() {
            let bundle = Bundle::starting_at(next, burst, bundle_packets_max);
            let first_iovec = self.iovecs.len();
            let packets = next..next + bundle.packets;
            match icrc.as_deref_mut() {
                None => burst.for_each_slice(packets, |slice| {
                    let base = slice.as_ptr().cast_mut().cast();
                    match self.iovecs[first_iovec..].last_mut() {
                        // Packets that lie one behind the other cost as much as one.
                        Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == base => {
                            last.iov_len += slice.len();
                        }
                        _ => self.iovecs.push(libc::iovec { iov_base: base, iov_len: slice.len() }),
                    }
                }),
                Some(flow) => self.gather_with_icrc(burst, packets, flow),
            }
            // SAFETY: an all-zero mmsghdr is valid: null pointers, and lengths of 0.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            let iovecs = self.iovecs.len() - first_iovec;
            message.msg_hdr.msg_iovlen = iovecs as _;
            self.messages.push(message);
            let mut control = SendControl::new();
            if let Ok(bytes) = u16::try_from(bundle.segment_bytes)
                && bundle.packets > 1
            {
                control.segment(bytes);
            }
            if let Some(class) = class {
                control.class(class, is_v6);
            }
            if let Some(source) = burst.source() {
                control.source(source, to.is_ipv6());
            }
            self.controls.push(control);
            next += bundle.packets;
            self.bundles.push((bundle, iovecs));
        }

        // Then set the pointers.
        let mut first_iovec = 0;
        for ((message, control), (_, iovecs)) in
            self.messages.iter_mut().zip(&mut self.controls).zip(&self.bundles)
        {
            let header = &mut message.msg_hdr;
            header.msg_name = name.cast_mut().cast();
            header.msg_namelen = name_bytes;
            header.msg_iov = self.iovecs[first_iovec..].as_mut_ptr();
            first_iovec += iovecs;
            if control.used() > 0 {
                header.msg_controllen = control.used() as _;
                header.msg_control = control.as_mut_ptr().cast();
            }
        }

        // `sendmsg` costs less than `sendmmsg` for a single message.
        if self.messages.len() == 1 || self.is_one_by_one {
            return self.send_first(socket);
        }
        // SAFETY: the call only reads. Each message points to the address on this stack, to its own
        // range of `iovecs` and to its control message, all of which outlive the call; the iovecs
        // point into `burst`, which is borrowed during the call, and into `trailers`, which has its
        // full length since before the first of them.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                self.messages.len() as libc::c_uint,
                0,
            )
        };
        if let Ok(sent) = usize::try_from(sent) {
            return Ok(self.bundles[..sent].iter().map(|(bundle, _)| bundle.packets).sum());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOSYS) => self.is_one_by_one = true,
            // A firewall refused the first message, or a sandbox the call: `sendmsg` shows which.
            Some(libc::EPERM) => {}
            _ => return Err(error),
        }
        self.send_first(socket)
    }

    /// Adds the iovecs of the bundle of these packets, with their ICRCs in place of their trailers.
    /// The kernel numbers a bundle's packets from 0.
    #[cold]
    fn gather_with_icrc(
        &mut self,
        burst: &Burst<'_, '_>,
        packets: Range<usize>,
        flow: &mut IcrcFlow,
    ) {
        if self.trailers.is_empty() {
            self.trailers.resize(Burst::PACKETS_MAX, [0; ICRC_BYTES]);
        }
        for (identification, index) in (0u16..).zip(packets) {
            let packet = burst.packet(index);
            // A packet that is too short for a trailer is none of the protocol's; it goes as it is.
            let (parts, inner) = match icrc::split(packet) {
                Some((parts, inner)) => (parts, Some(inner)),
                None => ([packet.header, packet.payload, packet.trailer], None),
            };
            let trailer = &mut self.trailers[index];
            let mut icrc: &[u8] = &[];
            if let Some(inner) = inner {
                *trailer = flow.seal(inner, packet.len(), identification);
                icrc = trailer;
            }
            for iovec in parts.into_iter().chain([icrc]).filter(|part| !part.is_empty()) {
                let base = iovec.as_ptr().cast_mut().cast();
                self.iovecs.push(libc::iovec { iov_base: base, iov_len: iovec.len() });
            }
        }
    }

    /// Sends the first message alone; returns the packets of its bundle.
    fn send_first(&self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let header = &raw const self.messages[0].msg_hdr;
        // SAFETY: as for the call for several, of the first message.
        let sent = unsafe { libc::syscall(libc::SYS_sendmsg, socket.as_raw_fd(), header, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(self.bundles[0].0.packets) }
    }
}

/// The arrays and buffers of a receive call.
pub(super) struct ReceiveArrays {
    bytes: Box<[u8]>,
    addresses: Box<[RawAddress]>,
    controls: Box<[ReceiveControl]>,
    iovecs: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
    /// How many messages the last call received.
    received: usize,
    /// `recvmmsg` is not available.
    is_one_by_one: bool,
}

// SAFETY: the raw pointers in `iovecs` and `messages` point into the other arrays of this struct,
// on the heap, and are written anew by every call.
unsafe impl Send for ReceiveArrays {}

/// One received message.
pub(super) struct Message<'a> {
    pub(super) bytes: &'a mut [u8],
    /// `None` for an unknown address family, and for a connected socket.
    pub(super) source: Option<SocketAddr>,
    pub(super) control: Received,
    /// The message was longer than its slot.
    pub(super) truncated: bool,
}

impl ReceiveArrays {
    /// Room for `slots` messages. Memory is committed only as far as messages fill it.
    pub(super) fn new(slots: usize) -> Self {
        let no_iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: an all-zero mmsghdr is valid: null pointers, and lengths of 0.
        let no_message: libc::mmsghdr = unsafe { mem::zeroed() };
        Self {
            bytes: vec![0; slots * SLOT_BYTES].into(),
            addresses: vec![RawAddress::default(); slots].into(),
            controls: vec![ReceiveControl::default(); slots].into(),
            iovecs: vec![no_iovec; slots].into(),
            messages: vec![no_message; slots].into(),
            received: 0,
            is_one_by_one: false,
        }
    }

    /// The most messages that one call receives.
    pub(super) fn slots(&self) -> usize {
        if self.is_one_by_one { 1 } else { self.messages.len() }
    }

    /// Receives up to `slots` messages in one call and returns their number. A connected socket is not
    /// asked for source addresses.
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
        let arrays = self.messages.iter_mut().zip(&mut self.iovecs).zip(buffers).zip(beside);
        for (((message, iovec), buffer), (address, control)) in arrays.take(slots) {
            iovec.iov_base = buffer.as_mut_ptr().cast();
            iovec.iov_len = buffer.len();
            let header = &mut message.msg_hdr;
            (header.msg_name, header.msg_namelen) = match is_connected {
                true => (ptr::null_mut(), 0),
                false => {
                    (ptr::from_mut(address).cast(), size_of::<RawAddress>() as libc::socklen_t)
                }
            };
            header.msg_iov = iovec;
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
        // EPERM comes from a sandbox: firewalls do not affect receive calls.
        if let Some(libc::ENOSYS | libc::EPERM) = error.raw_os_error() {
            self.is_one_by_one = true;
            return self.receive(socket, is_connected, 1);
        }
        Err(error)
    }

    /// Receives one message without source address or control messages, and returns its bytes.
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
