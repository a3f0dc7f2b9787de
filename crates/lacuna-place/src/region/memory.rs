//! The memory of a region. Several workers write it at once, also the same bytes, while the application
//! reads: all bytes go in and out by relaxed atomic accesses, so that none of this is a data race.
//!
//! Rust's memory model knows no racing accesses of different sizes, so each byte is accessed in one size
//! for ever: aligned words of eight bytes as `AtomicU64`, and the bytes before the first and after the
//! last whole word of the memory as `AtomicU8`. A write that begins or ends within a word replaces its
//! part of the word by compare and exchange, so neighbours that write the other part lose nothing.
//!
//! Stores of words reach about 0.8 of the speed of `memcpy` into memory that is not in the cache, since
//! compilers do not join atomic accesses to vectors. Measured: M-region-1. An `asm!` block could, but
//! sanitizers and loom would not see its accesses.
//!
//! Order: the accesses order nothing. Who must see the bytes acquires something that was released after
//! the write: a packet bit, a chunk bit, a granule of the validity map, the end of a `revoke`. If two
//! writers write the same bytes at the same time, each word holds what one of them wrote.

#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();

/// Memory that several threads write and read at once; see the module's text.
///
/// Methods with a range check it against the memory's length.
pub struct Memory {
    start: NonNull<u8>,
    len: usize,
    /// Bytes before the first whole word.
    head: usize,
    /// Whole words.
    words: usize,
    owner: Owner,
    #[cfg(loom)]
    watched: watched::Watched,
}

/// Keeps the memory alive.
enum Owner {
    /// The raw parts of a vector: start, length, capacity.
    Vector(*mut u8, usize, usize),
    /// Its last reference frees the memory.
    Shared(#[allow(dead_code, reason = "held to be dropped")] Arc<dyn Any + Send + Sync>),
    /// Memory of the caller.
    Foreign,
}

// SAFETY: the memory is plain bytes without thread affinity, and the owner may be dropped on any
// thread: a vector, or an `Arc` of what is `Send + Sync`.
unsafe impl Send for Memory {}
// SAFETY: as above; `&Memory` accesses the bytes by atomic operations only.
unsafe impl Sync for Memory {}

/// A range reaches past the end of the memory. The caller's fault; never retryable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes at offset {offset} of memory of {len} bytes")]
pub struct OutOfBounds {
    /// Offset of the first byte.
    pub offset: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Bytes of the memory.
    pub len: u64,
}

impl Memory {
    /// Takes a vector's memory; [`Memory::into_vec`] returns it.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        let owner = Owner::Vector(start, len, bytes.capacity());
        // SAFETY: the vector's bytes are ours until `drop` or `into_vec` puts it together again.
        unsafe { Self::new(start, len, owner) }
    }

    /// Memory that `owner` keeps alive: a mapping, memory of another library, memory of several regions.
    ///
    /// # Safety
    /// `start..start + len` is initialised and valid for reads and writes as long as a clone of `owner`
    /// exists, and until then it is accessed only through this `Memory`, by atomic accesses of the same
    /// sizes, or by accesses that are ordered before and after all accesses of it (by what the module's
    /// text names).
    pub unsafe fn from_shared(
        start: *mut u8,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        // SAFETY: by contract.
        unsafe { Self::new(start, len, Owner::Shared(owner)) }
    }

    /// Memory that the caller keeps alive.
    ///
    /// # Safety
    /// As for [`Memory::from_shared`], until this `Memory` is dropped.
    pub unsafe fn from_raw(start: *mut u8, len: usize) -> Self {
        // SAFETY: by contract.
        unsafe { Self::new(start, len, Owner::Foreign) }
    }

