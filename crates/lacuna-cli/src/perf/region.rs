//! The server's side of writes and reads: a region with a place for each operation in flight, which the
//! client writes or reads without this program. Of writes with an immediate it is told, and sends them back
//! if the client wants that; the rest is counting.
//!
//! What is checked: each write that this program is told of, and at the end what the last ones have left in
//! memory. A client that goes on writes the place anew meanwhile, so a word may be of a newer message of the
//! same place.

use super::idle::IdleWatch;
use super::pattern;
use super::protocol::{Awaited, Counters, Done, Ended, Place, Request, Sent, Terms};
use super::receiving::lost;
use super::verb::Verb;
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use lacuna::{
    Connection, ConnectionStats, Mode, PacketMap, Reason, Region, RegionOptions, Rights,
    SendBuffer, Target, Written,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes that are taken before it is asked again whether the client has said that it is done.
const TOLD_BETWEEN: u32 = 64;

/// Registers memory that the client writes or reads.
pub(super) fn register(
    connection: &Connection,
    verb: Verb,
    memory: Vec<u8>,
) -> Result<Region, String> {
    let rights = if verb == Verb::Read { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
    let options = RegionOptions { rights, ..RegionOptions::default() };
    let registered = connection.queue_pair().context().register(memory, options);
    registered.map_err(|error| error.to_string())
}

/// The side of one measurement that is written to or read from.
pub(super) struct Exposed<'a> {
    measured: &'a Connection,
    request: &'a Request,
    verb: Verb,
    has_deadline: bool,
    echo: Option<Place>,
    region: &'a Region,
    is_reliable: bool,
    /// Writes that were told of.
    told: u64,
    counters: Counters,
    /// Sent back unless it is checked.
    answer: Arc<Vec<u8>>,
    /// For one message, if it is checked.
    checked: Vec<u8>,
    started: Instant,
    idle: IdleWatch,
    rejected_before: u64,
    drops_before: u64,
}

impl<'a> Exposed<'a> {
    pub(super) fn new(
        measured: &'a Connection,
        request: &'a Request,
        terms: &Terms,
        verb: Verb,
        region: &'a Region,
        idle: Duration,
    ) -> Self {
        let chosen = measured.chosen();
        let rtt = Duration::from_micros(chosen.rtt_us.unwrap_or(0));
        let context = measured.stats().context;
        let size = request.size_bytes as usize;
        let started = Instant::now();
        Self {
            measured,
            request,
            verb,
            has_deadline: terms.deadline_us.is_some(),
            echo: terms.echo,
            region,
            is_reliable: chosen.mode.parse().is_ok_and(|mode: Mode| mode.is_reliable()),
            told: 0,
            counters: Counters::default(),
            answer: Arc::new(vec![0; if terms.echo.is_some() { size } else { 0 }]),
            checked: vec![0; if request.validate { size } else { 0 }],
            started,
            idle: IdleWatch::new(idle + rtt * 3),
            rejected_before: context.rejected_packets(),
            drops_before: context.receive_drops,
        }
    }

    /// Goes on until the client says that it is done.
    pub(super) fn take(
        &mut self,
        mut done: Awaited<Done>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        loop {
            if let Some(done) = done.poll().map_err(lost)? {
                return self.conclude(&done);
            }
            if stop() {
                return Err(Failure::Interrupted);
            }
            if let Some(failure) = self.measured.failure() {
                return Err(Failure::Network(format!("lost the client: {failure}")));
            }
            if self.verb == Verb::WriteImm {
                self.take_told(POLL_INTERVAL)?;
            } else {
                done.rest(POLL_INTERVAL);
            }
            self.check_idle()?;
        }
    }

    /// The counters so far.
    pub(super) fn counters(&self) -> Counters {
        let Some(stats) = self.measured.one_sided_stats() else { return self.counters.clone() };
        let counters = Counters {
            told_messages: (self.verb == Verb::WriteImm).then_some(self.told),
            sent: (self.verb == Verb::Read).then(|| Sent::of(&stats.sent)),
            ..self.counters.clone()
        };
        counters.with_received(&stats, self.rejected_before, self.drops_before)
    }

    /// Time since the first message.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn check_idle(&mut self) -> Result<(), Failure> {
        let Some(stats) = self.measured.one_sided_stats() else { return Ok(()) };
        let came: u64 = stats.channels.iter().map(|channel| channel.packets).sum();
        self.idle.check(came + stats.sent.packets)
    }

    /// Takes writes that were told of, for a while, and waits for each at most `limit`.
    fn take_told(&mut self, limit: Duration) -> Result<(), Failure> {
        let begun = Instant::now();
        for _ in 0..TOLD_BETWEEN {
            let Some(written) = self.measured.wait_written(limit) else { return Ok(()) };
            self.told += 1;
            self.counters.messages += 1;
            if self.request.validate {
                self.check_told(&written)?;
            }
            if let Some(place) = self.echo {
                self.send_back(place, &written)?;
            }
            if begun.elapsed() > POLL_INTERVAL {
                break;
            }
        }
        Ok(())
    }

    fn send_back(&mut self, place: Place, written: &Written) -> Result<(), Failure> {
        let answer = if self.request.validate {
            Arc::new(self.checked.clone())
        } else {
            self.answer.clone()
        };
        let address = place.address.saturating_add(written.address);
        let to = Target { key: place.key, address };
        let data = SendBuffer::new(answer);
        let sent = self.measured.start_write_to_within(to, data, written.immediate, Duration::MAX);
        // It goes on without its handle.
        sent.map(drop).map_err(|error| Failure::Network(error.to_string()))
    }

    /// Checks a write that was told of.
    fn check_told(&mut self, written: &Written) -> Result<(), Failure> {
        let (size, places) = (self.request.size_bytes, self.request.inflight);
        let stride = self.request.place(1).max(size).max(1);
        let place = written.address / stride;
        let number = written.immediate.map(u64::from);
        if !written.address.is_multiple_of(stride)
            || number.is_some_and(|number| self.request.place(number) != written.address)
            || written.reason == Reason::Whole && written.len != Some(size)
        {
            self.wrong(number.unwrap_or(place), written.len.unwrap_or(0));
            return Ok(());
        }
        let came = came(&written.packets, size as usize);
        let is_right = |message: Option<u64>, _| {
            message.is_some_and(|message| match number {
                Some(number) => pattern::is_of_place(message, number, places),
                None => message % u64::from(places) == place,
            })
        };
        // A word that a newer message is just being written to may be torn, but hardly twice.
        let mut wrong = None;
        for _ in 0..2 {
            self.read_place(written.address)?;
            let first =
                |part: &Range<usize>| pattern::first_foreign(&self.checked, part.clone(), is_right);
            wrong = came.iter().find_map(first);
            if wrong.is_none() {
                break;
            }
        }
        if let Some(at) = wrong {
            self.wrong(number.unwrap_or(place), at as u64);
        }
        Ok(())
    }

    /// Ends the measurement: the rest that was told of, what is in memory, and how the writes ended.
    fn conclude(&mut self, done: &Done) -> Result<(), Failure> {
        while self.verb == Verb::WriteImm && self.told < done.messages {
            let told = self.told;
            self.take_told(Duration::ZERO)?;
            if told == self.told {
                break;
            }
        }
        let stats = self.measured.one_sided_stats();
        self.counters.messages = done.messages;
        self.counters.ended = done.ended.clone();
        self.counters.lost_bytes = done.lost_bytes;
        if self.verb != Verb::Read && !self.is_reliable && self.echo.is_none() {
            let stats = stats.as_ref();
            let ended = stats.map(lossy).unwrap_or_default();
            merge(&mut self.counters.ended, ended, done.messages);
            // Of one that was given up it is not known how much was lost.
            let came = stats.filter(|_| done.given_up == 0).map(|stats| self.placed_bytes(stats));
            let all = done.messages.saturating_mul(self.request.size_bytes);
            self.counters.lost_bytes = came.map(|came| all.saturating_sub(came));
        }
        let whole = self.counters.ended.get(Reason::Whole.name()).copied().unwrap_or(0);
        self.counters.incomplete = done.messages.saturating_sub(whole);
        self.counters.missing_bytes = self.counters.lost_bytes.unwrap_or(0);
        if self.request.validate && self.verb != Verb::Read {
            self.check_memory(done)?;
        }
        Ok(())
    }

    /// Bytes of writes that came, or were computed from parity.
    fn placed_bytes(&self, stats: &ConnectionStats) -> u64 {
        let mtu_bytes = u64::from(self.measured.chosen().mtu_bytes);
        let channels = stats.channels.iter();
        channels.map(|channel| channel.bytes + channel.repaired_packets * mtu_bytes).sum()
    }

    /// Checks what the last writes have left. If all of them came and none is on its way, that is the last
    /// one of each place to the byte.
    fn check_memory(&mut self, done: &Done) -> Result<(), Failure> {
        let (places, messages) = (u64::from(self.request.inflight), done.messages);
        let is_exact =
            self.is_reliable && !self.has_deadline && done.given_up == 0 && self.echo.is_none();
        for number in messages.saturating_sub(places)..messages {
            self.read_place(self.request.place(number))?;
            let all = 0..self.checked.len();
            let wrong = if is_exact {
                let content = pattern::number_in_turn(number, self.request.inflight);
                pattern::first_wrong(&self.checked, all, content)
            } else {
                let place = number % places;
                let is_right = |message: Option<u64>, word| {
                    word == 0 || message.is_some_and(|message| message % places == place)
                };
                pattern::first_foreign(&self.checked, all, is_right)
            };
            if let Some(at) = wrong {
                self.wrong(number, at as u64);
            }
        }
        Ok(())
    }

    fn read_place(&mut self, address: u64) -> Result<(), Failure> {
        let read = self.region.read(address, &mut self.checked);
        read.map_err(|error| Failure::Network(format!("a write came that is none: {error}")))
    }

    fn wrong(&mut self, number: u64, at: u64) {
        self.counters.wrong += 1;
        let first = &mut self.counters.first_wrong;
        first.get_or_insert_with(|| format!("message {number} at byte {at}"));
    }
}

