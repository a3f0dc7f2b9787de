//! The keys of one direction: what one end seals with, and what another opens with.
//!
//! ```text
//! kind 1 | id 4 | number 4 | ciphertext | tag 16
//! ```
//!
//! The first nine bytes are authenticated. The number counts the packets of the direction; a receiver knows its upper
//! bits (RFC 9000, A.3). It also says which key: each seals so many packets ([`Limits::packets`]) and the next one follows
//! from the same secret, so no word is needed to replace it, and any packet may be lost.
//!
//! A direction that rests keeps its secret and a number: ciphers and the window are made again when a packet comes.
//!
//! Invariants: a key never seals two packets with one number; nothing but a count of failures changes before a tag was
//! found right.

use super::{HEAD_BYTES, ID_BYTES, Id, Limits, OpenError, TAIL_BYTES};
use crate::cipher::Cipher;
use crate::schedule::{End, PacketKey, Secret};
use crate::window::{Window, unwrap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where the number is in a packet, and its bits.
const NUMBER_AT: usize = 1 + ID_BYTES;
const NUMBER_BITS: u32 = 32;
/// Numbers that are remembered of a peer: half a kilobyte while it is active. Four thousand are 4 ms of a peer that
/// sends a million packets a second.
const WINDOW: u64 = 1 << 12;

/// A key, and which of its direction it is.
type Numbered = Option<Box<(u64, PacketKey)>>;

/// What both ends of a direction know.
#[derive(Debug)]
struct Direction {
    /// First byte of its packets.
    kind: u8,
    id: Id,
    cipher: Cipher,
    limits: Limits,
    secret: Secret,
}

impl Direction {
    /// The key for a number.
    fn key(&self, index: u64) -> Box<(u64, PacketKey)> {
        let secret = self.secret.derive(b"lacuna datagram epoch", &index.to_be_bytes());
        Box::new((index, secret.key(self.cipher, End::Connecting, 0)))
    }
}

/// What one end seals with.
#[derive(Debug)]
pub struct Sending {
    direction: Direction,
    state: Mutex<SendState>,
    is_used: AtomicBool,
}

#[derive(Debug)]
struct SendState {
    number: u64,
    key: Numbered,
}

/// Seals packets, one after the other.
#[derive(Debug)]
pub struct Sealer<'a> {
    direction: &'a Direction,
    state: MutexGuard<'a, SendState>,
}

impl Sending {
    pub(super) fn new(kind: u8, id: Id, cipher: Cipher, limits: Limits, secret: Secret) -> Self {
        Self {
            direction: Direction { kind, id, cipher, limits, secret },
            state: Mutex::new(SendState { number: 0, key: None }),
            is_used: AtomicBool::new(false),
        }
    }

    /// The next packet's number.
    pub(super) fn number(&self) -> u64 {
        lock(&self.state).number
    }

    /// Takes the lock that makes numbers differ; one call for each burst is enough.
    #[must_use]
    pub fn sealer(&self) -> Sealer<'_> {
        self.is_used.store(true, Ordering::Relaxed);
        Sealer { direction: &self.direction, state: lock(&self.state) }
    }

    /// Drops the cipher if nothing was sealed since the last call; whether there is one.
    pub(super) fn rest(&self) -> bool {
        let mut state = lock(&self.state);
        if !self.is_used.swap(false, Ordering::Relaxed) {
            state.key = None;
        }
        state.key.is_some()
    }
}

