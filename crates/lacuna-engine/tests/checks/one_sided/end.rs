//! How a list of `one_sided.rs` ends: the link is healed, everything ends, all keys are revoked, and every packet is
//! sent again.

use super::{End, FLIGHT_NS, MS, Reached, Read, World};
use lacuna_engine::testing::{Link, Side};
use lacuna_proto::qp::SendFailure;

impl World {
    /// Lets everything end on a link without faults.
    pub(super) fn heal(&mut self) {
        self.check();
        self.pair.link = Link { delay_ns: 2 * MS, ..Link::default() };
        for round in 0..600 {
            self.pair.run_for(100 * MS);
            [Side::A, Side::B].into_iter().for_each(|side| self.take_written(side));
            let is_open = |end: &End| {
                end.writes.iter().any(|write| write.outcome.is_none())
                    || end.reads.iter().any(|read| read.after.is_none())
            };
            if !self.ends.iter().any(is_open) {
                break;
            }
            assert!(round < 599, "operations do not end on a healed link");
            if round == 300 {
                self.give_up_unknown();
            }
        }
        // What is on its way arrives.
        self.pair.run_for(2 * FLIGHT_NS);
        for side in [Side::A, Side::B] {
            self.take_written(side);
            assert_eq!(self.pair.end(side).qp().failure(), None);
            for (index, write) in self.ends[side as usize].writes.iter().enumerate() {
                let is_told = write.immediate.is_some() && write.outcome == Some(Ok(()));
                assert!(
                    !self.mode.is_reliable() || !is_told || write.told == 1,
                    "write {index} was not told"
                );
            }
        }
    }

    /// Nobody answers a write under a key that is not known any more. All others have ended.
    fn give_up_unknown(&mut self) {
        let now_ns = self.pair.now_ns;
        for side in [Side::A, Side::B] {
            let peer = &self.ends[side.peer() as usize];
            for (index, write) in self.ends[side as usize].writes.iter().enumerate() {
                if write.outcome.is_none() {
                    assert!(!peer.allows(write.key), "write {index} does not end");
                    self.pair.end(side).qp().cancel_send(now_ns, write.id);
                }
            }
        }
    }

    /// Revokes every key and sends every packet again: nothing changes.
    pub(super) fn replay(&mut self) {
        for end in &mut self.ends {
            for (key, is_live) in &mut end.windows {
                assert_eq!(end.keys.revoke(*key), *is_live);
                *is_live = false;
            }
            assert_eq!(end.keys.len(), 0);
        }
        let recorded = self.pair.recorded.take().expect("recording is on");
        for (from, channel, bytes) in recorded {
            self.pair.inject(from.peer(), channel, bytes);
        }
        self.pair.run_for(MS);
        self.check();
    }

    pub(super) fn reached(&self) -> Reached {
        let mut reached = Reached::default();
        for end in &self.ends {
            for write in &end.writes {
                reached.writes += u64::from(write.outcome == Some(Ok(())));
                reached.refused += u64::from(write.outcome == Some(Err(SendFailure::Refused)));
                reached.told += u64::from(write.told);
            }
            let is_read =
                |read: &&Read| read.after.as_ref().is_some_and(|b| b.iter().any(|b| *b != 0));
            reached.reads += end.reads.iter().filter(is_read).count() as u64;
        }
        reached
    }
}
