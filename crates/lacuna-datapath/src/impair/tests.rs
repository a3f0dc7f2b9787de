//! Tests of the impaired link on a fake clock, over the in-process network: times are exact, and
//! the seed makes everything else exact.

use super::*;
use crate::{Mem, MemNetwork, ReceivedBatch};

const MS: u64 = 1_000_000;

/// One impaired end, its peer, and a clock.
struct Path {
    near: Impair<Mem>,
    far: Mem,
    now_ns: u64,
}

/// Packets that arrived, and when.
#[derive(Default)]
struct Arrivals {
    packets: Vec<Vec<u8>>,
    batches: usize,
}

impl Placer for Arrivals {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        self.batches += 1;
        self.packets.extend(batch.packets().map(<[u8]>::to_vec));
    }
}

impl Path {
    fn new(impairment: Impairment, seed: u64) -> Self {
        let network = MemNetwork::new();
        let near = network.bind(addr(1), 1 << 30).unwrap();
        let far = network.bind(addr(2), 1 << 30).unwrap();
        Self { near: Impair::new(near, impairment, seed), far, now_ns: 0 }
    }

    fn send(&mut self, packets: &[Vec<u8>]) {
        self.send_to(addr(2), packets);
    }

    fn send_to(&mut self, to: SocketAddr, packets: &[Vec<u8>]) {
        let mut buffers = BurstBuffers::new();
        for packets in packets.chunks(Burst::PACKETS_MAX) {
            let mut burst = buffers.start(to);
            for packet in packets {
                burst.push(&[], packet, &[]);
            }
            assert_eq!(self.near.send(self.now_ns, &burst).unwrap(), packets.len());
        }
    }

    fn arrived(&mut self) -> Vec<Vec<u8>> {
        let mut arrivals = Arrivals::default();
        while self.far.receive(self.now_ns, &mut arrivals).unwrap() > 0 {}
        arrivals.packets
    }

    /// Advances from event to event until the link is empty. Returns the packets with their arrival
    /// times.
    fn drain(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let now_ns = self.now_ns;
            all.extend(self.arrived().into_iter().map(|packet| (now_ns, packet)));
            let Some(next_ns) = self.near.next_event_ns() else { return all };
            assert!(next_ns > now_ns, "what was due is gone");
            self.now_ns = next_ns;
            self.near.receive(next_ns, &mut Arrivals::default()).unwrap();
        }
    }
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// Packets that tell which they are.
fn numbered(packets: u32, bytes: usize) -> Vec<Vec<u8>> {
    (0..packets)
        .map(|number| {
            let mut packet = vec![0; bytes];
            packet[..4].copy_from_slice(&number.to_le_bytes());
            packet
        })
        .collect()
}

fn number_of(packet: &[u8]) -> u32 {
    u32::from_le_bytes(*packet.first_chunk().unwrap())
}

fn numbers_of(arrivals: &[(u64, Vec<u8>)]) -> Vec<u32> {
    arrivals.iter().map(|(_, packet)| number_of(packet)).collect()
}

fn times_of(arrivals: &[(u64, Vec<u8>)]) -> Vec<u64> {
    arrivals.iter().map(|(time_ns, _)| *time_ns).collect()
}

/// A link with all impairments.
fn rough() -> Impairment {
    Impairment {
        loss: Loss::bursts(0.05, 4.0).unwrap(),
        delay_ns: 10 * MS,
        jitter_ns: 3 * MS,
        rate_bits_per_s: Some(1_000_000_000),
        queue_bytes: 100 << 20,
        reorder: Fraction::from_f64(0.02),
        reorder_delay_ns: MS,
        duplicate: Fraction::from_f64(0.01),
        corrupt: Fraction::from_f64(0.01),
        ..Impairment::default()
    }
}

