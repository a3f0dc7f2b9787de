//! Send queues: the runs that wait to be sent, per channel.
//!
//! A run is queued on each channel that has packets of it, and is cut to the channel's own packets
//! only when the channel takes them. Repairs go first, because a message that lacks one chunk is
//! nearest to its end.

use super::transmit::Segment;
use lacuna_path::small_vec::SmallVec;
use lacuna_place::geometry::Geometry;
use lacuna_place::prefetch::prefetch_value;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Most runs that [`Queues::has_packets`] scans.
const RUNS_SCANNED_MAX: usize = 8;

/// Send queues of all channels.
#[derive(Debug)]
pub(super) struct Queues {
    geometry: Geometry,
    channels: SmallVec<Channel>,
}

#[derive(Debug, Default)]
struct Channel {
    repairs: VecDeque<Queued>,
    fresh: VecDeque<Queued>,
}

#[derive(Debug)]
struct Queued {
    segment: Arc<Segment>,
    /// May contain packets of other channels; the first packet is the channel's.
    packets: Range<u32>,
}

/// Where in a queue a run is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// After the other repairs, before all new data.
    Repair,
    /// At the end of the new data.
    Last,
    /// After the queued runs of its own message, before later messages.
    AfterOwn,
}

/// A run taken from a channel's queue.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) segment: Arc<Segment>,
    pub(super) packets: Range<u32>,
    /// End of the run that was queued.
    pub(super) run_end: u32,
    pub(super) is_repair: bool,
    /// The queued run has no more packets of the channel.
    pub(super) is_last: bool,
}

impl Channel {
    fn is_empty(&self) -> bool {
        self.repairs.is_empty() && self.fresh.is_empty()
    }
}

impl Queues {
    pub(super) fn new(geometry: Geometry) -> Self {
        let channels = (0..geometry.channels()).map(|_| Channel::default()).collect();
        Self { geometry, channels }
    }

    /// Queues a run; returns on how many channels.
    pub(super) fn push(
        &mut self,
        segment: &Arc<Segment>,
        packets: &Range<u32>,
        position: Position,
    ) -> u32 {
        let slot = self.geometry.slot_of(segment.number);
        let mut count = 0;
        for (index, channel) in self.channels.iter_mut().enumerate() {
            let first = self.geometry.next_run(slot, index as u8, packets.clone());
            let Some(first) = first else { continue };
            let queued = Queued { segment: segment.clone(), packets: first.start..packets.end };
            match position {
                Position::Repair => channel.repairs.push_back(queued),
                Position::Last => channel.fresh.push_back(queued),
                Position::AfterOwn => {
                    let is_later = |other: &Queued| other.segment.number > segment.number;
                    let at = channel.fresh.iter().position(is_later);
                    channel.fresh.insert(at.unwrap_or(channel.fresh.len()), queued);
                }
            }
            count += 1;
        }
        count
    }

    /// Most packets in a row that [`Queues::take`] would give `channel`.
    pub(super) fn next_packets(&self, channel: u8) -> u32 {
        let queue = &self.channels[usize::from(channel)];
        let Some(queued) = queue.repairs.front().or(queue.fresh.front()) else { return 0 };
        let slot = self.geometry.slot_of(queued.segment.number);
        let run = self.geometry.next_run(slot, channel, queued.packets.clone());
        run.map_or(0, |run| run.end - run.start)
    }

    /// The message and the most packets that [`Queues::take`] would give `channel`, if that is a
    /// repair.
    #[inline]
    pub(super) fn next_repair(&self, channel: u8) -> Option<(u64, Range<u32>)> {
        let queued = self.channels[usize::from(channel)].repairs.front()?;
        let number = queued.segment.number;
        let slot = self.geometry.slot_of(number);
        Some((number, self.geometry.next_run(slot, channel, queued.packets.clone())?))
    }

