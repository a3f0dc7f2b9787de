//! Closed forms of go-back-N and of LoWAR's shim below it, against a connection that is followed packet by
//! packet, and against the numbers that the paper and its arithmetic give.

use lacuna_link::SplitMix64;
use lacuna_model::{
    Code, Completion, ConnectionMessage, ConnectionPath, Gilbert, GoBackN, Loss, Shim,
};
use std::collections::VecDeque;

/// The two-state chain, drawn anew here.
struct Chain {
    random: SplitMix64,
    low: f64,
    high: f64,
    up: f64,
    down: f64,
    is_high: bool,
}

impl Chain {
    fn new(seed: u64, [low, high, up, down]: [f64; 4]) -> Self {
        Self { random: SplitMix64::new(seed), low, high, up, down, is_high: false }
    }

    fn chance(&mut self, probability: f64) -> bool {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= probability
            && probability > 0.0
    }

    fn loses(&mut self) -> bool {
        let change = if self.is_high { self.down } else { self.up };
        self.is_high ^= self.chance(change);
        self.chance(if self.is_high { self.high } else { self.low })
    }
}

/// A connection in time that is counted in packets: what is sent at `t` is judged at once, and its answer
/// is there at `t + W`.
struct Connection {
    chain: Chain,
    window: u64,
    timeout: u64,
    shim: Option<(bool, u64, u64)>,
    message_packets: u64,
    now: u64,
    /// The sender.
    next: u64,
    acknowledged: u64,
    due: Option<u64>,
    /// The block that is open: its first packet, and which packets and repairs came.
    first: u64,
    came: Vec<bool>,
    repairs: VecDeque<u64>,
    repairs_came: Vec<bool>,
    /// The receiver.
    expected: u64,
    is_silent: bool,
    /// When, whether everything is to be sent again, and what is expected.
    answers: VecDeque<(u64, bool, u64)>,
    limit: u64,
}

impl Connection {
    fn new(
        seed: u64,
        chain: [f64; 4],
        window: u64,
        shim: Option<(bool, u64, u64)>,
        m: u64,
    ) -> Self {
        Self {
            chain: Chain::new(seed, chain),
            window,
            timeout: window * 5 / 4,
            shim,
            message_packets: m,
            now: 0,
            next: 0,
            acknowledged: 0,
            due: None,
            first: 0,
            came: Vec::new(),
            repairs: VecDeque::new(),
            repairs_came: Vec::new(),
            expected: 0,
            is_silent: false,
            answers: VecDeque::new(),
            limit: u64::MAX,
        }
    }

    fn step(&mut self) {
        while self.answers.front().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, again, number) = self.answers.pop_front().unwrap();
            if number > self.acknowledged {
                self.acknowledged = number;
                self.due = (number < self.next).then_some(self.now + self.timeout);
            }
            if again {
                self.go_back();
            }
        }
        if self.due.is_some_and(|due| due <= self.now) {
            self.go_back();
        }
        if let Some(index) = self.repairs.pop_front() {
            let comes = !self.chain.loses();
            self.repairs_came[index as usize] = comes;
            if self.repairs.is_empty() {
                self.judge();
            }
        } else if self.next < self.limit {
            self.send();
        } else {
            // The link goes on while nobody sends.
            self.chain.loses();
        }
        self.now += 1;
    }

    fn go_back(&mut self) {
        self.next = self.acknowledged;
        self.due = None;
        self.repairs.clear();
        self.came.clear();
    }

    fn send(&mut self) {
        let packet = self.next;
        self.next += 1;
        self.due.get_or_insert(self.now + self.timeout);
        let comes = !self.chain.loses();
        let Some((_, r, c)) = self.shim else {
            if comes {
                self.arrives(packet);
            }
            return;
        };
        if self.came.is_empty() {
            self.first = packet;
        }
        self.came.push(comes);
        if self.came.iter().all(|came| *came) {
            self.arrives(packet);
        }
        let is_last = (packet + 1).is_multiple_of(self.message_packets);
        if self.came.len() as u64 == r || is_last {
            let (is_mds, count) = (self.shim.unwrap().0, self.came.len() as u64);
            let repairs = if is_mds { c } else { c.min(count) };
            self.repairs = (0..repairs).collect();
            self.repairs_came = vec![false; repairs as usize];
        }
    }

    fn arrives(&mut self, packet: u64) {
        if packet == self.expected {
            self.expected += 1;
            self.is_silent = false;
            self.answers.push_back((self.now + self.window, false, self.expected));
        } else if packet > self.expected {
            self.refuse();
        }
    }

    fn refuse(&mut self) {
        if !std::mem::replace(&mut self.is_silent, true) {
            self.answers.push_back((self.now + self.window, true, self.expected));
        }
    }

    /// The block's last repair was due.
    fn judge(&mut self) {
        let came = std::mem::take(&mut self.came);
        let (is_mds, _, c) = self.shim.unwrap();
        let missing: Vec<usize> = (0..came.len()).filter(|place| !came[*place]).collect();
        let is_saved = match is_mds {
            true => missing.len() <= self.repairs_came.iter().filter(|came| **came).count(),
            false => (0..self.repairs_came.len()).all(|group| {
                let lost = missing.iter().filter(|place| **place % c as usize == group).count();
                lost == 0 || lost == 1 && self.repairs_came[group]
            }),
        };
        // Those before the first missing one have arrived.
        let before = missing.first().copied().unwrap_or(came.len());
        for (place, came) in came.into_iter().enumerate().skip(before) {
            if came || is_saved {
                self.arrives(self.first + place as u64);
            }
        }
    }

    /// Share of the link's packets that were useful.
    fn goodput(mut self, packets: u64) -> f64 {
        let begin = 20 * self.window;
        while self.now < begin {
            self.step();
        }
        let before = self.acknowledged;
        while self.now < begin + packets {
            self.step();
        }
        (self.acknowledged - before) as f64 / packets as f64
    }

    /// Times of messages one by one, in packets.
    fn messages(mut self, count: u64) -> Vec<u64> {
        (0..count)
            .map(|_| {
                let begin = self.now;
                self.limit = self.acknowledged + self.message_packets;
                while self.acknowledged < self.limit {
                    self.step();
                }
                self.due = None;
                let took = self.now - begin;
                // What is still on its way is of no use.
                self.repairs.clear();
                self.came.clear();
                took
            })
            .collect()
    }
}

