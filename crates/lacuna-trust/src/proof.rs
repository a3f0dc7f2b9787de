//! The exchange with which every session begins, inside TLS: whether the ends need a proof of a one-time code, and the
//! proof.
//!
//! | connecting end | accepting end | |
//! |---|---|---|
//! | `NONE` | `KNOWN` | its key is trusted |
//! | | `WANTED`, or why the code has ended | it is not |
//! | `CODE` message | `PROVE` message | it begins a try |
//! | | `NOT_OFFERED`, or why the code has ended | it has no code |
//! | `CONFIRM` confirmation | `CONFIRM` confirmation | both have the code |
//! | | `WRONG`, or why the code has ended meanwhile | |
//!
//! A word is a byte; a message or a confirmation behind it has a fixed length. The connecting end speaks first, with the
//! end of its TLS handshake, so without a code nothing takes longer: it has judged the accepting end's key, and goes on
//! without waiting for `KNOWN`. One that has to ask somebody about that key waits for it, so that nobody is asked where a
//! code is wanted. With a code it waits for the accepting end's confirmation, and confirms first itself: so
//! whom it has come to know has come to know it, and needs no code later.
//!
//! Every error is final.

use crate::key::KeyError;
use crate::offer::{CodeEnd, CodeOffer, Try};
use crate::pake::{Binding, CONFIRMATION_BYTES, Confirmations, MESSAGE_BYTES, Pake, Role};
use crate::tls::Judge;
use std::fmt;
use std::sync::Arc;

const NONE: u8 = 1;
const CODE: u8 = 2;
const KNOWN: u8 = 3;
const PROVE: u8 = 4;
const CONFIRM: u8 = 5;
const WANTED: u8 = 6;
const NOT_OFFERED: u8 = 7;
const WRONG: u8 = 8;
const USED: u8 = 9;
const EXPIRED: u8 = 10;
const SPENT: u8 = 11;

/// The most that is said at once: a word, and a message.
pub(crate) const SAID_BYTES_MAX: usize = 1 + MESSAGE_BYTES;

/// What an end has beside the judgement that TLS passes on keys.
#[derive(Clone)]
pub(crate) enum Door {
    /// Nothing.
    Judged,
    /// The accepting end takes those whom the judge finds good, and one who has the code.
    Offering(CodeOffer, Arc<Judge>),
    /// The connecting end demands a proof of the code from who has not proved it before.
    ByCode(CodeOffer),
    /// The connecting end judges the accepting one's key once that has said that it knows this end.
    Late(Arc<Judge>),
}

/// An exchange that has gone wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Untrusted,
    Wrong,
    Ended(CodeEnd),
    Wanted,
    Missing,
    NotWanted,
    NotOffered,
    Broken(&'static str),
    Random,
}

/// The exchange of one session.
#[derive(Debug)]
pub(crate) struct Proof {
    door: Door,
    step: Step,
    /// What came of a word and what is behind it.
    came: [u8; SAID_BYTES_MAX],
    came_bytes: usize,
    /// What is to be said.
    says: Vec<u8>,
}

enum Step {
    /// TLS is at work.
    Before,
    /// Of the connecting end, which has said that it needs no proof.
    Answer,
    /// The same, and it has to hear the answer before it judges the key of whom it met.
    LateAnswer(Binding, Arc<Judge>),
    /// Of the connecting end, which has said its message.
    Challenge(Binding, CodeOffer, Pake),
    /// Of the accepting end, which has said nothing.
    First(Binding),
    /// An end has begun a try and waits for the peer's confirmation.
    Confirmation(Binding, Try, Confirmations),
    Done,
    Failed(Failure),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "Before",
            Self::Answer => "Answer",
            Self::LateAnswer(..) => "LateAnswer",
            Self::Challenge(..) => "Challenge",
            Self::First(_) => "First",
            Self::Confirmation(..) => "Confirmation",
            Self::Done => "Done",
            Self::Failed(failure) => return f.debug_tuple("Failed").field(failure).finish(),
        })
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Judged => f.write_str("Judged"),
            Self::Offering(offer, _) => f.debug_tuple("Offering").field(offer).finish(),
            Self::ByCode(offer) => f.debug_tuple("ByCode").field(offer).finish(),
            Self::Late(_) => f.write_str("Late"),
        }
    }
}

