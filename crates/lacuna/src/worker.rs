//! A worker: drives an [`Engine`], which serves some channels and all queue pairs on them.
//!
//! The engine leaves to the worker: commands of other threads ([`Inbox`]), the clock, sleeping and
//! waking, and signalling the application. The same step runs on the worker's thread or, with
//! manual progress, in the application's calls.

#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::inbox::{Command, Inbox};
use crate::shared::Shared;
use crate::told::Told;
use lacuna_datapath::{Datapath, Waiter};
use lacuna_engine::idle::Look;
use lacuna_engine::{Counters, Engine, Event, Time};
use lacuna_proto::qp;
use lacuna_secure::Secret;
use std::sync::Arc;
use std::time::Duration;

impl Time for Clock {
    #[inline]
    fn now_ns(&self) -> u64 {
        Self::now_ns(*self)
    }
}

/// A worker and its engine.
pub(crate) struct Worker {
    clock: Clock,
    engine: Engine<Clock>,
    owners: Owners,
    inbox: Arc<Inbox>,
    commands: Vec<Command>,
    waiter: Waiter,
    told: Told,
    stopped: bool,
}

/// The handles that a worker signals when its engine reports an event.
struct Owners {
    /// Index of this worker in the context.
    worker: usize,
    /// The queue pairs by number.
    by_number: Vec<Option<Arc<Shared>>>,
    /// Per channel: the last error of reading its socket, so that each is logged once.
    told: Vec<Told>,
}

impl Worker {
    pub(crate) fn new(
        index: usize,
        clock: Clock,
        datapaths: Vec<(u8, Box<dyn Datapath>)>,
        inbox: Arc<Inbox>,
        waiter: Waiter,
        spin: Duration,
        secret: Secret,
    ) -> Self {
        let channels = datapaths.iter().map(|(channel, _)| usize::from(*channel) + 1).max();
        let told = (0..channels.unwrap_or(0)).map(|_| Told::default()).collect();
        Self {
            clock,
            engine: Engine::new(clock, datapaths, spin, secret),
            owners: Owners { worker: index, by_number: Vec::new(), told },
            inbox,
            commands: Vec::new(),
            waiter,
            told: Told::default(),
            stopped: false,
        }
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        self.engine.counters().clone()
    }

    /// The worker's thread: runs until [`Command::Stop`].
    pub(crate) fn run(&mut self) {
        while !self.stopped {
            self.step_or_wait(None);
        }
    }

    /// One step, then the wait that the idle policy asks for, at most `limit`.
    pub(crate) fn step_or_wait(&mut self, limit: Option<Duration>) {
        let worked = self.step();
        match self.engine.look(worked) {
            Look::Now => {}
            Look::Spin => std::hint::spin_loop(),
            Look::After(wait_ns) => self.leave_alone(Duration::from_nanos(wait_ns), limit),
            Look::Sleep => {
                let since_ns = self.clock.now_ns();
                self.sleep(limit);
                self.engine.on_slept(self.clock.now_ns() - since_ns);
            }
        }
    }

    /// Does not poll the sockets for `wait`. A command ends the wait early.
    fn leave_alone(&mut self, wait: Duration, limit: Option<Duration>) {
        let wait = limit.map_or(wait, |limit| limit.min(wait));
        if let Err(error) = self.waiter.wait(std::iter::empty(), Some(wait))
            && self.told.is_news(&error)
        {
            tracing::error!(%error, "cannot wait");
        }
    }

    /// Sleeps until a packet, a command or a timer, at most `limit`.
    fn sleep(&mut self, limit: Option<Duration>) {
        self.engine.count_drops();
        let event = self.engine.next_event_ns().map(|event_ns| self.clock.until(event_ns));
        let timeout = match (event, limit) {
            (Some(event), Some(limit)) => Some(event.min(limit)),
            (event, limit) => event.or(limit),
        };
        if timeout == Some(Duration::ZERO) {
            return;
        }
        if let Err(error) = self.waiter.wait(self.engine.datapaths(), timeout) {
            if self.told.is_news(&error) {
                tracing::error!(%error, "cannot wait for packets");
            }
            std::thread::yield_now();
        }
    }

