//! How much the heap grows by what a thread does, to the byte: an allocator that counts where it is asked to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator. Where nobody counts it costs a look at a thread-local.
struct Counting;

thread_local! {
    /// What this thread allocated less what it gave back, while that is counted.
    static BYTES: Cell<Option<i64>> = const { Cell::new(None) };
}

fn count(bytes: i64) {
    if let Some(counted) = BYTES.get() {
        BYTES.set(Some(counted + bytes));
    }
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a
// thread-local without a destructor, which neither allocates nor can be gone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promises about the layout are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promises about the layout are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the pointer came from this allocator, with this layout; the rest is the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the pointer came from this allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs something on this thread, and how many bytes the heap has more after it.
pub(crate) fn growth_bytes<R>(run: impl FnOnce() -> R) -> (R, i64) {
    BYTES.set(Some(0));
    let result = run();
    (result, BYTES.take().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::growth_bytes;

    #[test]
    fn what_is_kept_is_counted_and_what_is_given_back_is_not() {
        let (kept, bytes) = growth_bytes(|| {
            drop(vec![1u8; 1 << 20]);
            let mut kept = Vec::with_capacity(10);
            kept.resize(3000, 0u8);
            kept.shrink_to_fit();
            kept
        });
        assert_eq!((kept.len(), bytes), (3000, 3000));
        assert_eq!(growth_bytes(|| drop(kept)).1, -3000);
    }
}
