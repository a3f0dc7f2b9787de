//! Logs of what was lost, and runs that lose the same again (OptiNIC 6: "log missing offsets or byte ranges").
//!
//! A log has a line of JSON for each operation of each rank, in their order. Rank 0 writes it for all: the others' lines come
//! over a group that loses nothing, after the operations of a size. A run that replays a log reads its own rank's lines and has
//! the n-th operation lose the same bytes of the same receives; what is then missing, and the result, have to be the log's.

use crate::failure::Failure;
use lacuna_collective::{Collective, Element, Group, Op, Options, Outcome, Vectors};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A range of bytes or elements: the first, and the first behind it.
type Pair = (usize, usize);

/// A receive of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Hop {
    peer: usize,
    phase: usize,
    bytes: u64,
    /// Ranges of bytes that did not come.
    lost: Vec<Pair>,
}

/// What is the same in a run that replays another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct What {
    pub(super) op: String,
    pub(super) size_bytes: u64,
    #[serde(rename = "type")]
    pub(super) element: String,
    pub(super) reduce: String,
    pub(super) algorithm: String,
    pub(super) encode: Option<String>,
    pub(super) ranks: usize,
}

/// An operation of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    /// Counted from 0 over the whole run, with those that warm up.
    operation: u64,
    rank: usize,
    #[serde(flatten)]
    what: What,
    /// Receives, in the order of the schedule.
    hops: Vec<Hop>,
    /// Elements of the result (encoded, if the operation is), and the ranks whose contributions they lack.
    missing: Vec<(Pair, Vec<usize>)>,
    /// Elements of which that is not known.
    uncertain: Vec<Pair>,
    /// A checksum of the result.
    result: String,
}

impl Line {
    fn new(operation: u64, rank: usize, what: What, outcome: &Outcome) -> Self {
        let pairs = |ranges: &[Range<usize>]| ranges.iter().map(|r| (r.start, r.end)).collect();
        let report = &outcome.report;
        let hops = report.hops.iter().map(|hop| Hop {
            peer: hop.peer,
            phase: hop.phase,
            bytes: hop.bytes,
            lost: pairs(&hop.lost),
        });
        let missing = report.missing.iter();
        Self {
            operation,
            rank,
            what,
            hops: hops.collect(),
            missing: missing.map(|(r, of)| ((r.start, r.end), of.iter().collect())).collect(),
            uncertain: pairs(&report.uncertain),
            result: format!("{:016x}", checksum(outcome.buffers.output())),
        }
    }
}

/// FNV-1a over words of eight bytes: only to be compared with itself.
fn checksum(bytes: &[u8]) -> u64 {
    let step =
        |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    let (words, rest) = bytes.as_chunks();
    let sum =
        words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| step(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| step(sum, u64::from(*byte)))
}

/// A log that is written, or one that is replayed, or both.
pub(super) struct Losses {
    rank: usize,
    operation: u64,
    log: Option<Log>,
    replay: Option<Replay>,
}

struct Log {
    path: PathBuf,
    /// Of rank 0.
    file: Option<File>,
    lines: String,
}

struct Replay {
    path: PathBuf,
    /// Of this rank, those to come.
    lines: VecDeque<Line>,
    /// Operations of which some rank did not know what was missing.
    uncertain: BTreeSet<u64>,
    differs: Option<String>,
}

fn local(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Local(format!("{}: {error}", path.display()))
}

