//! Single frames: what is no packet of a reliable connection passes, whatever comes never panics, and
//! forged numbers cost little.

mod common;

use common::{Look, frame_of, packet_of};
use lacuna_gateway::{AutoConfig, Config, GATEWAYS, Gateway, Layout};
use lacuna_link::SplitMix64;
use lacuna_wire::Qpn;
use lacuna_wire::rc::{BlockHeader, MessageClass, REPAIR_OPCODE, RepairHeader};

const NOW_NS: u64 = 1_000_000_000;

fn gateway() -> Gateway {
    Gateway::new(Config::new(Some("4:1".parse().unwrap()))).unwrap()
}

/// A middle packet of a WRITE, without trailer.
fn middle(queue_pair: u32, psn: u32, fill: u8) -> Vec<u8> {
    let [_, q2, q1, q0] = queue_pair.to_be_bytes();
    let [_, p2, p1, p0] = psn.to_be_bytes();
    let mut packet = vec![0x07, 0, 0xff, 0xff, 0, q2, q1, q0, 0, p2, p1, p0];
    packet.extend([fill; 256]);
    packet
}

fn local(gateway: &mut Gateway, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    gateway.on_local(NOW_NS, frame, &mut |frame| frames.push(frame.to_vec()));
    frames
}

fn remote(gateway: &mut Gateway, now_ns: u64, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    gateway.on_remote(now_ns, frame, &mut |frame| frames.push(frame.to_vec()));
    frames
}

fn is_repair(frame: &[u8]) -> bool {
    packet_of(frame)[0] == REPAIR_OPCODE
}

#[test]
fn a_lost_frame_comes_back_and_the_others_are_the_same_bits_in_order() {
    for look in [Look::V4, Look::V4Tagged, Look::V6] {
        let (mut near, mut far) = (gateway(), gateway());
        let mut sent = Vec::new();
        let mut path = Vec::new();
        for psn in 0..40 {
            let mut frame = frame_of(look, 0, &middle(7, psn, psn as u8), 900 + psn as u16);
            // As Ethernet pads, or not.
            frame.extend(vec![0; psn as usize % 3]);
            path.extend(local(&mut near, &frame));
            sent.push(frame);
        }
        assert!(path.iter().filter(|frame| is_repair(frame)).count() >= 8);
        let lost = path.iter().position(|frame| *frame == sent[21]).unwrap();
        path.remove(lost);
        let arrived: Vec<_> =
            path.iter().flat_map(|frame| remote(&mut far, NOW_NS, frame)).collect();
        assert_eq!(arrived.len(), sent.len(), "{look:?}");
        for (psn, (frame, sent)) in arrived.iter().zip(&sent).enumerate() {
            if psn != 21 {
                assert!(frame == sent, "{look:?} {psn}");
                continue;
            }
            let (mut packet, original) = (packet_of(frame), packet_of(sent));
            assert_eq!(packet[8], 0x80, "the recovered one asks for an acknowledgement");
            packet[8] = original[8];
            assert_eq!(packet, original);
            let (of, sent_of) = (Layout::of(frame).unwrap(), Layout::of(sent).unwrap());
            assert_eq!(of.key(frame, false), sent_of.key(sent, false));
            assert_eq!(frame[..of.ip + 2], sent[..of.ip + 2], "Ethernet, tags, DSCP");
        }
        let counters = far.counters();
        assert_eq!((counters.received.packets_recovered, counters.flows.1), (1, 1));
    }
}

#[test]
fn a_frame_that_waits_comes_out_when_its_time_is_over() {
    let (mut near, mut far) = (gateway(), gateway());
    let frames: Vec<_> = (0..11).map(|psn| frame_of(Look::V4, 0, &middle(7, psn, 1), 5)).collect();
    let mut arrived = Vec::new();
    for (psn, frame) in frames.iter().enumerate() {
        for frame in local(&mut near, frame) {
            // The last but one, and the block's repair.
            if frame != frames[9] && !(psn >= 9 && is_repair(&frame)) {
                arrived.extend(remote(&mut far, NOW_NS, &frame));
            }
        }
    }
    assert!(arrived == frames[..9], "the last one waits");
    let deadline_ns = far.poll_timeout().expect("a gap is open");
    far.on_timeout(deadline_ns - 1, &mut |_| panic!("too early"));
    far.on_timeout(deadline_ns, &mut |frame| arrived.push(frame.to_vec()));
    let expected: Vec<_> = [&frames[..9], &frames[10..]].concat();
    assert!(arrived == expected);
    assert_eq!(far.poll_timeout(), None);
}

