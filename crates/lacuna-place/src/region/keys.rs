//! The keys of regions (STag, rkey): each names a range of a region, what may be done with it, and who
//! may do so. A *window* is a key for a part of another key's range; revoking a key revokes its windows.
//!
//! A key is 32 random bits, drawn anew at each registration, so that a stale or guessed key does not reach
//! memory; its upper bits are the index of its entry. Each registration also has a number of its own, the
//! *generation* of the key, which stays in the table and never comes again: it tells a key from a later
//! one that happens to have the same bits. A guess hits one of n keys once in 2^32 / n packets, and who
//! guesses too often is refused (`guesses.rs`), except for keys that it was the last to use: so someone
//! who guesses under a false address does not cut off the peer at that address. Keys do not replace
//! authentication: who reads the packets reads the keys.
//!
//! An entry is a [`Slot`], as those of the root key are: workers pin a key while they copy, and `revoke`
//! waits for the pins, so *nothing is written or read under a key once `revoke` has returned*. The slot's
//! generation is the key's low byte, so that most wrong keys are refused by one load and cannot keep
//! `revoke` waiting; the whole key is compared under the pin.
//!
//! `pin` takes no lock. Registering and revoking take one, for the books of which key is a window of
//! which; nobody waits for pins under it. Entries come in segments, made when they are first needed: a
//! table holds [`KEYS_MAX`] keys at most, in some 400 KB of entries.
//!
//! Invariants:
//! - an entry is used again only when all who revoke it have found it without pins;
//! - a key of a region differs from the keys of queue pairs that are [reserved](KeyTable::reserve), and
//!   from the last key of its entry.

mod books;
mod guesses;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

use super::{OutOfBounds, Region};
use crate::slot::{Pinned, Slot};
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, SetOnce, Yield};
use books::Books;
pub use guesses::GUESSES_MAX;
use guesses::Guesses;
use std::fmt;
use std::ops::{BitOr, Range};
use std::sync::{Arc, OnceLock, PoisonError};

/// Upper bits of a key that are the index of its entry.
#[cfg(not(loom))]
const INDEX_BITS: u32 = 14;
/// Upper bits of an index that are the number of its segment.
#[cfg(not(loom))]
const SEGMENT_BITS: u32 = 8;
// Loom is slow to make many entries.
#[cfg(loom)]
const INDEX_BITS: u32 = 2;
#[cfg(loom)]
const SEGMENT_BITS: u32 = 1;

const SEGMENTS: usize = 1 << SEGMENT_BITS;
const SEGMENT_KEYS: u32 = 1 << (INDEX_BITS - SEGMENT_BITS);

/// The most keys at a time: three of four indexes, so that few draws find an index in use.
pub const KEYS_MAX: u32 = (1 << INDEX_BITS) / 4 * 3;

/// How often a key is drawn before the generator is given up as stuck. When the table is nearly full, a
/// good generator fails so often once in 10^8 registrations.
const DRAWS_MAX: u32 = 64;

/// What may be done with a key: a set of rights.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rights(u8);

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);
    /// This process may use the key as source or target of its own operations, and may make windows with
    /// any rights of it.
    pub const LOCAL: Self = Self(1);
    /// Peers may write.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(4);

    /// Whether all rights of `wanted` are in the set.
    #[inline]
    pub const fn contains(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            [(Self::LOCAL, "local"), (Self::REMOTE_WRITE, "write"), (Self::REMOTE_READ, "read")];
        let mut names = names.into_iter().filter(|(right, _)| self.contains(*right));
        match names.next() {
            None => f.write_str("none")?,
            Some((_, name)) => f.write_str(name)?,
        }
        names.try_for_each(|(_, name)| write!(f, "+{name}"))
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Who may use a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All peers.
    Any,
    /// The peer with this number. The owner of the table numbers peers: for a connected queue pair, it may
    /// be the queue pair's own number; for datagrams, one that stands for the source's address.
    Peer(u64),
}

impl Scope {
    #[inline]
    fn admits(self, peer: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Peer(only) => only == peer,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any peer"),
            Self::Peer(number) => write!(f, "peer {number}"),
        }
    }
}

/// What may be done with a key, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// What may be done.
    pub rights: Rights,
    /// Who may do so.
    pub scope: Scope,
}

