//! The timers of a queue pair: which is due next, and what for.
//!
//! The deadlines are kept by the mechanisms that they belong to. This file asks all of them, so that
//! a trace or a test can say why a queue pair wakes up.

use super::QueuePair;

/// What a queue pair waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// A message: a repair that its mode has put off, or a deadline of the application.
    Send,
    /// A report of what came.
    Report,
    /// The end of the oldest run in flight of which nothing was heard.
    Expiry,
    /// The congestion controller.
    Controller,
    /// The end of a peer of which nothing was heard.
    Silence,
    /// Control frames that are due at once.
    Control,
    /// The next packets that prove the agreed packet size.
    Proof,
    /// The next probes of a path that has become narrow.
    Mtu,
    /// The pace at which this channel may send.
    Pace(u8),
    /// The next question to the peer on this channel.
    Flush(u8),
}

/// The earliest of some timers; of those at the same time the first.
struct Earliest {
    due_ns: u64,
    timer: Timer,
}

impl Earliest {
    #[inline]
    fn or(&mut self, timer: Timer, due_ns: Option<u64>) {
        if let Some(due_ns) = due_ns.filter(|due_ns| *due_ns < self.due_ns) {
            *self = Self { due_ns, timer };
        }
    }
}

impl QueuePair {
    /// When [`QueuePair::on_timeout`] and the polls want to be called again.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.poll_timeout_on(u32::MAX)
    }

    /// The same for one of several workers, which owns the channels whose bits
    /// are set in `channels`: what only another can send is not its business.
    pub fn poll_timeout_on(&self, channels: u32) -> Option<u64> {
        self.earliest_timer(channels).map(|(due_ns, _)| due_ns)
    }

    /// The timer that [`QueuePair::poll_timeout_on`] tells the time of, for those who want to know
    /// why.
    pub fn next_timer(&self, channels: u32) -> Option<(u64, Timer)> {
        self.earliest_timer(channels)
    }

    /// Inlined, so that who asks for the time alone pays for nothing else.
    #[inline(always)]
    fn earliest_timer(&self, channels: u32) -> Option<(u64, Timer)> {
        if self.failure().is_some() || self.peer.is_none() {
            return None;
        }
        let mut next = Earliest { due_ns: u64::MAX, timer: Timer::Send };
        next.or(Timer::Send, self.send.poll_timeout());
        next.or(Timer::Report, self.arrivals.due_ns());
        next.or(Timer::Expiry, self.path.expiry_ns());
        next.or(Timer::Controller, self.path.controller_timeout_ns());
        next.or(Timer::Silence, self.silence_ends_ns());
        next.or(Timer::Control, self.control.poll_timeout());
        next.or(Timer::Proof, self.proof.as_ref().map(|proof| proof.poll_timeout(channels)));
        next.or(Timer::Mtu, self.mtu_timeout_ns(channels));
        for channel in (0..self.channels.len()).filter(|c| channels >> c & 1 == 1) {
            if self.send.has_queued_on(channel) {
                next.or(Timer::Pace(channel as u8), self.path.pacing_timeout_ns(channel));
            }
            if self.asks_on(channel) {
                next.or(Timer::Flush(channel as u8), Some(self.control.flush_due_ns(channel)));
            }
        }
        (next.due_ns < u64::MAX).then_some((next.due_ns, next.timer))
    }
}