fn loss(chain: [f64; 4]) -> Loss {
    let [low, high, up, down] = chain;
    match low == high {
        true => Loss::PerPacket(low),
        false => Loss::Bursts(Gilbert::new(low, high, up, down).unwrap()),
    }
}

fn independent(p: f64) -> [f64; 4] {
    [p, p, 0.5, 0.5]
}

fn bursts(p: f64, packets: f64) -> [f64; 4] {
    [0.0, 1.0, p / (1.0 - p) / packets, 1.0 / packets]
}

fn model(chain: [f64; 4], window: u64, shim: Option<(bool, u64, u64)>) -> GoBackN {
    let path = ConnectionPath::new(1.0, window as f64, loss(chain));
    let shim = shim.map(|(is_mds, r, c)| {
        let (r, c) = (r as u32, c as u32);
        Shim::new(if is_mds { Code::mds(r, c) } else { Code::xor(r, c) }.unwrap())
    });
    GoBackN::new(&path, shim).unwrap()
}

const XOR: bool = false;
const MDS: bool = true;

#[test]
fn goodput_is_that_of_a_connection_followed_packet_by_packet() {
    let shims = [
        None,
        Some((XOR, 32, 1)),
        Some((XOR, 64, 8)),
        Some((XOR, 256, 24)),
        Some((MDS, 16, 2)),
        Some((MDS, 100, 6)),
    ];
    let chains = [
        independent(1e-3),
        independent(1e-2),
        bursts(1e-3, 8.0),
        bursts(1e-2, 30.0),
        [0.0, 0.3, 1e-4, 1.0 / 8.0],
        [1e-4, 0.7, 1e-4, 1.0 / 12.0],
    ];
    for chain in chains {
        for shim in shims {
            for message_packets in [1000, 40] {
                let window = 600;
                let run = |seed| Connection::new(seed, chain, window, shim, message_packets);
                let followed = (0..2).map(|seed| run(seed).goodput(400_000)).sum::<f64>() / 2.0;
                let closed = model(chain, window, shim).goodput(message_packets);
                let ratio = closed / followed;
                println!(
                    "{chain:?} {shim:?} {message_packets}: {followed:.4} {closed:.4} {ratio:.3}"
                );
                assert!((0.95..1.05).contains(&ratio), "{followed} followed, {closed} closed");
            }
        }
    }
}

#[test]
fn a_message_alone_takes_as_long_as_one_that_is_followed() {
    let shims = [None, Some((XOR, 32, 1)), Some((XOR, 64, 8)), Some((MDS, 100, 6))];
    let chains =
        [independent(1e-4), independent(2e-3), bursts(1e-3, 8.0), [0.0, 0.3, 1e-4, 1.0 / 8.0]];
    for chain in chains {
        for shim in shims {
            for packets in [1, 5, 300] {
                let window = 1500;
                let count = if packets > 100 { 3_000 } else { 20_000 };
                let mut times = Connection::new(7, chain, window, shim, packets).messages(count);
                let mean = times.iter().sum::<u64>() as f64 / count as f64;
                times.sort_unstable();
                let p99 = times[(count as f64 * 0.99) as usize] as f64;
                let model = ConnectionMessage::new(&model(chain, window, shim), packets);
                let closed = model.mean_s();
                let ideal = window as f64 + packets as f64;
                let beyond = (closed - ideal) / (mean - ideal).max(1.0);
                println!(
                    "{chain:?} {shim:?} {packets}: mean {mean:.1} {closed:.1} ({beyond:.3}), p99 {p99} {:.0}",
                    model.quantile_s(0.99)
                );
                assert!((0.97..1.03).contains(&(closed / mean)), "{mean} followed, {closed}");
            }
        }
    }
}

