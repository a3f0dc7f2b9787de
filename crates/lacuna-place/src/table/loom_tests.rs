//! All interleavings of workers, a reader and closings, on one receive of two packets.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p lacuna-place --release --lib loom_tests`

#![allow(unsafe_code)]

use super::RecvTable;
use crate::geometry::{Geometry, GeometryConfig, MTU_BYTES_MIN};
use crate::placement::Placement;
use crate::reason::Reason;
use crate::receive::Receive;
use crate::region::{Region, RegionConfig, Slices, Stride};
use crate::sync::{AtomicU32, Mutex, Ordering};
use crate::writer::ChannelWriter;
use lacuna_code::{Code, Codec, Engine, EngineKind};
use lacuna_wire::{DataHeader, ImmediateFields, ImmediateSplit, Qpn, Seal};
use loom::thread;
use std::sync::Arc;

const MTU: usize = MTU_BYTES_MIN as usize;

fn geometry() -> Geometry {
    Geometry::new(GeometryConfig {
        mtu_bytes: MTU_BYTES_MIN,
        chunk_packets: 1,
        stripe_packets: 1,
        channels: 2,
        generations: 2,
        split: ImmediateSplit::new(1, 23, 8).unwrap(),
        max_message_bytes: 2 * MTU as u64,
        code: None,
        ..GeometryConfig::default()
    })
    .unwrap()
}

/// A table with message 0 posted over two packets of memory.
fn posted() -> (Arc<RecvTable>, Vec<ChannelWriter>, Arc<Receive>, Placement) {
    let (table, writers) = ChannelWriter::of_table(geometry(), 7, 0, None);
    let [memory, posted] = Placement::from_vec(vec![0; 2 * MTU]).twice();
    let receive = table.post(0, posted).unwrap();
    (table, writers, receive, memory)
}

/// What memory held before.
const OLD: u8 = 0xEE;

/// The same, over memory that held something.
fn posted_over_old() -> (Arc<RecvTable>, Vec<ChannelWriter>, Arc<Receive>, Placement) {
    let (table, writers) = ChannelWriter::of_table(geometry(), 7, 0, None);
    let [memory, posted] = Placement::from_vec(vec![OLD; 2 * MTU]).twice();
    let receive = table.post(0, posted).unwrap();
    (table, writers, receive, memory)
}

fn header(packet: u32) -> DataHeader {
    let geometry = geometry();
    let fields = ImmediateFields { message: 0, packet, fragment: 0 };
    DataHeader {
        dest: Qpn::new(1, 0, 0),
        psn: 0,
        ends_message: packet == 1,
        carries_immediate: false,
        address: None,
        rkey: 7,
        length: MTU as u32,
        behind: 0,
        immediate: geometry.split().pack(fields),
    }
}

fn place(writer: &mut ChannelWriter, packet: u32) -> u64 {
    let mut placer = writer.burst();
    placer.place(&header(packet), &[packet as u8 + 1; MTU], false);
    placer.finish().packets
}

/// The same as it comes from a socket: the payload is checked while it is copied. A damaged packet is found
/// out when it has been written.
fn check_and_place(writer: &mut ChannelWriter, packet: u32, is_damaged: bool) -> u64 {
    let header = header(packet);
    let payload = [packet as u8 + 1; MTU];
    let mut bytes = vec![0; header.header_bytes()];
    header.emit(&mut bytes);
    let mut trailer = vec![0; Seal::default().bytes()];
    Seal::default().emit_trailer(&header, &[&bytes, &payload], &mut trailer);
    let at = bytes.len();
    bytes.extend_from_slice(&payload);
    bytes.extend_from_slice(&trailer);
    bytes[at + 5] ^= u8::from(is_damaged);
    let mut placer = writer.burst();
    // Without an address, damage is counted as a wrong key.
    placer.check_and_place(&bytes, &header, &bytes[at..at + MTU], false).unwrap();
    placer.finish().packets
}

/// Tells loom that this thread alone owns the memory, and returns its first bytes.
fn own(memory: &Placement) -> [u8; 2] {
    // SAFETY: the tests are about whether nobody else accesses it; loom reports if one does.
    unsafe {
        let seen = [0, MTU].map(|start| memory.read(start, MTU).unwrap()[0]);
        memory.write(0, &[0xAA; 2 * MTU]);
        seen
    }
}

