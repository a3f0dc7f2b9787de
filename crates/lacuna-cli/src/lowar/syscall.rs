//! The Linux system calls for packet sockets (packet(7)): frames of an interface as they are, in batches;
//! and batches of a tunnel's datagrams, which are frames with a shorter header.
//!
//! Each pointer that the kernel gets is made and used in one function. A frame has a header of
//! `virtio_net` (`PACKET_VNET_HDR`), which says what an interface with offloads left undone; without it
//! checksums would be missing and long frames could not be sent on. VLAN tags, which the kernel takes out
//! of frames, come as control messages.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{io, mem, ptr};

/// Bytes of the header of `virtio_net`.
pub(super) const OFFLOAD_BYTES: usize = 10;

const PACKET_ADD_MEMBERSHIP: libc::c_int = 1;
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_AUXDATA: libc::c_int = 8;
const PACKET_VNET_HDR: libc::c_int = 15;
/// Linux 4.20.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const PACKET_MR_PROMISC: libc::c_ushort = 1;
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
const TYPE_VLAN: u16 = 0x8100;

/// What `PACKET_AUXDATA` gives: `struct tpacket_auxdata`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AuxiliaryData {
    status: u32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
    vlan_tci: u16,
    vlan_tpid: u16,
}

/// `struct packet_mreq`.
#[repr(C)]
struct Membership {
    index: libc::c_int,
    kind: libc::c_ushort,
    address_bytes: libc::c_ushort,
    address: [u8; 8],
}

/// A message that was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// The header before the frame, and zeros if that is shorter.
    pub(super) header: [u8; OFFLOAD_BYTES],
    /// Of the frame, without the header before it.
    pub(super) bytes: usize,
    /// Its VLAN tag: type and value.
    pub(super) tag: Option<(u16, u16)>,
    /// Whether the buffer was too short.
    pub(super) is_cut: bool,
}

/// Opens a packet socket that gets every frame that comes in by an interface.
pub(super) fn open(index: u32, buffer_bytes: usize) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // Of no protocol until it is bound, so that nothing of other interfaces comes.
    // SAFETY: no pointer; the descriptor is new and has no other owner.
    let socket = unsafe {
        match libc::socket(libc::AF_PACKET, kind, 0) {
            -1 => return Err(io::Error::last_os_error()),
            socket => OwnedFd::from_raw_fd(socket),
        }
    };
    set(&socket, libc::SOL_PACKET, PACKET_VNET_HDR, &1i32)?;
    set(&socket, libc::SOL_PACKET, PACKET_AUXDATA, &1i32)?;
    set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32)?;
    let bytes = buffer_bytes as libc::c_int;
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set(&socket, libc::SOL_SOCKET, force, &bytes).is_err() {
            set(&socket, libc::SOL_SOCKET, plain, &bytes)?;
        }
    }
    // SAFETY: a sockaddr_ll is integers and arrays of them.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as libc::c_int;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address outlives the call, and its size is passed with it.
    let result = unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), length) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let membership = Membership {
        index: index as libc::c_int,
        kind: PACKET_MR_PROMISC,
        address_bytes: 0,
        address: [0; 8],
    };
    set(&socket, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(socket)
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    let value = ptr::from_ref(value).cast();
    // SAFETY: the value outlives the call, and its size is passed with it.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An interface's MTU.
pub(super) fn mtu_bytes(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    // SAFETY: an ifreq is integers, arrays of them and null pointers.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0.
    for (place, byte) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    // SAFETY: the operation reads and writes an ifreq, which outlives the call, and fills ifru_mtu.
    unsafe {
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(request.ifr_ifru.ifru_mtu.max(0) as u32)
    }
}

/// Frames that the kernel dropped since the last call, as nobody took them in time.
pub(super) fn drops(socket: BorrowedFd<'_>) -> u64 {
    let mut statistics = [0u32; 2];
    let mut bytes = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the value and its size outlive the call, which writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            PACKET_STATISTICS,
            statistics.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    };
    if result < 0 { 0 } else { statistics[1].into() }
}

