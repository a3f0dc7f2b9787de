//! A hostile peer of a coded connection: parity that lies about the message, about itself, or
//! about its data. Protects invariants 1, 2 and 4 as `hostile.rs` does for data.

mod common;

use common::{MS, SECOND, data_towards, inject, post, take};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_place::discard::Discard;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::parity::Layout;
use lacuna_proto::qp::{ChannelStats, SendId};
use lacuna_wire::{DataHeader, ImmediateSplit};

const MTU: usize = 256;
/// Sixteen packets: two submessages of four chunks of two packets.
const LEN: usize = 16 * MTU;

fn coded() -> Pair {
    let default = PairConfig::default();
    let geometry = GeometryConfig {
        mtu_bytes: MTU as u32,
        chunk_packets: 2,
        split: ImmediateSplit::new(3, 21, 8).unwrap(),
        max_message_bytes: 2 * LEN as u64,
        ..default.geometry
    };
    let mode = "ec:mds:4:2".parse().unwrap();
    let link = Link { delay_ns: MS, ..Link::default() };
    let mut pair = Pair::new(PairConfig { geometry, mode, ..default }, link);
    pair.recorded = Some(Vec::new());
    pair
}

fn layout(pair: &Pair) -> Layout {
    *pair.b.qp().config().geometry.layout().expect("a coded pair")
}

fn number(pair: &Pair, header: &DataHeader) -> u32 {
    pair.b.qp().config().geometry.split().unpack(header.immediate).packet
}

fn stats(pair: &Pair) -> ChannelStats {
    pair.b.qp().stats().channels[0]
}

/// Sends a message while the link is dark: its packets are recorded, and none has arrived.
fn unseen(pair: &mut Pair, data: &[u8]) -> (SendId, Vec<(DataHeader, Vec<u8>)>) {
    pair.run_for(5 * MS);
    pair.link.dark = true;
    let id = pair.send(Side::A, data.to_vec(), None);
    pair.run_until(0, |_| true);
    let packets = data_towards(pair, Side::B);
    (id, packets.into_iter().map(|(_, header, payload)| (header, payload)).collect())
}

fn arrive(pair: &mut Pair, header: &DataHeader, payload: &[u8]) {
    inject(pair, Side::B, 0, header, payload);
    pair.run_until(0, |_| true);
}

#[test]
fn parity_whose_length_number_or_address_lies_sets_nothing() {
    let mut pair = coded();
    let held = post(&mut pair, Side::B, vec![0; LEN + 100]);
    let (_, packets) = unseen(&mut pair, &Rng::new(1).bytes(LEN));
    let base = layout(&pair).base();
    let (header, payload) =
        packets.iter().find(|(header, _)| number(&pair, header) == base).unwrap().clone();
    let address = header.address.expect("parity has an address");
    let at = |address: u64| DataHeader { address: Some(address), ..header };
    let lies = [
        // No length at all.
        (DataHeader { address: None, ..header }, payload.clone()),
        // Another length of the message than any payload of this row has.
        (at(address - LEN as u64 + 100), payload.clone()),
        // Behind the receive.
        (at(address + 1000), payload.clone()),
        // Before the slot.
        (at(u64::MAX - 5), payload.clone()),
        // A message that goes on, but does not fill its slot.
        (DataHeader { ends_message: false, ..header }, payload.clone()),
        // More payload than a packet has, in one or in pieces, or none.
        (header, [&payload[..], &[0; 4]].concat()),
        (DataHeader { behind: 8, ..header }, payload[..MTU - 4].to_vec()),
        (DataHeader { behind: u32::MAX - 8, ..header }, vec![0; 4]),
        (header, Vec::new()),
        // Parity of a submessage, and of a chunk, that the message does not have.
        (
            DataHeader { immediate: header.immediate + (8 << 8), ..at(address + 8 * 256) },
            payload.clone(),
        ),
        (DataHeader { immediate: header.immediate + (0xF_FFFF << 8), ..header }, payload.clone()),
        (DataHeader { rkey: header.rkey ^ 1, ..header }, payload.clone()),
    ];
    for (index, (lie, payload)) in lies.iter().enumerate() {
        let before = stats(&pair);
        arrive(&mut pair, lie, payload);
        let after = stats(&pair);
        assert_eq!(after.packets, before.packets, "lie {index}");
        let refused = |stats: &ChannelStats| stats.discarded.iter().sum::<u64>();
        assert_eq!(refused(&after), refused(&before) + 1, "lie {index}");
    }
    assert_eq!(held.posted.length_bytes(), None, "nothing was learnt from lies");
    arrive(&mut pair, &header, &payload);
    assert_eq!(held.posted.length_bytes(), Some(LEN as u64), "one honest packet says the length");
    // Now that the length is known, another one contradicts it.
    let shorter = at(address - 8 * MTU as u64);
    let before = stats(&pair).discarded[Discard::Inconsistent.index()];
    arrive(&mut pair, &shorter, &payload);
    assert_eq!(stats(&pair).discarded[Discard::Inconsistent.index()], before + 1);
    assert_eq!(held.posted.length_bytes(), Some(LEN as u64));
}

