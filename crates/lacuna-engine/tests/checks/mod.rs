//! What must hold for any list of operations. The tests feed random lists, the corpus test replays
//! every list that was ever kept, and the fuzz targets make their own.

// Each user takes the checks that it needs.
#![allow(dead_code)]

pub(crate) mod endpoint;
pub(crate) mod one_sided;
pub(crate) mod oracle;

/// Two queue pairs. A list that begins with 0xFF is of a newer kind, which the next byte says: bounded
/// modes and deadlines of receives, or one-sided.
pub(crate) fn pair(bytes: &[u8]) {
    let bounded = ["bounded", "bounded:1", "bounded+ec:mds:4:2", "sr", "auto", "ec:mds:4:2"];
    match bytes {
        [0xFF, kind, rest @ ..] if kind & 1 == 0 => {
            one_sided::run(rest);
        }
        [0xFF, kind, rest @ ..] => {
            let mode = bounded[usize::from(kind >> 1) % bounded.len()];
            oracle::run_mode(rest, mode.parse().expect("a mode"));
        }
        _ => {
            oracle::run(bytes);
        }
    }
}

/// A list of operations as bytes: whoever runs out of them is done.
pub(crate) struct Choices<'b> {
    bytes: &'b [u8],
}

impl<'b> Choices<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    /// The next operation, until the list ends.
    pub(crate) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// A small parameter; 0 behind the end.
    pub(crate) fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// A number below `bound`, which is at most 65,536.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let number = usize::from(self.byte()) << 8 | usize::from(self.byte());
        number % bound.max(1)
    }

    /// Some raw bytes, fewer near the end.
    pub(crate) fn slice(&mut self, len: usize) -> &'b [u8] {
        let (slice, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        slice
    }
}
