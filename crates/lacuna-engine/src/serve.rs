//! A queue pair's turn: runs that it may send move to the channels.

use crate::books::{Books, State};
use crate::channel::{Channel, address};
use crate::counters::Counters;
use crate::engine::Engine;
use crate::kinds::{Lane, LockedAnswers, Machine, RcPackets, RcRun, Run};
use crate::locals::{FEW_QUEUE_PAIRS, Local};
use crate::time::Time;
use lacuna_lowar::Shared;
use lacuna_wire::rc::RC_HEADER_BYTES_MAX;
use std::sync::Arc;

impl<T: Time> Engine<T> {
    /// Lets one queue pair send data.
    pub(crate) fn serve(&mut self, now_ns: u64, number: u32) {
        let Some(local) = self.locals.get_mut(number) else { return };
        local.is_ready = false;
        local.unsettle(number, &mut self.unsettled);
        let is_due = std::mem::take(&mut local.is_due);
        if matches!(local.lanes.first(), Some(Lane::Rc(_))) {
            return self.serve_rc(now_ns, number, is_due);
        }
        let mut state = local.books.lock();
        let State { machine, addresses, .. } = &mut *state;
        let qp = match machine {
            Machine::Sdr(qp) => qp,
            // Without a lane there is nothing to send from here.
            Machine::Rc(_) | Machine::Reserved(_) | Machine::Probing(..) => return,
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

impl<T: Time> Engine<T> {
    /// The same of a reliable connection.
    fn serve_rc(&mut self, now_ns: u64, number: u32, is_due: bool) {
        let Some(Local { books, lanes, is_ready, .. }) = self.locals.get_mut(number) else {
            return;
        };
        let (counters, repair_memory) = (&self.counters, &mut *self.repair_memory);
        let turn = RcTurn { now_ns, is_due, books, counters, repair_memory };
        if serve_rc(turn, lanes, &mut self.channels) {
            *is_ready = true;
            self.ready.requeue(number, self.ready.len() >= FEW_QUEUE_PAIRS);
        }
    }
}

/// What an engine has for the turn of a reliable connection.
struct RcTurn<'e> {
    now_ns: u64,
    is_due: bool,
    books: &'e Arc<Books>,
    counters: &'e Counters,
    repair_memory: &'e mut Shared,
}

/// Lets a reliable connection send; whether the turn was too short for all that it has. Packets that go
/// through a shim are made outside of the lock.
fn serve_rc(turn: RcTurn<'_>, lanes: &mut [Lane], channels: &mut [Channel]) -> bool {
    let RcTurn { now_ns, is_due, books, counters, repair_memory } = turn;
    let own = lanes.iter_mut().enumerate().find_map(|(at, lane)| match lane {
        Lane::Rc(own) => Some((at, &mut own.lane)),
        Lane::Sdr(_) => None,
    });
    let Some((position, lane)) = own else { return false };
    let Some(channel) = channels.get_mut(position) else { return false };
    if is_due {
        lane.on_timeout(now_ns, repair_memory, &mut LockedAnswers::new(now_ns, books, counters));
    }
    let (seal, index) = (books.seal(), channel.index);
    let mut state = books.lock();
    let State { machine: Machine::Rc(qp), addresses, .. } = &mut *state else { return false };
    qp.on_taken(now_ns, lane.taken());
    if is_due {
        qp.on_timeout(now_ns);
    }
    let Some(to) = address(addresses, channel.index) else { return false };
    if channel.is_blocked {
        return false;
    }
    let packet_bytes = qp.config().mtu_bytes as usize + RC_HEADER_BYTES_MAX + seal.bytes();
    channel.bundle(packet_bytes as u32);
    if let Some(request) = qp.peer().and_then(|peer| lane.poll_request(now_ns, peer.number, seal)) {
        let packets = RcPackets::Coded(request);
        let run = RcRun { packets, seal, channel: index, takes_marks: false };
        channel.packetizer.push(to, Run::Rc(Box::new(run)), books.clone());
    }
    let mut left = channel.turn_packets;
    let takes_marks = qp.takes_marks();
    let run_of = |packets| Run::Rc(Box::new(RcRun { packets, seal, channel: index, takes_marks }));
    let encodes = lane.encodes();
    let mut to_encode = Vec::new();
    while left > 0 {
        let run = qp.poll_answer(now_ns, left).or_else(|| qp.poll_request(now_ns, left));
        let Some(run) = run else { break };
        left = left.saturating_sub(run.len() as u32);
        match encodes {
            true => to_encode.push(run),
            false => channel.packetizer.push(to, run_of(RcPackets::Run(run)), books.clone()),
        }
    }
    drop(state);
    for run in to_encode {
        let coded = lane.encode(repair_memory, &run, seal);
        channel.packetizer.push(to, run_of(RcPackets::Coded(coded)), books.clone());
    }
    left == 0
}