    /// Takes up to `packets_max` packets in a row for `channel`.
    pub(super) fn take(&mut self, channel: u8, packets_max: u32) -> Option<Taken> {
        let queue = &mut self.channels[usize::from(channel)];
        let is_repair = !queue.repairs.is_empty();
        let list = if is_repair { &mut queue.repairs } else { &mut queue.fresh };
        let queued = list.front_mut()?;
        let segment = queued.segment.clone();
        let slot = self.geometry.slot_of(segment.number);
        let run = self.geometry.next_run(slot, channel, queued.packets.clone());
        let run = run.expect("queued only where the channel has packets");
        let packets = run.start..run.end.min(run.start + packets_max);
        let rest = packets.end..queued.packets.end;
        let run_end = rest.end;
        let is_last = match self.geometry.next_run(slot, channel, rest.clone()) {
            Some(next) => {
                queued.packets = next.start..rest.end;
                false
            }
            None => {
                list.pop_front();
                if let Some(next) = list.front() {
                    prefetch_value(&*next.segment);
                }
                true
            }
        };
        Some(Taken { segment, packets, run_end, is_repair, is_last })
    }

    /// Keeps only runs of messages for which `keep` is true; it is called once per run and channel.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        for channel in self.channels.iter_mut() {
            channel.repairs.retain(|queued| keep(queued.segment.number));
            channel.fresh.retain(|queued| keep(queued.segment.number));
        }
    }

    /// Whether at least this many packets wait. Counts only the first runs of one channel, because
    /// runs are long if much waits.
    pub(super) fn has_packets(&self, packets: u32) -> bool {
        // A run is queued on each channel that has a part in it.
        let Some(channel) = self.channels.iter().find(|channel| !channel.is_empty()) else {
            return packets == 0;
        };
        let runs = channel.fresh.iter().chain(&channel.repairs).take(RUNS_SCANNED_MAX);
        let counts = runs.map(|run| run.packets.end - run.packets.start);
        counts.fold(0, u32::saturating_add) >= packets
    }

    /// Packets that wait for `channel`, counted only until they are more than `most`. A run counts
    /// whole, though other channels have a part in it.
    pub(super) fn packets_on(&self, channel: usize, most: u32) -> u32 {
        let Channel { repairs, fresh } = &self.channels[channel];
        let mut packets = 0_u32;
        for run in repairs.iter().chain(fresh) {
            packets = packets.saturating_add(run.packets.end - run.packets.start);
            if packets > most {
                break;
            }
        }
        packets
    }

    /// Whether some channel's queue is empty.
    pub(super) fn has_empty(&self) -> bool {
        self.channels.iter().any(Channel::is_empty)
    }

    /// Whether all queues are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.channels.iter().all(Channel::is_empty)
    }

    /// Whether the queue of `channel` is empty.
    pub(super) fn is_empty_on(&self, channel: usize) -> bool {
        self.channels[channel].is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_place::buffer::SendBuffer;
    use lacuna_place::geometry::GeometryConfig;

    #[test]
    fn queued_packets_are_counted_up_to_a_limit() {
        let geometry = Geometry::new(GeometryConfig::default()).unwrap();
        let segment = Arc::new(Segment {
            geometry,
            number: 0,
            data: SendBuffer::from(vec![0; 1 << 20]),
            first_packet: 0,
            message_end: None,
            immediate: None,
            peer_queue_pair: 1,
            rkey: 0,
            target: None,
            encoder: None,
        });
        let mut queues = Queues::new(geometry);
        assert_eq!(queues.packets_on(0, 10), 0);
        queues.push(&segment, &(0..60), Position::Last);
        queues.push(&segment, &(80..84), Position::Repair);
        assert_eq!(queues.packets_on(0, 64), 64);
        queues.push(&segment, &(84..85), Position::Last);
        assert!(queues.packets_on(0, 64) > 64);
        queues.take(0, 4);
        assert_eq!(queues.packets_on(0, 64), 61);
    }
}
