//! All interleavings of workers, a reader and closings, on one receive of two packets.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p lacuna-place --release --lib loom_tests`

#![allow(unsafe_code)]

use super::RecvTable;
use crate::geometry::{Geometry, GeometryConfig, MTU_BYTES_MIN};
use crate::placement::Placement;
use crate::receive::Receive;
use crate::sync::{AtomicU32, Ordering};
use crate::writer::ChannelWriter;
use lacuna_code::{Code, Codec, Engine, EngineKind};
use lacuna_wire::{DataHeader, ImmediateFields, ImmediateSplit, Qpn};
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

fn place(writer: &mut ChannelWriter, packet: u32) -> u64 {
    let geometry = geometry();
    let fields = ImmediateFields { message: 0, packet, fragment: 0 };
    let header = DataHeader {
        dest: Qpn::new(1, 0, 0),
        psn: 0,
        ends_message: packet == 1,
        carries_immediate: false,
        address: None,
        rkey: 7,
        length: MTU as u32,
        behind: 0,
        immediate: geometry.split().pack(fields),
    };
    let mut placer = writer.burst();
    placer.place(&header, &[packet as u8 + 1; MTU], false);
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
