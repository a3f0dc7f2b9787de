//! The choice as its caller sees it, without a connection.

use super::*;
use lacuna_link::SplitMix64;
use lacuna_wire::Qpn;
use lacuna_wire::rc::{CodeKind, Fields, Opcode, RcHeader};

const RTT_NS: u64 = 40_000_000;
const PACKET_NS: u64 = 8_600;

/// A flow of messages of 1024 packets at a gigabit per second.
struct Flow {
    auto: Auto,
    random: SplitMix64,
    now_ns: u64,
    packet_ns: u64,
    psn: u32,
    asked: Vec<(u64, Option<Strength>)>,
}

impl Flow {
    fn new() -> Self {
        let auto = Auto::new(AutoConfig::default());
        let random = SplitMix64::new(5);
        Self { auto, random, now_ns: 0, packet_ns: PACKET_NS, psn: 0, asked: Vec::new() }
    }

    fn take(&mut self, psn: u32) {
        let opcode = match psn % 1024 {
            0 => Opcode::SendFirst,
            1023 => Opcode::SendLast,
            _ => Opcode::SendMiddle,
        };
        let header = RcHeader {
            opcode,
            destination: Qpn::from_bits(1),
            psn: psn & 0xff_ffff,
            asks_ack: false,
            is_solicited: false,
            fields: Fields::None,
        };
        let mut packet = vec![0; header.packet_bytes(4)];
        header.emit(4, &mut packet);
        self.auto.on_packet(self.now_ns, &Packet::parse(&packet).unwrap());
    }

    fn run(&mut self, packets: u32, loss_ppm: u32, rtt_ns: u64) {
        for _ in 0..packets {
            if !self.random.chance(loss_ppm) {
                self.take(self.psn);
            }
            self.psn += 1;
            self.now_ns += self.packet_ns;
            if let Some(strength) = self.auto.poll(self.now_ns, rtt_ns, 0) {
                self.asked.push((self.now_ns, strength));
            }
        }
    }
}

#[test]
fn a_request_is_sent_again_until_the_strength_is_seen() {
    let mut flow = Flow::new();
    flow.run(80_000, 10_000, RTT_NS);
    let (_, last) = *flow.asked.last().unwrap();
    let of_last = flow.asked.iter().filter(|(_, strength)| *strength == last).count();
    assert!((2..=8).contains(&of_last), "{:?}", flow.asked);
    assert!(
        flow.asked.windows(2).all(|pair| pair[1].0 - pair[0].0 > RTT_NS || pair[0].1 != pair[1].1)
    );
    flow.auto.on_strength(last.unwrap());
    flow.asked.clear();
    flow.run(30_000, 10_000, RTT_NS);
    assert!(flow.asked.iter().all(|(_, strength)| *strength != last), "{:?}", flow.asked);
}

#[test]
fn a_peer_that_changes_its_mind_is_asked_again() {
    let mut flow = Flow::new();
    flow.run(20_000, 10_000, RTT_NS);
    let Some((_, Some(asked))) = flow.asked.last().copied() else { panic!("{:?}", flow.asked) };
    flow.auto.on_strength(asked);
    flow.run(120_000, 10_000, RTT_NS);
    let Some((_, Some(asked))) = flow.asked.last().copied() else { panic!("{:?}", flow.asked) };
    flow.auto.on_strength(asked);
    flow.asked.clear();
    let weak = Strength { block_packets: 256, repairs: 1, code: CodeKind::Xor };
    flow.auto.on_strength(weak);
    flow.run(120_000, 10_000, RTT_NS);
    let (_, again) = *flow.asked.first().expect("it is asked again");
    assert!(again.is_some_and(|strength| strength.repairs > 4), "{again:?}");
}

#[test]
fn nothing_is_asked_for_before_the_round_trip_is_known() {
    let mut flow = Flow::new();
    flow.run(30_000, 10_000, 0);
    assert!(flow.asked.is_empty() && flow.auto.reason().is_none());
    flow.run(5_000, 10_000, RTT_NS);
    assert!(!flow.asked.is_empty());
}

#[test]
fn a_flow_that_has_become_slow_gets_blocks_that_come_in_time() {
    let mut flow = Flow::new();
    flow.run(20_000, 10_000, RTT_NS);
    let (_, long) = *flow.asked.last().unwrap();
    flow.auto.on_strength(long.unwrap());
    flow.packet_ns = 40 * PACKET_NS;
    flow.run(20_000, 10_000, RTT_NS);
    let (_, short) = *flow.asked.last().unwrap();
    let packets =
        |strength: Option<Strength>| strength.map_or(0, |it| it.block_packets + it.repairs);
    assert!(packets(long) > 40, "{long:?}");
    // 116 packets in a round trip.
    assert!((3..=29).contains(&packets(short)), "{short:?}");
}

#[test]
fn what_comes_out_of_order_is_not_lost() {
    let mut flow = Flow::new();
    for _ in 0..100_000 {
        let psn = flow.psn;
        // The second of four is behind the fourth.
        let turn = match psn % 4 {
            1 => 1,
            2 => 2,
            3 => u32::MAX - 1,
            _ => 0,
        };
        flow.take(psn.wrapping_add(turn).min(psn + 2).max(psn.saturating_sub(2)));
        flow.psn += 1;
        flow.now_ns += PACKET_NS;
        flow.auto.poll(flow.now_ns, RTT_NS, 0);
    }
    let reason = flow.auto.reason().unwrap();
    assert_eq!(reason.loss.bursts.round(), 0.0, "{reason}");
}

#[test]
fn a_choice_says_why() {
    let mut flow = Flow::new();
    flow.run(100_000, 10_000, RTT_NS);
    let reason = flow.auto.reason().unwrap();
    let text = reason.to_string();
    assert!(text.starts_with("lowar:mds:"), "{text}");
    for part in ["loss 9.8e-3 (", "round trip of 4", "messages of 1024", "go-back-N alone 2"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\n'));
    assert!(reason.goodput > 0.9 && reason.goodput_without < 0.1);
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut random = SplitMix64::new(1);
    let mut flow = Flow::new();
    for _ in 0..200_000 {
        let psn = random.next_u64() as u32;
        flow.take(if random.below(2) == 0 { psn & 0x1_ffff } else { psn });
        flow.now_ns += random.below(1_000_000);
        if random.below(1000) == 0 {
            flow.auto.poll(flow.now_ns, random.below(100_000_000), random.below(1_000_000));
        }
    }
    assert!(flow.auto.memory_bytes() < 1 << 20, "{}", flow.auto.memory_bytes());
    let steady = {
        let mut flow = Flow::new();
        flow.run(2_000_000, 10_000, RTT_NS);
        flow.auto.memory_bytes()
    };
    assert!(steady < 48 << 10, "{steady}");
}

#[test]
fn flows_of_one_path_may_follow_each_other() {
    // Each of a hundred flows is short, and its numbers are anywhere.
    let mut flow = Flow::new();
    for next in 0..100u32 {
        flow.psn = next.wrapping_mul(7_654_321) & 0x7f_ffff;
        flow.auto.on_other_flow(flow.now_ns);
        flow.run(1_000, 10_000, RTT_NS);
    }
    let fit = flow.auto.reason().unwrap().loss;
    assert!((0.008..0.012).contains(&fit.loss) && fit.burst_losses < 1.1, "{fit:?}");
    assert_eq!(flow.auto.counters().outages, 0);
}
