//! Regions over memory that is not a vector of their own: borrowed for a scope, shared with the application
//! as atomic words, or of a C program or a mapping. Nothing is copied.

#![allow(unsafe_code)]

use super::{Region, RegionOptions};
use crate::context::Context;
use crate::error::RegionError;
use lacuna_place::region::{self, Memory, OutOfBounds, RegionConfig, Slices, Stride};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Context {
    /// Registers borrowed memory for the time of a call of `scope`. When this returns, also by a panic, no
    /// peer writes or reads the memory any more. It has no [slices](Region::slice).
    ///
    /// ```no_run
    /// # use lacuna::{Connection, Context, RegionOptions};
    /// # use std::time::Duration;
    /// # fn example(context: &Context, connection: &Connection) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tensor = vec![0; 1 << 20];
    /// let written = context.lend_region(&mut tensor, RegionOptions::default(), |region| {
    ///     connection.send(&region.key().to_le_bytes())?;
    ///     Ok::<_, lacuna::SendError>(connection.wait_written(Duration::from_secs(1)))
    /// })??;
    /// println!("{written:?}: {:?}", &tensor[..10]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When too many regions are registered; then `scope` is not called.
    pub fn lend_region<R>(
        &self,
        memory: &mut [u8],
        options: RegionOptions,
        scope: impl FnOnce(&Region) -> R,
    ) -> Result<R, RegionError> {
        // SAFETY: the memory is borrowed until this returns, and the key was revoked before, as the region
        // is dropped here. Windows that `scope` has kept, and reads that it left under way, have keys that
        // end with the region's, and nothing else of them reaches the memory.
        let region = unsafe { self.register_raw(memory.as_mut_ptr(), memory.len(), options) }?;
        Ok(scope(&region))
    }

    /// Registers memory that the application keeps using: words, in the byte order of the host, that it
    /// loads and stores beside its peers.
    ///
    /// # Errors
    /// As [`Context::register`].
    pub fn register_shared(
        &self,
        words: Arc<[AtomicU64]>,
        options: RegionOptions,
    ) -> Result<Region, RegionError> {
        let (start, len) = (words.as_ptr().cast_mut().cast(), size_of_val(&*words));
        // SAFETY: the words stay as long as the owner does. They are aligned, so the memory accesses them as
        // atomic words, too: the same accesses as the application's.
        let memory = unsafe { Memory::from_shared(start, len, Arc::new(words)) };
        self.register_memory(memory, options, false)
    }

    /// As [`Context::register`], over memory of the caller. It has no [slices](Region::slice).
    ///
    /// # Errors
    /// As [`Context::register`].
    ///
    /// # Safety
    /// `start` to `start + len` is initialised, and valid for reads and writes until the region was
    /// dropped, or its key revoked ([`Region::revoke`]) and neither [`Region::read`] nor
    /// [`Region::write`] is called any more. Until then the caller accesses bytes that a peer or another
    /// thread may be writing only after what orders the accesses: the validity map, a message with an
    /// immediate, or the return of a revoke.
    pub unsafe fn register_raw(
        &self,
        start: *mut u8,
        len: usize,
        options: RegionOptions,
    ) -> Result<Region, RegionError> {
        // SAFETY: by contract. Peers reach the memory by the key and those of its windows alone, which a
        // revoke ends and waits for; the region's drop revokes.
        let memory = unsafe { Memory::from_raw(start, len) };
        self.register_memory(memory, options, true)
    }
}

impl Region {
    /// Memory of the caller as a list of parts, without a key, for receives and READs of
    /// [datagram queue pairs](crate::datagram).
    ///
    /// # Errors
    /// When all together have more than `u64::MAX` bytes.
    ///
    /// # Safety
    /// Each part, a start and a length, is initialised, and valid for reads and writes until what the list was posted to
    /// has completed, or its queue pair was dropped. Until then the caller does not access it.
    pub unsafe fn list_raw(
        parts: impl IntoIterator<Item = (*mut u8, usize)>,
    ) -> Result<Slices, OutOfBounds> {
        let parts = parts.into_iter().map(|(start, len)| {
            // SAFETY: by contract. The list outlives neither: who it is posted to writes while it is open, and drops it
            // then; and nothing is accessed by the drop.
            let memory = unsafe { Memory::from_raw(start, len) };
            let stride = Stride::of_range(0..memory.len());
            (region::Region::new(memory, RegionConfig::default()), stride)
        });
        Slices::new(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ContextConfig;
    use crate::error::SliceError;
    use lacuna_datapath::MemNetwork;
    use std::sync::atomic::Ordering;

    fn context() -> Context {
        let datapath = crate::DatapathKind::Mem(MemNetwork::new());
        Context::new(ContextConfig { datapath, ..ContextConfig::default() }).unwrap()
    }

    #[test]
    fn foreign_memory_is_used_in_place_and_stays_with_its_owner() {
        let context = context();
        let mut bytes = vec![1u8; 100];
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the vector lives longer than the region, and is not used meanwhile.
        let region = unsafe { context.register_raw(start, len, RegionOptions::default()) }.unwrap();
        region.write(3, &[7; 9]).unwrap();
        let window = region.window(10..20, crate::Rights::REMOTE_READ).unwrap();
        assert!(region.into_vec().is_none(), "it is not a vector of the region's");
        assert!(!window.revoke(), "it ended with its region");
        assert_eq!(bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 91 + 63);
    }

    #[test]
    fn memory_in_pieces_is_written_where_it_is() {
        let (mut first, mut last) = (vec![0u8; 13], vec![0u8; 9]);
        let parts = [
            (first.as_mut_ptr(), first.len()),
            (std::ptr::null_mut(), 0),
            (last.as_mut_ptr(), last.len()),
        ];
        // SAFETY: the vectors live longer than the list, and are not used meanwhile.
        let list = unsafe { Region::list_raw(parts) }.unwrap();
        list.write(11, &[1, 2, 3, 4]).unwrap();
        assert!(list.write(20, &[1, 2, 3]).is_err());
        assert_eq!(list.len(), 22);
        drop(list);
        assert_eq!((&first[10..], &last[..3]), (&[0, 1, 2][..], &[3, 4, 0][..]));
    }

    #[test]
    fn lent_memory_is_back_after_the_scope_and_its_keys_are_of_no_use() {
        let context = context();
        let mut bytes = [0u8; 100];
        let lent = context.lend_region(&mut bytes, RegionOptions::default(), |region| {
            region.write(50, &[9; 10]).unwrap();
            assert_eq!(region.slice(0..10).unwrap_err(), SliceError::Lent);
            region.window(0..10, crate::Rights::REMOTE_WRITE).unwrap()
        });
        let escaped = lent.unwrap();
        assert_eq!(bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 90);
        assert!(!escaped.revoke(), "it ended with its region");
        let panics = std::panic::AssertUnwindSafe(|| {
            _ = context.lend_region(&mut bytes, RegionOptions::default(), |_| panic!("as asked"));
        });
        assert!(std::panic::catch_unwind(panics).is_err());
    }

    #[test]
    fn shared_words_are_the_regions_bytes() {
        let words: Arc<[AtomicU64]> = (0..4).map(AtomicU64::new).collect();
        let region = context().register_shared(words.clone(), RegionOptions::default()).unwrap();
        region.write(8, &77u64.to_ne_bytes()).unwrap();
        assert_eq!(words[1].load(Ordering::Relaxed), 77);
        words[3].store(5, Ordering::Relaxed);
        let mut bytes = [0; 8];
        region.read(24, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 5);
        assert_eq!(region.slice(0..32).unwrap().len(), 32);
    }
}
