//! Both ends of a queue pair, many flows on one pool, changes of strength, and peers that mean harm.

mod support;

use lacuna_link::SplitMix64;
use lacuna_lowar::{
    Encoder, How, Leaving, Memory, SILENT_BLOCKS_MAX, Shared, SharedConfig, Shim, ShimConfig,
};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{CodeKind, REPAIR_OPCODE, RepairHeader, Strength};
use support::*;

fn shim(strength: Option<Strength>) -> Shim {
    Shim::new(ShimConfig { strength, ..ShimConfig::new(Qpn::from_bits(QPN)) }).unwrap()
}

fn leave(shim: &mut Shim, shared: &mut Shared, packet: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    shim.on_send(shared, packet, &mut |leaving, bytes| {
        assert_eq!(leaving == Leaving::Data, is_data(bytes));
        out.push(bytes.to_vec());
    });
    out
}

/// Loses the packets at these places of a flow, counted among its data packets.
fn run(
    shim: &mut Shim,
    peer: &mut Shim,
    shared: &mut Shared,
    packets: &[Vec<u8>],
    lost: &[usize],
) -> Receiver {
    let mut up = Receiver::default();
    for (at, packet) in packets.iter().enumerate() {
        for out in leave(shim, shared, packet) {
            if !(is_data(&out) && lost.contains(&at)) {
                peer.on_receive(1_000 * at as u64, shared, &out, &mut up);
            }
        }
    }
    up
}

#[test]
fn data_packets_leave_as_they_are_and_announcements_before_the_first_three_blocks() {
    let mut messages = Messages::new(4);
    messages.is_responder = false;
    let mut shared = shared();
    let mut shim = shim(Some(xor(4, 1)));
    let mut announced = Vec::new();
    for message in 0..6 {
        for packet in messages.message_of(3) {
            let out = leave(&mut shim, &mut shared, &packet);
            assert_eq!(out.iter().filter(|out| is_data(out)).collect::<Vec<_>>(), [&packet]);
            if let Ok((_, RepairHeader::Announce { strength, .. }, _)) =
                RepairHeader::parse(&out[0], 0)
            {
                assert_eq!(strength, xor(4, 1));
                announced.push(message);
            }
        }
    }
    assert_eq!(announced, [0, 1, 2]);
}

#[test]
fn a_request_is_granted_within_the_limit_and_announced() {
    let config = ShimConfig { requests_percent_max: 13, ..ShimConfig::new(Qpn::from_bits(QPN)) };
    let (mut sender, mut receiver) = (Shim::new(config).unwrap(), shim(None));
    let mut shared = shared();
    let mut up = Receiver::default();
    for (strength, granted) in [
        (Some(xor(8, 2)), false),
        (Some(xor(8, 1)), true),
        (Some(mds(32, 4)), true),
        (None, true),
        (Some(mds(250, 6)), false),
    ] {
        let before = sender.strength();
        let request = receiver.request(Qpn::from_bits(QPN), strength);
        sender.on_receive(0, &mut shared, &request, &mut up);
        let expected = if granted { strength } else { before };
        assert_eq!(sender.strength(), expected);
    }
    let counters = sender.counters();
    assert_eq!((counters.requests_received, counters.requests_granted), (5, 3));
    assert_eq!(receiver.counters().requests_sent, 5);

    // A sender without a limit grants nothing.
    let mut strict = shim(None);
    let request = receiver.request(Qpn::from_bits(QPN), Some(xor(255, 1)));
    strict.on_receive(0, &mut shared, &request, &mut up);
    assert_eq!(strict.strength(), None);
    assert!(up.packets.is_empty());
}

