//! Reads the receiver's answers and updates the item queue.

use super::board::{Board, Ended, Wish, broke_the_rules, ended_by};
use crate::error::SendError;
use crate::inbound::Inbound;
use crate::name::shown_text;
use crate::report::Tally;
use crate::wire::{Answer, WireError, answers};

/// Reads answers until the session ends, and notes why it did.
pub(crate) fn hear(inbound: &mut Inbound, board: &Board, tally: &Tally, stop: &dyn Fn() -> bool) {
    loop {
        let (block, len) = match inbound.next(stop) {
            Ok(message) => message,
            Err(error) => {
                return board.end(match error.is_closed() {
                    true if !board.was_welcome() => {
                        stranger("it closed the connection before it said that it receives files")
                    }
                    true => Ended::Lost("the receiver closed the connection".to_owned()),
                    false => Ended::Lost(format!("lost the receiver: {error}")),
                });
            }
        };
        let message = &block.bytes()[..len];
        for answer in answers(message) {
            let taken = answer
                .map_err(|error| unreadable(error, board))
                .and_then(|answer| take(answer, board, tally));
            if let Err(ended) = taken {
                return board.end(ended);
            }
        }
        if board.is_finished() {
            return;
        }
    }
}

fn take(answer: Answer<'_>, board: &Board, tally: &Tally) -> Result<(), Ended> {
    match answer {
        Answer::Welcome { overwrite } => board.on_welcome(overwrite),
        Answer::Want { item, rungs } => board.on_wish(item, Wish::Send(rungs))?,
        Answer::Exists { item, hash } => board.on_wish(item, Wish::Compare(hash))?,
        Answer::Settled { item, outcome, reason } => {
            board.on_settled(item, outcome, reason, tally)?;
        }
        Answer::Fatal { kind, reason } => return Err(ended_by(kind, &shown_text(reason))),
        Answer::Alive => {}
        Answer::Finished => board.on_finished(),
    }
    Ok(())
}

fn unreadable(error: WireError, board: &Board) -> Ended {
    match error {
        WireError::Version { .. } => {
            Ended::Failed(SendError::Version { reason: error.to_string() })
        }
        error if !board.was_welcome() => stranger(&error.to_string()),
        error => broke_the_rules(&error.to_string()),
    }
}

/// The peer does not receive files.
fn stranger(why: &str) -> Ended {
    Ended::Failed(SendError::NotAReceiver { reason: why.to_owned() })
}
