//! Proof of the packet size: after connecting, a queue pair probes on every channel that full packets
//! reach the peer (path validation).
//!
//! The ends agree on a packet size before any packet was sent (`handshake/mod.rs`). So both ends send
//! probes of the full size: two at first, because one may be lost, then rounds until each channel has
//! answered. This costs no time, because data are sent meanwhile. The accepting end's first probes,
//! which arrive with the welcome, show the connecting end that UDP passes. Without an answer in the
//! quick rounds, a search for a size that passes begins (`pmtu.rs`), and that size is proved instead.
//! Without an answer within the time limit, the queue pair fails with [`Failure::NoUdp`].

use super::{Failure, QueuePair};
use crate::probe_rounds::{ProbeRounds, QUICK_ROUNDS};

/// Copies of each probe in the first round.
const FIRST_ROUND: usize = 2;

/// A proof in progress.
#[derive(Debug)]
pub(super) struct Proof(ProbeRounds);

impl Proof {
    /// When the worker with these channels (a mask) has something to do.
    pub(super) fn poll_timeout(&self, channels: u32) -> u64 {
        self.0.poll_timeout(channels).min(self.0.gives_up_ns())
    }

    fn failure(&self, packet_bytes: u32) -> Failure {
        Failure::NoUdp {
            answered: self.0.answered_channels(),
            channels: self.0.channels().into(),
            packet_bytes,
            waited_ms: self.0.probe_timeout_ns() / 1_000_000,
        }
    }
}

impl QueuePair {
    /// Sends full packets until the peer has answered one on every channel. If that takes longer
    /// than `probe_timeout_ns`, the queue pair fails with [`Failure::NoUdp`]. To be called once it is
    /// connected.
    pub fn prove(&mut self, now_ns: u64, probe_timeout_ns: u64) {
        let mut rounds = ProbeRounds::new(now_ns, self.channels.len() as u8, 1, probe_timeout_ns);
        rounds.begin_round(now_ns, 0, FIRST_ROUND);
        self.proof = Some(Proof(rounds));
    }

    /// Begins the next round, or fails after the time limit.
    pub(super) fn on_proof_timeout(&mut self, now_ns: u64) {
        let packet_bytes = self.full_packet_bytes();
        let rtt_ns = self.path.rtt().smoothed_ns().unwrap_or(0);
        let Some(proof) = &mut self.proof else { return };
        if proof.0.is_over(now_ns) {
            let failure = proof.failure(packet_bytes);
            self.proof = None;
            self.fail(failure);
        } else if proof.0.is_round_due(now_ns) {
            proof.0.begin_round(now_ns, rtt_ns, 1);
            if proof.0.begun() == QUICK_ROUNDS {
                self.on_too_large(now_ns, packet_bytes);
            }
        }
    }

    /// Whether a probe of this channel is to be sent; counts it as sent.
    pub(super) fn take_proof(&mut self, channel: u8) -> bool {
        let Some(proof) = &mut self.proof else { return false };
        proof.0.take(|asked| asked == channel).is_some()
    }

    /// The size of full packets has changed, so it must be proved again.
    pub(super) fn restart_proof(&mut self, now_ns: u64) {
        if let Some(proof) = &mut self.proof {
            proof.0.restart(now_ns);
        }
    }

    /// A probe on `channel` was answered. It was as long as a piece of a full packet cut into `pieces`.
    pub(super) fn on_proof(&mut self, channel: usize, pieces: u32) {
        let is_full = pieces <= self.send.pieces();
        let Some(proof) = self.proof.as_mut().filter(|_| is_full) else { return };
        proof.0.on_answer(channel, 0);
        if proof.0.answered().iter().all(Option::is_some) {
            self.proof = None;
        }
    }
}
