//! Flows over a channel that loses, delays and duplicates: what is handed up is what was sent, once, and a
//! go-back-N sender always finishes.

mod support;

use lacuna_link::SplitMix64;
use lacuna_lowar::{Decoder, Encoder, How, Shared, SharedConfig};
use lacuna_wire::rc::{Opcode, Operation, Part, RcHeader, Strength};
use std::collections::BTreeMap;
use support::*;

/// Seeds of the longer tests.
const RUNS: u64 = 600;

/// A channel of constant delay; some packets are lost, late or doubled.
struct Channel {
    random: SplitMix64,
    loss_ppm: u32,
    late_ppm: u32,
    double_ppm: u32,
    late_ns: u64,
    delay_ns: u64,
    in_flight: BTreeMap<(u64, u64), Vec<u8>>,
    count: u64,
}

impl Channel {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let of = |random: &mut SplitMix64, most: u64| match random.below(3) {
            0 => 0,
            _ => random.below(most) as u32,
        };
        Self {
            loss_ppm: of(&mut random, 50_000),
            late_ppm: of(&mut random, 50_000),
            double_ppm: of(&mut random, 50_000),
            late_ns: 1 + random.below(60_000),
            delay_ns: 500_000,
            random,
            in_flight: BTreeMap::new(),
            count: 0,
        }
    }

    fn send(&mut self, now_ns: u64, packet: &[u8]) {
        let copies = 1 + u64::from(self.random.chance(self.double_ppm));
        for _ in 0..copies {
            if self.random.chance(self.loss_ppm) {
                continue;
            }
            let late = self.random.chance(self.late_ppm);
            let late_ns = if late { self.random.below(self.late_ns) } else { 0 };
            self.count += 1;
            self.in_flight.insert((now_ns + self.delay_ns + late_ns, self.count), packet.to_vec());
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.in_flight.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }
}

fn key(packet: &[u8]) -> (u8, u32) {
    let (header, _) = RcHeader::parse(packet, 0).unwrap();
    let kind = match header.opcode.operation() {
        Operation::Acknowledge => 1,
        _ => 0,
    };
    (kind, header.psn)
}

#[test]
fn what_is_handed_up_is_what_was_sent_and_each_that_came_once() {
    let (mut recovered, mut held, mut failed) = (0, 0, 0);
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let strength = any_strength(&mut random);
        let mut messages = Messages::new(seed);
        let mut channel = Channel::new(seed);
        let (mut encoder, mut decoder) = (Encoder::new(), decoder());
        encoder.set_strength(Some(strength)).unwrap();
        encoder.set_caps_short_blocks(seed % 3 == 0);
        let mut shared = shared();
        let mut up = Receiver { places_ahead: seed % 5, seed, ..Receiver::default() };
        let sent = messages.messages(30);
        for (at, packet) in sent.iter().enumerate() {
            for packet in encode(&mut encoder, &mut shared, packet) {
                channel.send(1_000 * at as u64, &packet);
            }
        }
        let mut arrived: BTreeMap<(u8, u32), usize> = BTreeMap::new();
        while let Some(((now_ns, _), packet)) = channel.in_flight.pop_first() {
            run_timers(&mut decoder, &mut shared, now_ns, &mut up);
            if is_data(&packet) {
                *arrived.entry(key(&packet)).or_default() += 1;
            }
            deliver(&mut decoder, &mut shared, now_ns, &packet, &mut up);
        }
        run_timers(&mut decoder, &mut shared, u64::MAX, &mut up);
        assert!(!decoder.holds_packets(), "everything leaves in the end");

        let sent: BTreeMap<_, _> = sent.iter().map(|packet| (key(packet), packet)).collect();
        let mut handed: BTreeMap<(u8, u32), usize> = BTreeMap::new();
        let mut computed: BTreeMap<(u8, u32), usize> = BTreeMap::new();
        for (packet, how) in &up.packets {
            let sent = sent[&key(packet)];
            if *how == How::Recovered {
                *computed.entry(key(packet)).or_default() += 1;
                assert!(without_flags(packet) == without_flags(sent), "seed {seed}");
            } else {
                *handed.entry(key(packet)).or_default() += 1;
                assert!(packet == sent, "seed {seed}");
            }
        }
        let counters = decoder.counters();
        assert!(computed.values().all(|count| *count == 1), "seed {seed}");
        for (key, count) in &arrived {
            let handed = handed.get(key).copied().unwrap_or(0);
            assert!((1..=*count).contains(&handed), "seed {seed}: {key:?} {handed} of {count}");
        }
        let missing = arrived.values().sum::<usize>() - handed.values().sum::<usize>();
        assert_eq!(missing as u64, counters.duplicates_dropped, "seed {seed}");
        recovered += counters.packets_recovered;
        held += counters.packets_held;
        failed += counters.blocks_failed;
        decoder.release(&mut shared);
        encoder.release(&mut shared.encode);
        assert_eq!(shared.decode.used() + shared.encode.used() + shared.ring.used(), 0);
    }
    assert!(recovered > 500 && held > 5_000 && failed > 100, "{recovered} {held} {failed}");
}

