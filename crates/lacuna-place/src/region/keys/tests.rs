//! Keys, windows, rights, guesses; and revoking while others write. Run under the thread sanitizer too
//! (`table/tests.rs`).

use super::*;
use crate::region::RegionConfig;
use lacuna_link::SplitMix64;
use std::sync::atomic::{AtomicBool, AtomicU64 as Count};

const ALL: Rights = Rights(7);

fn region(bytes: usize) -> Arc<Region> {
    Region::new(vec![0; bytes], RegionConfig::default())
}

fn access(rights: Rights) -> Access {
    Access { rights, scope: Scope::Any }
}

/// A table, and a source of random bits.
fn table() -> (KeyTable, impl FnMut() -> u32) {
    let mut rng = SplitMix64::new(11);
    (KeyTable::new(3), move || rng.next_u64() as u32)
}

#[test]
fn a_key_reaches_its_range_and_nothing_else() {
    let (table, mut draw) = table();
    let region = region(100);
    let key = table.register(&region, 10..60, access(Rights::REMOTE_WRITE), &mut draw).unwrap();
    let pinned = table.pin(key, 1, Rights::REMOTE_WRITE, 40..50).unwrap();
    assert_eq!((pinned.range(), pinned.len(), pinned.key()), (10..60, 50, key));
    pinned.write(48, &[7; 2]).unwrap();
    assert_eq!(
        pinned.write(49, &[7; 2]),
        Err(OutOfBounds { offset: 49, bytes: 2, len: 50 }),
        "the region goes on, the key's range does not"
    );
    let mut out = [0; 4];
    region.read(57, &mut out).unwrap();
    assert_eq!(out, [0, 7, 7, 0]);
    pinned.read(47, &mut out[..3]).unwrap();
    assert_eq!(out[..3], [0, 7, 7]);
    let range = |start, end| KeyError::Range { key, start, end, len: 50 };
    let backwards = Range { start: 9, end: 8 };
    for (asked, error) in [(0..51, range(0, 51)), (backwards, range(9, 8))] {
        assert_eq!(table.pin(key, 1, Rights::NONE, asked).unwrap_err(), error);
    }
}

#[test]
fn rights_and_scope_are_checked() {
    let (table, mut draw) = table();
    let region = region(100);
    let rights = Rights::REMOTE_READ | Rights::LOCAL;
    let scoped = Access { rights, scope: Scope::Peer(5) };
    let key = table.register(&region, 0..100, scoped, &mut draw).unwrap();
    let wanted = Rights::REMOTE_WRITE;
    assert!(table.pin(key, 5, Rights::REMOTE_READ, 0..100).is_ok());
    assert_eq!(
        table.pin(key, 5, wanted, 0..1).unwrap_err(),
        KeyError::Right { key, rights, wanted }
    );
    assert_eq!(table.guesses_of(6), 0);
    assert_eq!(
        table.pin(key, 6, Rights::REMOTE_READ, 0..1).unwrap_err(),
        KeyError::Scope { key, scope: Scope::Peer(5), peer: 6 }
    );
    assert_eq!(table.guesses_of(6), 1, "the key was not for it to know");
    assert!(table.pin_local(key, 0..100).is_ok());
    let other = table.register(&region, 0..1, access(wanted), &mut draw).unwrap();
    let (rights, wanted) = (wanted, Rights::LOCAL);
    let error = KeyError::Right { key: other, rights, wanted };
    assert_eq!(table.pin_local(other, 0..1).unwrap_err(), error);
    assert_eq!(error.to_string(), format!("key {other:#010x} allows write, not local"));
    assert_eq!(
        (ALL.to_string(), Rights::NONE.to_string()),
        ("local+write+read".into(), "none".into())
    );
}

