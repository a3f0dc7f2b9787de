//! Once codec and workspace are made, nothing is allocated: a sender folds data
//! in between two system calls, and a receiver repairs while packets arrive.

use lacuna_code::{ChunkSet, Chunked, ChunkedMut, Code, Codec, Engine, Workspace};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations of this thread; other tests run on theirs.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_after_set_up() {
    const CHUNK_BYTES: usize = 777;
    for code in ["mds:32:8", "xor:32:8", "mds:100:60"] {
        let code: Code = code.parse().unwrap();
        let (k, m) = (code.data_chunks(), code.parity_chunks());
        for engine in Engine::available() {
            let mut message = vec![3; k * CHUNK_BYTES - 100];
            let mut parity_bytes = vec![0; m * CHUNK_BYTES];
            let codec = Codec::with_engine(code, engine);
            let mut workspace = Workspace::new(&codec);
            let before = ALLOCATIONS.with(Cell::get);
            let data = Chunked::new(&message, CHUNK_BYTES).unwrap();
            let mut parity = ChunkedMut::new(&mut parity_bytes, CHUNK_BYTES).unwrap();
            codec.encode(&data, &mut parity).unwrap();
            // In twice is out again.
            for _ in 0..2 {
                codec.update(&mut parity, 5, 10, &message[10..500]).unwrap();
                codec.update_many(&mut parity, 0, &data).unwrap();
            }
            codec.verify(&data, &parity).unwrap();
            let mut data = ChunkedMut::new(&mut message, CHUNK_BYTES).unwrap();
            // More patterns than are kept, so that some are computed anew.
            for first in 0..k - 7 {
                let lost: ChunkSet = (first..first + m.min(7)).collect();
                codec.reconstruct(&mut workspace, &mut data, &mut parity, &lost).unwrap();
                codec.reconstruct_data(&mut workspace, &mut data, &parity, &lost).unwrap();
            }
            let allocations = ALLOCATIONS.with(Cell::get) - before;
            assert_eq!(allocations, 0, "{code} on {}", engine.kind());
        }
    }
}
