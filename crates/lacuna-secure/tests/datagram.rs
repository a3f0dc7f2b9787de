//! Keyrings of several ends with a fake clock: what peers send opens, and nothing else does.

use lacuna_secure::datagram::{
    HEAD_BYTES, Keyring, KeyringConfig, KeyringEvent, KeyringStats, Limits, OpenError, TAIL_BYTES,
};
use lacuna_secure::{Cipher, Secret};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// In front of each text, as packets have them.
const HEADERS: [u8; 18] = [7; 18];

fn address(of: usize) -> SocketAddr {
    ([10, 0, 0, of as u8 + 1], 7407).into()
}

fn config() -> KeyringConfig {
    let cipher = Cipher::Aes128Gcm;
    KeyringConfig { cipher, limits: Limits::of(cipher), peers_max: 1000 }
}

fn keyring(secret: u8, seed: u32, now_ns: u64) -> Keyring {
    let mut random = [9; 32];
    random[..4].copy_from_slice(&seed.to_be_bytes());
    Keyring::new(config(), Secret::new([secret; 32]), Secret::new(random), now_ns)
}

/// A packet on its way.
#[derive(Debug, Clone)]
struct Packet {
    from: SocketAddr,
    to: usize,
    bytes: Vec<u8>,
}

/// Ends at addresses, and a network that delivers at once, in order, what is not taken out of it.
struct World {
    now_ns: u64,
    ends: Vec<Keyring>,
    network: VecDeque<Packet>,
    /// What each end has opened.
    came: Vec<Vec<(SocketAddr, Vec<u8>)>>,
    events: Vec<Vec<KeyringEvent>>,
    seeds: u32,
}

impl World {
    fn new(secrets: &[u8]) -> Self {
        let now_ns = 5 * SECOND;
        let ends: Vec<_> =
            secrets.iter().zip(0..).map(|(of, at)| keyring(*of, at, now_ns)).collect();
        let (came, events) = (vec![Vec::new(); ends.len()], vec![Vec::new(); ends.len()]);
        let seeds = ends.len() as u32;
        Self { now_ns, ends, network: VecDeque::new(), came, events, seeds }
    }

    /// An end begins anew: at the same address, with the same secret.
    fn restart(&mut self, at: usize) {
        self.ends[at] = keyring(1, self.seeds, self.now_ns);
        self.seeds += 1;
    }

