//! Control messages (ancillary data) of UDP messages, in the kernel's layout (`cmsghdr`).
//!
//! Sent are the segment size and a traffic class; received are the segment size, the traffic class,
//! the arrival time and the destination address. Both directions work on bytes, without pointers: a
//! malformed message is ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A `cmsghdr`: length including this header (a word), level, type.
const HEADER_BYTES: usize = size_of::<usize>() + 8;
const _: () = assert!(HEADER_BYTES == size_of::<libc::cmsghdr>());

/// Alignment of control messages: a word.
const ALIGN: usize = size_of::<usize>();

/// Size of `struct timespec`.
const TIMESPEC_BYTES: usize = size_of::<libc::timespec>();

/// Size of `struct in_pktinfo`; its middle four bytes are the address to answer from.
const PKTINFO_V4_BYTES: usize = size_of::<libc::in_pktinfo>();
/// Size of `struct in6_pktinfo`, which begins with the destination address.
const PKTINFO_V6_BYTES: usize = size_of::<libc::in6_pktinfo>();

/// Two messages with data of up to a word each, and the source address.
const SEND_BYTES: usize =
    2 * (HEADER_BYTES + ALIGN) + HEADER_BYTES + PKTINFO_V6_BYTES.next_multiple_of(ALIGN);
const _: () = assert!(PKTINFO_V4_BYTES <= PKTINFO_V6_BYTES);

/// Room for all that a socket asks for: the segment size, the traffic class and the address of both
/// IPv4 and IPv6 (a dual-stack socket may see either), and a time.
const RECEIVE_BYTES: usize = 192;
const _: () = assert!(
    6 * HEADER_BYTES
        + 3 * ALIGN
        + TIMESPEC_BYTES
        + PKTINFO_V4_BYTES.next_multiple_of(ALIGN)
        + PKTINFO_V6_BYTES.next_multiple_of(ALIGN)
        <= RECEIVE_BYTES
);

/// Control messages of one sent message: segment size, traffic class, both or none.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct SendControl {
    bytes: [u8; SEND_BYTES],
    used: usize,
}

impl SendControl {
    pub(super) fn new() -> Self {
        Self { bytes: [0; SEND_BYTES], used: 0 }
    }

    /// `UDP_SEGMENT`: the kernel cuts the message into packets of `segment_bytes`.
    pub(super) fn segment(&mut self, segment_bytes: u16) {
        self.add(libc::SOL_UDP, libc::UDP_SEGMENT, &segment_bytes.to_ne_bytes());
    }

    /// The message's traffic class, in place of the socket's.
    pub(super) fn class(&mut self, class: u8, is_v6: bool) {
        let (level, name) = match is_v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            false => (libc::IPPROTO_IP, libc::IP_TOS),
        };
        self.add(level, name, &i32::from(class).to_ne_bytes());
    }

    /// The address that the message leaves from, for a socket that has the family of `is_v6`. It is left out where
    /// the families do not fit; the route decides then.
    pub(super) fn source(&mut self, source: IpAddr, is_v6: bool) {
        match (is_v6, source.to_canonical()) {
            (false, IpAddr::V4(ip)) => {
                // Interface, the address to send from, and one that only a receiver is told.
                let mut info = [0; PKTINFO_V4_BYTES];
                info[4..8].copy_from_slice(&ip.octets());
                self.add(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            (true, ip) => {
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                let mut info = [0; PKTINFO_V6_BYTES];
                info[..16].copy_from_slice(&ip.octets());
                self.add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            (false, IpAddr::V6(_)) => {}
        }
    }

    fn add(&mut self, level: i32, kind: i32, data: &[u8]) {
        let (header, rest) = self.bytes[self.used..].split_at_mut(HEADER_BYTES);
        write_header(header, data.len(), level, kind);
        rest[..data.len()].copy_from_slice(data);
        self.used += HEADER_BYTES + data.len().next_multiple_of(ALIGN);
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// Length in bytes for the kernel (`msg_controllen`).
    pub(super) fn used(&self) -> usize {
        self.used
    }
}

fn write_header(header: &mut [u8], data_bytes: usize, level: i32, kind: i32) {
    let (length, rest) = header.split_at_mut(size_of::<usize>());
    length.copy_from_slice(&(HEADER_BYTES + data_bytes).to_ne_bytes());
    rest[..4].copy_from_slice(&level.to_ne_bytes());
    rest[4..8].copy_from_slice(&kind.to_ne_bytes());
}

/// Buffer for the control messages of one received message.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct ReceiveControl {
    bytes: [u8; RECEIVE_BYTES],
}

impl Default for ReceiveControl {
    fn default() -> Self {
        Self { bytes: [0; RECEIVE_BYTES] }
    }
}

/// The parsed control messages of a received message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Size of the coalesced packets; `None` for a message of one packet.
    pub(super) segment_bytes: Option<usize>,
    pub(super) congestion_experienced: bool,
    /// The traffic class, 0 if unknown.
    #[cfg(test)]
    pub(super) traffic_class: i32,
    /// The packet's destination: an address of this host.
    pub(super) local: Option<IpAddr>,
    /// Arrival time at this host, since the Unix epoch.
    pub(super) arrival: Option<Duration>,
}

impl ReceiveControl {
    /// Parses the first `bytes` bytes, which the kernel filled.
    pub(super) fn parse(&self, bytes: usize) -> Received {
        let mut received = Received::default();
        let mut rest = &self.bytes[..bytes.min(RECEIVE_BYTES)];
        while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let (length, kind) = header.split_at(size_of::<usize>());
            let length = word(length);
            let Some(data) = length.checked_sub(HEADER_BYTES).and_then(|data| after.get(..data))
            else {
                break;
            };
            received.read(int(&kind[..4]), int(&kind[4..]), data);
            rest = rest.get(length.next_multiple_of(ALIGN)..).unwrap_or_default();
        }
        received
    }
}

