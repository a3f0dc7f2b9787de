//! Two ends over whatever a path can do, and an attacker who has recorded everything, in virtual time.

use super::*;
use proptest::prelude::*;

const MAGIC: [u8; MAGIC_BYTES] = *b"LG\x02";
/// One way.
const DELAY_NS: u64 = 20 * MS;

fn end(seed: u8, now_ns: u64) -> Peering {
    end_with(7, seed, Limits::default(), now_ns)
}

fn end_with(secret: u8, seed: u8, limits: Limits, now_ns: u64) -> Peering {
    Peering::new(MAGIC, Secret::new([secret; 32]), Secret::new([seed; 32]), limits, now_ns)
}

/// Two ends and the path between them.
struct Net {
    now_ns: u64,
    ends: [Option<Peering>; 2],
    /// When, to whom, what.
    flying: Vec<(u64, usize, Vec<u8>)>,
    /// All that was ever sent, and by whom.
    recorded: Vec<(usize, Vec<u8>)>,
    /// Frames that came, and where.
    came: Vec<(usize, Vec<u8>)>,
    /// Whether a packet of this end, and of this number among all, is lost.
    loses: fn(usize, usize) -> bool,
}

impl Net {
    fn new(ends: [Option<Peering>; 2]) -> Self {
        Self {
            now_ns: 0,
            ends,
            flying: Vec::new(),
            recorded: Vec::new(),
            came: Vec::new(),
            loses: |_, _| false,
        }
    }

    fn both() -> Self {
        Self::new([Some(end(1, 0)), Some(end(2, 0))])
    }

    fn end(&mut self, at: usize) -> &mut Peering {
        self.ends[at].as_mut().expect("it runs")
    }

    fn counters(&mut self, at: usize) -> Counters {
        self.end(at).counters()
    }

    fn fly(&mut self, from: usize, packet: Vec<u8>) {
        if !(self.loses)(from, self.recorded.len()) {
            self.flying.push((self.now_ns + DELAY_NS, 1 - from, packet.clone()));
        }
        self.recorded.push((from, packet));
    }

    /// Sends a frame; whether there are keys.
    fn send(&mut self, from: usize, frame: &[u8]) -> bool {
        let now_ns = self.now_ns;
        let mut packet = vec![0; frame.len() + OVERHEAD_BYTES];
        packet[FRAME_AT..][..frame.len()].copy_from_slice(frame);
        let Some(mut sealer) = self.end(from).sealer(now_ns) else { return false };
        if sealer.seal(&mut packet).is_err() {
            return false;
        }
        drop(sealer);
        self.fly(from, packet);
        true
    }

    /// An attacker has a packet arrive now.
    fn inject(&mut self, to: usize, packet: &[u8]) -> Option<Vec<u8>> {
        let now_ns = self.now_ns;
        let mut out = vec![0; packet.len()];
        self.end(to).on_packet(now_ns, packet, &mut out).map(|frame| frame.to_vec())
    }

    fn run(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        loop {
            for at in 0..2 {
                while let Some(packet) = self.ends[at].as_mut().and_then(Peering::poll_transmit) {
                    self.fly(at, packet);
                }
            }
            let due = self.ends.iter().flatten().filter_map(Peering::poll_timeout);
            let due = due.chain(self.flying.iter().map(|(due_ns, ..)| *due_ns)).min();
            let Some(due_ns) = due.filter(|due_ns| *due_ns <= end_ns) else { break };
            self.now_ns = self.now_ns.max(due_ns);
            let now_ns = self.now_ns;
            let (come, flying): (Vec<_>, Vec<_>) = std::mem::take(&mut self.flying)
                .into_iter()
                .partition(|(due_ns, ..)| *due_ns <= now_ns);
            self.flying = flying;
            for (_, to, packet) in come {
                if self.ends[to].is_some() {
                    let frame = self.inject(to, &packet);
                    self.came.extend(frame.map(|frame| (to, frame)));
                }
            }
            self.ends.iter_mut().flatten().for_each(|end| end.on_timeout(now_ns));
        }
        self.now_ns = end_ns;
    }

    /// Frames pass both ways now.
    fn assert_passes(&mut self) {
        self.came.clear();
        for from in 0..2 {
            assert!(self.send(from, &[from as u8; 100]), "end {from} has keys");
        }
        self.run(SECOND / 2);
        let mut came = std::mem::take(&mut self.came);
        came.sort_unstable();
        assert_eq!(came, [(0, vec![1; 100]), (1, vec![0; 100])]);
    }

    fn restart(&mut self, at: usize, seed: u8) {
        let now_ns = self.now_ns;
        self.ends[at] = Some(end(seed, now_ns));
    }
}