    /// # Safety
    /// As for [`Memory::from_shared`], as long as `owner` exists.
    unsafe fn new(start: *mut u8, len: usize, owner: Owner) -> Self {
        // C callers may pass a null pointer with a length of 0.
        let start = NonNull::new(start).unwrap_or(NonNull::dangling());
        let head = start.as_ptr().align_offset(align_of::<AtomicU64>()).min(len);
        Self {
            start,
            len,
            head,
            words: (len - head) / WORD_BYTES,
            owner,
            #[cfg(loom)]
            watched: watched::Watched::new(len),
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// If they do not fit; then nothing is written.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.check(offset, bytes.len() as u64)?;
        let [head, words, tail] = self.split(at..at + bytes.len());
        let (to_head, rest) = bytes.split_at(head.len());
        let (to_words, to_tail) = rest.split_at(words.len());
        self.store_bytes(head, to_head);
        self.store_words(words, to_words);
        self.store_bytes(tail, to_tail);
        Ok(())
    }

    /// Copies from `offset` to all of `out`.
    ///
    /// # Errors
    /// If the memory is too short; then `out` is unchanged.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.check(offset, out.len() as u64)?;
        let [head, words, tail] = self.split(at..at + out.len());
        let (of_head, rest) = out.split_at_mut(head.len());
        let (of_words, of_tail) = rest.split_at_mut(words.len());
        self.load_bytes(head, of_head);
        self.load_words(words, of_words);
        self.load_bytes(tail, of_tail);
        Ok(())
    }

    /// Zeroes a range.
    ///
    /// # Errors
    /// If it is out of bounds or ends before it begins; then nothing is written.
    pub fn zero(&self, range: Range<u64>) -> Result<(), OutOfBounds> {
        const ZEROS: [u8; 4096] = [0; 4096];
        // A reversed range has no length that fits.
        let bytes = range.end.checked_sub(range.start).unwrap_or(u64::MAX);
        self.check(range.start, bytes)?;
        let mut at = range.start;
        while at < range.end {
            let step = (range.end - at).min(ZEROS.len() as u64);
            self.write(at, &ZEROS[..step as usize])?;
            at += step;
        }
        Ok(())
    }

    /// Returns the vector; or the memory if it is not that of a vector.
    ///
    /// # Errors
    /// The memory, unchanged.
    pub fn into_vec(self) -> Result<Vec<u8>, Self> {
        let Owner::Vector(start, len, capacity) = self.owner else { return Err(self) };
        #[cfg(loom)]
        self.watched.own(self.words());
        std::mem::forget(self);
        // SAFETY: the parts of a vector taken apart in `from_vec`; `self` was the only handle, and
        // `drop` does not run.
        Ok(unsafe { Vec::from_raw_parts(start, len, capacity) })
    }

    /// Tells loom that nobody else accesses the memory any more, in tests.
    #[cfg(all(test, loom))]
    pub(crate) fn own(&self) {
        self.watched.own(self.words());
    }

    #[inline]
    fn check(&self, offset: u64, bytes: u64) -> Result<usize, OutOfBounds> {
        let len = self.len as u64;
        match len.checked_sub(offset) {
            Some(left) if bytes <= left => Ok(offset as usize),
            _ => Err(OutOfBounds { offset, bytes, len }),
        }
    }

    /// The parts of a range before, in and after the whole words.
    #[inline]
    fn split(&self, range: Range<usize>) -> [Range<usize>; 3] {
        let words_end = self.head + self.words * WORD_BYTES;
        let a = self.head.clamp(range.start, range.end);
        let b = words_end.clamp(range.start, range.end);
        [range.start..a, a..b, b..range.end]
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: in bounds and aligned by `new`; initialised and valid as long as the owner lives; all
        // accesses to these bytes have this size, and are atomic or ordered (contract of `from_shared`).
        unsafe {
            let start = self.start.as_ptr().add(self.head).cast::<AtomicU64>();
            std::slice::from_raw_parts(start, self.words)
        }
    }

