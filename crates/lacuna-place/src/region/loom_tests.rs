//! All interleavings of workers, a reader and revoking a key, on messages in a region.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p lacuna-place --release --lib loom_tests`

use super::*;
use crate::geometry::{Geometry, GeometryConfig, MTU_BYTES_MIN};
use crate::receive::Receive;
use crate::sync::{AtomicU32, Ordering};
use crate::table::RecvTable;
use crate::writer::ChannelWriter;
use lacuna_wire::{DataHeader, ImmediateFields, ImmediateSplit, Qpn};
use loom::thread;

const MTU: usize = MTU_BYTES_MIN as usize;
const KEY: u32 = 0x4000_0107;

/// A geometry for messages of this many packets. Chunks of a long message have two, so that none is
/// complete by one packet: counting complete chunks orders the workers.
fn geometry(packets: u64) -> Geometry {
    let chunk_packets = if packets > 2 { 2 } else { 1 };
    Geometry::new(GeometryConfig {
        mtu_bytes: MTU_BYTES_MIN,
        chunk_packets,
        stripe_packets: chunk_packets,
        channels: 2,
        generations: 2,
        split: ImmediateSplit::new(1, 23, 8).unwrap(),
        max_message_bytes: packets * MTU as u64,
        code: None,
        ..GeometryConfig::default()
    })
    .unwrap()
}

/// A key over a region, and a table with an unbound receive that is one packet shorter.
struct Posted {
    keys: Arc<KeyTable>,
    region: Arc<Region>,
    table: Arc<RecvTable>,
    writers: Vec<ChannelWriter>,
    receive: Arc<Receive>,
}

fn posted() -> Posted {
    posted_with(2)
}

fn posted_with(packets: u64) -> Posted {
    let config = RegionConfig { has_validity: true, ..RegionConfig::default() };
    let region = Region::new(vec![0; (packets as usize + 1) * MTU], config);
    let keys = Arc::new(KeyTable::new(0));
    let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
    assert_eq!(keys.register(&region, 0..region.len(), access, || KEY), Ok(KEY));
    let (table, writers) = ChannelWriter::of_table(geometry(packets), 7, 0, None);
    table.use_keys(keys.clone(), 1);
    let receive = table.post_unbound(0).unwrap();
    Posted { keys, region, table, writers, receive }
}

/// Places a packet of a message at `base`; returns whether it was placed.
fn place(writer: &mut ChannelWriter, base: u64, packet: u32) -> bool {
    let geometry = *writer.table().geometry();
    let fields = ImmediateFields { message: 0, packet, fragment: 0 };
    let header = DataHeader {
        dest: Qpn::new(1, writer.channel(), 0),
        psn: 0,
        ends_message: packet + 1 == geometry.packets(geometry.max_message_bytes()),
        carries_immediate: false,
        address: Some(base + u64::from(packet) * MTU as u64),
        rkey: KEY,
        length: MTU as u32,
        behind: 0,
        immediate: geometry.split().pack(fields),
    };
    let mut placer = writer.burst();
    placer.place(&header, &[packet as u8 + 1; MTU], false);
    placer.finish().packets == 1
}

/// Places two packets of a message, each by the worker of its channel.
fn place_both(
    writers: Vec<ChannelWriter>,
    base: u64,
    packets: [u32; 2],
) -> Vec<thread::JoinHandle<bool>> {
    let place = |mut writer: ChannelWriter| {
        let channel =
            |packet: &u32| writer.table().geometry().channel_of(0, *packet) == writer.channel();
        let packet = packets.into_iter().find(channel).unwrap();
        thread::spawn(move || place(&mut writer, base, packet))
    };
    writers.into_iter().map(place).collect()
}

/// Bounded, as loom's authors advise for three threads over a dozen atomics.
fn model(preemptions_max: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.check(check);
}

fn ends(granules: &Granules) -> Vec<(u64, u64)> {
    granules.ranges().map(|range| (range.start, range.end)).collect()
}

fn byte(region: &Region, offset: u64) -> u8 {
    let mut byte = [0];
    region.read(offset, &mut byte).unwrap();
    byte[0]
}

#[test]
fn two_workers_bind_a_receive_to_one_place() {
    model(2, || {
        let Posted { region, writers, receive, .. } = posted();
        for worker in place_both(writers, 64, [0, 1]) {
            assert!(worker.join().unwrap());
        }
        let bound = receive.bound().unwrap();
        assert_eq!((bound.address(), bound.key()), (64, KEY));
        assert!(bound.record().is_complete());
        assert_eq!([0, 64, 128].map(|offset| byte(&region, offset)), [0, 1, 2]);
        let granules = region.validity().unwrap().take(0..region.len());
        assert_eq!(ends(&granules), [(64, 192)]);
    });
}

