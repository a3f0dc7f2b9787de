//! What strangers can do to reliable queue pairs and to groups, and what they cannot. They write under any address, with
//! the CRC32C right, and hear nothing.

use lacuna_datagram::{
    Config, Done, Endpoint, OpenLimits, RecvWork, ReliableConfig, Run, SendWork, Target, Verb,
};
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride};
use lacuna_wire::ddp::{
    self, About, ControlFrame, ControlFrames, RecordFlags, Segment, Space, Tagged, Untagged,
};
use std::net::SocketAddr;
use std::sync::Arc;

const REGION_BYTES: u64 = 1 << 16;
const MILLISECOND_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

fn host(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 7407))
}

/// An end, its memory, and a key for it.
struct End {
    endpoint: Endpoint,
    region: Arc<Region>,
    key: u32,
}

impl End {
    fn new(config: Config) -> Self {
        let keys = Arc::new(KeyTable::new(1));
        let config_of_region = RegionConfig { has_validity: false, is_exclusive: false };
        let region = Region::new(vec![0; REGION_BYTES as usize], config_of_region);
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let access = Access { rights, scope: Scope::Any };
        let key = keys.register(&region, 0..REGION_BYTES, access, || 0x1234_5678).unwrap();
        Self { endpoint: Endpoint::new(config, keys, 1), region, key }
    }

    fn reliable() -> Self {
        Self::new(Config { reliable: Some(ReliableConfig::default()), ..Config::default() })
    }

    fn receive(&mut self, now_ns: u64, id: u64) {
        let into = Slices::new([(self.region.clone(), Stride::of_range(0..1000))]).unwrap();
        self.endpoint.post_recv(now_ns, RecvWork { id, into }).unwrap();
    }

    fn take(&mut self, now_ns: u64, from: SocketAddr, segment: Segment, payload: &[u8]) -> usize {
        let mut packet = vec![0; segment.packet_bytes(payload.len())];
        segment.emit_packet(payload, &mut packet);
        self.endpoint.on_datagram(now_ns, from, &packet);
        packet.len()
    }

    /// A part of a Send.
    fn send(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        (is_reliable, group): (bool, u32),
        number: u32,
        (place, bytes, length): (u32, usize, u32),
    ) -> usize {
        let operation = ddp::Operation::Send;
        let untagged = Untagged { operation, is_reliable, group, number, length, place };
        self.take(now_ns, from, Segment::Untagged(untagged), &vec![7; bytes])
    }

    fn say(&mut self, now_ns: u64, from: SocketAddr, frame: &ControlFrame<'_>) -> usize {
        let mut frames = Vec::new();
        assert!(ddp::emit_control(frame, &mut frames));
        let untagged = Untagged {
            operation: ddp::Operation::Control,
            is_reliable: false,
            group: 0,
            number: 0,
            length: frames.len() as u32,
            place: 0,
        };
        self.take(now_ns, from, Segment::Untagged(untagged), &frames)
    }

    fn begin(&mut self, now_ns: u64, from: SocketAddr, number: u32, instance: u32) -> usize {
        let about = About { space: Space::Reliable, number };
        self.say(now_ns, from, &ControlFrame::Begin { about, instance, token: 0 })
    }

    fn done(&mut self) -> Vec<Done> {
        std::iter::from_fn(|| self.endpoint.poll_done()).collect()
    }

    /// What leaves, and to whom.
    fn packets(&mut self, now_ns: u64) -> Vec<(SocketAddr, Vec<u8>)> {
        let (mut runs, mut packets): (Vec<Run>, _) = (Vec::new(), Vec::new());
        while let Some(to) = self.endpoint.poll_transmit(now_ns, 64, &mut runs) {
            for run in runs.drain(..) {
                for at in 0..run.len() {
                    let mut packet = vec![0; run.packet_bytes(at)];
                    let bytes = run.emit(at, &mut packet);
                    packet.truncate(bytes);
                    ddp::parse(&packet).expect("what is sent is a packet");
                    packets.push((to, packet));
                }
            }
        }
        packets
    }

    /// Time goes on; bytes that leave meanwhile.
    fn pass(&mut self, from_ns: u64, until_ns: u64) -> usize {
        let mut bytes = 0;
        while let Some(ns) = self.endpoint.poll_timeout().filter(|ns| *ns <= until_ns) {
            self.endpoint.on_timeout(ns.max(from_ns));
            bytes +=
                self.packets(ns.max(from_ns)).iter().map(|(_, packet)| packet.len()).sum::<usize>();
        }
        bytes
    }
}