    /// One step of the engine; `false` if there was nothing to do.
    pub(crate) fn step(&mut self) -> bool {
        let is_asked = self.take_commands();
        self.engine.step(is_asked, &mut |event| self.owners.tell(event))
    }

    /// When the last step began.
    pub(crate) fn stepped_ns(&self) -> u64 {
        self.engine.stepped_ns()
    }

    fn take_commands(&mut self) -> bool {
        if self.inbox.is_empty() {
            return false;
        }
        let mut commands = std::mem::take(&mut self.commands);
        let ready = self.inbox.take(&mut commands);
        let any = ready.is_some() || !commands.is_empty();
        for command in commands.drain(..) {
            match command {
                Command::Add(shared) => {
                    self.engine.add(shared.books().clone());
                    self.owners.insert(shared);
                }
                Command::Lanes(number, lanes) => {
                    self.engine.set_lanes(number, lanes, &mut |event| self.owners.tell(event));
                }
                Command::Ready(number) => self.make_ready(number),
                Command::Remove(number) => {
                    self.engine.remove(number);
                    self.owners.remove(number);
                }
                Command::Stop => self.stopped = true,
            }
        }
        self.commands = commands;
        if let Some(number) = ready {
            self.make_ready(number);
        }
        any
    }

    /// Gives the queue pair a turn.
    fn make_ready(&mut self, number: u32) {
        if let Some(shared) = self.owners.get(number) {
            // Clear the bit first: a request from here on is queued again.
            shared.unready(self.owners.worker);
            self.engine.make_ready(number);
        }
    }
}

impl Owners {
    fn insert(&mut self, shared: Arc<Shared>) {
        let index = shared.number() as usize;
        if self.by_number.len() <= index {
            self.by_number.resize_with(index + 1, || None);
        }
        self.by_number[index] = Some(shared);
    }

    fn remove(&mut self, number: u32) {
        if let Some(place) = self.by_number.get_mut(number as usize) {
            *place = None;
        }
    }

    #[inline]
    fn get(&self, number: u32) -> Option<&Arc<Shared>> {
        self.by_number.get(number as usize)?.as_ref()
    }

    #[inline]
    fn tell(&self, event: Event) {
        match event {
            // Nearly all are like this one.
            Event::QueuePair(number, qp::Event::Changed(_)) => self.notify(number),
            Event::QueuePair(number, event) => {
                tell_log(number, &event);
                self.notify(number);
            }
            Event::Probed(number) => {
                if let Some(shared) = self.get(number) {
                    shared.notify_probed();
                }
            }
            Event::Completed(number) => self.notify(number),
            Event::OthersWanted(number) => {
                if let Some(shared) = self.get(number) {
                    shared.kick_others(self.worker);
                }
            }
            Event::CannotReceive { channel, error } => {
                if self.told[usize::from(channel)].is_news(&error) {
                    tracing::error!(%error, channel, "cannot receive");
                }
            }
        }
    }

    /// Wakes the threads that wait for something of this queue pair.
    #[inline]
    fn notify(&self, number: u32) {
        if let Some(shared) = self.get(number) {
            shared.notify();
        }
    }
}

/// Logs events that a user may want to see.
#[cold]
fn tell_log(number: u32, event: &qp::Event) {
    match event {
        qp::Event::Chose(choice) if choice.is_new => tracing::info!(number, "auto: {choice}"),
        qp::Event::Chose(choice) => tracing::debug!(number, "auto, as before: {choice}"),
        qp::Event::Narrowed(qp::Narrowed { before_bytes, packet_bytes }) => tracing::info!(
            "the path takes packets of no more than {packet_bytes} bytes, where {before_bytes} \
             were agreed on or found before: longer ones go in pieces"
        ),
        _ => {}
    }
}
