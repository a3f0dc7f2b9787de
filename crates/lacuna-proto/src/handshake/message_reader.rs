//! The peer's first message on a control connection, as it comes in: magic, length, body; and in front
//! of it, on a connection that is reused, what is left of the goodbye of its last use.
//!
//! It takes no byte behind the message: what follows is read by whoever watches the connection later.
//! Nothing is allocated by a length that a stranger claims before that is judged.

use super::goodbye::Goodbye;
use super::messages::{MAGIC, MESSAGE_BYTES_MAX};

/// Magic and length.
const HEAD_BYTES: usize = MAGIC.len() + size_of::<u32>();

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    /// Until all of it has come.
    goodbye: Option<Goodbye>,
    received: Vec<u8>,
}

/// What came is no message of the exchange.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The goodbye of the last use is none.
    Goodbye,
    /// Why it is none.
    Message(String),
}

impl MessageReader {
    /// Behind a goodbye of which this much has come.
    pub(super) fn behind(goodbye: Goodbye) -> Self {
        Self { goodbye: Some(goodbye).filter(|goodbye| goodbye.wanted() > 0), received: Vec::new() }
    }

    /// Whether a byte of the message has come.
    pub(super) fn has_begun(&self) -> bool {
        !self.received.is_empty()
    }

    /// Bytes to read next; 0 once the message is whole.
    pub(super) fn wanted(&self) -> usize {
        if let Some(goodbye) = &self.goodbye {
            return goodbye.wanted();
        }
        let Some(length) = self.received.get(MAGIC.len()..HEAD_BYTES) else {
            return HEAD_BYTES - self.received.len();
        };
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        (HEAD_BYTES + length.min(MESSAGE_BYTES_MAX)).saturating_sub(self.received.len())
    }

    /// Takes in what came, as far as it is part of the message; how many bytes that were.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<usize, Unreadable> {
        let mut taken = 0;
        loop {
            let rest = &bytes[taken..];
            let part = &rest[..self.wanted().min(rest.len())];
            if part.is_empty() {
                return Ok(taken);
            }
            taken += part.len();
            match &mut self.goodbye {
                Some(goodbye) => {
                    goodbye.take(part).map_err(|_| Unreadable::Goodbye)?;
                    self.goodbye.take_if(|goodbye| goodbye.wanted() == 0);
                }
                None => {
                    self.received.extend_from_slice(part);
                    self.check()?;
                }
            }
        }
    }

    fn check(&self) -> Result<(), Unreadable> {
        let begun = self.received.len().min(MAGIC.len());
        if self.received[..begun] != MAGIC[..begun] {
            let magic = self.received[..begun].escape_ascii();
            return Err(Unreadable::Message(format!("it began with \"{magic}\"")));
        }
        match self.length() {
            Some(length) if length > MESSAGE_BYTES_MAX => Err(Unreadable::Message(format!(
                "a message of {length} bytes, at most {MESSAGE_BYTES_MAX} expected"
            ))),
            _ => Ok(()),
        }
    }

    fn length(&self) -> Option<usize> {
        let (length, _) = self.received.get(MAGIC.len()..)?.split_first_chunk()?;
        Some(u32::from_be_bytes(*length) as usize)
    }

    /// The message's body, once all of it has come.
    pub(super) fn body(&self) -> Option<&[u8]> {
        self.received.get(HEAD_BYTES..)?.get(..self.length()?)
    }
}