impl Replay {
    fn read(path: &Path, rank: usize) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| local(path, error))?;
        let (mut lines, mut uncertain) = (VecDeque::new(), BTreeSet::new());
        for (number, line) in BufReader::new(file).lines().enumerate() {
            let line = line.map_err(|error| local(path, error))?;
            let line: Line = serde_json::from_str(&line).map_err(|error| {
                let (path, number) = (path.display(), number + 1);
                Failure::Usage(format!(
                    "{path}, line {number}: {error}: give a file that --loss-log has written"
                ))
            })?;
            if !line.uncertain.is_empty() {
                uncertain.insert(line.operation);
            }
            if line.rank == rank {
                lines.push_back(line);
            }
        }
        Ok(Self { path: path.to_owned(), lines, uncertain, differs: None })
    }

    /// Compares an operation with the line that it was to repeat.
    fn compare(&mut self, found: &Line) {
        let Some(line) = self.lines.pop_front() else { return };
        let is_known = !self.uncertain.contains(&line.operation);
        let differs = match () {
            () if line.hops != found.hops => {
                "more was lost: leave out --loss, and give a --budget that nothing exceeds, as in 10s"
            }
            () if is_known && line.missing != found.missing => "other contributions are missing",
            () if is_known && line.result != found.result => "the result is another one",
            () => return,
        };
        self.differs.get_or_insert_with(|| {
            format!("operation {}, rank {}: {differs}", line.operation, line.rank)
        });
    }
}

impl Losses {
    /// Opens the files, those that there are.
    pub(super) fn open(
        log: Option<&Path>,
        replay: Option<&Path>,
        rank: usize,
    ) -> Result<Self, Failure> {
        let replay = replay.map(|path| Replay::read(path, rank)).transpose()?;
        let log = log.map(|path| -> Result<Log, Failure> {
            let create = || File::create(path).map_err(|error| local(path, error));
            let file = (rank == 0).then(create).transpose()?;
            Ok(Log { path: path.to_owned(), file, lines: String::new() })
        });
        Ok(Self { rank, operation: 0, log: log.transpose()?, replay })
    }

    /// Prepares the next operation.
    pub(super) fn prepare(&self, options: &mut Options) -> Result<(), Failure> {
        if self.log.is_none() && self.replay.is_none() {
            return Ok(());
        }
        // Another group has another seed of its own, and the results would differ.
        if let Some(encode) = &mut options.encode {
            encode.seed = Some(self.operation);
        }
        let Some(replay) = &self.replay else { return Ok(()) };
        let Some(line) = replay.lines.front() else {
            return Err(Failure::Usage(format!(
                "{} has {} operations of rank {}: replay it with the options of the run that wrote it",
                replay.path.display(),
                self.operation,
                self.rank
            )));
        };
        let ranges = |hop: &Hop| hop.lost.iter().map(|(start, end)| *start..*end).collect();
        options.losses = line.hops.iter().map(ranges).collect();
        Ok(())
    }

    /// An operation is over.
    pub(super) fn on_done(&mut self, what: &What, outcome: &Outcome) -> Result<(), Failure> {
        let operation = self.operation;
        self.operation += 1;
        if self.log.is_none() && self.replay.is_none() {
            return Ok(());
        }
        let found = Line::new(operation, self.rank, what.clone(), outcome);
        if let Some(log) = &mut self.log {
            log.lines += &serde_json::to_string(&found).map_err(|error| local(&log.path, error))?;
            log.lines.push('\n');
        }
        if let Some(replay) = &mut self.replay {
            if let Some(line) = replay.lines.front().filter(|line| line.what != *what) {
                return Err(Failure::Usage(format!(
                    "operation {operation} was another one: replay {} with the options of the run that wrote it ({:?})",
                    replay.path.display(),
                    line.what
                )));
            }
            replay.compare(&found);
        }
        Ok(())
    }

    /// Writes what all ranks have logged, once nothing is measured.
    pub(super) fn write(&mut self, told: &Group) -> Result<(), Failure> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let all = gather(told, std::mem::take(&mut log.lines).into_bytes())?;
        let Some(file) = &mut log.file else { return Ok(()) };
        let texts = all.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect::<Vec<_>>();
        let mut ranks: Vec<_> = texts.iter().map(|text| text.lines()).collect();
        let mut text = String::new();
        // By operation, then by rank.
        while let Some(lines) = ranks.iter_mut().map(Iterator::next).collect::<Option<Vec<_>>>() {
            for line in lines {
                text += line;
                text.push('\n');
            }
        }
        file.write_all(text.as_bytes()).map_err(|error| local(&log.path, error))
    }

    /// How many operations were replayed, if any were; an error if one of this rank was not as before.
    pub(super) fn replayed(&self) -> Result<Option<u64>, Failure> {
        match &self.replay {
            None => Ok(None),
            Some(Replay { differs: Some(differs), .. }) => {
                Err(Failure::Verification(differs.clone()))
            }
            Some(_) => Ok(Some(self.operation)),
        }
    }
}