impl From<KeyError> for Failure {
    fn from(_: KeyError) -> Self {
        Self::Random
    }
}

impl Proof {
    pub(crate) fn new(door: Door) -> Self {
        let (step, came) = (Step::Before, [0; SAID_BYTES_MAX]);
        Self { door, step, came, came_bytes: 0, says: Vec::new() }
    }

    /// Whether TLS has not ended its handshake yet, as far as this knows.
    pub(crate) fn is_before(&self) -> bool {
        matches!(self.step, Step::Before)
    }

    /// Whether this end knows all that it wants to know of the peer.
    pub(crate) fn is_established(&self) -> bool {
        matches!(self.step, Step::Answer | Step::Done)
    }

    /// Whether what comes next is not for this exchange.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.step, Step::Done)
    }

    /// How it has failed, if it has.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self.step {
            Step::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// TLS has ended its handshake.
    pub(crate) fn begin(&mut self, binding: Binding) {
        let next = match binding.role {
            Role::Connecting => self.open(binding),
            Role::Accepting => Ok(Step::First(binding)),
        };
        self.step = next.unwrap_or_else(Step::Failed);
    }

    /// TLS has ended its handshake, and there is nothing to say about codes.
    pub(crate) fn skip(&mut self) {
        self.step = Step::Done;
    }

    /// How much is to come before anything else happens; 0 once nothing is wanted.
    pub(crate) fn wanted(&self) -> usize {
        let wanted = match self.step {
            Step::Before | Step::Done | Step::Failed(_) => return 0,
            _ if self.came_bytes == 0 => 1,
            _ => 1 + length_behind(self.came[0]),
        };
        wanted - self.came_bytes
    }

    /// Takes what came, not more than is wanted.
    pub(crate) fn on_bytes(&mut self, bytes: &[u8]) {
        self.came[self.came_bytes..][..bytes.len()].copy_from_slice(bytes);
        self.came_bytes += bytes.len();
        if self.came_bytes == 0 || self.wanted() > 0 {
            return;
        }
        let (came, count) = (self.came, std::mem::take(&mut self.came_bytes));
        let next = match std::mem::replace(&mut self.step, Step::Done) {
            Step::Answer => answered(came[0]),
            Step::LateAnswer(binding, judge) => match answered(came[0]) {
                Ok(_) if !judge(&binding.peer) => Err(Failure::Untrusted),
                answered => answered,
            },
            Step::Challenge(binding, offer, pake) => {
                self.challenged(binding, &offer, pake, &came[..count])
            }
            Step::First(binding) => self.first(binding, &came[..count]),
            Step::Confirmation(binding, begun, confirmations) => {
                self.confirmed(&binding, begun, &confirmations, &came[..count])
            }
            step @ (Step::Before | Step::Done | Step::Failed(_)) => Ok(step),
        };
        self.step = next.unwrap_or_else(Step::Failed);
    }

    /// What is to be said to the peer, also after a failure.
    pub(crate) fn take_says(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.says)
    }

    fn say(&mut self, word: u8, behind: &[u8]) {
        self.says.push(word);
        self.says.extend(behind);
    }

    /// The connecting end speaks first.
    fn open(&mut self, binding: Binding) -> Result<Step, Failure> {
        let offer = match &self.door {
            Door::ByCode(offer) if !offer.knows(&binding.peer) => offer.clone(),
            Door::Late(judge) => {
                let judge = judge.clone();
                self.say(NONE, &[]);
                return Ok(Step::LateAnswer(binding, judge));
            }
            _ => {
                self.say(NONE, &[]);
                return Ok(Step::Answer);
            }
        };
        offer.end().map_or(Ok(()), |end| Err(of_own(end)))?;
        let (pake, message) = Pake::begin(&offer.code(), &binding)?;
        self.say(CODE, &message);
        Ok(Step::Challenge(binding, offer, pake))
    }

    /// At the accepting end: what the connecting one has to say for itself.
    fn first(&mut self, binding: Binding, came: &[u8]) -> Result<Step, Failure> {
        let peer = &binding.peer;
        match (came[0], &self.door) {
            (NONE, Door::Offering(offer, judge)) if !judge(peer) && !offer.knows(peer) => {
                let (word, failure) = match offer.end() {
                    Some(end) => (word_of(end), Failure::Ended(end)),
                    None => (WANTED, Failure::Missing),
                };
                self.say(word, &[]);
                Err(failure)
            }
            (NONE, _) => {
                self.say(KNOWN, &[]);
                Ok(Step::Done)
            }
            (CODE, Door::Offering(offer, _)) => match offer.begin(peer) {
                Ok(begun) => self.challenge(binding, begun, &came[1..]),
                Err(end) => {
                    self.say(word_of(end), &[]);
                    Err(Failure::Ended(end))
                }
            },
            (CODE, _) => {
                self.say(NOT_OFFERED, &[]);
                Err(Failure::NotOffered)
            }
            _ => Err(Failure::Broken("it began with a word that is none")),
        }
    }

    /// The accepting end answers one who says that it has a code.
    fn challenge(&mut self, binding: Binding, begun: Try, came: &[u8]) -> Result<Step, Failure> {
        let (pake, message) = Pake::begin(begun.code(), &binding)?;
        let confirmations = pake.finish(came).ok_or(Failure::Broken("its message is no point"))?;
        self.say(PROVE, &message);
        Ok(Step::Confirmation(binding, begun, confirmations))
    }

    /// The connecting end hears whether a proof is wanted.
    fn challenged(
        &mut self,
        binding: Binding,
        offer: &CodeOffer,
        pake: Pake,
        came: &[u8],
    ) -> Result<Step, Failure> {
        match came[0] {
            PROVE => {
                let begun = offer.begin(&binding.peer).map_err(of_own)?;
                let confirmations =
                    pake.finish(&came[1..]).ok_or(Failure::Broken("its message is no point"))?;
                self.say(CONFIRM, &confirmations.own);
                Ok(Step::Confirmation(binding, begun, confirmations))
            }
            NOT_OFFERED => Err(Failure::NotWanted),
            word => Err(end_of(word)
                .map_or(Failure::Broken("it answered a code with something else"), Failure::Ended)),
        }
    }

    /// Either end hears whether the peer has the code.
    fn confirmed(
        &mut self,
        binding: &Binding,
        begun: Try,
        confirmations: &Confirmations,
        came: &[u8],
    ) -> Result<Step, Failure> {
        let is_connecting = binding.role == Role::Connecting;
        match came[0] {
            CONFIRM if !confirmations.is_right(&came[1..]) => {
                if !is_connecting {
                    self.say(WRONG, &[]);
                }
                Err(Failure::Wrong)
            }
            CONFIRM if is_connecting => {
                begun.succeed(&binding.peer).map_err(of_own)?;
                Ok(Step::Done)
            }
            CONFIRM => match begun.succeed(&binding.peer) {
                Ok(()) => {
                    self.say(CONFIRM, &confirmations.own);
                    Ok(Step::Done)
                }
                Err(end) => {
                    self.say(word_of(end), &[]);
                    Err(Failure::Ended(end))
                }
            },
            WRONG if is_connecting => Err(Failure::Wrong),
            word => {
                let end = end_of(word).filter(|_| is_connecting);
                Err(end.map_or(Failure::Broken("it did not confirm the code"), Failure::Ended))
            }
        }
    }
}

