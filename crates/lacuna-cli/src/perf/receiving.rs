//! The server's measured side: posts receives, takes messages in order as they complete or are
//! given up, checks and counts them, and posts again.

use super::give_up::{GiveUpRule, Observation, Verdict};
use super::pattern;
use super::protocol::{Awaited, Counters, Done, Request, TalkError};
use crate::chunks::Chunks;
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use lacuna::{ChannelStats, Completed, Connection, Mode, ReceiveFailure, RecvError, RecvHandle};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The receiving side of one measurement.
pub(super) struct Receiving<'a> {
    measured: &'a Connection,
    request: &'a Request,
    chunks: Chunks,
    /// Packets of a message.
    message_packets: u64,
    /// The next message lands in the front receive.
    posted: VecDeque<RecvHandle>,
    counters: Counters,
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
        buffers: Vec<Vec<u8>>,
        idle: Duration,
    ) -> Result<Self, Failure> {
        let chosen = measured.chosen();
        let repairs = chosen.mode.parse().is_ok_and(|mode: Mode| mode.is_reliable());
        let rtt = Duration::from_micros(chosen.rtt_us.unwrap_or(0));
        let context = measured.stats().context;
        let mut receiving = Self {
            measured,
            request,
            chunks: Chunks::new(chosen, request.size_bytes),
            message_packets: request.size_bytes.div_ceil(u64::from(chosen.mtu_bytes)),
            posted: VecDeque::new(),
            counters: Counters::default(),
            give_up_rule: GiveUpRule::new(repairs, rtt, idle, Duration::ZERO),
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
                Ok(()) => {
                    self.finish_front()?;
                    continue;
                }
                Err(RecvError::Deadline { .. }) => {}
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

    /// The counters so far.
    pub(super) fn counters(&self) -> Counters {
        let stats = self.measured.stats();
        let context = &stats.context;
        // A damaged packet without a RETH looks like one with a wrong key.
        let damaged = |channel: &ChannelStats| channel.discarded.get("key").copied().unwrap_or(0);
        Counters {
            lost_packets: stats.lost_packets,
            duplicate_packets: stats.channels.iter().map(|channel| channel.duplicates).sum(),
            rejected_packets: context.rejected_packets() - self.rejected_before
                + stats.channels.iter().map(damaged).sum::<u64>(),
            receive_drops: context.receive_drops - self.drops_before,
            repaired_chunks: stats.channels.iter().map(|channel| channel.repaired_chunks).sum(),
            decode_s: stats.channels.iter().map(|channel| channel.decode_s).sum(),
            ..self.counters.clone()
        }
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
                wrong = pattern::first_wrong(&done.buffer, 0..size_bytes as usize, number);
            }
        } else {
            self.counters.incomplete += 1;
            for (bytes, is_here) in self.chunks.of(done) {
                if !is_here {
                    self.counters.missing_chunks += 1;
                    self.counters.missing_bytes += bytes.len() as u64;
                } else if self.request.validate && wrong.is_none() {
                    wrong = pattern::first_wrong(&done.buffer, bytes, number);
                }
            }
        }
        if let Some(at) = wrong {
            self.counters.wrong += 1;
            let first = &mut self.counters.first_wrong;
            first.get_or_insert_with(|| format!("message {number} at byte {at}"));
        }
    }

    fn post(&mut self, buffer: Vec<u8>) -> Result<(), Failure> {
        let posted = self.measured.post_recv(buffer);
        self.posted.push_back(posted.map_err(|error| Failure::Network(error.to_string()))?);
        Ok(())
    }
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
