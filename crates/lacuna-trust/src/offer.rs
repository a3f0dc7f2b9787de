//! What becomes of a one-time code: who used it, and how often it was tried.
//!
//! A code is so short that an attacker must not try often. The rule: an end takes part in at most [`TRIES_MAX`] proofs of
//! a code, whatever becomes of them, and a proof lets the peer test one code (SPAKE2). At the accepting end a try begins
//! before it answers a peer that says that it has a code; at the connecting end, before it shows what a wrong peer could
//! compare with. A try is never given back: a peer that breaks the connection off has had it, and tries at the same time
//! count before any of them ends. So there are three tries at each of the two ends, out of 2^30 codes.
//!
//! The price: whoever reaches the accepting end can use the tries up, and another code is needed ([`CodeOffer::replace`]).
//!
//! The first peer who proves the code has used it; its key is known from then on.

use crate::code::Code;
use crate::key::PublicKey;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tries of a code: people mishear, and a connection may break.
pub const TRIES_MAX: u8 = 3;

/// A code that one peer may use, and what has become of it. Clones are of the same.
///
/// There is no clock here: who wants a code to end calls [`CodeOffer::expire`].
#[derive(Clone)]
pub struct CodeOffer(Arc<Mutex<Books>>);

/// Why nobody new can use a code any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodeEnd {
    /// A peer has proved that it has the code.
    #[error("it was used already, and is good for one peer")]
    Used,
    /// Its time is over, or there is another one instead.
    #[error("it has expired")]
    Expired,
    /// It was tried so often that the next try might be a guess.
    #[error("it was tried {TRIES_MAX} times, and is over")]
    Spent,
}

struct Books {
    code: Code,
    /// Counts codes, so that a try of an earlier one does not end this one.
    generation: u64,
    tries: u8,
    /// Tries without an outcome.
    under_way: u8,
    /// Who used this code.
    user: Option<PublicKey>,
    is_expired: bool,
    /// Who used earlier codes.
    earlier: HashSet<PublicKey>,
}

/// A proof of the code that has begun.
pub(crate) struct Try {
    offer: CodeOffer,
    code: Code,
    generation: u64,
    /// Not if the peer has proved the code before: it has nothing to guess.
    is_counted: bool,
}

impl fmt::Debug for CodeOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, end) = (self.user(), self.end());
        f.debug_struct("CodeOffer").field("user", &user).field("end", &end).finish_non_exhaustive()
    }
}

impl fmt::Debug for Try {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Try")
    }
}

impl CodeOffer {
    pub(crate) fn new(code: Code) -> Self {
        let books = Books {
            code,
            generation: 0,
            tries: 0,
            under_way: 0,
            user: None,
            is_expired: false,
            earlier: HashSet::new(),
        };
        Self(Arc::new(Mutex::new(books)))
    }

    /// Why nobody new can use the code any more; `None` while somebody can.
    #[must_use]
    pub fn end(&self) -> Option<CodeEnd> {
        self.lock().end()
    }

    /// Who used the code.
    #[must_use]
    pub fn user(&self) -> Option<PublicKey> {
        self.lock().user
    }

    /// Ends the code for whoever has not used it yet, also if a try is under way.
    pub fn expire(&self) {
        self.lock().is_expired = true;
    }

    /// Has another code instead, with tries of its own, which another peer may use. Who used an earlier one stays known.
    pub fn replace(&self, code: Code) {
        let mut books = self.lock();
        let user = books.user.take();
        books.earlier.extend(user);
        books.code = code;
        books.generation += 1;
        (books.tries, books.under_way, books.is_expired) = (0, 0, false);
    }

    pub(crate) fn code(&self) -> Code {
        self.lock().code.clone()
    }

    /// Whether this peer has used this code or an earlier one.
    pub(crate) fn knows(&self, peer: &PublicKey) -> bool {
        let books = self.lock();
        books.user.as_ref() == Some(peer) || books.earlier.contains(peer)
    }

