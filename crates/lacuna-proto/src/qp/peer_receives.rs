//! The peer's posted receives as the sender knows them: clear to send (SDR-RDMA 3.2.3).
//!
//! Each Receives frame has the whole state: the finished messages, the number of posted receives and
//! the length of each. Any frame may be lost; the next one repeats the state.

use lacuna_wire::{Receives, Run};

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

impl PeerReceives {
    /// Takes in the peer's newest frame. A frame with impossible numbers is ignored.
    pub(crate) fn update(&mut self, frame: &Receives<'_>) {
        if frame.base > frame.posted || frame.posted > NUMBER_MAX {
            return;
        }
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
