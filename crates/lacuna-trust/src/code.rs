//! A one-time code: short enough to be read aloud, so short that it could be guessed by whoever may try as often as he
//! likes. [`CodeOffer`](crate::CodeOffer) gives him three tries.
//!
//! Six characters of Crockford's base32, which has no letters that are taken for others: `k7q-2mx`, 30 random bits. It
//! is read as people write it: in capitals, without the dash, with o for 0 and i or l for 1.

use crate::key::KeyError;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// Digits of base32, in their order.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters of a code, each of five bits.
const CHARACTERS: usize = 6;
/// Characters before the dash.
const GROUP: usize = 3;

/// A one-time code.
#[derive(Clone)]
pub struct Code(Zeroizing<[u8; CHARACTERS]>);

/// A text is no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodeError {
    /// Too few characters, or too many.
    #[error("no code: it has {CHARACTERS} letters and digits, as in k7q-2mx, and this has {found}")]
    Length {
        /// Letters and digits that it has.
        found: usize,
    },
    /// A character that no code has.
    #[error("no code: {found:?} is in none; it has {CHARACTERS} letters and digits, as in k7q-2mx")]
    Character {
        /// The first one.
        found: char,
    },
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(..)")
    }
}

impl Code {
    /// A new one.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn generate() -> Result<Self, KeyError> {
        let mut code = Zeroizing::new([0; CHARACTERS]);
        SystemRandom::new().fill(code.as_mut()).map_err(|_| KeyError::Random)?;
        // 256 is a multiple of 32: each digit is as likely as any other.
        code.iter_mut().for_each(|byte| *byte = DIGITS[usize::from(*byte) % DIGITS.len()]);
        Ok(Self(code))
    }

    /// As it is shown.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(CHARACTERS + 1));
        for (at, byte) in self.0.iter().enumerate() {
            if at == GROUP {
                text.push('-');
            }
            text.push(char::from(*byte));
        }
        text
    }

    /// What both ends have to have alike.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0[..]
    }
}

impl FromStr for Code {
    type Err = CodeError;

    /// Spaces and dashes are skipped.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let mut code = Zeroizing::new([0; CHARACTERS]);
        let mut found = 0;
        for character in text.chars().filter(|next| *next != '-' && !next.is_whitespace()) {
            let byte = match character.to_ascii_lowercase() {
                'o' => b'0',
                'i' | 'l' => b'1',
                other => u8::try_from(other).unwrap_or_default(),
            };
            if !DIGITS.contains(&byte) {
                return Err(CodeError::Character { found: character });
            }
            if let Some(place) = code.get_mut(found) {
                *place = byte;
            }
            found += 1;
        }
        match found {
            CHARACTERS => Ok(Self(code)),
            found => Err(CodeError::Length { found }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_people_write_it() {
        let code: Code = "k0q-21x".parse().unwrap();
        for text in ["k0q21x", "K0Q-21X", " koq 2ix\n", "KOQ-2LX", "k-0-q-2-1-x"] {
            assert_eq!(text.parse::<Code>().unwrap().0, code.0, "{text}");
        }
        assert_eq!(*code.to_text(), "k0q-21x");
        assert_eq!(format!("{code:?}"), "Code(..)");
    }

    #[test]
    fn a_new_code_has_any_digit_anywhere() {
        let mut seen = [[false; 32]; CHARACTERS];
        // A digit that is missed after this many: one run in 10^11 (6 * 32 * (31 / 32)^1000).
        for _ in 0..1000 {
            let code = Code::generate().unwrap();
            assert_eq!(code.to_text().parse::<Code>().unwrap().0, code.0);
            for (place, byte) in seen.iter_mut().zip(code.0.iter()) {
                place[DIGITS.iter().position(|digit| digit == byte).unwrap()] = true;
            }
        }
        assert!(seen.as_flattened().iter().all(|seen| *seen));
    }

    #[test]
    fn what_is_no_code_is_refused() {
        let error = |text: &str| text.parse::<Code>().unwrap_err();
        assert_eq!(error(""), CodeError::Length { found: 0 });
        assert_eq!(error("k7q-2m"), CodeError::Length { found: 5 });
        assert_eq!(error(&"7".repeat(1000)), CodeError::Length { found: 1000 });
        assert_eq!(error("k7q-2mu"), CodeError::Character { found: 'u' });
        assert_eq!(error("k7q_2mx"), CodeError::Character { found: '_' });
        assert_eq!(error("ķ7q-2mx"), CodeError::Character { found: 'ķ' });
        assert_eq!(error("k7q\0-2mx"), CodeError::Character { found: '\0' });
    }
}
