//! One list of operations drives every controller, through the path that it works in: bursts leave
//! as the window and the pace allow, and are delivered, lost, marked, reported late or never.
//! Whatever the order, a window holds a packet and has an end, a pace is a rate, what an idle
//! application does opens no window, and a path that carries again is used again.

use crate::bottleneck::{MS, SECOND, US, WIRE_BYTES, run};
use lacuna_path::controller::{Controller, ControllerConfig, Setup, StartRate, TABLE};
use lacuna_path::shared_credit::Senders;
use lacuna_path::{IP_UDP_BYTES, Path, RtoConfig};
use lacuna_wire::ChannelReport;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

const PACKET_BYTES: u64 = WIRE_BYTES - IP_UDP_BYTES;
/// No controller opens more than any path holds.
const WINDOW_BYTES_MAX: u64 = 1 << 45;

/// Every controller; those that take a rate have this one.
pub(crate) fn all(rate_bits_per_s: u64) -> impl Iterator<Item = ControllerConfig> {
    TABLE.iter().map(move |entry| {
        ControllerConfig::of(Some(entry.kind), Some(rate_bits_per_s)).expect("with a rate")
    })
}

/// Every controller that finds a rate.
fn finding() -> impl Iterator<Item = ControllerConfig> {
    TABLE.iter().filter_map(|entry| entry.alone)
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    /// Sends up to so many packets, as far as it is allowed to.
    Send(u32),
    /// The application has nothing to send.
    OutOfData,
    /// So many packets in flight arrive, and every so manieth of them is lost, or marked.
    Report { packets: u32, lost_every: u8, marked_every: u8 },
    /// A report of the past comes once more.
    Repeat,
    /// Time goes on, or stands still.
    Wait(u64),
    /// A probe's answer comes.
    Rtt(u64),
    /// Another one begins or ends to send.
    Other { begins: bool },
    /// A rate is known from elsewhere.
    Start(u64),
}

struct Driver {
    path: Path,
    now_ns: u64,
    /// Packets of each run in flight.
    runs: VecDeque<u32>,
    report: ChannelReport,
    senders: Arc<Senders>,
    others: u32,
}

impl Driver {
    fn new(config: ControllerConfig) -> Self {
        let setup = Setup { packet_bytes: WIRE_BYTES, seed: 1 };
        let mut path = Path::new(1, 0, config.build(setup), RtoConfig::default());
        path.set_credit(0, 1 << 40);
        let senders = Arc::<Senders>::default();
        path.count_among(senders.clone());
        let report = ChannelReport { credit_bytes: u32::MAX, ..ChannelReport::default() };
        Self { path, now_ns: SECOND, runs: VecDeque::new(), report, senders, others: 0 }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Send(packets) => {
                let allowed = self.path.allowance_packets(self.now_ns, 0, PACKET_BYTES, packets);
                let packets = packets.min(allowed);
                if packets > 0 {
                    let bytes = u64::from(packets) * PACKET_BYTES;
                    self.path.on_sent(self.now_ns, 0, run(packets, bytes));
                    self.runs.push_back(packets);
                }
            }
            Operation::OutOfData => self.path.on_out_of_data(),
            Operation::Report { packets, lost_every, marked_every } => {
                let in_flight: u64 = self.runs.iter().map(|packets| u64::from(*packets)).sum();
                let covered = u64::from(packets).min(in_flight);
                let part = |every: u8| if every == 0 { 0 } else { covered.div_ceil(every.into()) };
                self.report.next_psn = (self.report.next_psn + covered as u32) & 0xFF_FFFF;
                self.report.received_packets += covered - part(lost_every);
                self.report.marked_packets += part(marked_every).min(covered - part(lost_every));
                self.hear();
            }
            Operation::Repeat => self.hear(),
            Operation::Wait(time_ns) => {
                self.now_ns += time_ns;
                let mut expired = false;
                while self.path.pop_expired(self.now_ns).is_some() {
                    expired = true;
                }
                if expired {
                    self.path.on_expired(self.now_ns);
                    self.sync();
                }
            }
            Operation::Rtt(rtt_ns) => self.path.on_rtt_sample(self.now_ns, rtt_ns),
            Operation::Other { begins: true } => {
                self.others += 1;
                self.senders.begin();
            }
            Operation::Other { begins: false } if self.others > 0 => {
                self.others -= 1;
                self.senders.end();
            }
            Operation::Other { .. } => {}
            Operation::Start(rate_bits_per_s) => {
                self.path.start_at(self.now_ns, StartRate { rate_bits_per_s });
            }
        }
        self.check(operation);
    }

    fn hear(&mut self) {
        let report = self.report;
        self.path.on_report(self.now_ns, &report);
        while self.path.pop_passed().is_some() {}
        self.path.end_report(self.now_ns);
        self.sync();
    }

    /// Forgets the runs that have left the flight.
    fn sync(&mut self) {
        let in_flight = self.path.in_flight_bytes() / PACKET_BYTES;
        let mut packets: u64 = self.runs.iter().map(|packets| u64::from(*packets)).sum();
        while packets > in_flight {
            packets -= u64::from(self.runs.pop_front().unwrap_or(0));
        }
        // What expired is not reported as missing by this peer: it starts behind it.
        let sent = self.path.next_psn(0);
        self.report.next_psn = (sent - packets) as u32 & 0xFF_FFFF;
    }

    fn window(&self) -> u64 {
        self.path.limits().window_bytes
    }

    fn check(&self, operation: Operation) {
        let controller = self.path.controller();
        let limits = controller.limits();
        assert_eq!(limits, self.path.limits(), "{operation:?}: {controller:?}");
        let (window, rate) = (limits.window_bytes, limits.rate_bits_per_s);
        assert!(window >= WIRE_BYTES, "{operation:?}: {controller:?}");
        assert!(window <= WINDOW_BYTES_MAX || window == u64::MAX, "{operation:?}: {controller:?}");
        assert!(rate.is_none_or(|rate| rate > 0), "{operation:?}: {controller:?}");
        assert!(limits.burst_bytes > 0, "{operation:?}: {controller:?}");
        let _ = controller.path_bytes(u64::MAX);
    }

    /// A round trip in which `share` of the window is sent and all of it delivered.
    fn round(&mut self, rtt_ns: u64, lost_every: u8) {
        self.apply(Operation::Wait(rtt_ns / 20));
        for _ in 0..19 {
            for _ in 0..64 {
                self.apply(Operation::Send(64));
            }
            self.apply(Operation::Wait(rtt_ns / 20));
        }
        while !self.runs.is_empty() {
            let packets = self.runs[0];
            self.apply(Operation::Report { packets, lost_every, marked_every: 0 });
        }
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (1..200u32).prop_map(Operation::Send),
        1 => Just(Operation::OutOfData),
        4 => (0..300u32, 0..40u8, 0..40u8).prop_map(|(packets, lost_every, marked_every)| {
            Operation::Report { packets, lost_every, marked_every }
        }),
        1 => Just(Operation::Repeat),
        3 => prop_oneof![Just(0), 1..100 * US, 1..100 * MS, 1..100 * SECOND].prop_map(Operation::Wait),
        1 => prop_oneof![Just(0), Just(u64::MAX), 1..SECOND].prop_map(Operation::Rtt),
        2 => any::<bool>().prop_map(|begins| Operation::Other { begins }),
        1 => any::<u64>().prop_map(Operation::Start),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_things_breaks_a_controller(list in prop::collection::vec(operation(), 1..300)) {
        for config in all(100_000_000) {
            let mut driver = Driver::new(config);
            for operation in &list {
                driver.apply(*operation);
            }
        }
    }
}

