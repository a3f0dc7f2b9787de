//! What the requester makes of answers: acknowledgements, refusals, what was read. Requests complete here.

use super::{Request, Requester, ended};
use crate::Payload;
use crate::config::RETRY_FOR_EVER;
use crate::run::{RANGE_BYTES, ranges_of};
use crate::selective::ranges_max;
use crate::work::{Done, Failure, Verb};
use lacuna_wire::psn;
use lacuna_wire::rc::{Aeth, Fields, Nak, Operation, RcHeader, Syndrome, rnr_timer_ns};
use std::ops::Range;

impl Requester {
    /// Takes an answer of the peer. An error fails the queue pair.
    pub(crate) fn on_answer(
        &mut self,
        now_ns: u64,
        header: &RcHeader,
        payload: Payload<'_>,
        done: &mut Vec<Done>,
    ) -> Result<(), Failure> {
        let number = psn::unwrap(header.psn, self.acked_psn);
        if number >= self.sent_psn {
            self.counts.stray_answers += 1;
            return Ok(());
        }
        let result = match (header.opcode.operation(), header.fields) {
            (Operation::Acknowledge, Fields::Aeth(aeth)) => match (aeth.syndrome, payload) {
                (Syndrome::Nak(Nak::PsnSequence), Payload::Bytes(came @ [_, ..]))
                    if self.selective.is_some() =>
                {
                    self.on_missing(now_ns, number, came);
                    Ok(())
                }
                _ => self.on_acknowledge(now_ns, number, aeth),
            },
            (Operation::ReadResponse, _) => self.on_read(now_ns, number, header, payload),
            (Operation::AtomicAcknowledge, Fields::AtomicAck(_, before)) => {
                self.on_atomic(now_ns, number, before)
            }
            _ => {
                self.counts.stray_answers += 1;
                Ok(())
            }
        };
        self.complete(done);
        result
    }

    fn on_acknowledge(&mut self, now_ns: u64, number: u64, aeth: Aeth) -> Result<(), Failure> {
        match aeth.syndrome {
            Syndrome::Ack { .. } => {
                self.on_come(now_ns, number + 1);
                self.ask_missing(number + 1);
            }
            Syndrome::Nak(Nak::PsnSequence) => {
                if number < self.acked_psn {
                    // Of an earlier gap.
                    return Ok(());
                }
                self.on_come(now_ns, number);
                let (psn, when_ns) = self.went_back;
                let soonest_ns = self.flow.rtt().min_ns().unwrap_or(0) / 8 * 7;
                if psn == number && now_ns < when_ns + soonest_ns {
                    // A copy of the refusal: no answer to what left since can be here yet.
                    return Ok(());
                }
                self.counts.sequence_naks += 1;
                self.ask_missing(number);
                self.go_back(now_ns, number);
            }
            Syndrome::ReceiverNotReady { timer } => {
                if number < self.acked_psn {
                    return Ok(());
                }
                self.on_come(now_ns, number);
                self.counts.rnr_naks += 1;
                if self.rnr_retry_count != RETRY_FOR_EVER
                    && self.rnr_retries >= self.rnr_retry_count
                {
                    return Err(Failure::RnrRetryExceeded { retries: self.rnr_retries });
                }
                self.rnr_retries = self.rnr_retries.saturating_add(1);
                self.ask_missing(number);
                self.go_back(now_ns, number);
                self.rnr_until_ns = Some(now_ns + rnr_timer_ns(timer));
            }
            Syndrome::Nak(nak) => {
                if number < self.acked_psn && self.find(number).is_none() {
                    return Ok(());
                }
                self.on_come(now_ns, number);
                return Err(Failure::Remote(nak));
            }
            Syndrome::Reserved(_) => self.counts.stray_answers += 1,
        }
        Ok(())
    }

    /// The packet with this number is missing, and of those behind it these ranges have come.
    fn on_missing(&mut self, now_ns: u64, number: u64, came: &[u8]) {
        self.on_come(now_ns, number);
        let (acked_psn, sent_psn) = (self.acked_psn, self.sent_psn);
        let most = ranges_max(self.mtu_bytes);
        let is_cut = came.len() >= most * RANGE_BYTES;
        let ranges: Vec<_> = ranges_of(came, number)
            .take(most)
            .filter(|range| range.start >= acked_psn && range.end <= sent_psn)
            .collect();
        let Some(selective) = &mut self.selective else { return };
        // What is news, and was under way.
        let news = ranges.iter().flat_map(|range| selective.came().gaps(range));
        let news: Vec<_> = news.collect();
        let waited: Vec<_> = news.iter().flat_map(|range| selective.waiting(range)).collect();
        let lost = selective.on_came(acked_psn, &ranges, is_cut);
        let bytes_of = |ranges: &[Range<u64>]| -> u64 {
            ranges.iter().map(|range| self.wire_bytes_of(range)).sum()
        };
        let (come, waited, lost_bytes) = (bytes_of(&news), bytes_of(&waited), bytes_of(&lost));
        self.counts.sequence_naks += u64::from(!lost.is_empty());
        if come > 0 {
            self.flow.on_acknowledged(now_ns, acked_psn, come, come - waited.min(come));
            self.on_progress(now_ns);
        }
        if lost_bytes > 0 {
            self.flow.on_lost(now_ns, lost_bytes);
        }
    }

