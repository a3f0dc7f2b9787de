//! Two queue pairs over the fake link that follow a list of bytes, checked against an oracle that
//! knows the content of every send.
//!
//! Each send's bytes are a function of its number alone, so a chunk that is there tells which send
//! it came from. The oracle asserts that all chunks of a receive come from one send and stand
//! where they belong; that later receives hold later sends; that length and immediate are right;
//! that a reliable send that succeeded left a complete receive; that every send with a deadline
//! has ended by it; that everything ends once the link is healed; and that no buffer changes after
//! its receive was closed, also when every packet is sent again.
//!
//! In a bounded mode the send of a receive is the one with the same place among all sends. Where receives
//! have deadlines, each is over by its own. In every mode the packet map of a closed receive says exactly
//! what is there: each packet that it names is of the send, and every other one is zero once what is missing
//! was zeroed.

mod end;

use super::Choices;
use lacuna_engine::testing::{Link, Narrowness, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::placement::Placement;
use lacuna_proto::modes::Mode;
use lacuna_proto::modes::auto::{Choice, Policy, Question};
use lacuna_proto::qp::{
    Grace, PostSendError, PostedReceive, RecvOptions, RecvRequest, SendId, SendRequest,
};
use lacuna_wire::ImmediateSplit;
use std::ops::Range;

const MS: u64 = 1_000_000;
/// Fewer than a slot's generations times the slots: generations do not wrap.
const RECEIVES_MAX: usize = 60;
const SENDS_MAX: usize = 60;
/// Bytes that a stream's content is made for.
const STREAM_BYTES: usize = 48 << 10;

/// A send and its content.
struct Sent {
    id: SendId,
    /// For a stream, more than it will ever send.
    content: Vec<u8>,
    immediate: Option<u32>,
    deadline_ns: Option<u64>,
    stream: Option<Stream>,
}

#[derive(Default)]
struct Stream {
    /// End of the pushed data, and the end of the message, if it was given.
    pushed: usize,
    end: Option<usize>,
    ended: bool,
}

/// A posted receive and the sends that may have landed in it.
struct Received {
    open: Option<PostedReceive>,
    /// The peer's sends that are consistent with all chunks so far.
    candidates: Vec<usize>,
    chunks_seen: u32,
    /// After healing: chunks at the last check, and checks since they grew.
    chunks_last: u32,
    stalled: u32,
    is_complete: bool,
    deadline_ns: Option<u64>,
    /// Packets that were here when the receive was over.
    over_packets: Option<u64>,
    /// The returned buffer, twice: the original, which late packets might change, and a copy.
    closed: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Default)]
struct End {
    sends: Vec<Sent>,
    receives: Vec<Received>,
}

struct World {
    pair: Pair,
    mode: Mode,
    /// Receives may have deadlines; the list says which.
    has_deadlines: bool,
    ends: [End; 2],
    mtu: usize,
    chunk: usize,
    slot: usize,
}

/// Runs the list; returns every packet that was put on the link.
pub(crate) fn run(bytes: &[u8]) -> Vec<(Side, u8, Vec<u8>)> {
    run_in(bytes, None, None)
}

/// The same in the mode `auto` with this policy, whatever mode the list asks for.
pub(crate) fn run_auto(bytes: &[u8], policy: Policy) -> Vec<(Side, u8, Vec<u8>)> {
    run_in(bytes, Some(policy), None)
}

/// The same in this mode, whatever mode the list asks for, and with deadlines of receives.
pub(crate) fn run_mode(bytes: &[u8], mode: Mode) -> Vec<(Side, u8, Vec<u8>)> {
    run_in(bytes, None, Some(mode))
}

/// Chooses anything, the same for the same question.
pub(crate) fn any_choice(question: &Question) -> Choice {
    let seed = u64::from(question.tail_packets) << 32 | u64::from(question.message_packets);
    let mut rng = Rng::new(seed ^ question.estimate.lost_packets.to_bits());
    Choice { parity: rng.below(18) as u8, repair_copies: 1 + rng.below(3) as u8 }
}

fn run_in(bytes: &[u8], policy: Option<Policy>, mode: Option<Mode>) -> Vec<(Side, u8, Vec<u8>)> {
    let mut choices = Choices::new(bytes);
    let mut world = World::new(&mut choices, policy, mode);
    while let Some(operation) = choices.next() {
        world.operate(operation, &mut choices);
    }
    world.heal();
    world.replay()
}