#[test]
fn a_link_that_does_nothing_passes_bursts_straight_through() {
    let mut path = Path::new(Impairment::default(), 1);
    path.send(&numbered(50, 100));
    assert_eq!(path.near.next_event_ns(), None);
    let mut arrivals = Arrivals::default();
    assert_eq!(path.far.receive(0, &mut arrivals).unwrap(), 50);
    assert_eq!((arrivals.packets, arrivals.batches), (numbered(50, 100), 1));
    assert_eq!(path.near.counters(), ImpairCounters { sent: 50, ..ImpairCounters::default() });
}

#[test]
fn delay_is_exact() {
    let mut path = Path::new(Impairment { delay_ns: 20 * MS, ..Impairment::default() }, 1);
    path.now_ns = 5;
    path.send(&numbered(3, 100));
    path.now_ns = 7;
    path.send(&numbered(1, 100));
    assert_eq!(path.near.next_event_ns(), Some(20 * MS + 5));
    path.now_ns = 20 * MS + 4;
    path.near.receive(path.now_ns, &mut Arrivals::default()).unwrap();
    assert!(path.arrived().is_empty());
    let arrivals = path.drain();
    assert_eq!(times_of(&arrivals), [20 * MS + 5, 20 * MS + 5, 20 * MS + 5, 20 * MS + 7]);
}

#[test]
fn the_rate_is_exact_and_charges_headers() {
    // 972 + 28 bytes at 8 Mbit/s: 1 ms each.
    let impairment = Impairment {
        rate_bits_per_s: Some(8_000_000),
        delay_ns: 100 * MS,
        ..Impairment::default()
    };
    let mut path = Path::new(impairment, 1);
    path.send(&numbered(5, 972));
    let expected: Vec<u64> = (1..=5).map(|i| 100 * MS + i * MS).collect();
    assert_eq!(times_of(&path.drain()), expected);
    // An idle link accumulates no credit.
    path.now_ns = 200 * MS;
    path.send(&numbered(2, 972));
    assert_eq!(times_of(&path.drain()), [301 * MS, 302 * MS]);
}

#[test]
fn what_the_queue_cannot_hold_is_dropped_and_counted() {
    let impairment = Impairment {
        rate_bits_per_s: Some(8_000_000),
        queue_bytes: 10_000,
        per_packet_overhead_bytes: 0,
        ..Impairment::default()
    };
    let mut path = Path::new(impairment, 1);
    path.send(&numbered(100, 1000));
    let arrivals = path.drain();
    // One in transmission, ten in the queue.
    assert_eq!(numbers_of(&arrivals), (0..11).collect::<Vec<_>>());
    assert_eq!(path.near.counters().queue_dropped, 89);
}

#[test]
fn jitter_spreads_packets_but_keeps_their_order() {
    let impairment = Impairment { delay_ns: 10 * MS, jitter_ns: MS, ..Impairment::default() };
    let mut path = Path::new(impairment, 1);
    let mut sent_at = Vec::new();
    let mut arrivals = Vec::new();
    for packet in numbered(2000, 10) {
        path.send(&[packet]);
        sent_at.push(path.now_ns);
        path.now_ns += MS / 10;
        path.near.receive(path.now_ns, &mut Arrivals::default()).unwrap();
        let now_ns = path.now_ns;
        arrivals.extend(path.arrived().into_iter().map(|packet| (now_ns, packet)));
    }
    arrivals.extend(path.drain());
    assert_eq!(numbers_of(&arrivals), (0..2000).collect::<Vec<_>>());
    let delays: Vec<u64> = arrivals.iter().zip(&sent_at).map(|((at, _), sent)| at - sent).collect();
    assert!(delays.iter().all(|delay| (10 * MS..=11 * MS + MS / 10).contains(delay)));
    assert!(delays.iter().max().unwrap() - delays.iter().min().unwrap() > MS / 2);
}

