//! Several operations of one group, on one fabric.

use super::Settings;
use super::board::PUBLISHED_BYTES_MAX;
use super::fabric::{Event, Fabric, Token};
use super::note::{Label, Note};
use super::operation::{Job, Operation};
use super::ports::Ports;
use super::report::{Finished, RunError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Operations that a peer may be ahead, and notes that are kept of them: more are not of this group.
const AHEAD_MAX: u64 = 1 << 10;
const EARLY_NOTES_MAX: usize = 1 << 16;

/// See the module's text.
pub struct Runner {
    rank: usize,
    ranks: usize,
    settings: Settings,
    next: u64,
    operations: BTreeMap<u64, Operation>,
    ports: Ports,
    /// Notes of operations that have not been started here.
    early: BTreeMap<u64, Vec<(usize, Note)>>,
    early_count: usize,
    finished: VecDeque<Finished>,
    failed: Option<RunError>,
    greetings: Greetings,
}

/// Who has been told what this rank runs. An operation like the one before it needs no word: whoever starts
/// another one tells those that it has exchanged messages with since it began to run the same.
#[derive(Debug, Default)]
struct Greetings {
    label: Option<Label>,
    told: BTreeSet<usize>,
    /// With whom messages are exchanged in the operations of this label.
    partners: BTreeSet<usize>,
}

impl Greetings {
    /// Whom to tell of an operation, which sends to some and has some partners.
    fn next(&mut self, label: &Label, sends_to: &[usize], partners: &[usize]) -> BTreeSet<usize> {
        let mut to_tell: BTreeSet<usize> = sends_to.iter().copied().collect();
        if self.label.as_ref() == Some(label) {
            to_tell.retain(|peer| !self.told.contains(peer));
        } else {
            to_tell.append(&mut self.partners);
            self.told.clear();
            self.label = Some(label.clone());
        }
        self.told.extend(&to_tell);
        self.partners.extend(partners);
        to_tell
    }
}

impl Runner {
    /// The runner of a rank.
    ///
    /// # Panics
    /// If the rank is none of these.
    #[must_use]
    pub fn new(rank: usize, ranks: usize, settings: Settings) -> Self {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        Self {
            rank,
            ranks,
            settings,
            next: 0,
            operations: BTreeMap::new(),
            ports: Ports::new(ranks, settings.receives_ahead),
            early: BTreeMap::new(),
            early_count: 0,
            finished: VecDeque::new(),
            failed: None,
            greetings: Greetings::default(),
        }
    }

    /// Starts an operation and returns its number. All ranks start the same operations in the same order.
    /// Whatever goes wrong is told when the operation is over.
    ///
    /// # Panics
    /// If the table is of another rank or group, or the buffers are not as long as it says.
    pub fn start(&mut self, fabric: &mut impl Fabric, job: Job) -> u64 {
        assert_eq!((job.table.rank, job.table.ranks), (self.rank, self.ranks), "rank and ranks");
        let sequence = self.next;
        self.next += 1;
        let operation = Operation::new(sequence, job, &self.settings, fabric.now_ns());
        if let Some(error) = self.failed.clone() {
            let buffers = operation.into_buffers();
            self.finished.push_back(Finished { sequence, buffers, result: Err(error) });
            return sequence;
        }
        self.operations.insert(sequence, operation);
        if let Err(error) = self.begin(fabric, sequence) {
            self.fail(fabric, error);
        }
        self.collect(fabric, sequence);
        sequence
    }

    fn begin(&mut self, fabric: &mut impl Fabric, sequence: u64) -> Result<(), RunError> {
        let Some(operation) = self.operations.get_mut(&sequence) else { return Ok(()) };
        let (sends_to, partners) = operation.enqueue(&mut self.ports);
        for peer in 0..self.ranks {
            self.ports.post_receives(fabric, peer)?;
        }
        if self.settings.has_checks {
            let hello = Note::Hello(operation.label.clone()).write(sequence);
            for peer in self.greetings.next(&operation.label, &sends_to, &partners) {
                let told = fabric.tell(peer, &hello);
                // Who only sends to this rank may have done its part, and be gone.
                if sends_to.contains(&peer) {
                    told?;
                }
            }
        }
        operation.begin(fabric, &mut self.ports)?;
        for (peer, note) in self.early.remove(&sequence).unwrap_or_default() {
            self.early_count -= 1;
            self.on_note(fabric, peer, sequence, note)?;
        }
        Ok(())
    }

    /// Handles all events of the fabric, and what is due.
    pub fn poll(&mut self, fabric: &mut impl Fabric) {
        while let Some(event) = fabric.poll() {
            let concerned = match &event {
                Event::Arrived { token, .. } | Event::Ended { token, .. } => Some(sequence(*token)),
                _ => None,
            };
            if let Err(error) = self.on_event(fabric, event) {
                self.fail(fabric, error);
            }
            match concerned {
                Some(sequence) => self.collect(fabric, sequence),
                None => self.collect_all(fabric),
            }
        }
        let due: Vec<u64> = self.operations.keys().copied().collect();
        for sequence in due {
            let Some(operation) = self.operations.get_mut(&sequence) else { continue };
            if let Err(error) = operation.on_time(fabric, &mut self.ports) {
                self.fail(fabric, error);
            }
            self.collect(fabric, sequence);
        }
    }

    /// When [`Runner::poll`] has to be called although the fabric has no event.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.operations.values().filter_map(Operation::timeout_ns).min()
    }

    /// The next operation that is over.
    pub fn take(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Operations that are not over.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.operations.len()
    }

    /// Publishes something of this rank, in place of what it published with lower stamps. It travels with
    /// the notes of operations that end in time, and is at all ranks after the next one as a rule.
    ///
    /// # Panics
    /// If it is longer than [`PUBLISHED_BYTES_MAX`].
    pub fn publish(&mut self, stamp: u64, bytes: &[u8]) {
        assert!(bytes.len() <= PUBLISHED_BYTES_MAX, "{} bytes to publish", bytes.len());
        self.ports.board.put(self.rank, stamp, bytes.to_vec());
    }

    /// What a rank has published last, as far as this one knows, with its stamp.
    #[must_use]
    pub fn published(&self, rank: usize) -> Option<(u64, &[u8])> {
        self.ports.board.get(rank)
    }

    /// Why the group has to be formed again, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<&RunError> {
        self.failed.as_ref()
    }

    fn on_event(&mut self, fabric: &mut impl Fabric, event: Event) -> Result<(), RunError> {
        let ports = &mut self.ports;
        match event {
            Event::Arrived { token, bytes } => match self.operations.get_mut(&sequence(token)) {
                Some(operation) => operation.on_arrived(entry(token), bytes, fabric, ports),
                None => Ok(()),
            },
            Event::Ended { token, reason, missing, len_bytes } => {
                match self.operations.get_mut(&sequence(token)) {
                    Some(operation) => {
                        let entry = entry(token);
                        operation.on_ended(entry, reason, &missing, len_bytes, fabric, ports)
                    }
                    None => Ok(()),
                }
            }
            // A peer that is gone is told of otherwise; in time, nobody waits for a send.
            Event::Sent { .. } => Ok(()),
            Event::Told { peer, note } => match Note::read(&note, self.ranks) {
                Some((sequence, note)) => self.on_note(fabric, peer, sequence, note),
                None => Ok(()),
            },
            Event::PeerFailed { peer, cause } => Err(RunError::Gone { rank: peer, cause }),
        }
    }

    fn on_note(
        &mut self,
        fabric: &mut impl Fabric,
        peer: usize,
        sequence: u64,
        note: Note,
    ) -> Result<(), RunError> {
        if let Note::Abort { rank } = note {
            return Err(RunError::Aborted { by: peer, rank });
        }
        if let Note::Board(entries) = note {
            for (rank, (stamp, bytes)) in entries {
                // Of itself, this rank knows best.
                if rank != self.rank {
                    self.ports.board.learn(peer, rank, stamp, bytes);
                }
            }
            return Ok(());
        }
        if sequence >= self.next {
            if sequence - self.next < AHEAD_MAX && self.early_count < EARLY_NOTES_MAX {
                self.early_count += 1;
                self.early.entry(sequence).or_default().push((peer, note));
            }
            return Ok(());
        }
        let Some(operation) = self.operations.get_mut(&sequence) else { return Ok(()) };
        match note {
            Note::Hello(theirs) if theirs != operation.label => {
                let ours = Box::new(operation.label.clone());
                Err(RunError::Mismatch { rank: peer, theirs: Box::new(theirs), ours })
            }
            Note::Account { send, pieces } => {
                operation.on_account(peer, send, pieces, fabric, &mut self.ports)
            }
            Note::Hello(_) | Note::Abort { .. } | Note::Board(_) => Ok(()),
        }
    }

    /// Ends all operations, and tells the others whose fault it is.
    fn fail(&mut self, fabric: &mut impl Fabric, error: RunError) {
        if self.failed.is_some() {
            return;
        }
        let rank = error.rank().unwrap_or(self.rank);
        let note = Note::Abort { rank }.write(self.next);
        for peer in (0..self.ranks).filter(|peer| *peer != self.rank && *peer != rank) {
            // Those that cannot be told find out by themselves.
            let _ = fabric.tell(peer, &note);
        }
        for (sequence, mut operation) in std::mem::take(&mut self.operations) {
            operation.abandon(fabric);
            let buffers = operation.into_buffers();
            self.finished.push_back(Finished { sequence, buffers, result: Err(error.clone()) });
        }
        self.failed = Some(error);
    }

    fn collect(&mut self, fabric: &mut impl Fabric, sequence: u64) {
        if self.operations.get(&sequence).is_some_and(Operation::is_done)
            && let Some(mut operation) = self.operations.remove(&sequence)
        {
            let report = operation.report(fabric.now_ns());
            let buffers = operation.into_buffers();
            self.finished.push_back(Finished { sequence, buffers, result: Ok(report) });
        }
    }

    fn collect_all(&mut self, fabric: &mut impl Fabric) {
        let all: Vec<u64> = self.operations.keys().copied().collect();
        all.into_iter().for_each(|sequence| self.collect(fabric, sequence));
    }
}

/// The operation that a token names, and its entry.
const fn sequence(token: Token) -> u64 {
    token.0 >> 32
}

const fn entry(token: Token) -> usize {
    (token.0 & u32::MAX as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Element, Op};

    fn label(elements: u64) -> Label {
        Label { name: "broadcast by tree".to_owned(), elements, element: Element::F32, op: Op::Sum }
    }

    #[test]
    fn the_same_operation_again_needs_no_word_and_another_one_is_told_to_all_partners() {
        let mut greetings = Greetings::default();
        let mut next = |elements, sends_to: &[usize], partners: &[usize]| -> Vec<usize> {
            greetings.next(&label(elements), sends_to, partners).into_iter().collect()
        };
        assert_eq!(next(5, &[1], &[1, 2]), [1]);
        assert_eq!(next(5, &[1], &[1, 2]), []);
        assert_eq!(next(5, &[1, 3], &[1, 3]), [3], "whoever has not been told");
        // Rank 2 only sent to this one; it learns of the change, too.
        assert_eq!(next(6, &[], &[1]), [1, 2, 3]);
        assert_eq!(next(6, &[1], &[1]), [], "they know");
        assert_eq!(next(5, &[4], &[4]), [1, 4]);
    }
}
