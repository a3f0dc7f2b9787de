//! Tags: a number in the hello that says what a connection is for. A client that reaches the wrong
//! server is refused in the handshake, before any packet.
//!
//! The high half of a tag names the service, from one table for all services; the low half is a
//! number that the service defines.

use std::hash::{BuildHasher, RandomState};

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// File transfer; the number is a part of the transfer's id.
    Files,
    /// File transfer to the end that connects; the number is that of the receiver.
    Fetch,
    /// Control of a measurement; the number identifies the client's run.
    Session,
    /// Measured traffic; the number is that of the same run.
    Measured,
}

/// The service's word, and the commands at both ends.
struct Entry {
    purpose: Purpose,
    word: [u8; 4],
    client: &'static str,
    server: &'static str,
}

const TABLE: [Entry; 4] = [
    Entry { purpose: Purpose::Files, word: *b"FILE", client: "lacuna send", server: "lacuna recv" },
    Entry {
        purpose: Purpose::Fetch,
        word: *b"FTCH",
        client: "lacuna send HOST:PATH",
        server: "lacuna over-ssh",
    },
    Entry {
        purpose: Purpose::Session,
        word: *b"PRFS",
        client: "lacuna perf client",
        server: "lacuna perf server",
    },
    Entry {
        purpose: Purpose::Measured,
        word: *b"PRFR",
        client: "lacuna perf client",
        server: "lacuna perf server",
    },
];

impl Purpose {
    /// The tag for a connection of this purpose.
    #[must_use]
    pub fn tag(self, number: u32) -> u64 {
        let word = u32::from_be_bytes(self.entry().word);
        u64::from(word) << 32 | u64::from(number)
    }

    /// Decodes a tag; `None` if it is another program's.
    #[must_use]
    pub fn of(tag: u64) -> Option<(Self, u32)> {
        let word = ((tag >> 32) as u32).to_be_bytes();
        let entry = TABLE.iter().find(|entry| entry.word == word)?;
        Some((entry.purpose, tag as u32))
    }

    /// The command that serves such connections.
    #[must_use]
    pub fn server(self) -> &'static str {
        self.entry().server
    }

    /// The refusal that a server of this service gives to a connection with `tag`.
    #[must_use]
    pub fn refusal(self, tag: u64) -> String {
        let Entry { client, server, .. } = self.entry();
        match Self::of(tag) {
            Some((other, _)) => {
                let other = other.entry();
                format!("this is {server}; {} needs {}", other.client, other.server)
            }
            None => format!("this is {server}, which serves {client} of the same version only"),
        }
    }

    fn entry(self) -> &'static Entry {
        let found = TABLE.iter().find(|entry| entry.purpose == self);
        found.expect("the table has every purpose")
    }
}

/// A random number that identifies a run. Two runs at a time share its lower half with a
/// probability of 2^-32.
#[must_use]
pub fn random() -> u64 {
    // Keyed by the system's randomness, the only source in the standard library.
    RandomState::new().hash_one("run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_tell_what_a_connection_is_for() {
        for purpose in [Purpose::Files, Purpose::Fetch, Purpose::Session, Purpose::Measured] {
            for number in [0, 1, u32::MAX] {
                assert_eq!(Purpose::of(purpose.tag(number)), Some((purpose, number)));
            }
        }
        assert_eq!(Purpose::Files.tag(7).to_be_bytes(), *b"FILE\0\0\0\x07");
        for foreign in [0, 7, u64::MAX, u64::from_be_bytes(*b"HTTP\0\0\0\0")] {
            assert_eq!(Purpose::of(foreign), None);
        }
    }

    #[test]
    fn a_refusal_names_what_is_here_and_what_would_be_right() {
        for (server, tag, text) in [
            (
                Purpose::Files,
                Purpose::Session.tag(1),
                "this is lacuna recv; lacuna perf client needs lacuna perf server",
            ),
            (
                Purpose::Session,
                Purpose::Files.tag(1),
                "this is lacuna perf server; lacuna send needs lacuna recv",
            ),
            (
                Purpose::Files,
                0,
                "this is lacuna recv, which serves lacuna send of the same version only",
            ),
        ] {
            assert_eq!(server.refusal(tag), text);
        }
    }
}
