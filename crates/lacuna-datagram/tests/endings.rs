//! How messages end when something else interferes: late packets, peers that go, keys that are revoked.

use lacuna_datagram::{
    Config, Done, Ended, Endpoint, Failure, OpenLimits, Operation, RecvWork, Run, SendWork, Target,
    Verb,
};
use lacuna_link::SplitMix64;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::region::{
    Access, GUESSES_MAX, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride,
};
use lacuna_wire::ddp::{self, ControlReason, RecordFlags, Segment, Tagged, Untagged};
use std::net::SocketAddr;
use std::sync::Arc;

const REGION_BYTES: u64 = 8192;
const SECOND_NS: u64 = 1_000_000_000;

fn source(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7407))
}

/// An end, its memory, and a key for it.
struct End {
    endpoint: Endpoint,
    keys: Arc<KeyTable>,
    region: Arc<Region>,
    key: u32,
}

impl End {
    fn new(config: Config) -> Self {
        let keys = Arc::new(KeyTable::new(1));
        let config_of_region = RegionConfig { has_validity: true, is_exclusive: false };
        let region = Region::new(vec![0; REGION_BYTES as usize], config_of_region);
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let access = Access { rights, scope: Scope::Any };
        let key = keys.register(&region, 0..REGION_BYTES, access, || 0x1234_5678).unwrap();
        let endpoint = Endpoint::new(config, keys.clone(), 1);
        Self { endpoint, keys, region, key }
    }

    fn receive(&mut self, id: u64, bytes: u64) {
        let parts = [(self.region.clone(), Stride::of_range(0..bytes))];
        let into = Slices::new(parts).unwrap();
        self.endpoint.post_recv(0, RecvWork { id, into }).unwrap();
    }

    fn take(&mut self, now_ns: u64, from: SocketAddr, segment: Segment, payload: &[u8]) {
        let mut packet = vec![0; segment.packet_bytes(payload.len())];
        segment.emit_packet(payload, &mut packet);
        self.endpoint.on_datagram(now_ns, from, &packet);
    }

    /// The first bytes of a Write-Record to the beginning of the memory.
    fn record(&mut self, now_ns: u64, from: SocketAddr, number: u32, length: u32, first: &[u8]) {
        let (stag, flags) = (self.key, RecordFlags::default());
        let tagged = Tagged { stag, offset: 0, number, length, place: 0, flags, group: 0 };
        self.take(now_ns, from, Segment::Tagged(tagged), first);
    }

    /// The first bytes of a Send.
    fn send(&mut self, now_ns: u64, from: SocketAddr, number: u32, length: u32, first: &[u8]) {
        let operation = ddp::Operation::Send;
        let untagged =
            Untagged { operation, is_reliable: false, group: 0, number, length, place: 0 };
        self.take(now_ns, from, Segment::Untagged(untagged), first);
    }

    fn done(&mut self) -> Vec<Done> {
        std::iter::from_fn(|| self.endpoint.poll_done()).collect()
    }

    /// What leaves, with at most so many packets at a time.
    fn packets(&mut self, now_ns: u64, packets_max: usize) -> Vec<Vec<u8>> {
        let mut runs: Vec<Run> = Vec::new();
        if self.endpoint.poll_transmit(now_ns, packets_max, &mut runs).is_none() {
            return Vec::new();
        }
        let emit = |run: &Run, at: usize| {
            let mut packet = vec![0; run.packet_bytes(at)];
            let bytes = run.emit(at, &mut packet);
            packet.truncate(bytes);
            packet
        };
        runs.iter().flat_map(|run| (0..run.len()).map(move |at| emit(run, at))).collect()
    }
}

#[test]
fn a_late_segment_of_a_record_long_over_writes_nothing() {
    let mut end = End::new(Config::default());
    for number in 100..170 {
        end.record(0, source(1), number, 4, &[1; 4]);
    }
    assert_eq!(end.done().len(), 70);
    end.region.write(0, &[9; 4]).unwrap();
    for number in 100..170 {
        end.record(0, source(1), number, 4, &[1; 4]);
    }
    let mut bytes = [0; 4];
    end.region.read(0, &mut bytes).unwrap();
    assert_eq!((bytes, end.done().len()), ([9; 4], 0));
    assert_eq!(end.endpoint.stats().discards.late, 70);
}