impl Sealer<'_> {
    /// Seals a packet in place: what is behind [`HEAD_BYTES`] and before [`TAIL_BYTES`] is its text, around which this
    /// writes. Too short a packet becomes zeros, which nobody opens.
    #[inline]
    pub fn seal(&mut self, packet: &mut [u8]) {
        let SendState { number, key } = &mut *self.state;
        let index = *number / self.direction.limits.packets;
        if key.as_ref().is_none_or(|key| key.0 != index) {
            *key = Some(self.direction.key(index));
        }
        let Some((key, text_end)) = key.as_ref().zip(packet.len().checked_sub(TAIL_BYTES)) else {
            return packet.fill(0);
        };
        if text_end < HEAD_BYTES {
            return packet.fill(0);
        }
        let (covered, tail) = packet.split_at_mut(text_end);
        let (head, text) = covered.split_at_mut(HEAD_BYTES);
        head[0] = self.direction.kind;
        head[1..NUMBER_AT].copy_from_slice(&self.direction.id);
        head[NUMBER_AT..].copy_from_slice(&(*number as u32).to_be_bytes());
        let sealed = key.1.seal(*number, head, text);
        *number += 1;
        match sealed {
            Ok(tag) => tail.copy_from_slice(tag.as_ref()),
            // Longer than the cipher takes, which no datagram is.
            Err(_) => packet.fill(0),
        }
    }
}

/// What one end opens with.
#[derive(Debug)]
pub struct Receiving {
    direction: Direction,
    state: Mutex<ReceiveState>,
    failures: AtomicU64,
    is_used: AtomicBool,
}

#[derive(Debug)]
struct ReceiveState {
    /// No number before this one is taken while there is no window.
    next: u64,
    window: Option<Window>,
    /// By the lowest bit of which it is.
    keys: [Numbered; 2],
}

impl Receiving {
    /// Takes no packet before this number.
    pub(super) fn new(
        kind: u8,
        id: Id,
        cipher: Cipher,
        limits: Limits,
        secret: Secret,
        next: u64,
    ) -> Self {
        Self {
            direction: Direction { kind, id, cipher, limits, secret },
            state: Mutex::new(ReceiveState { next, window: None, keys: [None, None] }),
            failures: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
        }
    }

    /// Whether packets that begin so are its.
    #[inline]
    pub(super) fn is_of(&self, kind: u8, id: &Id) -> bool {
        self.direction.kind == kind && self.direction.id == *id
    }

    /// Whether so many packets were forged that it opens none any more.
    pub(super) fn is_spent(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= self.direction.limits.failures
    }

    /// Opens a packet in place: its text is behind [`HEAD_BYTES`] then, up to [`TAIL_BYTES`] before its end. After an
    /// error its bytes mean nothing. The caller has seen that its id is this one's.
    #[inline]
    pub(super) fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        if packet.len() < HEAD_BYTES + TAIL_BYTES {
            return Err(OpenError::TooShort { found: packet.len() });
        }
        if self.is_spent() {
            return Err(OpenError::Spent { failures: self.direction.limits.failures });
        }
        let (head, text) = packet.split_at_mut(HEAD_BYTES);
        let low = head[NUMBER_AT..].iter().fold(0, |low, byte| low << 8 | u64::from(*byte));
        let mut state = lock(&self.state);
        let ReceiveState { next, window, keys } = &mut *state;
        let expected = window.as_ref().map_or(*next, Window::next);
        let number = unwrap(expected, low, NUMBER_BITS);
        let is_new = match window {
            Some(window) => window.is_new(number),
            None => number >= *next,
        };
        if !is_new {
            return Err(OpenError::Repeated { number });
        }
        let index = number / self.direction.limits.packets;
        let at = (index & 1) as usize;
        // A key that is not there is kept once it has opened something: what is forged takes the place of none.
        let mut made = None;
        let key = match &keys[at] {
            Some(key) if key.0 == index => key,
            _ => made.insert(self.direction.key(index)),
        };
        if key.1.open_in_place(number, head, text).is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(OpenError::Forged);
        }
        if made.is_some() {
            keys[at] = made;
        }
        let window = window.get_or_insert_with(|| Window::starting_at(*next, WINDOW));
        window.note(number);
        self.is_used.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Drops ciphers and window if nothing was opened since the last call; whether there are any. What was on its way
    /// for so long is not taken any more.
    pub(super) fn rest(&self) -> bool {
        let mut state = lock(&self.state);
        if !self.is_used.swap(false, Ordering::Relaxed) {
            if let Some(window) = state.window.take() {
                state.next = window.next();
            }
            state.keys = [None, None];
        }
        state.window.is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
