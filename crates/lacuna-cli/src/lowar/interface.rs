//! An interface as a gateway sees it: whole frames, all that come in and all that go out.
//!
//! What an interface or a veth left undone is done here where it is cheap: VLAN tags are put back, missing
//! checksums completed. Frames that were joined (GRO, TSO) keep the kernel's note of it, and the kernel
//! cuts them again on the other interface; they are not looked into.

use super::outbox::Outbox;
use super::syscall::{self, Message, OFFLOAD_BYTES};
use crate::failure::Failure;
use lacuna::datapath::limit::Said;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Frames of a batch.
pub(super) const BATCH: usize = 32;
/// Room for a frame that was joined, and a tag before it.
const BUFFER_BYTES: usize = TAG_BYTES + (64 << 10) + 256;
const TAG_BYTES: usize = 4;
const ADDRESSES_BYTES: usize = 12;
const ETHERNET_BYTES: u32 = 14;
/// Receive and send buffer of the socket.
const SOCKET_BYTES: usize = 16 << 20;
/// "The checksum is to be completed", in the header of `virtio_net`.
const NEEDS_CHECKSUM: u8 = 1;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Interface {
    name: String,
    socket: OwnedFd,
    mtu_bytes: u32,
    buffers: Vec<u8>,
    messages: Vec<Message>,
    pub(super) receive_drops: u64,
    pub(super) send_drops: u64,
}

/// A frame that came.
#[derive(Debug)]
pub(super) struct Frame<'f> {
    pub(super) bytes: &'f [u8],
    pub(super) offload: [u8; OFFLOAD_BYTES],
    /// Whether it is several packets in one.
    pub(super) is_joined: bool,
}