/// The connecting end, which needed no proof, hears whether the accepting one needs none.
fn answered(word: u8) -> Result<Step, Failure> {
    match word {
        KNOWN => Ok(Step::Done),
        WANTED => Err(Failure::Wanted),
        word => Err(end_of(word)
            .map_or(Failure::Broken("it began with a word that is none"), Failure::Ended)),
    }
}

/// Why the connecting end does not go on with its own code.
fn of_own(end: CodeEnd) -> Failure {
    match end {
        // Another session of the same end has met whom it is for: somebody else is not trusted.
        CodeEnd::Used => Failure::Untrusted,
        end => Failure::Ended(end),
    }
}

/// Bytes behind a word. Words that are none have none.
fn length_behind(word: u8) -> usize {
    match word {
        CODE | PROVE => MESSAGE_BYTES,
        CONFIRM => CONFIRMATION_BYTES,
        _ => 0,
    }
}

fn word_of(end: CodeEnd) -> u8 {
    match end {
        CodeEnd::Used => USED,
        CodeEnd::Expired => EXPIRED,
        CodeEnd::Spent => SPENT,
    }
}

fn end_of(word: u8) -> Option<CodeEnd> {
    [CodeEnd::Used, CodeEnd::Expired, CodeEnd::Spent].into_iter().find(|end| word_of(*end) == word)
}
