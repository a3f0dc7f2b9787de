//! Drains a queue that came within one round trip.
//!
//! Such a queue means that a host stood still: the sender's, which then made up for it, or one on
//! the path, where packets gathered. No flow that probes makes a queue of half the path within a
//! round trip, so the queue is nobody's share, and the flow drains it at once, for a few rounds. A
//! queue that grew slowly may be that of other flows: it is left to the cycle of probing and to
//! `competing_flows.rs`, which would take a sudden queue for that of competitors, too. Measured:
//! M-bbr-10.

/// A sudden queue makes a round trip longer, within two rounds, by more than half of the path's
const SUDDEN_QUEUE_PART: u64 = 2;
/// Most rounds that it takes to drain; what is left then is that of competitors.
const ROUNDS_MAX: u32 = 6;
/// Rounds within which a sustained queue must show: then round trips stay longer, and it was not
/// only a bunch of late reports.
const SHOWS_ROUNDS: u32 = 3;

/// Observer of sudden queues.
#[derive(Debug, Clone, Default)]
pub(super) struct SuddenQueue {
    /// The shortest round trip of this round, and of the one before.
    least_ns: (Option<u64>, Option<u64>),
    /// Rounds since round trips suddenly became longer.
    came: Option<u32>,
    /// Rounds since the queue began to drain.
    drains: Option<u32>,
}

impl SuddenQueue {
    /// `is_drained`: no more is in flight than the path holds.
    pub(super) fn on_report(
        &mut self,
        rtt_ns: Option<u64>,
        min_rtt_ns: u64,
        is_round_start: bool,
        has_queue: bool,
        is_drained: bool,
    ) {
        if is_round_start {
            self.least_ns = (None, self.least_ns.0);
            self.came = self.came.map(|rounds| rounds + 1).filter(|rounds| *rounds < SHOWS_ROUNDS);
            self.drains =
                self.drains.map(|rounds| rounds + 1).filter(|rounds| *rounds < ROUNDS_MAX);
        }
        if let Some(rtt_ns) = rtt_ns {
            let least_ns = self.least_ns.0.into_iter().chain(self.least_ns.1).min();
            if least_ns.is_some_and(|least_ns| rtt_ns > least_ns + min_rtt_ns / SUDDEN_QUEUE_PART) {
                self.came = Some(0);
            }
            self.least_ns.0 = Some(self.least_ns.0.map_or(rtt_ns, |least_ns| least_ns.min(rtt_ns)));
        }
        if !has_queue || is_drained {
            self.drains = None;
        } else if self.came.take().is_some() {
            self.drains = Some(0);
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.drains.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH_NS: u64 = 1_000_000;

    /// A flow over a path of [`PATH_NS`] that takes three long round trips for a queue.
    #[derive(Default)]
    struct Flow {
        sudden_queue: SuddenQueue,
        queued_samples: u32,
    }

    impl Flow {
        fn report(&mut self, rtt_us: u64, is_round_start: bool, is_drained: bool) {
            self.queued_samples = if rtt_us > 1200 { self.queued_samples + 1 } else { 0 };
            let has_queue = self.queued_samples >= 3;
            let rtt_ns = Some(rtt_us * 1000);
            self.sudden_queue.on_report(rtt_ns, PATH_NS, is_round_start, has_queue, is_drained);
        }

        /// A round of four reports; whether the queue drains then.
        fn round(&mut self, rtt_us: u64) -> bool {
            for report in 0..4 {
                self.report(rtt_us, report == 0, false);
            }
            self.sudden_queue.is_draining()
        }
    }

    #[test]
    fn a_queue_that_came_within_a_round_trip_drains_for_some_rounds_and_once() {
        let mut flow = Flow::default();
        assert!(!flow.round(1000));
        assert!(!flow.round(1100));
        for _ in 0..ROUNDS_MAX {
            assert!(flow.round(2000));
        }
        assert!(!flow.round(2000), "others keep it");
        assert!(!flow.round(1000));
        assert!(flow.round(1600), "another");
        assert!(!flow.round(1100), "it is gone");
    }

    #[test]
    fn a_queue_that_grows_is_left_to_who_probes() {
        let mut flow = Flow::default();
        for rtt_us in (1000..4000).step_by(200) {
            assert!(!flow.round(rtt_us));
        }
    }

    #[test]
    fn reports_that_came_late_in_a_bunch_drain_nothing() {
        let mut flow = Flow::default();
        flow.round(1000);
        flow.report(3000, true, false);
        for _ in 0..SHOWS_ROUNDS {
            assert!(!flow.round(1000));
        }
        for rtt_us in [1300, 1500] {
            assert!(!flow.round(rtt_us), "it was long ago");
        }
    }

    #[test]
    fn what_is_in_flight_tells_when_it_is_enough() {
        let mut flow = Flow::default();
        flow.round(1000);
        assert!(flow.round(2000));
        flow.report(2000, false, true);
        assert!(!flow.sudden_queue.is_draining());
    }
}