/// All that two ends have for each other arrives. Host 0 and host 1.
fn exchange(now_ns: u64, ends: [&mut End; 2]) {
    let [first, second] = ends;
    loop {
        let (there, back) = (first.packets(now_ns), second.packets(now_ns));
        if there.is_empty() && back.is_empty() {
            return;
        }
        there.iter().for_each(|(_, packet)| second.endpoint.on_datagram(now_ns, host(0), packet));
        back.iter().for_each(|(_, packet)| first.endpoint.on_datagram(now_ns, host(1), packet));
    }
}

#[test]
fn a_source_that_goes_in_the_middle_of_a_message_gives_the_receive_back() {
    let mut end = End::reliable();
    end.receive(0, 5);
    end.begin(0, host(9), 100, 1);
    end.send(0, host(9), (true, 0), 100, (0, 50, 100));
    assert_eq!((end.endpoint.receives(), end.endpoint.stats().messages_open), (0, 1));
    end.pass(0, 100 * SECOND_NS);
    let stats = end.endpoint.stats();
    assert_eq!((end.endpoint.receives(), stats.messages_open, stats.streams), (1, 0, 0));
    assert_eq!((end.done().len(), end.endpoint.poll_timeout()), (0, None));
}

#[test]
fn a_question_where_messages_begin_does_not_put_a_peer_into_error() {
    let (mut end, mut peer) = (End::reliable(), End::reliable());
    peer.receive(0, 1);
    let to = end.endpoint.peer(host(1)).unwrap();
    let verb = Verb::Send { data: vec![1; 10].into() };
    end.endpoint.post_send(0, SendWork::new(1, to, verb)).unwrap();
    exchange(0, [&mut end, &mut peer]);
    assert_eq!(end.done()[0].status, Ok(()));
    // Nothing is to be acknowledged, and nothing was heard for long.
    let later_ns = 8 * SECOND_NS;
    let about = About { space: Space::Reliable, number: 1 };
    end.say(later_ns, host(1), &ControlFrame::Ask { about, instance: 0, token: 1 });
    end.endpoint.on_timeout(later_ns);
    assert_eq!(end.endpoint.stats().peers_failed, 0);
    assert_eq!(end.packets(later_ns).len(), 1, "it is answered");
}

#[test]
fn a_target_that_has_no_room_for_records_says_that_it_is_there() {
    let (mut end, mut peer) = (End::reliable(), End::reliable());
    peer.endpoint.set_records_max(1);
    let to = end.endpoint.peer(host(1)).unwrap();
    for id in 0..3 {
        let verb = Verb::WriteRecord {
            data: vec![1; 10].into(),
            to: Target { key: peer.key, offset: id * 10 },
        };
        end.endpoint.post_send(0, SendWork::new(id, to, verb)).unwrap();
    }
    let mut now_ns = 0;
    let mut run = |until_ns: u64, end: &mut End, peer: &mut End| {
        while now_ns < until_ns {
            exchange(now_ns, [end, peer]);
            now_ns += MILLISECOND_NS;
            end.endpoint.on_timeout(now_ns);
            peer.endpoint.on_timeout(now_ns);
        }
    };
    // Nobody polls for longer than a peer may be silent.
    run(10 * SECOND_NS, &mut end, &mut peer);
    assert_eq!((end.endpoint.stats().peers_failed, end.done().len()), (0, 1));
    let mut came = 0;
    for round in 1..6 {
        came += peer.done().len();
        run((10 + 3 * round) * SECOND_NS, &mut end, &mut peer);
    }
    let done = end.done();
    assert!(
        came == 3 && done.len() == 2 && done.iter().all(|done| done.status.is_ok()),
        "{done:?}"
    );
}