    /// Begins a try by or with this peer. The one who used the code may prove it again: it may not have heard that it
    /// has succeeded.
    pub(crate) fn begin(&self, peer: &PublicKey) -> Result<Try, CodeEnd> {
        let mut books = self.lock();
        let is_counted = books.user.as_ref() != Some(peer);
        if is_counted {
            match books.end() {
                Some(end) => return Err(end),
                // Some are under way.
                None if books.tries >= TRIES_MAX => return Err(CodeEnd::Spent),
                None => {}
            }
            books.tries += 1;
            books.under_way += 1;
        }
        let (code, generation) = (books.code.clone(), books.generation);
        Ok(Try { offer: self.clone(), code, generation, is_counted })
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn end(&self) -> Option<CodeEnd> {
        let is_spent = self.tries >= TRIES_MAX && self.under_way == 0;
        match self.user {
            Some(_) => Some(CodeEnd::Used),
            None if self.is_expired => Some(CodeEnd::Expired),
            None => is_spent.then_some(CodeEnd::Spent),
        }
    }
}

impl Try {
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// The peer has the code: it is the one who used it. An error if another was faster, or the code has ended.
    pub(crate) fn succeed(self, peer: &PublicKey) -> Result<(), CodeEnd> {
        let mut books = self.offer.lock();
        match &books.user {
            _ if books.generation != self.generation => Err(CodeEnd::Expired),
            Some(user) if user == peer => Ok(()),
            Some(_) => Err(CodeEnd::Used),
            None if books.is_expired => Err(CodeEnd::Expired),
            None => {
                books.user = Some(*peer);
                Ok(())
            }
        }
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        let mut books = self.offer.lock();
        if self.is_counted && books.generation == self.generation {
            books.under_way -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [PublicKey; 4] = [
        PublicKey::new([0; 32]),
        PublicKey::new([1; 32]),
        PublicKey::new([2; 32]),
        PublicKey::new([3; 32]),
    ];

    fn offer() -> CodeOffer {
        CodeOffer::new("k7q-2mx".parse().unwrap())
    }

    #[test]
    fn tries_count_when_they_begin_and_are_not_given_back() {
        let offer = offer();
        let tries: Vec<_> = (0..3).map(|at| offer.begin(&PEERS[at]).unwrap()).collect();
        assert_eq!(offer.begin(&PEERS[3]).unwrap_err(), CodeEnd::Spent);
        assert_eq!(offer.end(), None, "one of them may be right");
        drop(tries);
        assert_eq!(offer.end(), Some(CodeEnd::Spent));
    }

    #[test]
    fn the_first_who_succeeds_has_used_it_and_may_prove_it_again() {
        let offer = offer();
        let [first, second] = [0, 1].map(|at| offer.begin(&PEERS[at]).unwrap());
        assert_eq!(second.succeed(&PEERS[1]), Ok(()));
        assert_eq!(first.succeed(&PEERS[0]), Err(CodeEnd::Used));
        assert_eq!((offer.end(), offer.user()), (Some(CodeEnd::Used), Some(PEERS[1])));
        for _ in 0..10 {
            assert_eq!(offer.begin(&PEERS[1]).unwrap().succeed(&PEERS[1]), Ok(()));
        }
        assert_eq!(offer.begin(&PEERS[0]).unwrap_err(), CodeEnd::Used);
    }

    #[test]
    fn a_code_that_expires_or_is_replaced_ends_tries_under_way() {
        let offer = offer();
        let [first, second] = [0, 1].map(|at| offer.begin(&PEERS[at]).unwrap());
        offer.expire();
        assert_eq!(first.succeed(&PEERS[0]), Err(CodeEnd::Expired));
        offer.replace("777-777".parse().unwrap());
        assert_eq!(offer.end(), None);
        let third = offer.begin(&PEERS[2]).unwrap();
        assert_eq!(second.succeed(&PEERS[1]), Err(CodeEnd::Expired));
        assert_eq!(*third.code().to_text(), "777-777");
        assert_eq!(third.succeed(&PEERS[2]), Ok(()));
        offer.replace("888-888".parse().unwrap());
        assert!(offer.knows(&PEERS[2]) && !offer.knows(&PEERS[0]));
        assert_eq!((offer.user(), offer.end()), (None, None));
    }
}