    /// What the keyrings have to send goes into the network.
    fn flush(&mut self) {
        for at in 0..self.ends.len() {
            while let Some((to, bytes)) = self.ends[at].poll_transmit() {
                let to = (0..self.ends.len()).find(|end| address(*end) == to);
                let from = address(at);
                self.network.extend(to.map(|to| Packet { from, to, bytes }));
            }
            while let Some(event) = self.ends[at].poll_event() {
                self.events[at].push(event);
            }
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let Packet { from, to, mut bytes } = packet;
        let end = &mut self.ends[to];
        let is_open = match end.opener(self.now_ns, from).open(&mut bytes) {
            Ok(()) => true,
            Err(error) => end.on_unopened(self.now_ns, from, &mut bytes, error),
        };
        let text =
            |bytes: &[u8]| bytes[HEAD_BYTES + HEADERS.len()..bytes.len() - TAIL_BYTES].to_vec();
        self.came[to].extend(end.take_opened().iter().map(|(from, bytes)| (*from, text(bytes))));
        if is_open && bytes.len() > HEAD_BYTES + TAIL_BYTES {
            self.came[to].push((from, text(&bytes)));
        }
    }

    fn run(&mut self) {
        self.flush();
        while let Some(packet) = self.network.pop_front() {
            self.deliver(packet);
            self.flush();
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        let now_ns = self.now_ns;
        self.ends.iter_mut().for_each(|end| end.on_timeout(now_ns));
        self.run();
    }

    /// A sealed packet; `None` while there are no keys, which are asked for.
    fn seal(&mut self, from: usize, to: usize, text: &[u8]) -> Option<Packet> {
        if !self.ends[from].is_ready(self.now_ns, address(to)) {
            return None;
        }
        let sending = self.ends[from].sending(self.now_ns, address(to))?;
        let mut bytes = [&[0; HEAD_BYTES], &HEADERS[..], text, &[0; TAIL_BYTES]].concat();
        sending.sealer().seal(&mut bytes);
        Some(Packet { from: address(from), to, bytes })
    }

    fn seal_to_group(&mut self, from: usize, text: &[u8]) -> Vec<u8> {
        let mut bytes = [&[0; HEAD_BYTES], &HEADERS[..], text, &[0; TAIL_BYTES]].concat();
        self.ends[from].sending_to_groups(self.now_ns).sealer().seal(&mut bytes);
        bytes
    }

    /// To all others.
    fn send_to_group(&mut self, from: usize, text: &[u8]) -> Vec<u8> {
        let bytes = self.seal_to_group(from, text);
        for to in (0..self.ends.len()).filter(|to| *to != from) {
            self.network.push_back(Packet { from: address(from), to, bytes: bytes.clone() });
        }
        bytes
    }

    /// Sends, and makes keys before if need be.
    fn send(&mut self, from: usize, to: usize, text: &[u8]) -> Packet {
        for _ in 0..2 {
            if let Some(packet) = self.seal(from, to, text) {
                self.deliver(packet.clone());
                self.run();
                return packet;
            }
            self.run();
        }
        panic!("no keys from {from} to {to}: {:?}", self.ends[from].stats());
    }

    fn took(&self, at: usize) -> Vec<&[u8]> {
        self.came[at].iter().map(|(_, text)| &text[..]).collect()
    }
}

#[test]
fn both_ends_send_after_one_hello_and_its_answer() {
    let mut world = World::new(&[1, 1]);
    assert!(world.seal(0, 1, b"early").is_none());
    world.run();
    assert_eq!(world.events[0], [KeyringEvent::Ready(address(1))]);
    for round in 0..100u8 {
        world.send(0, 1, &[round, 0]);
        world.send(1, 0, &[round, 1]);
    }
    assert_eq!((world.came[1].len(), world.came[0].len()), (100, 100));
    assert_eq!(world.came[1][7], (address(0), vec![7, 0]));
    let stats = world.ends[1].stats();
    let expected = KeyringStats::default();
    assert_eq!((stats.peers, stats.answered, stats.associated), (1, 1, 1));
    assert_eq!(stats.unknown + stats.forged + stats.repeated, expected.unknown);
}

#[test]
fn no_bit_of_any_packet_can_be_changed_and_none_is_taken_twice() {
    let mut world = World::new(&[1, 1]);
    world.send(0, 1, b"first");
    // One of each kind: hello and answer of another association, the empty packet, data and a group's.
    world.restart(0);
    let mut kinds = Vec::new();
    world.ends[0].is_ready(world.now_ns, address(1));
    world.flush();
    while let Some(packet) = world.network.pop_front() {
        kinds.push(packet.clone());
        let data = kinds.len() >= 3;
        if !data {
            for bit in 0..packet.bytes.len() * 8 {
                let mut wrong = packet.clone();
                wrong.bytes[bit / 8] ^= 1 << (bit % 8);
                world.deliver(wrong);
                world.flush();
            }
            let answers = world.network.iter().filter(|packet| packet.bytes[0] > 0xd2).count();
            assert!(answers <= 1, "what is not right is not answered, but for a question");
            world.network.retain(|packet| packet.bytes[0] < 0xd3);
        }
        world.deliver(packet);
        world.flush();
    }
    assert_eq!(kinds.len(), 3, "hello, answer, empty");
    world.came.iter_mut().for_each(Vec::clear);
    world.pass(SECOND);
    let group = world.seal_to_group(0, b"to all");
    let group = Packet { from: address(0), to: 1, bytes: group };
    let data = world.seal(0, 1, b"data").unwrap();
    let empty = world.seal(0, 1, b"").unwrap();
    for packet in [&data, &empty, &group] {
        for bit in 0..packet.bytes.len() * 8 {
            let mut wrong = packet.clone();
            wrong.bytes[bit / 8] ^= 1 << (bit % 8);
            world.deliver(wrong);
        }
        for length in 0..packet.bytes.len() {
            world.deliver(Packet { bytes: packet.bytes[..length].to_vec(), ..packet.clone() });
        }
        world.run();
    }
    assert!(world.came[1].is_empty(), "{:?}", world.came[1]);
    world.deliver(data.clone());
    world.deliver(data.clone());
    world.deliver(group.clone());
    world.run();
    world.deliver(group.clone());
    world.run();
    assert_eq!(world.took(1), [&b"data"[..], b"to all"]);
    assert!(world.ends[1].stats().repeated >= 2);
    // And all that was sent until now, again, to whom it was for, and to whom it is from.
    for packet in kinds.into_iter().chain([data, empty, group]) {
        let back = Packet { from: address(1), to: 0, ..packet.clone() };
        let own = Packet {
            from: packet.from,
            to: usize::from(packet.from == address(1)),
            ..packet.clone()
        };
        for packet in [packet, back, own] {
            world.deliver(packet);
            world.run();
        }
    }
    assert_eq!(world.took(1).len() + world.took(0).len(), 2, "{:?}", world.came);
}

#[test]
fn what_an_end_has_sealed_it_never_opens_and_it_makes_no_keys_with_itself() {
    let mut world = World::new(&[1, 1]);
    // Everything that end 0 sends comes back to it from the address that it was for.
    world.ends[0].is_ready(world.now_ns, address(1));
    for _ in 0..8 {
        world.pass(500 * MS);
        world.flush();
        while let Some((_, bytes)) = world.ends[0].poll_transmit() {
            world.deliver(Packet { from: address(1), to: 0, bytes });
        }
    }
    let mut world = World::new(&[1, 1]);
    world.ends[0].is_ready(world.now_ns, address(1));
    let (_, hello) = world.ends[0].poll_transmit().unwrap();
    world.deliver(Packet { from: address(1), to: 0, bytes: hello });
    assert!(world.ends[0].poll_transmit().is_none(), "its own hello is not answered");
    assert_eq!(world.ends[0].stats().reflected, 1);
    let mut world = World::new(&[1, 1]);
    let sent = world.send(0, 1, b"there");
    world.deliver(Packet { from: address(1), to: 0, ..sent });
    let bytes = world.send_to_group(0, b"to all");
    world.run();
    world.deliver(Packet { from: address(0), to: 0, bytes });
    assert!(world.came[0].is_empty());
}

#[test]
fn packets_open_at_nobody_else_and_of_nobody_else() {
    let mut world = World::new(&[1, 1, 1]);
    for (from, to) in [(0, 1), (0, 2), (1, 2)] {
        world.send(from, to, b"hello");
    }
    world.came.iter_mut().for_each(Vec::clear);
    let packet = world.seal(0, 1, b"for 1").unwrap();
    world.deliver(Packet { to: 2, ..packet.clone() });
    world.deliver(Packet { from: address(2), ..packet.clone() });
    assert!(world.came.iter().all(Vec::is_empty));
    world.deliver(packet);
    assert_eq!(world.took(1), [b"for 1"]);
}

#[test]
fn who_has_another_secret_gets_no_keys_and_is_given_up() {
    let mut world = World::new(&[1, 2]);
    assert!(world.seal(0, 1, b"x").is_none());
    for _ in 0..70 {
        world.pass(100 * MS);
    }
    assert_eq!(world.events[0], [KeyringEvent::Unanswered(address(1))]);
    let [stats, other] = [0, 1].map(|at| world.ends[at].stats());
    assert_eq!((stats.asked, stats.unanswered, stats.associated), (6, 1, 0));
    assert_eq!((other.answered, other.forged), (0, 6));
    assert_eq!(world.ends[0].poll_timeout(), None, "nothing is left to wait for");
}

#[test]
fn a_lost_hello_and_a_lost_answer_are_repeated() {
    for lost in 0..2 {
        let mut world = World::new(&[1, 1]);
        assert!(world.seal(0, 1, b"x").is_none());
        world.flush();
        if lost == 1 {
            let hello = world.network.pop_front().unwrap();
            world.deliver(hello);
            world.flush();
        }
        world.network.clear();
        world.pass(99 * MS);
        assert!(world.events[0].is_empty());
        world.pass(MS);
        assert_eq!(world.events[0], [KeyringEvent::Ready(address(1))]);
        world.send(0, 1, b"x");
        world.send(1, 0, b"y");
        assert_eq!((world.took(1), world.took(0)), (vec![&b"x"[..]], vec![&b"y"[..]]));
    }
}

#[test]
fn two_answers_to_one_hello_make_the_same_keys() {
    let mut world = World::new(&[1, 1]);
    world.ends[0].is_ready(world.now_ns, address(1));
    world.flush();
    let hello = world.network.pop_front().unwrap();
    world.deliver(hello.clone());
    world.deliver(hello.clone());
    world.flush();
    let answers: Vec<_> = world.network.iter().map(|packet| packet.bytes.clone()).collect();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0], answers[1]);
    world.run();
    world.send(0, 1, b"x");
    world.deliver(hello);
    world.flush();
    assert!(world.network.is_empty(), "keys that are in use are not made again");
    assert_eq!(world.ends[0].stats().unasked, 1);
}

