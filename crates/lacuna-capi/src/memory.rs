//! The program's memory: registered regions, and the parts that the transport may read.
//!
//! A send is complete for the program when the transport has dropped its last reference to the
//! bytes, not earlier: a run that the protocol has released may still wait for a full socket.
//! [`Lending`] counts the references.
//!
//! Invariants:
//! - Bytes are read only while a [`Lent`] of them lives.
//! - A [`Lending`] is over only when no [`Lent`] of it lives, and the last read happens before
//!   [`Lending::is_over`] returns true.

use crate::outcome::Failure;
use lacuna::{Gather, Memory, SendBuffer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bits of a key that index the table; the bits above tell apart the regions that used an entry one
/// after the other.
const INDEX_BITS: u32 = 20;

/// Memory that the program has registered.
#[derive(Debug)]
pub(crate) struct Region {
    start: u64,
    length: u64,
    key: u32,
}

impl Region {
    /// Its key, used as local and as remote key.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }
}

/// The registered regions of a context.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    table: Mutex<Vec<(u32, Option<Arc<Region>>)>>,
}

impl Regions {
    /// Registers `length` bytes at `start`.
    pub(crate) fn add(&self, start: u64, length: u64) -> Result<Arc<Region>, Failure> {
        if start == 0 || length == 0 || start.checked_add(length).is_none() {
            return Err(Failure::usage(format!(
                "a region of {length} bytes at {start:#x}: must be some memory"
            )));
        }
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match table.iter().position(|(_, region)| region.is_none()) {
            Some(place) => place,
            None if table.len() >= 1 << INDEX_BITS => {
                return Err(Failure::usage("all 1048576 regions of this context are in use"));
            }
            None => {
                table.push((0, None));
                table.len() - 1
            }
        };
        let (turn, slot) = &mut table[place];
        *turn = (*turn + 1) % (1 << (32 - INDEX_BITS));
        // Never 0, which programs use for "none".
        let key = (*turn << INDEX_BITS | place as u32).wrapping_add(1);
        let region = Arc::new(Region { start, length, key });
        *slot = Some(region.clone());
        Ok(region)
    }

    /// Removes a region; `false` if an operation still uses it.
    pub(crate) fn remove(&self, region: &Arc<Region>) -> bool {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (region.key.wrapping_sub(1) & ((1 << INDEX_BITS) - 1)) as usize;
        // Two references: the table's and the caller's.
        if Arc::strong_count(region) > 2 {
            return false;
        }
        if let Some((_, slot)) = table.get_mut(place) {
            *slot = None;
        }
        true
    }

    /// The region with `key`, if it contains `length` bytes at `start`.
    pub(crate) fn find(&self, key: u32, start: u64, length: u64) -> Result<Arc<Region>, Failure> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (key.wrapping_sub(1) & ((1 << INDEX_BITS) - 1)) as usize;
        let region = table.get(place).and_then(|(_, region)| region.as_ref());
        let region = region.filter(|region| region.key == key).ok_or_else(|| {
            Failure::usage(format!("no memory is registered under lkey {key:#x}"))
        })?;
        let offset = start.checked_sub(region.start);
        let is_inside = offset
            .is_some_and(|offset| offset <= region.length && length <= region.length - offset);
        if !is_inside {
            return Err(Failure::usage(format!(
                "{length} bytes at {start:#x} are outside of the region of {} bytes at {:#x}",
                region.length, region.start,
            )));
        }
        Ok(region.clone())
    }
}

/// An operation's use of the program's memory; over when all that it lent was dropped.
#[derive(Debug)]
pub(crate) struct Lending {
    token: Arc<()>,
    /// Bytes lent by all operations of a queue pair.
    out_bytes: Arc<AtomicU64>,
}

impl Lending {
    pub(crate) fn new(out_bytes: &Arc<AtomicU64>) -> Self {
        Self { token: Arc::default(), out_bytes: out_bytes.clone() }
    }

    /// Lends `length` bytes at `start` to a send. `region` keeps their
    /// registration, where there is one.
    ///
    /// # Safety
    /// The bytes are readable and nobody writes to them until
    /// [`Lending::is_over`] has said so.
    pub(crate) unsafe fn lend(
        &self,
        start: *const u8,
        length: usize,
        region: Option<Arc<Region>>,
    ) -> SendBuffer {
        self.out_bytes.fetch_add(length as u64, Ordering::Relaxed);
        SendBuffer::new(Arc::new(Lent {
            start,
            length,
            _region: region,
            _token: self.token.clone(),
            out_bytes: self.out_bytes.clone(),
        }))
    }

    /// Lends bytes in several places to a send, one after the other.
    ///
    /// # Safety
    /// As for [`Lending::lend`], of each part: a start and a length.
    pub(crate) unsafe fn lend_list(&self, parts: &[(*mut u8, usize)]) -> SendBuffer {
        let mut length = 0;
        let parts = parts.iter().filter(|(_, bytes)| *bytes > 0).map(|&(start, bytes)| {
            length += bytes;
            (length, start.cast_const())
        });
        let parts = parts.collect();
        self.out_bytes.fetch_add(length as u64, Ordering::Relaxed);
        SendBuffer::gathered(Arc::new(LentList {
            parts,
            length,
            _token: self.token.clone(),
            out_bytes: self.out_bytes.clone(),
        }))
    }

    /// Whether everything that was lent was dropped.
    pub(crate) fn is_over(&mut self) -> bool {
        // `get_mut` synchronizes with the last reader's drop; reading `Arc::strong_count` would not
        // order its reads before the program's next writes.
        Arc::get_mut(&mut self.token).is_some()
    }
}