fn content(side: Side, index: usize, len: usize) -> Vec<u8> {
    Rng::new((index as u64) << 1 | side as u64).bytes(len)
}

/// A link with faults of all kinds.
pub(super) fn any_link(choices: &mut Choices<'_>, mtu: usize) -> Link {
    let ppm = |byte: u8, percent_max: u32| u32::from(byte) * percent_max * 10_000 / 255;
    let options = choices.byte();
    let narrow = [Narrowness::Hidden, Narrowness::Told, Narrowness::Refused];
    let narrow = narrow.get(usize::from(options >> 4).wrapping_sub(1)).copied();
    Link {
        delay_ns: (1 + u64::from(options & 7)) * MS,
        rate_bits_per_s: (options & 8 != 0).then_some(100_000_000),
        dark: options & 0xF0 == 0xF0,
        loss_ppm: ppm(choices.byte(), 40),
        burst_packets: 1,
        duplicate_ppm: ppm(choices.byte(), 30),
        corrupt_ppm: ppm(choices.byte(), 10),
        reorder_ppm: ppm(choices.byte(), 50),
        reorder_ns: u64::from(choices.byte()) * MS / 10,
        is_ecn_hole: false,
        packet_bytes_max: narrow.map_or(usize::MAX, |_| mtu * 2 / 3 + 60),
        narrowness: narrow.unwrap_or(Narrowness::Hidden),
    }
}

impl World {
    fn new(choices: &mut Choices<'_>, policy: Option<Policy>, forced: Option<Mode>) -> Self {
        let modes =
            ["sr", "raw", "sr:rto", "ec:mds:4:2", "ec:xor:6:3", "ec:mds:1:1", "ec:mds:32:8"];
        let asked = modes[choices.below(modes.len())].parse().unwrap();
        let mode = forced.unwrap_or_else(|| policy.map_or(asked, |_| Mode::Auto));
        let mtu = [256, 64, 1024][choices.below(3)];
        let chunk_packets = 1 + choices.below(5) as u32;
        let geometry = GeometryConfig {
            mtu_bytes: mtu,
            chunk_packets,
            stripe_packets: chunk_packets * (1 + choices.below(3) as u32),
            channels: 1 + choices.below(3) as u8,
            generations: 4,
            split: [(4, 24, 4), (4, 20, 8), (4, 26, 2)]
                .map(|(m, p, u)| ImmediateSplit::new(m, p, u).unwrap())[choices.below(3)],
            max_message_bytes: u64::from(mtu * (chunk_packets + choices.below(40) as u32)),
            code: None,
            interleave: 1 + choices.below(3) as u32,
            ..GeometryConfig::default()
        };
        let controller = match choices.byte() % 3 {
            0 => ControllerConfig::Fixed { rate_bits_per_s: 20_000_000 },
            _ => ControllerConfig::Bbr,
        };
        let credit_bytes = if choices.byte().is_multiple_of(2) { 4 << 20 } else { 10_000 };
        let seed = u64::from(choices.byte());
        let default = PairConfig::default();
        let policy = policy.unwrap_or(default.policy);
        let config =
            PairConfig { geometry, mode, policy, controller, credit_bytes, seed, ..default };
        let mut pair = Pair::new(config, Link { delay_ns: 2 * MS, ..Link::default() });
        pair.recorded = Some(Vec::new());
        let geometry = *pair.a.qp().config().geometry.config();
        Self {
            pair,
            mode,
            has_deadlines: forced.is_some(),
            ends: [End::default(), End::default()],
            mtu: mtu as usize,
            chunk: (mtu * chunk_packets) as usize,
            slot: geometry.max_message_bytes as usize,
        }
    }