#[test]
fn a_change_of_strength_loses_no_repair() {
    for seed in 0..60 {
        let mut messages = Messages::new(seed);
        let mut random = SplitMix64::new(seed);
        let mut shared = shared();
        let (mut encoder, mut decoder) = (Encoder::new(), decoder());
        let mut up = Receiver::default();
        let first = messages.message_of(2);
        let sent = [first, messages.messages(40)].concat();
        let mut block: Vec<Vec<u8>> = Vec::new();
        let (mut now_ns, mut lost) = (0, 0);
        encoder.set_strength(Some(any_strength(&mut random))).unwrap();
        for (at, packet) in sent.iter().enumerate() {
            if random.below(30) == 0 {
                encoder.set_strength(Some(any_strength(&mut random))).unwrap();
            }
            let out = encode(&mut encoder, &mut shared, packet);
            let ends = out.iter().any(|out| {
                matches!(RepairHeader::parse(out, 0), Ok((_, RepairHeader::Repair { .. }, _)))
            });
            let is_plain = block.is_empty() && out.len() == 1 && matches!(packet[0], 0x0c | 0x11);
            block.extend(out);
            if !ends && !is_plain {
                continue;
            }
            // One data packet of each block is lost.
            let data = block.iter().filter(|packet| is_data(packet)).count() as u64;
            let gone = if at < 2 || is_plain { u64::MAX } else { random.below(data) };
            lost += u64::from(gone != u64::MAX);
            let mut place = 0;
            for packet in block.drain(..) {
                let is_gone = is_data(&packet) && place == gone;
                place += u64::from(is_data(&packet));
                now_ns += 1_000;
                if !is_gone {
                    deliver(&mut decoder, &mut shared, now_ns, &packet, &mut up);
                }
            }
        }
        assert!(block.is_empty());
        assert_eq!(decoder.counters().packets_recovered, lost, "seed {seed}");
        assert_eq!(decoder.counters().blocks_failed, 0, "seed {seed}");
        let handed = up.packets.iter().map(|(packet, _)| without_flags(packet));
        assert!(handed.eq(sent.iter().map(|packet| without_flags(packet))), "seed {seed}");
    }
}

#[test]
fn the_units_of_one_pool_serve_512_flows() {
    let mut shared =
        Shared::new(SharedConfig { payload_bytes_max: 256, ..SharedConfig::default() });
    let mut flows: Vec<_> = (0..512u64)
        .map(|seed| {
            let mut messages = Messages::new(seed);
            (messages.mtu, messages.is_responder) = (256, false);
            let packets: Vec<_> = (0..5).flat_map(|_| messages.message_of(9)).collect();
            let ends = (shim(Some(xor(8, 2))), shim(None));
            (packets, ends, Receiver::default(), SplitMix64::new(seed))
        })
        .collect();
    // All flows at once, packet by packet: each has a block open, of two units.
    for at in 0..45 {
        for (packets, (sender, receiver), up, random) in &mut flows {
            // One loss in the middle of each second block of eight.
            let is_lost = at % 9 == 3 && random.below(2) == 0;
            for out in leave(sender, &mut shared, &packets[at]) {
                if !(is_lost && is_data(&out)) {
                    receiver.on_receive(1_000_000 * at as u64, &mut shared, &out, up);
                }
            }
        }
        assert!(shared.encode.used() <= 1024 && shared.decode.used() <= 1024);
    }
    let mut recovered = 0;
    for (packets, (sender, receiver), up, _) in &flows {
        let counters = receiver.counters().received;
        assert_eq!((sender.counters().sent.blocks_uncoded, counters.blocks_failed), (0, 0));
        let handed = up.packets.iter().map(|(packet, _)| without_flags(packet));
        assert!(handed.eq(packets.iter().map(|packet| without_flags(packet))));
        recovered += counters.packets_recovered;
    }
    assert!(recovered > 1_000, "{recovered}");
    assert_eq!((shared.encode.used(), shared.decode.used(), shared.ring.used()), (0, 0, 0));
    let shims = flows.iter().flat_map(|(_, (sender, receiver), ..)| [sender, receiver]);
    let memory = Memory::of(&shared, shims);
    assert_eq!(memory.encode_bytes.0, memory.encode_bytes.1, "all were used");
    assert!(memory.state_bytes < 1024 * 8_192, "{} per shim", memory.state_bytes / 1024);
}

