//! Sends whose data become ready part by part: a collective forwards the first chunks of a message
//! while it still reduces the others.
//!
//! Such a send has its receive, its numbers and its machine like any other, so that it is repaired like
//! any other. But a run that the machine wants sent waits until the application has *offered* its bytes.
//! That holds for repairs, too, because a chunk may be offered in part. Parity waits for all data of its
//! submessage, and empty packets with fragments of the immediate for all of the message. Memory that was
//! not offered is never read.
//!
//! A receiver in a bounded mode ends a message when its last packet came, and takes a later message's
//! packet on a channel for a sign that nothing of an earlier one follows. So in these modes the last
//! packet waits for all others, and later messages for the whole send.

use super::{Position, SendSide};
use crate::modes::{MessageShape, Mode};
use crate::qp::error::PostSendError;
use crate::qp::user_send::{SendId, SendRequest};
use lacuna_path::ranges::Ranges;
use lacuna_place::parity::Layout;
use std::collections::BTreeMap;
use std::ops::Range;

/// Sends of which not all was offered.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// Bytes that were offered.
    offered: BTreeMap<SendId, Ranges>,
}

impl Offers {
    pub(super) fn is_open(&self, id: SendId) -> bool {
        self.offered.contains_key(&id)
    }

    /// Whether any send is open; mostly none is.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.offered.is_empty()
    }

    pub(super) fn forget(&mut self, id: SendId) {
        self.offered.remove(&id);
    }
}

/// The runs of one message that wait for their bytes.
#[derive(Debug)]
pub(in crate::qp) struct Withheld {
    /// Packets with data, and empty ones behind them.
    data: Ranges,
    /// Runs of parity, each of one submessage.
    parity: Vec<Range<u32>>,
    shape: MessageShape,
    mtu_bytes: u64,
    /// The message's bytes in the send.
    bytes: Range<u64>,
    /// The last packet waits for all others.
    holds_end: bool,
}

impl Withheld {
    pub(in crate::qp) fn add(&mut self, packets: &Range<u32>) {
        let is_parity = |layout: Layout| layout.is_parity(packets.start);
        if self.shape.layout.is_some_and(is_parity) {
            self.parity.push(packets.clone());
        } else {
            self.data.add(packets.start.into()..packets.end.into());
        }
    }

    fn is_whole(&self, offered: &Ranges) -> bool {
        offered.covers(&self.bytes)
    }

    /// Takes the runs that can be sent.
    fn take_ready(&mut self, offered: &Ranges) -> Vec<Range<u32>> {
        let is_whole = self.is_whole(offered);
        let data_packets = u64::from(self.shape.data_packets);
        let last = data_packets - u64::from(self.holds_end && !is_whole);
        let mut ready = Vec::new();
        for run in std::mem::take(&mut self.data).into_iter() {
            if is_whole {
                ready.push(run);
                continue;
            }
            let mut next = run.start;
            for packets in self.packets_of(&run, offered) {
                let packets = packets.start.max(run.start)..packets.end.min(run.end).min(last);
                if !packets.is_empty() {
                    self.data.add(next..packets.start);
                    next = packets.end;
                    ready.push(packets);
                }
            }
            self.data.add(next..run.end);
        }
        let mut ready: Vec<_> = ready.iter().map(|run| run.start as u32..run.end as u32).collect();
        let parity = std::mem::take(&mut self.parity);
        let is_ready = |run: &Range<u32>| is_whole || self.parity_is_ready(run.start, offered);
        let (sent, kept) = parity.into_iter().partition::<Vec<_>, _>(is_ready);
        self.parity = kept;
        ready.extend(sent);
        ready
    }

    /// Packets of a run that were offered whole, as ranges.
    fn packets_of(&self, run: &Range<u64>, offered: &Ranges) -> Vec<Range<u64>> {
        let Range { start: base, end } = self.bytes;
        let at = |packet: u64| (base + packet * self.mtu_bytes).min(end);
        let bytes = at(run.start)..at(run.end);
        let whole = |range: &Range<u64>| {
            let first = (range.start.max(base) - base).div_ceil(self.mtu_bytes);
            let last = match range.end >= end {
                true => u64::from(self.shape.data_packets),
                false => (range.end - base) / self.mtu_bytes,
            };
            first..last.max(first)
        };
        offered.within(&bytes).map(whole).collect()
    }

    /// Whether all data of this packet of parity were offered.
    fn parity_is_ready(&self, packet: u32, offered: &Ranges) -> bool {
        let Some(layout) = self.shape.layout else { return true };
        let submessage = layout.locate(packet).submessage;
        let data = layout.data_of(submessage, self.shape.data_packets);
        let start = self.bytes.start + u64::from(data.start) * self.mtu_bytes;
        let end = self.bytes.start + u64::from(data.end) * self.mtu_bytes;
        offered.covers(&(start..end.min(self.bytes.end)))
    }
}

impl SendSide {
    /// As [`SendSide::queue`]; nothing is sent before it was offered.
    pub(crate) fn queue_offered(&mut self, request: SendRequest) -> Result<SendId, PostSendError> {
        let is_empty = request.data.is_empty();
        self.queue_then(request, |side, id| {
            if !is_empty {
                side.withhold_all(id);
            }
        })
    }

    /// Nothing of a send is sent before it was offered.
    pub(super) fn withhold_all(&mut self, id: SendId) {
        self.offers.offered.insert(id, Ranges::default());
    }

