//! A queue pair's turn: runs that it may send move to the channels.

use crate::books::{Books, State};
use crate::channel::{Channel, address};
use crate::engine::Engine;
use crate::kinds::{Lane, Machine, RcRun, Run};
use crate::locals::FEW_QUEUE_PAIRS;
use crate::time::Time;
use core::net::SocketAddr;
use lacuna_wire::rc::RC_HEADER_BYTES_MAX;
use std::sync::Arc;

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
            Machine::Rc(qp) => {
                let goes_on = serve_rc(
                    now_ns,
                    is_due,
                    (qp, addresses),
                    (&local.books, &local.lanes),
                    &mut self.channels,
                );
                drop(state);
                if goes_on {
                    local.is_ready = true;
                    self.ready.requeue(number, self.ready.len() >= FEW_QUEUE_PAIRS);
                }
                return;
            }
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

/// Lets a reliable connection send; whether the turn was too short for all that it has.
fn serve_rc(
    now_ns: u64,
    is_due: bool,
    (qp, addresses): (&mut lacuna_rc::QueuePair, &[Option<SocketAddr>]),
    (books, lanes): (&Arc<Books>, &[Lane]),
    channels: &mut [Channel],
) -> bool {
    if is_due {
        qp.on_timeout(now_ns);
    }
    let lane = lanes.iter().position(|lane| matches!(lane, Lane::Rc(_)));
    let Some(channel) = lane.and_then(|position| channels.get_mut(position)) else { return false };
    let Some(to) = address(addresses, channel.index) else { return false };
    if channel.is_blocked {
        return false;
    }
    let seal = books.seal();
    let packet_bytes = qp.config().mtu_bytes as usize + RC_HEADER_BYTES_MAX + seal.bytes();
    channel.bundle(packet_bytes as u32);
    let mut left = channel.turn_packets;
    while left > 0 {
        let run = qp.poll_answer(now_ns, left).or_else(|| qp.poll_request(now_ns, left));
        let Some(run) = run else { return false };
        left = left.saturating_sub(run.len() as u32);
        let run = Run::Rc(Box::new(RcRun { run, seal, channel: channel.index }));
        channel.packetizer.push(to, run, books.clone());
    }
    true
}
