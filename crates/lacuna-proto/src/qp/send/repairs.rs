//! Drops queued repairs that were acknowledged before they were sent.
//!
//! During an outage all runs in flight expire and are queued as repairs. The peer's first report
//! after it may show that many of them had arrived, up to half a round trip's worth, because only
//! the reports were lost. Without this check, all of them would be sent again before new data.

use super::SendSide;
use lacuna_path::Path;

impl SendSide {
    /// Packets in a row that `channel` has to send next, after dropping what was acknowledged.
    pub(super) fn next_packets(&mut self, channel: u8, path: &Path) -> u32 {
        while let Some((number, run)) = self.queues.next_repair(channel) {
            let Some(outgoing) = self.messages.get_mut(number) else { break };
            let missing = outgoing.machine.missing(run.clone());
            if missing.start == run.start && !missing.is_empty() {
                return missing.end - missing.start;
            }
            let skipped =
                if missing.is_empty() { run.len() as u32 } else { missing.start - run.start };
            let Some(taken) = self.queues.take(channel, skipped) else { break };
            if taken.is_last {
                self.on_last_taken(number, path);
                self.build_next();
            }
        }
        self.queues.next_packets(channel)
    }
}
