//! Lone packets: small ones that come one by one to somebody who looks for them all the time.
//!
//! What the kernel tells beside a message (how large its packets are, how it is marked, when it
//! came) costs over loopback 0.3 of 2.8 us: 0.13 for the call that could tell it, found or not, 0.1
//! for the time, the rest for the other two. Of a lone packet little of it is news: it is alone, and
//! it came just now, since the look before found nothing. So once packets have come like that for a
//! while, the socket is asked for bytes and nothing else (`recv`). Of a packet that was not waited
//! for the time is asked afterwards. Marks of congestion are asked for of one packet in sixteen: so
//! little is in flight that a controller has nothing to take back.
//!
//! Packets that were coalesced cannot be told apart without their size. So coalescing is switched
//! off meanwhile, and after that the socket is found empty before it is read plainly. What the
//! kernel has coalesced before and is just about to queue then, in those nanoseconds, is one packet
//! with a wrong trailer to whoever takes it: a loss.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use super::super::offload::Granted;
use super::super::syscall;

/// So many are sure to be followed by more: some 0.5 ms of small messages to and fro (a judgement).
const SURE: u32 = 64;

/// What a look takes back that found one that was not waited for, or several: a burst is noticed
/// after some 30. A peer's report goes just before its message, so that of small messages to and fro
/// one in 15 is no lone one where all is well, and more on a machine that is busy.
const DOUBT: u32 = 2;

/// More at once is bulk, which is to be coalesced from its second packet on.
const SMALL_BYTES: usize = 1024;

/// Longest time between two looks of somebody who looks all the time, and so what the time of a
/// packet may be wrong by. A look takes some 0.3 us.
const POLLED_NS: u64 = 2_000;

/// Packets in a row that are read plainly before one is read with its mark (a judgement).
const PLAIN_ROW: u32 = 15;

/// How the packets of one socket come; see the module's text.
#[derive(Debug)]
pub(in crate::udp) struct Lone {
    /// What the socket has, unless `is_on`.
    granted: Granted,
    /// Goes up with lone packets and down with others, up to [`SURE`].
    score: u32,
    is_on: bool,
    /// When the socket was found empty, if it was when it was last looked at.
    empty_ns: Option<u64>,
    /// Looks that found something since the last that asked for marks.
    plain: u32,
    /// Among lone packets: whether the next one's mark is told.
    tells_marks: bool,
}

/// How to look at the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::udp) enum Look {
    /// For any number of packets, and all that there is to know of them.
    Whole,
    /// For one packet and its mark.
    Marked,
    /// For one packet. It came just now.
    Plain,
    /// For one packet, and when it came.
    Timed,
}

impl Lone {
    pub(in crate::udp) fn new(granted: Granted) -> Self {
        Self { granted, score: 0, is_on: false, empty_ns: None, plain: 0, tells_marks: false }
    }

    /// Whether packets come one by one.
    pub(in crate::udp) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(in crate::udp) fn look(&self, now_ns: u64) -> Look {
        match (self.is_on, self.is_awaited(now_ns)) {
            (false, _) => Look::Whole,
            (true, false) => Look::Timed,
            (true, true) if self.plain < PLAIN_ROW => Look::Plain,
            (true, true) => Look::Marked,
        }
    }

    /// Somebody looks all the time, and found nothing so far.
    fn is_awaited(&self, now_ns: u64) -> bool {
        self.empty_ns.is_some_and(|empty_ns| now_ns.saturating_sub(empty_ns) <= POLLED_NS)
    }

    /// A look at `socket` found nothing.
    pub(in crate::udp) fn on_empty(&mut self, now_ns: u64, socket: &UdpSocket) {
        self.empty_ns = Some(now_ns);
        if self.score == SURE && !self.is_on {
            self.switch_on(socket);
        }
        // Now that nothing is there that would wait for it.
        let tells_marks = self.plain >= PLAIN_ROW;
        if self.is_on && tells_marks != self.tells_marks {
            self.tells_marks = tells_marks;
            self.tell_marks(socket, tells_marks);
        }
    }

    /// A look at `socket` found so many packets, of so many bytes together.
    pub(in crate::udp) fn on_packets(
        &mut self,
        now_ns: u64,
        socket: &UdpSocket,
        look: Look,
        (packets, bytes): (usize, usize),
    ) {
        // Marks are told beside one packet in a row.
        self.plain = if look == Look::Marked { 0 } else { self.plain.saturating_add(1) };
        let is_awaited = self.is_awaited(now_ns);
        self.empty_ns = None;
        self.score = match bytes <= SMALL_BYTES {
            true if packets == 1 && is_awaited => SURE.min(self.score + 1),
            true => self.score.saturating_sub(DOUBT),
            false => 0,
        };
        if self.score == 0 && self.is_on {
            self.is_on = false;
            self.tell(socket, true);
        }
    }

    #[cold]
    fn switch_on(&mut self, socket: &UdpSocket) {
        self.tell(socket, false);
        (self.plain, self.tells_marks) = (0, false);
        self.is_on = syscall::is_empty(socket.as_fd());
        if !self.is_on {
            self.tell(socket, true);
            self.score = 0;
        }
    }

    /// Switches what costs time beside each message. The kernel refuses nothing here that it has
    /// granted before. When a message came it still notes, for whoever asks for it.
    #[cold]
    fn tell(&self, socket: &UdpSocket, is_on: bool) {
        let set = |level, name| syscall::set_option(socket.as_fd(), level, name, i32::from(is_on));
        if self.granted.coalescing {
            let _ = set(libc::SOL_UDP, libc::UDP_GRO);
        }
        let _ = set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
        self.tell_marks(socket, is_on);
    }

    fn tell_marks(&self, socket: &UdpSocket, is_on: bool) {
        let set = |level, name| syscall::set_option(socket.as_fd(), level, name, i32::from(is_on));
        if self.granted.marks_v4 {
            let _ = set(libc::IPPROTO_IP, libc::IP_RECVTOS);
        }
        if self.granted.marks_v6 {
            let _ = set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS);
        }
    }
}
