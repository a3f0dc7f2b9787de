//! Controllers over a link that flows share, as engines drive them: what they use of it, how full its
//! queue is, how they share it.
//!
//! The bounds are those of `lacuna-path/tests/controllers`, which drives paths alone: there are the
//! cases by the hundred and the golden table, with neighbours that are TCP and hosts that stall. Here
//! packets are cut, placed, reported and repaired as the transport does it; only payload is left out.

use lacuna_engine::harness::{Handle, Links, Net};
use lacuna_link::{Fraction, Loss, PipeConfig};
use lacuna_path::controller::ControllerConfig;
use lacuna_path::{IP_UDP_BYTES, RtoConfig};
use lacuna_place::buffer::{SendBuffer, Zeros};
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_place::placement::Placement;
use lacuna_proto::modes::{Mode, auto};
use lacuna_proto::qp::{QpConfig, SendRequest};
use lacuna_wire::Seal;
use std::sync::Arc;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// As on Ethernet.
const MTU_BYTES: u32 = 1436;
/// Bytes of a packet on the link.
const WIRE_BYTES: u64 = MTU_BYTES as u64 + Seal::Crc32c.overhead_bytes(false) as u64 + IP_UDP_BYTES;
/// More than any link here carries in a test's time.
const ENDLESS_BYTES: usize = 3 << 30;
/// The most that is asked for at once.
const RANGE_BYTES: usize = 4 << 20;
/// Between two looks at the queue.
const TICK_NS: u64 = MS / 2;

const BBR: ControllerConfig = ControllerConfig::Bbr;
const CUBIC: ControllerConfig = ControllerConfig::Cubic;

/// The link towards the receiver; the way back is as long, and clean.
#[derive(Debug, Clone)]
struct Line {
    rate_bits_per_s: u64,
    rtt_ns: u64,
    queue_bytes: u64,
    mark_above_bytes: Option<u64>,
    loss: Loss,
}

impl Line {
    /// A clean one whose queue holds so many per cent of what the link holds itself.
    fn new(rate_mbit: u64, rtt_ns: u64, queue_percent: u64) -> Self {
        let rate_bits_per_s = rate_mbit * 1_000_000;
        let path_bytes = path_bytes(rate_bits_per_s, rtt_ns);
        let queue_bytes = (path_bytes * queue_percent / 100).max(2 * WIRE_BYTES);
        Self { rate_bits_per_s, rtt_ns, queue_bytes, mark_above_bytes: None, loss: Loss::None }
    }

    /// Loses so much in all, in bursts of so many on average.
    fn losing(self, loss_ppm: u32, burst_packets: u32) -> Self {
        let mean = Fraction::from_ppm(loss_ppm);
        let loss = match burst_packets {
            1 => Loss::Independent(mean),
            _ => Loss::bursts(mean.to_f64(), f64::from(burst_packets)).expect("such bursts exist"),
        };
        Self { loss, ..self }
    }

    fn path_bytes(&self) -> u64 {
        path_bytes(self.rate_bits_per_s, self.rtt_ns)
    }

    fn pipe(&self) -> PipeConfig {
        PipeConfig {
            rate_bits_per_s: Some(self.rate_bits_per_s),
            queue_bytes: self.queue_bytes,
            mark_above_bytes: self.mark_above_bytes,
            loss: self.loss.clone(),
            ..self.way_back()
        }
    }

    fn way_back(&self) -> PipeConfig {
        PipeConfig { delay_ns: self.rtt_ns / 2, ..PipeConfig::default() }
    }
}

fn path_bytes(rate_bits_per_s: u64, rtt_ns: u64) -> u64 {
    rate_bits_per_s / 8 * rtt_ns / SECOND
}

/// Two hosts, the line between them and the flows on it.
struct Bottleneck {
    net: Net,
    links: Links,
    line: Line,
    /// Of each the queue pair that sends and the one that receives.
    flows: Vec<[Handle; 2]>,
    /// Sum of the queue's bytes at each tick, and the ticks.
    queue_sum: u64,
    ticks: u64,
}