#[test]
fn messages_of_a_peer_that_had_to_go_end_by_silence() {
    let mut end = End::new(Config { peers_max: 2, ..Config::default() });
    end.receive(7, 100);
    end.send(0, source(1), 5, 100, &[1; 50]);
    end.record(0, source(1), 5, 100, &[1; 50]);
    // Others take the two places of peers.
    for host in 2..6 {
        end.record(0, source(host), 1, 4, &[1; 4]);
    }
    assert_eq!((end.done().len(), end.endpoint.stats().messages_open), (4, 2));
    end.endpoint.on_timeout(SECOND_NS);
    assert_eq!((end.endpoint.stats().messages_open, end.endpoint.receives()), (0, 1));
    let done = end.done();
    assert_eq!((done.len(), done[0].operation, done[0].bytes), (1, Operation::Record, 50));
    assert_eq!(done[0].arrived.as_ref().unwrap().ended, Ended::Silence);
    assert_eq!(end.endpoint.poll_timeout(), None);
}

#[test]
fn messages_of_a_peer_that_had_to_go_end_when_another_begins_one_in_its_place() {
    let mut end = End::new(Config { peers_max: 1, ..Config::default() });
    end.receive(7, 100);
    end.send(0, source(1), 5, 100, &[1; 50]);
    end.record(0, source(1), 5, 100, &[1; 50]);
    end.record(0, source(2), 1, 100, &[1; 60]);
    let done = end.done();
    assert_eq!(done.iter().map(|done| done.bytes).collect::<Vec<_>>(), [50]);
    let arrived = done[0].arrived.as_ref().unwrap();
    assert_eq!((arrived.source, arrived.ended), (source(1), Ended::Evicted));
    assert_eq!((end.endpoint.stats().messages_open, end.endpoint.receives()), (1, 1));
    end.endpoint.on_timeout(SECOND_NS);
    assert_eq!((end.done().len(), end.endpoint.stats().messages_open), (1, 0));
}

#[test]
fn a_message_does_not_take_a_shorter_receive_that_came_back_for_it() {
    let open = OpenLimits { of_source: 1, in_all: 10 };
    let mut end = End::new(Config { open, ..Config::default() });
    end.receive(1, 10);
    end.receive(2, 100);
    end.send(0, source(1), 5, 10, &[1; 5]);
    // Its place among the open ones is that of the message before, whose receive is the first again.
    end.send(0, source(1), 6, 100, &[1; 50]);
    let stats = end.endpoint.stats();
    assert_eq!((stats.discards.no_buffer, stats.messages_open), (1, 0), "{stats:?}");
    assert_eq!(end.endpoint.receives(), 2);
    end.send(0, source(1), 7, 10, &[1; 10]);
    end.send(0, source(1), 6, 100, &[1; 100]);
    let ids: Vec<_> = end.done().iter().map(|done| done.id).collect();
    assert_eq!(ids, [1, 2]);
}

#[test]
fn who_named_unknown_keys_is_heard_again_after_a_second() {
    let mut end = End::new(Config::default());
    let known = std::mem::replace(&mut end.key, 0x7fff_0001);
    for number in 0..=GUESSES_MAX {
        end.record(0, source(1), number, 4, &[1; 4]);
    }
    end.key = known;
    end.record(SECOND_NS / 2, source(1), 20, 4, &[1; 4]);
    assert_eq!(end.done().len(), 0);
    let later_ns = 2 * SECOND_NS;
    end.record(later_ns, source(1), 21, 4, &[1; 4]);
    end.record(later_ns, source(1), 22, 4, &[1; 4]);
    assert_eq!(
        end.done().len(),
        1,
        "the packet that shows that a second has passed is still refused"
    );
}

#[test]
fn a_read_of_memory_that_is_revoked_meanwhile_is_refused_with_one_packet() {
    let config = Config { packet_bytes_max: 128, ..Config::default() };
    let mut asked = End::new(config);
    let mut asker = End::new(config);
    let peer = asker.endpoint.peer(source(2)).unwrap();
    let into = Slices::new([(asker.region.clone(), Stride::of_range(0..4000))]).unwrap();
    let from = Target { key: asked.key, offset: 0 };
    asker.endpoint.post_send(0, SendWork::new(3, peer, Verb::Read { into, from })).unwrap();
    for packet in asker.packets(0, 8) {
        asked.endpoint.on_datagram(0, source(1), &packet);
    }
    let before = asked.packets(0, 8);
    assert_eq!(before.len(), 8);
    assert!(asked.keys.revoke(asked.key));
    let after: Vec<_> = std::iter::repeat_with(|| asked.packets(0, 8))
        .take_while(|packets| !packets.is_empty())
        .flatten()
        .collect();
    assert_eq!(after.len(), 1, "errors are not multiplied");
    for packet in before.iter().chain(&after) {
        asker.endpoint.on_datagram(0, source(2), packet);
    }
    let done = asker.done();
    assert_eq!((done.len(), done[0].id), (1, 3));
    assert_eq!(done[0].status, Err(Failure::Peer(ControlReason::Key)));
}

