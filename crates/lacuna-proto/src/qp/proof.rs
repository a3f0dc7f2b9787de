//! Proof that full packets pass to the peer, on every channel: a queue pair that
//! was just connected sends some and waits for their answers.
//!
//! The ends agree on a packet size before any packet was sent (`probe.rs` says
//! how it is guessed), and the accepting end gives its word at once. So both ask:
//! probes of the full size, two at first since either may be lost, then a round
//! now and then until each channel has answered. It costs no time, data goes
//! meanwhile. The first ones tell the connecting end, beside the peer's welcome,
//! that UDP passes; and if no answer comes for the time that connecting may take,
//! the queue pair ends with an error that says so and not with a silence. Where the quick
//! rounds are not answered, a size that passes is looked for (`pmtu.rs`), and proved instead.

use super::{Failure, QueuePair};

/// Probes of the first round, per channel.
const FIRST_ROUND: u8 = 2;
/// Time between the first rounds, and between later ones.
const ROUND_NS: (u64, u64) = (25_000_000, 100_000_000);
/// Rounds that follow each other quickly.
const QUICK_ROUNDS: u32 = 4;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Proof {
    since_ns: u64,
    gives_up_ns: u64,
    next_round_ns: u64,
    rounds: u32,
    /// Per channel: whether a full packet was answered.
    answered: Vec<bool>,
    /// Per channel: probes of this round that are still to be sent.
    to_send: Vec<u8>,
}

impl Proof {
    /// When there is something to do for the owner of the channels whose bits
    /// are set.
    pub(super) fn poll_timeout(&self, channels: u32) -> u64 {
        let owes = |(channel, count): (usize, &u8)| channels >> channel & 1 == 1 && *count > 0;
        if self.to_send.iter().enumerate().any(owes) {
            return 0;
        }
        self.next_round_ns.min(self.gives_up_ns)
    }

    fn failure(&self, packet_bytes: u32) -> Failure {
        Failure::NoUdp {
            answered: self.answered.iter().filter(|answered| **answered).count() as u32,
            channels: self.answered.len() as u32,
            packet_bytes,
            waited_ms: (self.gives_up_ns - self.since_ns) / 1_000_000,
        }
    }
}

impl QueuePair {
    /// Sends full packets until the peer has answered one on every channel; if
    /// that does not come about within `patience_ns`, the queue pair fails with
    /// [`Failure::NoUdp`]. To be called once it is connected.
    pub fn prove(&mut self, now_ns: u64, patience_ns: u64) {
        let channels = self.channels.len();
        self.proof = Some(Proof {
            since_ns: now_ns,
            gives_up_ns: now_ns.saturating_add(patience_ns),
            next_round_ns: now_ns + ROUND_NS.0,
            rounds: 1,
            answered: vec![false; channels],
            to_send: vec![FIRST_ROUND; channels],
        });
    }

    /// Begins the next round, or gives up.
    pub(super) fn on_proof_timeout(&mut self, now_ns: u64) {
        let packet_bytes = self.full_packet_bytes();
        let rtt_ns = self.path.rtt().smoothed_ns().unwrap_or(0);
        let Some(proof) = &mut self.proof else { return };
        if proof.gives_up_ns <= now_ns {
            let failure = proof.failure(packet_bytes);
            self.proof = None;
            self.fail(failure);
        } else if proof.next_round_ns <= now_ns {
            let round_ns = if proof.rounds < QUICK_ROUNDS { ROUND_NS.0 } else { ROUND_NS.1 };
            proof.rounds += 1;
            proof.next_round_ns = now_ns + rtt_ns.max(round_ns);
            for (to_send, answered) in proof.to_send.iter_mut().zip(&proof.answered) {
                *to_send = u8::from(!answered);
            }
            if proof.rounds == QUICK_ROUNDS {
                self.on_too_large(now_ns, packet_bytes);
            }
        }
    }

    /// Whether a probe of this channel is to be sent; counts it as sent.
    pub(super) fn take_proof(&mut self, channel: u8) -> bool {
        let Some(proof) = &mut self.proof else { return false };
        let to_send = proof.to_send.get_mut(usize::from(channel));
        to_send.filter(|count| **count > 0).map(|count| *count -= 1).is_some()
    }

    /// Full packets are of another size now: that they pass is to be seen once more.
    pub(super) fn restart_proof(&mut self, now_ns: u64) {
        let Some(proof) = &mut self.proof else { return };
        proof.answered.fill(false);
        proof.to_send.fill(1);
        proof.next_round_ns = now_ns + ROUND_NS.0;
    }

    /// A probe of `channel` was answered that was as long as a full packet in so many pieces.
    pub(super) fn on_proof(&mut self, channel: usize, pieces: u32) {
        let is_full = pieces <= self.send.pieces();
        let Some(proof) = self.proof.as_mut().filter(|_| is_full) else { return };
        if let Some(answered) = proof.answered.get_mut(channel) {
            *answered = true;
            proof.to_send[channel] = 0;
        }
        if proof.answered.iter().all(|answered| *answered) {
            self.proof = None;
        }
    }
}
