//! The fate of chunks under one loss: the rounds of repair and the outcomes of codes, each reckoned
//! once and remembered. Messages of several sizes and schemes ask for the same ones, and a plan asks
//! for thousands.

use crate::{
    Code,
    code::Outcome,
    loss::ChunkLoss,
    missing::Repair,
    rounds::{Rounds, RoundsOf},
};
use std::{cell::RefCell, collections::BTreeMap};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Fate {
    loss: ChunkLoss,
    rounds: RoundsOf,
    outcomes: RefCell<BTreeMap<Code, Outcome>>,
    repairs: RefCell<BTreeMap<Code, Repair>>,
}

impl Fate {
    pub(crate) fn new(loss: ChunkLoss) -> Self {
        Self {
            loss,
            rounds: RoundsOf::new(loss),
            outcomes: RefCell::default(),
            repairs: RefCell::default(),
        }
    }

    pub(crate) fn loss(&self) -> &ChunkLoss {
        &self.loss
    }

    /// For messages of up to `chunks` chunks.
    pub(crate) fn rounds(&self, chunks: u64) -> Rounds {
        self.rounds.rounds(chunks)
    }

    /// Of a submessage with this code.
    pub(crate) fn outcome(&self, code: Code) -> Outcome {
        *self.outcomes.borrow_mut().entry(code).or_insert_with(|| code.outcome(&self.loss))
    }

    /// Of what a submessage with this code misses.
    pub(crate) fn repair(&self, code: Code) -> Repair {
        let new =
            || Repair::new(code, &self.loss, self.outcome(code), &self.rounds(code.k().into()));
        self.repairs.borrow_mut().entry(code).or_insert_with(new).clone()
    }
}