#[test]
fn a_window_has_a_key_of_its_own_and_ends_with_the_key_it_is_of() {
    let (table, mut draw) = table();
    let region = region(1000);
    let whole = table.register(&region, 100..900, access(Rights::LOCAL), &mut draw).unwrap();
    let window = table.window(whole, 50..150, access(Rights::REMOTE_WRITE), &mut draw).unwrap();
    let inner = table.window(window, 10..20, access(Rights::REMOTE_WRITE), &mut draw).unwrap();
    assert_eq!(table.pin(inner, 1, Rights::REMOTE_WRITE, 0..10).unwrap().range(), 160..170);
    let refused = table.window(window, 0..101, access(Rights::NONE), &mut draw);
    assert_eq!(refused, Err(RegisterError::Range { start: 0, end: 101, len: 100 }));
    let refused = table.window(window, 0..1, access(Rights::REMOTE_READ), &mut draw);
    let (rights, wanted) = (Rights::REMOTE_WRITE, Rights::REMOTE_READ);
    assert_eq!(refused, Err(RegisterError::Right { key: window, rights, wanted }));
    assert!(table.revoke(window));
    for key in [window, inner] {
        assert_eq!(table.pin(key, 1, Rights::NONE, 0..0).unwrap_err(), KeyError::Revoked { key });
    }
    assert!(table.pin_local(whole, 0..1).is_ok());
    let refused = table.window(window, 0..1, access(Rights::NONE), &mut draw);
    assert_eq!(refused, Err(RegisterError::Unknown { key: window }));
    assert!(!table.revoke(window), "it was revoked before");
    assert!(table.revoke(whole));
    assert!(table.is_empty());
    assert!(region.into_memory().is_ok(), "the table holds it no longer");
}

#[test]
fn a_region_is_registered_within_its_bounds() {
    let (table, mut draw) = table();
    let region = region(10);
    let range = |start, end| Err(RegisterError::Range { start, end, len: 10 });
    let none = access(Rights::NONE);
    assert_eq!(table.register(&region, 0..11, none, &mut draw), range(0, 11));
    let backwards = Range { start: 5, end: 4 };
    assert_eq!(table.register(&region, backwards, none, &mut draw), range(5, 4));
    assert!(table.register(&region, 10..10, none, &mut draw).is_ok());
}

#[test]
fn keys_of_queue_pairs_are_not_given_to_regions() {
    let (table, _) = table();
    let region = region(10);
    assert!(table.reserve(77) && table.reserve(77));
    let mut bits = [77, 0, 78].into_iter();
    let key = table.register(&region, 0..10, access(ALL), || bits.next().unwrap()).unwrap();
    assert_eq!(key, 78);
    assert!(!table.reserve(78));
    table.release(77);
    assert!(matches!(table.register(&region, 0..10, access(ALL), || 77), Err(RegisterError::Draw)));
    table.release(77);
    assert!(table.revoke(78));
    assert!(matches!(table.register(&region, 0..10, access(ALL), || 78), Err(RegisterError::Draw)));
    assert_eq!(table.register(&region, 0..10, access(ALL), || 77), Ok(77));
    assert_eq!(table.pin(78, 0, ALL, 0..0).unwrap_err(), KeyError::Unknown { key: 78 });
}

#[test]
fn a_full_table_refuses_and_has_room_after_a_revoke() {
    let (table, mut draw) = table();
    let region = region(10);
    let keys: Vec<u32> = (0..KEYS_MAX)
        .map(|_| table.register(&region, 0..10, access(ALL), &mut draw).unwrap())
        .collect();
    let refused = table.register(&region, 0..10, access(ALL), &mut draw);
    assert_eq!(refused, Err(RegisterError::Full));
    assert_eq!(table.len(), KEYS_MAX as usize);
    assert!(keys.iter().all(|key| table.pin(*key, 1, ALL, 0..10).is_ok()));
    assert!(table.revoke(keys[9]));
    assert!(table.register(&region, 0..10, access(ALL), &mut draw).is_ok());
    let entries = (1 << INDEX_BITS) * std::mem::size_of::<Entry>();
    assert!(entries <= 400_000, "{entries} bytes, as the module's text says");
}

