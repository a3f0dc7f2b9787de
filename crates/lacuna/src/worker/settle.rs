//! What is left to do for a queue pair in a step, once data have left: to tell the peer,
//! this end's other workers and the application, and to note when it wants to be called.

use super::{BLOCKED_RETRY_NS, Channel, Worker, address};
use crate::clock::Clock;
use crate::shared::{Machine, Shared, State};
use lacuna_proto::modes::auto;
use lacuna_proto::probe::Prober;
use lacuna_proto::qp::{Narrowed, QueuePair};
use lacuna_wire::ControlWriter;
use std::cmp::Reverse;
use std::net::SocketAddr;

/// What is left of a queue pair's turn once its lock is let go.
#[derive(Debug, Default)]
struct Settled {
    /// An application may be waiting for what happened.
    news: bool,
    /// When it wants to be served again.
    due_ns: Option<u64>,
    /// What the mode `auto` chose meanwhile.
    choice: Option<auto::Chosen>,
    /// How long it may be left alone.
    rest_ns: u64,
    /// Its peer is so near that to wait for it awake pays.
    is_near: bool,
}

impl Worker {
    /// What is left to do for a queue pair that had a turn or got something, now that
    /// data have left: to tell the peer, this end's other workers and the application.
    pub(super) fn settle(&mut self, now_ns: u64, number: u32) {
        let Some(local) = self.locals.get_mut(number) else { return };
        local.is_unsettled = false;
        let had_queued = std::mem::take(&mut local.had_queued);
        let shared = &local.shared;
        let mut teller = Teller {
            index: self.index,
            clock: self.clock,
            channels: &mut self.channels,
            writer: &mut self.writer,
        };
        let settled = {
            let mut state = shared.lock();
            let State { machine, addresses } = &mut *state;
            match machine {
                Machine::Reserved(_) => Settled::default(),
                Machine::Probing(prober, _) => teller.serve_prober(now_ns, prober, addresses),
                Machine::Connected(qp) => {
                    teller.settle_connected(now_ns, qp, addresses, shared, had_queued)
                }
            }
        };
        if settled.news {
            shared.notify();
        }
        let before_ns = std::mem::replace(&mut local.rest_ns, settled.rest_ns);
        let was_near = std::mem::replace(&mut local.is_near, settled.is_near);
        self.rest.change(Some(before_ns), Some(settled.rest_ns));
        self.spin.change(was_near, settled.is_near);
        match settled.choice {
            Some(choice) if choice.is_new => tracing::info!(number, "auto: {choice}"),
            Some(choice) => tracing::debug!(number, "auto, as before: {choice}"),
            None => {}
        }
        self.call_at(now_ns, number, settled.due_ns);
    }

    /// Calls a queue pair again at `due_ns`, with a turn if its time has come.
    fn call_at(&mut self, now_ns: u64, number: u32, due_ns: Option<u64>) {
        let Some(local) = self.locals.get_mut(number) else { return };
        local.is_due &= due_ns.is_some_and(|due_ns| due_ns <= now_ns);
        if local.is_due {
            self.make_ready(number);
        } else if local.due_ns != due_ns {
            local.due_ns = due_ns;
            if let Some(due_ns) = due_ns {
                self.timers.push(Reverse((due_ns, number)));
            }
        }
    }
}

/// What of a worker it takes to tell a peer.
struct Teller<'w> {
    index: usize,
    clock: Clock,
    channels: &'w mut [Channel],
    writer: &'w mut ControlWriter,
}