#[test]
fn ends_that_start_at_once_or_one_after_the_other_have_keys_in_two_round_trips() {
    for late_ns in [0, 1, DELAY_NS, 3600 * SECOND] {
        let mut net = Net::new([Some(end(1, 0)), None]);
        assert!(!net.send(0, b"too early"), "there are no keys");
        net.run(late_ns);
        net.restart(1, 2);
        net.run(4 * DELAY_NS);
        net.assert_passes();
        assert_eq!([0, 1].map(|at| net.counters(at).sessions), [1, 1], "{late_ns}");
    }
}

#[test]
fn without_frames_nothing_is_said_once_there_are_keys() {
    let mut net = Net::both();
    net.run(5 * SECOND);
    let before = net.recorded.len();
    net.run(3600 * SECOND);
    assert_eq!(net.recorded.len(), before);
    net.assert_passes();
}

#[test]
fn an_end_that_starts_again_is_noticed_and_frames_pass_again() {
    for at in 0..2 {
        let mut net = Net::both();
        net.run(SECOND);
        net.assert_passes();
        net.restart(at, 3);
        net.run(4 * DELAY_NS);
        net.assert_passes();
        assert_eq!(net.counters(1 - at).sessions, 2);
        // And both at once.
        net.restart(0, 4);
        net.restart(1, 5);
        net.run(4 * DELAY_NS);
        net.assert_passes();
    }
}

#[test]
fn while_a_peer_that_starts_again_proves_itself_its_predecessors_frames_are_opened() {
    let mut net = Net::both();
    net.run(SECOND);
    net.assert_passes();
    assert!(net.send(0, b"of the old process"));
    net.restart(0, 3);
    net.came.clear();
    net.run(SECOND);
    assert_eq!(net.came, [(1, b"of the old process".to_vec())]);
    net.assert_passes();
}

#[test]
fn any_of_the_first_packets_may_be_lost() {
    fn loses<const LOST: usize>(_: usize, number: usize) -> bool {
        LOST & 1 << number.min(20) != 0
    }
    // The first ten packets, by pairs; and all of the first eight.
    macro_rules! patterns {
        ($($lost:literal)*) => { [$(loses::<$lost> as fn(usize, usize) -> bool),*] };
    }
    for loses in patterns![0x1 0x2 0x4 0x8 0x10 0x20 0x3 0x6 0xc 0x18 0x30 0x5 0xa 0x14 0x28 0xff 0x3f0 0x155 0x2aa]
    {
        let mut net = Net::both();
        net.loses = loses;
        net.run(20 * SECOND);
        net.assert_passes();
    }
}

#[test]
fn where_one_direction_is_cut_keys_come_once_it_is_whole() {
    for cut in [|from, _| from == 0, |from, _| from == 1] {
        let mut net = Net::both();
        net.loses = cut;
        net.run(60 * SECOND);
        net.loses = |_, _| false;
        net.run(20 * SECOND);
        net.assert_passes();
    }
}

#[test]
fn ends_that_lost_each_others_keys_find_that_out_when_they_send() {
    let mut net = Net::both();
    net.run(SECOND);
    net.assert_passes();
    // Something that cannot be: one end has lost them and does not ask.
    let now_ns = net.now_ns;
    let mut other = Net::new([Some(end(8, now_ns)), Some(end(9, now_ns))]);
    other.now_ns = now_ns;
    other.run(SECOND);
    net.now_ns = other.now_ns;
    net.ends[1] = other.ends[1].take();
    assert!(net.send(0, b"nobody opens this"));
    net.run(10 * SECOND);
    assert!(net.counters(1).other_session >= 1);
    net.assert_passes();
}

#[test]
fn recorded_packets_of_any_age_change_nothing() {
    let mut net = Net::both();
    net.run(SECOND);
    net.assert_passes();
    net.restart(0, 3);
    net.run(SECOND);
    net.restart(1, 4);
    net.run(SECOND);
    net.assert_passes();
    let sessions = [0, 1].map(|at| net.counters(at).sessions);
    let recorded = net.recorded.clone();
    for round in 0..3 {
        for (from, packet) in &recorded {
            // To whom it was, and back to where it came from.
            for to in [1 - from, *from] {
                assert_eq!(net.inject(to, packet), None, "taken twice, or by its sender");
            }
        }
        net.run(SECOND);
        net.assert_passes();
        assert_eq!([0, 1].map(|at| net.counters(at).sessions), sessions, "round {round}");
    }
    let counters = net.counters(0);
    assert!(counters.repeated > 0 && counters.other_session > 0, "{counters:?}");
}