/// Bytes of the program that the transport may read.
struct Lent {
    start: *const u8,
    length: usize,
    _region: Option<Arc<Region>>,
    _token: Arc<()>,
    out_bytes: Arc<AtomicU64>,
}

// SAFETY: bytes that nobody changes while they are lent, by `lend`'s contract.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Memory for Lent {
    fn size_bytes(&self) -> usize {
        self.length
    }

    fn range(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.length && len <= self.length - offset);
        if self.length == 0 {
            // `start` may be NULL.
            return &[];
        }
        // SAFETY: in bounds by the first line; readable and unchanged while this lives, by
        // `lend`'s contract.
        unsafe { std::slice::from_raw_parts(self.start.add(offset), len) }
    }
}

/// The same in several places, copied when packets are built.
struct LentList {
    /// Where each part ends in the list, and where its bytes are.
    parts: Vec<(usize, *const u8)>,
    length: usize,
    _token: Arc<()>,
    out_bytes: Arc<AtomicU64>,
}

// SAFETY: as for `Lent`.
unsafe impl Send for LentList {}
// SAFETY: as above.
unsafe impl Sync for LentList {}

impl Gather for LentList {
    fn size_bytes(&self) -> usize {
        self.length
    }

    fn copy_to(&self, mut offset: usize, mut out: &mut [u8]) {
        assert!(offset <= self.length && out.len() <= self.length - offset);
        let mut at = self.parts.partition_point(|(end, _)| *end <= offset);
        while !out.is_empty() {
            let begin = if at == 0 { 0 } else { self.parts[at - 1].0 };
            let (end, start) = self.parts[at];
            let (now, later) = out.split_at_mut(out.len().min(end - offset));
            // SAFETY: in bounds of the part by its end; readable and unchanged while this lives, by
            // `lend_list`'s contract. `out` is this library's own memory.
            unsafe {
                let from = start.add(offset - begin);
                std::ptr::copy_nonoverlapping(from, now.as_mut_ptr(), now.len());
            }
            offset += now.len();
            out = later;
            at += 1;
        }
    }
}

impl Drop for LentList {
    fn drop(&mut self) {
        self.out_bytes.fetch_sub(self.length as u64, Ordering::Relaxed);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.out_bytes.fetch_sub(self.length as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_the_region_of_the_key_is_found() {
        let regions = Regions::default();
        let region = regions.add(1000, 100).unwrap();
        let key = region.key();
        for (start, length) in [(1000, 100), (1000, 0), (1099, 1), (1100, 0)] {
            assert!(regions.find(key, start, length).is_ok(), "{length} at {start}");
        }
        for (start, length) in [(999, 1), (1000, 101), (1100, 1), (u64::MAX, 2), (1050, u64::MAX)] {
            assert!(regions.find(key, start, length).is_err(), "{length} at {start}");
        }
        assert!(regions.find(key + 1, 1000, 1).is_err());
        assert!(regions.find(0, 1000, 1).is_err());
    }

    #[test]
    fn a_region_in_use_stays_and_its_key_is_not_given_out_again() {
        let regions = Regions::default();
        let region = regions.add(1000, 100).unwrap();
        let in_use = regions.find(region.key(), 1000, 1).unwrap();
        assert!(!regions.remove(&region));
        drop(in_use);
        assert!(regions.remove(&region));
        assert!(regions.find(region.key(), 1000, 1).is_err());
        let next = regions.add(1000, 100).unwrap();
        assert_ne!(next.key(), region.key());
        for (start, length) in [(0, 1), (1, 0), (u64::MAX, 1)] {
            assert!(regions.add(start, length).is_err());
        }
    }

    #[test]
    fn a_list_is_read_across_its_parts_and_given_back() {
        let out_bytes = Arc::default();
        let mut lending = Lending::new(&out_bytes);
        let (mut first, mut last) = ([1u8, 2, 3], [4u8, 5]);
        let parts = [(first.as_mut_ptr(), 3), (std::ptr::null_mut(), 0), (last.as_mut_ptr(), 2)];
        // SAFETY: the arrays outlive the list, and are not used meanwhile.
        let lent = unsafe { lending.lend_list(&parts) };
        for offset in 0..=5 {
            for len in 0..=5 - offset {
                let mut out = vec![0; len];
                lent.copy_to(offset, &mut out);
                assert_eq!(out, [1, 2, 3, 4, 5][offset..offset + len]);
            }
        }
        assert_eq!((lent.len(), out_bytes.load(Ordering::Relaxed)), (5, 5));
        assert!(!lending.is_over());
        drop(lent);
        assert!(lending.is_over());
    }

    #[test]
    fn a_lending_is_over_when_every_part_of_it_came_back() {
        let out_bytes = Arc::default();
        let mut lending = Lending::new(&out_bytes);
        assert!(lending.is_over());
        let bytes = [1, 2, 3, 4];
        // SAFETY: the array outlives both.
        let lent = unsafe { lending.lend(bytes.as_ptr(), 4, None) };
        let part = lent.part(1, 2).unwrap();
        assert_eq!(out_bytes.load(Ordering::Relaxed), 4);
        drop(lent);
        assert!(!lending.is_over());
        assert_eq!(*part, [2, 3]);
        drop(part);
        assert!(lending.is_over());
        assert_eq!(out_bytes.load(Ordering::Relaxed), 0);
    }
}
