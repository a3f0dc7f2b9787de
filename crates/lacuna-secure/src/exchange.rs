//! The secret of a queue pair whose ends exchanged descriptions by a way of the application's own, and share a secret.
//!
//! ```text
//! shared secret ─"lacuna exchanged", kind, both nonces and descriptions─▶ secret of epoch 0
//! ```
//!
//! A description needs no secrecy, and none of the way that it takes: who does not have the shared secret learns nothing
//! from it, and one that was changed gives another secret, so that no packet opens. Each end draws a nonce for each queue
//! pair, and a queue pair connects once; so whatever becomes of the descriptions, an end never seals with the same key
//! twice. There is no forward secrecy: who gets to know the shared secret later reads what was recorded.

use crate::schedule::{End, Secret};

/// Bytes of a nonce: random ones, so many that two queue pairs never have the same.
pub const NONCE_BYTES: usize = 16;

/// One end of a queue pair, as both know it.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// Drawn for this queue pair alone.
    pub nonce: [u8; NONCE_BYTES],
    /// All else that both ends must know alike, its number among it.
    pub agreed: &'a [u8],
}

/// Both ends have the same nonce: the description is this end's own, which somebody sent back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the description is this end's own, not the peer's")]
pub struct OwnDescription;

/// The secret of a queue pair, and which end this one is. `kind` keeps apart queue pairs that could be taken for each
/// other.
///
/// # Errors
/// If the peer's description has this end's nonce.
pub fn agree(
    shared: &Secret,
    kind: &str,
    own: Description<'_>,
    peer: Description<'_>,
) -> Result<(Secret, End), OwnDescription> {
    // Somebody has to be the first one; both see the same order.
    let (end, first, second) = match own.nonce.cmp(&peer.nonce) {
        std::cmp::Ordering::Less => (End::Connecting, own, peer),
        std::cmp::Ordering::Greater => (End::Accepting, peer, own),
        std::cmp::Ordering::Equal => return Err(OwnDescription),
    };
    let mut context = Vec::new();
    // With lengths, so that no two sets of parts give the same bytes.
    for part in [kind.as_bytes(), &first.nonce, first.agreed, &second.nonce, second.agreed] {
        context.extend((part.len() as u64).to_be_bytes());
        context.extend(part);
    }
    Ok((shared.derive(b"lacuna exchanged", &context), end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Association, Cipher, HEAD_BYTES, Limits, OpenError, TRAILER_BYTES};

    fn shared() -> Secret {
        Secret::new([3; 32])
    }

    fn described(nonce: u8, agreed: &[u8]) -> Description<'_> {
        Description { nonce: [nonce; NONCE_BYTES], agreed }
    }

    fn keys(agreed: Result<(Secret, End), OwnDescription>) -> Association {
        let (secret, end) = agreed.unwrap();
        Association::new(Cipher::default(), secret, end, 1, Limits::default(), 0)
    }

    /// Whether what one seals the other opens, in both directions.
    fn do_understand(a: &Association, b: &Association) -> bool {
        let passes = |from: &Association, to: &Association| {
            let mut packet = vec![1; HEAD_BYTES + 10 + TRAILER_BYTES];
            from.sealer(0, 0).unwrap().seal(&mut packet).unwrap();
            let mut out = vec![0; packet.len()];
            match to.opener(0, 0).unwrap().open(&packet, &mut out) {
                Ok(_) => true,
                Err(OpenError::Forged) => false,
                Err(error) => panic!("{error}"),
            }
        };
        let (there, back) = (passes(a, b), passes(b, a));
        assert_eq!(there, back);
        there
    }

    #[test]
    fn ends_that_exchanged_their_descriptions_understand_each_other() {
        let (a, b) = (described(1, b"queue pair 5"), described(9, b"queue pair 7"));
        assert!(do_understand(
            &keys(agree(&shared(), "rc", a, b)),
            &keys(agree(&shared(), "rc", b, a))
        ));
    }

    #[test]
    fn who_changes_a_description_or_lacks_the_secret_breaks_it_and_no_more() {
        let (a, b) = (described(1, b"queue pair 5"), described(9, b"queue pair 7"));
        let here = keys(agree(&shared(), "rc", a, b));
        let other_secret = Secret::new([4; 32]);
        for (why, there) in [
            ("another nonce", agree(&shared(), "rc", b, described(2, a.agreed))),
            ("another number", agree(&shared(), "rc", b, described(1, b"queue pair 6"))),
            ("its own number", agree(&shared(), "rc", described(9, b"queue pair 8"), a)),
            ("another kind", agree(&shared(), "sdr", b, a)),
            ("another secret", agree(&other_secret, "rc", b, a)),
        ] {
            assert!(!do_understand(&here, &keys(there)), "{why}");
        }
    }

    #[test]
    fn bytes_that_move_from_one_part_to_the_next_give_another_secret() {
        let here = keys(agree(&shared(), "rc", described(1, b"ab"), described(9, b"")));
        let there = keys(agree(&shared(), "rc", described(9, b"b"), described(1, b"a")));
        assert!(!do_understand(&here, &there));
    }

    #[test]
    fn an_ends_own_description_is_refused() {
        let own = described(1, b"queue pair 5");
        assert_eq!(
            agree(&shared(), "rc", own, described(1, b"other")).unwrap_err(),
            OwnDescription
        );
    }
}