    fn operate(&mut self, operation: u8, choices: &mut Choices<'_>) {
        let side = if operation & 0x80 == 0 { Side::A } else { Side::B };
        match operation & 0x0F {
            0..=2 => {
                // Most receives are long enough for most sends.
                let len = self.length(choices);
                let len =
                    if choices.byte() < 200 { len.max(40_000.min(3 * self.slot)) } else { len };
                let options = if self.has_deadlines { choices.byte() } else { 0 };
                let wait_ns = u64::from(options >> 2) * 4 * MS;
                let deadline_ns = (options & 3 == 3).then_some(self.pair.now_ns + wait_ns);
                let grace =
                    if options & 7 == 5 { Grace::Fixed { ns: 3 * MS } } else { Grace::Path };
                self.post(side.peer(), len, RecvOptions { deadline_ns, grace });
            }
            3 | 4 => self.send(side, choices),
            5 => self.open_stream(side, choices),
            6 | 7 => self.push(side, choices),
            8 => self.end_stream(side, choices),
            9 => {
                if choices.byte() > 60 {
                    return;
                }
                let sends = &self.ends[side as usize].sends;
                let Some(id) = sends.get(choices.below(sends.len())).map(|sent| sent.id) else {
                    return;
                };
                let now_ns = self.pair.now_ns;
                self.pair.end(side).qp().cancel_send(now_ns, id);
                self.end_streams_that_failed();
            }
            10 => {
                // An application completes what is complete, and now and then what is not.
                let index = choices.below(self.ends[side as usize].receives.len());
                let anyway = choices.byte() < 30;
                let received = self.ends[side as usize].receives.get(index);
                let open = received.and_then(|received| received.open.as_ref());
                if anyway || open.is_some_and(PostedReceive::is_complete) {
                    self.close(side, index);
                }
            }
            11 => self.pair.link = any_link(choices, self.mtu),
            _ => {
                self.pair.run_for(u64::from(choices.byte()) * MS / 2);
                self.check();
            }
        }
    }

    fn length(&self, choices: &mut Choices<'_>) -> usize {
        match choices.byte() % 4 {
            0 => choices.below(100),
            1 => choices.below(30) * self.mtu,
            _ => choices.below((3 * self.slot).min(40_000)),
        }
    }

    fn post(&mut self, side: Side, len: usize, options: RecvOptions) {
        if self.ends[side as usize].receives.len() >= RECEIVES_MAX {
            return;
        }
        let buffer = Placement::from_vec(vec![0; len]);
        let now_ns = self.pair.now_ns;
        let request = RecvRequest { buffer, options, notifies: false };
        let posted = self.pair.end(side).qp().post_receive_with(now_ns, request);
        // All slots may be taken.
        let Ok(posted) = posted else { return };
        self.ends[side as usize].receives.push(Received {
            open: Some(posted),
            candidates: Vec::new(),
            chunks_seen: 0,
            chunks_last: 0,
            stalled: 0,
            is_complete: false,
            deadline_ns: options.deadline_ns,
            over_packets: None,
            closed: None,
        });
    }