#[test]
fn losses_are_what_was_asked_for() {
    let loss = Loss::Independent(Fraction::from_f64(0.1));
    let mut path = Path::new(Impairment { loss, ..Impairment::default() }, 3);
    path.send(&numbered(100_000, 10));
    let arrived = path.arrived();
    let counters = path.near.counters();
    assert_eq!(counters.sent, 100_000);
    assert_eq!(arrived.len() as u64, 100_000 - counters.lost);
    assert!((9_700..10_300).contains(&counters.lost), "{}", counters.lost);
}

#[test]
fn a_recorded_trace_is_followed() {
    let loss = Loss::Trace([false, true, true, false, false].into());
    let mut path = Path::new(Impairment { loss, ..Impairment::default() }, 3);
    path.send(&numbered(10, 10));
    assert_eq!(numbers_of(&path.drain()), [0, 3, 4, 5, 8, 9]);
}

#[test]
fn packets_held_back_are_passed_by_others() {
    let impairment = Impairment {
        delay_ns: 10 * MS,
        reorder: Fraction::from_f64(0.1),
        reorder_delay_ns: 5 * MS,
        ..Impairment::default()
    };
    let mut path = Path::new(impairment, 4);
    path.send(&numbered(1000, 10));
    let arrivals = path.drain();
    let (on_time, late): (Vec<_>, Vec<_>) = arrivals.iter().partition(|(at, _)| *at == 10 * MS);
    assert!(late.iter().all(|(at, _)| *at == 15 * MS));
    assert_eq!(late.len() as u64, path.near.counters().reordered);
    assert!((70..130).contains(&late.len()), "{}", late.len());
    for group in [on_time, late] {
        assert!(group.is_sorted_by_key(|(_, packet)| number_of(packet)));
    }
    assert_eq!(arrivals.len(), 1000);
}

#[test]
fn duplicates_follow_their_originals() {
    let impairment = Impairment { duplicate: Fraction::from_f64(0.2), ..Impairment::default() };
    let mut path = Path::new(impairment, 5);
    path.send(&numbered(1000, 10));
    let mut numbers = numbers_of(&path.drain());
    let duplicated = path.near.counters().duplicated;
    assert!((150..250).contains(&duplicated), "{duplicated}");
    assert_eq!(numbers.len() as u64, 1000 + duplicated);
    assert!(numbers.is_sorted());
    numbers.dedup();
    assert_eq!(numbers.len(), 1000);
}

#[test]
fn corruption_flips_one_bit() {
    let impairment = Impairment {
        corrupt: Fraction::from_f64(0.3),
        duplicate: Fraction::always(),
        ..Impairment::default()
    };
    let mut path = Path::new(impairment, 6);
    let packets = vec![vec![0; 50]; 1000];
    path.send(&packets);
    let arrived = path.arrived();
    let mut positions = Vec::new();
    for pair in arrived.chunks(2) {
        let ones = pair[0].iter().map(|byte| byte.count_ones()).sum::<u32>();
        assert!(ones <= 1);
        positions.extend(pair[0].iter().position(|byte| *byte != 0));
        assert_eq!(pair[1], [0; 50], "the copy is sound");
    }
    assert_eq!(positions.len() as u64, path.near.counters().corrupted);
    assert!((250..350).contains(&positions.len()), "{}", positions.len());
    positions.sort_unstable();
    positions.dedup();
    assert_eq!(positions.len(), 50, "every byte is hit some time");
}

