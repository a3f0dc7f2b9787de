//! Notes between runners: what an operation is, whose contributions a message has, and that it is over.
//!
//! Little-endian; a byte for the kind and 8 for the operation's number, then
//!
//! | kind | | |
//! |---|---|---|
//! | 1 | hello | element, operation (a byte each), elements (8), the name (the rest) |
//! | 2 | account | which send to this peer (4); pieces: elements (8), flags (1), words of ranks (2), the words (8 each) |
//! | 3 | abort | the rank that failed (4) |
//! | 4 | board | publications: rank (4), stamp (8), length (1), bytes |
//!
//! What comes from others is checked: anything odd is no note, and is ignored.

use super::board::{PUBLISHED_BYTES_MAX, Published};
use super::fabric::NOTE_BYTES_MAX;
use super::who::{RankSet, Who};
use crate::element::{Element, Op};

/// Longest name of an operation, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// What an operation is, to be compared among ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// What and how, for example `all-reduce by ring`. Cut at 128 bytes.
    pub name: String,
    /// A count that is the same on all ranks.
    pub elements: u64,
    /// The element type.
    pub element: Element,
    /// How elements are reduced.
    pub op: Op,
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} {}, {}", self.name, self.elements, self.element, self.op)
    }
}

/// What is said of the operation with this number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    Hello(Label),
    /// Whose contributions the elements of a send have, piece by piece.
    Account {
        send: usize,
        pieces: Vec<(usize, Who)>,
    },
    /// Somebody has failed, so this rank has given up.
    Abort {
        rank: usize,
    },
    /// What ranks have published.
    Board(Vec<(usize, Published)>),
}

/// What a rank says to the others' runners that has no runner itself yet, and gives up because of `rank`.
#[must_use]
pub fn abort_note(rank: usize) -> Vec<u8> {
    Note::Abort { rank }.write(0)
}

impl Note {
    pub(super) fn write(&self, sequence: u64) -> Vec<u8> {
        let kind = match self {
            Self::Hello(_) => 1,
            Self::Account { .. } => 2,
            Self::Abort { .. } => 3,
            Self::Board(_) => 4,
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&sequence.to_le_bytes());
        match self {
            Self::Hello(label) => {
                bytes.extend_from_slice(&[label.element as u8, label.op as u8]);
                bytes.extend_from_slice(&label.elements.to_le_bytes());
                let name = label.name.as_bytes();
                bytes.extend_from_slice(&name[..name.len().min(NAME_BYTES_MAX)]);
            }
            Self::Account { send, pieces } => {
                bytes.extend_from_slice(&(*send as u32).to_le_bytes());
                for (len, who) in pieces {
                    let words = who.ranks.words();
                    let next = 11 + 8 * words.len();
                    if bytes.len() + next + 32 > NOTE_BYTES_MAX {
                        // The rest is left open; the receiver takes it as uncertain.
                        break;
                    }
                    bytes.extend_from_slice(&(*len as u64).to_le_bytes());
                    bytes.push(u8::from(who.is_uncertain));
                    bytes.extend_from_slice(&(words.len() as u16).to_le_bytes());
                    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
                }
            }
            Self::Abort { rank } => bytes.extend_from_slice(&(*rank as u32).to_le_bytes()),
            Self::Board(entries) => {
                for (rank, (stamp, published)) in entries {
                    bytes.extend_from_slice(&(*rank as u32).to_le_bytes());
                    bytes.extend_from_slice(&stamp.to_le_bytes());
                    bytes.push(published.len() as u8);
                    bytes.extend_from_slice(published);
                }
            }
        }
        bytes
    }

