//! Control messages: what travels beside a UDP message, in the kernel's layout (`cmsghdr`).
//!
//! Two go out, the segment size and a traffic class; three come in, the segment size, the traffic class and when the
//! message came. Both directions work on bytes, so a malformed message can at worst be ignored.

use std::time::Duration;

/// A `cmsghdr`: length including this header (a word), level, type.
const HEADER_BYTES: usize = size_of::<usize>() + 8;
const _: () = assert!(HEADER_BYTES == size_of::<libc::cmsghdr>());

/// Messages begin at multiples of a word.
const ALIGN: usize = size_of::<usize>();

/// Of a `struct timespec` as the kernel writes it.
const TIMESPEC_BYTES: usize = size_of::<libc::timespec>();

/// Two messages whose data fit a word.
const SEND_BYTES: usize = 2 * (HEADER_BYTES + ALIGN);

/// What a receive asks the kernel for: the segment size, the traffic class of IPv4 and of IPv6 (a
/// dual-stack socket may see either), a time, with room to spare.
const RECEIVE_BYTES: usize = 128;
const _: () = assert!(4 * HEADER_BYTES + 3 * ALIGN + TIMESPEC_BYTES <= RECEIVE_BYTES);

/// What one message that is sent carries: nothing, the segment size, a traffic class, or both.
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

    /// `UDP_SEGMENT`: cut the message into packets of this many bytes.
    pub(super) fn segment(&mut self, segment_bytes: u16) {
        self.add(libc::SOL_UDP, libc::UDP_SEGMENT, &segment_bytes.to_ne_bytes());
    }

    /// A traffic class in which nothing is said of congestion marks (RFC 3168, section 5: Not-ECT).
    pub(super) fn refuse_marks(&mut self, is_v6: bool) {
        let (level, name) = match is_v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            false => (libc::IPPROTO_IP, libc::IP_TOS),
        };
        self.add(level, name, &0i32.to_ne_bytes());
    }

    fn add(&mut self, level: i32, kind: i32, data: &[u8]) {
        let (header, rest) = self.bytes[self.used..].split_at_mut(HEADER_BYTES);
        write_header(header, data.len(), level, kind);
        rest[..data.len()].copy_from_slice(data);
        self.used += HEADER_BYTES + ALIGN;
    }

    /// Where its bytes are.
    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// How many of them the kernel is to read.
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

/// Room for what comes with one received message.
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

/// What the kernel says of a received message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// The size of the coalesced packets; `None` for a message of one packet.
    pub(super) segment_bytes: Option<usize>,
    pub(super) congestion_experienced: bool,
    /// The traffic class, 0 if unknown.
    #[cfg(test)]
    pub(super) traffic_class: i32,
    /// When the message came to this host, since the epoch of the system's clock.
    pub(super) came: Option<Duration>,
}

impl ReceiveControl {
    /// Reads the first `bytes` bytes, which the kernel filled.
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
            received.note(int(&kind[..4]), int(&kind[4..]), data);
            rest = rest.get(length.next_multiple_of(ALIGN)..).unwrap_or_default();
        }
        received
    }
}

impl Received {
    fn note(&mut self, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment_bytes = usize::try_from(int(data)).ok().filter(|bytes| *bytes > 0);
            }
            // One byte from IPv4, an int from IPv6; the low byte of either is the traffic class,
            // whose last two bits are ECN (RFC 3168, section 5).
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.congestion_experienced = int(data) & 0b11 == 0b11;
                #[cfg(test)]
                {
                    self.traffic_class = int(data);
                }
            }
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) if data.len() == TIMESPEC_BYTES => {
                let (seconds, rest) = data.split_at(TIMESPEC_BYTES / 2);
                self.came = Some(Duration::new(word(seconds) as u64, int(rest).unsigned_abs()));
            }
            _ => {}
        }
    }
}

fn word(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |bytes| usize::from_ne_bytes(*bytes))
}

/// An int, or the byte that stands for one.
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
    fn all_that_the_kernel_says_is_read() {
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
            came: Some(Duration::new(7, 9)),
        };
        assert_eq!(raw.parse(bytes), expected);
        let (raw, bytes) = control(&[(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &2i32.to_ne_bytes())]);
        assert!(!raw.parse(bytes).congestion_experienced);
        assert_eq!(ReceiveControl::default().parse(0), Received::default());
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
