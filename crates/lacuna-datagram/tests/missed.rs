//! What a target learns of messages that did not come whole, and when; and when a source gives them up.

use lacuna_datagram::{
    Config, Done, Ended, Endpoint, Failure, Operation, PeerId, RecvWork, Run, SendWork, Target,
    Verb,
};
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride};
use std::net::SocketAddr;
use std::sync::Arc;

const MS: u64 = 1_000_000;
const KEY: u32 = 77;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 7407))
}

struct Pair {
    source: Endpoint,
    target: Endpoint,
    region: Arc<Region>,
    to: PeerId,
}

impl Pair {
    fn new(config: Config) -> Self {
        let keys = Arc::new(KeyTable::new(1));
        let region = Region::new(
            vec![0; 1 << 20],
            RegionConfig { has_validity: false, is_exclusive: false },
        );
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let access = Access { rights, scope: Scope::Any };
        keys.register(&region, 0..1 << 20, access, || KEY).unwrap();
        let target = Endpoint::new(Config::default(), keys, 1);
        let mut source = Endpoint::new(config, Arc::new(KeyTable::new(2)), 2);
        let to = source.peer(address(2)).unwrap();
        Self { source, target, region, to }
    }

    fn send(&mut self, now_ns: u64, bytes: usize) {
        let verb = Verb::Send { data: vec![1; bytes].into() };
        self.source.post_send(now_ns, SendWork::new(0, self.to, verb)).unwrap();
    }

    fn write(&mut self, now_ns: u64, bytes: usize) {
        let to = Target { key: KEY, offset: 0 };
        let verb = Verb::WriteRecord { data: vec![1; bytes].into(), to };
        self.source.post_send(now_ns, SendWork::new(0, self.to, verb)).unwrap();
    }

    fn receive(&mut self, id: u64) {
        let into = Slices::new([(self.region.clone(), Stride::of_range(0..100_000))]).unwrap();
        self.target.post_recv(0, RecvWork { id, into }).unwrap();
    }

    /// What leaves the source now.
    fn packets(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        packets_of(&mut self.source, now_ns)
    }

    fn arrive(&mut self, now_ns: u64, packet: &[u8]) {
        self.target.on_datagram(now_ns, address(1), packet);
    }

    fn done(&mut self) -> Vec<Done> {
        std::iter::from_fn(|| self.target.poll_done()).collect()
    }
}

/// What leaves an end now.
fn packets_of(endpoint: &mut Endpoint, now_ns: u64) -> Vec<Vec<u8>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut packets = Vec::new();
    while endpoint.poll_transmit(now_ns, 64, &mut runs).is_some() {
        for run in runs.drain(..) {
            for at in 0..run.len() {
                let mut packet = vec![0; run.packet_bytes(at)];
                let bytes = run.emit(at, &mut packet);
                packet.truncate(bytes);
                packets.push(packet);
            }
        }
    }
    packets
}

#[test]
fn a_send_that_is_lost_in_part_is_missed_and_the_next_completion_says_so() {
    let mut pair = Pair::new(Config::default());
    (0..3).for_each(|id| pair.receive(id));
    pair.send(0, 5_000);
    let packets = pair.packets(0);
    packets[1..].iter().for_each(|packet| pair.arrive(0, packet));
    pair.send(MS, 100);
    let packets = pair.packets(MS);
    pair.arrive(MS, &packets[0]);
    assert_eq!(pair.done()[0].arrived.as_ref().unwrap().missed, 0, "it may still come");
    pair.target.on_timeout(100 * MS);
    assert_eq!(pair.target.stats().messages_missed, 1);
    assert_eq!(pair.target.receives(), 2, "its receive is free again");
    pair.send(101 * MS, 100);
    let packets = pair.packets(101 * MS);
    pair.arrive(101 * MS, &packets[0]);
    assert_eq!(pair.done()[0].arrived.as_ref().unwrap().missed, 1);
}

#[test]
fn a_last_record_ends_once_nothing_came_for_four_times_the_longest_pause_of_late() {
    let mut pair = Pair::new(Config::default());
    pair.write(0, 100_000);
    let packets = pair.packets(0);
    // A source that serves others in turns: bursts with 5 ms between them.
    let mut now_ns = 0;
    for (at, packet) in packets[..packets.len() - 1].iter().enumerate() {
        if at % 10 == 0 {
            now_ns += 5 * MS;
        }
        pair.arrive(now_ns, packet);
        pair.target.on_timeout(now_ns);
    }
    assert_eq!(pair.done().len(), 0);
    // It may look too early, and finds a later time then.
    let mut done = Vec::new();
    let mut due_ns = now_ns;
    while done.is_empty() {
        due_ns = pair.target.poll_timeout().unwrap();
        pair.target.on_timeout(due_ns);
        done = pair.done();
    }
    assert!(due_ns > now_ns + 10 * MS, "longer than a pause");
    assert!(due_ns <= now_ns + 20 * MS, "but not for ever: {}", due_ns - now_ns);
    assert_eq!(
        (done[0].operation, done[0].arrived.as_ref().unwrap().ended),
        (Operation::Record, Ended::Silence)
    );
}