#[test]
fn go_back_n_keeps_one_over_one_plus_losses_per_round_trip() {
    for (loss, window) in [(1e-5, 46_000), (1e-4, 4_600), (1e-3, 4_600), (1e-2, 400)] {
        let goodput = model(independent(loss), window, None).goodput(1000);
        let closed = 1.0 / (1.0 + loss * window as f64);
        assert!((0.98..1.02).contains(&(goodput / closed)), "{loss}: {goodput} {closed}");
    }
    // In bursts of 8 there are an eighth as many.
    let goodput = model(bursts(1e-3, 8.0), 4_600, None).goodput(1000);
    let closed = 1.0 / (1.0 + 1e-3 / 8.0 * 4_600.0);
    assert!((0.98..1.02).contains(&(goodput / closed)), "{goodput} {closed}");
    assert_eq!(model(independent(0.0), 4_600, None).goodput(1000), 1.0);
    assert_eq!(model(independent(0.0), 4_600, Some((XOR, 32, 1))).goodput(1024), 32.0 / 33.0);
}

#[test]
fn the_shim_gains_what_the_arithmetic_of_figure_9_gives() {
    // 10 Gbit/s, MTU 1024: 46,400 packets in 40 ms, twice as many in 80 ms.
    let gain = |loss, window| {
        let [with, without] = [Some((XOR, 32, 1)), None]
            .map(|shim| model(independent(loss), window, shim).goodput(1024));
        with / without
    };
    for (loss, window, expected) in
        [(1e-5, 46_400, 1.42), (1e-4, 46_400, 5.43), (1e-5, 92_800, 1.87), (1e-4, 92_800, 9.84)]
    {
        let gain = gain(loss, window);
        assert!((0.97..1.03).contains(&(gain / expected)), "{loss} {window}: {gain}");
    }
}

#[test]
fn a_burst_up_to_the_depth_costs_nothing_and_longer_ones_more_and_more() {
    // Figure 11: LoWAR(64, 8), losses of 0.7 in bursts of 2 to 12 packets, one in 10,000 packets.
    let goodput =
        |shim, burst: f64| model([0.0, 0.7, 1e-4, 1.0 / burst], 46_400, shim).goodput(1024);
    let with: Vec<f64> =
        [2.0, 4.0, 8.0, 12.0].map(|burst| goodput(Some((XOR, 64, 8)), burst)).to_vec();
    assert!(with.windows(2).all(|pair| pair[0] > pair[1]), "{with:?}");
    assert!(with[0] > 0.8, "{with:?}");
    for (burst, with) in [2.0, 4.0, 8.0, 12.0].into_iter().zip(with) {
        assert!(with > 1.3 * goodput(None, burst), "{burst}: {with}");
    }
}

#[test]
fn a_message_of_a_megabyte_waits_for_its_losses_only() {
    // Figure 10 at 10 Gbit/s, 40 ms: 1024 packets, of which 0.1 are lost at 1e-4.
    let mean = |loss: f64, shim: bool| {
        let path = ConnectionPath::new(8.6e-7, 0.04, Loss::PerPacket(loss));
        let shim = shim.then(|| Shim::new(Code::xor(32, 1).unwrap()));
        ConnectionMessage::new(&GoBackN::new(&path, shim).unwrap(), 1024)
    };
    for (loss, least, most) in [(1e-4, 0.09, 0.12), (5e-4, 0.45, 0.55)] {
        let more = mean(loss, false).mean_s() / mean(loss, true).mean_s() - 1.0;
        assert!((least..most).contains(&more), "{loss}: {more}");
        assert!(mean(loss, false).quantile_s(0.99) > 0.08, "a go-back in one of a hundred");
        assert!(mean(loss, true).quantile_s(0.99) < 0.0425, "but not with the shim");
    }
}

#[test]
fn long_messages_go_on_as_short_ones_began() {
    for chain in [independent(1e-3), bursts(1e-3, 8.0)] {
        for shim in [None, Some((XOR, 32, 2))] {
            let connection = model(chain, 4_600, shim);
            let failures =
                |packets| ConnectionMessage::new(&connection, packets).failures() / packets as f64;
            let (short, long) = (failures(20_000), failures(2_000_000));
            assert!((0.97..1.03).contains(&(long / short)), "{short} {long}");
            // As often as a stream of them.
            let stream = connection.failures_per_packet(20_000);
            assert!((0.9..1.1).contains(&(stream / short)), "{stream} {short}");
        }
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let with = |packet_s, rtt_s, p, timeout_rtts| {
        let path = ConnectionPath { packet_s, rtt_s, loss: Loss::PerPacket(p), timeout_rtts };
        GoBackN::new(&path, None)
    };
    assert!(with(1e-6, 0.04, 0.1, 1.0).is_ok());
    for bad in [
        with(0.0, 0.04, 0.1, 1.0),
        with(1e-6, -1.0, 0.1, 1.0),
        with(1e-6, 0.04, 1.0, 1.0),
        with(1e-6, 0.04, 0.1, 0.5),
        with(f64::NAN, 0.04, 0.1, 1.0),
    ] {
        assert!(bad.is_err());
    }
}