#[test]
fn a_queue_pair_that_closes_gives_receives_back_in_the_same_order_each_time() {
    let mut end = End::new(Config::default());
    for id in 0..20 {
        end.receive(id, 100);
    }
    for host in 0..12 {
        end.send(0, source(host), 5, 100, &[1; 50]);
    }
    end.endpoint.close();
    let ids: Vec<_> = end.done().iter().map(|done| done.id).collect();
    assert!(ids.iter().copied().eq(0..20), "{ids:?}");
}

#[test]
fn no_packet_leaves_where_none_is_wanted_and_no_more_than_are() {
    let mut end = End::new(Config::default());
    let peer = end.endpoint.peer(source(2)).unwrap();
    let verb = || Verb::Send { data: vec![1; 20_000].into() };
    end.endpoint.post_send(0, SendWork::new(1, peer, verb())).unwrap();
    assert_eq!(end.packets(0, 0).len(), 0);
    assert!(end.endpoint.has_packets());
    assert_eq!(end.packets(0, 3).len(), 3);
    let controller = Some(ControllerConfig::Cubic);
    let mut end = End::new(Config { controller, ..Config::default() });
    let peer = end.endpoint.peer(source(2)).unwrap();
    end.endpoint.post_send(0, SendWork::new(1, peer, verb())).unwrap();
    let packets = end.packets(0, 3);
    let parsed: Vec<_> = packets.iter().map(|packet| ddp::parse(packet).unwrap()).collect();
    let [(_, first), (_, second), (Segment::Untagged(last), frames)] = parsed[..] else {
        panic!("{parsed:?}")
    };
    assert_eq!(last.operation, ddp::Operation::Control, "the first burst ends with a question");
    let frame = ddp::ControlFrames::new(frames).next().unwrap().unwrap();
    let sent = (first.len() + second.len()) as u64;
    assert!(matches!(frame, ddp::ControlFrame::Probe { bytes, .. } if bytes == sent), "{frame:?}");
}

#[test]
fn a_queue_pair_that_is_closed_takes_nothing() {
    let mut end = End::new(Config::default());
    end.record(0, source(1), 5, 100, &[1; 50]);
    end.endpoint.close();
    end.record(1, source(1), 6, 4, &[1; 4]);
    end.endpoint.on_timeout(SECOND_NS);
    let mut bytes = [0; 60];
    end.region.read(0, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[3], bytes[55]), (1, 1, 0));
    end.record(2 * SECOND_NS, source(1), 7, 60, &[9; 60]);
    end.region.read(0, &mut bytes).unwrap();
    assert_eq!((bytes[0], bytes[55], end.done().len()), (1, 0, 0));
    assert_eq!((end.endpoint.records(), end.endpoint.poll_timeout()), (0, None));
}

#[test]
fn who_may_not_use_a_key_is_told_no_more_than_who_names_one_that_nobody_has() {
    let mut end = End::new(Config::default());
    let peer = end.endpoint.peer(source(2)).unwrap();
    let access = |scope| Access { rights: Rights::REMOTE_WRITE, scope };
    let mut rng = SplitMix64::new(1);
    let mut register = |scope| {
        let draw = || rng.next_u64() as u32;
        end.keys.register(&end.region, 0..REGION_BYTES, access(scope), draw).unwrap()
    };
    let of_peer = register(Scope::Peer(peer.number()));
    let without_read = register(Scope::Any);
    end.key = of_peer;
    end.record(0, source(1), 5, 4, &[1; 4]);
    let stats = end.endpoint.stats();
    assert_eq!((stats.discards.key, stats.discards.rights), (1, 0));
    assert_eq!((end.packets(0, 8).len(), end.endpoint.poll_error()), (0, None));
    end.record(0, source(2), 5, 4, &[1; 4]);
    assert_eq!(end.done().len(), 1, "the peer may");
    // A right that is missing is told, to who may use the key.
    let request = ddp::ReadRequest {
        sink_stag: 1,
        sink_offset: 0,
        length: 4,
        source_stag: without_read,
        source_offset: 0,
        time_left_us: 0,
    };
    let untagged = Untagged {
        operation: ddp::Operation::ReadRequest,
        is_reliable: false,
        group: 0,
        number: 1,
        length: 32,
        place: 0,
    };
    end.take(0, source(1), Segment::Untagged(untagged), &request.emit());
    assert_eq!((end.endpoint.stats().discards.rights, end.packets(0, 8).len()), (1, 1));
}

