//! Regions: memory that peers write without a posted receive, by a key and an offset (datagram-iWARP's
//! tagged model; RDMA WRITE).
//!
//! A region belongs to its context, so every peer that has its key may write it, over any connection that
//! has the one-sided operations ([`crate::ConnectionConfig::one_sided`]). The application may read and
//! write it meanwhile: bytes are accessed atomically, and what is complete is known from the validity map
//! or from a message with an immediate ([`crate::Connection::wait_written`]).

mod foreign;
mod slices;

use crate::context::Context;
use crate::error::RegionError;
use lacuna_place::region::{
    self, Access, Granules, KeyTable, Memory, OutOfBounds, RegionConfig, Scope,
};
use std::ops::Range;
use std::sync::Arc;

pub use lacuna_place::region::Rights;

/// What a region keeps and allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionOptions {
    /// What peers may do with the region's key.
    pub rights: Rights,
    /// Keep a map of what peers have written ([`Region::take_valid`]). It takes 1/512 of the memory.
    pub has_validity: bool,
    /// Refuse packets that touch bytes which the map says are valid: each byte is written once until it
    /// was taken.
    pub is_exclusive: bool,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self { rights: Rights::REMOTE_WRITE, has_validity: false, is_exclusive: false }
    }
}

/// Memory that peers write by its key. Dropping it revokes the key.
///
/// ```no_run
/// # use lacuna::{Connection, Context, RegionOptions, Target};
/// # use std::time::Duration;
/// # fn example(context: &Context, here: &Connection, there: &Connection) -> Result<(), Box<dyn std::error::Error>> {
/// // One end, which tells the other its key by any means:
/// let region = context.register(vec![0; 1 << 20], RegionOptions::default())?;
///
/// // The other end:
/// let to = Target { key: region.key(), address: 4096 };
/// there.write_to_with_immediate(to, &[7; 10_000], 5, Duration::from_secs(1))?;
///
/// // The first, which is told because the write carried an immediate:
/// let written = here.wait_written(Duration::from_secs(1)).expect("it came");
/// let mut bytes = vec![0; written.len.unwrap_or(0) as usize];
/// region.read(written.address, &mut bytes)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Region {
    registered: Registered,
    /// The memory may go while others still hold the region's record, so nothing but keys may reach it.
    is_lent: bool,
}

/// A part of a region under a key of its own. Dropping it revokes the key.
#[derive(Debug)]
pub struct Window {
    registered: Registered,
    range: Range<u64>,
}

/// A key, revoked when this is dropped.
#[derive(Debug)]
struct Registered(Keyed);

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.keys.revoke(self.0.key);
    }
}

/// A key of a region, which ends with its owner.
#[derive(Debug, Clone)]
pub(crate) struct Keyed {
    keys: Arc<KeyTable>,
    key: u32,
    region: Arc<region::Region>,
}

impl Keyed {
    /// As [`Region::window`].
    pub(crate) fn window(&self, range: Range<u64>, rights: Rights) -> Result<Window, RegionError> {
        let access = Access { rights, scope: Scope::Any };
        let key = self.keys.window(self.key, range.clone(), access, random)?;
        Ok(Window { registered: Registered(Self { key, ..self.clone() }), range })
    }
}

impl Context {
    /// Registers memory, so that peers with the returned region's key may use it.
    ///
    /// # Errors
    /// When too many regions are registered.
    pub fn register(&self, memory: Vec<u8>, options: RegionOptions) -> Result<Region, RegionError> {
        self.register_memory(memory.into(), options, false)
    }

    fn register_memory(
        &self,
        memory: Memory,
        options: RegionOptions,
        is_lent: bool,
    ) -> Result<Region, RegionError> {
        let config =
            RegionConfig { has_validity: options.has_validity, is_exclusive: options.is_exclusive };
        let region = region::Region::new(memory, config);
        let keys = self.keys().clone();
        // The owner may always make windows.
        let rights = options.rights | Rights::LOCAL;
        let access = Access { rights, scope: Scope::Any };
        let key = keys.register(&region, 0..region.len(), access, random)?;
        Ok(Region { registered: Registered(Keyed { keys, key, region }), is_lent })
    }
}

/// 32 random bits for a key.
fn random() -> u32 {
    // Without random numbers no context could have been made.
    getrandom::u32().expect("the system has random numbers")
}

impl Region {
    /// The key, to be told to peers. It is drawn at random, and says nothing about other keys.
    pub fn key(&self) -> u32 {
        self.registered.0.key
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.region().len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn region(&self) -> &region::Region {
        &self.registered.0.region
    }

    /// Its key, which is of no use when the region was dropped.
    pub(crate) fn keyed(&self) -> &Keyed {
        &self.registered.0
    }

    fn region_arc(&self) -> Arc<region::Region> {
        self.registered.0.region.clone()
    }

    /// Copies bytes out of the region.
    ///
    /// # Errors
    /// When the range is not in the region.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfBounds> {
        self.region().read(offset, out)
    }

    /// Copies bytes into the region.
    ///
    /// # Errors
    /// When the range is not in the region.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.region().write(offset, bytes)
    }

    /// What peers have written of a range since it was last taken, in granules of 64 bytes that were
    /// written whole; marks it as not written. `None` without [`RegionOptions::has_validity`].
    pub fn take_valid(&self, range: Range<u64>) -> Option<Granules> {
        self.region().validity().map(|map| map.take(range))
    }

    /// What peers have written of a range since it was last taken.
    pub fn valid(&self, range: Range<u64>) -> Option<Granules> {
        self.region().validity().map(|map| map.copy(range))
    }

    /// Makes a part of the region known under a key of its own, with rights of its own. It ends with the
    /// window, or with the region's key.
    ///
    /// # Errors
    /// When the range is not in the region, or too many keys are in use.
    pub fn window(&self, range: Range<u64>, rights: Rights) -> Result<Window, RegionError> {
        self.keyed().window(range, rights)
    }

    /// Revokes the key and those of all windows. Once this returns, no peer writes or reads the region
    /// any more. Returns whether this call did so.
    pub fn revoke(&self) -> bool {
        self.registered.0.keys.revoke(self.key())
    }

    /// Revokes the key and gives the memory back; `None` while windows, sends or receives hold it.
    pub fn into_vec(self) -> Option<Vec<u8>> {
        self.revoke();
        let region = self.registered.0.region.clone();
        drop(self);
        region::Region::into_memory(region).ok()?.into_vec().ok()
    }
}

impl Window {
    /// The key, to be told to peers. Addresses under it count from the start of the window.
    pub fn key(&self) -> u32 {
        self.registered.0.key
    }

    /// The bytes of the region that it covers.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Revokes the key: once this returns, no peer writes or reads under it any more. Returns whether
    /// this call did so.
    pub fn revoke(&self) -> bool {
        self.registered.0.keys.revoke(self.key())
    }
}