/// The bytes of all ranks, at rank 0.
fn gather(group: &Group, own: Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> {
    let run = |collective: &Collective, element, buffers: Vectors| -> Result<Vec<u8>, Failure> {
        let (buffers, types) = (Box::new(buffers), (element, Op::Sum));
        let outcome = group.run(collective, types, buffers, &Options::default());
        Ok(outcome.map_err(super::measure::of_group)?.buffers.output().to_vec())
    };
    let ranks = group.ranks();
    let lengths = Collective::AllGather { counts: vec![1; ranks] };
    let input = (own.len() as u64).to_le_bytes().to_vec();
    let lengths = run(&lengths, Element::U64, Vectors { input, output: vec![0; 8 * ranks] })?;
    let counts: Vec<usize> =
        lengths.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes) as usize).collect();
    let all = if group.rank() == 0 { counts.iter().sum() } else { 0 };
    let collective = Collective::Gather { root: 0, counts: counts.clone() };
    let bytes = run(&collective, Element::U8, Vectors { input: own, output: vec![0; all] })?;
    let mut rest = &bytes[..];
    let mut texts = Vec::with_capacity(ranks);
    for count in counts.into_iter().take(if all > 0 { ranks } else { 0 }) {
        let (text, behind) = rest.split_at(count);
        texts.push(text.to_vec());
        rest = behind;
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line {
            operation: 3,
            rank: 1,
            what: What {
                op: "all-reduce".to_owned(),
                size_bytes: 4096,
                element: "f32".to_owned(),
                reduce: "sum".to_owned(),
                algorithm: "ring".to_owned(),
                encode: Some("hadamard:64:1024".to_owned()),
                ranks: 2,
            },
            hops: vec![Hop { peer: 0, phase: 0, bytes: 2048, lost: vec![(0, 7), (9, 12)] }],
            missing: vec![((0, 3), vec![0])],
            uncertain: Vec::new(),
            result: "0".to_owned(),
        }
    }

    #[test]
    fn lines_are_read_back_and_ranks_read_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let other = Line { rank: 0, uncertain: vec![(1, 2)], operation: 5, ..line() };
        let text = [other, line()].map(|line| serde_json::to_string(&line).unwrap()).join("\n");
        std::fs::write(&path, text).unwrap();
        let replay = Replay::read(&path, 1).unwrap();
        assert_eq!(replay.lines, [line()]);
        assert!(replay.uncertain.contains(&5) && !replay.uncertain.contains(&3));
        std::fs::write(&path, "{}").unwrap();
        let error = Replay::read(&path, 1).err().expect("no line of a log").to_string();
        assert!(error.contains("line 1") && error.contains("--loss-log"), "{error}");
    }

    #[test]
    fn an_operation_that_is_not_as_before_is_told_with_the_reason() {
        let compare = |found: &Line, is_uncertain: bool| {
            let uncertain = is_uncertain.then_some(3).into_iter().collect();
            let lines = [line()].into();
            let mut replay = Replay { path: "log".into(), lines, uncertain, differs: None };
            replay.compare(found);
            replay.differs.unwrap_or_default()
        };
        assert_eq!(compare(&line(), false), "");
        let mut lost = line();
        lost.hops[0].lost.push((100, 200));
        assert!(compare(&lost, true).contains("operation 3, rank 1: more was lost"));
        let result = Line { result: "1".to_owned(), ..line() };
        assert!(compare(&result, false).contains("the result"));
        assert_eq!(compare(&result, true), "", "the log does not know it");
    }

    #[test]
    fn checksums_tell_results_apart() {
        let bytes: Vec<u8> = (0..100).collect();
        for at in 0..100 {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(checksum(&other), checksum(&bytes));
        }
    }
}
