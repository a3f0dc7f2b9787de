//! One entry of the root key: a value that workers pin while they use it, and that no worker can reach
//! once it is retired.
//!
//! This is the two-stage protection against late packets of SDR-RDMA 3.3.2, in software. A posted slot
//! is *live* in one generation. To place a packet, a worker pins the slot with the packet's generation;
//! a slot that is not live (the NULL key) or is live in another generation refuses the pin. Retiring
//! clears the live bit and advances the generation, so that no new pin succeeds, and then waits for the
//! pins that are still held. After that the caller alone owns the value: *nothing writes to the buffer
//! after `retire` returns*.
//!
//! All state is in one word, so that checking liveness and generation and taking a pin are one atomic
//! step:
//!
//! ```text
//!  63    62    47..32       31..0
//!  live  busy  generation   pins
//! ```
//!
//! Invariants:
//! - the cell is written only by the thread that holds `busy`;
//! - the cell is read only under a pin whose `fetch_add` saw `live` and the
//!   right generation;
//! - a pin loads the word before it adds to it, so a flood of late packets, which are refused, cannot
//!   keep `retire` waiting.

#![allow(unsafe_code)]

use crate::sync::{AtomicU64, Ordering, UnsafeCell, Yield, back_off};
use std::fmt;
use std::ops::Deref;

const LIVE: u64 = 1 << 63;
const BUSY: u64 = 1 << 62;
const GENERATION_SHIFT: u32 = 32;
const GENERATION_MASK: u64 = 0xFFFF << GENERATION_SHIFT;
const PINS_MASK: u64 = 0xFFFF_FFFF;

/// A slot of the root key; see the module's text.
pub struct Slot<T> {
    word: AtomicU64,
    cell: UnsafeCell<Option<T>>,
}

// SAFETY: the value is handed between threads through the word: written under
// `busy` before a release of `live`, read after an acquire of `live` under a
// pin, taken after an acquire that saw no pins. Shared reads need `T: Sync`,
// moving it out on another thread needs `T: Send`.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

/// Why a slot could not be pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Nothing is posted: the NULL key.
    Null,
    /// The slot is posted in another generation than the packet's.
    Generation,
}

/// The slot is posted already, or is just being retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupied;