    /// Bytes of a send are ready, and do not change any more. Those of a send that has ended are of no
    /// use, which is no error.
    pub(crate) fn offer(&mut self, id: SendId, bytes: Range<u64>) -> Result<(), PostSendError> {
        let Some(send) = self.sends.get(id) else { return Err(PostSendError::NoSuchSend) };
        let (numbers, len_bytes) = (send.numbers.clone(), send.len_bytes);
        if bytes.end > len_bytes || bytes.start > bytes.end {
            let Range { start: offset_bytes, end } = bytes;
            let offered_bytes = end.saturating_sub(offset_bytes);
            return Err(PostSendError::OutsideOfSend { offset_bytes, offered_bytes, len_bytes });
        }
        let Some(offered) = self.offers.offered.get_mut(&id) else { return Ok(()) };
        offered.add(bytes);
        let is_whole = offered.covers(&(0..len_bytes));
        let mut next = numbers.start;
        while let Some((_, number)) = self.messages.first_of(next..numbers.end) {
            next = number + 1;
            self.release_runs(number, Position::AfterOwn);
        }
        if is_whole {
            self.offers.forget(id);
            self.build_next();
        }
        Ok(())
    }

    /// Withholds what of a message was not offered, if its send is offered part by part.
    pub(super) fn withhold(&mut self, id: SendId, number: u64) {
        let is_open = self.offers.is_open(id);
        let Some(first) = self.sends.get(id).map(|send| send.numbers.start) else { return };
        let Some(outgoing) = self.messages.get_mut(number).filter(|_| is_open) else { return };
        let Some(segment) = &outgoing.segment else { return };
        let start = (number - first) * self.geometry.max_message_bytes();
        outgoing.withheld = Some(Box::new(Withheld {
            data: Ranges::default(),
            parity: Vec::new(),
            shape: segment.shape(),
            mtu_bytes: self.geometry.mtu_bytes().into(),
            bytes: start..start + outgoing.len_bytes,
            holds_end: matches!(self.mode, Mode::Bounded(_)),
        }));
    }

    /// Queues the withheld runs of a message that can be sent.
    pub(super) fn release_runs(&mut self, number: u64, position: Position) {
        let Some(outgoing) = self.messages.get_mut(number) else { return };
        let (Some(withheld), Some(segment)) = (&mut outgoing.withheld, &outgoing.segment) else {
            return;
        };
        // Without an entry all was offered.
        let offered = self.offers.offered.get(&outgoing.send);
        let all = Ranges::from_iter(std::iter::once(withheld.bytes.clone()));
        let offered = offered.unwrap_or(&all);
        for packets in withheld.take_ready(offered) {
            outgoing.queued += self.queues.push(segment, &packets, position);
        }
        if withheld.is_whole(offered) {
            outgoing.withheld = None;
        }
    }

    /// Whether later messages wait for a send that is offered part by part.
    #[inline]
    pub(super) fn holds_back(&self) -> bool {
        if self.offers.is_empty() || !matches!(self.mode, Mode::Bounded(_)) {
            return false;
        }
        let has_started = |id: &SendId| self.sends.get(*id).is_some_and(|s| !s.numbers.is_empty());
        let is_built = |id: &SendId| {
            let numbers = self.sends.get(*id).map(|send| send.numbers.clone());
            numbers.is_some_and(|numbers| self.messages.first_of(numbers).is_some())
        };
        self.offers.offered.keys().any(|id| has_started(id) && is_built(id))
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges are meant")]
mod tests {
    use super::*;

    fn ranges(list: &[Range<u64>]) -> Ranges {
        list.iter().cloned().collect()
    }

    fn withheld(data_packets: u32, last_bytes: u64, holds_end: bool) -> Withheld {
        let shape = MessageShape {
            chunk_packets: 4,
            data_packets,
            total_packets: data_packets + 2,
            fragments: 8,
            layout: None,
        };
        let bytes = 5000..5000 + u64::from(data_packets - 1) * 100 + last_bytes;
        let (data, parity) = Default::default();
        let mut withheld = Withheld { data, parity, shape, mtu_bytes: 100, bytes, holds_end };
        withheld.add(&(0..shape.total_packets));
        withheld
    }

    #[test]
    fn a_packet_leaves_when_all_of_its_bytes_were_offered() {
        let mut withheld = withheld(10, 30, false);
        assert_eq!(withheld.take_ready(&ranges(&[5150..5320])), [2..3]);
        assert_eq!(withheld.take_ready(&ranges(&[5150..5320])), []);
        assert_eq!(withheld.take_ready(&ranges(&[5100..5420])), [1..2, 3..4]);
        // The last packet is short; empty packets behind it wait for the whole message.
        assert_eq!(withheld.take_ready(&ranges(&[5100..5420, 5900..5930])), [9..10]);
        assert_eq!(withheld.take_ready(&ranges(&[5000..5930])), [0..1, 4..9, 10..12]);
    }

    #[test]
    fn the_last_packet_waits_for_all_others_where_it_ends_the_receive() {
        let mut withheld = withheld(3, 100, true);
        assert_eq!(withheld.take_ready(&ranges(&[5100..5300])), [1..2]);
        assert_eq!(withheld.take_ready(&ranges(&[5000..5300])), [0..1, 2..5]);
    }
}