/// Why a key cannot be used. The peer's fault, or its key was revoked; retrying does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing is registered under the key.
    #[error("key {key:#010x} is unknown")]
    Unknown {
        /// The key.
        key: u32,
    },
    /// The key was revoked. Of an entry that was used several times since, old keys are unknown.
    #[error("key {key:#010x} is revoked")]
    Revoked {
        /// The key.
        key: u32,
    },
    /// The peer has named [`GUESSES_MAX`] unknown keys, and until [`KeyTable::forgive`] is refused all keys
    /// but those that it was the last to use.
    #[error("key {key:#010x} is refused: peer {peer} has named {GUESSES_MAX} unknown keys")]
    Guesses {
        /// The key.
        key: u32,
        /// Who used it.
        peer: u64,
    },
    /// The key does not allow this.
    #[error("key {key:#010x} allows {rights}, not {wanted}")]
    Right {
        /// The key.
        key: u32,
        /// What it allows.
        rights: Rights,
        /// What was asked for.
        wanted: Rights,
    },
    /// The key is for another peer.
    #[error("key {key:#010x} is for {scope}, not for peer {peer}")]
    Scope {
        /// The key.
        key: u32,
        /// Whom it is for.
        scope: Scope,
        /// Who used it.
        peer: u64,
    },
    /// The range reaches past the end of the key's.
    #[error("bytes {start} to {end} under key {key:#010x}, which has {len}")]
    Range {
        /// The key.
        key: u32,
        /// First byte asked for, from the start of the key's range.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Bytes of the key's range.
        len: u64,
    },
}

/// Why a range was not registered. The caller's fault, except for [`RegisterError::Full`], after which
/// retrying helps once a key was revoked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// All keys are in use.
    #[error("all {KEYS_MAX} keys are in use")]
    Full,
    /// The range reaches past the end of the region, or of the key that the window is of.
    #[error("bytes {start} to {end} of {len}")]
    Range {
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Bytes of the region or the key.
        len: u64,
    },
    /// Nothing is registered under the key that the window is of (any more).
    #[error("key {key:#010x} is unknown or revoked")]
    Unknown {
        /// The key.
        key: u32,
    },
    /// A window may have other rights than its key only if that has [`Rights::LOCAL`].
    #[error("a window of key {key:#010x}, which allows {rights}, cannot allow {wanted}")]
    Right {
        /// The key.
        key: u32,
        /// What it allows.
        rights: Rights,
        /// What was asked for.
        wanted: Rights,
    },
    /// The random source gave nothing but keys that are in use.
    #[error("the random source gave no free key in {DRAWS_MAX} draws")]
    Draw,
}

/// The entry of a key.
#[derive(Debug)]
pub struct Registration {
    key: u32,
    /// Number of the registration in the table; never comes again.
    generation: u64,
    region: Arc<Region>,
    /// In the region.
    range: Range<u64>,
    access: Access,
    /// 1 + the number of the peer that used the key last, 0 if none has; orders nothing.
    user: AtomicU64,
}

impl Registration {
    /// The key.
    #[inline]
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Number of the registration; never comes again in its table.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The region.
    #[inline]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The key's range in the region. Offsets under the key count from its start.
    #[inline]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Bytes of the key's range.
    #[inline]
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether the key's range is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// What may be done with the key, and by whom.
    #[inline]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Checks right and range of an operation.
    #[inline]
    fn check(&self, wanted: Rights, Range { start, end }: Range<u64>) -> Result<(), KeyError> {
        let (key, rights, len) = (self.key, self.access.rights, self.len());
        if !rights.contains(wanted) {
            return Err(KeyError::Right { key, rights, wanted });
        }
        if start > end || end > len {
            return Err(KeyError::Range { key, start, end, len });
        }
        Ok(())
    }

    /// Offset in the region of `bytes` bytes at `offset` of the key's range.
    #[inline]
    fn place(&self, offset: u64, bytes: usize) -> Result<u64, OutOfBounds> {
        let (bytes, len) = (bytes as u64, self.len());
        match len.checked_sub(offset) {
            Some(left) if bytes <= left => Ok(self.range.start + offset),
            _ => Err(OutOfBounds { offset, bytes, len }),
        }
    }

    /// Copies `bytes` to `offset` of the key's range. The right to do so was checked when the key was
    /// pinned.
    ///
    /// # Errors
    /// If they do not fit; then nothing is written.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let at = self.place(offset, bytes.len())?;
        self.region.write(at, bytes)
    }

    /// Copies from `offset` of the key's range to all of `out`. The right to do so was checked when the
    /// key was pinned.
    ///
    /// # Errors
    /// If the range is too short; then `out` is unchanged.
    #[inline]
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let at = self.place(offset, out.len())?;
        self.region.read(at, out)
    }
}

/// Access to what is registered under a key. [`KeyTable::revoke`] waits for it to be dropped, so it is
/// held for one burst at most.
pub type PinnedKey<'t> = Pinned<'t, Box<Registration>>;

