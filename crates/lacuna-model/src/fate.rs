//! A cache of results under one loss: the rounds of repair and the outcomes of codes. Messages of several
//! sizes and schemes need the same ones, and a plan needs thousands.

use crate::Code;
use crate::block::{Block, Parity};
use crate::code::Outcome;
use crate::loss::ChunkLoss;
use crate::missing::Repair;
use crate::rounds::{Rounds, RoundsOf};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The cached results under one loss.
#[derive(Debug)]
pub(crate) struct Fate {
    loss: ChunkLoss,
    rounds: RoundsOf,
    /// By code and how many in a row; without bursts, where it makes no difference, 1.
    outcomes: RefCell<BTreeMap<(Code, u64), Outcome>>,
    repairs: RefCell<BTreeMap<(Code, u64), Repair>>,
    /// Under bursts, with the parity right behind the data.
    blocks: RefCell<BTreeMap<Code, Rc<Block>>>,
}

impl Fate {
    pub(crate) fn new(loss: ChunkLoss) -> Self {
        Self {
            loss,
            rounds: RoundsOf::new(loss),
            outcomes: RefCell::default(),
            repairs: RefCell::default(),
            blocks: RefCell::default(),
        }
    }

    pub(crate) fn loss(&self) -> &ChunkLoss {
        &self.loss
    }

    /// For messages of up to `chunks` chunks.
    pub(crate) fn rounds(&self, chunks: u64) -> Rounds {
        self.rounds.rounds(chunks)
    }

    /// Of a submessage with this code and its parity right behind it, among so many in a row: as if it
    /// were independent of the others, all of them come to what they do.
    pub(crate) fn outcome(&self, code: Code, count: u64) -> Outcome {
        let count = self.counted(count);
        let new = || match self.block(code) {
            None => code.outcome(&self.loss),
            Some(block) => block.each_of(count),
        };
        *self.outcomes.borrow_mut().entry((code, count)).or_insert_with(new)
    }

    /// The same once its missing chunks have been repeated, after each round.
    pub(crate) fn repair(&self, code: Code, count: u64) -> Repair {
        let count = self.counted(count);
        let new = || match self.block(code) {
            None => {
                let of_chunks = self.rounds(code.k().into());
                Repair::new(code, &self.loss, self.outcome(code, 1), &of_chunks)
            }
            Some(block) => Repair::in_bursts(&block, count, &self.rounds(block.chunks_if_any())),
        };
        self.repairs.borrow_mut().entry((code, count)).or_insert_with(new).clone()
    }

    /// Of one submessage with this code, behind others.
    pub(crate) fn repair_after(&self, code: Code, before: &Repair) -> Repair {
        match self.block(code) {
            None => self.repair(code, 1),
            Some(block) => before.after(&block, &self.rounds(block.chunks_if_any())),
        }
    }

    /// Of a message of so many submessages and a short one: whether all can be repaired.
    pub(crate) fn all(&self, code: Code, whole: u64, short: Option<Code>) -> Outcome {
        let Some(block) = self.block(code) else {
            let short = short.map_or(Outcome::CERTAIN, |short| self.outcome(short, 1));
            return short.and(self.outcome(code, 1).all_of(whole));
        };
        block.run(whole, short.and_then(|short| self.block(short)).as_deref())
    }

    fn counted(&self, count: u64) -> u64 {
        if self.loss.chain().is_some() { count } else { 1 }
    }

    fn block(&self, code: Code) -> Option<Rc<Block>> {
        let chain = self.loss.chain()?;
        let new = || Rc::new(Block::new(code, chain, Parity::AtOnce));
        Some(Rc::clone(self.blocks.borrow_mut().entry(code).or_insert_with(new)))
    }
}