impl Received {
    fn read(&mut self, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment_bytes = usize::try_from(int(data)).ok().filter(|bytes| *bytes > 0);
            }
            // IPv4 gives one byte, IPv6 an int; the low byte is the traffic class, whose last two
            // bits are ECN (RFC 3168, section 5).
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.congestion_experienced = int(data) & 0b11 == 0b11;
                #[cfg(test)]
                {
                    self.traffic_class = int(data);
                }
            }
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) if data.len() == TIMESPEC_BYTES => {
                let (seconds, rest) = data.split_at(TIMESPEC_BYTES / 2);
                self.arrival = Some(Duration::new(word(seconds) as u64, int(rest).unsigned_abs()));
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if data.len() == PKTINFO_V4_BYTES => {
                // The address to answer from, which a broadcast's destination is not.
                let ip = data[4..].first_chunk().map(|ip: &[u8; 4]| Ipv4Addr::from(*ip));
                self.local = ip.map(IpAddr::V4);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if data.len() == PKTINFO_V6_BYTES => {
                let ip = data.first_chunk().map(|ip: &[u8; 16]| Ipv6Addr::from(*ip));
                // Of IPv4 packets the other one says more, whichever comes first.
                self.local = self.local.or(ip.map(|ip| ip.to_canonical()));
            }
            _ => {}
        }
    }
}

fn word(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |bytes| usize::from_ne_bytes(*bytes))
}

/// An int, or a single byte widened to one.
fn int(bytes: &[u8]) -> i32 {
    match (bytes.first_chunk(), bytes.first()) {
        (Some(bytes), _) => i32::from_ne_bytes(*bytes),
        (None, Some(byte)) => i32::from(*byte),
        (None, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(messages: &[(i32, i32, &[u8])]) -> (ReceiveControl, usize) {
        let mut control = ReceiveControl::default();
        let mut at = 0;
        for (level, kind, data) in messages {
            write_header(&mut control.bytes[at..][..HEADER_BYTES], data.len(), *level, *kind);
            control.bytes[at + HEADER_BYTES..][..data.len()].copy_from_slice(data);
            at += (HEADER_BYTES + data.len()).next_multiple_of(ALIGN);
        }
        (control, at)
    }

    fn timespec(seconds: usize, nanoseconds: usize) -> Vec<u8> {
        [seconds, nanoseconds].iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn all_control_messages_are_read() {
        let (raw, bytes) = control(&[
            (libc::IPPROTO_IP, libc::IP_TOS, &[3]),
            (libc::SOL_SOCKET, 12345, &[1, 2, 3]),
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &timespec(7, 9)),
            (libc::SOL_UDP, libc::UDP_GRO, &1400i32.to_ne_bytes()),
        ]);
        let expected = Received {
            segment_bytes: Some(1400),
            congestion_experienced: true,
            traffic_class: 3,
            local: None,
            arrival: Some(Duration::new(7, 9)),
        };
        assert_eq!(raw.parse(bytes), expected);
        let (raw, bytes) = control(&[(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &2i32.to_ne_bytes())]);
        assert!(!raw.parse(bytes).congestion_experienced);
        assert_eq!(ReceiveControl::default().parse(0), Received::default());
    }

    #[test]
    fn the_address_that_a_message_came_to_is_read_in_either_protocol() {
        // Interface, the address to answer from, the destination in the header.
        let v4 = [1, 0, 0, 0, 10, 0, 0, 1, 10, 0, 0, 255];
        let here = Some([10, 0, 0, 1].into());
        let (raw, bytes) = control(&[(libc::IPPROTO_IP, libc::IP_PKTINFO, &v4)]);
        assert_eq!(raw.parse(bytes).local, here, "not that of a broadcast");
        let mapped: Ipv6Addr = "::ffff:10.0.0.255".parse().unwrap();
        let v6 = [&mapped.octets()[..], &[1, 0, 0, 0]].concat();
        let both = [
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &v6[..]),
            (libc::IPPROTO_IP, libc::IP_PKTINFO, &v4[..]),
        ];
        for order in [both, [both[1], both[0]]] {
            let (raw, bytes) = control(&order);
            assert_eq!(raw.parse(bytes).local, here, "in whichever order");
        }
        for (ip, told) in [("2001:db8::1", "2001:db8::1"), ("::ffff:10.0.0.3", "10.0.0.3")] {
            let ip: Ipv6Addr = ip.parse().unwrap();
            let v6 = [&ip.octets()[..], &[1, 0, 0, 0]].concat();
            let (raw, bytes) = control(&[(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &v6)]);
            assert_eq!(raw.parse(bytes).local, Some(told.parse().unwrap()));
        }
        let (raw, bytes) = control(&[(libc::IPPROTO_IP, libc::IP_PKTINFO, &v4[1..])]);
        assert_eq!(raw.parse(bytes).local, None);
    }

    #[test]
    fn nonsense_is_ignored() {
        let (raw, bytes) = control(&[(libc::SOL_UDP, libc::UDP_GRO, &1400i32.to_ne_bytes())]);
        for bytes in 0..bytes - ALIGN {
            assert_eq!(raw.parse(bytes), Received::default());
        }
        for length in [0, 1, HEADER_BYTES - 1, RECEIVE_BYTES + 1, usize::MAX] {
            let mut raw = raw;
            raw.bytes[..size_of::<usize>()].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(raw.parse(RECEIVE_BYTES), Received::default());
        }
        assert_eq!(
            ReceiveControl { bytes: [0xff; RECEIVE_BYTES] }.parse(usize::MAX),
            Received::default()
        );
    }
}
