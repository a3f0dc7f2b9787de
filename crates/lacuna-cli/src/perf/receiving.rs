//! The server's measured side of sends: posts receives, takes messages in order as they complete or are
//! given up, checks and counts them, and posts again.
//!
//! A receive with a deadline may end before its message was posted, and is then nobody's: the client's next
//! send goes into a later one. So receives that ended empty are not counted one by one; at the end, all
//! messages that the client has sent and that are not among the others came to nothing.

use super::give_up::{GiveUpRule, Observation, Verdict};
use super::pattern;
use super::protocol::{Awaited, Counters, Done, Request, TalkError, Terms};
use crate::chunks::Chunks;
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use lacuna::{
    ChannelStats, Completed, Connection, Missing, Mode, Reason, ReceiveFailure, RecvError,
    RecvHandle, RecvOptions,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The receiving side of one measurement.
pub(super) struct Receiving<'a> {
    measured: &'a Connection,
    request: &'a Request,
    options: RecvOptions,
    /// Gaps hold zeros.
    zeroes: bool,
    chunks: Chunks,
    /// Packets of a message.
    message_packets: u64,
    /// The next message lands in the front receive.
    posted: VecDeque<RecvHandle>,
    counters: Counters,
    /// Of the newest message that was checked, with a deadline: its number by its content.
    newest: Option<u64>,
    /// The same of the one that is being checked.
    current: Option<u64>,
    give_up_rule: GiveUpRule,
    started: Instant,
    /// Packets rejected by the whole server before.
    rejected_before: u64,
    drops_before: u64,
}

impl<'a> Receiving<'a> {
    /// Posts all buffers.
    pub(super) fn new(
        measured: &'a Connection,
        request: &'a Request,
        terms: &Terms,
        buffers: Vec<Vec<u8>>,
        idle: Duration,
    ) -> Result<Self, Failure> {
        let chosen = measured.chosen();
        let mode: Option<Mode> = chosen.mode.parse().ok();
        let repairs = mode.is_some_and(|mode| mode.is_reliable());
        let missing = terms.missing.map(Missing::from);
        let is_bounded = matches!(mode, Some(Mode::Bounded(_)));
        let rtt = Duration::from_micros(chosen.rtt_us.unwrap_or(0));
        let context = measured.stats().context;
        let mut receiving = Self {
            measured,
            request,
            options: RecvOptions { deadline: terms.deadline(), missing, ..RecvOptions::default() },
            zeroes: missing.map_or(is_bounded, |missing| missing == Missing::Zero),
            chunks: Chunks::new(chosen, request.size_bytes),
            message_packets: request.size_bytes.div_ceil(u64::from(chosen.mtu_bytes)),
            posted: VecDeque::new(),
            counters: Counters { lost_bytes: Some(0), ..Counters::default() },
            newest: None,
            current: None,
            // A deadline ends what would be given up.
            give_up_rule: GiveUpRule::new(
                repairs || terms.deadline_us.is_some(),
                rtt,
                idle,
                Duration::ZERO,
            ),
            started: Instant::now(),
            rejected_before: context.rejected_packets(),
            drops_before: context.receive_drops,
        };
        buffers.into_iter().try_for_each(|buffer| receiving.post(buffer))?;
        Ok(receiving)
    }

