//! Pushing, and polling into a vector that has room, take nothing from the heap.
#![cfg(not(loom))]

use lacuna_completion::{Arm, Queue};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a
// thread-local without a destructor, which neither allocates nor can be gone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about the layout are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_completion_takes_nothing_from_the_heap() {
    const ENTRIES: u32 = 64;
    let queue = Queue::new(ENTRIES, ()).unwrap();
    let mut found = Vec::with_capacity(ENTRIES as usize);
    let before = ALLOCATIONS.get();
    for round in 0..1000 {
        let mut reservation = queue.reserve(ENTRIES).unwrap();
        for number in 0..ENTRIES {
            reservation.push([u64::from(number); 20], false);
        }
        queue.arm(Arm::Any);
        let mut count = 0;
        while count < ENTRIES as usize {
            found.clear();
            count += queue.poll(&mut found, 1 + round % 64);
        }
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