/// A table with message 0 posted over two packets. One channel carries them and a parity packet that
/// can repair either of them.
fn coded() -> (Arc<RecvTable>, ChannelWriter, Arc<Receive>, Placement) {
    let code = Code::mds(2, 1).unwrap();
    let config = GeometryConfig { code: Some(code), channels: 1, ..*geometry().config() };
    let geometry = Geometry::new(config).unwrap();
    let codec = Arc::new(Codec::with_engine(code, Engine::new(EngineKind::Naive).unwrap()));
    let (table, mut writers) = ChannelWriter::of_table(geometry, 7, 0, Some(&codec));
    let [memory, posted] = Placement::from_vec(vec![0; 2 * MTU]).twice();
    let receive = table.post(0, posted).unwrap();
    (table, writers.swap_remove(0), receive, memory)
}

/// Places packet 0 and the parity of packets 0 and 1, so that packet 1 is repaired.
fn place_and_repair(writer: &mut ChannelWriter) -> u64 {
    let code = Code::mds(2, 1).unwrap();
    let codec = Codec::with_engine(code, Engine::new(EngineKind::Naive).unwrap());
    let mut parity = [[0; MTU]];
    codec.encode(&[[1u8; MTU], [2; MTU]][..], &mut parity[..]).unwrap();
    let geometry = *writer.table().geometry();
    let base = geometry.layout().unwrap().base();
    let mut placer = writer.burst();
    for (packet, address, payload) in [(0, None, [1; MTU]), (base, Some(2 * MTU as u64), parity[0])]
    {
        let fields = ImmediateFields { message: 0, packet, fragment: 0 };
        let header = DataHeader {
            dest: Qpn::new(1, 0, 0),
            psn: 0,
            ends_message: packet == base,
            carries_immediate: false,
            address,
            rkey: 7,
            length: MTU as u32,
            behind: 0,
            immediate: geometry.split().pack(fields),
        };
        placer.place(&header, &payload, false);
    }
    placer.finish().repaired_packets
}

/// Spawns a thread with more stack than loom gives: the codec lists a block's chunks on it.
fn repairing(mut writer: ChannelWriter) -> thread::JoinHandle<u64> {
    let thread = thread::Builder::new().stack_size(1 << 20);
    thread.spawn(move || place_and_repair(&mut writer)).unwrap()
}

/// Bounded, as loom's authors advise for three threads over a dozen atomics.
fn model(preemptions_max: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.check(check);
}

#[test]
fn a_set_chunk_bit_means_that_its_bytes_are_there() {
    model(3, || {
        let (_table, writers, receive, _) = posted();
        let workers: Vec<_> = writers
            .into_iter()
            .enumerate()
            .map(|(packet, mut writer)| thread::spawn(move || place(&mut writer, packet as u32)))
            .collect();
        for chunk in [0u32, 1] {
            if let Some(bytes) = receive.chunk(chunk) {
                assert_eq!(bytes, [chunk as u8 + 1; MTU]);
            }
        }
        if receive.is_complete() {
            assert_eq!(receive.chunk(0).map(|bytes| bytes[0]), Some(1));
            assert_eq!(receive.chunk(1).map(|bytes| bytes[0]), Some(2));
        }
        for worker in workers {
            assert_eq!(worker.join().unwrap(), 1);
        }
        assert!(receive.is_complete());
    });
}

#[test]
fn nothing_is_placed_after_close_returned() {
    model(3, || {
        let (table, writers, receive, memory) = posted();
        let workers: Vec<_> = writers
            .into_iter()
            .enumerate()
            .map(|(packet, mut writer)| thread::spawn(move || place(&mut writer, packet as u32)))
            .collect();
        drop(table.close(0).expect("posted above"));
        let seen = own(&memory);
        for (packet, byte) in seen.into_iter().enumerate() {
            let has = receive.has_packet(packet as u32);
            assert_eq!(byte, if has { packet as u8 + 1 } else { 0 });
        }
        for worker in workers {
            worker.join().unwrap();
        }
        // SAFETY: all other threads have ended.
        assert_eq!(unsafe { memory.read(0, 2 * MTU) }, Some(&[0xAA; 2 * MTU][..]));
    });
}

