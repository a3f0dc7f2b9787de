//! What goes by a connection's critical class: notes, and short messages.
//!
//! A long message waits until the peer has said where it goes. A short one would wait for that longer than it takes
//! itself, so it goes as a note does, into receives that are posted ahead, and is copied. Both ends tell by the length which
//! messages are short.
//!
//! A message goes once all its bytes are there, which is not the order in which messages were posted when several are
//! under way. So each carries its number in that order, by which its receive is found. What comes is taken as it comes:
//! one that has to be sent again holds up nothing behind it.
//!
//! Where operations have to end in time and the path is long, notes go twice: a lost one would take a round trip more than
//! the data that it tells of, which are not repaired.
//!
//! A peer that is ahead may send short messages that nobody has posted a receive for yet. Of these a bounded number of
//! bytes is kept; then receives are not renewed, and the peer waits.

use lacuna::{PostReceiveError, QueuePair, RecvHandle, SendBuffer, SendHandle};
use lacuna_schedule::run::{NOTE_BYTES_MAX, Token};
use std::collections::{HashMap, VecDeque};

/// The longest short message: about what the announcement of a receive takes, copied.
pub(crate) const SHORT_BYTES_MAX: usize = 32 << 10;
/// Receives that are posted ahead, and so many of them are renewed at once.
const AHEAD: usize = 32;
const RENEW_BELOW: usize = AHEAD / 2;
/// Bytes of short messages that are kept until they are wanted.
const EARLY_BYTES_MAX: usize = 1 << 20;

/// What the first byte says.
const NOTE: u8 = 0;
/// A number of four bytes follows, the lowest byte first.
const SHORT: u8 = 1;
const LANE: u8 = 2;
/// What comes before the bytes of a short message.
const HEADER_BYTES: usize = 1 + NUMBER_BYTES;
const NUMBER_BYTES: usize = size_of::<u32>();
const RECEIVE_BYTES: usize = HEADER_BYTES + NOTE_BYTES_MAX;
const _: () = assert!(SHORT_BYTES_MAX <= NOTE_BYTES_MAX);

/// The place of a short message among all that go one way, in the order in which they were posted. It starts again
/// after 2^32 messages, far more than can be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Number(u32);

/// What has come.
#[derive(Debug)]
pub(crate) enum Came {
    Note(Vec<u8>),
    /// Where the peer's reliable queue pair is.
    Lane(Vec<u8>),
    /// The message of the receive with this name.
    Short(Token, Vec<u8>),
}

/// See the module's text.
pub(crate) struct Control {
    queue_pair: QueuePair,
    note_copies: usize,
    posted: VecDeque<RecvHandle>,
    free: Vec<Vec<u8>>,
    next_sent: u32,
    next_expected: u32,
    /// Receives of short messages that have not come.
    expected: HashMap<Number, Token>,
    /// Short messages that have no receive yet.
    early: HashMap<Number, Vec<u8>>,
    early_bytes: usize,
    /// Early messages whose receives have been posted since.
    ready: VecDeque<(Token, Vec<u8>)>,
}

/// Sends a note to the peer of a critical class.
pub(crate) fn tell(queue_pair: &QueuePair, note: &[u8]) -> Result<(), String> {
    send(queue_pair, &[NOTE], note).map(drop)
}

fn send(queue_pair: &QueuePair, header: &[u8], bytes: &[u8]) -> Result<SendHandle, String> {
    let message = [header, bytes].concat();
    queue_pair.send(SendBuffer::from(message), None).map_err(|error| error.to_string())
}

impl Control {
    pub(crate) fn new(queue_pair: QueuePair, note_copies: usize) -> Result<Self, String> {
        let mut control = Self {
            queue_pair,
            note_copies,
            posted: VecDeque::new(),
            free: Vec::new(),
            next_sent: 0,
            next_expected: 0,
            expected: HashMap::new(),
            early: HashMap::new(),
            early_bytes: 0,
            ready: VecDeque::new(),
        };
        control.renew().map_err(|error| error.to_string())?;
        Ok(control)
    }