#[test]
fn both_may_ask_at_once() {
    let mut world = World::new(&[1, 1]);
    for end in 0..2 {
        assert!(world.seal(end, 1 - end, b"x").is_none());
    }
    world.run();
    for _ in 0..5 {
        for end in 0..2 {
            let sent = world.seal(end, 1 - end, b"x").unwrap();
            world.deliver(sent);
            world.pass(30 * SECOND);
        }
    }
    assert_eq!((world.took(0).len(), world.took(1).len()), (5, 5));
    assert_eq!(world.ends[0].stats().asked + world.ends[1].stats().asked, 2);
}

#[test]
fn after_a_restart_of_either_end_packets_come_again_and_old_ones_do_not() {
    for which in 0..2 {
        let mut world = World::new(&[1, 1]);
        let mut old: Vec<_> = (0..5).map(|_| world.send(0, 1, b"old")).collect();
        old.extend((0..5).map(|_| world.send(1, 0, b"old")));
        old.push(Packet { from: address(0), to: 1, bytes: world.seal_to_group(0, b"old") });
        world.restart(which);
        world.came.iter_mut().for_each(Vec::clear);
        let other = 1 - which;
        // The other end does not know yet: its packet is lost, and it is asked who it is.
        let lost = world.seal(other, which, b"lost").unwrap();
        world.deliver(lost);
        world.run();
        world.send(other, which, b"new");
        world.send(which, other, b"new");
        for packet in &old {
            world.deliver(packet.clone());
            world.run();
        }
        assert_eq!(
            (world.took(0), world.took(1)),
            (vec![&b"new"[..]], vec![&b"new"[..]]),
            "{which}"
        );
        world.send(other, which, b"more");
        world.send(which, other, b"more");
    }
}