#[test]
fn blocks_without_a_free_unit_are_counted_and_pass() {
    let mut shared = Shared::new(SharedConfig {
        encode_units: 1,
        decode_units: 0,
        payload_bytes_max: 4096,
        ..SharedConfig::default()
    });
    let mut messages = Messages::new(1);
    let packets: Vec<_> = (0..4).flat_map(|_| messages.message_of(5)).collect();
    let (mut sender, mut receiver) = (shim(Some(xor(8, 2))), shim(None));
    let up = run(&mut sender, &mut receiver, &mut shared, &packets, &[]);
    assert_eq!(up.bytes(), packets);
    assert_eq!(
        (sender.counters().sent.blocks_uncoded, sender.counters().sent.blocks_coded),
        (4, 0)
    );
    assert_eq!(sender.counters().sent.repairs_sent, 0);
    // Repairs that the receiver has no unit for: nothing waits for long, nothing is lost.
    shared = Shared::new(SharedConfig { decode_units: 0, ..SharedConfig::default() });
    let mut sender = shim(Some(xor(8, 2)));
    let mut receiver = shim(None);
    let up = run(&mut sender, &mut receiver, &mut shared, &packets, &[6]);
    assert_eq!(up.packets.len(), packets.len() - 1);
    let counters = receiver.counters().received;
    assert!(counters.blocks_blind > 0 && counters.packets_recovered == 0);
}

#[test]
fn a_packet_that_was_recovered_and_comes_after_all_is_a_duplicate() {
    let mut messages = Messages::new(9);
    (messages.is_responder, messages.mtu) = (false, 1024);
    let packets = messages.message_of(8);
    let mut shared = shared();
    let (mut sender, mut receiver) = (shim(Some(xor(4, 1))), shim(None));
    let mut up = run(&mut sender, &mut receiver, &mut shared, &packets, &[1, 7]);
    assert_eq!((up.packets.len(), up.count(How::Recovered), up.count(How::Held)), (8, 2, 2));
    receiver.on_receive(1, &mut shared, &packets[1], &mut up);
    assert_eq!(up.packets.last(), Some(&(packets[1].clone(), How::Passed)));
}

#[test]
fn a_gap_without_repairs_is_handed_up_when_its_time_is_over() {
    let mut messages = Messages::new(9);
    (messages.is_responder, messages.mtu) = (false, 1024);
    let packets = messages.message_of(100);
    let mut shared = shared();
    let (mut sender, mut receiver) = (shim(Some(xor(64, 1))), shim(None));
    let mut up = Receiver::default();
    let mut at_ns = 0;
    for (at, packet) in packets.iter().enumerate().take(20) {
        for out in leave(&mut sender, &mut shared, packet) {
            at_ns = 10_000 * at as u64;
            if at != 15 {
                receiver.on_receive(at_ns, &mut shared, &out, &mut up);
            }
        }
    }
    assert_eq!(up.packets.len(), 15);
    // 64 - 20 packets and a repair, each 10 us, twice; and a margin.
    let deadline_ns = receiver.poll_timeout().unwrap();
    assert!((900_000..1_000_000).contains(&(deadline_ns - at_ns)), "{}", deadline_ns - at_ns);
    receiver.on_timeout(deadline_ns - 1, &mut shared, &mut up);
    assert_eq!(up.packets.len(), 15);
    receiver.on_timeout(deadline_ns, &mut shared, &mut up);
    assert_eq!((up.packets.len(), up.count(How::Held)), (19, 4));
    let counters = receiver.counters().received;
    assert_eq!((counters.blocks_failed, counters.timeouts), (1, 1));
    assert_eq!((shared.decode.used(), shared.ring.used()), (0, 0));
    // The flow goes on until it goes back: nothing waits.
    for packet in &packets[20..40] {
        receiver.on_receive(deadline_ns + 1, &mut shared, packet, &mut up);
    }
    assert_eq!((up.packets.len(), receiver.poll_timeout()), (39, None));
    // It goes back to the missing one, and is protected again.
    for (at, packet) in packets.iter().enumerate().skip(15) {
        for out in leave(&mut sender, &mut shared, packet) {
            if !(is_data(&out) && at == 50) {
                at_ns = deadline_ns + 50_000_000 + 10_000 * at as u64;
                receiver.on_receive(at_ns, &mut shared, &out, &mut up);
            }
        }
    }
    let again: Vec<_> = up.packets[39..].iter().map(|(packet, _)| without_flags(packet)).collect();
    let expected: Vec<_> = packets[15..].iter().map(|packet| without_flags(packet)).collect();
    assert!(again == expected);
    assert_eq!(receiver.counters().received.packets_recovered, 1);
    assert_eq!(sender.counters().sent.restarts, 1);
}

