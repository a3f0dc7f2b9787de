//! What a connection is for, by the tag in its hello: so that a command that
//! reached the wrong server is told so at once, in words that it understands.

use super::wire::{Answer, FatalKind};
use serde::{Deserialize, Serialize};

/// Tag of a connection that brings files.
pub(crate) const FILES: u64 = u64::from_be_bytes(*b"lac-file");
/// Tags of `lacuna perf client`: of its session and of what it measures.
const PERF_SESSION: u64 = u64::from_be_bytes(*b"perf-ses");
const PERF_RUN: u64 = u64::from_be_bytes(*b"perf-run");

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Files,
    Perf,
    /// Another program's, or a version before tags.
    Unknown,
}

/// How a server of `lacuna perf` refuses; a receiver says it to perf clients.
#[derive(Serialize, Deserialize)]
enum PerfAnswer {
    Refused { reason: String },
}

impl Purpose {
    pub(crate) fn of(tag: u64) -> Self {
        match tag {
            FILES => Self::Files,
            PERF_SESSION | PERF_RUN => Self::Perf,
            _ => Self::Unknown,
        }
    }

    /// Why a receiver of files does not serve it; `None` if it does.
    pub(crate) fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Files => None,
            Self::Perf => Some(
                "this is `lacuna recv`; the peer is `lacuna perf client`, which needs \
                 `lacuna perf server`",
            ),
            Self::Unknown => {
                Some("this is `lacuna recv`; the peer is no `lacuna send` of this version")
            }
        }
    }

    /// The same in the peer's own protocol.
    pub(crate) fn refusal_message(self) -> Vec<u8> {
        let reason = self.refusal().unwrap_or_default();
        let mut message = Vec::new();
        match self {
            Self::Perf => {
                let refused = PerfAnswer::Refused { reason: reason.to_owned() };
                message = serde_json::to_vec(&refused).expect("plain text");
            }
            Self::Files | Self::Unknown => {
                Answer::Fatal { kind: FatalKind::Protocol, reason }.emit(&mut message);
            }
        }
        message
    }
}

/// The reason in a perf server's refusal, if `message` is one.
pub(crate) fn perf_refusal(message: &[u8]) -> Option<String> {
    let PerfAnswer::Refused { reason } = serde_json::from_slice(message).ok()?;
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::wire::answers;

    #[test]
    fn every_peer_is_refused_in_its_own_words() {
        assert_eq!(Purpose::of(FILES).refusal(), None);
        for tag in [PERF_SESSION, PERF_RUN] {
            let message = Purpose::of(tag).refusal_message();
            let reason = perf_refusal(&message).unwrap();
            assert!(reason.contains("`lacuna perf client`"), "{reason}");
        }
        for tag in [0, 1, u64::MAX] {
            let message = Purpose::of(tag).refusal_message();
            let answer = answers(&message).next();
            assert!(matches!(answer, Some(Ok(Answer::Fatal { reason, .. })) if !reason.is_empty()));
            assert_eq!(perf_refusal(&message), None);
        }
        assert_eq!(perf_refusal(b"{\"Ready\":1}"), None);
    }
}