#[test]
fn a_handshake_succeeds_while_recorded_hellos_come() {
    let mut net = Net::both();
    net.run(SECOND);
    net.restart(1, 3);
    net.run(SECOND);
    let recorded = net.recorded.clone();
    net.restart(1, 4);
    for _ in 0..20 {
        for (from, packet) in recorded.iter().take(5) {
            net.inject(1 - from, packet);
            net.inject(*from, packet);
        }
        net.run(DELAY_NS / 2);
    }
    net.assert_passes();
}

#[test]
fn who_repeats_hellos_gets_few_answers_and_no_memory() {
    let mut net = Net::both();
    net.run(SECOND);
    net.restart(1, 3);
    net.run(SECOND);
    let (_, ask) = net.recorded[0].clone();
    let before = net.counters(1);
    for _ in 0..100_000 {
        net.inject(1, &ask);
    }
    let after = net.counters(1);
    assert!(after.hellos_sent - before.hellos_sent <= ANSWERS_PER_S);
    assert!(after.hellos_ignored > 99_000);
    assert!(net.end(1).outgoing.len() <= OUTGOING_MAX);
    net.run(SECOND);
    net.assert_passes();
}

#[test]
fn another_secret_or_magic_never_gets_keys() {
    for other in [
        end_with(8, 2, Limits::default(), 0),
        Peering::new(*b"LG\x03", Secret::new([7; 32]), Secret::new([2; 32]), Limits::default(), 0),
    ] {
        let mut net = Net::new([Some(end(1, 0)), Some(other)]);
        net.run(60 * SECOND);
        assert!(!net.send(0, b"frame") && !net.send(1, b"frame"));
        let counters = net.counters(0);
        assert!(counters.hellos_forged + counters.strange > 5, "{counters:?}");
        assert_eq!(counters.hellos_came, 0);
    }
}

#[test]
fn a_packet_of_which_any_bit_was_changed_is_refused() {
    let mut net = Net::both();
    net.run(SECOND);
    net.send(0, b"a frame");
    let recorded = net.recorded.clone();
    net.flying.clear();
    for (from, packet) in recorded {
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(net.inject(1 - from, &changed), None, "bit {bit}");
        }
        for len in 0..packet.len() {
            assert_eq!(net.inject(1 - from, &packet[..len]), None, "cut to {len} bytes");
        }
    }
    let counters = net.counters(1);
    assert!(counters.forged > 0 && counters.hellos_forged > 0, "{counters:?}");
    net.run(SECOND);
    net.assert_passes();
}

#[test]
fn keys_are_replaced_where_frames_go_one_way_alone() {
    let limits = Limits { packets: 100, packets_max: 1000, ..Limits::default() };
    let mut net = Net::new([1, 2].map(|seed| Some(end_with(7, seed, limits, 0))));
    net.run(SECOND);
    for _ in 0..20_000 {
        assert!(net.send(0, b"one way"), "the far end says a word in time");
        net.run(10 * MS);
    }
    net.run(SECOND);
    assert_eq!(net.came.len(), 20_000);
    let epoch = net.end(0).current.as_ref().map(|session| session.association.epoch());
    assert!(epoch >= Some(50), "{epoch:?}");
}

#[test]
fn no_two_sessions_of_an_end_have_the_same_keys() {
    let mut net = Net::both();
    let mut ids = std::collections::BTreeSet::new();
    for seed in 3..40 {
        net.run(4 * DELAY_NS);
        net.assert_passes();
        let id = net.end(0).current.as_ref().map(|session| session.id);
        assert!(ids.insert(id));
        net.restart(1, seed);
    }
}

proptest! {
    /// Restarts, losses, copies, delays and old packets in any order; then a quiet path.
    #[test]
    fn frames_pass_in_the_end_whatever_came_before(
        steps in prop::collection::vec((0u8..8, any::<u16>()), 1..80),
    ) {
        let mut net = Net::both();
        let mut seed = 2;
        for (what, which) in steps {
            match what {
                0 => {
                    seed += 1;
                    net.restart(usize::from(which % 2), seed);
                }
                1 => net.flying.truncate(usize::from(which % 4)),
                2 | 3 if !net.recorded.is_empty() => {
                    let (from, packet) = net.recorded[usize::from(which) % net.recorded.len()].clone();
                    let to = if what == 2 { 1 - from } else { from };
                    net.inject(to, &packet);
                }
                4 => {
                    for (due_ns, ..) in &mut net.flying {
                        *due_ns += u64::from(which) * MS / 100;
                    }
                }
                5 => _ = net.send(usize::from(which % 2), b"some frame"),
                _ => net.run(u64::from(which) * MS / 200),
            }
        }
        net.run(40 * SECOND);
        net.assert_passes();
    }
}