impl<T> Slot<T> {
    /// An empty slot: every packet is refused.
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0), cell: UnsafeCell::new(None) }
    }

    /// Makes the slot live in `generation`, holding `value`.
    pub fn post(&self, generation: u8, value: T) -> Result<(), Occupied> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & (LIVE | BUSY) != 0 {
                return Err(Occupied);
            }
            // The pin count may change meanwhile: a worker that loaded the word before the last
            // `retire` adds a pin and removes it again. Such pins access nothing.
            match self.word.compare_exchange_weak(
                word,
                word | BUSY,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        self.cell.with_mut(|cell| {
            // SAFETY: `busy` was clear and is now ours, `live` is clear: no pin
            // is granted until the release below, no other writer can enter.
            unsafe { *cell = Some(value) };
        });
        let old_generation = word & GENERATION_MASK;
        let new_generation = u64::from(generation) << GENERATION_SHIFT;
        self.word.fetch_xor(LIVE | BUSY | (old_generation ^ new_generation), Ordering::Release);
        Ok(())
    }

    /// Pins the slot if it is live in `generation`. Two atomic operations when
    /// granted, one load when refused.
    #[inline]
    pub fn pin(&self, generation: u8) -> Result<Pinned<'_, T>, Refused> {
        let wanted = LIVE | (u64::from(generation) << GENERATION_SHIFT);
        let check = |word: u64| {
            if word & LIVE == 0 {
                Err(Refused::Null)
            } else if word & (LIVE | GENERATION_MASK) != wanted {
                Err(Refused::Generation)
            } else {
                Ok(())
            }
        };
        check(self.word.load(Ordering::Relaxed))?;
        let word = self.word.fetch_add(1, Ordering::Acquire);
        debug_assert_ne!(word & PINS_MASK, PINS_MASK, "pin count overflows");
        if let Err(refused) = check(word) {
            self.word.fetch_sub(1, Ordering::Release);
            return Err(refused);
        }
        Ok(Pinned { slot: self })
    }

    /// Takes the value of `generation` out: from now on the slot is the NULL key in the next
    /// generation, and no pin is left when this returns. `None` when nothing is posted in that
    /// generation.
    ///
    /// Waits for all pins, which are held for one burst at most, and for another thread that is
    /// retiring the slot. Meanwhile it calls `yield_now`.
    pub fn retire(&self, generation: u8, generations: u8, yield_now: Yield) -> Option<T> {
        let wanted = LIVE | (u64::from(generation) << GENERATION_SHIFT);
        let mut word = self.word.load(Ordering::Acquire);
        let mut round = 0;
        loop {
            if word & BUSY != 0 {
                back_off(round, yield_now);
                round = round.saturating_add(1);
                word = self.word.load(Ordering::Acquire);
                continue;
            }
            if word & (LIVE | GENERATION_MASK) != wanted {
                return None;
            }
            let next = (u64::from(generation) + 1) % u64::from(generations.max(1));
            let retired = (word & PINS_MASK) | BUSY | (next << GENERATION_SHIFT);
            match self.word.compare_exchange_weak(
                word,
                retired,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        let mut round = 0;
        while self.word.load(Ordering::Acquire) & PINS_MASK != 0 {
            back_off(round, yield_now);
            round = round.saturating_add(1);
        }
        let value = self.cell.with_mut(|cell| {
            // SAFETY: `live` is clear, so no pin is granted; the load above saw
            // no pins and acquired what their holders released; `busy` is ours.
            unsafe { (*cell).take() }
        });
        self.word.fetch_and(!BUSY, Ordering::Release);
        value
    }

    /// Whether nothing is posted and nothing is being retired.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Acquire) & (LIVE | BUSY) == 0
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Ordering::Relaxed);
        f.debug_struct("Slot")
            .field("live", &(word & LIVE != 0))
            .field("generation", &((word & GENERATION_MASK) >> GENERATION_SHIFT))
            .field("pins", &(word & PINS_MASK))
            .finish()
    }
}

/// Access to the value of a live slot; `retire` waits for it to be dropped.
#[derive(Debug)]
pub struct Pinned<'s, T> {
    slot: &'s Slot<T>,
}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.slot.cell.with(|cell| {
            // SAFETY: the pin was granted by a `fetch_add` that saw `live`, so
            // the value was written before and stays until the pin is dropped:
            // `retire` takes it only at zero pins. Readers share it.
            unsafe { (*cell).as_ref().expect("a live slot holds a value") }
        })
    }
}