/// One entry for keys with the same index.
#[derive(Debug, Default)]
struct Entry {
    slot: Slot<Box<Registration>>,
    /// The last key that was registered; orders nothing.
    last: AtomicU32,
}

/// The keys of one context; see the module's text.
pub struct KeyTable {
    segments: [SetOnce<Box<[Entry]>>; SEGMENTS],
    guesses: Guesses,
    books: Mutex<Books>,
    /// Called by a thread that revokes a key, while workers are inside.
    yield_now: OnceLock<Yield>,
}

#[inline]
fn index_of(key: u32) -> u32 {
    key >> (u32::BITS - INDEX_BITS)
}

/// The generation of a key's slot.
#[inline]
fn slot_generation(key: u32) -> u8 {
    key as u8
}

impl KeyTable {
    /// A table without keys. `seed` is random, so that nobody can tell which peers' guesses are counted
    /// together.
    pub fn new(seed: u64) -> Self {
        Self {
            segments: std::array::from_fn(|_| SetOnce::new()),
            guesses: Guesses::new(seed),
            books: Mutex::new(Books::default()),
            yield_now: OnceLock::new(),
        }
    }

    /// Sets the function that a thread calls to yield its core while it waits in [`KeyTable::revoke`].
    /// Without one it spins. Only the first call has an effect.
    pub fn yield_by(&self, yield_now: Yield) {
        // An error means that it was set before.
        _ = self.yield_now.set(yield_now);
    }

    /// Registers a range of a region and returns its key. `draw` gives 32 random bits per call.
    ///
    /// # Errors
    /// See [`RegisterError`]; nothing is registered then.
    pub fn register(
        &self,
        region: &Arc<Region>,
        range: Range<u64>,
        access: Access,
        mut draw: impl FnMut() -> u32,
    ) -> Result<u32, RegisterError> {
        let Range { start, end } = range;
        let len = region.len();
        if start > end || end > len {
            return Err(RegisterError::Range { start, end, len });
        }
        let mut books = self.books();
        let entry = books.add(region.clone(), start..end, access, None, || self.draw(&mut draw))?;
        Ok(self.post(entry))
    }

    /// Registers a part of a key's range, with `range` counted from its start, under a key of its own,
    /// which is revoked with the other key. The peer needs to know the window's key only.
    ///
    /// # Errors
    /// See [`RegisterError`]; nothing is registered then.
    pub fn window(
        &self,
        key: u32,
        range: Range<u64>,
        access: Access,
        mut draw: impl FnMut() -> u32,
    ) -> Result<u32, RegisterError> {
        let mut books = self.books();
        let parent = books.live(key).ok_or(RegisterError::Unknown { key })?;
        let Range { start, end } = range;
        let len = parent.range.end - parent.range.start;
        if start > end || end > len {
            return Err(RegisterError::Range { start, end, len });
        }
        let (rights, wanted) = (parent.access.rights, access.rights);
        if !rights.contains(Rights::LOCAL) && !rights.contains(wanted) {
            return Err(RegisterError::Right { key, rights, wanted });
        }
        let range = parent.range.start + start..parent.range.start + end;
        let region = parent.region.clone();
        let entry =
            books.add(region, range, access, Some(index_of(key)), || self.draw(&mut draw))?;
        Ok(self.post(entry))
    }

    /// Draws a key that is not the last one of its entry.
    fn draw(&self, draw: &mut impl FnMut() -> u32) -> Option<u32> {
        Some(draw()).filter(|key| !self.is_stale(*key))
    }

    /// Whether a key is the last one that its entry had.
    fn is_stale(&self, key: u32) -> bool {
        self.entry(key).is_some_and(|entry| entry.last.load(Ordering::Relaxed) == key)
    }

    /// Makes an entry of the books known to workers. The books are locked.
    fn post(&self, registration: Registration) -> u32 {
        let key = registration.key;
        let segment = &self.segments[(index_of(key) / SEGMENT_KEYS) as usize];
        if segment.get().is_none() {
            // The books are locked, so nobody has set it meanwhile.
            _ = segment.set((0..SEGMENT_KEYS).map(|_| Entry::default()).collect());
        }
        let posted = self.entry(key).map(|entry| {
            entry.last.store(key, Ordering::Relaxed);
            entry.slot.post(slot_generation(key), Box::new(registration))
        });
        debug_assert!(matches!(posted, Some(Ok(()))), "the books said that the entry is free");
        key
    }

