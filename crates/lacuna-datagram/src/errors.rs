//! Errors: what went wrong with messages here and at peers, in a queue of its own (datagram-iWARP 2.1.2), and what
//! the sources are told of it.
//!
//! An error ends nothing: the queue pair goes on, with this peer as with others. A source may be told why its
//! message was refused. Anybody can send under another's address, so what is told is bounded: never more bytes than
//! the question had, ten times a second to one source and a thousand times to all, and nothing to who names keys
//! that nobody has.
//!
//! Invariant: the queue is bounded; what does not fit is counted.

use core::net::SocketAddr;
use lacuna_wire::ddp::{About, ControlReason};
use std::collections::{HashMap, VecDeque};

/// Errors that wait to be polled, at most.
pub const ERRORS_MAX: usize = 1024;
/// Messages about errors to one source, in each second.
const OF_SOURCE_MAX: u32 = 10;
/// The same to all.
const IN_ALL_MAX: u32 = 1000;
const SECOND_NS: u64 = 1_000_000_000;

/// Something that went wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageError {
    /// The other end.
    pub peer: SocketAddr,
    /// The message.
    pub about: About,
    /// What.
    pub reason: ControlReason,
    /// The peer says so of a message from here; else it was a message of the peer's.
    pub is_told: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    queue: VecDeque<MessageError>,
    pub(crate) dropped: u64,
    /// When this second began, and what was told in it.
    second_ns: u64,
    told: u32,
    told_to: HashMap<SocketAddr, u32>,
    pub(crate) silenced: u64,
}

impl Errors {
    pub(crate) fn push(&mut self, error: MessageError) {
        if self.queue.len() >= ERRORS_MAX {
            self.dropped += 1;
            return;
        }
        self.queue.push_back(error);
    }

    pub(crate) fn poll(&mut self) -> Option<MessageError> {
        self.queue.pop_front()
    }

    /// Whether a source may be told with so many bytes, about a question of so many; it counts then.
    pub(crate) fn may_tell(
        &mut self,
        now_ns: u64,
        source: SocketAddr,
        (bytes, question_bytes): (usize, usize),
    ) -> bool {
        if now_ns.saturating_sub(self.second_ns) >= SECOND_NS {
            self.second_ns = now_ns;
            self.told = 0;
            self.told_to.clear();
        }
        let of_source = self.told_to.get(&source).copied().unwrap_or(0);
        if bytes > question_bytes || of_source >= OF_SOURCE_MAX || self.told >= IN_ALL_MAX {
            self.silenced += 1;
            return false;
        }
        self.told += 1;
        self.told_to.insert(source, of_source + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_told_seldom_and_never_more_than_they_asked() {
        let mut errors = Errors::default();
        let source = |host: u32| SocketAddr::from((host.to_be_bytes(), 7));
        assert!(!errors.may_tell(0, source(1), (36, 35)));
        let told = (0..100).filter(|_| errors.may_tell(5, source(1), (35, 35))).count();
        assert_eq!(told, 10);
        let told = (2..5000).filter(|host| errors.may_tell(6, source(*host), (1, 35))).count();
        assert_eq!(told, 990);
        assert!(errors.may_tell(SECOND_NS + 5, source(1), (35, 35)));
        assert_eq!(errors.silenced, 1 + 90 + 4008);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut errors = Errors::default();
        let about = About { space: lacuna_wire::ddp::Space::Sends, number: 1 };
        let peer = SocketAddr::from(([1; 4], 7));
        let error = MessageError { peer, about, reason: ControlReason::Key, is_told: true };
        (0..ERRORS_MAX + 5).for_each(|_| errors.push(error));
        assert_eq!(errors.dropped, 5);
        assert_eq!(std::iter::from_fn(|| errors.poll()).count(), ERRORS_MAX);
    }
}