    /// Receives as many messages as the client says it sent. After a failure, the counters cover
    /// the messages before.
    pub(super) fn take(
        &mut self,
        mut done: Awaited<Done>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let mut expected = None;
        let mut pause = POLL_INTERVAL;
        loop {
            if let Some(done) = done.poll().map_err(lost)? {
                if self.options.deadline.is_some() {
                    return self.conclude(&done);
                }
                expected = Some(done.messages);
            }
            if expected.is_some_and(|expected| self.counters.messages >= expected) {
                return Ok(());
            }
            if stop() {
                return Err(Failure::Interrupted);
            }
            let Some(front) = self.posted.front() else { return Ok(()) };
            match front.wait(pause) {
                Err(RecvError::Over { bytes: 0, .. }) if self.options.deadline.is_some() => {
                    self.finish_front()?;
                }
                Ok(()) | Err(RecvError::Over { .. }) => {
                    self.finish_front()?;
                    continue;
                }
                Err(RecvError::Deadline { .. }) => {}
                // The send's time was over before the receive's.
                Err(RecvError::Failed(ReceiveFailure::Cancelled(_)))
                    if self.options.deadline.is_some() =>
                {
                    self.finish_front()?;
                    continue;
                }
                // The client's time is over; its message about that is to come.
                Err(RecvError::Failed(ReceiveFailure::Cancelled(_))) => done.rest(POLL_INTERVAL),
                Err(error) => return Err(Failure::Network(format!("lost the client: {error}"))),
            }
            match self.seen_at() {
                Verdict::Wait(time) => pause = time,
                Verdict::GiveUp => {
                    self.finish_front()?;
                    // The next message may be as late.
                    pause = Duration::ZERO;
                }
                Verdict::Gone(idle) => {
                    let idle_s = idle.as_secs_f64();
                    let text = format!("the client has sent nothing for {idle_s:.0} s");
                    return Err(Failure::Network(text));
                }
            }
        }
    }

    /// With a deadline all of the client's messages have ended, but for those that it has given up. Takes the
    /// receives that are over, and counts the messages that came to nothing.
    fn conclude(&mut self, done: &Done) -> Result<(), Failure> {
        while self.counters.messages < done.messages
            && self.posted.front().is_some_and(|front| front.reason().is_some())
        {
            let Some(front) = self.posted.pop_front() else { break };
            let front = front.complete();
            if front.bytes > 0 || front.is_complete {
                self.count(&front);
                self.counters.messages += 1;
            }
        }
        let empty = done.messages.saturating_sub(self.counters.messages);
        if empty > 0 {
            let lost_bytes = empty.saturating_mul(self.request.size_bytes);
            self.counters.messages += empty;
            self.counters.incomplete += empty;
            let more = |counted: u64, bytes: u64| counted.saturating_add(bytes);
            let missing_chunks = empty.saturating_mul(self.chunks.count());
            self.counters.missing_chunks = more(self.counters.missing_chunks, missing_chunks);
            self.counters.missing_bytes = more(self.counters.missing_bytes, lost_bytes);
            self.counters.lost_bytes = self.counters.lost_bytes.map(|lost| more(lost, lost_bytes));
            *self.counters.ended.entry(Reason::Deadline.name().to_owned()).or_default() += empty;
        }
        Ok(())
    }

    /// The counters so far.
    pub(super) fn counters(&self) -> Counters {
        let stats = self.measured.stats();
        self.counters.clone().with_received(&stats, self.rejected_before, self.drops_before)
    }