/// A go-back-N connection over two shims.
struct Connection {
    shared: Shared,
    encoder: Encoder,
    decoder: Decoder,
    channel: Channel,
    up: Receiver,
    /// The sender: what it sends next and what was acknowledged, as indices.
    next: usize,
    acknowledged: usize,
    /// The receiver: the index that it expects, and whether it has asked for it.
    expected: usize,
    has_asked: bool,
    /// When the sender hears what: (time, index from which it sends again or None, acknowledged).
    answers: BTreeMap<(u64, u64), (bool, usize)>,
    count: u64,
    retransmissions: usize,
    rounds: u32,
}

const WINDOW: usize = 300;
const SPACING_NS: u64 = 1_000;
const TIMEOUT_NS: u64 = 5_000_000;

impl Connection {
    fn new(seed: u64, shared: Shared) -> Self {
        Self {
            shared,
            encoder: Encoder::new(),
            decoder: decoder(),
            channel: Channel::new(seed),
            up: Receiver { places_ahead: seed % 5, seed, ..Receiver::default() },
            next: 0,
            acknowledged: 0,
            expected: 0,
            has_asked: false,
            answers: BTreeMap::new(),
            count: 0,
            retransmissions: 0,
            rounds: 0,
        }
    }

    /// Runs until everything was received. `packet_of` gives the bytes of a packet in a round, of which the
    /// first index is given; `set` may change the strength before a packet leaves.
    fn run(
        &mut self,
        packets: &[Vec<u8>],
        packet_of: &dyn Fn(usize, u32, usize) -> Vec<u8>,
        set: &mut dyn FnMut(&mut Encoder, usize),
        check: &mut dyn FnMut(usize, &[u8], How),
    ) {
        let index_of: BTreeMap<u32, usize> =
            packets.iter().enumerate().map(|(index, packet)| (key(packet).1, index)).collect();
        let (mut now_ns, mut progress_ns, mut round_first) = (0u64, 0u64, 0usize);
        let mut send_ns = 0;
        while self.acknowledged < packets.len() {
            assert!(
                now_ns < 60_000_000_000,
                "it does not finish: {} of {}",
                self.acknowledged,
                packets.len()
            );
            let may_send = self.next < packets.len() && self.next < self.acknowledged + WINDOW;
            let times = [
                may_send.then_some(send_ns),
                self.channel.next_ns(),
                self.answers.first_key_value().map(|((at_ns, _), _)| *at_ns),
                self.decoder.poll_timeout(),
                Some(progress_ns + TIMEOUT_NS),
            ];
            now_ns = now_ns.max(times.into_iter().flatten().min().unwrap());
            run_timers(&mut self.decoder, &mut self.shared, now_ns, &mut self.up);
            if may_send && send_ns <= now_ns {
                set(&mut self.encoder, self.next);
                let packet = packet_of(self.next, self.rounds, round_first);
                for packet in encode(&mut self.encoder, &mut self.shared, &packet) {
                    self.channel.send(now_ns, &packet);
                }
                self.next += 1;
                send_ns = now_ns + SPACING_NS;
            }
            while self.channel.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                let (_, packet) = self.channel.in_flight.pop_first().unwrap();
                deliver(&mut self.decoder, &mut self.shared, now_ns, &packet, &mut self.up);
            }
            let mut answers = Vec::new();
            for (packet, how) in self.up.packets.drain(..) {
                let index = index_of[&key(&packet).1];
                check(index, &packet, how);
                if index == self.expected {
                    self.expected += 1;
                    self.has_asked = false;
                    answers.push((false, self.expected));
                } else if index > self.expected && !self.has_asked {
                    self.has_asked = true;
                    answers.push((true, self.expected));
                } else if index < self.expected {
                    answers.push((false, self.expected));
                }
            }
            for answer in answers {
                self.count += 1;
                self.answers.insert((now_ns + self.channel.delay_ns, self.count), answer);
            }
            let mut goes_back = now_ns >= progress_ns + TIMEOUT_NS;
            while self.answers.first_key_value().is_some_and(|((at_ns, _), _)| *at_ns <= now_ns) {
                let (_, (asks, to)) = self.answers.pop_first().unwrap();
                if to > self.acknowledged {
                    self.acknowledged = to;
                    progress_ns = now_ns;
                }
                goes_back |= asks && to >= self.acknowledged;
            }
            if goes_back && self.acknowledged < self.next {
                self.retransmissions += self.next - self.acknowledged;
                self.next = self.acknowledged;
                self.rounds += 1;
                round_first = self.next;
                progress_ns = now_ns;
            }
            if goes_back {
                progress_ns = now_ns;
            }
        }
        assert_eq!(self.expected, packets.len());
    }
}

fn check_against(packets: &[Vec<u8>]) -> impl FnMut(usize, &[u8], How) {
    move |index, packet, how| {
        let sent = &packets[index];
        match how {
            How::Recovered => assert!(without_flags(packet) == without_flags(sent), "{index}"),
            _ => assert!(packet == sent, "{index}"),
        }
    }
}

