//! The books of a [`KeyTable`](super::KeyTable): which entries are in use, which key is a window of which,
//! and which keys regions must not have. Under the table's lock; no worker reads them.

use super::{Access, DRAWS_MAX, KEYS_MAX, RegisterError, Registration, index_of};
use crate::region::Region;
use crate::sync::AtomicU64;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By index.
    entries: BTreeMap<u32, Entry>,
    /// Registrations so far.
    generations: u64,
    /// Keys of queue pairs, and how often each is reserved.
    reserved: BTreeMap<u32, u32>,
}

/// A key in use, or being revoked.
#[derive(Debug)]
pub(super) struct Entry {
    key: u32,
    pub(super) region: Arc<Region>,
    /// In the region.
    pub(super) range: Range<u64>,
    pub(super) access: Access,
    /// Index of the key that this is a window of.
    parent: Option<u32>,
    /// Indexes of its windows.
    windows: Vec<u32>,
    /// Threads that are revoking it; it is free when the last of them has found it without pins.
    revokers: u32,
}

/// Keys to be revoked.
#[derive(Debug)]
pub(super) struct Doomed {
    /// A key and all its windows.
    pub(super) keys: Vec<u32>,
    /// Nobody else is revoking it.
    pub(super) is_first: bool,
}

impl Books {
    /// The entry of a key that nobody revokes.
    pub(super) fn live(&self, key: u32) -> Option<&Entry> {
        let entry = self.entries.get(&index_of(key))?;
        (entry.key == key && entry.revokers == 0).then_some(entry)
    }

    /// Enters a range under a new key. The caller has checked the range against the region or the parent.
    /// `draw` gives random keys, or `None` for one that must not be taken.
    pub(super) fn add(
        &mut self,
        region: Arc<Region>,
        range: Range<u64>,
        access: Access,
        parent: Option<u32>,
        mut draw: impl FnMut() -> Option<u32>,
    ) -> Result<Registration, RegisterError> {
        if self.entries.len() >= KEYS_MAX as usize {
            return Err(RegisterError::Full);
        }
        let is_free = |key: &u32| {
            *key != 0
                && !self.entries.contains_key(&index_of(*key))
                && !self.reserved.contains_key(key)
        };
        let key = (0..DRAWS_MAX).filter_map(|_| draw()).find(is_free);
        let key = key.ok_or(RegisterError::Draw)?;
        // All checks are made: nothing fails from here on.
        self.generations += 1;
        if let Some(parent) = parent.and_then(|parent| self.entries.get_mut(&parent)) {
            parent.windows.push(index_of(key));
        }
        let entry = Entry {
            key,
            region: region.clone(),
            range: range.clone(),
            access,
            parent,
            windows: Vec::new(),
            revokers: 0,
        };
        self.entries.insert(index_of(key), entry);
        let (generation, user) = (self.generations, AtomicU64::new(0));
        Ok(Registration { key, generation, region, range, access, user })
    }

    /// Counts a thread that revokes a key and its windows. `None` if the key is unknown.
    pub(super) fn doom(&mut self, key: u32) -> Option<Doomed> {
        let entry = self.entries.get(&index_of(key)).filter(|entry| entry.key == key)?;
        let is_first = entry.revokers == 0;
        let mut indexes = vec![index_of(key)];
        let mut keys = Vec::new();
        while let Some(index) = indexes.pop() {
            let Some(entry) = self.entries.get_mut(&index) else { continue };
            entry.revokers += 1;
            keys.push(entry.key);
            indexes.extend(&entry.windows);
        }
        Some(Doomed { keys, is_first })
    }

    /// A thread has found these keys without pins.
    pub(super) fn free(&mut self, keys: &[u32]) {
        for key in keys {
            let index = index_of(*key);
            let Some(entry) = self.entries.get_mut(&index) else { continue };
            entry.revokers -= 1;
            if entry.revokers > 0 {
                continue;
            }
            let parent = entry.parent;
            self.entries.remove(&index);
            if let Some(parent) = parent.and_then(|parent| self.entries.get_mut(&parent)) {
                parent.windows.retain(|window| *window != index);
            }
        }
    }

    pub(super) fn reserve(&mut self, key: u32) -> bool {
        let is_taken = self.entries.get(&index_of(key)).is_some_and(|entry| entry.key == key);
        if !is_taken {
            *self.reserved.entry(key).or_default() += 1;
        }
        !is_taken
    }

    pub(super) fn release(&mut self, key: u32) {
        if let Some(times) = self.reserved.get_mut(&key) {
            *times -= 1;
            if *times == 0 {
                self.reserved.remove(&key);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