/// What all flows together have done.
#[derive(Debug, Clone, Copy)]
struct Counts {
    received: u64,
    sent: u64,
    overflowed: u64,
}

impl Bottleneck {
    fn new(line: Line, seed: u64) -> Self {
        let mut net = Net::new();
        let hosts = [(); 2].map(|()| net.add_host_without_bytes(1));
        assert_eq!(hosts, [0, 1]);
        let mut links = Links::new(line.way_back(), seed);
        links.set(0, 1, line.pipe());
        Self { net, links, line, flows: Vec::new(), queue_sum: 0, ticks: 0 }
    }

    /// Adds a flow without end that begins now.
    fn add(&mut self, controller: ControllerConfig) -> usize {
        let number = 1 + self.flows.len() as u32;
        let config = |queue_pair| QpConfig {
            geometry: Geometry::new(GeometryConfig {
                mtu_bytes: MTU_BYTES,
                ..GeometryConfig::default()
            })
            .expect("a valid geometry"),
            mode: Mode::SR,
            policy: auto::plan,
            controller,
            rto: RtoConfig::default(),
            queue_pair,
            rkey: 0x1000 + queue_pair,
            qkey: 0x2000 + queue_pair,
            first_psn: 7,
            credit_bytes: u32::MAX,
            silence_max_ns: 30 * SECOND,
        };
        let flow = self.net.connect([0, 1], [number; 2].map(config));
        let [from, to] = &flow;
        let placement = Placement::phantom(ENDLESS_BYTES);
        to.qp().post_receive(self.net.now_ns(), placement).expect("a slot is free");
        let data = SendBuffer::new(Arc::new(Zeros::new(ENDLESS_BYTES, RANGE_BYTES)));
        let request = SendRequest { data, immediate: None, deadline_ns: None };
        from.qp().queue_send(request).expect("it may wait");
        flow.iter().for_each(|end| self.net.kick(end));
        self.flows.push(flow);
        self.flows.len() - 1
    }

    fn run_for(&mut self, time_ns: u64) {
        let end_ns = self.net.now_ns() + time_ns;
        while self.net.now_ns() < end_ns {
            let tick_ns = TICK_NS.min(end_ns - self.net.now_ns());
            self.net.run_until(tick_ns, &mut self.links, |_| false);
            self.queue_sum += self.links.waiting_bytes(self.net.now_ns(), 0, 1);
            self.ticks += 1;
        }
    }

    /// Mean of the queue since this was last asked, in thousandths of the path.
    fn mean_queue_permille(&mut self) -> u64 {
        let mean = self.queue_sum / self.ticks.max(1);
        (self.queue_sum, self.ticks) = (0, 0);
        mean * 1000 / self.line.path_bytes().max(1)
    }

    /// Packets of a flow that came.
    fn received(&self, flow: usize) -> u64 {
        let channel = self.flows[flow][1].qp().stats().channels[0];
        channel.packets + channel.duplicates
    }

    fn counts(&self) -> Counts {
        let flows = 0..self.flows.len();
        let sent = |flow: usize| self.flows[flow][1].qp().stats().channels[0].span;
        Counts {
            received: flows.clone().map(|flow| self.received(flow)).sum(),
            sent: flows.map(sent).sum(),
            overflowed: self.links.overflowed(),
        }
    }

    /// What is received in a time, in thousandths of what the link's rate lets through.
    fn used_permille(&mut self, time_ns: u64) -> u64 {
        let before = self.counts().received;
        self.run_for(time_ns);
        let bytes = (self.counts().received - before) * WIRE_BYTES;
        bytes * 1000 / path_bytes(self.line.rate_bits_per_s, time_ns)
    }
}

