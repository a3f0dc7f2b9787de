//! The goodbye: the close message of a connection on its control connection. It is a length of four
//! bytes and the *last words*: the body of the final control packet, or nothing. Those of the connection's
//! siblings go along in frames that are [relayed](lacuna_wire::Relayed). The reader takes no byte after it,
//! because the next connection may reuse the stream.

use lacuna_wire::{ControlBody, Frame, Relayed};

/// Longest last words: those of one control packet.
const WORDS_BYTES_MAX: usize = 16 << 10;

/// Reader of a peer's goodbye: the bytes read so far.
#[derive(Debug, Default)]
pub struct Goodbye(Vec<u8>);

/// The announced length exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a goodbye of {bytes} bytes, at most {WORDS_BYTES_MAX} expected")]
pub struct TooLong {
    /// The claimed length.
    pub bytes: u32,
}

/// Encodes a goodbye.
pub fn message(last_words: &[u8]) -> Vec<u8> {
    [&(last_words.len() as u32).to_be_bytes(), last_words].concat()
}

/// Adds the last words of a sibling, which has this number at the peer. What would be too long is left out.
pub fn relay(last_words: &mut Vec<u8>, queue_pair: u32, body: &[u8]) {
    let before = last_words.len();
    if body.len() <= WORDS_BYTES_MAX {
        Frame::Relayed(Relayed { queue_pair, body }).append_to(last_words);
    }
    if last_words.len() > WORDS_BYTES_MAX {
        last_words.truncate(before);
    }
}

/// The last words of siblings, with their numbers.
pub fn relayed(last_words: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let frames = ControlBody::parse(last_words).ok().map(|body| body.frames());
    frames.into_iter().flatten().filter_map(|frame| match frame {
        Ok(Frame::Relayed(Relayed { queue_pair, body })) => Some((queue_pair, body)),
        _ => None,
    })
}

impl Goodbye {
    /// The last words, once all of them have come.
    pub fn last_words(&self) -> Option<&[u8]> {
        let (length, words) = self.0.split_first_chunk()?;
        words.get(..u32::from_be_bytes(*length) as usize)
    }

    /// Whether no byte of it was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes to read next; 0 once the goodbye is whole.
    pub fn wanted(&self) -> usize {
        let Some((length, words)) = self.0.split_first_chunk() else {
            return size_of::<u32>() - self.0.len();
        };
        let length = u32::from_be_bytes(*length) as usize;
        length.min(WORDS_BYTES_MAX).saturating_sub(words.len())
    }

    /// Takes in at most [`Goodbye::wanted`] bytes.
    ///
    /// # Errors
    /// If the announced length exceeds the limit.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        debug_assert!(bytes.len() <= self.wanted(), "what follows is for somebody else");
        self.0.extend_from_slice(bytes);
        match self.0.split_first_chunk().map(|(length, _)| u32::from_be_bytes(*length)) {
            Some(length) if length as usize > WORDS_BYTES_MAX => Err(TooLong { bytes: length }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` to the reader; returns those that it left.
    fn take<'b>(goodbye: &mut Goodbye, mut bytes: &'b [u8]) -> Result<&'b [u8], TooLong> {
        while goodbye.wanted() > 0 && !bytes.is_empty() {
            let (now, later) = bytes.split_at(goodbye.wanted().min(bytes.len()));
            goodbye.take(now)?;
            bytes = later;
        }
        Ok(bytes)
    }

    #[test]
    fn nothing_behind_it_is_taken() {
        let said = [&message(b"last")[..], b"first"].concat();
        let mut goodbye = Goodbye::default();
        let rest = take(&mut goodbye, &said).unwrap();
        assert_eq!((goodbye.last_words(), rest), (Some(&b"last"[..]), &b"first"[..]));
        assert_eq!(goodbye.wanted(), 0, "it is whole");
    }

    #[test]
    fn one_that_ends_too_early_is_not_whole_and_one_that_is_too_long_an_error() {
        for bytes in [&[][..], &[0, 0], &[0, 0, 0, 5, 1]] {
            let mut goodbye = Goodbye::default();
            take(&mut goodbye, bytes).unwrap();
            assert!(goodbye.last_words().is_none() && goodbye.wanted() > 0);
        }
        for bytes in [&[7; 5000][..], &[0, 0, 0x40, 1]] {
            assert!(take(&mut Goodbye::default(), bytes).is_err());
        }
    }
}
