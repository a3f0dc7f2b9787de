//! Schedule of the probes that test which packet sizes pass: each size on each channel, repeated until
//! the peer has answered (packetization-layer path MTU discovery, RFC 8899, section 4.3).
//!
//! It has two users. Before a queue pair exists, [`crate::probe`] probes all sizes that a connection
//! could use; afterwards the queue pair probes only the agreed size (`qp/proof.rs`). The first rounds
//! follow each other quickly, because the peer may not listen yet and any packet may be lost; later
//! ones are rare, so that they do not flood a path with an outage.
//!
//! Sizes are indices here, 0 for the largest. The owner decides the length of the packets, the format
//! of probe and answer, and what follows from the outcome.
//!
//! Invariants: on a channel, a size that was answered is not probed again, nor is a smaller one; a
//! round sends at most one probe for each channel and size, except for the copies that its caller
//! asks for.

use std::collections::VecDeque;

/// Time between the first rounds, and between later ones (judgements): a lost packet costs little,
/// and a dark path gets at most ten packets a second on each channel.
const ROUND_NS: (u64, u64) = (25_000_000, 100_000_000);
/// Rounds with the short time between them.
pub(crate) const QUICK_ROUNDS: u32 = 4;

/// Rounds of probes, and the sizes answered so far.
#[derive(Debug)]
pub(crate) struct ProbeRounds {
    /// Number of sizes.
    sizes: usize,
    since_ns: u64,
    gives_up_ns: u64,
    next_round_ns: u64,
    /// Rounds that have begun.
    begun: u32,
    /// The largest size that was answered, per channel.
    answered: Vec<Option<usize>>,
    /// Probes of this round still to be sent: channel and size.
    to_send: VecDeque<(u8, usize)>,
}

impl ProbeRounds {
    /// Probes `sizes` sizes on each channel, from now until `probe_timeout_ns` have passed.
    pub(crate) fn new(now_ns: u64, channels: u8, sizes: usize, probe_timeout_ns: u64) -> Self {
        Self {
            sizes,
            since_ns: now_ns,
            gives_up_ns: now_ns.saturating_add(probe_timeout_ns),
            next_round_ns: now_ns,
            begun: 0,
            answered: vec![None; usize::from(channels)],
            to_send: VecDeque::new(),
        }
    }

    /// Rounds that have begun.
    pub(crate) fn begun(&self) -> u32 {
        self.begun
    }

    /// Whether the next round is due.
    pub(crate) fn is_round_due(&self, now_ns: u64) -> bool {
        self.next_round_ns <= now_ns
    }