#[test]
fn gaps_close_for_late_packets_once_their_lateness_is_known() {
    let mut messages = Messages::new(2);
    (messages.is_responder, messages.mtu) = (false, 256);
    let packets: Vec<_> = (0..30).flat_map(|_| messages.message_of(40)).collect();
    let mut shared = shared();
    let (mut sender, mut receiver) = (shim(Some(xor(8, 1))), shim(None));
    let mut up = Receiver::default();
    let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
    for (at, packet) in packets.iter().enumerate() {
        let now_ns = 1_000 * at as u64;
        for bytes in leave(&mut sender, &mut shared, packet) {
            // Each 16th packet is 20 us late: behind the repairs of its block and the next one. Two in a
            // block, so that its repair is not enough.
            let late_ns = if is_data(&bytes) && at % 16 < 2 { 20_000 } else { 0 };
            out.push((now_ns + late_ns, bytes));
        }
    }
    out.sort_by_key(|(at_ns, _)| *at_ns);
    for (at_ns, bytes) in out {
        run_timers(&mut receiver, &mut shared, at_ns, &mut up);
        receiver.on_receive(at_ns, &mut shared, &bytes, &mut up);
    }
    let window_ns = receiver.reordering_window_ns();
    assert!((10_000..40_000).contains(&window_ns), "{window_ns}");
    assert!(receiver.counters().received.blocks_failed < 5, "{:?}", receiver.counters().received);

    fn run_timers(shim: &mut Shim, shared: &mut Shared, now_ns: u64, up: &mut Receiver) {
        while let Some(at_ns) = shim.poll_timeout().filter(|at_ns| *at_ns <= now_ns) {
            shim.on_timeout(at_ns, shared, up);
        }
    }
}

#[test]
fn a_sender_that_stops_protecting_is_soon_taken_for_one_without_a_shim() {
    let mut messages = Messages::new(3);
    (messages.is_responder, messages.mtu) = (false, 256);
    let mut shared = shared();
    let (mut sender, mut receiver) = (shim(Some(xor(4, 1))), shim(None));
    let packets = messages.message_of(40);
    run(&mut sender, &mut receiver, &mut shared, &packets, &[]);
    assert_eq!(receiver.peer_strength(), Some(xor(4, 1)));
    sender.set_strength(None).unwrap();
    let packets: Vec<_> =
        (0..=2 * SILENT_BLOCKS_MAX).flat_map(|_| messages.message_of(2)).collect();
    let lost = packets.len() - 9;
    let up = run(&mut sender, &mut receiver, &mut shared, &packets, &[lost]);
    assert_eq!(up.count(How::Passed), packets.len() - 1);
    assert_eq!(receiver.peer_strength(), None);
    // And protects again.
    sender.set_strength(Some(xor(4, 1))).unwrap();
    let packets = messages.message_of(40);
    let up = run(&mut sender, &mut receiver, &mut shared, &packets, &[0, 5, 39]);
    assert_eq!((up.packets.len(), up.count(How::Recovered)), (40, 3));
}

