//! What an end says last on a control connection, once for each connection that it has
//! served: a length of four bytes and its last words, a control packet's body or nothing.
//! No byte behind it is read: it may be of the next connection; see `reuse.rs`.

use std::io::{self, Read};

/// Longest last words: one control packet.
const WORDS_BYTES_MAX: usize = 16 << 10;

/// A peer's goodbye, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Goodbye(Vec<u8>);

/// One to send.
pub(crate) fn message(last_words: &[u8]) -> Vec<u8> {
    [&(last_words.len() as u32).to_be_bytes(), last_words].concat()
}

impl Goodbye {
    /// The last words, once all of them have come.
    pub(crate) fn last_words(&self) -> Option<&[u8]> {
        let (length, words) = self.0.split_first_chunk()?;
        words.get(..u32::from_be_bytes(*length) as usize)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads until it is whole.
    ///
    /// # Errors
    /// Of the stream; `UnexpectedEof` if that ends before, `InvalidData` if it is too
    /// long to be one.
    pub(crate) fn read(&mut self, stream: &mut impl Read) -> io::Result<()> {
        while self.last_words().is_none() {
            let start = self.0.len();
            self.0.resize(start + self.wanted()?, 0);
            let read = stream.read(&mut self.0[start..]);
            self.0.truncate(start + read.as_ref().map_or(0, |count| *count));
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Bytes to read next, as long as it is not whole.
    fn wanted(&self) -> io::Result<usize> {
        let Some((length, words)) = self.0.split_first_chunk() else {
            return Ok(size_of::<u32>() - self.0.len());
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > WORDS_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(length - words.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_behind_it_is_read() {
        let said = [&message(b"last")[..], b"first"].concat();
        let mut rest = &said[..];
        let mut goodbye = Goodbye::default();
        goodbye.read(&mut rest).unwrap();
        assert_eq!((goodbye.last_words(), rest), (Some(&b"last"[..]), &b"first"[..]));
        goodbye.read(&mut rest).unwrap();
        assert_eq!(rest, b"first", "it is whole");
    }

    #[test]
    fn one_that_ends_too_early_or_never_is_an_error() {
        for (bytes, error) in [
            (&[][..], io::ErrorKind::UnexpectedEof),
            (&[0, 0], io::ErrorKind::UnexpectedEof),
            (&[0, 0, 0, 5, 1], io::ErrorKind::UnexpectedEof),
            (&[7; 5000], io::ErrorKind::InvalidData),
            (&[0, 0, 0x40, 1], io::ErrorKind::InvalidData),
        ] {
            let mut rest = bytes;
            assert_eq!(Goodbye::default().read(&mut rest).unwrap_err().kind(), error);
        }
    }
}
