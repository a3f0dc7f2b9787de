//! Parts of regions as the memory of sends and receives: no buffer changes hands, and none is copied.

use super::Region;
use crate::error::SliceError;
use lacuna_place::region::{Slices, Stride};
use std::ops::Range;

impl Region {
    /// A part of the region, as memory for sends and receives; [`Region::list`] has an example.
    ///
    /// # Errors
    /// When the range is not in the region, or the region's memory is lent.
    pub fn slice(&self, range: Range<u64>) -> Result<Slices, SliceError> {
        self.strided(Stride::of_range(range))
    }

    /// Equal parts of the region at equal distances, as the columns of a matrix: one after the other they
    /// are the bytes of a message.
    ///
    /// # Errors
    /// As [`Region::slice`].
    pub fn strided(&self, parts: Stride) -> Result<Slices, SliceError> {
        Self::list([(self, parts)])
    }

    /// Parts of several regions, in this order (scatter/gather). Nothing is allocated per part when it is
    /// sent or received into.
    ///
    /// The list is this end's own access: it needs no key, and [`Region::revoke`] does not end it. It keeps
    /// the regions' memory.
    ///
    /// ```
    /// # use lacuna::{Context, ContextConfig, RegionOptions, Region, Stride};
    /// # fn example(context: &Context, connection: &lacuna::Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// // A matrix of 100 rows of 80 bytes; the first 8 bytes of each row, and then the last row.
    /// let matrix = context.register(vec![0; 8000], RegionOptions::default())?;
    /// let column = Stride { start: 0, bytes: 8, stride: 80, count: 100 };
    /// let message = Region::list([(&matrix, column), (&matrix, Stride::of_range(7920..8000))])?;
    /// connection.start_send(message.clone(), None)?.wait()?;
    /// // Or the other way:
    /// connection.post_recv(message)?.finish();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Region::slice`].
    pub fn list<'r>(
        parts: impl IntoIterator<Item = (&'r Self, Stride)>,
    ) -> Result<Slices, SliceError> {
        let mut is_lent = false;
        let parts = parts.into_iter().map(|(region, parts)| {
            is_lent |= region.is_lent;
            (region.region_arc(), parts)
        });
        let list = Slices::new(parts)?;
        if is_lent { Err(SliceError::Lent) } else { Ok(list) }
    }
}