#[derive(Debug)]
struct Seen {
    /// Of what the link's rate and its own loss leave, per mille.
    used_permille: u64,
    /// Mean queue, per mille of what the path holds.
    queue_permille: u64,
    /// Packets of a million that the queue dropped.
    dropped_ppm: u64,
}

/// A flow alone: five round trips to start, then ten seconds that count.
fn alone(controller: ControllerConfig, line: Line) -> Seen {
    let kept_permille = ((1.0 - line.loss.mean()) * 1000.0) as u64;
    let start_ns = 5 * line.rtt_ns;
    let mut path = Bottleneck::new(line, 7);
    path.add(controller);
    path.run_for(start_ns);
    path.mean_queue_permille();
    let before = path.counts();
    let used_permille = path.used_permille(10 * SECOND) * 1000 / kept_permille;
    let after = path.counts();
    let dropped = after.overflowed - before.overflowed;
    Seen {
        used_permille,
        queue_permille: path.mean_queue_permille(),
        dropped_ppm: dropped * 1_000_000 / (after.sent - before.sent).max(1),
    }
}

#[test]
fn bbr_fills_a_path_that_loses_and_leaves_its_queue_short() {
    for (loss_ppm, burst, least) in
        [(0, 1, 970), (1000, 1, 970), (10_000, 1, 970), (50_000, 1, 950), (64_000, 64, 970)]
    {
        let seen = alone(BBR, Line::new(1000, 40 * MS, 100).losing(loss_ppm, burst));
        let what = format!("loss {loss_ppm} ppm in bursts of {burst}: {seen:?}");
        assert!(seen.used_permille >= least, "{what}");
        assert!(seen.queue_permille < 300, "{what}");
    }
}

#[test]
fn loss_slows_cubic_down() {
    let line = Line::new(1000, 40 * MS, 100);
    let clean = alone(CUBIC, line.clone());
    assert!(clean.used_permille > 950, "{clean:?}");
    let lossy = alone(CUBIC, line.losing(1000, 1));
    assert!(lossy.used_permille < 50, "{lossy:?}");
}

#[test]
fn a_fixed_rate_is_kept_whatever_is_lost() {
    let fixed = ControllerConfig::Fixed { rate_bits_per_s: 990_000_000 };
    for loss_ppm in [0, 50_000] {
        let seen = alone(fixed, Line::new(1000, 40 * MS, 100).losing(loss_ppm, 1));
        assert!((970..=1000).contains(&seen.used_permille), "{loss_ppm} ppm: {seen:?}");
        assert!(seen.queue_permille < 10 && seen.dropped_ppm == 0, "{loss_ppm} ppm: {seen:?}");
    }
}

#[test]
fn an_overflowing_queue_slows_bbr_down() {
    // Two flows, a small queue: nobody may push on through loss.
    let mut path = Bottleneck::new(Line::new(100, 40 * MS, 15), 3);
    path.add(BBR);
    path.run_for(SECOND / 2);
    path.add(BBR);
    path.run_for(20 * SECOND);
    let before = path.counts();
    path.run_for(20 * SECOND);
    let dropped = path.counts().overflowed - before.overflowed;
    // 167,000 packets pass in this time.
    assert!(dropped < 6000, "{dropped}");
}

#[test]
fn a_queue_too_short_to_be_seen_is_not_overrun() {
    // A path alone uses 880 of the shorter one too; what an engine sends at once fills it.
    for (loss_ppm, queue_percent, least) in [(0, 2, 800), (50_000, 2, 800), (10_000, 5, 880)] {
        let seen = alone(BBR, Line::new(1000, 40 * MS, queue_percent).losing(loss_ppm, 1));
        let what = format!("queue {queue_percent} %, loss {loss_ppm} ppm: {seen:?}");
        assert!(seen.dropped_ppm < 15_000, "{what}");
        assert!(seen.used_permille > least, "{what}");
    }
}