    /// Pins what is registered under `key`, if `peer` has the right `wanted` over `range`, counted from the
    /// start of the key's range. Takes no lock. Unknown keys are counted as guesses of the peer.
    ///
    /// # Errors
    /// See [`KeyError`].
    #[inline]
    pub fn pin(
        &self,
        key: u32,
        peer: u64,
        wanted: Rights,
        range: Range<u64>,
    ) -> Result<PinnedKey<'_>, KeyError> {
        let are_spent = self.guesses.are_spent(peer);
        let Some(pinned) = self.find(key) else {
            if self.is_stale(key) {
                return Err(KeyError::Revoked { key });
            }
            if are_spent {
                return Err(KeyError::Guesses { key, peer });
            }
            self.guesses.count(peer);
            return Err(KeyError::Unknown { key });
        };
        let is_user = pinned.user.load(Ordering::Relaxed) == peer.wrapping_add(1);
        if are_spent && !is_user {
            return Err(KeyError::Guesses { key, peer });
        }
        let scope = pinned.access.scope;
        if !scope.admits(peer) {
            // To this peer, the key is as good as unknown.
            self.guesses.count(peer);
            return Err(KeyError::Scope { key, scope, peer });
        }
        if !is_user {
            pinned.user.store(peer.wrapping_add(1), Ordering::Relaxed);
        }
        pinned.check(wanted, range)?;
        Ok(pinned)
    }

    /// Pins what is registered under `key` for an operation of this process, which needs the right
    /// [`Rights::LOCAL`], whatever the key's scope. Takes no lock.
    ///
    /// # Errors
    /// See [`KeyError`].
    #[inline]
    pub fn pin_local(&self, key: u32, range: Range<u64>) -> Result<PinnedKey<'_>, KeyError> {
        let pinned = self.find(key).ok_or_else(|| match self.is_stale(key) {
            true => KeyError::Revoked { key },
            false => KeyError::Unknown { key },
        })?;
        pinned.check(Rights::LOCAL, range)?;
        Ok(pinned)
    }

    #[inline]
    fn find(&self, key: u32) -> Option<PinnedKey<'_>> {
        let pinned = self.entry(key)?.slot.pin(slot_generation(key)).ok()?;
        (pinned.key == key).then_some(pinned)
    }

    #[inline]
    fn entry(&self, key: u32) -> Option<&Entry> {
        let index = index_of(key);
        let segment = self.segments[(index / SEGMENT_KEYS) as usize].get()?;
        segment.get((index % SEGMENT_KEYS) as usize)
    }

    /// Revokes a key and its windows: once this returns, nothing is written or read under them any more.
    /// Returns whether this call did so; `false` if the key is unknown, or another call was first, for
    /// which this one waits, too.
    ///
    /// Waits for workers that are copying under the keys; a worker must not call it during a burst.
    pub fn revoke(&self, key: u32) -> bool {
        let Some(doomed) = self.books().doom(key) else { return false };
        let yield_now = self.yield_now.get().copied().unwrap_or(core::hint::spin_loop);
        for key in &doomed.keys {
            // The entry is not used again before `free`, so the slot holds this key or nothing. The
            // reference to the region is dropped.
            if let Some(entry) = self.entry(*key) {
                drop(entry.slot.retire(slot_generation(*key), u8::MAX, yield_now));
            }
        }
        self.books().free(&doomed.keys);
        doomed.is_first
    }

    /// Unknown keys that peers have named so far.
    pub fn guesses(&self) -> u64 {
        self.guesses.total()
    }

    /// Unknown keys that a peer has named since the last [`KeyTable::forgive`]; may be too high, if many
    /// peers guess.
    pub fn guesses_of(&self, peer: u64) -> u32 {
        self.guesses.of(peer)
    }

    /// Forgets the guesses of all peers.
    pub fn forgive(&self) {
        self.guesses.forgive();
    }

    /// Forgets the guesses of all peers if that is a second ago, so that each has [`GUESSES_MAX`] a
    /// second. Only a peer that guesses gives a reason to call it. All callers have one clock.
    pub fn forgive_each_second(&self, now_ns: u64) {
        self.guesses.forgive_each_second(now_ns);
    }

    /// Keeps a key of a queue pair from being given to a region; `false` if a region has it, and the
    /// queue pair must take another. Keys may be reserved several times, and are released as often.
    pub fn reserve(&self, key: u32) -> bool {
        self.books().reserve(key)
    }

    /// Undoes one [`KeyTable::reserve`].
    pub fn release(&self, key: u32) {
        self.books().release(key);
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.books().len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable").field("books", &self.books).finish_non_exhaustive()
    }
}