/// Room for the control message of one frame, aligned for its header.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

/// Receives up to `MESSAGES` frames, one into each of the buffers, which are `buffer_bytes` each; the
/// `header_bytes` before a frame, which are no more than those of an offload, are told beside it.
pub(super) fn receive<const MESSAGES: usize>(
    socket: BorrowedFd<'_>,
    header_bytes: usize,
    buffers: &mut [u8],
    buffer_bytes: usize,
    out: &mut Vec<Message>,
) -> io::Result<()> {
    out.clear();
    let header_bytes = header_bytes.min(OFFLOAD_BYTES);
    let mut offloads = [[0u8; OFFLOAD_BYTES]; MESSAGES];
    let mut controls = [Control([0; 64]); MESSAGES];
    // SAFETY: integers and null pointers.
    let mut headers: [libc::mmsghdr; MESSAGES] = unsafe { mem::zeroed() };
    // SAFETY: integers and null pointers.
    let mut pieces: [[libc::iovec; 2]; MESSAGES] = unsafe { mem::zeroed() };
    let mut count = 0;
    let rooms = buffers.chunks_exact_mut(buffer_bytes).zip(&mut offloads).zip(&mut controls);
    for (((buffer, offload), control), (header, pieces)) in
        rooms.zip(headers.iter_mut().zip(&mut pieces))
    {
        pieces[0] = libc::iovec { iov_base: offload.as_mut_ptr().cast(), iov_len: header_bytes };
        pieces[1] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        header.msg_hdr.msg_iov = pieces.as_mut_ptr();
        header.msg_hdr.msg_iovlen = 2;
        header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = control.0.len() as _;
        count += 1;
    }
    // SAFETY: every pointer is to an array of this function or to `buffers`, with its length.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    for (header, offload) in headers.iter().zip(&offloads).take(received as usize) {
        let message = &header.msg_hdr;
        out.push(Message {
            header: *offload,
            bytes: (header.msg_len as usize).saturating_sub(header_bytes),
            tag: tag_of(message),
            is_cut: message.msg_flags & libc::MSG_TRUNC != 0,
        });
    }
    Ok(())
}

/// The VLAN tag in a message's control data.
fn tag_of(message: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: the kernel filled the control data of this message, which is alive; what is read is checked
    // to be there.
    let data = unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        let is_it = !header.is_null()
            && (*header).cmsg_level == libc::SOL_PACKET
            && (*header).cmsg_type == PACKET_AUXDATA
            && (*header).cmsg_len as usize
                >= libc::CMSG_LEN(size_of::<AuxiliaryData>() as u32) as usize;
        if !is_it {
            return None;
        }
        libc::CMSG_DATA(header).cast::<AuxiliaryData>().read_unaligned()
    };
    if data.status & TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_type = data.status & TP_STATUS_VLAN_TPID_VALID != 0;
    Some((if has_type { data.vlan_tpid } else { TYPE_VLAN }, data.vlan_tci))
}

/// Sends up to `MESSAGES` frames, each with a header before it; how many were taken.
pub(super) fn send<const MESSAGES: usize>(
    socket: BorrowedFd<'_>,
    frames: &[(&[u8], &[u8])],
) -> io::Result<usize> {
    // SAFETY: integers and null pointers.
    let mut headers: [libc::mmsghdr; MESSAGES] = unsafe { mem::zeroed() };
    // SAFETY: integers and null pointers.
    let mut pieces: [[libc::iovec; 2]; MESSAGES] = unsafe { mem::zeroed() };
    let mut count = 0;
    for ((before, frame), (header, pieces)) in
        frames.iter().zip(headers.iter_mut().zip(&mut pieces))
    {
        // The kernel only reads.
        let piece = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        *pieces = [piece(before), piece(frame)];
        header.msg_hdr.msg_iov = pieces.as_mut_ptr();
        header.msg_hdr.msg_iovlen = 2;
        count += 1;
    }
    // SAFETY: every pointer is to an array of this function or to a frame, with its length.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}