#[test]
fn a_granule_of_two_packets_is_marked_by_at_least_one_worker() {
    model(2, || {
        // Two packets whose bits are in different words.
        let Posted { region, writers, receive, .. } = posted_with(66);
        for worker in place_both(writers, 32, [63, 64]) {
            assert!(worker.join().unwrap());
        }
        assert_eq!(receive.bound().map(Bound::address), Some(32));
        // They begin and end within granules, and have one in common.
        let granules = region.validity().unwrap().copy(0..region.len());
        assert_eq!(ends(&granules), [(64 * 64, 65 * 64)]);
    });
}

#[test]
fn who_takes_a_mark_sees_the_bytes() {
    model(3, || {
        let Posted { region, mut writers, .. } = posted();
        let worker = thread::spawn(move || place(&mut writers[0], 0, 0));
        let validity = region.validity().unwrap();
        let here = validity.take(0..region.len());
        if here.contains(0) {
            assert_eq!(byte(&region, 0), 1);
        }
        assert!(worker.join().unwrap());
        let later = validity.take(0..region.len());
        assert_ne!(here.contains(0), later.contains(0), "the mark is taken once");
        assert_eq!(byte(&region, 0), 1);
    });
}

#[test]
fn of_two_readers_one_takes_the_mark() {
    model(3, || {
        let Posted { region, mut writers, .. } = posted();
        let worker = thread::spawn(move || place(&mut writers[0], 0, 0));
        let reader = {
            let region = region.clone();
            thread::spawn(move || {
                let has = region.validity().unwrap().take(0..region.len()).contains(0);
                assert!(!has || byte(&region, 0) == 1);
                has
            })
        };
        let here = region.validity().unwrap().take(0..region.len()).contains(0);
        assert!(worker.join().unwrap());
        let there = reader.join().unwrap();
        let later = region.validity().unwrap().take(0..region.len()).contains(0);
        assert_eq!(u8::from(here) + u8::from(there) + u8::from(later), 1);
    });
}

#[test]
fn nothing_is_placed_after_revoke_returned() {
    model(3, || {
        let Posted { keys, region, mut writers, receive, .. } = posted();
        let worker = thread::spawn(move || place(&mut writers[0], 64, 0));
        assert!(keys.revoke(KEY));
        // The receive is open and may be bound, but it does not hold the region.
        let bytes = region.into_memory().unwrap().into_vec().unwrap();
        let is_placed = worker.join().unwrap();
        assert_eq!(bytes[64], u8::from(is_placed));
        assert_eq!(receive.record().has_packet(0), is_placed);
    });
}

#[test]
fn nothing_is_placed_after_close_returned() {
    model(3, || {
        let Posted { region, table, mut writers, .. } = posted();
        let worker = thread::spawn(move || place(&mut writers[0], 64, 0));
        let receive = table.close(0).expect("posted above");
        // Others may write the region under the key, but not for this message.
        region.own();
        let is_placed = receive.record().has_packet(0);
        assert_eq!(byte(&region, 64), u8::from(is_placed));
        assert_eq!(worker.join().unwrap(), is_placed);
    });
}

#[test]
fn a_key_that_comes_again_is_not_the_one_of_the_message() {
    model(2, || {
        let Posted { keys, region, mut writers, receive, .. } = posted();
        assert!(place(&mut writers[0], 64, 0));
        // Orders nothing: it only makes loom explore packets before and after.
        let is_registered = Arc::new(AtomicU32::new(0));
        let worker = {
            let is_registered = is_registered.clone();
            thread::spawn(move || {
                let seen = is_registered.load(Ordering::Relaxed);
                (seen, place(&mut writers[1], 64, 1))
            })
        };
        assert!(keys.revoke(KEY));
        drop(region);
        let other = Region::new(vec![0; 3 * MTU], RegionConfig::default());
        let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
        // The entry's last key is never drawn again, another key has its turn.
        let next = [KEY ^ 1, KEY];
        for key in next {
            assert_eq!(keys.register(&other, 0..other.len(), access, || key), Ok(key));
            if key != KEY {
                assert!(keys.revoke(key));
            }
        }
        is_registered.store(1, Ordering::Relaxed);
        let (seen, is_placed) = worker.join().unwrap();
        assert!(seen == 0 || !is_placed);
        assert_eq!(receive.record().has_packet(1), is_placed);
        assert!(keys.revoke(KEY));
        other.own();
        assert_eq!(byte(&other, 128), 0, "the message was bound to the other memory");
    });
}
