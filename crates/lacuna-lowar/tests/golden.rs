//! The packets of figure 6 of the paper, LoWAR(8,2) over messages of 1, 5 and 61 packets, byte for byte as
//! `fixtures/make_lowar.py` computes them.

use lacuna_lowar::{Encoder, UnitPool};
use lacuna_wire::rc::{CodeKind, Strength};

fn fixture() -> Vec<(bool, Vec<u8>)> {
    let text = include_str!("fixtures/lowar_8_2.txt");
    let bytes = |hex: &str| {
        let digits = hex.as_bytes().chunks(2);
        digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    };
    text.lines()
        .map(|line| {
            let (kind, hex) = line.split_once(' ').unwrap();
            (kind == "data", bytes(hex))
        })
        .collect()
}

#[test]
fn messages_of_1_5_and_61_packets_have_1_2_and_16_repairs() {
    let expected = fixture();
    let mut units = UnitPool::new(2, 256);
    let mut encoder = Encoder::new();
    encoder
        .set_strength(Some(Strength { block_packets: 8, repairs: 2, code: CodeKind::Xor }))
        .unwrap();
    let mut left = Vec::new();
    for (_, packet) in expected.iter().filter(|(is_data, _)| *is_data) {
        left.push((true, packet.clone()));
        encoder.on_packet(&mut units, packet, &mut |repair| left.push((false, repair.to_vec())));
    }
    assert_eq!(left.len(), expected.len());
    for (at, (left, expected)) in left.iter().zip(&expected).enumerate() {
        assert_eq!(left, expected, "packet {at}");
    }
    let counters = encoder.counters();
    assert_eq!((counters.repairs_sent, counters.blocks_coded), (1 + 2 + 16, 1 + 1 + 8));
    assert_eq!(units.used(), 0);
}

#[test]
fn the_repair_of_a_single_packet_is_a_duplicate() {
    let lines = fixture();
    let (packet, repair) = (&lines[0].1, &lines[1].1);
    assert_eq!(packet[12..], repair[16..]);
}