#[test]
fn a_source_says_up_to_where_it_has_sent_behind_what_waits() {
    let mut pair = Pair::new(Config::default());
    pair.write(0, 50_000);
    pair.source.say_sent(pair.to);
    let packets = pair.packets(0);
    let (word, segments) = packets.split_last().unwrap();
    segments[..30].iter().for_each(|packet| pair.arrive(0, packet));
    pair.arrive(0, word);
    pair.target.on_timeout(3 * MS);
    let done = pair.done();
    assert_eq!(done[0].arrived.as_ref().unwrap().ended, Ended::Accounted);
    // With nothing that waits it leaves at once.
    pair.source.say_sent(pair.to);
    assert_eq!(pair.packets(MS).len(), 1);
}

#[test]
fn a_message_ends_by_its_deadline_wherever_it_waits() {
    let mut pair = Pair::new(Config { rate_bits_per_s: Some(8_000_000), ..Config::default() });
    for id in 0..10 {
        let verb = Verb::Send { data: vec![1; 10_000].into() };
        let deadline_ns = Some(if id == 5 { 3 * MS } else { 1_000 * MS });
        let work = SendWork { deadline_ns, ..SendWork::new(id, pair.to, verb) };
        pair.source.post_send(0, work).unwrap();
    }
    pair.packets(0);
    while pair.source.poll_done().is_some() {}
    assert!(pair.source.poll_timeout().unwrap() <= 3 * MS);
    pair.source.on_timeout(3 * MS);
    let done = pair.source.poll_done().unwrap();
    assert_eq!((done.id, done.status), (5, Err(Failure::Deadline)));
}

#[test]
fn no_work_request_completes_while_packets_are_made_of_its_bytes() {
    let mut pair = Pair::new(Config::default());
    pair.send(0, 100);
    let mut runs: Vec<Run> = Vec::new();
    assert!(pair.source.poll_transmit(0, 64, &mut runs).is_some());
    let late = SendWork {
        deadline_ns: Some(MS),
        ..SendWork::new(7, pair.to, Verb::Send { data: vec![1; 100].into() })
    };
    pair.source.post_send(0, late).unwrap();
    // Not by being handed out, by a deadline, or by the end of the queue pair.
    pair.source.on_timeout(MS);
    pair.send(MS, 100);
    pair.source.close();
    assert_eq!((pair.source.poll_done(), pair.source.open_sends()), (None, 3));
    pair.source.on_emitted();
    let all: Vec<_> = std::iter::from_fn(|| pair.source.poll_done()).collect();
    let statuses: Vec<_> = all.iter().map(|done| done.status).collect();
    assert_eq!(statuses, [Ok(()), Err(Failure::Deadline), Err(Failure::Flushed)]);
    assert_eq!(pair.source.open_sends(), 0);
}

#[test]
fn a_read_of_which_a_part_is_lost_ends_by_silence() {
    let mut pair = Pair::new(Config::default());
    let into = Slices::new([(pair.region.clone(), Stride::of_range(0..20_000))]).unwrap();
    for id in 0..2 {
        let verb = Verb::Read { into: into.clone(), from: Target { key: KEY, offset: 0 } };
        let deadline_ns = Some(1_000 * MS);
        let work = SendWork { deadline_ns, ..SendWork::new(id, pair.to, verb) };
        pair.source.post_send(0, work).unwrap();
    }
    for question in pair.packets(0) {
        pair.arrive(0, &question);
    }
    let answers = packets_of(&mut pair.target, 0);
    // The third segment of the first answer is lost.
    for (_, answer) in answers.iter().enumerate().filter(|(at, _)| *at != 2) {
        pair.source.on_datagram(MS, address(2), answer);
    }
    let done = pair.source.poll_done().unwrap();
    assert_eq!((done.id, done.status, done.bytes), (1, Ok(()), 20_000));
    let due_ns = pair.source.poll_timeout().unwrap();
    assert!(due_ns < 100 * MS);
    pair.source.on_timeout(due_ns);
    let done = pair.source.poll_done().unwrap();
    assert_eq!((done.id, done.status), (0, Err(Failure::Lost)));
    assert!(done.bytes > 15_000 && done.bytes < 20_000);
    assert_eq!(pair.source.stats().messages_open, 0);
}

#[test]
fn of_two_messages_with_one_deadline_the_second_ends_by_it_too() {
    let mut pair = Pair::new(Config::default());
    for id in 0..2 {
        let verb = Verb::Send { data: vec![1; 100].into() };
        let work = SendWork { deadline_ns: Some(MS), ..SendWork::new(id, pair.to, verb) };
        pair.source.post_send(0, work).unwrap();
    }
    let mut runs: Vec<Run> = Vec::new();
    // One leaves.
    assert!(pair.source.poll_transmit(0, 1, &mut runs).is_some());
    pair.source.on_emitted();
    assert_eq!(pair.source.poll_timeout(), Some(MS));
    pair.source.on_timeout(MS);
    let all: Vec<_> = std::iter::from_fn(|| pair.source.poll_done()).collect();
    let statuses: Vec<_> = all.iter().map(|done| (done.id, done.status)).collect();
    assert_eq!(statuses, [(0, Ok(())), (1, Err(Failure::Deadline))]);
}