impl Interface {
    pub(super) fn open(name: &str) -> Result<Self, Failure> {
        let failed = |error: &io::Error| match error.kind() {
            ErrorKind::PermissionDenied => Failure::Local(format!(
                "no right to take the frames of {name}: run as root, or with CAP_NET_RAW, as after \
                 `setcap cap_net_raw+ep $(which lacuna)`"
            )),
            _ => Failure::Local(format!("cannot take the frames of {name}: {}", Said(error))),
        };
        let index = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::DGRAM,
            None,
        )
        .and_then(|any| rustix::net::netdevice::name_to_index(any, name))
        .map_err(|_| {
            Failure::Usage(format!("there is no interface {name}: use one that `ip link` shows"))
        })?;
        let socket = syscall::open(index, SOCKET_BYTES).map_err(|error| failed(&error))?;
        let mtu_bytes = syscall::mtu_bytes(socket.as_fd(), name).map_err(|error| failed(&error))?;
        Ok(Self {
            name: name.to_owned(),
            socket,
            mtu_bytes,
            buffers: vec![0; BATCH * BUFFER_BYTES],
            messages: Vec::new(),
            receive_drops: 0,
            send_drops: 0,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The longest frame without tags.
    pub(super) fn frame_bytes_max(&self) -> usize {
        (self.mtu_bytes + ETHERNET_BYTES) as usize
    }

    /// Takes a batch of frames; whether there may be more.
    pub(super) fn receive(&mut self, take: &mut dyn FnMut(Frame<'_>)) -> Result<bool, Failure> {
        let Self { socket, buffers, messages, .. } = self;
        // The first bytes of each buffer stay free for a tag.
        let room = &mut buffers[TAG_BYTES..];
        match syscall::receive::<BATCH>(socket.as_fd(), OFFLOAD_BYTES, room, BUFFER_BYTES, messages)
        {
            Ok(()) => {}
            Err(error) => {
                return match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(false),
                    // It may come up again.
                    ErrorKind::NetworkDown => Ok(false),
                    _ => Err(Failure::Local(format!("{}: {}", self.name, Said(&error)))),
                };
            }
        }
        for (index, message) in messages.iter().enumerate() {
            if message.is_cut {
                self.receive_drops += 1;
                continue;
            }
            let buffer = &mut buffers[index * BUFFER_BYTES..][..TAG_BYTES + message.bytes];
            let mut offload = message.header;
            let is_joined = offload[1] != 0;
            if offload[0] & NEEDS_CHECKSUM != 0 && !is_joined {
                complete_checksum(&mut buffer[TAG_BYTES..], &offload);
            }
            if !is_joined {
                offload = [0; OFFLOAD_BYTES];
            }
            let bytes = match message.tag {
                Some(tag) if message.bytes >= ADDRESSES_BYTES => {
                    insert_tag(buffer, tag, &mut offload);
                    &buffer[..]
                }
                _ => &buffer[TAG_BYTES..],
            };
            take(Frame { bytes, offload, is_joined });
        }
        Ok(self.messages.len() == BATCH)
    }

    /// Sends everything; what the interface does not take is dropped and counted, as a switch does.
    pub(super) fn send(&mut self, outbox: &mut Outbox) {
        let frames = (0..outbox.len()).filter_map(|index| outbox.get(index));
        let frames: Vec<_> = frames.map(|(offload, frame)| (&offload[..], frame)).collect();
        self.send_drops += send_all(self.socket.as_fd(), &frames);
        outbox.clear();
    }

    pub(super) fn count_drops(&mut self) {
        self.receive_drops += syscall::drops(self.socket.as_fd());
    }
}

/// Sends frames with what is before them; how many were not taken.
pub(super) fn send_all(socket: BorrowedFd<'_>, frames: &[(&[u8], &[u8])]) -> u64 {
    let mut left = frames;
    let mut drops = 0;
    let mut patience = 3;
    while !left.is_empty() {
        let batch = &left[..left.len().min(BATCH)];
        let error = match syscall::send::<BATCH>(socket, batch) {
            Ok(sent) => {
                left = &left[sent.clamp(1, left.len())..];
                continue;
            }
            Err(error) => error,
        };
        let is_full =
            error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS);
        match error.kind() {
            ErrorKind::Interrupted => {}
            // Of an earlier datagram: the peer was not there.
            ErrorKind::ConnectionRefused if patience > 0 => patience -= 1,
            _ if is_full && patience > 0 => {
                patience -= 1;
                super::wait_writable(socket);
            }
            _ => {
                drops += 1;
                left = &left[1..];
            }
        }
    }
    drops
}

/// Puts a tag back, for which the buffer has room before the frame.
fn insert_tag(buffer: &mut [u8], (kind, value): (u16, u16), offload: &mut [u8; OFFLOAD_BYTES]) {
    buffer.copy_within(TAG_BYTES..TAG_BYTES + ADDRESSES_BYTES, 0);
    buffer[ADDRESSES_BYTES..ADDRESSES_BYTES + 2].copy_from_slice(&kind.to_be_bytes());
    buffer[ADDRESSES_BYTES + 2..ADDRESSES_BYTES + 4].copy_from_slice(&value.to_be_bytes());
    if *offload != [0; OFFLOAD_BYTES] {
        // Length of the headers, and where the checksum starts.
        for at in [2, 6] {
            let value = u16::from_ne_bytes([offload[at], offload[at + 1]]);
            let moved = value.saturating_add(TAG_BYTES as u16);
            offload[at..at + 2].copy_from_slice(&moved.to_ne_bytes());
        }
    }
}

/// Completes a checksum that was left to the interface: the sum from `csum_start` on, at `csum_offset`
/// behind that, where the pseudo header's sum already is.
fn complete_checksum(frame: &mut [u8], offload: &[u8; OFFLOAD_BYTES]) {
    let start = usize::from(u16::from_ne_bytes([offload[6], offload[7]]));
    let at = start + usize::from(u16::from_ne_bytes([offload[8], offload[9]]));
    if at + 2 > frame.len() {
        return;
    }
    let mut sum: u64 = 0;
    for pair in frame[start..].chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // A UDP checksum of zero means none.
    let sum = match !(sum as u16) {
        0 => 0xffff,
        sum => sum,
    };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_back_between_addresses_and_type() {
        let mut buffer: Vec<u8> = [0; 4].into_iter().chain(1..=12).chain([8, 0, 99]).collect();
        let mut offload = [0; OFFLOAD_BYTES];
        insert_tag(&mut buffer, (0x8100, 0x6005), &mut offload);
        let expected: Vec<u8> =
            (1..=12).chain([0x81, 0x00, 0x60, 0x05]).chain([8, 0, 99]).collect();
        assert_eq!((buffer, offload), (expected, [0; OFFLOAD_BYTES]));
    }

    #[test]
    fn a_checksum_is_completed() {
        // The pseudo header's sum is in its place; the whole sums to ones then.
        let mut frame = vec![0; 14];
        frame.extend([0x12, 0x34, 0x00, 0x11, 0xab, 0xcd, 7]);
        let mut offload = [0; OFFLOAD_BYTES];
        offload[6..8].copy_from_slice(&14u16.to_ne_bytes());
        offload[8..10].copy_from_slice(&2u16.to_ne_bytes());
        complete_checksum(&mut frame, &offload);
        // !(0x1234 + 0x0011 + 0xabcd + 0x0700)
        assert_eq!(frame[16..18], (!0xc512u16).to_be_bytes());
    }
}