#[test]
fn empty_packets_pass_and_cannot_be_corrupted() {
    let mut path =
        Path::new(Impairment { corrupt: Fraction::always(), ..Impairment::default() }, 1);
    path.send(&[vec![], vec![]]);
    assert_eq!(path.arrived(), [[0u8; 0], []]);
    assert_eq!(path.near.counters().corrupted, 0);
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let run = |seed| {
        let mut path = Path::new(rough(), seed);
        let mut arrivals = Vec::new();
        for packets in numbered(5000, 500).chunks(37) {
            path.send(packets);
            path.now_ns += MS / 10;
        }
        arrivals.extend(path.drain());
        (arrivals, path.near.counters())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
    let counters = run(1).1;
    assert!(counters.lost > 0 && counters.duplicated > 0);
    assert!(counters.reordered > 0 && counters.corrupted > 0);
}

#[test]
fn an_effect_turned_on_leaves_the_others_as_they_were() {
    let lost = |impairment: Impairment| {
        let mut path = Path::new(impairment, 9);
        path.send(&numbered(3000, 100));
        let mut present = vec![false; 3000];
        for number in numbers_of(&path.drain()) {
            present[number as usize] = true;
        }
        present
    };
    let loss = || Loss::Independent(Fraction::from_f64(0.1));
    let alone = lost(Impairment { loss: loss(), ..Impairment::default() });
    // Corruption stays off: it may change the number that identifies a packet.
    let together = lost(Impairment { loss: loss(), corrupt: Fraction::never(), ..rough() });
    assert_eq!(alone, together);
}

#[test]
fn packets_are_released_in_bursts() {
    let mut path = Path::new(Impairment { delay_ns: MS, ..Impairment::default() }, 1);
    path.send(&numbered(64, 1400));
    path.now_ns = MS;
    path.near.receive(path.now_ns, &mut Arrivals::default()).unwrap();
    let mut arrivals = Arrivals::default();
    while path.far.receive(path.now_ns, &mut arrivals).unwrap() > 0 {}
    // 46 packets of 1400 bytes fit into one batch.
    assert_eq!((arrivals.packets.len(), arrivals.batches), (64, 2));
}

#[test]
fn each_packet_goes_where_it_was_sent() {
    let network = MemNetwork::new();
    let [near, far, other] = [1, 2, 3].map(|port| network.bind(addr(port), 1 << 20).unwrap());
    let impairment = Impairment { delay_ns: MS, ..Impairment::default() };
    let mut path = Path { near: Impair::new(near, impairment, 1), far, now_ns: 0 };
    for i in 0..10u8 {
        path.send_to(addr(2 + u16::from(i % 2)), &[vec![i]]);
    }
    path.near.receive(MS, &mut Arrivals::default()).unwrap();
    for (which, mut end) in [path.far, other].into_iter().enumerate() {
        let mut arrivals = Arrivals::default();
        while end.receive(MS, &mut arrivals).unwrap() > 0 {}
        let expected: Vec<Vec<u8>> = (0..5).map(|i| vec![2 * i + which as u8]).collect();
        assert_eq!(arrivals.packets, expected);
    }
}

#[test]
fn a_clock_that_steps_back_stands_still() {
    let mut path = Path::new(Impairment { delay_ns: MS, ..Impairment::default() }, 1);
    path.now_ns = 10 * MS;
    path.send(&numbered(1, 10));
    path.now_ns = 5 * MS;
    path.send(&numbered(1, 10));
    assert_eq!(times_of(&path.drain()), [11 * MS, 11 * MS]);
}

/// Takes a few packets a call, and nothing at all while it is shut.
struct Gate {
    inner: Mem,
    opening: usize,
    refuses: bool,
}

impl Datapath for Gate {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        if self.refuses {
            return Err(SendError::PacketTooLarge { packet_bytes: burst.packet_bytes(0) });
        }
        let taken = self.opening.min(burst.len());
        self.opening -= taken;
        let mut buffers = BurstBuffers::new();
        let mut some = buffers.start(burst.destination());
        for packet in burst.packets().take(taken) {
            some.push(packet.header, packet.payload, packet.trailer);
        }
        self.inner.send(now_ns, &some)
    }

    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        self.inner.receive(now_ns, placer)
    }

    fn next_event_ns(&self) -> Option<u64> {
        None
    }

    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_> {
        EventSources::none()
    }

    fn send_blocked(&self) -> bool {
        self.opening == 0
    }

    fn receive_drops(&self) -> u64 {
        0
    }
}

