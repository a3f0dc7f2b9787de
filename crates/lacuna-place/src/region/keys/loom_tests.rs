//! All interleavings of revoking a key with a worker that writes under it.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p lacuna-place --release --lib loom_tests`

use super::*;
use crate::region::RegionConfig;
use loom::thread;

const BYTES: usize = 64;
const KEY: u32 = 0x4000_0107;
const WINDOW: u32 = 0x8000_0209;

fn region() -> Arc<Region> {
    Region::new(vec![0; BYTES], RegionConfig::default())
}

fn access(rights: Rights) -> Access {
    Access { rights, scope: Scope::Any }
}

/// A table with [`KEY`] over a region.
fn registered() -> (Arc<KeyTable>, Arc<Region>) {
    let (table, region) = (Arc::new(KeyTable::new(0)), region());
    let all = access(Rights::LOCAL | Rights::REMOTE_WRITE);
    assert_eq!(table.register(&region, 0..BYTES as u64, all, || KEY), Ok(KEY));
    (table, region)
}

/// Writes under a key, if it is known.
fn write(table: &KeyTable, key: u32, byte: u8) -> bool {
    let Ok(pinned) = table.pin(key, 1, Rights::REMOTE_WRITE, 0..BYTES as u64) else {
        return false;
    };
    pinned.write(0, &[byte; BYTES]).is_ok()
}

/// Takes the memory back, which loom refuses if anybody may still write it, and returns a byte.
fn own(region: Arc<Region>) -> u8 {
    region.into_memory().unwrap().into_vec().unwrap()[0]
}

#[test]
fn nothing_is_written_after_revoke_returned() {
    loom::model(|| {
        let (table, region) = registered();
        let worker = {
            let table = table.clone();
            thread::spawn(move || write(&table, KEY, 5))
        };
        assert!(table.revoke(KEY));
        let byte = own(region);
        let has_written = worker.join().unwrap();
        assert_eq!(byte, if has_written { 5 } else { 0 });
    });
}

#[test]
fn revoking_a_key_revokes_its_windows() {
    loom::model(|| {
        let (table, region) = registered();
        let window = access(Rights::REMOTE_WRITE);
        assert_eq!(table.window(KEY, 0..BYTES as u64, window, || WINDOW), Ok(WINDOW));
        let worker = {
            let table = table.clone();
            thread::spawn(move || write(&table, WINDOW, 5))
        };
        assert!(table.revoke(KEY));
        own(region);
        worker.join().unwrap();
    });
}

#[test]
fn who_revokes_second_may_have_the_memory_too_when_revoke_returns() {
    // With more, loom explores two waiting threads that yield to each other for ever.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (table, region) = registered();
        let worker = {
            let table = table.clone();
            thread::spawn(move || write(&table, KEY, 5))
        };
        let other = {
            let table = table.clone();
            thread::spawn(move || table.revoke(KEY))
        };
        let here = table.revoke(KEY);
        // The other thread may hold a reference for a while.
        region.own();
        worker.join().unwrap();
        assert_ne!(other.join().unwrap(), here, "one of them was first");
    });
}

#[test]
fn an_entry_that_is_used_again_hides_the_old_memory() {
    loom::model(|| {
        let (table, first) = registered();
        let worker = {
            let table = table.clone();
            thread::spawn(move || write(&table, KEY, 5))
        };
        assert!(table.revoke(KEY));
        // The same entry, and the same generation of its slot.
        let second = region();
        let next = KEY ^ 0x1000;
        let rights = access(Rights::REMOTE_WRITE);
        assert_eq!(table.register(&second, 0..BYTES as u64, rights, || next), Ok(next));
        own(first);
        worker.join().unwrap();
        assert!(table.revoke(next));
        assert_eq!(own(second), 0, "the old key never reaches the new memory");
    });
}
