//! Two queue pairs over the fake link that follow a list of bytes, checked against an oracle that
//! knows the content of every send.
//!
//! Each send's bytes are a function of its number alone, so a chunk that is there tells which send
//! it came from. The oracle asserts that all chunks of a receive come from one send and stand
//! where they belong; that later receives hold later sends; that length and immediate are right;
//! that a reliable send that succeeded left a complete receive; that every send with a deadline
//! has ended by it; that everything ends once the link is healed; and that no buffer changes after
//! its receive was closed, also when every packet is sent again.

use super::Choices;
use lacuna_engine::testing::{Link, Narrowness, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::placement::Placement;
use lacuna_proto::buffer::SendBuffer;
use lacuna_proto::modes::Mode;
use lacuna_proto::modes::auto::{Choice, Policy, Question};
use lacuna_proto::qp::{PostSendError, PostedReceive, SendFailure, SendId, SendRequest};
use lacuna_wire::ImmediateSplit;

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
    ends: [End; 2],
    mtu: usize,
    chunk: usize,
    slot: usize,
}

/// Runs the list; returns every packet that was put on the link.
pub(crate) fn run(bytes: &[u8]) -> Vec<(Side, u8, Vec<u8>)> {
    run_in(bytes, None)
}

/// The same in the mode `auto` with this policy, whatever mode the list asks for.
pub(crate) fn run_auto(bytes: &[u8], policy: Policy) -> Vec<(Side, u8, Vec<u8>)> {
    run_in(bytes, Some(policy))
}

/// Chooses anything, the same for the same question.
pub(crate) fn any_choice(question: &Question) -> Choice {
    let seed = u64::from(question.tail_packets) << 32 | u64::from(question.message_packets);
    let mut rng = Rng::new(seed ^ question.estimate.lost_packets.to_bits());
    Choice { parity: rng.below(18) as u8, repair_copies: 1 + rng.below(3) as u8 }
}

fn run_in(bytes: &[u8], policy: Option<Policy>) -> Vec<(Side, u8, Vec<u8>)> {
    let mut choices = Choices::new(bytes);
    let mut world = World::new(&mut choices, policy);
    while let Some(operation) = choices.next() {
        world.operate(operation, &mut choices);
    }
    world.heal();
    world.replay()
}

fn content(side: Side, index: usize, len: usize) -> Vec<u8> {
    Rng::new((index as u64) << 1 | side as u64).bytes(len)
}