#[test]
fn a_repaired_chunk_is_seen_with_its_bytes() {
    model(3, || {
        let (_table, writer, receive, _) = coded();
        let worker = repairing(writer);
        if let Some(bytes) = receive.chunk(1) {
            assert_eq!(bytes, [2; MTU]);
        }
        if receive.is_complete() {
            assert_eq!(receive.chunk(1), Some(&[2; MTU][..]));
        }
        assert_eq!(worker.join().unwrap(), 1);
        assert!(receive.is_complete());
    });
}

#[test]
fn nothing_is_repaired_after_close_returned() {
    model(3, || {
        let (table, writer, receive, memory) = coded();
        let worker = repairing(writer);
        drop(table.close(0).expect("posted above"));
        let seen = own(&memory);
        for (packet, byte) in seen.into_iter().enumerate() {
            let has = receive.has_packet(packet as u32);
            assert_eq!(byte, if has { packet as u8 + 1 } else { 0 });
        }
        worker.join().unwrap();
        // SAFETY: all other threads have ended.
        assert_eq!(unsafe { memory.read(0, 2 * MTU) }, Some(&[0xAA; 2 * MTU][..]));
    });
}

#[test]
fn who_closes_second_may_have_the_buffer_too_when_close_returns() {
    // With more, loom explores two waiting threads that yield to each other for ever.
    model(2, || {
        let (table, mut writers, _receive, memory) = posted();
        let mut writer = writers.swap_remove(0);
        let worker = thread::spawn(move || place(&mut writer, 0));
        let other = {
            let table = table.clone();
            thread::spawn(move || table.close(0).is_some())
        };
        let here = table.close(0).is_some();
        own(&memory);
        worker.join().unwrap();
        assert_ne!(other.join().unwrap(), here, "one of them got the receive");
    });
}

#[test]
fn who_finds_it_closed_may_have_the_buffer() {
    loom::model(|| {
        let (table, mut writers, _receive, memory) = posted();
        let mut writer = writers.swap_remove(0);
        // Orders nothing: it only makes loom explore one close after the other.
        let is_closed = Arc::new(AtomicU32::new(0));
        let other = {
            let (table, is_closed) = (table.clone(), is_closed.clone());
            thread::spawn(move || {
                place(&mut writer, 0);
                table.close(0).expect("posted above");
                is_closed.store(1, Ordering::Relaxed);
            })
        };
        if is_closed.load(Ordering::Relaxed) == 1 {
            assert!(table.close(0).is_none());
            own(&memory);
        }
        other.join().unwrap();
    });
}

/// Ends the receive as the protocol does when its deadline has passed: under the queue pair's lock.
fn end(table: &RecvTable, qp: &Mutex<()>) {
    let _held = qp.lock().unwrap();
    table.close(0).expect("posted above").end_by(Reason::Deadline);
}

#[test]
fn of_a_receive_that_was_ended_what_came_is_right_and_what_is_missing_is_zeroed() {
    model(2, || {
        let (table, writers, mut receive, memory) = posted_over_old();
        // Taken by the protocol, and by workers when their burst is placed.
        let qp = loom::sync::Arc::new(Mutex::new(()));
        let workers: Vec<_> = writers
            .into_iter()
            .enumerate()
            .map(|(packet, mut writer)| {
                let qp = qp.clone();
                thread::spawn(move || {
                    let placed = check_and_place(&mut writer, packet as u32, false);
                    drop(qp.lock().unwrap());
                    placed
                })
            })
            .collect();
        end(&table, &qp);
        let owned = Arc::get_mut(&mut receive).expect("nobody else has it once it is closed");
        let zeroed = owned.zero_missing();
        let here = [0, 1].map(|packet| owned.has_packet(packet));
        let seen = own(&memory);
        for packet in [0, 1] {
            assert_eq!(seen[packet], if here[packet] { packet as u8 + 1 } else { 0 });
        }
        assert_eq!(zeroed, here.iter().filter(|is_here| !**is_here).count() as u64 * MTU as u64);
        for (worker, is_here) in workers.into_iter().zip(here) {
            assert_eq!(worker.join().unwrap() == 1, is_here);
        }
        assert_eq!([0, 1].map(|packet| receive.has_packet(packet)), here, "the record stays");
        // SAFETY: all other threads have ended.
        assert_eq!(unsafe { memory.read(0, 2 * MTU) }, Some(&[0xAA; 2 * MTU][..]));
    });
}