    /// The operation's number and what is said of it.
    pub(super) fn read(bytes: &[u8], ranks: usize) -> Option<(u64, Self)> {
        let mut reader = Reader(bytes);
        let [kind] = reader.take()?;
        let sequence = u64::from_le_bytes(reader.take()?);
        let note = match kind {
            1 => {
                let [element, op] = reader.take()?;
                Self::Hello(Label {
                    element: *Element::ALL.get(usize::from(element))?,
                    op: *Op::ALL.get(usize::from(op))?,
                    elements: u64::from_le_bytes(reader.take()?),
                    name: std::str::from_utf8(reader.0).ok()?.to_owned(),
                })
            }
            2 => {
                let send = u32::from_le_bytes(reader.take()?) as usize;
                let mut pieces = Vec::new();
                while !reader.0.is_empty() {
                    let len = usize::try_from(u64::from_le_bytes(reader.take()?)).ok()?;
                    let [flags] = reader.take()?;
                    let words = usize::from(u16::from_le_bytes(reader.take()?));
                    if words > ranks.div_ceil(64) {
                        return None;
                    }
                    let words: Option<Vec<u64>> =
                        (0..words).map(|_| reader.take().map(u64::from_le_bytes)).collect();
                    let set = RankSet::from_words(words?);
                    if set.iter().any(|rank| rank >= ranks) {
                        return None;
                    }
                    let ranks = set;
                    pieces.push((len, Who { ranks, is_uncertain: flags & 1 != 0 }));
                }
                Self::Account { send, pieces }
            }
            4 => {
                let mut entries = Vec::new();
                while !reader.0.is_empty() {
                    let rank = u32::from_le_bytes(reader.take()?) as usize;
                    let stamp = u64::from_le_bytes(reader.take()?);
                    let [len] = reader.take()?;
                    let len = usize::from(len);
                    if rank >= ranks || len > PUBLISHED_BYTES_MAX || len > reader.0.len() {
                        return None;
                    }
                    let (published, rest) = reader.0.split_at(len);
                    reader.0 = rest;
                    entries.push((rank, (stamp, published.to_vec())));
                }
                Self::Board(entries)
            }
            3 => Self::Abort { rank: u32::from_le_bytes(reader.take()?) as usize },
            _ => return None,
        };
        Some((sequence, note))
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_link::SplitMix64;

    fn notes() -> Vec<Note> {
        let who = |ranks: &[usize], is_uncertain| Who {
            ranks: ranks.iter().copied().collect(),
            is_uncertain,
        };
        vec![
            Note::Hello(Label {
                name: "all-reduce by ring".to_owned(),
                elements: 1 << 40,
                element: Element::Bf16,
                op: Op::Average,
            }),
            Note::Account { send: 7, pieces: Vec::new() },
            Note::Account { send: 1, pieces: vec![(3, who(&[0, 99], false)), (9, who(&[], true))] },
            Note::Abort { rank: 3 },
            Note::Board(vec![(1, (9, vec![4, 5])), (99, (1, vec![]))]),
        ]
    }

    #[test]
    fn notes_are_read_back() {
        for note in notes() {
            let bytes = note.write(77);
            assert_eq!(Note::read(&bytes, 100), Some((77, note)));
            for end in 0..9 {
                assert_eq!(Note::read(&bytes[..end], 100), None);
            }
        }
    }

    #[test]
    fn odd_bytes_are_no_note() {
        let mut random = SplitMix64::new(5);
        for _ in 0..20_000 {
            let list = notes();
            let mut bytes = list[random.below(5) as usize].write(1);
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next_u64() as u8;
            }
            bytes.truncate(random.below(bytes.len() as u64 + 8) as usize);
            // Whatever it is, it is no larger than what came, and nothing panics.
            if let Some((_, Note::Account { pieces, .. })) = Note::read(&bytes, 100) {
                assert!(pieces.len() <= bytes.len() / 11);
            }
        }
    }

    #[test]
    fn a_note_never_exceeds_what_a_fabric_carries() {
        let who = |i: usize| Who { ranks: [i % 4096].into_iter().collect(), is_uncertain: false };
        let pieces = (0..10_000).map(|i| (1, who(i))).collect();
        assert!(Note::Account { send: 0, pieces }.write(0).len() <= NOTE_BYTES_MAX);
    }
}