#[test]
fn recorded_packets_cannot_bring_back_keys() {
    let mut world = World::new(&[1, 1]);
    let mut recorded = Vec::new();
    world.ends[0].is_ready(world.now_ns, address(1));
    world.flush();
    while let Some(packet) = world.network.pop_front() {
        recorded.push(packet.clone());
        world.deliver(packet);
        world.flush();
    }
    recorded.push(world.send(0, 1, b"old"));
    recorded.push(world.send(1, 0, b"old"));
    world.came.iter_mut().for_each(Vec::clear);
    // One end forgets the other one, both do, and both begin anew.
    for round in 0..3 {
        match round {
            0 => world.ends[1].forget(world.now_ns, address(0)),
            1 => (0..2).for_each(|end| world.ends[end].forget(world.now_ns, address(1 - end))),
            _ => (0..2).for_each(|end| world.restart(end)),
        }
        for packet in recorded.iter().chain(&recorded) {
            world.deliver(packet.clone());
            world.run();
        }
        assert!(world.came.iter().all(Vec::is_empty), "{round}: {:?}", world.came);
        world.pass(2 * SECOND);
        world.send(0, 1, b"new");
        world.send(1, 0, b"new");
        world.came.iter_mut().for_each(Vec::clear);
    }
}

#[test]
fn the_first_packets_to_a_group_are_held_until_their_sender_has_answered() {
    let mut world = World::new(&[1, 1, 1]);
    world.pass(3 * SECOND);
    for round in 0..10u8 {
        world.send_to_group(0, &[round]);
    }
    world.run();
    for at in 1..3 {
        assert_eq!(world.took(at), (0..10).map(|round| [round]).collect::<Vec<_>>(), "{at}");
        assert_eq!(world.ends[at].stats().held, 10);
    }
    world.send_to_group(0, b"more");
    world.run();
    assert_eq!(world.came[1].len(), 11);
}

