//! What a control packet says of the path that it took (RFC 9000, 8.2): a challenge that came with it, or the
//! response to one. The protocol only carries the values. Who sends packets to addresses gives challenges and
//! judges responses, since no machine here knows an address.

use lacuna_wire::Frame;

/// The path frames of one control packet; of several of a kind, the last one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathFrames {
    /// The value of a challenge.
    pub challenge: Option<u64>,
    /// The value of a response.
    pub response: Option<u64>,
}

impl PathFrames {
    /// Notes a frame of the packet.
    pub(crate) fn take_in(&mut self, frame: &Frame<'_>) {
        match frame {
            Frame::PathChallenge(challenge) => self.challenge = Some(challenge.value),
            Frame::PathResponse(response) => self.response = Some(response.value),
            _ => {}
        }
    }
}