    /// Everything before `psn` has come.
    fn on_come(&mut self, now_ns: u64, psn: u64) {
        if psn <= self.acked_psn {
            return;
        }
        let acked = self.acked_psn..psn;
        let (mut wire_bytes, mut waited_bytes) = (self.wire_bytes_of(&acked), 0);
        if let Some(selective) = &self.selective {
            // What is known to have come was counted, and what is to be sent again is not under way.
            wire_bytes = selective.came().gaps(&acked).map(|gap| self.wire_bytes_of(&gap)).sum();
            waited_bytes = selective.waiting(&acked).map(|range| self.wire_bytes_of(&range)).sum();
        }
        self.acked_psn = psn;
        if let Some(selective) = &mut self.selective {
            selective.on_acked(psn);
        }
        // What was to be sent again has come before it was.
        self.send_psn = self.send_psn.max(psn);
        self.flow.on_acknowledged(now_ns, psn, wire_bytes, wire_bytes.saturating_sub(waited_bytes));
        self.on_progress(now_ns);
    }

    fn on_progress(&mut self, now_ns: u64) {
        (self.retries, self.rnr_retries) = (0, 0);
        self.restart_timer(now_ns);
    }

    /// Answers of open READs before `psn` are lost: something behind them has come.
    fn ask_missing(&mut self, psn: u64) {
        if self.reads == 0 {
            return;
        }
        for request in self.requests.iter_mut().take_while(|request| request.end_psn() <= psn) {
            if request.is_open_read() && !std::mem::replace(&mut request.asked_again, true) {
                self.again.push_back(request.first_psn);
            }
        }
    }

    fn on_read(
        &mut self,
        now_ns: u64,
        number: u64,
        header: &RcHeader,
        payload: Payload<'_>,
    ) -> Result<(), Failure> {
        let Some(index) = self.find(number) else {
            // Of a READ that is done.
            return Ok(());
        };
        let mtu_bytes = self.mtu_bytes;
        let request = &mut self.requests[index];
        let Verb::Read { into, .. } = &request.work.verb else { return Err(Failure::BadResponse) };
        let expected = request.first_psn + u64::from(request.answered);
        if number < expected {
            return Ok(());
        }
        if number > expected {
            let first_psn = request.first_psn;
            if !std::mem::replace(&mut request.asked_again, true) {
                self.again.push_back(first_psn);
            }
            self.ask_missing(first_psn);
            return Ok(());
        }
        let from = u64::from(request.answered) * u64::from(mtu_bytes);
        let bytes = (into.len() - from).min(mtu_bytes.into());
        let is_last = request.answered + 1 == request.packets;
        if payload.len() as u64 != bytes || header.opcode.part().ends() != is_last {
            return Err(Failure::BadResponse);
        }
        if let Payload::Bytes(payload) = payload {
            into.write(from, payload).map_err(|_| Failure::BadResponse)?;
        }
        request.answered += 1;
        request.asked_again = false;
        self.reads -= usize::from(is_last);
        let first_psn = request.first_psn;
        self.ask_missing(first_psn);
        self.on_come(now_ns, number + 1);
        // Also if later ones were acknowledged before.
        self.on_progress(now_ns);
        Ok(())
    }

    /// Writes an answer to a READ to its place ahead of its turn; `false` if it is none, or not behind what
    /// comes next.
    pub(crate) fn place_ahead(&self, header: &RcHeader, payload: &[u8]) -> bool {
        let number = psn::unwrap(header.psn, self.acked_psn);
        let is_answer = header.opcode.operation() == Operation::ReadResponse;
        let Some(index) = self.find(number).filter(|_| is_answer && number < self.sent_psn) else {
            return false;
        };
        let request = &self.requests[index];
        let Verb::Read { into, .. } = &request.work.verb else { return false };
        if number <= request.first_psn + u64::from(request.answered) {
            return false;
        }
        let from = (number - request.first_psn) * u64::from(self.mtu_bytes);
        let bytes = (into.len() - from).min(self.mtu_bytes.into());
        payload.len() as u64 == bytes && into.write(from, payload).is_ok()
    }

    fn on_atomic(&mut self, now_ns: u64, number: u64, before: u64) -> Result<(), Failure> {
        let Some(index) = self.find(number) else { return Ok(()) };
        let request = &mut self.requests[index];
        let (Verb::CompareSwap { into, .. } | Verb::FetchAdd { into, .. }) = &request.work.verb
        else {
            return Err(Failure::BadResponse);
        };
        if request.answered == 0 {
            into.write(0, &before.to_ne_bytes()).map_err(|_| Failure::BadResponse)?;
            request.answered = 1;
            request.asked_again = false;
            self.reads -= 1;
        }
        self.ask_missing(number);
        self.on_come(now_ns, number + 1);
        self.on_progress(now_ns);
        Ok(())
    }

    /// Completes what is done, in order.
    fn complete(&mut self, done: &mut Vec<Done>) {
        while let Some(request) = self.requests.front() {
            let is_done = match request.work.verb.is_read_or_atomic() {
                true => !request.is_open_read(),
                false => request.end_psn() <= self.acked_psn,
            };
            if !is_done {
                return;
            }
            let Some(Request { work, .. }) = self.requests.pop_front() else { return };
            self.counts.bytes_acknowledged += work.verb.bytes();
            if work.flags.is_signaled {
                done.push(ended(&work, Ok(())));
            }
        }
        if self.requests.is_empty() {
            self.due_ns = None;
        }
    }
}
