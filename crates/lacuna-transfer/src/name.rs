//! Names from a peer: checked to be paths below the receiver's folder.
//!
//! A name is the bytes of a relative path with `/` between its parts, as on Unix: any script, and
//! bytes that are not UTF-8. Names that lead out of the folder are refused here; links on the way
//! are refused where the path is opened (`recv/tree.rs`).

use super::wire::Hash;

/// Longest name: `PATH_MAX`, which no path on the sending side exceeds.
pub(crate) const NAME_BYTES_MAX: usize = 4096;
/// Longest part of a name: `NAME_MAX` of the file systems in use.
const PART_BYTES_MAX: usize = 255;
/// Suffix of partial files.
pub(crate) const PARTIAL_SUFFIX: &str = ".lacuna-part";

/// Bytes of a name that its partial file's name repeats for people.
const READABLE_BYTES_MAX: usize = 64;

/// A checked name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(Vec<u8>);

/// A name is not taken: the peer's fault, or of a path to send the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It has no byte.
    #[error("the name is empty")]
    Empty,
    /// It is longer than any path of the sender.
    #[error("the name has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed")]
    Long {
        /// Its bytes.
        bytes: usize,
    },
    /// It begins with a slash.
    #[error("the name is an absolute path")]
    Absolute,
    /// Two slashes follow each other, or one is the last byte.
    #[error("the name has an empty part")]
    EmptyPart,
    /// A part leads to where the name does not say.
    #[error("the name has a part that is \".\" or \"..\"")]
    Dots,
    /// A part is longer than file systems allow.
    #[error("the name has a part of {bytes} bytes, at most {PART_BYTES_MAX} are allowed")]
    LongPart {
        /// Bytes of the part.
        bytes: usize,
    },
    /// No system takes it.
    #[error("the name has a zero byte")]
    Zero,
    /// It would be taken for a partial file.
    #[error("the name ends in {PARTIAL_SUFFIX}, which is kept for partial files")]
    Reserved,
}

impl Name {
    /// Checks a name from the peer.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.len() > NAME_BYTES_MAX {
            return Err(NameError::Long { bytes: bytes.len() });
        }
        if bytes[0] == b'/' {
            return Err(NameError::Absolute);
        }
        if bytes.contains(&0) {
            return Err(NameError::Zero);
        }
        for part in bytes.split(|byte| *byte == b'/') {
            match part {
                b"" => return Err(NameError::EmptyPart),
                b"." | b".." => return Err(NameError::Dots),
                part if part.len() > PART_BYTES_MAX => {
                    return Err(NameError::LongPart { bytes: part.len() });
                }
                part if part.ends_with(PARTIAL_SUFFIX.as_bytes()) => {
                    return Err(NameError::Reserved);
                }
                _ => {}
            }
        }
        Ok(Self(bytes.to_vec()))
    }

    /// All of it.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The folder: everything before the last part; empty for the top.
    pub(crate) fn folder(&self) -> &[u8] {
        self.split().0
    }

    /// The last part.
    pub(crate) fn leaf(&self) -> &[u8] {
        self.split().1
    }

    fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&[], &self.0),
        }
    }

    /// Name of the partial file beside it. Hidden, of fixed length, and made of a hash and the
    /// readable beginning of the name.
    pub(crate) fn partial(&self) -> String {
        let leaf = self.leaf();
        let hash: Hash = blake3::hash(leaf).into();
        let hash: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let readable = |byte: &u8| char::from(if is_plain(*byte) { *byte } else { b'_' });
        let start: String = leaf.iter().take(READABLE_BYTES_MAX).map(readable).collect();
        format!(".{start}.{hash}{PARTIAL_SUFFIX}")
    }
}

/// Whether a file's name may be one of [`Name::partial`].
pub(crate) fn is_partial(leaf: &[u8]) -> bool {
    let start = leaf.strip_suffix(PARTIAL_SUFFIX.as_bytes()).and_then(|leaf| {
        let (start, hash) = leaf.split_at_checked(leaf.len().checked_sub(16)?)?;
        let is_hash = hash.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_hash.then_some(start)?.strip_prefix(b".")?.strip_suffix(b".")
    });
    let is_readable = |byte: &u8| is_plain(*byte);
    start.is_some_and(|start| {
        (1..=READABLE_BYTES_MAX).contains(&start.len()) && start.iter().all(is_readable)
    })
}