#[test]
fn a_flow_that_goes_back_to_before_its_protection_is_protected_at_once() {
    let (mut near, mut far) = (gateway(), gateway());
    let frame = |psn: u32| frame_of(Look::V4, 0, &middle(7, psn, psn as u8), 5);
    // The far side sees them all; 10 is lost before the near gateway begins.
    for psn in (0..100).filter(|psn| *psn != 10) {
        let frames = if psn < 40 { vec![frame(psn)] } else { local(&mut near, &frame(psn)) };
        frames.iter().for_each(|frame| drop(remote(&mut far, NOW_NS, frame)));
    }
    let mut arrived = Vec::new();
    for psn in 10..100 {
        for sent in local(&mut near, &frame(psn)).iter().filter(|sent| **sent != frame(21)) {
            arrived.extend(remote(&mut far, NOW_NS, sent).iter().map(|frame| packet_of(frame)));
        }
    }
    let numbers: Vec<u8> = arrived.iter().map(|packet| packet[11]).collect();
    assert_eq!(numbers, (10..100).collect::<Vec<u8>>());
    assert_eq!(far.counters().received.packets_recovered, 1);
}

#[test]
fn other_frames_pass_bit_by_bit() {
    let (mut near, mut far) = (gateway(), gateway());
    let mut rng = SplitMix64::new(5);
    let good = frame_of(Look::V4, 0, &middle(7, 1, 1), 5);
    let layout = Layout::of(&good).unwrap();
    let change = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let others = [
        rng.bytes(60),
        // ARP.
        change(13, 0x06),
        // A fragment: more follow; one behind.
        change(layout.ip + 6, 0x20),
        change(layout.ip + 7, 0x10),
        // TCP; options; another port; a length that is not the frame's.
        change(layout.ip + 9, 6),
        change(layout.ip, 0x46),
        change(layout.bth - 5, 0xb8),
        change(layout.bth - 3, 0x10),
        // Unreliable datagrams, congestion notifications, and what nobody knows.
        change(layout.bth, 0x64),
        change(layout.bth, 0x81),
        change(layout.bth, 0xff),
        Vec::new(),
    ];
    for (index, frame) in others.iter().enumerate() {
        for _ in 0..10 {
            assert!(local(&mut near, frame) == [frame.clone()], "{index}");
            assert!(remote(&mut far, NOW_NS, frame) == [frame.clone()], "{index}");
        }
    }
    assert_eq!((near.counters().flows.0, far.counters().flows.1), (0, 0));
}

#[test]
fn a_frame_with_a_wrong_icrc_passes_and_is_not_coded() {
    let mut near = gateway();
    for psn in 0..8 {
        local(&mut near, &frame_of(Look::V4, 0, &middle(7, psn, 1), 5));
    }
    let coded = near.counters().packets_coded;
    let mut bad = frame_of(Look::V4, 0, &middle(7, 8, 1), 5);
    let end = bad.len();
    bad[end - 1] ^= 1;
    assert!(local(&mut near, &bad) == [bad.clone()]);
    assert_eq!((near.counters().packets_coded, near.counters().bad_icrc), (coded, 1));
}

#[test]
fn random_and_damaged_frames_never_panic() {
    let auto = Some(AutoConfig::default());
    damage(gateway());
    damage(Gateway::new(Config { auto, ..Config::new(None) }).unwrap());
}

fn damage(mut gateway: Gateway) {
    let mut rng = SplitMix64::new(11);
    for round in 0..60_000u32 {
        let look = [Look::V4, Look::V4Tagged, Look::V6][rng.below(3) as usize];
        let mut packet = middle(rng.below(4) as u32, (round / 4) & 0xff_ffff, round as u8);
        match rng.below(4) {
            0 => {
                let strength = format!("{}:1", 1 + rng.below(8)).parse().unwrap();
                let mut header = [0; 16];
                let block = BlockHeader {
                    first_psn: (round / 4).wrapping_add(rng.below(9) as u32) & 0xff_ffff,
                    packets: 1 + rng.below(4) as u16,
                    has_first: rng.chance(500_000),
                    has_last: rng.chance(500_000),
                    class: MessageClass::Write,
                    last_bytes: rng.below(300) as u16,
                    round: rng.below(3) as u8,
                    strength,
                };
                RepairHeader::Repair { block, index: 0 }
                    .emit(Qpn::from_bits(rng.below(4) as u32), &mut header);
                packet = header.to_vec();
                let length = 4 * rng.below(80) as usize;
                packet.extend(rng.bytes(length));
            }
            1 => packet[0] = rng.below(32) as u8,
            _ => {}
        }
        let mut frame = frame_of(look, 0, &packet, round as u16);
        match rng.below(6) {
            0 => frame.truncate(rng.below(frame.len() as u64) as usize),
            1 => {
                let at = rng.below(frame.len() as u64) as usize;
                frame[at] = rng.next_u64() as u8;
            }
            _ => {}
        }
        let now_ns = NOW_NS + u64::from(round) * 10_000;
        gateway.on_local(now_ns, &frame, &mut |_| {});
        gateway.on_remote(now_ns, &frame, &mut |_| {});
        gateway.on_timeout(now_ns, &mut |_| {});
    }
    assert!(gateway.counters().received.repairs_received > 0);
}