    /// Whether the time limit has passed.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        self.gives_up_ns <= now_ns
    }

    /// The time limit.
    pub(crate) fn probe_timeout_ns(&self) -> u64 {
        self.gives_up_ns - self.since_ns
    }

    /// Begins the next round with `copies` of each probe. Probes of the round before that were not
    /// sent are dropped.
    pub(crate) fn begin_round(&mut self, now_ns: u64, rtt_ns: u64, copies: usize) {
        let round_ns = if self.begun < QUICK_ROUNDS { ROUND_NS.0 } else { ROUND_NS.1 };
        self.begun += 1;
        self.next_round_ns = now_ns + rtt_ns.max(round_ns);
        self.fill(copies);
    }

    /// Forgets the answers and begins again, because the sizes have changed. The count of rounds
    /// goes on.
    pub(crate) fn restart(&mut self, now_ns: u64) {
        self.answered.fill(None);
        self.next_round_ns = now_ns + ROUND_NS.0;
        self.fill(1);
    }

    fn fill(&mut self, copies: usize) {
        self.to_send.clear();
        for (channel, answered) in self.answered.iter().enumerate() {
            let missing = 0..answered.unwrap_or(self.sizes);
            for size in missing {
                self.to_send.extend(std::iter::repeat_n((channel as u8, size), copies));
            }
        }
    }

    /// The next probe to send on a channel for which `owns` is true; it counts as sent.
    pub(crate) fn take(&mut self, owns: impl Fn(u8) -> bool) -> Option<(u8, usize)> {
        let next = self.to_send.iter().position(|(channel, _)| owns(*channel))?;
        self.to_send.remove(next)
    }

    /// A probe of this size was answered. Returns whether size and channel exist.
    pub(crate) fn on_answer(&mut self, channel: usize, size: usize) -> bool {
        let answered = self.answered.get_mut(channel).filter(|_| size < self.sizes);
        let Some(answered) = answered else { return false };
        let largest = answered.map_or(size, |before| before.min(size));
        *answered = Some(largest);
        self.to_send.retain(|(to, asked)| usize::from(*to) != channel || *asked < largest);
        true
    }

    /// The largest size that was answered, per channel.
    pub(crate) fn answered(&self) -> &[Option<usize>] {
        &self.answered
    }

    /// Number of channels with an answer.
    pub(crate) fn answered_channels(&self) -> u32 {
        self.answered.iter().flatten().count() as u32
    }

    /// Number of channels.
    pub(crate) fn channels(&self) -> u8 {
        self.answered.len() as u8
    }

    /// When the worker with these channels (a mask) has a probe to send, or a round begins.
    pub(crate) fn poll_timeout(&self, channels: u32) -> u64 {
        if self.to_send.iter().any(|(channel, _)| channels >> channel & 1 == 1) {
            return 0;
        }
        self.next_round_ns
    }

    /// When the time limit passes.
    pub(crate) fn gives_up_ns(&self) -> u64 {
        self.gives_up_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn all(rounds: &mut ProbeRounds) -> Vec<(u8, usize)> {
        std::iter::from_fn(|| rounds.take(|_| true)).collect()
    }

    #[test]
    fn rounds_are_quick_at_first_and_never_closer_than_a_round_trip() {
        for (rtt_ms, expected) in
            [(0, [25, 25, 25, 25, 100, 100]), (40, [40, 40, 40, 40, 100, 100])]
        {
            let mut rounds = ProbeRounds::new(0, 1, 1, u64::MAX);
            let mut gaps_ms = Vec::new();
            for _ in 0..6 {
                let now_ns = rounds.poll_timeout(1);
                assert!(rounds.is_round_due(now_ns));
                rounds.begin_round(now_ns, rtt_ms * MS, 1);
                assert_eq!((rounds.poll_timeout(1), all(&mut rounds).len()), (0, 1));
                gaps_ms.push((rounds.poll_timeout(1) - now_ns) / MS);
            }
            assert_eq!(gaps_ms, expected);
        }
    }

    #[test]
    fn answered_sizes_are_not_probed_again() {
        let mut rounds = ProbeRounds::new(0, 2, 3, u64::MAX);
        rounds.begin_round(0, 0, 1);
        assert_eq!(rounds.take(|channel| channel == 1), Some((1, 0)));
        assert!(rounds.on_answer(1, 1));
        assert_eq!(all(&mut rounds), [(0, 0), (0, 1), (0, 2)]);
        rounds.begin_round(1, 0, 1);
        assert_eq!(all(&mut rounds), [(0, 0), (0, 1), (0, 2), (1, 0)]);
        // A smaller one says nothing new.
        assert!(rounds.on_answer(1, 2) && rounds.on_answer(0, 0));
        assert_eq!(rounds.answered(), [Some(0), Some(1)]);
        assert_eq!(rounds.answered_channels(), 2);
        assert!(!rounds.on_answer(2, 0) && !rounds.on_answer(0, 3), "there are none of these");
        rounds.restart(2);
        assert_eq!(all(&mut rounds).len(), 6);
    }

    #[test]
    fn an_owner_is_called_for_its_own_channels() {
        let mut rounds = ProbeRounds::new(0, 2, 1, u64::MAX);
        rounds.begin_round(0, 0, 2);
        assert_eq!(
            (rounds.take(|c| c == 0), rounds.take(|c| c == 0)),
            (Some((0, 0)), Some((0, 0)))
        );
        assert_eq!(rounds.take(|c| c == 0), None);
        assert_eq!((rounds.poll_timeout(0b01), rounds.poll_timeout(0b10)), (25 * MS, 0));
    }

    #[test]
    fn an_endless_time_limit_does_not_overflow() {
        let rounds = ProbeRounds::new(7, 1, 1, u64::MAX);
        assert!(!rounds.is_over(u64::MAX - 1));
        assert_eq!(rounds.probe_timeout_ns(), u64::MAX - 7);
    }
}