#[test]
fn a_peer_is_known_as_long_as_a_read_waits_for_it() {
    let config = Config { peers_max: 2, ..Config::default() };
    let (mut asked, mut asker) = (End::new(Config::default()), End::new(config));
    let peer = asker.endpoint.peer(source(2)).unwrap();
    let into = Slices::new([(asker.region.clone(), Stride::of_range(0..100))]).unwrap();
    let from = Target { key: asked.key, offset: 0 };
    asker.endpoint.post_send(0, SendWork::new(3, peer, Verb::Read { into, from })).unwrap();
    asker.endpoint.forget(peer);
    let questions = asker.packets(0, 8);
    // Many others come meanwhile, and go.
    for host in 10..30 {
        asker.record(0, source(host), 1, 4, &[1; 4]);
    }
    assert_eq!((asker.done().len(), asker.endpoint.address(peer)), (20, Some(source(2))));
    for packet in questions {
        asked.endpoint.on_datagram(0, source(1), &packet);
    }
    for packet in asked.packets(0, 8) {
        asker.endpoint.on_datagram(0, source(2), &packet);
    }
    let done = asker.done();
    assert_eq!((done.len(), done[0].id, done[0].status), (1, 3, Ok(())));
    for host in 10..30 {
        asker.record(0, source(host), 2, 4, &[1; 4]);
    }
    assert_eq!(asker.endpoint.address(peer), None, "now it may go");
}

#[test]
fn a_source_that_is_slow_does_not_stretch_the_silence_for_ever() {
    let mut end = End::new(Config::default());
    end.record(0, source(1), 5, 100, &[1; 10]);
    // The next segment comes just before the message would be over, and so do others.
    let mut now_ns = 0;
    for (place, after_ms) in (1..).zip([40, 100, 180, 250, 340, 470, 640, 880]) {
        now_ns += after_ms * 1_000_000;
        let (stag, flags, group) = (end.key, RecordFlags::default(), 0);
        let (offset, place) = (place * 10, place as u32 * 10);
        let tagged = Tagged { stag, offset, number: 5, length: 100, place, flags, group };
        end.endpoint.on_timeout(now_ns);
        end.take(now_ns, source(1), Segment::Tagged(tagged), &[1; 10]);
        assert_eq!(end.endpoint.stats().messages_open, 1);
    }
    end.endpoint.on_timeout(now_ns + SECOND_NS);
    assert_eq!((end.endpoint.stats().messages_open, end.done()[0].bytes), (0, 90));
}

#[test]
fn forged_sources_that_hold_all_places_do_not_keep_others_out() {
    const MILLISECOND_NS: u64 = 1_000_000;
    let open = OpenLimits { of_source: 4, in_all: 3 };
    let mut end = End::new(Config { open, ..Config::default() });
    for host in 1..4 {
        end.record(0, source(host), 5, 100, &[1; 50]);
    }
    end.record(0, source(9), 5, 100, &[1; 50]);
    assert_eq!(end.endpoint.stats().discards.busy, 1, "all of them are at it");
    // The second one goes on.
    let (stag, flags, group) = (end.key, RecordFlags::default(), 0);
    let tagged = Tagged { stag, offset: 50, number: 5, length: 100, place: 50, flags, group };
    end.take(MILLISECOND_NS, source(2), Segment::Tagged(tagged), &[1; 10]);
    for host in 20..22 {
        end.record(MILLISECOND_NS, source(host), 5, 100, &[1; 50]);
    }
    let gone: Vec<_> = end.done().into_iter().map(|done| done.arrived.unwrap()).collect();
    let gone: Vec<_> = gone.iter().map(|arrived| (arrived.source, arrived.ended)).collect();
    assert_eq!(gone, [(source(1), Ended::Evicted), (source(3), Ended::Evicted)]);
    end.record(MILLISECOND_NS, source(22), 5, 100, &[1; 50]);
    let stats = end.endpoint.stats();
    assert_eq!((stats.messages_open, stats.messages_evicted, stats.discards.busy), (3, 2, 2));
    // A source does not push out itself for the sake of another message.
    for number in 0..100 {
        end.record((2 + number) * MILLISECOND_NS, source(9), number as u32 * 2, 100, &[1; 50]);
    }
    assert_eq!(end.endpoint.stats().messages_open, 3);
}