#[test]
fn a_million_forged_numbers_cost_no_more_than_64_mib() {
    let mut gateway = gateway();
    let mut most = 0;
    for number in 0..1_000_000u32 {
        let queue_pair = number & 0xff_ffff;
        // One in a hundred with a run that makes a flow, and repairs that make a decoder.
        let run = if number % 100 == 0 { 5 } else { 1 };
        for psn in 0..run {
            let frame = frame_of(Look::V4, 0, &middle(queue_pair, psn, 1), 5);
            gateway.on_local(NOW_NS, &frame, &mut |_| {});
            gateway.on_remote(NOW_NS, &frame, &mut |_| {});
        }
        if run > 1 || number % 1000 == 1 {
            for first_psn in [run, run + 8] {
                let block = BlockHeader {
                    first_psn,
                    packets: 4,
                    has_first: true,
                    has_last: false,
                    class: MessageClass::Write,
                    last_bytes: 0,
                    round: 0,
                    strength: "4:1".parse().unwrap(),
                };
                let mut packet = [0; 16 + 256];
                let (header, _) = packet.split_first_chunk_mut::<16>().unwrap();
                RepairHeader::Repair { block, index: 0 }.emit(Qpn::from_bits(queue_pair), header);
                gateway.on_remote(NOW_NS, &frame_of(Look::V4, 0, &packet, 5), &mut |_| {});
            }
        }
        if number % 50_000 == 0 {
            most = most.max(gateway.memory_bytes());
        }
    }
    most = most.max(gateway.memory_bytes());
    let counters = gateway.counters();
    assert_eq!(counters.flows, (4096, 4096));
    assert!(counters.flows_evicted > 0 && counters.repairs_without_flow > 0);
    assert!(most <= 64 << 20, "{most} bytes");
}

/// A frame from a source address of its own.
fn from_address(number: u32, packet: &[u8]) -> Vec<u8> {
    let mut frame = frame_of(Look::V4, 0, packet, 5);
    let ip = Layout::of(&frame).unwrap().ip;
    frame[ip + 12..ip + 16].copy_from_slice(&number.to_be_bytes());
    let layout = Layout::of(&frame).unwrap();
    let icrc = layout.icrc(&frame);
    frame[layout.end - 4..layout.end].copy_from_slice(&icrc);
    frame
}

#[test]
fn forged_addresses_cost_no_more_than_64_mib_where_strengths_are_chosen() {
    let auto = Some(AutoConfig::default());
    let mut gateway = Gateway::new(Config { auto, ..Config::new(None) }).unwrap();
    let mut rng = SplitMix64::new(3);
    let mut now_ns = NOW_NS;
    let request = {
        let mut packet = [0; 16];
        let strength = Some("8:1".parse().unwrap());
        RepairHeader::Request { strength }.emit(Qpn::from_bits(GATEWAYS), &mut packet);
        packet
    };
    for round in 0..600u32 {
        // Each pair loses every other packet for a while, and asks for something.
        for number in 0..500 {
            let packet = middle(7, if round < 4 { round } else { 3 + 2 * (round - 3) }, 1);
            gateway.on_remote(now_ns, &from_address(number, &packet), &mut |_| {});
        }
        for _ in 0..100 {
            let number = rng.next_u64() as u32;
            gateway.on_remote(now_ns, &from_address(number, &request), &mut |_| {});
            for psn in 0..5 {
                gateway.on_local(now_ns, &from_address(number, &middle(9, psn, 1)), &mut |_| {});
            }
        }
        now_ns += 5_000_000;
    }
    let bytes = gateway.memory_bytes();
    println!("{bytes} bytes");
    assert!(bytes <= 64 << 20, "{bytes}");
    let counters = gateway.counters();
    assert_eq!((counters.requests_received, counters.requests_granted), (60_000, 0));
}
