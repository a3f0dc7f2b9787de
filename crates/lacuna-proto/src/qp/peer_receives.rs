//! The peer's posted receives as the sender knows them: clear to send (SDR-RDMA 3.2.3).
//!
//! Each Receives frame has the whole state: the finished messages, the number of posted receives and
//! the length of each. Any frame may be lost; the next one repeats the state.

use lacuna_wire::{Receives, ReceivesBefore, Run};

/// Most runs kept of one frame; receives beyond them count as not posted yet.
const RUNS_MAX: usize = 256;
/// Highest plausible message number: a queue pair that starts one message a nanosecond gets there
/// in a century. Keeps sums from overflowing.
const NUMBER_MAX: u64 = 1 << 62;

/// The newest Receives frame.
#[derive(Debug, Default)]
pub(crate) struct PeerReceives {
    base: u64,
    posted: u64,
    finished: Vec<u8>,
    failed_from: u64,
    /// Ascending.
    failed: Vec<u64>,
    runs: Vec<Run>,
    /// How many receives began before `base`; `None` if the peer did not say.
    before_base: Option<u64>,
    /// What it said for the next frame.
    told: Option<ReceivesBefore>,
}

/// State of a message at the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerStatus {
    /// Open or not posted.
    Open,
    /// The peer has all of it.
    Complete,
    /// The peer closed it incomplete.
    Incomplete,
    /// The peer has finished it, complete or not: too many receives were closed incomplete since
    /// then, and the list is full.
    Unknown,
}

/// The peer's receive for the next send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextReceive {
    /// Message number of its first slot.
    pub(crate) first: u64,
    /// Bytes of the whole receive.
    pub(crate) capacity_bytes: u64,
}

/// The receive of a certain send, where the n-th send belongs to the n-th receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnReceive {
    /// The peer awaits the send.
    Open(NextReceive),
    /// It is over.
    Over,
    /// It is not posted, as far as is known.
    Unknown,
}

impl PeerReceives {
    /// How many receives began before the base of the frame that follows.
    pub(crate) fn on_before(&mut self, before: &ReceivesBefore) {
        self.told = Some(*before).filter(|before| before.receives <= NUMBER_MAX);
    }

    /// Takes in the peer's newest frame. A frame with impossible numbers is ignored.
    pub(crate) fn update(&mut self, frame: &Receives<'_>) {
        if frame.base > frame.posted || frame.posted > NUMBER_MAX {
            return;
        }
        let told = self.told.take().filter(|before| before.base == frame.base);
        self.before_base = told.map(|before| before.receives);
        self.base = frame.base;
        self.posted = frame.posted;
        self.finished.clear();
        self.finished.extend_from_slice(frame.finished);
        self.failed_from = frame.failed_from;
        self.failed.clear();
        self.failed.extend(frame.failed.iter());
        self.failed.sort_unstable();
        self.runs.clear();
        self.runs.extend(frame.runs.iter().take(RUNS_MAX));
    }

    /// All messages before this one are over.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Receives posted so far.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// All messages from here on are open or not posted.
    pub(crate) fn finished_end(&self) -> u64 {
        self.base.saturating_add(8 * self.finished.len() as u64)
    }

    /// State of message `number`.
    pub(crate) fn status_of(&self, number: u64) -> PeerStatus {
        let finished = match number.checked_sub(self.base) {
            None => true,
            Some(ahead) => self
                .finished
                .get((ahead / 8) as usize)
                .is_some_and(|byte| byte >> (ahead % 8) & 1 == 1),
        };
        if !finished {
            PeerStatus::Open
        } else if self.failed.binary_search(&number).is_ok() {
            PeerStatus::Incomplete
        } else if number < self.failed_from {
            PeerStatus::Unknown
        } else {
            PeerStatus::Complete
        }
    }

    /// The first receive that begins at or after message `next`, if all of it is posted.
    pub(crate) fn next_receive(&self, next: u64) -> Option<NextReceive> {
        let mut number = self.base;
        let mut receive: Option<NextReceive> = None;
        for run in &self.runs {
            if run.continues {
                if let Some(receive) = &mut receive {
                    let more = u64::from(run.count).saturating_mul(run.capacity_bytes);
                    receive.capacity_bytes = receive.capacity_bytes.saturating_add(more);
                }
            } else {
                if receive.is_some() {
                    return receive;
                }
                let end = number.saturating_add(u64::from(run.count));
                if end > next {
                    let first = number.max(next);
                    receive = Some(NextReceive { first, capacity_bytes: run.capacity_bytes });
                    if end > first + 1 {
                        // The next slot of the run begins another receive.
                        return receive;
                    }
                }
            }
            number = number.saturating_add(u64::from(run.count));
        }
        // The frame may be cut before the last receive's further slots.
        receive.filter(|_| number >= self.posted)
    }
}

impl PeerReceives {
    /// The receive of the send that has `earlier` sends before it.
    pub(crate) fn of_send(&self, earlier: u64) -> OwnReceive {
        let Some(before_base) = self.before_base else { return OwnReceive::Unknown };
        if earlier < before_base {
            return OwnReceive::Over;
        }
        match self.locate(earlier - before_base) {
            Some(receive) if self.status_of(receive.first) == PeerStatus::Open => {
                OwnReceive::Open(receive)
            }
            Some(_) => OwnReceive::Over,
            None => OwnReceive::Unknown,
        }
    }

