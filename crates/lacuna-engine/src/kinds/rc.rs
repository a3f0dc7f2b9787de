//! The kind RC: requests and answers of a reliable connection, in order (`lacuna_rc`).
//!
//! All its packets go over one channel, since they must be taken in order. The responder is that
//! channel's lane; requester and answers are the machine.

use super::copying::has_room;
use lacuna_burst::Burst;
use lacuna_rc::{Responder, Run, Taken};
use lacuna_wire::Seal;

/// The receiving half of a reliable connection.
#[derive(Debug)]
pub struct RcLane {
    channel: u8,
    pub(crate) responder: Responder,
    /// What the machine was not told yet.
    pub(crate) taken: Taken,
}

impl RcLane {
    /// The lane of `channel`.
    pub fn new(channel: u8, responder: Responder) -> Self {
        Self { channel, responder, taken: Taken::default() }
    }

    pub(super) fn channel(&self) -> u8 {
        self.channel
    }
}

/// Packets of a reliable connection on their way.
#[derive(Debug)]
pub(crate) struct RcRun {
    pub(crate) run: Run,
    pub(crate) seal: Seal,
    pub(crate) channel: u8,
}

/// Adds the run's packets from `next` on to the burst; `waiting` packets are in the queue. `false`
/// once the burst has no room.
pub(super) fn fill(
    RcRun { run, seal, .. }: &RcRun,
    next: usize,
    burst: &mut Burst<'_, '_>,
    waiting: usize,
) -> bool {
    for index in next..run.len() {
        let bytes_max = run.packet_bytes(index) + seal.bytes();
        if burst.len() == Burst::PACKETS_MAX || !has_room(burst, bytes_max, waiting) {
            return false;
        }
        // What may not be read any more becomes a refusal, which is shorter.
        burst.push_up_to(bytes_max, |packet| {
            let bytes = run.emit(index, packet);
            let (covered, rest) = packet.split_at_mut(bytes);
            seal.emit_trailer_of(covered, &mut rest[..seal.bytes()]);
            bytes + seal.bytes()
        });
    }
    true
}