#[test]
fn marks_keep_the_queue_shorter_than_its_end_would() {
    let line = Line::new(1000, 40 * MS, 300);
    let marking = Line { mark_above_bytes: Some(line.path_bytes() / 20), ..line };
    for controller in [BBR, CUBIC] {
        let seen = alone(controller, marking.clone());
        assert_eq!(seen.dropped_ppm, 0, "{controller:?}: {seen:?}");
        assert!(seen.queue_permille < 100, "{controller:?}: {seen:?}");
        assert!(seen.used_permille > 850, "{controller:?}: {seen:?}");
    }
}

#[test]
fn two_flows_share_fairly() {
    for (rtt_ms, queue_percent) in [(10, 100), (40, 20), (40, 300)] {
        let mut path = Bottleneck::new(Line::new(100, rtt_ms * MS, queue_percent), 11);
        path.add(BBR);
        path.run_for(5 * SECOND);
        path.add(BBR);
        path.run_for(15 * SECOND);
        let before = [0, 1].map(|flow| path.received(flow));
        let used_permille = path.used_permille(30 * SECOND);
        let [a, b] = [0, 1].map(|flow| u128::from(path.received(flow) - before[flow]));
        // Jain's index of two: (a + b)^2 / 2 (a^2 + b^2).
        let jain_permille = (a + b).pow(2) * 1000 / (2 * (a * a + b * b));
        let what = format!("{rtt_ms} ms, queue {queue_percent} %: {a} and {b}");
        assert!(jain_permille >= 900, "{what}: Jain's index {jain_permille}");
        assert!(used_permille >= 950, "{what}: used {used_permille}");
    }
}

#[test]
fn a_path_that_begins_to_lose_is_used_on() {
    let line = Line::new(1000, 40 * MS, 100);
    let mut path = Bottleneck::new(line.clone(), 5);
    path.add(BBR);
    path.run_for(5 * SECOND);
    path.links.set(0, 1, line.losing(50_000, 1).pipe());
    path.run_for(5 * SECOND);
    let used_permille = path.used_permille(5 * SECOND);
    // Of the 950 that are left.
    assert!(used_permille > 900 * 95 / 100, "{used_permille}");
}

#[test]
fn after_darkness_the_path_is_full_again_within_two_seconds() {
    for rtt_ms in [40, 250] {
        let line = Line::new(1000, rtt_ms * MS, 100);
        let mut path = Bottleneck::new(line.clone(), 5);
        path.add(BBR);
        path.run_for(5 * SECOND);
        let dark = Loss::Independent(Fraction::always());
        path.links.set(0, 1, PipeConfig { loss: dark.clone(), ..line.pipe() });
        path.links.set(1, 0, PipeConfig { loss: dark, ..line.way_back() });
        path.run_for(3 * SECOND);
        path.links.set(0, 1, line.pipe());
        path.links.set(1, 0, line.way_back());
        // A timeout of silence has doubled up to a second or the round trip's.
        path.run_for(2 * SECOND);
        let used_permille = path.used_permille(2 * SECOND);
        assert!(used_permille > 900, "{rtt_ms} ms: {used_permille}");
    }
}

#[test]
fn a_path_that_changes_its_rate_is_followed() {
    let mut path = Bottleneck::new(Line::new(1000, 40 * MS, 100), 5);
    path.add(BBR);
    path.run_for(5 * SECOND);
    for mbit in [200, 1000] {
        path.line = Line::new(mbit, 40 * MS, 100);
        path.links.set(0, 1, path.line.pipe());
        path.run_for(10 * SECOND);
        path.mean_queue_permille();
        let used_permille = path.used_permille(5 * SECOND);
        assert!(used_permille > 900, "{mbit} Mbit/s: {used_permille}");
        let queue_permille = path.mean_queue_permille();
        assert!(queue_permille < 300, "{mbit} Mbit/s: {queue_permille}");
    }
}
