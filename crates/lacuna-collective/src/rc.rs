//! Long messages of one peer over a reliable connection (RC): what RDMA cards have, go-back-N as a rule, and so what the
//! transport is compared with.
//!
//! RC delivers in order and keeps no record of chunks. So each chunk is a SEND of its own, whose immediate says which
//! chunk of which message it is. It lands in the next of a ring of receives and is copied to its message, or kept until
//! that has a receive.

use crate::fabric::{Receive, State};
use crate::pool::Buffers;
use lacuna::controller::ControllerConfig;
use lacuna::rc::{Flags, Operation, QueuePair, RecvWork, Repair, SendWork, Settings, Verb};
use lacuna::{Connection, Context, Region, RegionOptions};
use lacuna_path::ranges::Ranges;
use lacuna_schedule::run::{Event, Posting, Reason, Token};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// Receives that are posted ahead.
const AHEAD: u64 = 64;
/// Bits of the immediate for the chunk; the others are for the message.
const CHUNK_BITS: u32 = 20;
/// Bytes of chunks that are kept for messages without a receive. Who sends more is not of this schedule.
const EARLY_BYTES_MAX: usize = 1 << 30;
/// What headers take more than those of the connection's packets.
const MORE_HEADER_BYTES: u32 = 16;

/// A message that is being received.
struct Open {
    token: Token,
    left: usize,
}

/// See the module's text.
pub(crate) struct RcLane {
    queue_pair: QueuePair,
    /// Where chunks land: so many bytes for each receive.
    inbox: Region,
    chunk_bytes: usize,
    sent: u32,
    posted: u32,
    open: HashMap<u32, Open>,
    early: HashMap<u32, Vec<(usize, Vec<u8>)>>,
    early_bytes: usize,
    /// Sends that have not ended: the chunks of each that are not acknowledged, and the bytes that were not offered.
    sends: HashMap<u32, (Token, usize, usize)>,
}

fn number_of(message: u32) -> u32 {
    message & (u32::MAX >> CHUNK_BITS)
}

impl RcLane {
    /// An end that is not connected yet.
    pub(crate) fn new(
        context: &Context,
        connection: &Connection,
        (repair, controller): (Repair, ControllerConfig),
        chunk_bytes: usize,
    ) -> Result<Self, String> {
        let mtu_bytes = connection.chosen().mtu_bytes.saturating_sub(MORE_HEADER_BYTES);
        let most = lacuna::rc::MTU_BYTES_MIN..=lacuna::rc::MTU_BYTES_MAX;
        let rtt = connection.stats().rtt;
        let rtt = rtt.min_us.or(rtt.smoothed_us).map(|us| Duration::from_secs_f64(us / 1e6));
        let settings = Settings {
            mtu_bytes: mtu_bytes.clamp(*most.start(), *most.end()) / 4 * 4,
            repair,
            controller,
            rtt,
            ..Settings::default()
        };
        let queue_pair = context.rc_queue_pair(&settings).map_err(|error| error.to_string())?;
        let memory = vec![0; AHEAD as usize * chunk_bytes];
        let inbox = context.register(memory, RegionOptions::default());
        let lane = Self {
            queue_pair,
            inbox: inbox.map_err(|error| error.to_string())?,
            chunk_bytes,
            sent: 0,
            posted: 0,
            open: HashMap::new(),
            early: HashMap::new(),
            early_bytes: 0,
            sends: HashMap::new(),
        };
        (0..AHEAD).try_for_each(|slot| lane.renew(slot))?;
        Ok(lane)
    }

    /// What the other end needs to know.
    pub(crate) fn info(&self, connection: &Connection) -> Vec<u8> {
        self.queue_pair.info(connection.peer().ip())
    }

    pub(crate) fn connect(&self, info: &[u8], connection: &Connection) -> Result<(), String> {
        self.queue_pair.connect_at(info, connection.peer()).map_err(|error| error.to_string())
    }

    fn renew(&self, slot: u64) -> Result<(), String> {
        let chunk_bytes = self.chunk_bytes as u64;
        let into = self.inbox.slice(slot * chunk_bytes..(slot + 1) * chunk_bytes);
        let into = into.map_err(|error| error.to_string())?;
        self.queue_pair.post_recv(RecvWork { id: slot, into }).map_err(|error| error.to_string())
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.open.is_empty()
    }

    pub(crate) fn post_receive(
        &mut self,
        posting: &Posting,
        buffers: &mut Buffers,
        receives: &mut BTreeMap<Token, Receive>,
        events: &mut VecDeque<Event>,
    ) {
        let Posting { token, peer, len_bytes, .. } = *posting;
        let message = number_of(self.posted);
        self.posted = self.posted.wrapping_add(1);
        let state = State::Filling(buffers.take(len_bytes));
        receives.insert(token, Receive { peer, len_bytes, state });
        self.open.insert(message, Open { token, left: len_bytes });
        for (offset, bytes) in self.early.remove(&message).unwrap_or_default() {
            self.early_bytes -= bytes.len();
            self.fill(message, offset, &bytes, receives, events);
        }
    }

