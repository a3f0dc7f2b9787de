//! Repairs that wait to be put on the wire, and are acknowledged meanwhile: they are not sent.
//!
//! In the dark everything on its way expires, and waits for the window to open again. What the peer's
//! first word then says it has, because only its reports were lost, is up to half of a round trip of
//! the rate; it all went out again before anything new.

use super::SendSide;
use lacuna_path::Path;

impl SendSide {
    /// Packets in a row that `channel` has to send next, once what was acknowledged is forgotten.
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