impl World {
    fn new(choices: &mut Choices<'_>, policy: Option<Policy>) -> Self {
        let modes =
            ["sr", "raw", "sr:rto", "ec:mds:4:2", "ec:xor:6:3", "ec:mds:1:1", "ec:mds:32:8"];
        let asked = modes[choices.below(modes.len())].parse().unwrap();
        let mode = policy.map_or(asked, |_| Mode::Auto);
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
                self.post(side.peer(), len);
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
            11 => self.change_link(choices),
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

    fn post(&mut self, side: Side, len: usize) {
        if self.ends[side as usize].receives.len() >= RECEIVES_MAX {
            return;
        }
        let placement = Placement::from_vec(vec![0; len]);
        let now_ns = self.pair.now_ns;
        let posted = self.pair.end(side).qp().post_receive(now_ns, placement);
        // All slots may be taken.
        let Ok(posted) = posted else { return };
        self.ends[side as usize].receives.push(Received {
            open: Some(posted),
            candidates: Vec::new(),
            chunks_seen: 0,
            chunks_last: 0,
            stalled: 0,
            is_complete: false,
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

    fn change_link(&mut self, choices: &mut Choices<'_>) {
        let ppm = |byte: u8, percent_max: u32| u32::from(byte) * percent_max * 10_000 / 255;
        let options = choices.byte();
        let narrow = [Narrowness::Hidden, Narrowness::Told, Narrowness::Refused];
        let narrow = narrow.get(usize::from(options >> 4).wrapping_sub(1)).copied();
        self.pair.link = Link {
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
            packet_bytes_max: narrow.map_or(usize::MAX, |_| self.mtu * 2 / 3 + 60),
            narrowness: narrow.unwrap_or(Narrowness::Hidden),
        };
    }

    fn close(&mut self, side: Side, index: usize) {
        self.check_receive(side, index);
        let Some(received) = self.ends[side as usize].receives.get_mut(index) else { return };
        let Some(posted) = received.open.take() else { return };
        let now_ns = self.pair.now_ns;
        let qp = &mut self.pair.end(side).qp();
        for part in &posted.parts {
            qp.table().close(part.number());
        }
        qp.on_receive_closed(now_ns, &posted);
        received.is_complete = posted.is_complete();
        let bytes = posted.into_vec().expect("nobody else holds a closed receive");
        received.closed = Some((bytes.clone(), bytes));
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
        }
    }

    /// Every chunk here belongs to one send of the peer, and is in its place.
    fn check_receive(&mut self, side: Side, index: usize) {
        let [a, b] = &mut self.ends;
        let (own, peer) = match side {
            Side::A => (a, b),
            Side::B => (b, a),
        };
        let Some(received) = own.receives.get_mut(index) else { return };
        let Some(posted) = &received.open else { return };
        let seen: u32 = posted.parts.iter().map(|part| part.chunks_done()).sum();
        let is_complete = posted.is_complete();
        if seen == received.chunks_seen && !is_complete {
            return;
        }
        if received.chunks_seen == 0 {
            received.candidates = (0..peer.sends.len()).collect();
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

    /// Lets everything end on a link without faults.
    fn heal(&mut self) {
        self.pair.run_for(0);
        self.check();
        self.pair.link = Link { delay_ns: 2 * MS, ..Link::default() };
        for side in [Side::A, Side::B] {
            for index in 0..self.ends[side as usize].sends.len() {
                let sent = &self.ends[side as usize].sends[index];
                if sent.stream.is_some() {
                    // Ended already, or now.
                    let _ = self.pair.end(side).qp().end_stream(sent.id);
                }
            }
        }
        for _ in 0..600 {
            self.pair.run_for(100 * MS);
            self.check();
            if self.all_ended() {
                return self.finish();
            }
            for side in [Side::A, Side::B] {
                self.take_finished(side);
                let peer = &self.ends[side.peer() as usize];
                let waits = |sent: &&Sent| {
                    let qp = match side {
                        Side::A => &self.pair.b.qp(),
                        Side::B => &self.pair.a.qp(),
                    };
                    qp.send_status(sent.id).is_some_and(|status| status.outcome.is_none())
                };
                let waiting = peer.sends.iter().filter(waits).count();
                let open = self.ends[side as usize].receives.iter().filter(|r| r.open.is_some());
                if waiting > open.count() {
                    self.post_late(side);
                }
            }
        }
        panic!("operations do not end on a healed link: {:?}", self.open_sends());
    }

    fn post_late(&mut self, side: Side) {
        let before = self.ends[side as usize].receives.len();
        if before < RECEIVES_MAX {
            self.post(side, 40_000.min(10 * self.slot));
        }
        if self.ends[side as usize].receives.len() == before {
            // No slot, or too many receives: what still waits is given up.
            let now_ns = self.pair.now_ns;
            let peer = side.peer();
            for sent in &self.ends[peer as usize].sends {
                self.pair.end(peer).qp().cancel_send(now_ns, sent.id);
            }
        }
    }

    /// Closes receives that are complete, failed, or without progress for a second. A reliable send
    /// in progress must not stand still.
    fn take_finished(&mut self, side: Side) {
        let (own, peer) = match side {
            Side::A => (self.pair.a.qp(), self.pair.b.qp()),
            Side::B => (self.pair.b.qp(), self.pair.a.qp()),
        };
        let [a, b] = &mut self.ends;
        let (receives, sends) = match side {
            Side::A => (&mut a.receives, &b.sends),
            Side::B => (&mut b.receives, &a.sends),
        };
        let goes_on = |send: &usize| {
            let status = peer.send_status(sends[*send].id).expect("kept");
            sends[*send].stream.is_none() && status.outcome.is_none()
        };
        let mut finished = Vec::new();
        for (index, received) in receives.iter_mut().enumerate() {
            let Some(posted) = &received.open else { continue };
            let done: u32 = posted.parts.iter().map(|part| part.chunks_done()).sum();
            received.stalled = if done > received.chunks_last { 0 } else { received.stalled + 1 };
            received.chunks_last = done;
            let is_begun = done > 0 && received.candidates.iter().all(goes_on);
            if posted.is_complete() || own.receive_failure(posted).is_some() {
                finished.push(index);
            } else if self.mode.is_reliable() && is_begun {
                assert!(received.stalled < 50, "a message stands still for five seconds");
            } else if received.stalled > 10 {
                finished.push(index);
            }
        }
        drop((own, peer));
        for index in finished {
            self.close(side, index);
        }
    }

    fn open_sends(&self) -> Vec<(Side, usize)> {
        let of = |side: Side| {
            let qp = match side {
                Side::A => &self.pair.a.qp(),
                Side::B => &self.pair.b.qp(),
            };
            let sends = self.ends[side as usize].sends.iter().enumerate();
            sends
                .filter(|(_, sent)| qp.send_status(sent.id).expect("kept").outcome.is_none())
                .map(move |(index, _)| (side, index))
                .collect::<Vec<_>>()
        };
        [of(Side::A), of(Side::B)].concat()
    }

    fn all_ended(&self) -> bool {
        self.open_sends().is_empty()
    }

    /// All sends have ended: compares both ends' views.
    fn finish(&mut self) {
        for side in [Side::A, Side::B] {
            for index in 0..self.ends[side as usize].receives.len() {
                self.close(side, index);
            }
            assert_eq!(self.pair.end(side).qp().failure(), None);
        }
        for side in [Side::A, Side::B] {
            let mut holders: Vec<Vec<usize>> =
                self.ends[side as usize].sends.iter().map(|_| Vec::new()).collect();
            let mut last = None;
            let receives = &self.ends[side.peer() as usize].receives;
            for (index, received) in receives.iter().enumerate() {
                if let [only] = received.candidates[..] {
                    assert!(last < Some(only), "sends land in the order of the receives");
                    last = Some(only);
                }
                if received.is_complete {
                    received.candidates.iter().for_each(|send| holders[*send].push(index));
                }
            }
            for (index, holders) in holders.iter().enumerate() {
                let sent = &self.ends[side as usize].sends[index];
                let outcome = self.pair.status(side, sent.id).outcome;
                let is_reliable = self.mode.is_reliable() && sent.stream.is_none();
                if is_reliable && outcome == Some(Ok(())) {
                    assert!(!holders.is_empty(), "send {index} succeeded and no receive has it");
                }
                if let Some(Err(SendFailure::Failed(failure))) = outcome {
                    panic!("{failure}");
                }
            }
        }
    }

    /// Sends every packet again. No returned buffer may change.
    fn replay(&mut self) -> Vec<(Side, u8, Vec<u8>)> {
        let recorded = self.pair.recorded.take().expect("recording is on");
        for (from, channel, bytes) in &recorded {
            self.pair.inject(from.peer(), *channel, bytes.clone());
        }
        self.pair.run_for(MS);
        for received in self.ends.iter().flat_map(|end| &end.receives) {
            if let Some((buffer, copy)) = &received.closed {
                assert_eq!(buffer, copy, "a buffer changed after it was closed");
            }
        }
        recorded
    }

    fn end_streams_that_failed(&mut self) {
        for side in [Side::A, Side::B] {
            for sent in &mut self.ends[side as usize].sends {
                let outcome = self.pair.status(side, sent.id).outcome;
                if let Some(stream) = &mut sent.stream {
                    stream.ended |= outcome.is_some();
                }
            }
        }
    }
}