#[test]
fn who_sees_the_reason_has_the_record_and_the_memory_as_they_stay() {
    model(3, || {
        let (table, mut writers, receive, memory) = posted_over_old();
        let mut writer = writers.swap_remove(0);
        let worker = thread::spawn(move || check_and_place(&mut writer, 0, false));
        let protocol = thread::spawn(move || end(&table, &Mutex::new(())));
        if receive.reason() == Some(Reason::Deadline) {
            let is_here = receive.has_packet(0);
            assert_eq!(own(&memory), [if is_here { 1 } else { OLD }, OLD]);
            assert_eq!(worker.join().unwrap() == 1, is_here);
            assert_eq!(receive.has_packet(0), is_here);
        } else {
            worker.join().unwrap();
        }
        protocol.join().unwrap();
    });
}

#[test]
fn of_a_damaged_packet_nothing_is_left_whenever_the_receive_is_ended() {
    model(3, || {
        let (table, mut writers, mut receive, memory) = posted_over_old();
        let mut writer = writers.swap_remove(0);
        let worker = thread::spawn(move || check_and_place(&mut writer, 0, true));
        end(&table, &Mutex::new(()));
        assert!(!receive.has_packet(0) && !receive.has_packet(1));
        // SAFETY: nobody accesses it after the end, or loom reports it.
        let before = unsafe { memory.read(0, MTU) }.unwrap().to_vec();
        assert!(
            before == [OLD; MTU] || before == [0; MTU],
            "the packet came too late, or was cleared"
        );
        let owned = Arc::get_mut(&mut receive).expect("nobody else has it once it is closed");
        assert_eq!(owned.zero_missing(), 2 * MTU as u64);
        assert_eq!(own(&memory), [0, 0]);
        assert_eq!(worker.join().unwrap(), 0);
        // SAFETY: all other threads have ended.
        assert_eq!(unsafe { memory.read(0, 2 * MTU) }, Some(&[0xAA; 2 * MTU][..]));
    });
}

#[test]
fn the_same_holds_for_parts_of_regions() {
    model(2, || {
        let region = Region::new(vec![0; 3 * MTU], RegionConfig::default());
        region.write(0, &[OLD; 3 * MTU]).unwrap();
        let (table, writers) = ChannelWriter::of_table(geometry(), 7, 0, None);
        // The second packet first, with a gap between.
        let parts = [2 * MTU as u64..3 * MTU as u64, 0..MTU as u64];
        let slices =
            Slices::new(parts.map(|range| (region.clone(), Stride::of_range(range)))).unwrap();
        let mut receive = table.post(0, Placement::slices(slices)).unwrap();
        let workers: Vec<_> = writers
            .into_iter()
            .enumerate()
            .map(|(packet, mut writer)| {
                thread::spawn(move || check_and_place(&mut writer, packet as u32, false))
            })
            .collect();
        end(&table, &Mutex::new(()));
        let owned = Arc::get_mut(&mut receive).expect("nobody else has it once it is closed");
        owned.zero_missing();
        let here = [0, 1].map(|packet| owned.has_packet(packet));
        region.own();
        for (packet, start) in [(0, 2 * MTU), (1, 0), (2, MTU)] {
            let mut bytes = [0; MTU];
            region.read(start as u64, &mut bytes).unwrap();
            let expected = match packet {
                2 => OLD,
                packet if here[packet] => packet as u8 + 1,
                _ => 0,
            };
            assert_eq!(bytes, [expected; MTU]);
        }
        for (worker, is_here) in workers.into_iter().zip(here) {
            assert_eq!(worker.join().unwrap() == 1, is_here);
        }
    });
}