#[test]
fn strangers_have_no_more_reliable_messages_open_than_all_may() {
    let open = OpenLimits { of_source: 4, in_all: 10 };
    let reliable = Some(ReliableConfig::default());
    let mut end = End::new(Config { reliable, open, ..Config::default() });
    for source in 9..12 {
        end.begin(0, host(source), 100, 1);
        for number in 100..200 {
            // Answers to READs that nobody asked.
            let flags =
                RecordFlags { is_answer: true, is_reliable: true, ..RecordFlags::default() };
            let tagged =
                Tagged { stag: 1, offset: 0, number, length: 100, place: 0, flags, group: 0 };
            end.take(0, host(source), Segment::Tagged(tagged), &[1; 10]);
        }
    }
    // But the next one of each source always may.
    let stats = end.endpoint.stats();
    assert_eq!(stats.messages_open, 10 + 2, "{stats:?}");
    end.pass(0, 100 * SECOND_NS);
    assert_eq!(end.endpoint.stats().messages_open, 0);
}

/// The words of where messages begin, or questions for it, in packets.
fn is_word(packet: &[u8], is_it: impl Fn(&ControlFrame<'_>) -> bool) -> bool {
    let (segment, payload) = ddp::parse(packet).unwrap();
    matches!(segment, Segment::Untagged(untagged) if untagged.operation == ddp::Operation::Control)
        && ControlFrames::new(payload).any(|frame| frame.is_ok_and(|frame| is_it(&frame)))
}

#[test]
fn packets_of_an_earlier_beginning_do_not_deliver_again() {
    let (mut end, mut peer) = (End::reliable(), End::reliable());
    (0..20).for_each(|id| peer.receive(0, id));
    let to = end.endpoint.peer(host(1)).unwrap();
    let mut recorded: Vec<Vec<u8>> = Vec::new();
    // Each time the source has been idle for so long that it begins anew, and has to say the token.
    for round in 0..4u64 {
        let now_ns = round * 20 * SECOND_NS;
        end.endpoint.on_timeout(now_ns);
        peer.endpoint.on_timeout(now_ns);
        let verb = Verb::Send { data: vec![1; 10].into() };
        end.endpoint.post_send(now_ns, SendWork::new(round, to, verb)).unwrap();
        loop {
            let (there, back) = (end.packets(now_ns), peer.packets(now_ns));
            if there.is_empty() && back.is_empty() {
                break;
            }
            for (_, packet) in there {
                peer.endpoint.on_datagram(now_ns, host(0), &packet);
                recorded.push(packet);
            }
            back.iter().for_each(|(_, packet)| end.endpoint.on_datagram(now_ns, host(1), packet));
        }
        assert_eq!((peer.done().len(), end.done().len()), (1, 1), "round {round}");
    }
    let begins = recorded.iter().filter(|packet| {
        is_word(packet, |frame| matches!(frame, ControlFrame::Begin { token: 1.., .. }))
    });
    assert_eq!(begins.count(), 3, "all but the first one were asked for");
    // Somebody has recorded all that, and sends it again.
    let now_ns = 61 * SECOND_NS;
    for packet in &recorded {
        peer.endpoint.on_datagram(now_ns, host(0), packet);
    }
    assert_eq!(peer.done().len(), 0);
}

#[test]
fn a_refused_read_whose_time_is_over_is_looked_at_once() {
    let (mut end, mut peer) = (End::reliable(), End::reliable());
    let to = end.endpoint.peer(host(1)).unwrap();
    let into = Slices::new([(end.region.clone(), Stride::of_range(0..1000))]).unwrap();
    let verb = Verb::Read { into, from: Target { key: peer.key ^ 1, offset: 0 } };
    let deadline_ns = Some(5 * MILLISECOND_NS);
    end.endpoint.post_send(0, SendWork { deadline_ns, ..SendWork::new(1, to, verb) }).unwrap();
    for (_, packet) in end.packets(0) {
        peer.endpoint.on_datagram(0, host(0), &packet);
    }
    // What the refusal says is lost, and the deadline passes.
    assert!(!peer.packets(0).is_empty());
    peer.endpoint.on_timeout(10 * MILLISECOND_NS);
    end.endpoint.on_timeout(10 * MILLISECOND_NS);
    assert_eq!(end.done().len(), 1);
    peer.pass(10 * MILLISECOND_NS, 100 * SECOND_NS);
    assert_eq!(peer.endpoint.stats().messages_waiting, 0);
}

#[test]
fn a_forged_source_in_a_group_is_not_flooded_with_questions() {
    let mut end = End::new(Config::default());
    (0..10).for_each(|id| end.receive(0, id));
    let mut sent = 0;
    for (round, number) in (0..20).zip((100..).step_by(50)) {
        let now_ns = round * 10 * MILLISECOND_NS;
        sent += end.send(now_ns, host(9), (false, 7), number, (0, 0, 0));
        sent += end.send(now_ns, host(9), (false, 7), number + 1, (0, 1, 100));
    }
    let told = end.pass(0, 10 * SECOND_NS);
    assert!(told > 0 && told <= 3 * sent, "{told} bytes for {sent}");
}

#[test]
fn a_forged_source_of_reliable_messages_is_not_flooded_with_acknowledgements() {
    let mut end = End::reliable();
    end.receive(0, 1);
    let mut sent = end.begin(0, host(9), 100, 1);
    // Many gaps, and then the same segment for ever.
    for place in (0..200).step_by(2) {
        sent += end.send(0, host(9), (true, 0), 100, (place, 1, 1000));
    }
    let mut told = 0;
    for now_ns in 0..500 {
        sent += end.send(now_ns, host(9), (true, 0), 100, (0, 1, 1000));
        told += end.packets(now_ns).iter().map(|(_, packet)| packet.len()).sum::<usize>();
        assert!(told <= 3 * sent, "{told} bytes for {sent}");
    }
    told += end.pass(1000, 100 * SECOND_NS);
    assert!(told > sent && told <= 3 * sent, "{told} bytes for {sent}");
}

#[test]
fn who_acknowledges_places_that_no_message_has_does_not_get_packets_that_are_none() {
    let mut end = End::reliable();
    let to = end.endpoint.peer(host(1)).unwrap();
    let verb = Verb::Send { data: vec![1; 10].into() };
    end.endpoint.post_send(0, SendWork::new(1, to, verb)).unwrap();
    let packets = end.packets(0);
    let (_, frames) = ddp::parse(&packets[0].1).unwrap();
    let begin = ddp::ControlFrames::new(frames).next().unwrap().unwrap();
    let ControlFrame::Begin { about, instance, .. } = begin else { panic!("{begin:?}") };
    let number = about.number;
    let horizon = ddp::Position { number: number.wrapping_add(1), place: 0 };
    let rows = [[number, 20, number.wrapping_add(1), 0]];
    let acknowledge = ControlFrame::Acknowledge {
        about,
        instance,
        record: 1,
        horizon,
        latest: ddp::Position { number, place: 0 },
        bytes: 10,
        waited_us: 0,
        missing: ddp::Rows::new(&rows),
    };
    end.say(MILLISECOND_NS, host(1), &acknowledge);
    assert!(end.pass(MILLISECOND_NS, SECOND_NS) > 0, "it is sent again");
    assert_eq!(end.done().len(), 0, "and not over");
}

#[test]
fn a_message_that_a_stranger_who_knows_its_number_contradicts_is_refused_and_the_next_one_comes() {
    let (mut end, mut peer) = (End::reliable(), End::reliable());
    for id in 0..4 {
        peer.receive(0, id);
    }
    let to = end.endpoint.peer(host(1)).unwrap();
    let post = |end: &mut End, id| {
        let verb = Verb::Send { data: vec![1; 10].into() };
        end.endpoint.post_send(0, SendWork::new(id, to, verb)).unwrap();
    };
    post(&mut end, 0);
    let first = end.packets(0);
    let number = first
        .iter()
        .find_map(|(_, packet)| match ddp::parse(packet) {
            Ok((Segment::Untagged(untagged), _)) if untagged.is_reliable => Some(untagged.number),
            _ => None,
        })
        .unwrap();
    for (_, packet) in &first {
        peer.endpoint.on_datagram(0, host(0), packet);
    }
    // Bytes of the next one, as if it were longer.
    peer.send(0, host(0), (true, 0), number.wrapping_add(1), (4, 3, 20));
    for id in 1..3 {
        post(&mut end, id);
    }
    let mut now_ns = 0;
    let mut statuses = Vec::new();
    while statuses.len() < 3 && now_ns < 5 * SECOND_NS {
        exchange(now_ns, [&mut end, &mut peer]);
        now_ns += MILLISECOND_NS;
        end.endpoint.on_timeout(now_ns);
        peer.endpoint.on_timeout(now_ns);
        statuses.extend(end.done().into_iter().map(|done| (done.id, done.status.is_ok())));
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [(0, true), (1, false), (2, true)]);
    assert_eq!(peer.done().len(), 2);
}