/// The parts of a message that came.
fn came(packets: &PacketMap, size: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut from = 0;
    for gap in packets.gaps() {
        parts.push(from..gap.start.min(size));
        from = gap.end;
    }
    parts.push(from..(packets.len() * packets.packet_bytes()).min(size));
    parts.retain(|part| !part.is_empty());
    parts
}

/// Writes that ended with gaps, as the transport counts them. Those that the client has cancelled it has
/// counted itself: their time was over, or the measurement.
fn lossy(stats: &ConnectionStats) -> Ended {
    let is_counted =
        |reason: &&Reason| !matches!(reason, Reason::Whole | Reason::Cancelled | Reason::Deadline);
    let counted = Reason::ALL.iter().filter(is_counted).filter_map(|reason| {
        let count = *stats.ended.receives.get(reason.name())?;
        Some((reason.name().to_owned(), count))
    });
    counted.collect()
}

/// Adds what the transport has counted to what the client knows; the rest of the messages came whole.
fn merge(ended: &mut Ended, lossy: Ended, messages: u64) {
    for (reason, count) in lossy {
        let all = ended.entry(reason).or_default();
        *all = all.saturating_add(count);
    }
    ended.remove(Reason::Whole.name());
    let others = ended.values().fold(0u64, |sum, count| sum.saturating_add(*count));
    let whole = messages.saturating_sub(others);
    if whole > 0 {
        ended.insert(Reason::Whole.name().to_owned(), whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_neither_end_saw_end_otherwise_came_whole() {
        let by = |list: &[(&str, u64)]| -> Ended {
            list.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
        };
        let mut ended = by(&[("deadline", 2)]);
        merge(&mut ended, by(&[("accounted", 3)]), 10);
        assert_eq!(ended, by(&[("accounted", 3), ("deadline", 2), ("whole", 5)]));
        let mut ended = Ended::new();
        merge(&mut ended, by(&[("end", 3)]), 2);
        assert_eq!(ended, by(&[("end", 3)]));
    }
}
