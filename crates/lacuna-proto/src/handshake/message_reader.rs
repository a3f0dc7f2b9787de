//! Reads the peer's first message from a control connection: magic, length, body. On a reused
//! connection the rest of the goodbye to its last use comes before it.
//!
//! It reads no byte after the message: the connection's monitor reads those. It checks the announced
//! length before it allocates memory for the message.

use super::goodbye::Goodbye;
use super::messages::{MAGIC, MESSAGE_BYTES_MAX};

/// Magic and length.
const HEADER_BYTES: usize = MAGIC.len() + size_of::<u32>();

/// Reader of one message.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    /// The goodbye to the last use; `None` once it was read whole.
    goodbye: Option<Goodbye>,
    received: Vec<u8>,
}

/// The bytes are not a message of the handshake.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The goodbye to the last use is too long.
    Goodbye,
    /// The message is invalid, for this reason.
    Message(String),
}

impl MessageReader {
    /// Reads a message that follows this goodbye, which may be partly read.
    pub(super) fn after_goodbye(goodbye: Goodbye) -> Self {
        Self { goodbye: Some(goodbye).filter(|goodbye| goodbye.wanted() > 0), received: Vec::new() }
    }

    /// Whether a byte of the message was read.
    pub(super) fn has_begun(&self) -> bool {
        !self.received.is_empty()
    }

    /// Bytes to read next; 0 once the message is whole.
    pub(super) fn wanted(&self) -> usize {
        if let Some(goodbye) = &self.goodbye {
            return goodbye.wanted();
        }
        let Some(length) = self.received.get(MAGIC.len()..HEADER_BYTES) else {
            return HEADER_BYTES - self.received.len();
        };
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        (HEADER_BYTES + length.min(MESSAGE_BYTES_MAX)).saturating_sub(self.received.len())
    }

    /// Takes in the bytes that are part of the message and returns how many those are.
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

    /// The message's body, once it was read whole.
    pub(super) fn body(&self) -> Option<&[u8]> {
        self.received.get(HEADER_BYTES..)?.get(..self.length()?)
    }
}
