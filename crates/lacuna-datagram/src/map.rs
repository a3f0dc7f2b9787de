//! Which bytes of a message are here.

use lacuna_path::ranges::Ranges;
use std::ops::Range;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Map {
    /// All.
    Whole,
    /// These.
    Parts(Ranges),
}

impl Map {
    /// The bytes that are here, as the fewest ranges, in order, of a message of so many.
    pub fn ranges(&self, length: u32) -> impl Iterator<Item = Range<u64>> {
        let (whole, parts) = match self {
            Self::Whole => ((length > 0).then_some(0..u64::from(length)), None),
            Self::Parts(parts) => (None, Some(parts.iter().cloned())),
        };
        whole.into_iter().chain(parts.into_iter().flatten())
    }

    /// How many are here, of so many.
    #[must_use]
    pub fn bytes(&self, length: u32) -> u64 {
        self.ranges(length).map(|range| range.end - range.start).sum()
    }
}