#[test]
fn false_parity_changes_nothing_that_came() {
    let mut pair = coded();
    let data = Rng::new(2).bytes(LEN);
    let held = post(&mut pair, Side::B, vec![0; LEN]);
    let (_, packets) = unseen(&mut pair, &data);
    let layout = layout(&pair);
    // All data but packet 3, then parity of nonsense.
    for (header, payload) in &packets {
        let number = number(&pair, header);
        if !layout.is_parity(number) && number != 3 {
            arrive(&mut pair, header, payload);
        } else if layout.is_parity(number) {
            arrive(&mut pair, header, &vec![0xEE; payload.len()]);
        }
    }
    let bytes = take(&mut pair, Side::B, held);
    for (packet, (is, was)) in bytes.chunks(MTU).zip(data.chunks(MTU)).enumerate() {
        assert_eq!(is == was, packet != 3, "packet {packet}");
    }
    assert_eq!(stats(&pair).repaired_packets, 1);
}

#[test]
fn parity_again_and_again_is_counted_and_kept_once() {
    let mut pair = coded();
    let data = Rng::new(3).bytes(LEN);
    let held = post(&mut pair, Side::B, vec![0; LEN]);
    let (id, packets) = unseen(&mut pair, &data);
    let layout = layout(&pair);
    let parity: Vec<_> = packets
        .iter()
        .filter(|(header, _)| layout.is_parity(number(&pair, header)))
        .cloned()
        .collect();
    for _ in 0..50 {
        for (header, payload) in &parity {
            arrive(&mut pair, header, payload);
        }
    }
    let seen = stats(&pair);
    assert_eq!((seen.packets, seen.duplicates), (8, 49 * 8));
    assert_eq!(seen.repaired_packets, 0, "each row misses four, and has two");
    // Two packets of each row make the others.
    for (header, payload) in &packets {
        if [0, 1, 2, 3, 8, 9, 12, 13].contains(&number(&pair, header)) {
            arrive(&mut pair, header, payload);
        }
    }
    assert_eq!(stats(&pair).repaired_packets, 8);
    pair.link.dark = false;
    assert!(pair.run_until(10 * SECOND, |pair| pair.status(Side::A, id).outcome == Some(Ok(()))));
    assert!(take(&mut pair, Side::B, held) == data);
}

#[test]
fn a_copy_of_what_was_repaired_is_a_duplicate() {
    let mut pair = coded();
    let data = Rng::new(4).bytes(LEN);
    let held = post(&mut pair, Side::B, vec![0; LEN]);
    let (_, packets) = unseen(&mut pair, &data);
    let (late, others): (Vec<_>, Vec<_>) =
        packets.into_iter().partition(|(header, _)| number(&pair, header) == 5);
    for (header, payload) in &others {
        arrive(&mut pair, header, payload);
    }
    assert!(held.posted.is_complete());
    let (header, payload) = &late[0];
    arrive(&mut pair, header, &vec![0xEE; payload.len()]);
    assert_eq!(stats(&pair).duplicates, 1);
    assert!(take(&mut pair, Side::B, held) == data);
}

#[test]
fn parity_of_a_closed_receive_touches_nothing_and_is_no_fault() {
    let mut pair = coded();
    let data = Rng::new(5).bytes(LEN);
    let held = post(&mut pair, Side::B, vec![0; LEN]);
    let (_, packets) = unseen(&mut pair, &data);
    let layout = layout(&pair);
    let (parity, data_packets): (Vec<_>, Vec<_>) =
        packets.into_iter().partition(|(header, _)| layout.is_parity(number(&pair, header)));
    for (header, payload) in &data_packets[1..] {
        arrive(&mut pair, header, payload);
    }
    let mut buffer = take(&mut pair, Side::B, held);
    let copy = buffer.clone();
    for (header, payload) in &parity {
        arrive(&mut pair, header, payload);
    }
    assert!(buffer == copy);
    assert_eq!(stats(&pair).discarded.iter().sum::<u64>(), 0);
    // The next receive of the same memory, in another slot and then in the same one again.
    for _ in 0..8 {
        buffer.fill(0);
        let held = post(&mut pair, Side::B, buffer);
        for (header, payload) in &parity {
            arrive(&mut pair, header, payload);
        }
        assert_eq!(held.posted.length_bytes(), None);
        buffer = take(&mut pair, Side::B, held);
        assert!(buffer.iter().all(|byte| *byte == 0));
    }
}
