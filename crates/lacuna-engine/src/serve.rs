//! A queue pair's turn: runs that it may send move to the channels.

use crate::books::State;
use crate::channel::address;
use crate::engine::Engine;
use crate::kinds::{Machine, Run};
use crate::locals::FEW_QUEUE_PAIRS;
use crate::time::Time;

impl<T: Time> Engine<T> {
    /// Lets one queue pair send data.
    pub(crate) fn serve(&mut self, now_ns: u64, number: u32) {
        let Some(local) = self.locals.get_mut(number) else { return };
        local.is_ready = false;
        local.unsettle(number, &mut self.unsettled);
        let is_due = std::mem::take(&mut local.is_due);
        let mut state = local.books.lock();
        let State { machine, addresses } = &mut *state;
        let qp = match machine {
            Machine::Sdr(qp) => qp,
            Machine::Reserved(_) | Machine::Probing(..) => return,
        };
        if is_due {
            qp.on_timeout(now_ns);
        }
        local.had_queued |= qp.has_queued();
        let agreed = qp.config().geometry.channels();
        let mtu_bytes = qp.payload_bytes_max();
        let packet_bytes = mtu_bytes + qp.config().geometry.overhead_bytes(false);
        let (mut goes_on, mut most_packets, mut burst_packets) = (false, 0, u32::MAX);
        for channel in self.channels.iter_mut().filter(|own| own.index < agreed) {
            let Some(to) = address(addresses, channel.index) else { continue };
            if channel.is_blocked {
                continue;
            }
            let bundle = channel.bundle(packet_bytes);
            qp.set_bundle(bundle);
            let mut left = channel.turn_packets;
            let with_rest = left + bundle - 1;
            if qp.queued_packets_on(channel.index, with_rest) <= with_rest {
                left = with_rest;
            }
            let most = left;
            while left > 0 && qp.has_queued_on(channel.index) {
                let Some(run) = qp.poll_run(now_ns, channel.index, left) else { break };
                // A run may exceed `left`, since a packet may be cut into several.
                left = left.saturating_sub(run.len() as u32);
                self.idle.moderation.on_sent(run.len() as u64 * u64::from(mtu_bytes));
                channel.packetizer.push(to, Run::Sdr(run), local.books.clone());
            }
            goes_on |= left == 0;
            most_packets = most_packets.max(most - left);
            burst_packets = burst_packets.min(channel.turn_packets);
        }
        drop(state);
        if most_packets > 0 {
            local.had_burst = most_packets >= burst_packets;
        }
        if goes_on {
            // The turn was too short for all its data.
            local.is_ready = true;
            self.ready.requeue(number, self.ready.len() >= FEW_QUEUE_PAIRS);
        }
    }
}