fn gated(impairment: Impairment) -> (Impair<Gate>, Mem) {
    let network = MemNetwork::new();
    let inner = network.bind(addr(1), 1 << 20).unwrap();
    let far = network.bind(addr(2), 1 << 20).unwrap();
    (Impair::new(Gate { inner, opening: 0, refuses: false }, impairment, 1), far)
}

#[test]
fn what_the_inner_datapath_does_not_take_waits_and_keeps_its_order() {
    let (mut near, mut far) = gated(Impairment { delay_ns: MS, ..Impairment::default() });
    let packets = numbered(300, 10);
    let mut buffers = BurstBuffers::new();
    for packets in packets.chunks(100) {
        let mut burst = buffers.start(addr(2));
        for packet in packets {
            burst.push(&[], packet, &[]);
        }
        assert_eq!(near.send(0, &burst).unwrap(), 100);
    }
    let mut arrivals = Arrivals::default();
    for step in 0.. {
        near.receive(MS + step, &mut Arrivals::default()).unwrap();
        while far.receive(0, &mut arrivals).unwrap() > 0 {}
        if arrivals.packets.len() == packets.len() {
            break;
        }
        // Nothing to do at any time until the inner datapath has room.
        assert_eq!(near.next_event_ns(), None);
        assert!(near.send_blocked());
        near.inner.opening = 7;
    }
    assert_eq!(arrivals.packets, packets);
}

#[test]
fn what_the_inner_datapath_refuses_is_lost_alone() {
    let (mut near, mut far) = gated(Impairment { delay_ns: MS, ..Impairment::default() });
    let mut buffers = BurstBuffers::new();
    let mut burst = buffers.start(addr(2));
    burst.push(&[], &[1; 100], &[]);
    near.inner.refuses = true;
    near.send(0, &burst).unwrap();
    near.receive(MS, &mut Arrivals::default()).unwrap();
    near.inner.refuses = false;
    near.inner.opening = 10;
    near.send(MS, &burst).unwrap();
    near.receive(2 * MS, &mut Arrivals::default()).unwrap();
    let mut arrivals = Arrivals::default();
    far.receive(0, &mut arrivals).unwrap();
    assert_eq!(arrivals.packets, [[1; 100]]);
    assert_eq!(near.counters().refused, 1);
}

#[test]
fn what_is_in_flight_has_a_bound() {
    let mut path = Path::new(Impairment { delay_ns: MS, ..Impairment::default() }, 1);
    assert_eq!(path.near.held_bytes_max, Impairment::HELD_BYTES_MAX);
    path.near.held_bytes_max = 10 * charge_bytes(100);
    path.send(&numbered(13, 100));
    assert_eq!(path.near.counters().queue_dropped, 3);
    assert_eq!(path.drain().len(), 10);
    path.send(&numbered(10, 100));
    assert_eq!(path.drain().len(), 10, "what has left makes room");
}

#[test]
fn counters_are_readable_from_another_thread() {
    let mut path = Path::new(
        Impairment { loss: Loss::Independent(Fraction::always()), ..Impairment::default() },
        1,
    );
    let handle = path.near.counters_handle();
    path.send(&numbered(5, 10));
    let read = std::thread::spawn(move || handle.read()).join().unwrap();
    assert_eq!((read.sent, read.lost), (5, 5));
}

#[test]
fn impossible_links_are_refused() {
    let zero = Impairment { rate_bits_per_s: Some(0), ..Impairment::default() };
    assert_eq!(zero.validate(), Err(ImpairmentError::ZeroRate));
    let long = Impairment {
        rate_bits_per_s: Some(100_000_000_000),
        delay_ns: 1_000 * MS,
        ..Impairment::default()
    };
    let error = long.validate().unwrap_err();
    assert_eq!(
        error,
        ImpairmentError::TooMuchInFlight { needed_bytes: 12_500_000_000 + (4 << 20) }
    );
    assert!(error.to_string().contains("12504194304 bytes"));
    assert_eq!(rough().validate(), Ok(()));
}