    /// Bytes before or after the whole words.
    fn bytes(&self, range: Range<usize>) -> &[AtomicU8] {
        debug_assert!(range.end <= self.head || range.start >= self.head + self.words * WORD_BYTES);
        // SAFETY: in bounds, as the caller has checked; the rest as for `words`.
        unsafe {
            let start = self.start.as_ptr().add(range.start).cast::<AtomicU8>();
            std::slice::from_raw_parts(start, range.len())
        }
    }

    fn store_bytes(&self, range: Range<usize>, from: &[u8]) {
        if range.is_empty() {
            return;
        }
        for (to, from) in self.bytes(range).iter().zip(from) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    fn load_bytes(&self, range: Range<usize>, to: &mut [u8]) {
        if range.is_empty() {
            return;
        }
        for (from, to) in self.bytes(range).iter().zip(to) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    #[inline]
    fn store_words(&self, range: Range<usize>, from: &[u8]) {
        let Some((index, skip)) = self.word_of(&range) else { return };
        let words = &self.words()[index..];
        let (first, rest) = from.split_at(first_bytes(skip, from.len()));
        let (whole, last) = rest.as_chunks::<WORD_BYTES>();
        let words = match first.is_empty() {
            true => words,
            false => {
                replace(&words[0], skip, first);
                &words[1..]
            }
        };
        let (whole_words, after) = words.split_at(whole.len());
        for (to, from) in whole_words.iter().zip(whole) {
            to.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        if !last.is_empty() {
            replace(&after[0], 0, last);
        }
        #[cfg(loom)]
        self.watched.store(range, self.words());
    }

    #[inline]
    fn load_words(&self, range: Range<usize>, to: &mut [u8]) {
        let Some((index, skip)) = self.word_of(&range) else { return };
        #[cfg(loom)]
        self.watched.load(range, self.words());
        let words = &self.words()[index..];
        let (first, rest) = to.split_at_mut(first_bytes(skip, to.len()));
        let (whole, last) = rest.as_chunks_mut::<WORD_BYTES>();
        let words = match first.is_empty() {
            true => words,
            false => {
                let word = words[0].load(Ordering::Relaxed).to_ne_bytes();
                first.copy_from_slice(&word[skip..skip + first.len()]);
                &words[1..]
            }
        };
        let (whole_words, after) = words.split_at(whole.len());
        for (from, to) in whole_words.iter().zip(whole) {
            *to = from.load(Ordering::Relaxed).to_ne_bytes();
        }
        if !last.is_empty() {
            let word = after[0].load(Ordering::Relaxed).to_ne_bytes();
            last.copy_from_slice(&word[..last.len()]);
        }
    }

    /// The first word of a range among the whole words, and the bytes of the word before the range.
    #[inline]
    fn word_of(&self, range: &Range<usize>) -> Option<(usize, usize)> {
        let at = range.start.wrapping_sub(self.head);
        (!range.is_empty()).then_some((at / WORD_BYTES, at % WORD_BYTES))
    }
}

/// Bytes of a range of `len` bytes in its first word, if it begins `skip > 0` bytes into it.
#[inline]
fn first_bytes(skip: usize, len: usize) -> usize {
    match skip {
        0 => 0,
        skip => len.min(WORD_BYTES - skip),
    }
}

/// Replaces bytes of a word; its other bytes may be written by others meanwhile.
#[inline]
fn replace(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let mut before = word.load(Ordering::Relaxed);
    loop {
        let mut after = before.to_ne_bytes();
        after[skip..skip + bytes.len()].copy_from_slice(bytes);
        let after = u64::from_ne_bytes(after);
        match word.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => before = now,
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Vector(start, len, capacity) = self.owner {
            #[cfg(loom)]
            self.watched.own(self.words());
            // SAFETY: as in `into_vec`, and `drop` runs once.
            drop(unsafe { Vec::from_raw_parts(start, len, capacity) });
        }
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from_vec(bytes)
    }
}

impl From<Box<[u8]>> for Memory {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::from_vec(bytes.into_vec())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self.owner {
            Owner::Vector(..) => "vector",
            Owner::Shared(_) => "shared",
            Owner::Foreign => "foreign",
        };
        f.debug_struct("Memory").field("len", &self.len).field("owner", &owner).finish()
    }
}

/// Shows loom the accesses: to the first word of every 64 bytes as to an atomic of its own, so that loom
/// explores stale values; to all others as shared accesses of a cell, which must not meet the taking back
/// of the memory. The tests' memory begins with a whole word.
#[cfg(loom)]
mod watched {
    use super::WORD_BYTES;
    use crate::sync::Shadow;
    use loom::sync::atomic::{AtomicU64, Ordering};
    use std::ops::Range;

    const UNIT_WORDS: usize = 64 / WORD_BYTES;

    pub(super) struct Watched {
        shadow: Shadow,
        first: Box<[AtomicU64]>,
        len: usize,
    }

    type Words<'m> = &'m [super::AtomicU64];

    impl Watched {
        pub(super) fn new(len: usize) -> Self {
            let units = len.div_ceil(64);
            let first = (0..units).map(|_| AtomicU64::new(0)).collect();
            Self { shadow: Shadow::new(len), first, len }
        }

        /// The first words of the units that a range touches.
        fn firsts(range: Range<usize>) -> impl Iterator<Item = usize> {
            let words = range.start / WORD_BYTES..range.end.div_ceil(WORD_BYTES);
            words.filter(|word| word.is_multiple_of(UNIT_WORDS))
        }

        pub(super) fn store(&self, range: Range<usize>, words: Words<'_>) {
            self.shadow.read(range.start, range.len());
            for word in Self::firsts(range) {
                let value = words[word].load(super::Ordering::Relaxed);
                self.first[word / UNIT_WORDS].store(value, Ordering::Relaxed);
            }
        }

        pub(super) fn load(&self, range: Range<usize>, words: Words<'_>) {
            self.shadow.read(range.start, range.len());
            for word in Self::firsts(range) {
                let seen = self.first[word / UNIT_WORDS].load(Ordering::Relaxed);
                words[word].store(seen, super::Ordering::Relaxed);
            }
        }

        /// All accesses so far must be ordered before this.
        pub(super) fn own(&self, words: Words<'_>) {
            self.shadow.write(0, self.len);
            for word in (0..words.len()).step_by(UNIT_WORDS) {
                let latest = self.first[word / UNIT_WORDS].load(Ordering::Relaxed);
                words[word].store(latest, super::Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use lacuna_link::SplitMix64;

    /// A vector and a part of it that begins and ends anywhere.
    fn part(skip: usize, len: usize) -> (Arc<Vec<AtomicU64>>, Memory) {
        let words: Vec<AtomicU64> =
            (0..(skip + len).div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        let words = Arc::new(words);
        let start = words.as_ptr().cast_mut().cast::<u8>();
        // SAFETY: the atomics may be written through a shared reference, the `Arc` keeps them, and the
        // tests access them only through the memory.
        let memory = unsafe { Memory::from_shared(start.add(skip), len, words.clone()) };
        (words, memory)
    }

    fn all(memory: &Memory) -> Vec<u8> {
        let mut bytes = vec![0; memory.len() as usize];
        memory.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn any_range_at_any_alignment_is_written_zeroed_and_read() {
        for (skip, len) in (0..9).flat_map(|skip| (0..34).map(move |len| (skip, len))) {
            let (_words, memory) = part(skip, len);
            let mut oracle = vec![0; len];
            for start in 0..=len {
                for end in start..=len {
                    let bytes: Vec<u8> = (start..end).map(|at| (at + end * 7) as u8 | 1).collect();
                    memory.write(start as u64, &bytes).unwrap();
                    oracle[start..end].copy_from_slice(&bytes);
                    assert_eq!(all(&memory), oracle);
                    let mut out = vec![0xEE; end - start];
                    memory.read(start as u64, &mut out).unwrap();
                    assert_eq!(out, bytes);
                }
            }
            let (a, b) = (len / 3, len - len / 5);
            memory.zero(a as u64..b as u64).unwrap();
            oracle[a..b].fill(0);
            assert_eq!(all(&memory), oracle);
        }
    }

    #[test]
    fn long_ranges_are_zeroed() {
        let memory = Memory::from_vec(vec![7; 10_000]);
        memory.zero(1..9_999).unwrap();
        let bytes = all(&memory);
        assert_eq!((bytes[0], bytes[9_999]), (7, 7));
        assert!(bytes[1..9_999].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_does_not_fit_names_its_numbers_and_changes_nothing() {
        let memory = Memory::from_vec(vec![3; 100]);
        let refused = |offset, bytes| Err(OutOfBounds { offset, bytes, len: 100 });
        assert_eq!(memory.write(99, &[1, 2]), refused(99, 2));
        assert_eq!(memory.write(101, &[]), refused(101, 0));
        assert_eq!(memory.write(u64::MAX, &[1]), refused(u64::MAX, 1));
        let mut out = [9; 4];
        assert_eq!(memory.read(97, &mut out), refused(97, 4));
        assert_eq!(out, [9; 4]);
        assert_eq!(memory.zero(0..101), refused(0, 101));
        let backwards = Range { start: 9, end: 8 };
        assert_eq!(memory.zero(backwards), refused(9, u64::MAX));
        assert_eq!(memory.write(100, &[]), Ok(()));
        assert!(all(&memory).iter().all(|byte| *byte == 3));
        assert!(Memory::from_vec(Vec::new()).write(0, &[]).is_ok());
        // SAFETY: there are no bytes.
        assert!(unsafe { Memory::from_raw(std::ptr::null_mut(), 0) }.is_empty());
    }

    #[test]
    fn a_vector_comes_back_with_its_bytes_and_shared_memory_is_dropped() {
        let memory = Memory::from(vec![0; 20].into_boxed_slice());
        memory.write(3, &[1; 9]).unwrap();
        let bytes = memory.into_vec().unwrap();
        assert_eq!(bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 9);
        let (words, memory) = part(0, 16);
        assert_eq!(Arc::strong_count(&words), 2);
        drop(memory.into_vec().unwrap_err());
        assert_eq!(Arc::strong_count(&words), 1);
    }

    #[test]
    fn writers_of_neighbouring_bytes_lose_nothing_and_each_word_is_of_one_writer() {
        const LEN: usize = 1 << 12;
        const WRITERS: u8 = 4;
        let (_words, memory) = part(3, LEN);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let memory = &memory;
                scope.spawn(move || {
                    let mut rng = SplitMix64::new(u64::from(writer));
                    for round in 0..300u32 {
                        // The second half of the memory is shared, the first dealt byte by byte.
                        for at in (usize::from(writer)..LEN / 2).step_by(usize::from(WRITERS)) {
                            memory.write(at as u64, &[round as u8 ^ writer]).unwrap();
                        }
                        let start = LEN / 2 + rng.below(LEN as u64 / 4) as usize / 64 * 64;
                        memory.write(start as u64 + 5, &[writer + 1; 512]).unwrap();
                    }
                });
            }
        });
        let bytes = all(&memory);
        for (at, byte) in bytes[..LEN / 2].iter().enumerate() {
            assert_eq!(*byte, 299u32 as u8 ^ (at % usize::from(WRITERS)) as u8);
        }
        // The first whole word is at 5, as are the shared writes.
        for word in bytes[LEN / 2 + 5..].chunks_exact(8) {
            assert!(word[0] <= WRITERS && word.iter().all(|byte| *byte == word[0]), "{word:?}");
        }
    }
}
