//! Reads the receiver's answers and updates the item queue.

use super::item_queue::{Ended, ItemQueue, Wish, ended_by, protocol_error};
use crate::error::SendError;
use crate::inbound::Inbound;
use crate::name::shown_text;
use crate::report::Tally;
use crate::wire::{Answer, WireError, answers};

/// Reads answers until the session ends, and notes why it did.
pub(crate) fn read_answers(
    inbound: &mut Inbound,
    items: &ItemQueue,
    tally: &Tally,
    stop: &dyn Fn() -> bool,
) {
    loop {
        let (block, len) = match inbound.next(stop) {
            Ok(message) => message,
            Err(error) => {
                return items.end(match error.is_closed() {
                    true if !items.was_welcome() => not_a_receiver(
                        "it closed the connection before it said that it receives files",
                    ),
                    true => Ended::Lost("the receiver closed the connection".to_owned()),
                    false => Ended::Lost(format!("lost the receiver: {error}")),
                });
            }
        };
        let message = &block.bytes()[..len];
        for answer in answers(message) {
            let taken = answer
                .map_err(|error| unreadable(error, items))
                .and_then(|answer| take(answer, items, tally));
            if let Err(ended) = taken {
                return items.end(ended);
            }
        }
        if items.is_finished() {
            return;
        }
    }
}

fn take(answer: Answer<'_>, items: &ItemQueue, tally: &Tally) -> Result<(), Ended> {
    match answer {
        Answer::Welcome { overwrite } => items.on_welcome(overwrite),
        Answer::Want { item, prefixes } => items.on_wish(item, Wish::Send(prefixes))?,
        Answer::Exists { item, hash } => items.on_wish(item, Wish::Compare(hash))?,
        Answer::Settled { item, outcome, reason } => {
            items.on_settled(item, outcome, reason, tally)?;
        }
        Answer::Fatal { kind, reason } => return Err(ended_by(kind, &shown_text(reason))),
        Answer::Alive => {}
        Answer::Finished => items.on_finished(),
    }
    Ok(())
}

fn unreadable(error: WireError, items: &ItemQueue) -> Ended {
    match error {
        WireError::Version { .. } => {
            Ended::Failed(SendError::Version { reason: error.to_string() })
        }
        error if !items.was_welcome() => not_a_receiver(&error.to_string()),
        error => protocol_error(&error.to_string()),
    }
}

/// The peer does not receive files.
fn not_a_receiver(why: &str) -> Ended {
    Ended::Failed(SendError::NotAReceiver { reason: why.to_owned() })
}
