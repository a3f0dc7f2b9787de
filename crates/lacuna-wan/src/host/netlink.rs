//! Configures devices and addresses of a host over a routing netlink socket (rtnetlink(7)).
//!
//! Unlike the older `ioctl`s, netlink allows all of this to the root of a user namespace. Messages are
//! built on the stack, because the forked child must not allocate (see [`super::keeper`]).

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::bundle::ethernet::Mac;

/// Longest message here: headers, and some attributes of 16 bytes at most.
const MESSAGE_BYTES_MAX: usize = 128;

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER_BYTES: usize = 16;

/// `RTM_NEWLINK`, `RTM_NEWADDR` and `RTM_NEWROUTE` of `linux/rtnetlink.h`.
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
/// `NLMSG_ERROR`, which also reports success.
const ANSWER: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_ACK`, and for a new object `NLM_F_CREATE | NLM_F_EXCL`.
const REQUEST: u16 = 0x1 | 0x4;
const CREATE: u16 = 0x400 | 0x200;

/// `IFLA_ADDRESS`, `IFLA_MTU`, `IFLA_TXQLEN` and `IFF_UP`.
const LINK_ADDRESS: u16 = 1;
const LINK_MTU: u16 = 4;
const LINK_QUEUE: u16 = 13;
const UP: u32 = 1;
/// `IFA_ADDRESS`, `IFA_LOCAL`, `IFA_BROADCAST`, and `IFA_F_NODAD`: no other host can have the same address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const BROADCAST: u16 = 4;
const NO_DUPLICATE_DETECTION: u8 = 2;

/// `RTA_DST` and `RTA_OIF`.
const ROUTE_DESTINATION: u16 = 1;
const ROUTE_DEVICE: u16 = 4;
/// `RT_TABLE_MAIN`, `RTPROT_STATIC`, `RT_SCOPE_LINK` and `RTN_UNICAST`: as `ip route add NETWORK dev DEVICE`.
const ROUTE_KIND: [u8; 4] = [254, 4, 253, 1];

/// A message under construction.
struct Message {
    bytes: [u8; MESSAGE_BYTES_MAX],
    length: usize,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Self {
        let mut message = Self { bytes: [0; MESSAGE_BYTES_MAX], length: HEADER_BYTES };
        message.bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        message.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        message
    }

    /// Appends bytes and padding to a multiple of 4.
    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len().next_multiple_of(4);
    }

    /// Appends an attribute: `struct rtattr` and its value.
    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let [a, b] = (4 + value.len() as u16).to_ne_bytes();
        let [c, d] = kind.to_ne_bytes();
        self.push(&[a, b, c, d]);
        self.push(value);
    }

    fn finish(&mut self) -> &[u8] {
        self.bytes[..4].copy_from_slice(&(self.length as u32).to_ne_bytes());
        &self.bytes[..self.length]
    }
}

/// Opens a netlink socket for the functions below.
pub(super) fn open() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC;
    // No protocol is NETLINK_ROUTE.
    socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)
}

/// Brings a device up; sets its MTU and queue length if `sizes` has them, and its link's address.
pub(super) fn bring_up(
    socket: BorrowedFd<'_>,
    index: u32,
    sizes: Option<(u32, u32)>,
    mac: Option<Mac>,
) -> Result<(), Errno> {
    let mut message = Message::new(NEW_LINK, REQUEST);
    // `struct ifinfomsg`: family, type, index, flags, and which flags to change.
    message.push(&[0; 4]);
    message.push(&index.to_ne_bytes());
    message.push(&UP.to_ne_bytes());
    message.push(&UP.to_ne_bytes());
    if let Some((mtu_bytes, queue_frames)) = sizes {
        message.attribute(LINK_MTU, &mtu_bytes.to_ne_bytes());
        message.attribute(LINK_QUEUE, &queue_frames.to_ne_bytes());
    }
    if let Some(mac) = mac {
        message.attribute(LINK_ADDRESS, &mac);
    }
    exchange(socket, &mut message)
}

/// Adds an address to a device, and with it a route to the address' network; `broadcast` is the address of all
/// in it.
pub(super) fn add_address(
    socket: BorrowedFd<'_>,
    index: u32,
    address: IpAddr,
    prefix_bits: u8,
    broadcast: Option<Ipv4Addr>,
) -> Result<(), Errno> {
    let (family, flags) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, 0),
        IpAddr::V6(_) => (AddressFamily::INET6, NO_DUPLICATE_DETECTION),
    };
    let mut message = Message::new(NEW_ADDRESS, REQUEST | CREATE);
    // `struct ifaddrmsg`: family, prefix length, flags, scope (universe), index.
    message.push(&[family.as_raw() as u8, prefix_bits, flags, 0]);
    message.push(&index.to_ne_bytes());
    for kind in [LOCAL, ADDRESS] {
        match address {
            IpAddr::V4(address) => message.attribute(kind, &address.octets()),
            IpAddr::V6(address) => message.attribute(kind, &address.octets()),
        }
    }
    if let Some(broadcast) = broadcast {
        message.attribute(BROADCAST, &broadcast.octets());
    }
    exchange(socket, &mut message)
}

/// Adds a route to a network that a device leads to without a gateway.
pub(super) fn add_route(
    socket: BorrowedFd<'_>,
    index: u32,
    network: Ipv4Addr,
    prefix_bits: u8,
) -> Result<(), Errno> {
    let mut message = Message::new(NEW_ROUTE, REQUEST | CREATE);
    // `struct rtmsg`: family, lengths of destination and source, TOS; then what kind of route, and flags.
    message.push(&[AddressFamily::INET.as_raw() as u8, prefix_bits, 0, 0]);
    message.push(&ROUTE_KIND);
    message.push(&[0; 4]);
    message.attribute(ROUTE_DESTINATION, &network.octets());
    message.attribute(ROUTE_DEVICE, &index.to_ne_bytes());
    exchange(socket, &mut message)
}

/// Sends a request and reads the kernel's answer.
fn exchange(socket: BorrowedFd<'_>, message: &mut Message) -> Result<(), Errno> {
    write(socket, message.finish())?;
    // A header, an error number, and the request again.
    let mut answer = [0; 2 * HEADER_BYTES + MESSAGE_BYTES_MAX];
    let length = read(socket, &mut answer)?;
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    if length < HEADER_BYTES + 4 || kind != ANSWER {
        return Err(Errno::BADMSG);
    }
    let [a, b, c, d] = [answer[16], answer[17], answer[18], answer[19]];
    match i32::from_ne_bytes([a, b, c, d]) {
        0 => Ok(()),
        // The kernel negates error numbers.
        error => Err(Errno::from_raw_os_error(error.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_layout_of_rtnetlink() {
        let mut message = Message::new(0x0102, 0x0304);
        message.push(&[7; 5]);
        message.attribute(0x0506, &[9, 9]);
        let number = |bytes: u16| bytes.to_ne_bytes();
        let mut expected = vec![];
        expected.extend_from_slice(&32u32.to_ne_bytes());
        expected.extend([number(0x0102), number(0x0304)].concat());
        expected.extend([0; 8]);
        expected.extend([7, 7, 7, 7, 7, 0, 0, 0]);
        expected.extend([number(6), number(0x0506)].concat());
        expected.extend([9, 9, 0, 0]);
        assert_eq!(message.finish()[4..], expected[4..]);
        assert_eq!(message.finish()[..4], 32u32.to_ne_bytes());
    }

    #[test]
    fn the_kernels_refusal_is_its_error() {
        let socket = open().expect("a netlink socket");
        use std::os::fd::AsFd;
        let refused = bring_up(socket.as_fd(), u32::MAX / 2, None, None);
        // No such device, or no right to ask.
        assert!(matches!(refused, Err(Errno::NODEV | Errno::PERM)), "{refused:?}");
    }
}
