//! Several workers placing at once while a reader watches, and closing while they place. Run under
//! the address and the thread sanitizer too:
//!
//! ```text
//! RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std -p lacuna-place --lib \
//!     --target x86_64-unknown-linux-gnu table::
//! ```

use crate::discard::Discard;
use crate::geometry::{Geometry, GeometryConfig};
use crate::placement::Placement;
use crate::summary::BurstSummary;
use crate::writer::ChannelWriter;
use lacuna_link::SplitMix64;
use lacuna_wire::{DataHeader, ImmediateFields, ImmediateSplit, Qpn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const MTU: usize = 256;

fn geometry(channels: u8) -> Geometry {
    Geometry::new(GeometryConfig {
        mtu_bytes: MTU as u32,
        chunk_packets: 3,
        stripe_packets: 3,
        channels,
        generations: 4,
        split: ImmediateSplit::new(1, 23, 8).unwrap(),
        max_message_bytes: 1 << 20,
        code: None,
        ..GeometryConfig::default()
    })
    .unwrap()
}

fn byte(number: u64, packet: u32) -> u8 {
    (number as u8).wrapping_mul(31) ^ packet as u8 | 1
}

fn header(geometry: &Geometry, number: u64, packet: u32, packets: u32) -> DataHeader {
    let slot = geometry.slot_of(number);
    let fields = ImmediateFields { message: slot, packet, fragment: 0 };
    DataHeader {
        dest: Qpn::new(1, geometry.channel_of(slot, packet), geometry.generation_of(number)),
        psn: packet,
        ends_message: packet + 1 == packets,
        carries_immediate: false,
        // The table treats data and parity packets alike.
        address: packet
            .is_multiple_of(3)
            .then_some(geometry.slot_address(slot) + u64::from(packet) * MTU as u64),
        rkey: 7,
        length: MTU as u32,
        behind: 0,
        immediate: geometry.split().pack(fields),
    }
}

/// Places the writer's packets of message `number` in random order, in bursts.
fn place_all(
    writer: &mut ChannelWriter,
    number: u64,
    packets: u32,
    rng: &mut SplitMix64,
) -> BurstSummary {
    let geometry = *writer.table().geometry();
    let slot = geometry.slot_of(number);
    let mut own: Vec<u32> =
        (0..packets).filter(|p| geometry.channel_of(slot, *p) == writer.channel()).collect();
    for i in (1..own.len()).rev() {
        own.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let mut total = BurstSummary::default();
    for burst in own.chunks(8) {
        let mut placer = writer.burst();
        for packet in burst {
            let payload = [byte(number, *packet); MTU];
            placer.place(&header(&geometry, number, *packet, packets), &payload, false);
        }
        let summary = placer.finish();
        total.packets += summary.packets;
        total.chunks += summary.chunks;
        for (sum, count) in total.discarded.iter_mut().zip(summary.discarded) {
            *sum += count;
        }
    }
    total
}

#[test]
fn a_reader_finds_right_bytes_under_every_set_bit_while_workers_place() {
    const PACKETS: u32 = 400;
    for channels in [2u8, 3] {
        let geometry = geometry(channels);
        let (table, mut writers) = ChannelWriter::of_table(geometry, 7, 0, None);
        for number in 0..6u64 {
            let placement = Placement::from_vec(vec![0; PACKETS as usize * MTU]);
            let receive = table.post(number, placement).unwrap();
            std::thread::scope(|scope| {
                for writer in &mut writers {
                    scope.spawn(move || {
                        let mut rng = SplitMix64::new(number ^ u64::from(writer.channel()));
                        place_all(writer, number, PACKETS, &mut rng);
                    });
                }
                while !receive.is_complete() {
                    for chunk in 0..receive.chunks() {
                        let Some(bytes) = receive.chunk(chunk) else { continue };
                        for (i, packet) in bytes.chunks(MTU).enumerate() {
                            let expected = byte(number, chunk * 3 + i as u32);
                            assert!(packet.iter().all(|b| *b == expected), "chunk {chunk}");
                        }
                    }
                    std::thread::yield_now();
                }
            });
            assert!(table.close(number).is_some());
        }
    }
}

#[test]
fn a_piece_of_an_old_message_completes_no_packet_of_one_with_the_same_name() {
    let geometry = geometry(1);
    let (table, mut writers) = ChannelWriter::of_table(geometry, 7, 0, None);
    let mut place = |number: u64, bytes: std::ops::Range<usize>| {
        let address = Some(geometry.slot_address(0) + bytes.start as u64);
        let behind = (MTU - bytes.end) as u32;
        let piece = DataHeader { address, behind, ..header(&geometry, number, 0, 2) };
        let mut placer = writers[0].burst();
        placer.place(&piece, &vec![byte(number, 0); bytes.len()], false);
        placer.finish();
    };
    // All messages of the first slot, until the names come round.
    let numbers: Vec<u64> = (0..=8).filter(|number| geometry.slot_of(*number) == 0).collect();
    for number in &numbers[..numbers.len() - 1] {
        table.post(*number, Placement::from_vec(vec![0; 2 * MTU])).unwrap();
        place(*number, 128..MTU);
        assert!(table.close(*number).is_some());
    }
    let number = numbers[numbers.len() - 1];
    assert_eq!(geometry.generation_of(number), geometry.generation_of(0));
    let receive = table.post(number, Placement::from_vec(vec![0; 2 * MTU])).unwrap();
    place(number, 0..128);
    assert_eq!(receive.placed_packets(), 0, "half of the packet is missing");
    place(number, 128..MTU);
    assert_eq!(receive.placed_packets(), 1);
}

#[test]
fn nothing_is_written_after_close_while_workers_go_on_placing() {
    const PACKETS: u32 = 60;
    let geometry = geometry(2);
    let (table, mut writers) = ChannelWriter::of_table(geometry, 7, 0, None);
    let stop = AtomicBool::new(false);
    // Late packets of each worker.
    let late = [const { AtomicU64::new(0) }; 2];
    std::thread::scope(|scope| {
        for writer in &mut writers {
            let (stop, late) = (&stop, &late[usize::from(writer.channel())]);
            scope.spawn(move || {
                let mut rng = SplitMix64::new(u64::from(writer.channel()));
                while !stop.load(Ordering::Relaxed) {
                    for number in 0..8 {
                        let summary = place_all(writer, number, PACKETS, &mut rng);
                        late.fetch_add(summary.discarded[Discard::Late.index()], Ordering::Relaxed);
                    }
                }
            });
        }
        for number in 0..400u64 {
            let [placement, posted] = Placement::from_vec(vec![0; PACKETS as usize * MTU]).twice();
            let receive = table.post(number, posted).unwrap();
            while number % 3 == 0 && receive.chunks_done() < 2 {
                std::thread::yield_now();
            }
            drop(table.close(number).expect("posted above"));
            let has: Vec<bool> = (0..PACKETS).map(|packet| receive.has_packet(packet)).collect();
            drop(receive);
            // Only the placement is left: the memory is this thread's alone, which the vector
            // proves; the thread sanitizer sees any write that is not.
            let mut bytes = placement.into_vec().expect("nobody holds a closed receive");
            for (packet, has) in has.into_iter().enumerate() {
                let range = packet * MTU..(packet + 1) * MTU;
                let expected = if has { byte(number % 8, packet as u32) } else { 0 };
                assert!(bytes[range].iter().all(|b| *b == expected), "{number} {packet}");
            }
            bytes.fill(0xAA);
            // Closes now and then until each worker has had late packets.
            let tried = || late.each_ref().map(|late| late.load(Ordering::Relaxed));
            let before = tried();
            let have_tried = || tried().into_iter().zip(before).all(|(now, before)| now > before);
            std::thread::yield_now();
            while number % 16 == 5 && !have_tried() {
                std::thread::yield_now();
            }
            assert!(bytes.iter().all(|b| *b == 0xAA));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_number_whose_slot_went_on_closes_nothing() {
    let geometry = geometry(1);
    let (table, _writers) = ChannelWriter::of_table(geometry, 7, 0, None);
    let post = |number| {
        let placement = Placement::from_vec(vec![0; MTU]);
        table.post(number, placement).is_some()
    };
    assert!(post(0));
    assert!(table.close(0).is_some());
    assert!(post(2));
    assert!(table.close(0).is_none(), "slot 0 holds message 2 now");
    assert_eq!(table.close(2).map(|receive| receive.number()), Some(2));
}

#[test]
fn a_stray_copy_is_no_reordering() {
    let geometry = geometry(1);
    let (table, mut writers) = ChannelWriter::of_table(geometry, 7, 0, None);
    let placement = Placement::from_vec(vec![0; 60 * MTU]);
    assert!(table.post(0, placement).is_some());
    let mut placer = writers[0].burst();
    let mut place = |packet, psn| {
        let header = DataHeader { psn, ..header(&geometry, 0, packet, 60) };
        placer.place(&header, &[1; MTU], false);
    };
    place(0, 0);
    place(2, 50);
    place(0, 0);
    place(1, 45);
    let summary = placer.finish();
    assert_eq!((summary.reorder_packets, summary.duplicates, summary.next_psn), (5, 1, 51));
}