impl<T> Drop for Pinned<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.word.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::hint::spin_loop;

    #[test]
    fn an_empty_slot_is_the_null_key() {
        let slot: Slot<u8> = Slot::new();
        assert_eq!(slot.pin(0).unwrap_err(), Refused::Null);
        assert_eq!(slot.retire(0, 4, spin_loop), None);
    }

    #[test]
    fn only_the_posted_generation_is_pinned() {
        let slot = Slot::new();
        slot.post(2, 7).unwrap();
        assert_eq!(slot.pin(1).unwrap_err(), Refused::Generation);
        assert_eq!(*slot.pin(2).unwrap(), 7);
        assert_eq!(slot.post(3, 8), Err(Occupied));
        assert_eq!(slot.retire(1, 4, spin_loop), None);
        assert_eq!(slot.retire(2, 4, spin_loop), Some(7));
        assert_eq!(slot.pin(2).unwrap_err(), Refused::Null);
        slot.post(3, 9).unwrap();
        assert_eq!(slot.pin(2).unwrap_err(), Refused::Generation);
        assert_eq!(*slot.pin(3).unwrap(), 9);
    }

    #[test]
    fn a_slot_costs_two_words_beside_its_value() {
        assert_eq!(std::mem::size_of::<Slot<std::sync::Arc<u8>>>(), 16);
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p lacuna-place --release slot::loom`
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use core::hint::spin_loop;
    use loom::sync::Arc;
    use loom::thread;

    /// A buffer as loom sees one: any unsynchronised access is an error.
    struct Buffer(loom::cell::UnsafeCell<u32>);

    // SAFETY: the tests are about whether the slot orders the accesses; loom
    // checks each of them.
    unsafe impl Sync for Buffer {}
    // SAFETY: as above.
    unsafe impl Send for Buffer {}

    fn place(slot: &Slot<Arc<Buffer>>, generation: u8) -> bool {
        let Ok(pinned) = slot.pin(generation) else { return false };
        // SAFETY: loom reports if this races.
        pinned.0.with_mut(|bytes| unsafe { *bytes += 1 });
        true
    }

    #[test]
    fn nothing_is_written_after_retire() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let buffer = Arc::new(Buffer(loom::cell::UnsafeCell::new(0)));
            slot.post(0, buffer.clone()).unwrap();
            let worker = {
                let slot = slot.clone();
                thread::spawn(move || u32::from(place(&slot, 0)) + u32::from(place(&slot, 0)))
            };
            let back = slot.retire(0, 4, spin_loop).expect("posted above");
            // The application owns the buffer again: loom fails here if a
            // worker's write is concurrent with this access.
            // SAFETY: checked by loom.
            let seen = back.0.with_mut(|bytes| unsafe {
                *bytes += 100;
                *bytes
            });
            let placed = worker.join().unwrap();
            assert_eq!(seen, 100 + placed.min(seen - 100));
            // SAFETY: the worker has ended.
            assert_eq!(buffer.0.with(|bytes| unsafe { *bytes }), seen);
        });
    }

    #[test]
    fn an_old_packet_never_reaches_the_next_buffer_of_the_slot() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let first = Arc::new(Buffer(loom::cell::UnsafeCell::new(0)));
            let second = Arc::new(Buffer(loom::cell::UnsafeCell::new(0)));
            slot.post(0, first).unwrap();
            let worker = {
                let slot = slot.clone();
                thread::spawn(move || {
                    place(&slot, 0);
                })
            };
            slot.retire(0, 4, spin_loop);
            slot.post(1, second.clone()).unwrap();
            worker.join().unwrap();
            slot.retire(1, 4, spin_loop);
            // SAFETY: checked by loom.
            assert_eq!(second.0.with(|bytes| unsafe { *bytes }), 0);
        });
    }

    #[test]
    fn two_retires_take_the_value_once() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            slot.post(0, 5u32).unwrap();
            let other = {
                let slot = slot.clone();
                thread::spawn(move || slot.retire(0, 4, spin_loop))
            };
            let here = slot.retire(0, 4, spin_loop);
            let there = other.join().unwrap();
            assert_eq!(here.is_some() as u8 + there.is_some() as u8, 1);
        });
    }

    #[test]
    fn a_pin_sees_what_was_posted() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let worker = {
                let slot = slot.clone();
                thread::spawn(move || slot.pin(1).map(|pinned| *pinned).ok())
            };
            slot.post(1, 41u32).unwrap();
            if let Some(seen) = worker.join().unwrap() {
                assert_eq!(seen, 41);
            }
        });
    }

    #[test]
    fn a_slot_that_another_thread_retired_is_posted_again() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            slot.post(0, 5u32).unwrap();
            // Orders nothing: it only makes loom look at a post after the retiring.
            let is_retired = Arc::new(AtomicU64::new(0));
            let other = {
                let (slot, is_retired) = (slot.clone(), is_retired.clone());
                thread::spawn(move || {
                    assert_eq!(slot.retire(0, 4, spin_loop), Some(5));
                    is_retired.store(1, Ordering::Relaxed);
                })
            };
            // Loom fails here if taking the old value is not ordered before
            // putting in the new one.
            if is_retired.load(Ordering::Relaxed) == 1 {
                // It may still look occupied from here: the flag orders nothing.
                let _ = slot.post(1, 6);
            }
            other.join().unwrap();
        });
    }
}