    /// Time since the first message.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn seen_at(&mut self) -> Verdict {
        let stats = self.measured.stats();
        let packets = stats.channels.iter().map(|channel| channel.packets).sum();
        let unplaced = |channel: &ChannelStats| {
            channel.duplicates + channel.discarded.get("late").copied().unwrap_or(0)
        };
        // Without repair every packet is sent once, and all messages have the same number of
        // packets.
        let sent: u64 =
            packets + stats.channels.iter().map(unplaced).sum::<u64>() + stats.lost_packets;
        let newest = self.posted.iter().rposition(|posted| posted.chunks_done() > 0);
        self.give_up_rule.decide(&Observation {
            now: self.started.elapsed(),
            packets,
            front: self.counters.messages,
            is_begun: sent > self.counters.messages.saturating_mul(self.message_packets),
            newest: newest.map(|index| self.counters.messages + index as u64),
        })
    }

    /// Completes the front message.
    fn finish_front(&mut self) -> Result<(), Failure> {
        let Some(front) = self.posted.pop_front() else { return Ok(()) };
        let done = front.complete();
        if self.options.deadline.is_some() && done.bytes == 0 && !done.is_complete {
            return self.post(done.buffer);
        }
        self.count(&done);
        self.counters.messages += 1;
        // Checking takes a while; skip it if nothing arrived.
        if self.request.validate && done.chunks.iter().any(|chunks| *chunks != 0) {
            self.give_up_rule.resume(self.started.elapsed());
        }
        self.post(done.buffer)
    }

    fn count(&mut self, done: &Completed) {
        let (number, size_bytes) = (self.counters.messages, self.request.size_bytes);
        let mut wrong = None;
        if done.is_complete && done.len.map(|len| len as u64) != Some(size_bytes) {
            wrong = done.len.or(Some(0));
        } else if done.is_complete {
            if self.request.validate {
                wrong = self.check(done, 0..size_bytes as usize);
            }
        } else {
            self.counters.incomplete += 1;
            let lost_bytes = size_bytes.saturating_sub(done.bytes);
            *self.counters.lost_bytes.get_or_insert_default() += lost_bytes;
            if self.request.validate && self.zeroes {
                wrong = first_not_zero(done);
            }
            let chunks = self.chunks;
            for (bytes, is_here) in chunks.of(done) {
                if !is_here {
                    self.counters.missing_chunks += 1;
                    self.counters.missing_bytes += bytes.len() as u64;
                } else if self.request.validate && wrong.is_none() {
                    wrong = self.check(done, bytes);
                }
            }
        }
        // Of a message without a deadline, the sender's end is that of the measurement.
        let reason = match done.reason {
            Reason::Cancelled if self.options.deadline.is_some() => Reason::Deadline,
            reason => reason,
        };
        *self.counters.ended.entry(reason.name().to_owned()).or_default() += 1;
        self.newest = self.current.take().or(self.newest);
        if let Some(at) = wrong {
            self.counters.wrong += 1;
            let first = &mut self.counters.first_wrong;
            first.get_or_insert_with(|| format!("message {number} at byte {at}"));
        }
    }

    /// Offset of the first wrong byte in a part that came. With a deadline the n-th send may not be in the
    /// n-th receive; then all must be of one message, newer than the one before.
    fn check(&mut self, done: &Completed, part: Range<usize>) -> Option<usize> {
        if self.options.deadline.is_none() {
            return pattern::first_wrong(&done.buffer, part, self.counters.messages);
        }
        let (newest, mut message) = (self.newest, self.current);
        let wrong = pattern::first_foreign(&done.buffer, part, |found, _| {
            let is_newer = |found: u64| {
                newest.is_none_or(|newest| (1..1 << 23).contains(&pattern::ahead(found, newest)))
            };
            found.is_some_and(|found| *message.get_or_insert(found) == found && is_newer(found))
        });
        self.current = message;
        wrong
    }

    fn post(&mut self, buffer: Vec<u8>) -> Result<(), Failure> {
        let posted = self.measured.post_recv_with(buffer, self.options);
        self.posted.push_back(posted.map_err(|error| Failure::Network(error.to_string()))?);
        Ok(())
    }
}

/// Offset of the first byte in a gap that is not zero.
fn first_not_zero(done: &Completed) -> Option<usize> {
    done.packets.gaps().find_map(|gap| {
        let bytes = done.buffer.get(gap.clone())?;
        bytes.iter().position(|byte| *byte != 0).map(|at| gap.start + at)
    })
}

/// A client that did not say what was expected.
pub(super) fn lost(error: TalkError) -> Failure {
    match error {
        TalkError::Stopped => Failure::Interrupted,
        TalkError::Receive(error) if error.is_closed() => {
            Failure::Network("the client ended early".to_owned())
        }
        error => Failure::Network(format!("lost the client: {error}")),
    }
}