#[test]
fn group_packets_of_before_a_receiver_began_are_not_taken() {
    let mut world = World::new(&[1, 1]);
    world.pass(3 * SECOND);
    let mut old = Vec::new();
    for round in 0..20u8 {
        old.push(world.send_to_group(0, &[round]));
        world.run();
        world.pass(10 * MS);
    }
    assert_eq!(world.came[1].len(), 20);
    // In this very moment it begins anew; and later on it forgets the sender.
    for forgets in [false, true] {
        world.came[1].clear();
        if forgets {
            world.ends[1].forget(world.now_ns, address(0));
            world.pass(2 * MS);
        } else {
            world.restart(1);
        }
        for bytes in old.iter().chain(&old) {
            world.deliver(Packet { from: address(0), to: 1, bytes: bytes.clone() });
            world.run();
        }
        assert!(world.came[1].is_empty(), "{forgets}: {:?}", world.came[1]);
        world.pass(100 * MS);
        world.send_to_group(0, b"new");
        world.run();
        assert_eq!(world.took(1), [b"new"]);
    }
}

#[test]
fn a_group_packet_that_comes_from_two_addresses_is_taken_once() {
    let mut world = World::new(&[1, 1, 1]);
    world.pass(SECOND);
    let bytes = world.send_to_group(0, b"one");
    world.run();
    // Someone forwards all packets between end 1 and end 0, with an address of its own.
    let strange: SocketAddr = ([9; 4], 9).into();
    world.deliver(Packet { from: strange, to: 1, bytes: bytes.clone() });
    let (to, hello) = world.ends[1].poll_transmit().unwrap();
    assert_eq!(to, strange);
    world.deliver(Packet { from: strange, to: 0, bytes: hello });
    let (_, answer) = world.ends[0].poll_transmit().unwrap();
    world.deliver(Packet { from: strange, to: 1, bytes: answer });
    world.deliver(Packet { from: strange, to: 1, bytes });
    assert_eq!(world.took(1), [b"one"]);
}

#[test]
fn strangers_bound_memory_and_get_no_more_than_three_times_what_came() {
    let mut world = World::new(&[1]);
    let mut random = 7u64;
    let mut next = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 32) as u32
    };
    let mut balance: HashMap<SocketAddr, (usize, usize)> = HashMap::new();
    for round in 0..100_000u32 {
        let host = if round % 3 == 0 { next() % 50 } else { next() };
        let from = SocketAddr::from((host.to_be_bytes(), 7));
        let kind = 0xd0 + (next() % 6) as u8;
        let length = [5, 25, 29, 30, 43, 89, 1400][next() as usize % 7];
        let bytes: Vec<u8> = std::iter::once(kind)
            .chain(std::iter::repeat_with(|| next() as u8))
            .take(length)
            .collect();
        balance.entry(from).or_default().0 += bytes.len();
        world.deliver(Packet { from, to: 0, bytes });
        if round % 64 == 0 {
            world.now_ns += MS;
            world.ends[0].on_timeout(world.now_ns);
        }
        while let Some((to, bytes)) = world.ends[0].poll_transmit() {
            balance.get_mut(&to).expect("who has said something").1 += bytes.len();
        }
    }
    for (address, (came, went)) in balance {
        assert!(went <= 3 * came, "{address}: {went} for {came}");
    }
    let stats = world.ends[0].stats();
    assert!(stats.asked > 1000 && stats.asked <= 3000, "{stats:?}");
    assert!(stats.waiting <= 1024 && stats.peers == 0 && stats.answered == 0, "{stats:?}");
    assert!(stats.held <= 70_000 && stats.held_dropped > 0, "{stats:?}");
    assert!(world.came[0].is_empty());
    world.now_ns += 2 * SECOND;
    world.ends[0].on_timeout(world.now_ns);
    assert_eq!((world.ends[0].stats().waiting, world.ends[0].poll_timeout()), (0, None));
}

