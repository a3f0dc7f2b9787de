//! Several queue pairs of one end: their completions in turns.

use std::cell::Cell;
use std::time::Duration;

/// How long one of several queue pairs is waited for before the others are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Whose completions are looked at next.
#[derive(Debug, Default)]
pub(super) struct Turns(Cell<usize>);

impl Turns {
    /// The next completion of any, and whose it is; waits at most so long.
    pub(super) fn wait<Q, D>(
        &self,
        all: &[Q],
        poll: impl Fn(&Q) -> Option<D>,
        wait: impl Fn(&Q, Duration) -> Option<D>,
        limit: Duration,
    ) -> Option<(usize, D)> {
        let count = all.len();
        for _ in 0..count {
            let at = self.0.get();
            self.0.set((at + 1) % count);
            if let Some(done) = poll(&all[at]) {
                return Some((at, done));
            }
        }
        let at = self.0.get();
        let limit = if count > 1 { limit.min(LOOK_EVERY) } else { limit };
        wait(&all[at], limit).map(|done| (at, done))
    }
}