    fn send(&mut self, side: Side, choices: &mut Choices<'_>) {
        let index = self.ends[side as usize].sends.len();
        if index >= SENDS_MAX {
            return;
        }
        let content = content(side, index, self.length(choices));
        let options = choices.byte();
        let immediate = (options & 1 != 0).then_some(0x9E37_79B9u32.wrapping_mul(index as u32 + 1));
        let wait_ns = u64::from(choices.byte()) * 2 * MS;
        let deadline_ns = (options & 6 == 6).then_some(self.pair.now_ns + wait_ns);
        let data = SendBuffer::from(content.clone());
        let request = SendRequest { data, immediate, deadline_ns };
        let qp = &mut self.pair.end(side).qp();
        let id = if options & 8 == 0 { qp.queue_send(request) } else { qp.post_send(request) };
        match id {
            Ok(id) => {
                let stream = None;
                let sent = Sent { id, content, immediate, deadline_ns, stream };
                self.ends[side as usize].sends.push(sent);
            }
            Err(PostSendError::Unposted { .. } | PostSendError::TooLong { .. }) => {
                assert!(options & 8 != 0, "a send that waits is taken");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn open_stream(&mut self, side: Side, choices: &mut Choices<'_>) {
        let index = self.ends[side as usize].sends.len();
        if index >= SENDS_MAX {
            return;
        }
        let immediate = (choices.byte() & 1 != 0).then_some(index as u32 * 0x0101_0101);
        let opened = self.pair.end(side).qp().open_stream(immediate);
        match opened {
            Ok(id) => self.ends[side as usize].sends.push(Sent {
                id,
                content: content(side, index, STREAM_BYTES),
                immediate,
                deadline_ns: None,
                stream: Some(Stream::default()),
            }),
            Err(error) => assert!(matches!(error, PostSendError::Unposted { .. }), "{error}"),
        }
    }

    /// The number of an open stream of one end.
    fn stream(&self, side: Side, choices: &mut Choices<'_>) -> Option<usize> {
        let sends = self.ends[side as usize].sends.iter().enumerate();
        let is_open = |sent: &Sent| sent.stream.as_ref().is_some_and(|stream| !stream.ended);
        let open: Vec<usize> =
            sends.filter(|(_, sent)| is_open(sent)).map(|(index, _)| index).collect();
        open.get(choices.below(open.len())).copied()
    }

    fn push(&mut self, side: Side, choices: &mut Choices<'_>) {
        let start = choices.below(12) * self.chunk;
        let (packets, options) = (choices.below(12), choices.byte());
        let Some(index) = self.stream(side, choices) else { return };
        let sent = &mut self.ends[side as usize].sends[index];
        let Some(stream) = &mut sent.stream else { return };
        let ends = options & 3 == 3;
        let mut end = start + packets * self.mtu;
        if ends {
            end += usize::from(options >> 2);
        }
        // A caller that contradicts its own end is refused by the receiver; not tried here.
        if end > STREAM_BYTES
            || stream.end.is_some_and(|known| end > known || (ends && end != known))
            || (ends && stream.pushed > end)
        {
            return;
        }
        let data = SendBuffer::from(sent.content[start..end].to_vec());
        let pushed = self.pair.end(side).qp().push_stream(sent.id, start as u64, data, ends);
        match pushed {
            Ok(()) => {
                stream.pushed = stream.pushed.max(end);
                if ends {
                    stream.end = Some(end);
                }
            }
            Err(PostSendError::NoSuchSend) => {
                let outcome = self.pair.status(side, sent.id).outcome;
                assert!(outcome.is_some(), "an open stream takes data until it has ended");
                stream.ended = true;
            }
            Err(error) => assert!(matches!(error, PostSendError::TooLong { .. }), "{error}"),
        }
    }

    fn end_stream(&mut self, side: Side, choices: &mut Choices<'_>) {
        let Some(index) = self.stream(side, choices) else { return };
        let sent = &mut self.ends[side as usize].sends[index];
        let Some(stream) = &mut sent.stream else { return };
        stream.ended = true;
        let ended = self.pair.end(side).qp().end_stream(sent.id);
        if ended.is_err() {
            assert!(self.pair.status(side, sent.id).outcome.is_some(), "it had ended before");
        }
    }

    fn close(&mut self, side: Side, index: usize) {
        self.check_receive(side, index);
        let Some(received) = self.ends[side as usize].receives.get_mut(index) else { return };
        let Some(mut posted) = received.open.take() else { return };
        let now_ns = self.pair.now_ns;
        {
            let qp = &mut self.pair.end(side).qp();
            for part in &posted.parts {
                qp.table().close(part.number());
            }
            qp.on_receive_closed(now_ns, &posted);
        }
        received.is_complete = posted.is_complete();
        let packets = self.packets(&posted);
        posted.zero_missing();
        let bytes = posted.into_vec().expect("nobody else holds a closed receive");
        self.check_packets(side, index, &packets, &bytes);
        self.ends[side as usize].receives[index].closed = Some((bytes.clone(), bytes));
    }

    /// The packets of a receive that could be here: where in the buffer, and whether they are.
    fn packets(&self, posted: &PostedReceive) -> Vec<(Range<usize>, bool)> {
        let mut packets = Vec::new();
        for (index, part) in posted.parts.iter().enumerate() {
            let limit = part.length_bytes().unwrap_or(part.capacity_bytes()) as usize;
            for (packet, start) in (0..limit).step_by(self.mtu).enumerate() {
                let is_here = part.packets_here(packet as u32 / 64) >> (packet % 64) & 1 == 1;
                let end = (start + self.mtu).min(limit);
                packets.push((index * self.slot + start..index * self.slot + end, is_here));
            }
            if part.length_bytes().is_some() {
                break;
            }
        }
        packets
    }

    /// Each packet that is said to be here is of the send, and in its place; the others are zero.
    fn check_packets(
        &self,
        side: Side,
        index: usize,
        packets: &[(Range<usize>, bool)],
        bytes: &[u8],
    ) {
        let sends = &self.ends[side.peer() as usize].sends;
        let candidates = match self.ends[side as usize].receives[index].chunks_seen {
            0 => self.candidates(side, index),
            _ => self.ends[side as usize].receives[index].candidates.clone(),
        };
        let mut here = packets.iter().filter(|(_, is_here)| *is_here).map(|(range, _)| range);
        let fits = |send: &usize| {
            let content = &sends[*send].content;
            here.clone().all(|range| content.get(range.clone()) == Some(&bytes[range.clone()]))
        };
        assert!(
            here.clone().next().is_none() || candidates.iter().any(fits),
            "the packet map of receive {index} of {side:?} claims what no send has: {:?}",
            here.next()
        );
        for (range, _) in packets.iter().filter(|(_, is_here)| !is_here) {
            let missing = &bytes[range.clone()];
            assert!(missing.iter().all(|byte| *byte == 0), "{range:?} is missing and not zero");
        }
    }

    /// The peer's sends that a receive may be for.
    fn candidates(&self, side: Side, index: usize) -> Vec<usize> {
        let sends = self.ends[side.peer() as usize].sends.len();
        match self.mode {
            Mode::Bounded(_) => (index..sends.min(index + 1)).collect(),
            _ => (0..sends).collect(),
        }
    }

    // ---- what must hold ----

    fn check(&mut self) {
        for side in [Side::A, Side::B] {
            for index in 0..self.ends[side as usize].receives.len() {
                self.check_receive(side, index);
            }
            let now_ns = self.pair.now_ns;
            for sent in &self.ends[side as usize].sends {
                if sent.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns) {
                    let outcome = self.pair.status(side, sent.id).outcome;
                    assert!(outcome.is_some(), "a deadline has passed");
                }
            }
            for received in &self.ends[side as usize].receives {
                let Received { open: Some(posted), deadline_ns, .. } = received else { continue };
                if deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns) {
                    assert!(posted.reason().is_some(), "a receive's deadline has passed");
                }
            }
        }
    }

    /// Every chunk here belongs to one send of the peer, and is in its place.
    fn check_receive(&mut self, side: Side, index: usize) {
        let candidates = self.candidates(side, index);
        let [a, b] = &mut self.ends;
        let (own, peer) = match side {
            Side::A => (a, b),
            Side::B => (b, a),
        };
        let Some(received) = own.receives.get_mut(index) else { return };
        let Some(posted) = &received.open else { return };
        if posted.reason().is_some() {
            let packets = posted.placed_packets();
            let before = *received.over_packets.get_or_insert(packets);
            assert_eq!(packets, before, "a receive that is over has changed");
        }
        let seen: u32 = posted.parts.iter().map(|part| part.chunks_done()).sum();
        let is_complete = posted.is_complete();
        if seen == received.chunks_seen && !is_complete {
            return;
        }
        if received.chunks_seen == 0 {
            received.candidates = candidates;
        }
        received.chunks_seen = seen;
        let mut has_all = true;
        let length = posted.length_bytes().map(|length| length as usize);
        for (part_index, part) in posted.parts.iter().enumerate() {
            for chunk in 0..part.chunks() {
                let start = part_index * self.slot + chunk as usize * self.chunk;
                let Some(bytes) = part.chunk(chunk) else {
                    has_all &= length.is_some_and(|length| start >= length && start > 0);
                    continue;
                };
                let range = start..start + bytes.len();
                let fits =
                    |index: &usize| peer.sends[*index].content.get(range.clone()) == Some(bytes);
                received.candidates.retain(fits);
                assert!(!received.candidates.is_empty(), "wrong bytes at {start} of {side:?}");
            }
        }
        if let Some(length) = length {
            let fits = |index: &usize| match &peer.sends[*index] {
                Sent { stream: Some(stream), .. } => stream.end.is_none_or(|end| end == length),
                sent => sent.content.len() == length,
            };
            received.candidates.retain(fits);
        }
        if is_complete {
            assert!(has_all, "complete with a hole");
            let immediate = posted.immediate();
            received.candidates.retain(|index| peer.sends[*index].immediate == immediate);
        }
        assert!(seen == 0 || !received.candidates.is_empty(), "wrong length or immediate");
    }
}
