//! Counters of a keyring.

/// What a [`Keyring`](super::Keyring) did, and why packets were not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct KeyringStats {
    /// Peers with keys.
    pub peers: usize,
    /// Hellos that wait for their answers, and answers that nobody has used yet.
    pub waiting: usize,
    /// Peers whose keys went for others.
    pub evicted: u64,
    /// Hellos that were sent.
    pub asked: u64,
    /// Hellos that were answered.
    pub answered: u64,
    /// Associations that came about.
    pub associated: u64,
    /// Peers that never answered though something was to be sent to them.
    pub unanswered: u64,
    /// Packets that are too short, or of no kind that is known.
    pub malformed: u64,
    /// Packets by keys that are not known.
    pub unknown: u64,
    /// Packets that came before, or too late.
    pub repeated: u64,
    /// Packets whose tag is wrong; among them hellos and answers of those who do not have the secret.
    pub forged: u64,
    /// Packets by keys that were given up, as so many of theirs were forged.
    pub spent: u64,
    /// Packets that this end has sealed itself.
    pub reflected: u64,
    /// Answers that nothing was asked for, or not any more.
    pub unasked: u64,
    /// Group packets of unknown senders that were held back until those had answered.
    pub held: u64,
    /// The same, for which there was no room.
    pub held_dropped: u64,
}
