//! Where a receive puts its message: a buffer that it owns meanwhile, parts of regions, or a buffer of a
//! pool.

use crate::completed::{Missing, RecvOptions};
use crate::pool::Pool;
use lacuna_place::placement::Placement;
use lacuna_place::region::Slices;

/// The memory of a receive:
///
/// - `Vec<u8>`: comes back in [`Completed::buffer`](crate::Completed::buffer).
/// - [`Slices`]: parts of regions, which stay there. Others may write them meanwhile, so their chunks cannot
///   be borrowed from the receive ([`RecvHandle::chunk`](crate::RecvHandle::chunk)); read them from the
///   region. Gaps hold what was there before, unless [`RecvOptions::missing`] says otherwise.
/// - [`&Pool`](Pool): the first packet takes a buffer, which comes back in `Completed::buffer` if the receive
///   is completed, and goes back to the pool if it is dropped. A receive of which nothing came has none.
#[derive(Debug)]
pub struct RecvPlace {
    pub(crate) placement: Placement,
    is_shared: bool,
}

impl RecvPlace {
    /// The options, with what is usual for the memory.
    pub(crate) fn usual(&self, options: RecvOptions) -> RecvOptions {
        let keep = self.is_shared.then_some(Missing::Keep);
        RecvOptions { missing: options.missing.or(keep), ..options }
    }
}

impl From<Placement> for RecvPlace {
    fn from(placement: Placement) -> Self {
        Self { placement, is_shared: false }
    }
}

impl From<Vec<u8>> for RecvPlace {
    #[inline]
    fn from(buffer: Vec<u8>) -> Self {
        Placement::from_vec(buffer).into()
    }
}

impl From<Slices> for RecvPlace {
    fn from(slices: Slices) -> Self {
        Self { placement: Placement::slices(slices), is_shared: true }
    }
}

impl From<&Pool> for RecvPlace {
    fn from(pool: &Pool) -> Self {
        Placement::pooled(pool.buffers().clone()).into()
    }
}
