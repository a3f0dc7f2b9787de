//! How a list of `oracle.rs` ends: the link is healed, everything ends, both ends' views are compared, and every
//! packet is sent again.

use super::{MS, RECEIVES_MAX, Sent, World};
use lacuna_engine::testing::{Link, Side};
use lacuna_proto::qp::{RecvOptions, SendFailure};

impl World {
    /// Lets everything end on a link without faults.
    pub(super) fn heal(&mut self) {
        self.pair.run_for(0);
        self.check();
        self.pair.link = Link { delay_ns: 2 * MS, ..Link::default() };
        for side in [Side::A, Side::B] {
            for index in 0..self.ends[side as usize].sends.len() {
                let sent = &self.ends[side as usize].sends[index];
                if sent.stream.is_some() {
                    // Ended already, or now.
                    let _ = self.pair.end(side).qp().end_stream(sent.id);
                }
            }
        }
        for _ in 0..600 {
            self.pair.run_for(100 * MS);
            self.check();
            if self.all_ended() {
                return self.finish();
            }
            for side in [Side::A, Side::B] {
                self.take_finished(side);
                let peer = &self.ends[side.peer() as usize];
                let waits = |sent: &&Sent| {
                    let qp = match side {
                        Side::A => &self.pair.b.qp(),
                        Side::B => &self.pair.a.qp(),
                    };
                    qp.send_status(sent.id).is_some_and(|status| status.outcome.is_none())
                };
                let waiting = peer.sends.iter().filter(waits).count();
                let open = self.ends[side as usize].receives.iter().filter(|r| r.open.is_some());
                if waiting > open.count() {
                    self.post_late(side);
                }
            }
        }
        panic!("operations do not end on a healed link: {:?}", self.open_sends());
    }

    fn post_late(&mut self, side: Side) {
        let before = self.ends[side as usize].receives.len();
        if before < RECEIVES_MAX {
            self.post(side, 40_000.min(10 * self.slot), RecvOptions::default());
        }
        if self.ends[side as usize].receives.len() == before {
            // No slot, or too many receives: what still waits is given up.
            let now_ns = self.pair.now_ns;
            let peer = side.peer();
            for sent in &self.ends[peer as usize].sends {
                self.pair.end(peer).qp().cancel_send(now_ns, sent.id);
            }
        }
    }

    /// Closes receives that are complete, failed, or without progress for a second. A reliable send
    /// in progress must not stand still.
    fn take_finished(&mut self, side: Side) {
        let (own, peer) = match side {
            Side::A => (self.pair.a.qp(), self.pair.b.qp()),
            Side::B => (self.pair.b.qp(), self.pair.a.qp()),
        };
        let [a, b] = &mut self.ends;
        let (receives, sends) = match side {
            Side::A => (&mut a.receives, &b.sends),
            Side::B => (&mut b.receives, &a.sends),
        };
        let goes_on = |send: &usize| {
            let status = peer.send_status(sends[*send].id).expect("kept");
            sends[*send].stream.is_none() && status.outcome.is_none()
        };
        let mut finished = Vec::new();
        for (index, received) in receives.iter_mut().enumerate() {
            let Some(posted) = &received.open else { continue };
            let done: u32 = posted.parts.iter().map(|part| part.chunks_done()).sum();
            received.stalled = if done > received.chunks_last { 0 } else { received.stalled + 1 };
            received.chunks_last = done;
            let is_begun = done > 0 && received.candidates.iter().all(goes_on);
            let is_over = posted.reason().is_some();
            if is_over || posted.is_complete() || own.receive_failure(posted).is_some() {
                finished.push(index);
            } else if self.mode.is_reliable() && is_begun {
                assert!(received.stalled < 50, "a message stands still for five seconds");
            } else if received.stalled > 10 {
                finished.push(index);
            }
        }
        drop((own, peer));
        for index in finished {
            self.close(side, index);
        }
    }

    fn open_sends(&self) -> Vec<(Side, usize)> {
        let of = |side: Side| {
            let qp = match side {
                Side::A => &self.pair.a.qp(),
                Side::B => &self.pair.b.qp(),
            };
            let sends = self.ends[side as usize].sends.iter().enumerate();
            sends
                .filter(|(_, sent)| qp.send_status(sent.id).expect("kept").outcome.is_none())
                .map(move |(index, _)| (side, index))
                .collect::<Vec<_>>()
        };
        [of(Side::A), of(Side::B)].concat()
    }

    fn all_ended(&self) -> bool {
        self.open_sends().is_empty()
    }

    /// All sends have ended: compares both ends' views.
    fn finish(&mut self) {
        for side in [Side::A, Side::B] {
            for index in 0..self.ends[side as usize].receives.len() {
                self.close(side, index);
            }
            assert_eq!(self.pair.end(side).qp().failure(), None);
        }
        for side in [Side::A, Side::B] {
            let mut holders: Vec<Vec<usize>> =
                self.ends[side as usize].sends.iter().map(|_| Vec::new()).collect();
            let mut last = None;
            let receives = &self.ends[side.peer() as usize].receives;
            for (index, received) in receives.iter().enumerate() {
                if let [only] = received.candidates[..] {
                    assert!(last < Some(only), "sends land in the order of the receives");
                    last = Some(only);
                }
                if received.is_complete {
                    received.candidates.iter().for_each(|send| holders[*send].push(index));
                }
            }
            for (index, holders) in holders.iter().enumerate() {
                let sent = &self.ends[side as usize].sends[index];
                let outcome = self.pair.status(side, sent.id).outcome;
                let is_reliable = self.mode.is_reliable() && sent.stream.is_none();
                if is_reliable && outcome == Some(Ok(())) {
                    assert!(!holders.is_empty(), "send {index} succeeded and no receive has it");
                }
                if let Some(Err(SendFailure::Failed(failure))) = outcome {
                    panic!("{failure}");
                }
            }
        }
    }

    /// Sends every packet again. No returned buffer may change.
    pub(super) fn replay(&mut self) -> Vec<(Side, u8, Vec<u8>)> {
        let recorded = self.pair.recorded.take().expect("recording is on");
        for (from, channel, bytes) in &recorded {
            self.pair.inject(from.peer(), *channel, bytes.clone());
        }
        self.pair.run_for(MS);
        for received in self.ends.iter().flat_map(|end| &end.receives) {
            if let Some((buffer, copy)) = &received.closed {
                assert_eq!(buffer, copy, "a buffer changed after it was closed");
            }
        }
        recorded
    }

    pub(super) fn end_streams_that_failed(&mut self) {
        for side in [Side::A, Side::B] {
            for sent in &mut self.ends[side as usize].sends {
                let outcome = self.pair.status(side, sent.id).outcome;
                if let Some(stream) = &mut sent.stream {
                    stream.ended |= outcome.is_some();
                }
            }
        }
    }
}
