//! The packet in which an end offers what the next keys are made of.
//!
//! ```text
//! magic 3 | kind 1: ask, answer | nonce 16 | X25519 key 32 | echo 16 | HMAC-SHA256 32
//! ```
//!
//! Nothing in it is secret; the HMAC, under a key that follows from the shared secret, shows that one who has that made
//! it. The echo of an answer is the nonce of the peer's offer, so an answer to a fresh offer was not made before.

use super::MAGIC_BYTES;
use crate::schedule::Secret;
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

/// Bytes of an offer's nonce.
pub(super) const NONCE_BYTES: usize = 16;
/// Bytes of an X25519 key.
pub(super) const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 32;
const NONCE_AT: usize = MAGIC_BYTES + 1;
const KEY_AT: usize = NONCE_AT + NONCE_BYTES;
const ECHO_AT: usize = KEY_AT + KEY_BYTES;
const TAG_AT: usize = ECHO_AT + NONCE_BYTES;
/// Its length.
pub(super) const HELLO_BYTES: usize = TAG_AT + TAG_BYTES;

/// The kind of one that wants an answer.
pub(super) const ASK: u8 = 1;
/// The kind of one that is an answer.
pub(super) const ANSWER: u8 = 2;

pub(super) type Nonce = [u8; NONCE_BYTES];

/// What an end makes keys of: good for few sessions, all of other peers' offers, and replaced once one of them is in use.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) nonce: Nonce,
    pub(super) public: [u8; KEY_BYTES],
    private: PrivateKey,
    /// The peer's offers with which it has made a session. None of them gets a second one, which would have the same
    /// keys.
    pub(super) used: Vec<Nonce>,
}

impl Offer {
    /// The next one that follows from a seed, which does not tell it any more afterwards.
    pub(super) fn next(seed: &mut Secret) -> Self {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        seed.expand(&[b"lacuna offer key"], key.as_mut());
        let mut nonce = [0; NONCE_BYTES];
        seed.expand(&[b"lacuna offer nonce"], &mut nonce);
        *seed = seed.derive(b"lacuna offer next", &[]);
        let private = PrivateKey::from_private_key(&X25519, key.as_ref())
            .expect("any 32 bytes are a key of X25519");
        let computed = private.compute_public_key().expect("a key of X25519 has a public half");
        let public = computed.as_ref().try_into().expect("32 bytes");
        Self { nonce, public, private, used: Vec::new() }
    }

    /// What both ends get of each other's public keys; `None` if the peer's is no good one.
    pub(super) fn agree(&self, peer: [u8; KEY_BYTES]) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
        let peer = UnparsedPublicKey::new(&X25519, peer);
        let mut out = Zeroizing::new([0; KEY_BYTES]);
        agree(&self.private, peer, (), |secret| {
            out.copy_from_slice(secret);
            Ok(())
        })
        .ok()?;
        Some(out)
    }
}

/// One that was read, and made by somebody who has the shared secret.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hello {
    pub(super) kind: u8,
    pub(super) nonce: Nonce,
    pub(super) public: [u8; KEY_BYTES],
    pub(super) echo: Nonce,
}

/// Writes one.
pub(super) fn emit(
    key: &hmac::Key,
    magic: [u8; MAGIC_BYTES],
    kind: u8,
    offer: &Offer,
    echo: Nonce,
) -> Vec<u8> {
    let mut out = [&magic[..], &[kind], &offer.nonce, &offer.public, &echo].concat();
    let tag = hmac::sign(key, &out);
    out.extend(tag.as_ref());
    out
}

/// Reads one, whose magic and kind were seen; `None` if it is none, or nobody made it who has the secret.
pub(super) fn parse(key: &hmac::Key, packet: &[u8]) -> Option<Hello> {
    if packet.len() != HELLO_BYTES {
        return None;
    }
    let (covered, tag) = packet.split_at(TAG_AT);
    hmac::verify(key, covered, tag).ok()?;
    Some(Hello {
        kind: covered[MAGIC_BYTES],
        nonce: covered[NONCE_AT..KEY_AT].try_into().ok()?,
        public: covered[KEY_AT..ECHO_AT].try_into().ok()?,
        echo: covered[ECHO_AT..TAG_AT].try_into().ok()?,
    })
}