/// Whether a partial file's name shows this byte as it is.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

/// A name for people. Characters that would control a terminal, reorder what follows or begin a new
/// line are escaped; bytes that are not UTF-8 become `\u{fffd}`.
#[must_use]
pub fn shown(name: &[u8]) -> String {
    shown_text(&String::from_utf8_lossy(name))
}

/// The same for text from a peer.
#[must_use]
pub fn shown_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() || is_layout(char) {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    out
}

/// Whether a character only changes where others appear: "fdp.exe" must not look like "exe.pdf"
/// (Unicode Standard Annex 9, table 1), nor one line like two.
fn is_layout(char: char) -> bool {
    let ranges = ['\u{61c}'..='\u{61c}', '\u{200e}'..='\u{200f}', '\u{2028}'..='\u{202e}'];
    ranges.iter().any(|range| range.contains(&char)) || ('\u{2066}'..='\u{2069}').contains(&char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_the_folder_are_refused() {
        let long_part = [b'x'; 256];
        let long = b"a/".repeat(2048 + 1);
        for (name, expected) in [
            (&b""[..], NameError::Empty),
            (b"/", NameError::Absolute),
            (b"/etc/passwd", NameError::Absolute),
            (b"//host/share", NameError::Absolute),
            (b"..", NameError::Dots),
            (b".", NameError::Dots),
            (b"../a", NameError::Dots),
            (b"a/..", NameError::Dots),
            (b"a/../b", NameError::Dots),
            (b"a/./b", NameError::Dots),
            (b"a//b", NameError::EmptyPart),
            (b"a/", NameError::EmptyPart),
            (b"a\0b", NameError::Zero),
            (b"a/\0", NameError::Zero),
            (&long_part, NameError::LongPart { bytes: 256 }),
            (&long, NameError::Long { bytes: 4098 }),
            (b".a.0011223344556677.lacuna-part", NameError::Reserved),
            (b"a.lacuna-part/b", NameError::Reserved),
        ] {
            assert_eq!(Name::parse(name), Err(expected), "{}", shown(name));
        }
    }

    #[test]
    fn every_other_name_is_taken() {
        for name in [
            &b"a"[..],
            b"a/b/c",
            b"...",
            b"..a",
            b"a..",
            b" ",
            b"-rf",
            b"~",
            b"C:\\x",
            b"con",
            b"nul",
            b"aux.txt",
            b"new\nline",
            b"\xFF\xFE",
            "Ünïcode/日本語/עברית/🦀".as_bytes(),
            &[b'x'; 255],
        ] {
            let parsed = Name::parse(name).unwrap_or_else(|error| panic!("{name:?}: {error}"));
            assert_eq!(parsed.as_bytes(), name);
            assert!(!parsed.leaf().contains(&b'/'));
        }
    }

    #[test]
    fn the_partial_name_is_short_reserved_and_tells_names_apart() {
        let partial = |name: &[u8]| Name::parse(name).unwrap().partial();
        assert_eq!(partial(b"a/b.iso"), partial(b"c/b.iso"), "it lies in the same folder");
        assert_ne!(partial(b"\xFF"), partial(b"\xFE"));
        assert!(partial(&[b'x'; 255]).len() <= PART_BYTES_MAX);
        assert_eq!(Name::parse(partial(b"a").as_bytes()), Err(NameError::Reserved));
        assert!(partial("日本/語".as_bytes()).starts_with(".___."));
        for name in [&b"a"[..], b"\xFF", b"a b.c", &[b'x'; 255]] {
            assert!(is_partial(partial(name).as_bytes()), "{}", shown(name));
        }
    }

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(shown(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown("a\u{202e}fdp.exe".as_bytes()), "a\\u{202e}fdp.exe");
        assert_eq!(
            shown("a\u{2028}lacuna: all is well".as_bytes()),
            "a\\u{2028}lacuna: all is well"
        );
        for as_it_is in ["日本", "עברית", "می\u{200c}خواهم", "👩\u{200d}🚀"] {
            assert_eq!(shown(as_it_is.as_bytes()), as_it_is);
        }
    }
}
