//! For tests and fuzzing: the exchange about a one-time code, with a peer who says anything. In a session only TLS's peer can.

use crate::code::Code;
use crate::key::HostKey;
use crate::offer::CodeOffer;
use crate::pake::{Binding, Role};
use crate::proof::{Door, Proof, SAID_BYTES_MAX};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Begins an exchange at one of the ends, with one of the doors, and has it hear the words. Whatever they are: it wants no more than
/// the longest word, says no more than some, and a stranger who has no code is never believed.
///
/// # Panics
/// If one of that does not hold.
pub fn hear(choice: u8, words: &[u8]) {
    let code: Code = "k7q-2mx".parse().expect("a code");
    let keys = [[1; 32], [2; 32]].map(|seed| HostKey::of_seed(&seed).public());
    let is_trusted = choice & 4 != 0;
    let door = match choice & 3 {
        0 => Door::Judged,
        1 => Door::ByCode(CodeOffer::new(code)),
        2 => Door::Late(Arc::new(move |_| is_trusted)),
        _ => Door::Offering(CodeOffer::new(code), Arc::new(move |_| is_trusted)),
    };
    let role = if choice & 8 != 0 { Role::Connecting } else { Role::Accepting };
    let needs_code = match (&door, role) {
        (Door::Judged, _) => false,
        // Who is not trusted is not believed by the connecting end, which is all that it is for.
        (Door::Late(_), role) => role == Role::Connecting && !is_trusted,
        (Door::ByCode(_), role) => role == Role::Connecting,
        (Door::Offering(..), role) => role == Role::Accepting && !is_trusted,
    };
    let mut proof = Proof::new(door);
    proof.begin(Binding { role, own: keys[0], peer: keys[1], session: Zeroizing::new([3; 32]) });
    let (mut words, mut said_bytes) = (words, 0);
    loop {
        said_bytes += proof.take_says().len();
        let wanted = proof.wanted();
        assert!(wanted <= SAID_BYTES_MAX, "{wanted} bytes are wanted");
        if wanted == 0 || words.is_empty() {
            break;
        }
        let (some, rest) = words.split_at(wanted.min(words.len()));
        words = rest;
        proof.on_bytes(some);
    }
    assert!(said_bytes <= 2 * SAID_BYTES_MAX, "{said_bytes} bytes were said");
    assert!(!(needs_code && proof.is_done()), "a stranger without the code is believed");
    assert!(proof.failure().is_none() || !proof.is_established());
}

#[cfg(test)]
mod tests {
    use super::hear;
    use proptest::prelude::*;
    use std::path::PathBuf;

    #[test]
    fn the_corpus_holds() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proof");
        for entry in std::fs::read_dir(folder).expect("the corpus") {
            let bytes = std::fs::read(entry.expect("a file").path()).expect("readable");
            let (choice, words) = bytes.split_first().expect("not empty");
            hear(*choice, words);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_said_nobody_is_believed_without_the_code(
            choice: u8, first in 0_u8..13, rest in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            hear(choice, &[&[first], &rest[..]].concat());
        }
    }
}