#[test]
fn an_idle_application_opens_no_window() {
    for config in finding() {
        let mut driver = Driver::new(config);
        driver.apply(Operation::Rtt(20 * MS));
        let before = driver.window();
        for _ in 0..2000 {
            driver.apply(Operation::Send(4));
            driver.apply(Operation::OutOfData);
            driver.apply(Operation::Wait(20 * MS));
            driver.apply(Operation::Report { packets: 4, lost_every: 0, marked_every: 0 });
        }
        assert!(driver.window() <= 2 * before, "{config:?}: {} after {before}", driver.window());
    }
}

#[test]
fn after_everything_was_lost_the_path_is_used_again() {
    for config in all(100_000_000) {
        let mut driver = Driver::new(config);
        driver.apply(Operation::Rtt(20 * MS));
        for _ in 0..10 {
            driver.round(20 * MS, 0);
        }
        for _ in 0..20 {
            driver.apply(Operation::Send(64));
            driver.apply(Operation::Wait(2 * SECOND));
        }
        let sent = driver.path.next_psn(0);
        for _ in 0..50 {
            driver.round(20 * MS, 0);
        }
        let packets = driver.path.next_psn(0) - sent;
        assert!(packets > 500, "{config:?}: {packets} packets in a second");
    }
}

#[test]
fn after_a_pause_the_rate_is_what_it_was_and_not_more() {
    for config in finding() {
        let mut driver = Driver::new(config);
        driver.apply(Operation::Rtt(20 * MS));
        for _ in 0..100 {
            driver.round(20 * MS, 0);
        }
        let before = driver.window();
        driver.apply(Operation::OutOfData);
        driver.apply(Operation::Wait(60 * SECOND));
        driver.apply(Operation::Send(10));
        assert!(driver.window() <= before, "{config:?}: {} after {before}", driver.window());
    }
}

#[test]
fn a_clock_that_stands_still_makes_no_rate_of_nothing() {
    for config in all(100_000_000) {
        let mut driver = Driver::new(config);
        for _ in 0..1000 {
            driver.apply(Operation::Send(64));
            driver.apply(Operation::Report { packets: 64, lost_every: 0, marked_every: 0 });
        }
    }
}