#[test]
fn hellos_that_were_recorded_make_a_bounded_number_of_keys() {
    let mut world = World::new(&[1, 1]);
    world.send(0, 1, b"first");
    for seed in 0..5000 {
        let mut other = keyring(1, 100 + seed, world.now_ns);
        other.is_ready(world.now_ns, address(1));
        let (_, hello) = other.poll_transmit().unwrap();
        for from in [address(0), SocketAddr::from((seed.to_be_bytes(), 9))] {
            world.deliver(Packet { from, to: 1, bytes: hello.clone() });
            world.ends[1].poll_transmit();
        }
    }
    let stats = world.ends[1].stats();
    assert!(stats.waiting <= 1024 && stats.peers == 1 && stats.associated == 1, "{stats:?}");
    world.came[1].clear();
    world.send(0, 1, b"still");
    assert_eq!(world.took(1), [b"still"]);
}

#[test]
fn peers_are_bounded_and_those_that_went_come_again() {
    let mut end = {
        let config = KeyringConfig { peers_max: 10, ..config() };
        Keyring::new(config, Secret::new([1; 32]), Secret::new([200; 32]), 0)
    };
    let mut others: Vec<_> = (0..40).map(|seed| keyring(1, 300 + seed, 0)).collect();
    let server = address(200);
    for round in 0..2 {
        for (at, other) in others.iter_mut().enumerate() {
            let from = address(at);
            if round == 1 {
                other.forget(0, server);
            }
            assert!(!other.is_ready(0, server));
            while let Some((_, mut bytes)) = other.poll_transmit() {
                if let Err(error) = end.opener(0, from).open(&mut bytes) {
                    end.on_unopened(0, from, &mut bytes, error);
                }
                while let Some((_, mut bytes)) = end.poll_transmit() {
                    let error = other.opener(0, server).open(&mut bytes).unwrap_err();
                    other.on_unopened(0, server, &mut bytes, error);
                }
            }
            assert!(other.is_ready(0, server) && end.is_ready(0, from));
        }
    }
    let stats = end.stats();
    assert_eq!((stats.peers, stats.associated, stats.evicted), (10, 80, 70));
}

#[test]
fn keys_that_saw_too_much_forgery_are_given_up_and_others_follow() {
    let limits = Limits { failures: 3, ..config().limits };
    let config = KeyringConfig { limits, ..config() };
    let mut world = World::new(&[1, 1]);
    for at in 0..2 {
        world.ends[at] =
            Keyring::new(config, Secret::new([1; 32]), Secret::new([at as u8; 32]), world.now_ns);
    }
    let sent = world.send(0, 1, b"good");
    for guess in 1..10u8 {
        let mut forged = sent.clone();
        forged.bytes[8] = 100 + guess;
        world.deliver(forged);
        world.run();
    }
    let stats = world.ends[1].stats();
    assert_eq!((stats.forged, stats.spent), (3, 1), "{stats:?}");
    world.send(0, 1, b"again");
    assert_eq!(world.took(1), [&b"good"[..], b"again"]);
}

#[test]
fn keys_are_replaced_by_the_number_of_packets_whatever_is_lost() {
    let limits = Limits { packets: 10, ..config().limits };
    let config = KeyringConfig { limits, ..config() };
    let mut world = World::new(&[1, 1]);
    for at in 0..2 {
        world.ends[at] =
            Keyring::new(config, Secret::new([1; 32]), Secret::new([at as u8; 32]), world.now_ns);
    }
    world.send(0, 1, &[0]);
    let mut late = VecDeque::new();
    for round in 1..100u8 {
        let sent = world.seal(0, 1, &[round]).unwrap();
        if round % 7 != 0 {
            late.push_back(sent);
        }
        if late.len() > 15 {
            let packet = late.remove(usize::from(round) % 5).unwrap();
            world.deliver(packet);
        }
    }
    late.into_iter().for_each(|packet| world.deliver(packet));
    let expected = 1 + (1..100).filter(|round| round % 7 != 0).count();
    assert_eq!(world.came[1].len(), expected);
    assert_eq!(world.ends[1].stats().forged, 0);
}

