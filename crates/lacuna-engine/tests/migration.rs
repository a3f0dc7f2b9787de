//! Hosts whose addresses change while messages are under way, as behind a NAT that forgets them, in virtual
//! time: with keys and without, and attackers who want the flow elsewhere.

use lacuna_engine::harness::{Flights, Handle, Links, Net, Packet, Place, Sent, Wire};
use lacuna_link::{Fraction, Loss, PipeConfig};
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_proto::modes::{Mode, auto};
use lacuna_proto::qp::{QpConfig, SendRequest};
use lacuna_secure::{Association, Cipher, End, Limits, Secret};
use lacuna_wire::{ControlBody, ControlWriter, Frame, Seal};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// Round trip of the path without queues.
const RTT_NS: u64 = 40 * MS;
const SEALS: [Seal; 2] = [Seal::Crc32c, Seal::Aead];
const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// When the clock starts.
const START_NS: u64 = SECOND;
/// A host that has no part in the connection.
const STRANGER: Place = Place { host: 9, channel: 0 };

/// The channels of each host.
const CHANNELS: u8 = 2;

fn link(loss_ppm: u32) -> PipeConfig {
    PipeConfig {
        delay_ns: RTT_NS / 2,
        rate_bits_per_s: Some(50_000_000),
        queue_bytes: 1 << 20,
        loss: Loss::Independent(Fraction::from_ppm(loss_ppm)),
        ..PipeConfig::default()
    }
}

/// Bytes from and to a place.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    sent: u64,
    received: u64,
}

/// When a host gets which place for its first channel; its other channels are behind.
type Move = (u64, usize, Place);

/// A path with a NAT before each host. Hosts keep their places inside. Outside they have those that their
/// NATs gave them last, and what arrives at an earlier one is lost.
struct Path<A> {
    links: Links,
    moves: Vec<Move>,
    /// Of places outside.
    counts: BTreeMap<Place, Count>,
    attacker: A,
    /// From then on so many control packets of a host are lost.
    loses: (u64, usize, u32),
}

/// Sees each packet with its places outside as it is sent, and may send others.
trait Attacker {
    fn see(&mut self, seen: Seen<'_>, out: &mut Vec<Forged>);
}

struct Seen<'p> {
    now_ns: u64,
    from: Place,
    to: Place,
    bytes: &'p [u8],
}

/// What an attacker sends.
struct Forged {
    due_ns: u64,
    from: Place,
    to: Place,
    bytes: Vec<u8>,
}

struct Nobody;

impl Attacker for Nobody {
    fn see(&mut self, _: Seen<'_>, _: &mut Vec<Forged>) {}
}

impl<A: Attacker> Path<A> {
    fn new(link: PipeConfig, moves: &[Move], attacker: A) -> Self {
        let (links, counts) = (Links::new(link, 7), BTreeMap::new());
        Self { links, moves: moves.to_vec(), counts, attacker, loses: (0, 0, 0) }
    }

    /// Where a host's channel is outside.
    fn outside(&self, now_ns: u64, inside: Place) -> Place {
        let moves = self.moves.iter().rev().filter(|(_, host, _)| *host == inside.host);
        let last = moves.map(|(at_ns, _, place)| (at_ns + START_NS, place));
        match last.clone().find(|(at_ns, _)| *at_ns <= now_ns) {
            Some((_, place)) => Place { channel: place.channel + inside.channel, ..*place },
            None => inside,
        }
    }

    /// Whose place this is when a packet arrives that is sent now.
    fn inside(&self, now_ns: u64, outside: Place) -> Option<Place> {
        let hosts = [SENDER, RECEIVER].into_iter();
        let mut places =
            hosts.flat_map(|host| (0..CHANNELS).map(move |channel| Place { host, channel }));
        places.find(|place| self.outside(now_ns + RTT_NS / 2, *place) == outside)
    }