    pub(crate) fn post_send(&mut self, posting: &Posting) -> u32 {
        let message = number_of(self.sent);
        self.sent = self.sent.wrapping_add(1);
        self.sends.insert(message, (posting.token, 0, posting.len_bytes));
        message
    }

    /// Offers a part of a message, from a chunk's begin on.
    pub(crate) fn offer(
        &mut self,
        message: u32,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), String> {
        let Some((_, unanswered, unoffered)) = self.sends.get_mut(&message) else { return Ok(()) };
        debug_assert_eq!(offset % self.chunk_bytes, 0);
        *unoffered -= bytes.len();
        for (at, chunk) in (offset / self.chunk_bytes..).zip(bytes.chunks(self.chunk_bytes)) {
            *unanswered += 1;
            let immediate = Some(message << CHUNK_BITS | at as u32);
            let verb = Verb::Send { data: chunk.to_vec().into(), immediate };
            let work = SendWork { id: u64::from(message), verb, flags: Flags::default() };
            self.queue_pair.post_send(work).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Nobody waits for this send any more; what was offered of it arrives all the same.
    pub(crate) fn forget(&mut self, message: u32) {
        self.sends.remove(&message);
    }

    /// Takes in what has come; the sends that have arrived.
    ///
    /// # Errors
    /// When the peer does not answer, or sends what cannot be.
    pub(crate) fn poll(
        &mut self,
        receives: &mut BTreeMap<Token, Receive>,
        events: &mut VecDeque<Event>,
    ) -> Result<Vec<Token>, String> {
        let mut arrived = Vec::new();
        while let Some(done) = self.queue_pair.poll() {
            done.status.map_err(|failure| failure.to_string())?;
            if done.operation != Operation::Receive {
                arrived.extend(self.on_answered(done.id as u32));
                continue;
            }
            let immediate = done.received.and_then(|received| received.immediate);
            let immediate = immediate.ok_or("a chunk that does not say which it is")?;
            let mut bytes = vec![0; (done.bytes as usize).min(self.chunk_bytes)];
            let from = done.id * self.chunk_bytes as u64;
            self.inbox.read(from, &mut bytes).map_err(|error| error.to_string())?;
            self.renew(done.id)?;
            let message = immediate >> CHUNK_BITS;
            let chunk = (immediate & ((1 << CHUNK_BITS) - 1)) as usize;
            let offset = chunk * self.chunk_bytes;
            if self.open.contains_key(&message) {
                self.fill(message, offset, &bytes, receives, events);
                continue;
            }
            self.early_bytes += bytes.len();
            if self.early_bytes > EARLY_BYTES_MAX {
                return Err(format!("{} bytes came that nobody expects", self.early_bytes));
            }
            self.early.entry(message).or_default().push((offset, bytes));
        }
        events.extend(arrived.iter().map(|token| Event::Sent { token: *token, is_whole: true }));
        Ok(arrived)
    }

    /// A chunk has arrived; the send's name if it was the last.
    fn on_answered(&mut self, message: u32) -> Option<Token> {
        let (token, unanswered, unoffered) = self.sends.get_mut(&message)?;
        *unanswered -= 1;
        let token = (*unanswered == 0 && *unoffered == 0).then_some(*token)?;
        self.sends.remove(&message);
        Some(token)
    }

    /// Bytes of a message that has a receive.
    fn fill(
        &mut self,
        message: u32,
        offset: usize,
        bytes: &[u8],
        receives: &mut BTreeMap<Token, Receive>,
        events: &mut VecDeque<Event>,
    ) {
        let Some(open) = self.open.get_mut(&message) else { return };
        let token = open.token;
        open.left = open.left.saturating_sub(bytes.len());
        let is_last = open.left == 0;
        if is_last {
            self.open.remove(&message);
        }
        // One that is not wanted any more took its turn all the same.
        let Some(receive) = receives.get_mut(&token) else { return };
        let State::Filling(buffer) = &mut receive.state else { return };
        let Some(place) = buffer.get_mut(offset..offset + bytes.len()) else { return };
        place.copy_from_slice(bytes);
        events.push_back(Event::Arrived { token, bytes: offset..offset + bytes.len() });
        if is_last {
            receive.state = State::Over(std::mem::take(buffer));
            let len_bytes = Some(receive.len_bytes);
            let missing = Ranges::default();
            events.push_back(Event::Ended { token, reason: Reason::Whole, missing, len_bytes });
        }
    }
}
