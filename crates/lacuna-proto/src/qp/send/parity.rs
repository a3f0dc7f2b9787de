//! Chooses a message's parity in the mode `auto`, once all of its data are on the wire, from the
//! current estimate of the path.

use super::{Position, SendSide};
use crate::modes::auto::{AutoStats, Chooser, Chosen, Estimate, Question};
use lacuna_path::controller::Controller;
use lacuna_path::{IP_UDP_BYTES, Path};
use lacuna_place::parity::Layout;

impl SendSide {
    /// Chooses the parity of a message, if its mode is `auto` and all of its data are on the wire.
    pub(super) fn choose(&mut self, number: u64, path: &Path) {
        let (Some(chooser), Some(outgoing)) = (&mut self.chooser, self.messages.get_mut(number))
        else {
            return;
        };
        let is_sent = outgoing.queued == 0 && outgoing.withheld.is_none();
        let Some(machine) = outgoing.machine.deferred().filter(|_| is_sent) else {
            return;
        };
        let Some(tail) = machine.tail() else { return };
        let packet_bytes = self.geometry.mtu_bytes() + self.geometry.overhead_bytes(false);
        let choice = chooser.choose(Question {
            estimate: estimate(path),
            message_packets: self.geometry.packets(outgoing.len_bytes),
            tail_packets: tail.end - tail.start,
            rows: self.geometry.layout().map_or(1, Layout::chunk_packets),
            packet_bytes: u64::from(packet_bytes) + IP_UDP_BYTES,
            is_followed: !self.queues.is_empty()
                || !self.assigned.is_empty()
                || !self.waiting.is_empty(),
        });
        machine.choose(|_| choice.parity, choice.repair_copies);
        self.collect_runs(number, Position::AfterOwn);
    }

    /// Choices of the mode `auto`, if this is the mode.
    pub(crate) fn auto_stats(&self, path: &Path) -> Option<AutoStats> {
        self.chooser.as_ref().map(|chooser| chooser.stats(estimate(path)))
    }

    /// The newest choice, if it was not taken yet.
    pub(crate) fn take_choice(&mut self) -> Option<Chosen> {
        self.chooser.as_mut().and_then(Chooser::take_chosen)
    }
}

/// The current estimate of the path.
fn estimate(path: &Path) -> Estimate {
    let (loss, limits) = (path.loss(), path.limits());
    let rtt_ns = path.loss_detection_ns();
    let by_window = || {
        let bits = u128::from(limits.window_bytes) * 8_000_000_000;
        u64::try_from(bits / u128::from(rtt_ns.max(1))).unwrap_or(u64::MAX)
    };
    let rate = path.controller().found_bits_per_s().or(limits.rate_bits_per_s);
    Estimate {
        evidence_packets: loss.evidence_packets(),
        seen_packets: loss.seen_packets(),
        lost_packets: loss.lost_packets(),
        burst_packets: loss.burst_packets(),
        rtt_ns,
        rate_bits_per_s: rate.unwrap_or_else(by_window),
    }
}