    /// Of all ports of a stranger.
    fn count(&self, host: usize) -> Count {
        let counts = self.counts.iter().filter(|(place, _)| place.host == host);
        counts.fold(Count::default(), |sum, (_, count)| Count {
            sent: sum.sent + count.sent,
            received: sum.received + count.received,
        })
    }
}

impl<A: Attacker> Wire for Path<A> {
    fn carry(&mut self, now_ns: u64, sent: Sent, flights: &mut Flights) {
        let Sent { from: host, to, takes_marks, packet } = sent;
        let from = self.outside(now_ns, host);
        let Packet::Bytes(bytes) = packet.clone() else { panic!("hosts with bytes") };
        self.counts.entry(from).or_default().sent += bytes.len() as u64;
        self.counts.entry(to).or_default().received += bytes.len() as u64;
        let mut forged = Vec::new();
        self.attacker.see(Seen { now_ns, from, to, bytes: &bytes }, &mut forged);
        // What is forged arrives first if it arrives at the same time.
        for Forged { due_ns, from, to, bytes } in forged {
            self.counts.entry(from).or_default().sent += bytes.len() as u64;
            if let Some(to) = self.inside(now_ns, to) {
                flights.fly(due_ns, from, to, Packet::Bytes(bytes), false);
            }
        }
        let (at_ns, loser, left) = &mut self.loses;
        if now_ns >= *at_ns + START_NS && host.host == *loser && *left > 0 && is_control(&bytes) {
            *left -= 1;
            return;
        }
        if let Some(to) = self.inside(now_ns, to) {
            self.links.carry(now_ns, Sent { from, to, takes_marks, packet }, flights);
        }
    }
}

fn is_control(bytes: &[u8]) -> bool {
    matches!(lacuna_wire::parse(bytes), Ok(lacuna_wire::Packet::Control(..)))
}

/// How the ends are made.
#[derive(Clone, Copy)]
struct Setup {
    seal: Seal,
    channels: u8,
    controller: ControllerConfig,
}

impl Setup {
    fn new(seal: Seal) -> Self {
        Self { seal, channels: 1, controller: ControllerConfig::Bbr }
    }
}

fn connect(net: &mut Net, setup: Setup) -> [Handle; 2] {
    let Setup { seal, channels, controller } = setup;
    let hosts = [net.add_host(channels), net.add_host(channels)];
    let geometry = GeometryConfig { mtu_bytes: 1400, seal, channels, ..GeometryConfig::default() };
    let config = |number: u32| QpConfig {
        geometry: Geometry::new(geometry).expect("a valid geometry"),
        mode: Mode::SR,
        policy: auto::plan,
        controller,
        rto: RtoConfig::default(),
        queue_pair: number,
        rkey: 0x1000 + number,
        qkey: 0x2000 + number,
        first_psn: 7,
        credit_bytes: 64 << 20,
        silence_max_ns: 30 * SECOND,
    };
    let ends = net.connect(hosts, [1, 2].map(config));
    for (handle, end) in ends.iter().zip([End::Connecting, End::Accepting]) {
        handle.qp().on_rtt_sample(net.now_ns(), RTT_NS);
        if seal.is_secure() {
            let (secret, limits) = (Secret::new([5; 32]), Limits::default());
            let keys =
                Association::new(Cipher::default(), secret, end, channels, limits, net.now_ns());
            handle.books.secure(keys);
        }
    }
    ends
}

/// What a transfer was like.
#[derive(Debug, PartialEq, Eq)]
struct Course {
    took_ns: u64,
    /// The longest time without a placed byte, after the start.
    pause_ns: u64,
    /// Bytes placed after each step.
    placed: Vec<u64>,
    moved: [u64; 2],
    kept: [u64; 2],
    unproved: [u64; 2],
}

/// When the sender has found its rate.
const START_UP_NS: u64 = 400 * MS;
/// How long a step is.
const STEP_NS: u64 = 5 * MS;

impl Course {
    /// Mean rate between two times.
    fn rate(&self, from_ns: u64, to_ns: u64) -> f64 {
        let at = |ns: u64| self.placed[((ns / STEP_NS) as usize).min(self.placed.len() - 1)];
        (at(to_ns) - at(from_ns)) as f64 / (to_ns - from_ns) as f64
    }
}

/// Sends a message from the first to the second end.
fn transfer<A: Attacker>(setup: Setup, bytes: usize, path: &mut Path<A>) -> Course {
    let mut net = Net::new();
    let ends = connect(&mut net, setup);
    let data: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
    let since_ns = net.now_ns();
    assert_eq!(since_ns, START_NS);
    let posted = ends[1].qp().post_receive(since_ns, Placement::from_vec(vec![0; bytes])).unwrap();
    let request =
        SendRequest { data: SendBuffer::from(data.clone()), immediate: None, deadline_ns: None };
    let id = ends[0].qp().queue_send(request).unwrap();
    ends.iter().for_each(|end| net.kick(end));
    let (mut placed, mut pause_ns, mut last_ns, mut end_ns) = (vec![0], 0, since_ns, None);
    loop {
        let mut before = *placed.last().unwrap();
        let is_sent = net.run_until(STEP_NS, path, |net| {
            let stats = ends[1].qp().stats();
            let now = stats.channels.iter().map(|channel| channel.bytes).sum();
            if now > before {
                // Not at the start, where one round trip after the other is waited for.
                if last_ns > since_ns + START_UP_NS {
                    pause_ns = pause_ns.max(net.now_ns() - last_ns);
                }
                (before, last_ns) = (now, net.now_ns());
            }
            if posted.is_complete() {
                end_ns.get_or_insert(net.now_ns());
            }
            ends[0].qp().send_status(id).expect("kept").outcome == Some(Ok(()))
        });
        placed.push(before);
        if is_sent {
            break;
        }
        assert!(net.now_ns() < since_ns + 60 * SECOND, "never came: {placed:?}");
    }
    // What is under way ends as well.
    net.run_until(5 * SECOND, path, |_| false);
    let count = |net: &mut Net, which: fn(&lacuna_engine::Counters) -> u64| {
        [0, 1].map(|host| which(net.host(host).engine().counters()))
    };
    let moved = count(&mut net, |counters| counters.paths_moved.load(Ordering::Relaxed));
    let kept = count(&mut net, |counters| counters.paths_kept.load(Ordering::Relaxed));
    let unproved = count(&mut net, |counters| counters.paths_unproved.load(Ordering::Relaxed));
    let took_ns = end_ns.expect("it is whole") - since_ns;
    let mut qp = ends[1].qp();
    posted.parts.iter().for_each(|part| _ = qp.table().close(part.number()));
    qp.on_receive_closed(net.now_ns(), &posted);
    drop(qp);
    assert!(posted.into_vec().expect("closed") == data, "other bytes");
    Course { took_ns, pause_ns, placed, moved, kept, unproved }
}

const BYTES: usize = 16 << 20;

/// The places of a host after its NAT has given it other ports so many times.
fn port(host: usize, times: u8) -> Place {
    Place { host, channel: times * 10 }
}

/// The course of a transfer with these moves, and what it is without.
fn moved(setup: Setup, loss_ppm: u32, moves: &[Move]) -> [Course; 2] {
    [moves, &[]].map(|moves| transfer(setup, BYTES, &mut Path::new(link(loss_ppm), moves, Nobody)))
}

fn rate_before_and_after(course: &Course, at_ns: u64) -> (f64, f64) {
    (course.rate(at_ns - 300 * MS, at_ns), course.rate(at_ns + SECOND, at_ns + 1300 * MS))
}

#[test]
fn a_sender_whose_nat_forgets_it_goes_on_without_a_pause() {
    for seal in SEALS {
        for after_us in [0, 300, 600, 900] {
            let at_ns = SECOND + after_us * 1000;
            let [course, _] = moved(Setup::new(seal), 0, &[(at_ns, SENDER, port(SENDER, 1))]);
            assert_eq!((course.moved, course.unproved), ([0, 1], [0, 0]));
            // Copies of the reports reach the new address before it is proved.
            assert!(course.pause_ns < RTT_NS / 20, "{seal:?}: {} ns", course.pause_ns);
            let (before, after) = rate_before_and_after(&course, at_ns);
            assert!(after > before * 0.98, "{seal:?}: {before} and {after}");
        }
    }
}

#[test]
fn a_receiver_whose_nat_forgets_it_is_found_within_three_round_trips() {
    for seal in SEALS {
        for after_us in [0, 300, 600, 900] {
            let at_ns = SECOND + after_us * 1000;
            let [course, _] = moved(Setup::new(seal), 0, &[(at_ns, RECEIVER, port(RECEIVER, 1))]);
            assert_eq!((course.moved, course.unproved), ([1, 0], [0, 0]));
            assert!(course.pause_ns < 2 * RTT_NS + 50 * MS, "{seal:?}: {} ns", course.pause_ns);
            let (before, after) = rate_before_and_after(&course, at_ns);
            assert!(after > before * 0.98, "{seal:?}: {before} and {after}");
        }
    }
}

#[test]
fn losses_delay_a_move_by_little() {
    for seal in SEALS {
        for host in [SENDER, RECEIVER] {
            let [course, _] = moved(Setup::new(seal), 50_000, &[(SECOND, host, port(host, 1))]);
            assert_eq!(course.moved[1 - host], 1, "{seal:?}: {host}");
            assert!(course.pause_ns < 3 * RTT_NS + 50 * MS, "{seal:?}: {} ns", course.pause_ns);
            let (before, after) = rate_before_and_after(&course, SECOND);
            assert!(after > before * 0.9, "{seal:?}: {before} and {after}");
        }
    }
}

#[test]
fn both_ends_move_several_times() {
    for seal in SEALS {
        for loss_ppm in [0, 50_000] {
            let moves = [
                (500 * MS, SENDER, port(SENDER, 1)),
                // Before the first one is over.
                (545 * MS, RECEIVER, port(RECEIVER, 1)),
                (900 * MS, RECEIVER, port(RECEIVER, 2)),
                (1000 * MS, RECEIVER, port(RECEIVER, 3)),
                (1300 * MS, SENDER, port(SENDER, 2)),
                (1330 * MS, SENDER, port(SENDER, 3)),
                (1800 * MS, SENDER, port(SENDER, 4)),
            ];
            let [course, undisturbed] = moved(Setup::new(seal), loss_ppm, &moves);
            println!(
                "{seal:?} {loss_ppm} {:?} {:?} {:?}",
                course.moved, course.kept, course.unproved
            );
            let longer_ns = course.took_ns.saturating_sub(undisturbed.took_ns);
            assert!(longer_ns < SECOND, "{seal:?} {loss_ppm}: {} ms longer", longer_ns / MS);
        }
    }
}

#[test]
fn a_receiver_whose_only_report_from_its_new_address_is_lost_sends_another() {
    for lost in [1, 2] {
        let mut path = Path::new(link(0), &[(SECOND, RECEIVER, port(RECEIVER, 1))], Nobody);
        path.loses = (SECOND, RECEIVER, lost);
        let course = transfer(Setup::new(Seal::Crc32c), BYTES, &mut path);
        assert_eq!(course.moved, [1, 0]);
        assert!(course.pause_ns < 400 * MS, "{} ns", course.pause_ns);
    }
}

#[test]
fn all_channels_follow_even_those_on_which_nothing_is_sent_back() {
    for host in [SENDER, RECEIVER] {
        let setup = Setup { channels: CHANNELS, ..Setup::new(Seal::Aead) };
        let [course, undisturbed] = moved(setup, 0, &[(SECOND, host, port(host, 1))]);
        // The sender has heard nothing before on one of the channels that it sends on.
        let proved = if host == SENDER { CHANNELS } else { 1 };
        assert_eq!(course.moved[1 - host], u64::from(proved), "{host}");
        let longer_ns = course.took_ns.saturating_sub(undisturbed.took_ns);
        assert!(longer_ns < 6 * RTT_NS, "{host}: {} ms longer", longer_ns / MS);
    }
}

#[test]
fn a_host_with_another_address_is_followed_and_its_path_is_found_anew() {
    for seal in SEALS {
        for host in [SENDER, RECEIVER] {
            let place = Place { host: 5, channel: 3 };
            let [course, undisturbed] = moved(Setup::new(seal), 0, &[(SECOND, host, place)]);
            assert_eq!(course.moved[1 - host], 1);
            let longer_ns = course.took_ns.saturating_sub(undisturbed.took_ns);
            assert!(longer_ns < SECOND, "{seal:?} {host}: {} ms longer", longer_ns / MS);
        }
    }
}

/// A path on which nothing waits for anything else, so that what attackers add takes no time.
fn wide() -> PipeConfig {
    PipeConfig { rate_bits_per_s: None, ..link(0) }
}

/// A sender that does not look at the path.
fn steady(seal: Seal) -> Setup {
    let controller = ControllerConfig::Fixed { rate_bits_per_s: 50_000_000 };
    Setup { controller, ..Setup::new(seal) }
}

fn assert_undisturbed(course: &Course, seal: Seal) {
    let undisturbed = transfer(steady(seal), BYTES, &mut Path::new(wide(), &[], Nobody));
    assert_eq!(course.took_ns, undisturbed.took_ns, "{seal:?}: not a nanosecond later");
    assert!(course.placed == undisturbed.placed, "{seal:?}");
    assert_eq!(course.moved, [0, 0]);
}

/// Copies every packet, from another address, and is always faster than the original. With `ports`, the
/// source is another one each time.
struct Copier {
    ports: u8,
    copied: usize,
}

impl Attacker for Copier {
    fn see(&mut self, seen: Seen<'_>, out: &mut Vec<Forged>) {
        let Seen { now_ns, to, bytes, .. } = seen;
        if to.host == STRANGER.host {
            return;
        }
        let from = Place { channel: (self.copied % usize::from(self.ports)) as u8, ..STRANGER };
        self.copied += 1;
        out.push(Forged { due_ns: now_ns + RTT_NS / 2, from, to, bytes: bytes.to_vec() });
    }
}

#[test]
fn who_copies_every_packet_and_is_always_first_moves_nothing_and_delays_nothing() {
    for seal in SEALS {
        for ports in [1, 200] {
            let mut path = Path::new(wide(), &[], Copier { ports, copied: 0 });
            let course = transfer(steady(seal), BYTES, &mut path);
            assert!(path.attacker.copied > 10_000);
            assert_undisturbed(&course, seal);
            assert!(course.kept[0] > 5 && course.kept[1] > 5, "{:?}", course.kept);
            let stranger = path.count(STRANGER.host);
            // Copies of control packets for a part of the time, no data.
            assert!(stranger.received * 100 < stranger.sent, "{stranger:?}");
            for (place, count) in path.counts.iter().filter(|(at, _)| at.host == STRANGER.host) {
                assert!(count.received <= 3 * count.sent, "{place:?}: {count:?}");
            }
        }
    }
}

/// Copies what the receiver sends, is nearer to both ends than they are to each other, and forwards what comes
/// to him, so that he can answer.
struct Forwarder;

impl Attacker for Forwarder {
    fn see(&mut self, seen: Seen<'_>, out: &mut Vec<Forged>) {
        let Seen { now_ns, from, to, bytes } = seen;
        let to = match to.host == STRANGER.host {
            true => Place { host: SENDER + RECEIVER - from.host, channel: 0 },
            false if from.host == RECEIVER => to,
            false => return,
        };
        let due_ns = now_ns + RTT_NS / 4;
        out.push(Forged { due_ns, from: STRANGER, to, bytes: bytes.to_vec() });
    }
}

#[test]
fn who_can_answer_by_forwarding_has_the_flow_until_the_old_address_has_answered() {
    for seal in SEALS {
        let mut path = Path::new(wide(), &[], Forwarder);
        let course = transfer(steady(seal), BYTES, &mut path);
        assert!(course.moved[0] > 3, "{:?}", course.moved);
        // Each time a quarter of a round trip later, and then there are four round trips of rest.
        assert!(course.kept[0] >= course.moved[0], "{:?}", course.kept);
        let stranger = path.count(STRANGER.host);
        assert!(stranger.received * 10 < BYTES as u64, "{seal:?}: {stranger:?}");
        let undisturbed = transfer(steady(seal), BYTES, &mut Path::new(wide(), &[], Nobody));
        let longer_ns = course.took_ns.saturating_sub(undisturbed.took_ns);
        assert!(longer_ns * 10 < undisturbed.took_ns, "{seal:?}: {longer_ns} ns longer");
    }
}

/// Knows the keys of packets in clear and makes packets of its own, which are the newest.
struct Forger {
    /// The number of the receiver's last control packet.
    sequence: u32,
    forged: u64,
}

impl Attacker for Forger {
    fn see(&mut self, seen: Seen<'_>, out: &mut Vec<Forged>) {
        let Seen { now_ns, from, to, bytes } = seen;
        let Ok(lacuna_wire::Packet::Control(header, body)) = lacuna_wire::parse(bytes) else {
            return;
        };
        if from.host != RECEIVER || to.host != SENDER {
            return;
        }
        let sequence = ControlBody::parse(body).expect("it is well formed").sequence;
        if !sequence.is_multiple_of(7) {
            return;
        }
        self.sequence = sequence;
        self.forged += 1;
        let mut writer = ControlWriter::new(1200);
        writer.start(&header, sequence, Seal::Crc32c);
        writer.push(&Frame::Padding(20));
        let bytes = writer.finish().to_vec();
        out.push(Forged { due_ns: now_ns + RTT_NS / 2, from: STRANGER, to, bytes });
    }
}

#[test]
fn who_forges_packets_in_clear_from_where_nobody_answers_gets_three_times_what_he_sends_at_most() {
    let mut path = Path::new(wide(), &[], Forger { sequence: 0, forged: 0 });
    let course = transfer(steady(Seal::Crc32c), BYTES, &mut path);
    assert_eq!(course.moved, [0, 0]);
    assert!(path.attacker.forged > 100 && course.kept[0] > 5, "{:?}", course.kept);
    let stranger = path.count(STRANGER.host);
    assert!(stranger.received > 0 && stranger.received <= 3 * stranger.sent, "{stranger:?}");
    assert!(course.pause_ns < RTT_NS, "{} ns", course.pause_ns);
}
