//! A list of borrowed slices whose storage outlives the borrow.
//!
//! A burst borrows the payloads of its packets for `'p`, but the list of those borrows is reused from
//! burst to burst, each with a `'p` of its own. A `Vec<&'p [u8]>` cannot do that, so the list keeps
//! addresses and lengths, and returns the slices only with the lifetime that they were pushed with.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

/// The storage: addresses and lengths, meaningless on their own.
#[derive(Debug, Default)]
pub(super) struct SliceStorage {
    slices: Vec<(NonNull<u8>, usize)>,
}

// SAFETY: the storage alone never dereferences what it holds. Only a `SliceList` does, which
// carries the borrow `&'p [u8]`, and that is `Send` and `Sync`.
unsafe impl Send for SliceStorage {}
// SAFETY: as above; shared access to the storage reads addresses, not what they point to.
unsafe impl Sync for SliceStorage {}

impl SliceStorage {
    pub(super) fn with_capacity(slices: usize) -> Self {
        Self { slices: Vec::with_capacity(slices) }
    }

    /// An empty list in this storage for slices that live for `'p`.
    pub(super) fn start<'b, 'p>(&'b mut self) -> SliceList<'b, 'p> {
        self.slices.clear();
        SliceList { storage: self, lifetime: PhantomData }
    }
}

/// Slices borrowed for `'p`, in storage borrowed for `'b`.
#[derive(Debug)]
pub(super) struct SliceList<'b, 'p> {
    storage: &'b mut SliceStorage,
    // As in a `Vec<&'p [u8]>`: the pushed slices live at least for 'p.
    lifetime: PhantomData<&'p [u8]>,
}

impl<'p> SliceList<'_, 'p> {
    pub(super) fn push(&mut self, slice: &'p [u8]) {
        self.storage.slices.push((NonNull::from(slice).cast(), slice.len()));
    }

    pub(super) fn get(&self, index: usize) -> &'p [u8] {
        let (start, bytes) = self.storage.slices[index];
        // SAFETY: the entry was made by `push` of this very list from a `&'p [u8]`: `start` cleared
        // all earlier entries, and the storage has been borrowed mutably by this list since.
        unsafe { slice::from_raw_parts(start.as_ptr(), bytes) }
    }
}