/// Messages of SENDs, WRITEs or READ answers, without packets that jump.
fn flow(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut messages = Messages::new(seed);
    messages.mtu = 256;
    (0..count)
        .flat_map(|_| {
            let most = if messages.random.below(2) == 0 { 5 } else { 100 };
            let packets = 1 + messages.random.below(most);
            messages.message_of(packets)
        })
        .collect()
}

#[test]
fn a_go_back_n_sender_always_finishes() {
    for seed in 0..150 {
        let packets = flow(seed, 30);
        let mut random = SplitMix64::new(seed);
        let mut connection = Connection::new(seed, shared());
        let strengths: Vec<Strength> = (0..5).map(|_| any_strength(&mut random)).collect();
        let same = |index: usize, _: u32, _: usize| packets[index].clone();
        let mut set = |encoder: &mut Encoder, index: usize| {
            if index.is_multiple_of(150) {
                encoder.set_strength(Some(strengths[index / 150 % 5])).unwrap();
            }
        };
        connection.run(&packets, &same, &mut set, &mut check_against(&packets));
    }
}

#[test]
fn the_shim_saves_retransmissions() {
    let (mut with, mut without, mut recovered) = (0, 0, 0);
    for seed in 0..20 {
        let packets = flow(seed, 40);
        for strength in [None, Some(xor(32, 4))] {
            let mut connection = Connection::new(seed, shared());
            connection.channel.loss_ppm = 2_000;
            (connection.channel.late_ppm, connection.channel.double_ppm) = (0, 0);
            connection.encoder.set_strength(strength).unwrap();
            let same = |index: usize, _: u32, _: usize| packets[index].clone();
            connection.run(&packets, &same, &mut |_, _| {}, &mut check_against(&packets));
            *(if strength.is_some() { &mut with } else { &mut without }) +=
                connection.retransmissions;
            recovered += connection.decoder.counters().packets_recovered;
        }
    }
    assert!(with * 4 < without && recovered > 20, "{with} with, {without} without, {recovered}");
}

#[test]
fn few_units_and_a_small_ring_only_cost_protection() {
    for seed in 0..60 {
        let packets = flow(seed, 20);
        let mut random = SplitMix64::new(seed);
        let config = SharedConfig {
            encode_units: random.below(6) as usize,
            decode_units: random.below(6) as usize,
            ring_packets: random.below(6) as usize,
            payload_bytes_max: 256,
        };
        let mut connection = Connection::new(seed, Shared::new(config));
        connection.encoder.set_strength(Some(any_strength(&mut random))).unwrap();
        let same = |index: usize, _: u32, _: usize| packets[index].clone();
        connection.run(&packets, &same, &mut |_, _| {}, &mut check_against(&packets));
    }
}

/// The answer to a READ that is asked for again begins with a First packet wherever that is, and has other
/// bytes if the memory has changed.
#[test]
fn rounds_of_reads_whose_memory_changes_are_never_mixed() {
    for seed in 0..RUNS {
        let mut messages = Messages::new(seed);
        messages.is_responder = true;
        messages.mtu = 256;
        let packets: Vec<Vec<u8>> = (0..12)
            .flat_map(|_| {
                let packets = 1 + messages.random.below(90);
                messages.message_of(packets)
            })
            .collect();
        let packet_of = |index: usize, round: u32, round_first: usize| {
            let original = &packets[index];
            let (header, payload) = RcHeader::parse(original, 0).unwrap();
            let part = header.opcode.part();
            let part = Part::of(part.begins() || index == round_first, part.ends());
            let opcode = Opcode::of_part(Operation::ReadResponse, part, false).unwrap();
            let mut again = Messages::new(u64::from(round) << 32 | index as u64);
            again.psn = header.psn;
            let payload =
                SplitMix64::new(u64::from(round) << 32 | index as u64).bytes(payload.len());
            again.packet(opcode, &payload, 0)
        };
        let mut random = SplitMix64::new(seed);
        let mut connection = Connection::new(seed, shared());
        connection.encoder.set_strength(Some(any_strength(&mut random))).unwrap();
        // A quarter of the round trip.
        connection.decoder.set_hold_ns_max(connection.channel.delay_ns / 2);
        let versions = std::cell::RefCell::new(vec![Vec::new(); packets.len()]);
        let sent = |index: usize, round: u32, round_first: usize| {
            let packet = packet_of(index, round, round_first);
            versions.borrow_mut()[index].push(packet.clone());
            packet
        };
        let mut check = |index: usize, packet: &[u8], how: How| {
            let versions = versions.borrow();
            let is_one = versions[index].iter().any(|sent: &Vec<u8>| match how {
                How::Recovered => without_flags(sent) == without_flags(packet),
                _ => sent == packet,
            });
            assert!(is_one, "seed {seed}: packet {index}, {how:?}, is none that was sent");
        };
        connection.run(&packets, &sent, &mut |_, _| {}, &mut check);
    }
}
