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

impl QueuePair {
    /// When [`QueuePair::on_timeout`] and the polls want to be called again.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.poll_timeout_on(u32::MAX)
    }

    /// The same for one of several workers, which owns the channels whose bits
    /// are set in `channels`: what only another can send is not its business.
    pub fn poll_timeout_on(&self, channels: u32) -> Option<u64> {
        let mut next_ns = u64::MAX;
        self.each_timer(channels, |_, due_ns| next_ns = next_ns.min(due_ns.unwrap_or(u64::MAX)));
        (next_ns < u64::MAX).then_some(next_ns)
    }

    /// The timer that [`QueuePair::poll_timeout_on`] tells the time of, for those who want to know
    /// why; of several due at the same time the first in the order of [`Timer`].
    pub fn next_timer(&self, channels: u32) -> Option<(u64, Timer)> {
        let mut next = None;
        self.each_timer(channels, |timer, due_ns| {
            if let Some(due_ns) = due_ns
                && next.is_none_or(|(next_ns, _)| due_ns < next_ns)
            {
                next = Some((due_ns, timer));
            }
        });
        next
    }

    /// Inlined, so that who asks for the time alone pays for nothing else.
    #[inline(always)]
    fn each_timer(&self, channels: u32, mut each: impl FnMut(Timer, Option<u64>)) {
        if self.failure().is_some() || self.peer.is_none() {
            return;
        }
        each(Timer::Send, self.send.poll_timeout());
        each(Timer::Report, self.arrivals.due_ns());
        each(Timer::Expiry, self.path.expiry_ns());
        each(Timer::Controller, self.path.controller_timeout_ns());
        each(Timer::Silence, self.silence_ends_ns());
        each(Timer::Control, self.control.poll_timeout());
        each(Timer::Proof, self.proof.as_ref().map(|proof| proof.poll_timeout(channels)));
        each(Timer::Mtu, self.mtu_timeout_ns(channels));
        for channel in (0..self.channels.len()).filter(|c| channels >> c & 1 == 1) {
            if self.send.has_queued_on(channel) {
                each(Timer::Pace(channel as u8), self.path.pacing_timeout_ns(channel));
            }
            if self.asks_on(channel) {
                each(Timer::Flush(channel as u8), Some(self.control.flush_due_ns(channel)));
            }
        }
    }
}
