//! Lists of slices on the stack, to pass chunks to an engine without allocation.

/// Up to `N` slices to read.
pub(crate) struct SliceArray<'b, const N: usize> {
    slices: [&'b [u8]; N],
    len: usize,
}

/// Up to `N` slices to write.
pub(crate) struct SliceArrayMut<'b, const N: usize> {
    slices: [&'b mut [u8]; N],
    len: usize,
}

impl<'b, const N: usize> SliceArray<'b, N> {
    pub(crate) fn new() -> Self {
        Self { slices: [&[]; N], len: 0 }
    }

    /// # Panics
    /// If the list is full.
    #[inline]
    pub(crate) fn push(&mut self, slice: &'b [u8]) {
        self.slices[self.len] = slice;
        self.len += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(crate) fn slices(&self) -> &[&'b [u8]] {
        &self.slices[..self.len]
    }
}

impl<'b, const N: usize> SliceArrayMut<'b, N> {
    pub(crate) fn new() -> Self {
        Self { slices: std::array::from_fn(|_| Default::default()), len: 0 }
    }

    /// # Panics
    /// If the list is full.
    #[inline]
    pub(crate) fn push(&mut self, slice: &'b mut [u8]) {
        self.slices[self.len] = slice;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn slices(&mut self) -> &mut [&'b mut [u8]] {
        &mut self.slices[..self.len]
    }
}
