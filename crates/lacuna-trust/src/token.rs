//! A secret that the hosts of a cluster share: random bytes, written in a line of a file that only its owner may read.

use crate::key::{HostKey, KEY_BYTES, KeyError};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// The fewest random bytes: 128 bits.
pub const BYTES_MIN: usize = 16;
/// As many as a new one has.
const BYTES: usize = 32;
/// The most that are read.
const BYTES_MAX: usize = 1024;

/// A shared secret.
#[derive(Clone)]
pub struct Token(Zeroizing<Vec<u8>>);

/// A text is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not written as tokens are: a password, perhaps.
    #[error("no token: it is one line of letters, digits, - and _, as `lacuna key token` makes it")]
    Text,
    /// Somebody could guess it.
    #[error(
        "a token of {found} bytes can be guessed: at least {BYTES_MIN} are needed; `lacuna key token` makes one"
    )]
    Short {
        /// Bytes that it has.
        found: usize,
    },
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new(vec![0; BYTES]);
        SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::Random)?;
        Ok(Self(bytes))
    }

    /// As a file has it.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(&*self.0))
    }

    /// The key of all who have it.
    ///
    /// # Panics
    /// Never: the lengths are right.
    #[must_use]
    pub fn key(&self) -> HostKey {
        HostKey::of_seed(&self.derive(b"ed25519"))
    }

    /// A secret of all who have it, for keys that are agreed on without a session of TLS: of datagrams, of queue pairs whose
    /// infos a program exchanges, of tunnels. It says nothing about [`Token::key`], nor the other way round.
    #[must_use]
    pub fn secret(&self) -> Zeroizing<[u8; KEY_BYTES]> {
        self.derive(b"shared secret")
    }

    /// HKDF (RFC 5869), since a token may be longer than a key.
    fn derive(&self, label: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        let secret = Salt::new(HKDF_SHA256, b"lacuna token").extract(&self.0);
        let info = [label];
        let okm = secret.expand(&info, HKDF_SHA256).expect("one hash long");
        okm.fill(bytes.as_mut()).expect("one hash long");
        bytes
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() || text.len() > BYTES_MAX {
            return Err(TokenError::Text);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Text)?;
        match bytes.len() {
            found @ ..BYTES_MIN => Err(TokenError::Short { found }),
            _ => Ok(Self(Zeroizing::new(bytes))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_gives_the_same_key() {
        let token = Token::generate().unwrap();
        let read: Token = format!("{}\n", *token.to_text()).parse().unwrap();
        assert_eq!(read.key().public(), token.key().public());
        assert_eq!(read.secret(), token.secret());
        assert_ne!(Token::generate().unwrap().secret(), token.secret());
        assert_ne!(Token::generate().unwrap().key().public(), token.key().public());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn the_secret_is_a_tokens_own_and_not_its_key() {
        let token = Token::generate().unwrap();
        let read: Token = token.to_text().parse().unwrap();
        assert_eq!(read.secret(), token.secret());
        assert_ne!(Token::generate().unwrap().secret(), token.secret());
        let of_key = HostKey::of_seed(&token.secret());
        assert_ne!(of_key.public(), token.key().public());
    }

    #[test]
    fn what_can_be_guessed_is_refused() {
        assert_eq!("c2VjcmV0".parse::<Token>().unwrap_err(), TokenError::Short { found: 6 });
        for text in ["", "correct horse battery staple", &"A".repeat(1025)] {
            assert_eq!(text.parse::<Token>().unwrap_err(), TokenError::Text);
        }
    }
}