    /// All messages before this number are for receives of earlier sends, as far as is known.
    pub(crate) fn end_of_earlier(&self, earlier: u64) -> u64 {
        let Some(ahead) = self.before_base.and_then(|before| earlier.checked_sub(before)) else {
            return 0;
        };
        let known = self.runs.iter().map(|run| u64::from(run.count));
        let end = known.fold(self.base, u64::saturating_add);
        // The last receive may go on behind what is known.
        let end = if end >= self.posted { end } else { self.base };
        self.locate(ahead).map_or(end, |receive| receive.first)
    }

    /// The receive that begins as the `ahead`-th from the base on, if all of it is posted.
    fn locate(&self, ahead: u64) -> Option<NextReceive> {
        let (mut number, mut begun) = (self.base, 0_u64);
        let mut receive: Option<NextReceive> = None;
        for run in &self.runs {
            let count = u64::from(run.count);
            if run.continues {
                if let Some(receive) = &mut receive {
                    let more = count.saturating_mul(run.capacity_bytes);
                    receive.capacity_bytes = receive.capacity_bytes.saturating_add(more);
                }
            } else {
                if receive.is_some() {
                    return receive;
                }
                if let Some(index) = ahead.checked_sub(begun).filter(|index| *index < count) {
                    let first = number.saturating_add(index);
                    receive = Some(NextReceive { first, capacity_bytes: run.capacity_bytes });
                    if index + 1 < count {
                        return receive;
                    }
                }
                begun = begun.saturating_add(count);
            }
            number = number.saturating_add(count);
        }
        receive.filter(|_| number >= self.posted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_wire::{RunList, U64List};

    fn receives(
        base: u64,
        posted: u64,
        finished: &[u8],
        failed: &[u64],
        runs: &[Run],
    ) -> PeerReceives {
        let mut receives = PeerReceives::default();
        receives.update(&Receives {
            base,
            posted,
            finished,
            failed_from: 0,
            failed: U64List::from_values(failed),
            runs: RunList::from_runs(runs),
        });
        receives
    }

    fn run(count: u32, capacity_bytes: u64, continues: bool) -> Run {
        Run { count, capacity_bytes, continues }
    }

    #[test]
    fn sends_land_in_the_order_of_the_receives() {
        let receives = receives(10, 14, &[], &[], &[run(3, 100, false), run(1, 50, false)]);
        let at = |next| receives.next_receive(next).map(|l| (l.first, l.capacity_bytes));
        assert_eq!(at(8), Some((10, 100)));
        assert_eq!(at(11), Some((11, 100)));
        assert_eq!(at(12), Some((12, 100)));
        assert_eq!(at(13), Some((13, 50)));
        assert_eq!(at(14), None);
    }

    #[test]
    fn a_receive_of_several_slots_is_one_receive() {
        let runs = [run(1, 100, false), run(2, 100, true), run(1, 40, true), run(1, 7, false)];
        let receives = receives(0, 5, &[], &[], &runs);
        let at = |next| receives.next_receive(next).map(|l| (l.first, l.capacity_bytes));
        assert_eq!(at(0), Some((0, 340)));
        assert_eq!(at(1), Some((4, 7)), "unused slots of the first are passed over");
        assert_eq!(at(5), None);
    }

    #[test]
    fn a_receive_that_is_cut_off_is_not_posted_yet() {
        let receives = receives(0, 3, &[], &[], &[run(1, 100, false), run(1, 100, true)]);
        assert_eq!(receives.next_receive(0), None);
    }

    #[test]
    fn the_nth_send_is_for_the_nth_receive_however_many_are_over() {
        let runs = [run(1, 100, true), run(2, 100, false), run(1, 40, true), run(3, 7, false)];
        let mut receives = PeerReceives::default();
        let frame = |base, finished| Receives {
            base,
            posted: base + 7,
            finished,
            failed_from: 0,
            failed: U64List::from_values(&[]),
            runs: RunList::from_runs(&runs),
        };
        receives.update(&frame(10, &[]));
        assert_eq!(receives.of_send(3), OwnReceive::Unknown, "the peer has not said");
        receives.on_before(&ReceivesBefore { base: 10, receives: 4 });
        // The fourth of these slots is of a receive that is over.
        receives.update(&frame(10, &[0b1_0000]));
        let open = |first, capacity_bytes| OwnReceive::Open(NextReceive { first, capacity_bytes });
        let found: Vec<_> = (2..10).map(|earlier| receives.of_send(earlier)).collect();
        let (over, unknown) = (OwnReceive::Over, OwnReceive::Unknown);
        let expected =
            [over, over, open(11, 100), open(12, 140), over, open(15, 7), open(16, 7), unknown];
        assert_eq!(found, expected);
        let ends: Vec<_> = (3..10).map(|earlier| receives.end_of_earlier(earlier)).collect();
        assert_eq!(ends, [0, 11, 12, 14, 15, 16, 17]);
        // What was said of another frame says nothing.
        receives.on_before(&ReceivesBefore { base: 11, receives: 5 });
        receives.update(&frame(10, &[]));
        assert_eq!(receives.of_send(5), OwnReceive::Unknown);
    }

    #[test]
    fn finished_messages_are_complete_unless_listed() {
        let receives = receives(10, 20, &[0b101], &[4, 12], &[]);
        assert_eq!(receives.status_of(3), PeerStatus::Complete);
        assert_eq!(receives.status_of(4), PeerStatus::Incomplete);
        assert_eq!(receives.status_of(10), PeerStatus::Complete);
        assert_eq!(receives.status_of(11), PeerStatus::Open);
        assert_eq!(receives.status_of(12), PeerStatus::Incomplete);
        assert_eq!(receives.status_of(500), PeerStatus::Open);
    }
}