#[test]
fn hostile_repairs_neither_panic_nor_keep_memory() {
    for seed in 0..100 {
        let mut messages = Messages::new(seed);
        messages.mtu = 256;
        let mut random = SplitMix64::new(seed);
        let mut shared = Shared::new(SharedConfig {
            encode_units: 64,
            decode_units: 64,
            ring_packets: 64,
            payload_bytes_max: 256,
        });
        let (mut sender, mut receiver) = (shim(Some(any_strength(&mut random))), shim(None));
        let mut up = Receiver { places_ahead: seed % 5, seed, ..Receiver::default() };
        let packets = messages.messages(20);
        let mut template = vec![0x1f; 16];
        let mut now_ns = 0;
        for packet in &packets {
            for out in leave(&mut sender, &mut shared, packet) {
                now_ns += 1_000;
                while let Some(at_ns) = receiver.poll_timeout().filter(|at_ns| *at_ns <= now_ns) {
                    receiver.on_timeout(at_ns, &mut shared, &mut up);
                }
                if !is_data(&out) {
                    template.clone_from(&out);
                }
                if random.below(10) > 0 {
                    receiver.on_receive(now_ns, &mut shared, &out, &mut up);
                }
                // Wrong repairs: random ones, and true ones with a few other bytes.
                for _ in 0..random.below(4) {
                    let mut wrong = match random.below(3) {
                        0 => {
                            let length = 4 * random.below(80) as usize;
                            random.bytes(length)
                        }
                        _ => template.clone(),
                    };
                    for _ in 0..1 + random.below(3) {
                        if let Some(at) =
                            random.below(wrong.len().min(20) as u64 + 1).checked_sub(1)
                        {
                            wrong[at as usize] = random.next_u64() as u8;
                        }
                    }
                    if let Some(first) = wrong.first_mut() {
                        *first = REPAIR_OPCODE;
                    }
                    receiver.on_receive(now_ns, &mut shared, &wrong, &mut up);
                }
                // And packets of anyone.
                if random.below(20) == 0 {
                    let length = random.below(300) as usize;
                    let mut wrong = random.bytes(length);
                    if wrong.len() > 4 {
                        wrong[0] %= 0x18;
                        wrong[1..4].copy_from_slice(&[0, 0xff, 0xff]);
                    }
                    receiver.on_receive(now_ns, &mut shared, &wrong, &mut up);
                }
                assert!(receiver.memory_bytes() < 1 << 19, "{}", receiver.memory_bytes());
            }
        }
        receiver.flush(now_ns, &mut shared, &mut up);
        receiver.release(&mut shared);
        sender.release(&mut shared);
        assert_eq!((shared.encode.used(), shared.decode.used(), shared.ring.used()), (0, 0, 0));
    }
}

#[test]
fn strengths_of_256_are_ones_that_blocks_have() {
    for strength in [xor(256, 256), xor(256, 1), xor(1, 256), xor(1, 1)] {
        let mut messages = Messages::new(7);
        (messages.is_responder, messages.mtu) = (false, 256);
        let packets = [messages.message_of(2), messages.message_of(600)].concat();
        let mut shared = shared();
        let (mut sender, mut receiver) = (shim(Some(strength)), shim(None));
        let up = run(&mut sender, &mut receiver, &mut shared, &packets, &[2, 300, 601]);
        assert_eq!((up.packets.len(), up.count(How::Recovered)), (602, 3), "{strength:?}");
    }
    let too_large = Strength { block_packets: 250, repairs: 6, code: CodeKind::Mds };
    assert!(shim(None).set_strength(Some(too_large)).is_err());
}
