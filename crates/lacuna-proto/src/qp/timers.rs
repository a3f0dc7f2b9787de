//! The timers of a queue pair: which one is due next.
//!
//! Each mechanism keeps its own deadline; this file takes the earliest. Timers have names, so that a
//! trace or a test can tell why a queue pair woke up.

use super::QueuePair;

/// A timer of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// A message: the timeout of its mode's machine, or the application's deadline.
    Send,
    /// A receive: its deadline, or the end of its grace.
    Receive,
    /// A report to the peer.
    Report,
    /// The next report of a receiver that hears nothing of the rest of a message.
    Nudge,
    /// The retransmission timeout of the oldest run in flight.
    Expiry,
    /// The congestion controller.
    Controller,
    /// The longest silence of a peer that owes an answer.
    Silence,
    /// Control frames that are due at once.
    Control,
    /// The next round of the proof of the packet size.
    Proof,
    /// The next round of a search for the path MTU.
    Mtu,
    /// Pacing: when this channel may send again.
    Pace(u8),
    /// The next flush on this channel.
    Flush(u8),
    /// The sender's word on this channel.
    Word(u8),
    /// A read: the next request, a refusal, or a deadline; the first channel's.
    Read,
}

impl QueuePair {
    /// When [`QueuePair::on_timeout`] and the polls want to be called again.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.poll_timeout_on(u32::MAX)
    }

    /// As [`QueuePair::poll_timeout`], for one of several workers, which owns the channels in this
    /// mask. Timers for what only another worker can send are left out.
    pub fn poll_timeout_on(&self, channels: u32) -> Option<u64> {
        let mut next_ns = u64::MAX;
        self.each_timer(channels, |_, due_ns| next_ns = next_ns.min(due_ns.unwrap_or(u64::MAX)));
        (next_ns < u64::MAX).then_some(next_ns)
    }

    /// The timer behind [`QueuePair::poll_timeout_on`]; of several due at the same time, the first
    /// in the order of [`Timer`].
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

    /// Inlined, so that a caller who asks only for the time pays for nothing else.
    #[inline(always)]
    fn each_timer(&self, channels: u32, mut each: impl FnMut(Timer, Option<u64>)) {
        if self.failure().is_some() || self.peer.is_none() {
            return;
        }
        each(Timer::Send, self.send.poll_timeout());
        each(Timer::Receive, self.recv.poll_timeout());
        each(Timer::Report, self.arrivals.due_ns());
        each(Timer::Nudge, self.nudge.due_ns());
        each(Timer::Expiry, self.path.expiry_ns());
        each(Timer::Controller, self.path.controller_timeout_ns());
        each(Timer::Silence, self.silence_ends_ns());
        each(Timer::Control, self.control.poll_timeout());
        each(Timer::Proof, self.proof.as_ref().map(|proof| proof.poll_timeout(channels)));
        each(Timer::Mtu, self.mtu_timeout_ns(channels));
        if channels & 1 == 1 && self.keys.is_some() {
            each(Timer::Read, self.reads.due_ns());
        }
        for channel in (0..self.channels.len()).filter(|c| channels >> c & 1 == 1) {
            self.each_timer_of(channel, &mut each);
        }
    }

    /// Calls `each` with the timers of one channel.
    // A call: in the loop, the compiler loads all that it might need in advance, for one channel mostly.
    #[inline(never)]
    fn each_timer_of(&self, channel: usize, each: &mut impl FnMut(Timer, Option<u64>)) {
        if self.send.has_queued_on(channel) {
            each(Timer::Pace(channel as u8), self.path.pacing_timeout_ns(channel));
        }
        if self.flushes_on(channel) {
            each(Timer::Flush(channel as u8), Some(self.control.flush_due_ns(channel)));
        }
        if let Some(words) = &self.words {
            each(Timer::Word(channel as u8), words.due_ns(channel));
        }
    }
}