#[test]
fn peers_that_rest_go_on_where_they_were_and_wake_nobody() {
    let mut world = World::new(&[1, 1]);
    let old = world.send(0, 1, b"one");
    world.pass(SECOND);
    world.send_to_group(0, b"group");
    world.run();
    let mut timers = 0;
    while let Some(due_ns) = [0, 1].iter().filter_map(|at| world.ends[*at].poll_timeout()).min() {
        timers += 1;
        assert!(timers < 200, "it never rests");
        world.now_ns = due_ns;
        world.ends.iter_mut().for_each(|end| end.on_timeout(due_ns));
    }
    world.deliver(old);
    world.send(0, 1, b"two");
    world.send(1, 0, b"three");
    world.send_to_group(0, b"four");
    world.run();
    assert_eq!(world.took(1), [&b"one"[..], b"group", b"two", b"four"]);
    assert_eq!(world.took(0), [b"three"]);
}

/// What may happen to ends.
#[derive(Debug, Clone)]
enum Step {
    Send(usize, usize),
    SendToGroup(usize),
    /// A packet on its way, by its place: it comes, comes and stays, or goes.
    Come(usize),
    Repeat(usize),
    Lose(usize),
    /// It comes from elsewhere, or to somebody else.
    Stray(usize, usize, usize),
    Restart(usize),
    Forget(usize, usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = 0usize..3;
    let pair = (0usize..3, 1usize..3).prop_map(|(from, by)| (from, (from + by) % 3));
    prop::collection::vec(
        prop_oneof![
            6 => pair.clone().prop_map(|(from, to)| Step::Send(from, to)),
            2 => end.clone().prop_map(Step::SendToGroup),
            10 => any::<usize>().prop_map(Step::Come),
            4 => any::<usize>().prop_map(Step::Repeat),
            1 => any::<usize>().prop_map(Step::Lose),
            2 => (any::<usize>(), end.clone(), end.clone()).prop_map(|(which, from, to)| Step::Stray(which, from, to)),
            1 => end.prop_map(Step::Restart),
            1 => pair.prop_map(|(of, whom)| Step::Forget(of, whom)),
            2 => (0u64..2 * SECOND).prop_map(Step::Pass),
        ],
        1..200,
    )
}

proptest! {
    /// Whatever becomes of packets and ends, no key seals two packets with one number, and each packet is taken once at
    /// most, where it was meant for, by who was there when it was sealed.
    #[test]
    fn numbers_never_repeat_and_packets_are_taken_once(steps in steps()) {
        let mut world = World::new(&[1, 1, 1]);
        let mut sealed: HashSet<Vec<u8>> = HashSet::new();
        // By text: who sent it, and to which life of whom.
        let mut texts: HashMap<Vec<u8>, (SocketAddr, Option<usize>)> = HashMap::new();
        let mut taken: HashSet<(usize, Vec<u8>)> = HashSet::new();
        let mut born = [0u32; 3];
        let mut count = 0u32;
        for step in steps {
            let at = |which: usize, world: &World| which % world.network.len().max(1);
            match step {
                Step::Send(from, to) => {
                    count += 1;
                    let text = [&count.to_be_bytes()[..], b"unicast"].concat();
                    if let Some(packet) = world.seal(from, to, &text) {
                        // Kind, id and number name key and nonce; ids are of 128 random bits.
                        prop_assert!(sealed.insert(packet.bytes[..HEAD_BYTES].to_vec()), "{:?}", packet.bytes);
                        texts.insert(text, (address(from), Some(to)));
                        world.network.push_back(packet);
                    }
                }
                Step::SendToGroup(from) => {
                    count += 1;
                    let text = [&count.to_be_bytes()[..], b"group"].concat();
                    let bytes = world.send_to_group(from, &text);
                    prop_assert!(sealed.insert(bytes[..HEAD_BYTES].to_vec()), "{bytes:?}");
                    texts.insert(text, (address(from), None));
                }
                Step::Come(which) => {
                    let which = at(which, &world);
                    if let Some(packet) = world.network.remove(which) {
                        world.deliver(packet);
                    }
                }
                Step::Repeat(which) => {
                    let which = at(which, &world);
                    if let Some(packet) = world.network.get(which).cloned() {
                        world.deliver(packet);
                    }
                }
                Step::Lose(which) => {
                    let which = at(which, &world);
                    world.network.remove(which);
                }
                Step::Stray(which, from, to) => {
                    let which = at(which, &world);
                    // Who forwards hellos and answers in both directions is what a gateway is.
                    let strays = world.network.get(which).filter(|packet| packet.bytes[0] <= 0xd2);
                    if let Some(packet) = strays.cloned() {
                        world.deliver(Packet { from: address(from), to, ..packet });
                    }
                }
                Step::Restart(end) => {
                    world.now_ns += MS;
                    world.restart(end);
                    born[end] = count;
                }
                Step::Forget(of, whom) => world.ends[of].forget(world.now_ns, address(whom)),
                Step::Pass(ns) => {
                    world.now_ns += ns;
                    let now_ns = world.now_ns;
                    world.ends.iter_mut().for_each(|end| end.on_timeout(now_ns));
                }
            }
            world.flush();
            for (end, came) in world.came.iter_mut().enumerate() {
                for (from, text) in came.drain(..) {
                    let (sender, to) = texts[&text];
                    prop_assert!(to.is_none_or(|to| to == end), "{end} took what was for {to:?}");
                    prop_assert!(to.is_none() || from == sender);
                    prop_assert!(taken.insert((end, text.clone())), "{end} took {text:?} twice");
                    let number = u32::from_be_bytes(text[..4].try_into().unwrap());
                    prop_assert!(number > born[end], "{end} took what was sealed before it was there");
                }
            }
        }
    }
}

#[test]
fn errors_say_what_was_wrong() {
    let mut end = keyring(1, 1, 0);
    let opener = end.opener(0, address(1));
    let errors = [&[][..], &[0xd0; 4], &[0x25; 60], &[0xd0; 60], &[0xd2; 60]]
        .map(|bytes| opener.open(&mut bytes.to_vec()).unwrap_err());
    let short = |found| OpenError::TooShort { found };
    let unknown = OpenError::Unknown;
    assert_eq!(errors, [short(0), short(4), OpenError::Kind, unknown, unknown]);
}

/// Resident memory of this process.
#[cfg(target_os = "linux")]
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "a measurement: prints bytes per peer; run it alone"]
fn bytes_of_an_idle_and_an_active_peer() {
    const PEERS: u32 = 20_000;
    for is_active in [false, true] {
        let config = KeyringConfig { peers_max: 1 << 20, ..config() };
        let mut end = Keyring::new(config, Secret::new([1; 32]), Secret::new([2; 32]), 0);
        let server = address(200);
        let mut now_ns = 0;
        let mut before = 0;
        for seed in 0..PEERS + 1000 {
            if seed == 1000 {
                before = resident_bytes();
            }
            let from = SocketAddr::from((seed.to_be_bytes(), 9));
            let mut other = keyring(1, 1000 + seed, 0);
            other.is_ready(0, server);
            for _ in 0..2 {
                while let Some((_, mut bytes)) = other.poll_transmit() {
                    if let Err(error) = end.opener(now_ns, from).open(&mut bytes) {
                        end.on_unopened(now_ns, from, &mut bytes, error);
                    }
                }
                while let Some((_, mut bytes)) = end.poll_transmit() {
                    let error = other.opener(0, server).open(&mut bytes).unwrap_err();
                    other.on_unopened(0, server, &mut bytes, error);
                }
            }
            let mut packet = [0; HEAD_BYTES + TAIL_BYTES];
            end.sending(now_ns, from).expect("keys").sealer().seal(&mut packet);
            // Those who are idle rest before the next ones come.
            while !is_active && seed % 100 == 0 && end.poll_timeout().is_some() {
                now_ns = end.poll_timeout().unwrap();
                end.on_timeout(now_ns);
            }
        }
        let bytes = (resident_bytes() - before) / u64::from(PEERS);
        println!("{bytes} bytes of a peer, active: {is_active}");
    }
}
