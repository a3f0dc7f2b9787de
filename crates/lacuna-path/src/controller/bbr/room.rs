//! Room that others of this end leave.
//!
//! A flow that begins with many others to the same peer finds its share of the path, and
//! where they have ended probing asks for a quarter more every few dozen round trips: of a
//! thousand connections that began at once the last went on at two packets a round trip,
//! over an empty path. How many of them still have anything in flight is known here. So
//! when half of those are gone that there were when the flow last doubled, and no queue
//! stands, it probes upwards now [5.3.3], and as in Startup [5.3.1]: doubling until a queue
//! stands or nothing is gained.
//!
//! Others that send little now and then come and go without leaving anything. A flow that
//! has probed beside as few, and found less than twice its rate, has nothing to look for. And
//! where those that send more come back, they find their part taken each time: beside as
//! many as at the last time it doubles only after as long as between two probings.

use super::{Bbr, MIN_PACKETS, Others, Sample, State};
use crate::delivery::rate_of;

/// Time between two doublings beside as many others: as between two probings [5.3.3.5.3].
const AGAIN_NS: u64 = 2_000_000_000;

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(super) struct Room {
    /// Flows to the same peer that have anything in flight, this one among them.
    flows: u32,
    /// The most of them since this one last doubled.
    flows_max: u32,
    /// What probing has found, and beside how few of them.
    found: Option<(u64, u32)>,
    /// When it last doubled, and beside how many.
    last: Option<(u64, u32)>,
    is_doubling: bool,
}

impl Room {
    pub(super) fn set_flows(&mut self, flows: u32) {
        self.flows = flows;
    }

    fn begin_doubling(&mut self, now_ns: u64) {
        self.is_doubling = true;
        self.last = Some((now_ns, self.flows));
    }

    /// Probing upwards has come to its end.
    pub(super) fn on_probed(&mut self, rate: u64) {
        self.is_doubling = false;
        self.found = Some(match self.found {
            Some((found, beside)) if rate >= found / 10 * 9 => {
                (rate.max(found), beside.min(self.flows))
            }
            _ => (rate, self.flows),
        });
    }

    /// A flow that begins doubles anyway.
    fn on_report(&mut self, is_beginning: bool) {
        let anew = is_beginning || self.is_doubling;
        self.flows_max = if anew { self.flows } else { self.flows_max.max(self.flows) };
    }

    /// Whether there may be twice as much to have.
    fn is_left(&self, now_ns: u64, rate: u64) -> bool {
        let is_known =
            self.found.is_some_and(|(found, beside)| self.flows >= beside && rate > found / 2);
        let is_again = self.last.is_some_and(|(last_ns, beside)| {
            self.flows >= beside && now_ns.saturating_sub(last_ns) < AGAIN_NS
        });
        self.flows <= self.flows_max / 2 && !is_known && !is_again
    }
}

impl Bbr {
    /// Begins to double if others have left room.
    pub(super) fn check_room(&mut self, sample: &Sample) {
        if self.state != State::Up {
            self.room.is_doubling = false;
        }
        let rate = self.max_bandwidth.get();
        let is_beginning = !self.full.is_reached() || self.start.is_active();
        self.room.on_report(is_beginning);
        let is_quiet = !self.congestion.has_queue() && self.crowd.others() == Others::Unseen;
        let may_double = self.state.is_probe_bw() && !is_beginning && !self.is_short();
        if may_double && is_quiet && self.room.is_left(sample.now_ns, rate) {
            self.reset_shortterm();
            self.longterm_bytes = None;
            self.start_up(sample);
            self.room.begin_doubling(sample.now_ns);
        }
    }

    /// What a flow among others of this end is paced at, at least: the smallest window
    /// [2.7] in a round trip, the queue counted, so that a crowd slows itself down. The
    /// estimate falls below it where a crowd's queue overflows again and again, and one
    /// packet in a round trip finds nothing.
    pub(super) fn least_among_others(&self) -> u64 {
        match self.room.flows > 1 && self.smoothed_rtt_ns > 0 {
            true => rate_of(MIN_PACKETS * self.packet_bytes, self.smoothed_rtt_ns),
            false => 0,
        }
    }

    /// Whether it doubles now, in whichever state.
    pub(super) fn is_doubling(&self) -> bool {
        self.state == State::Startup || self.room.is_doubling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was probed beside how many, the first as it began; the last is not probed.
    fn room(probed: &[(u64, u32)], flows: u32) -> Room {
        let mut room = Room::default();
        for (index, (rate, flows)) in probed.iter().enumerate() {
            room.set_flows(*flows);
            room.on_report(index == 0);
            room.on_probed(*rate);
        }
        room.set_flows(flows);
        room.on_report(false);
        room
    }

    #[test]
    fn half_of_the_others_leave_room() {
        assert!(room(&[(10, 100)], 50).is_left(0, 10));
        assert!(!room(&[(10, 100)], 51).is_left(0, 10));
        assert!(!room(&[(10, 1)], 1).is_left(0, 10), "nobody was there");
        assert!(room(&[(10, 1), (4, 100)], 50).is_left(0, 4), "they came later");
    }

    #[test]
    fn who_has_had_the_path_looks_for_no_more_of_it() {
        let messages_beside_a_bulk = [(100, 1), (99, 2)];
        assert!(!room(&messages_beside_a_bulk, 1).is_left(0, 98));
        let a_share_since = [(100, 1), (50, 2)];
        assert!(room(&a_share_since, 1).is_left(0, 50));
        assert!(room(&[(100, 8)], 2).is_left(0, 100), "six have left their parts");
    }

    #[test]
    fn it_doubles_once_for_each_half_that_leaves() {
        let mut room = room(&[(10, 100)], 50);
        assert!(room.is_left(0, 10));
        room.begin_doubling(0);
        room.set_flows(40);
        room.on_report(false);
        room.on_probed(20);
        room.on_report(false);
        assert!(!room.is_left(0, 20));
        room.set_flows(20);
        room.on_report(false);
        assert!(room.is_left(0, 20));
    }

    #[test]
    fn where_others_come_back_each_time_it_doubles_now_and_then() {
        let mut room = room(&[(100, 1), (20, 5)], 1);
        let mut leave_again = |now_ns| {
            for flows in [5, 1] {
                room.set_flows(flows);
                room.on_report(false);
            }
            let is_left = room.is_left(now_ns, 20);
            if is_left {
                room.begin_doubling(now_ns);
                room.on_report(false);
                room.is_doubling = false;
            }
            is_left
        };
        assert!(leave_again(0));
        assert!(!leave_again(AGAIN_NS - 1));
        assert!(leave_again(AGAIN_NS));
    }
}