    pub(crate) fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    pub(crate) fn tell(&self, note: &[u8]) -> Result<(), String> {
        (0..self.note_copies).try_for_each(|_| tell(&self.queue_pair, note))
    }

    /// Tells where the reliable queue pair for this peer is.
    pub(crate) fn tell_lane(&self, info: &[u8]) -> Result<(), String> {
        self.send(&[LANE], info).map(drop)
    }

    /// Makes the peer answer, if it is there. No runner reads an empty note.
    pub(crate) fn ask(&self) -> Result<(), String> {
        self.send(&[NOTE], &[]).map(drop)
    }

    /// The number of a short message that is sent later.
    pub(crate) fn number(&mut self) -> Number {
        let number = Number(self.next_sent);
        self.next_sent = self.next_sent.wrapping_add(1);
        number
    }

    pub(crate) fn send_short(&self, number: Number, message: &[u8]) -> Result<SendHandle, String> {
        let mut header = [SHORT; HEADER_BYTES];
        header[1..].copy_from_slice(&number.0.to_le_bytes());
        self.send(&header, message)
    }

    fn send(&self, header: &[u8], bytes: &[u8]) -> Result<SendHandle, String> {
        send(&self.queue_pair, header, bytes)
    }

    /// A short message has a receive.
    pub(crate) fn expect(&mut self, token: Token) {
        let number = Number(self.next_expected);
        self.next_expected = self.next_expected.wrapping_add(1);
        match self.early.remove(&number) {
            Some(message) => {
                self.early_bytes -= message.len();
                self.ready.push_back((token, message));
            }
            None => drop(self.expected.insert(number, token)),
        }
    }

    /// Whether somebody waits for a short message.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.expected.is_empty()
    }

    /// The next note or message that is here.
    pub(crate) fn next(&mut self) -> Option<Came> {
        loop {
            if let Some((token, message)) = self.ready.pop_front() {
                return Some(Came::Short(token, message));
            }
            if self.early_bytes <= EARLY_BYTES_MAX
                && self.posted.len() < RENEW_BELOW
                && let Err(error) = self.renew()
            {
                // Who waits for this peer is told otherwise. What has come before counts all the same.
                tracing::debug!(%error, "no more receives of notes");
            }
            let over = self.posted.iter().position(|handle| handle.reason().is_some())?;
            let handle = self.posted.remove(over)?;
            let done = handle.complete();
            if !done.is_complete {
                // The connection has failed, which is told besides.
                return None;
            }
            let came = done.buffer.get(..done.len.unwrap_or(0)).and_then(<[u8]>::split_first);
            let came = came.map(|(kind, bytes)| (*kind, bytes.to_vec()));
            self.free.push(done.buffer);
            match came {
                Some((NOTE, note)) => return Some(Came::Note(note)),
                Some((LANE, info)) => return Some(Came::Lane(info)),
                Some((SHORT, message)) => {
                    if let Some(came) = self.short(message) {
                        return Some(came);
                    }
                }
                _ => tracing::debug!("neither a note nor a message"),
            }
        }
    }

    /// A short message with its number before it, if it has a receive. Otherwise it is kept.
    fn short(&mut self, mut message: Vec<u8>) -> Option<Came> {
        let number = Number(u32::from_le_bytes(*message.first_chunk::<NUMBER_BYTES>()?));
        message.drain(..NUMBER_BYTES);
        if let Some(token) = self.expected.remove(&number) {
            return Some(Came::Short(token, message));
        }
        let len = message.len();
        if let Some(twice) = self.early.insert(number, message) {
            self.early_bytes -= twice.len();
        }
        self.early_bytes += len;
        None
    }

    fn renew(&mut self) -> Result<(), PostReceiveError> {
        while self.posted.len() < AHEAD {
            let buffer = self.free.pop().unwrap_or_else(|| vec![0; RECEIVE_BYTES]);
            self.posted.push_back(self.queue_pair.post_recv(buffer)?);
        }
        Ok(())
    }
}