#[test]
fn who_guesses_keys_is_soon_refused_but_goes_on_with_its_own() {
    let (table, mut draw) = table();
    let region = region(10);
    let [known, other] = [(); 2]
        .map(|()| table.register(&region, 0..10, access(Rights::REMOTE_WRITE), &mut draw).unwrap());
    let pin = |key, peer| table.pin(key, peer, Rights::REMOTE_WRITE, 0..10).map(|_| ());
    assert_eq!(pin(known, 1), Ok(()));
    let mut rng = SplitMix64::new(5);
    let mut outcomes = [0; 2];
    for _ in 0..100_000 {
        let key = rng.next_u64() as u32;
        match pin(key, 1) {
            Err(KeyError::Unknown { .. }) => outcomes[0] += 1,
            Err(KeyError::Guesses { .. }) => outcomes[1] += 1,
            outcome => panic!("{key:#x}: {outcome:?}"),
        }
    }
    assert_eq!(outcomes, [GUESSES_MAX, 100_000 - GUESSES_MAX]);
    assert_eq!((table.guesses(), table.guesses_of(1)), (u64::from(GUESSES_MAX), GUESSES_MAX));
    assert_eq!(pin(other, 1), Err(KeyError::Guesses { key: other, peer: 1 }));
    assert_eq!(pin(known, 1), Ok(()), "it knows this one");
    assert_eq!(pin(other, 2), Ok(()), "others are not concerned");
    table.forgive();
    assert_eq!(pin(other, 1), Ok(()));
    // Packets on the way when their key is revoked are no guesses.
    assert!(table.revoke(known));
    for _ in 0..2 * GUESSES_MAX {
        assert_eq!(pin(known, 2), Err(KeyError::Revoked { key: known }));
    }
    assert_eq!(table.guesses_of(2), 0);
}

#[test]
fn nothing_is_written_after_revoke_while_workers_go_on() {
    const BYTES: usize = 512;
    let (table, mut draw) = table();
    let table = Arc::new(table);
    table.yield_by(std::thread::yield_now);
    let now = Count::new(0);
    let (stop, written) = (AtomicBool::new(false), Count::new(0));
    std::thread::scope(|scope| {
        for writer in 1..4u8 {
            let (table, now, stop, written) = (&table, &now, &stop, &written);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let key = now.load(Ordering::Relaxed) as u32;
                    if let Ok(pinned) = table.pin(key, 1, Rights::REMOTE_WRITE, 0..BYTES as u64) {
                        pinned.write(0, &[writer; BYTES]).unwrap();
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    table.forgive();
                }
            });
        }
        for round in 0..300 {
            let region = region(BYTES);
            let all = access(Rights::LOCAL | Rights::REMOTE_WRITE);
            let key = table.register(&region, 0..BYTES as u64, all, &mut draw).unwrap();
            let window =
                table.window(key, 0..BYTES as u64, access(Rights::REMOTE_WRITE), &mut draw);
            let used = if round % 2 == 0 { key } else { window.unwrap() };
            now.store(u64::from(used), Ordering::Relaxed);
            let before = written.load(Ordering::Relaxed);
            while round % 3 == 0 && written.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
            std::thread::scope(|revokers| {
                revokers.spawn(|| table.revoke(key));
                table.revoke(used);
                // The window is revoked, the key may be about to be.
                if used == key {
                    let mut seen = [0; BYTES];
                    region.read(0, &mut seen).unwrap();
                    std::thread::yield_now();
                    let mut again = [0; BYTES];
                    region.read(0, &mut again).unwrap();
                    assert_eq!(seen, again);
                }
            });
            // The vector proves that nobody holds the memory; the thread sanitizer sees writes to it.
            let mut bytes = region.into_memory().unwrap().into_vec().unwrap();
            bytes.fill(0xAA);
            std::thread::yield_now();
            assert!(bytes.iter().all(|byte| *byte == 0xAA));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(table.is_empty());
}