impl Teller<'_> {
    fn serve_prober(
        &mut self,
        now_ns: u64,
        prober: &mut Prober,
        addresses: &[Option<SocketAddr>],
    ) -> Settled {
        let channels = &mut *self.channels;
        loop {
            let owns = |channel| channels.iter().any(|own| own.index == channel);
            let packet = prober.poll_control(now_ns, owns, self.writer);
            let Some((channel, packet)) = packet else { break };
            let own = channels.iter_mut().find(|own| own.index == channel);
            if let (Some(own), Some(to)) = (own, address(addresses, channel)) {
                own.send_control(now_ns, to, packet);
            }
        }
        // Whoever waits for the outcome looks at the prober himself.
        Settled { news: true, due_ns: prober.poll_timeout(), ..Settled::default() }
    }

    // A message of 64 bytes takes 1 % more instructions where this is a call.
    #[inline(always)]
    fn settle_connected(
        &mut self,
        now_ns: u64,
        qp: &mut QueuePair,
        addresses: &[Option<SocketAddr>],
        shared: &Shared,
        had_queued: bool,
    ) -> Settled {
        let agreed = qp.config().geometry.channels();
        qp.on_polled(now_ns);
        let owned = self.owned(agreed);
        if owned == 0 {
            return Settled::default();
        }
        if !shared.can_place() {
            // The application may wait for it all the same: for a failure, say.
            return Settled { news: qp.take_news(), ..Settled::default() };
        }
        if shared.has_too_large() | qp.has_new_size() {
            self.settle_size(now_ns, qp, addresses, shared);
        }
        // What was flushed just now is behind a flush that speaks of it.
        shared.tell_handed(qp);
        // What came here may have queued runs, or opened the window, for
        // channels that only other workers can send on. And when this worker
        // sent the last of it, the others may have something to ask for.
        let waits = (0..agreed).any(|c| owned >> c & 1 == 0 && qp.has_queued_on(c));
        if waits || (had_queued && !qp.has_queued()) {
            shared.kick_others(self.index);
        }
        let is_blocked = self.channels.iter().any(|own| own.index < agreed && own.is_blocked);
        let mut due_ns = qp.poll_timeout_on(owned);
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            // Later than what was flushed, of which it speaks.
            let now_ns = self.clock.now_ns();
            for channel in self.channels.iter_mut().filter(|own| own.index < agreed) {
                let Some(to) = address(addresses, channel.index) else { continue };
                while let Some(packet) = qp.poll_control(now_ns, channel.index, self.writer) {
                    channel.send_control(now_ns, to, packet);
                }
            }
            due_ns = qp.poll_timeout_on(owned);
        }
        let due_ns = later(due_ns, now_ns, is_blocked);
        Settled {
            due_ns,
            rest_ns: qp.rest_ns(),
            is_near: qp.is_short_path(),
            choice: qp.take_choice(),
            news: qp.take_news(),
        }
    }

    /// Tells a queue pair whose full packets do not seem to pass what this host has refused, and
    /// what it knows of the route; and everybody what became of that.
    #[cold]
    fn settle_size(
        &self,
        now_ns: u64,
        qp: &mut QueuePair,
        addresses: &[Option<SocketAddr>],
        shared: &Shared,
    ) {
        if let Some(packet_bytes) = shared.take_too_large() {
            qp.on_too_large(now_ns, packet_bytes as u32);
        }
        if qp.take_route_question() {
            let known = self
                .channels
                .iter()
                .find_map(|own| own.datapath.route_packet_bytes(address(addresses, own.index)?));
            if let Some(packet_bytes) = known {
                qp.on_route_mtu(now_ns, packet_bytes.try_into().unwrap_or(u32::MAX));
            }
        }
        if let Some(Narrowed { before_bytes, packet_bytes }) = qp.take_narrowed() {
            tracing::info!(
                "the path takes packets of no more than {packet_bytes} bytes, where {before_bytes} \
                 were agreed on or found before: longer ones go in pieces"
            );
        }
    }

    /// The channels of this worker below `agreed`, which both ends have; a mask.
    fn owned(&self, agreed: u8) -> u32 {
        let owned = self.channels.iter().filter(|own| own.index < agreed);
        owned.fold(0, |owned, own| owned | 1 << own.index)
    }
}

/// What waits for the way out to be free again is served when it is.
fn later(due_ns: Option<u64>, now_ns: u64, is_blocked: bool) -> Option<u64> {
    if !is_blocked {
        return due_ns;
    }
    due_ns.map(|due_ns| due_ns.max(now_ns + BLOCKED_RETRY_NS))
}
