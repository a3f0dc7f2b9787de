//! Probes for bandwidth when half of the flows from this host to the same peer have finished.
//!
//! A flow that starts with many siblings finds its share of the path. After they have finished,
//! ordinary probing asks for a quarter more every few dozen round trips, which takes long for the
//! last of a thousand (Measured: M-bbr-1). The host knows how many siblings have data in flight.
//! When this number is half of that at the flow's last doubling, and there is no queue, the flow
//! probes upwards at once [5.3.3] and doubles as in Startup [5.3.1], until there is a queue or the
//! rate stops growing.
//!
//! Two rules keep this from disturbing others. Siblings that now and then send a little free no
//! bandwidth: a flow that has probed beside as few siblings, and found less than twice its rate,
//! does not double. And siblings that come back would find their share taken each time: beside as
//! many as at its last doubling, a flow waits as long as between two probings.

/// Time between two doublings beside as many others: as between two probings [5.3.3.5.3].
const AGAIN_NS: u64 = 2_000_000_000;

/// Observer of sibling flows.
#[derive(Debug, Clone, Default)]
pub(super) struct SiblingFlows {
    /// Flows to the same peer that have anything in flight, this one among them.
    flows: u32,
    /// The most of them since this one last doubled.
    flows_max: u32,
    /// The rate that probing has found, and the smallest number of flows then.
    found: Option<(u64, u32)>,
    /// When it last doubled, and the number of flows then.
    last: Option<(u64, u32)>,
    is_doubling: bool,
}

impl SiblingFlows {
    pub(super) fn set_flows(&mut self, flows: u32) {
        self.flows = flows;
    }

    pub(super) fn begin_doubling(&mut self, now_ns: u64) {
        self.is_doubling = true;
        self.last = Some((now_ns, self.flows));
    }

    /// Whether the flow doubles because siblings have finished.
    pub(super) fn is_doubling(&self) -> bool {
        self.is_doubling
    }

    /// Whether there are siblings.
    pub(super) fn has_any(&self) -> bool {
        self.flows > 1
    }

    /// Probing upwards has ended with this rate.
    pub(super) fn on_probed(&mut self, rate: u64) {
        self.is_doubling = false;
        self.found = Some(match self.found {
            Some((found, beside)) if rate >= found / 10 * 9 => {
                (rate.max(found), beside.min(self.flows))
            }
            _ => (rate, self.flows),
        });
    }

    /// Takes in a report. A flow that is still beginning doubles anyway.
    pub(super) fn on_report(&mut self, is_probing_up: bool, is_beginning: bool) {
        self.is_doubling &= is_probing_up;
        let anew = is_beginning || self.is_doubling;
        self.flows_max = if anew { self.flows } else { self.flows_max.max(self.flows) };
    }

    /// Whether twice the rate may be free.
    pub(super) fn have_left_room(&self, now_ns: u64, rate: u64) -> bool {
        let is_known =
            self.found.is_some_and(|(found, beside)| self.flows >= beside && rate > found / 2);
        let is_again = self.last.is_some_and(|(last_ns, beside)| {
            self.flows >= beside && now_ns.saturating_sub(last_ns) < AGAIN_NS
        });
        self.flows <= self.flows_max / 2 && !is_known && !is_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was probed beside how many, the first as it began; the last is not probed.
    fn siblings(probed: &[(u64, u32)], flows: u32) -> SiblingFlows {
        let mut siblings = SiblingFlows::default();
        for (index, (rate, flows)) in probed.iter().enumerate() {
            siblings.set_flows(*flows);
            siblings.on_report(true, index == 0);
            siblings.on_probed(*rate);
        }
        siblings.set_flows(flows);
        siblings.on_report(true, false);
        siblings
    }

    #[test]
    fn half_of_the_others_leave_room() {
        assert!(siblings(&[(10, 100)], 50).have_left_room(0, 10));
        assert!(!siblings(&[(10, 100)], 51).have_left_room(0, 10));
        assert!(!siblings(&[(10, 1)], 1).have_left_room(0, 10), "nobody was there");
        assert!(siblings(&[(10, 1), (4, 100)], 50).have_left_room(0, 4), "they came later");
    }

    #[test]
    fn who_has_had_the_path_looks_for_no_more_of_it() {
        let messages_beside_a_bulk = [(100, 1), (99, 2)];
        assert!(!siblings(&messages_beside_a_bulk, 1).have_left_room(0, 98));
        let a_share_since = [(100, 1), (50, 2)];
        assert!(siblings(&a_share_since, 1).have_left_room(0, 50));
        assert!(siblings(&[(100, 8)], 2).have_left_room(0, 100), "six have left their parts");
    }

    #[test]
    fn it_doubles_once_for_each_half_that_leaves() {
        let mut siblings = siblings(&[(10, 100)], 50);
        assert!(siblings.have_left_room(0, 10));
        siblings.begin_doubling(0);
        siblings.set_flows(40);
        siblings.on_report(true, false);
        siblings.on_probed(20);
        siblings.on_report(true, false);
        assert!(!siblings.have_left_room(0, 20));
        siblings.set_flows(20);
        siblings.on_report(true, false);
        assert!(siblings.have_left_room(0, 20));
    }

    #[test]
    fn where_others_come_back_each_time_it_doubles_now_and_then() {
        let mut siblings = siblings(&[(100, 1), (20, 5)], 1);
        let mut leave_again = |now_ns| {
            for flows in [5, 1] {
                siblings.set_flows(flows);
                siblings.on_report(true, false);
            }
            let have_left = siblings.have_left_room(now_ns, 20);
            if have_left {
                siblings.begin_doubling(now_ns);
                siblings.on_report(true, false);
                siblings.is_doubling = false;
            }
            have_left
        };
        assert!(leave_again(0));
        assert!(!leave_again(AGAIN_NS - 1));
        assert!(leave_again(AGAIN_NS));
    }
}
