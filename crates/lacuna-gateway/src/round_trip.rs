//! Round trips over the long path, from packets alone.
//!
//! Nothing is sent to measure. What leaves for the path and asks for something is noted, by addresses and
//! number; what comes from there with that number answers it:
//!
//! | question | answer |
//! |---|---|
//! | a packet with AckReq | an acknowledgement with its number |
//! | a READ request | the answer's first packet |
//! | a refusal, "sequence error" | the packet that was missing |
//!
//! Which queue pair belongs to which is not in the packets, so a round trip is that of two addresses. A
//! question that is asked twice measures nothing (Karn).
//!
//! Invariant: fixed memory; a collision loses a sample or a result.

use crate::flows::hash_of;
use crate::frame::FlowKey;

const QUESTIONS: usize = 1 << 12;
const PAIRS: usize = 1 << 10;
/// An answer that takes longer belongs to another question.
const SAMPLE_NS_MAX: u64 = 4_000_000_000;
/// A new sample has this part of the weight (RFC 6298).
const WEIGHT_DIVISOR: u64 = 8;

/// What answers a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    Acknowledgement,
    Data,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    hash: u64,
    expected: Expected,
    /// `None` if it was asked again.
    asked_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    hash: u64,
    smoothed_ns: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct RoundTrips {
    seed: u64,
    questions: Box<[Option<Question>]>,
    pairs: Box<[Pair]>,
    last_ns: u64,
}

impl RoundTrips {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            questions: vec![None; QUESTIONS].into_boxed_slice(),
            pairs: vec![Pair::default(); PAIRS].into_boxed_slice(),
            last_ns: 0,
        }
    }

    /// A packet that asks leaves for the path.
    pub(crate) fn on_question(&mut self, now_ns: u64, key: &FlowKey, psn: u32, expected: Expected) {
        let hash = self.hash(key, psn);
        let place = &mut self.questions[hash as usize % QUESTIONS];
        let is_again = place.is_some_and(|question| {
            let is_recent =
                question.asked_ns.is_none_or(|ns| now_ns - ns.min(now_ns) < SAMPLE_NS_MAX);
            question.hash == hash && question.expected == expected && is_recent
        });
        let asked_ns = if is_again { None } else { Some(now_ns) };
        *place = Some(Question { hash, expected, asked_ns });
    }

    /// A packet came from the path that may be an answer.
    pub(crate) fn on_answer(&mut self, now_ns: u64, key: &FlowKey, psn: u32, is: Expected) {
        let asked = key.reversed();
        let hash = self.hash(&asked, psn);
        let place = &mut self.questions[hash as usize % QUESTIONS];
        let Some(question) = place.filter(|q| q.hash == hash && q.expected == is) else { return };
        *place = None;
        let Some(asked_ns) = question.asked_ns else { return };
        let sample_ns = now_ns.saturating_sub(asked_ns);
        if sample_ns == 0 || sample_ns > SAMPLE_NS_MAX {
            return;
        }
        let hash = self.pair_hash(&asked);
        let pair = &mut self.pairs[hash as usize % PAIRS];
        if pair.hash != hash || pair.smoothed_ns == 0 {
            *pair = Pair { hash, smoothed_ns: sample_ns };
        } else {
            let kept_ns = pair.smoothed_ns - pair.smoothed_ns / WEIGHT_DIVISOR;
            pair.smoothed_ns = kept_ns + sample_ns / WEIGHT_DIVISOR;
        }
        self.last_ns = pair.smoothed_ns;
    }

    /// The round trip of a flow that comes from the path, if it is known.
    pub(crate) fn of_incoming(&self, key: &FlowKey) -> Option<u64> {
        let hash = self.pair_hash(&key.reversed());
        let pair = self.pairs[hash as usize % PAIRS];
        (pair.hash == hash && pair.smoothed_ns > 0).then_some(pair.smoothed_ns)
    }

    /// The one that was measured last; zero if none was.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.questions) + size_of_val(&*self.pairs)
    }

    fn hash(&self, key: &FlowKey, psn: u32) -> u64 {
        hash_of(self.seed, key, psn.into())
    }

    fn pair_hash(&self, key: &FlowKey) -> u64 {
        hash_of(self.seed, key, u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: FlowKey = key(1, [1; 16], [2; 16]);
    const BACK: FlowKey = key(9, [2; 16], [1; 16]);

    const fn key(queue_pair: u32, source: [u8; 16], destination: [u8; 16]) -> FlowKey {
        FlowKey { queue_pair, is_answers: false, vlans: [0; 2], source, destination }
    }

    #[test]
    fn a_question_and_its_answer_are_a_round_trip() {
        let mut trips = RoundTrips::new(1);
        trips.on_question(1_000, &OUT, 5, Expected::Acknowledgement);
        trips.on_answer(2_000, &BACK, 5, Expected::Data);
        trips.on_answer(2_000, &BACK, 6, Expected::Acknowledgement);
        assert_eq!(trips.of_incoming(&BACK), None);
        trips.on_answer(41_000, &BACK, 5, Expected::Acknowledgement);
        assert_eq!((trips.of_incoming(&BACK), trips.of_incoming(&OUT)), (Some(40_000), None));
    }

    #[test]
    fn a_question_that_was_asked_twice_measures_nothing() {
        let mut trips = RoundTrips::new(1);
        trips.on_question(1_000, &OUT, 5, Expected::Acknowledgement);
        trips.on_question(20_000, &OUT, 5, Expected::Acknowledgement);
        trips.on_answer(41_000, &BACK, 5, Expected::Acknowledgement);
        assert_eq!(trips.of_incoming(&BACK), None);
    }
}
