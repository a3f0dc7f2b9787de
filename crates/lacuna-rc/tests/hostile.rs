//! Packets of anybody: whatever they say, nothing panics, nothing grows, and a connection whose numbers they
//! do not hit goes on.

mod common;

use common::{World, all_of, bytes_of, config, pattern, read, region, slice, write};
use lacuna_link::{PipeConfig, SplitMix64};
use lacuna_rc::{RcConfig, Repair, ShimSettings};
use lacuna_wire::Qpn;
use lacuna_wire::rc::Opcode;

/// A packet of random fields behind a valid BTH.
fn packet(rng: &mut SplitMix64, destination: Qpn, psn: u32) -> Vec<u8> {
    let opcodes: Vec<Opcode> = Opcode::all().collect();
    let opcode = opcodes[rng.below(opcodes.len() as u64) as usize];
    let len = 4 * [rng.below(4), rng.below(30), 256, 1024][rng.below(4) as usize] as usize;
    let mut bytes = vec![opcode as u8, (rng.next_u64() & 0xb0) as u8, 0xff, 0xff];
    bytes.extend(destination.bits().to_be_bytes());
    bytes.extend((psn & 0xff_ffff | ((rng.below(2) as u32) << 31)).to_be_bytes());
    bytes.extend(rng.bytes(len));
    bytes
}

/// A repair packet of random numbers, near those of the flow.
fn repair(rng: &mut SplitMix64, destination: Qpn, psn: u32) -> Vec<u8> {
    let mut bytes = (0x1f00_0000 | destination.bits()).to_be_bytes().to_vec();
    bytes.push(1 + rng.below(4) as u8);
    bytes.extend([rng.below(40) as u8, rng.below(8) as u8, rng.below(256) as u8]);
    bytes.extend((psn << 8 | rng.below(8) as u32).to_be_bytes());
    bytes.extend([rng.below(40) as u8, 4, 0, rng.below(4) as u8]);
    let len = 4 * [1, 4, 256, 260][rng.below(4) as usize];
    bytes.extend(rng.bytes(len));
    bytes
}

#[test]
fn packets_far_from_the_expected_numbers_disturb_nothing() {
    for seed in 0..20 {
        let mut rng = SplitMix64::new(seed);
        let mut world = World::simple(1024);
        let data = pattern(300_000, seed);
        world.ends[1].region.write(500_000, &data).unwrap();
        let into = region(data.len());
        let remote = world.ends[1].remote(0);
        world.ends[0].post(write(1, &data, remote));
        world.ends[0].post(read(2, all_of(&into), world.ends[1].remote(500_000)));
        let first_psn = [0, 1].map(|at| world.ends[at].qp.config().first_psn);
        while !world.run_until(100_000, |world| world.ends[0].done.len() == 2) {
            world.now_ns += 1;
            for (at, first_psn) in first_psn.into_iter().enumerate() {
                for _ in 0..20 {
                    // Neither this end's nor the other's numbers are within 2^20 of these, nor reached later.
                    let far = (1 << 21) + rng.below((1 << 24) - (1 << 22)) as u32;
                    let destination = world.ends[at].qp.config().number;
                    let bytes = packet(&mut rng, destination, first_psn.wrapping_add(far));
                    let now_ns = world.now_ns;
                    world.ends[at].take(now_ns, &bytes);
                }
            }
        }
        assert!(world.ends[0].take_done().iter().all(|done| done.status.is_ok()));
        assert_eq!(bytes_of(&slice(&world.ends[1].region, 0, data.len() as u64)), data);
        assert_eq!(bytes_of(&all_of(&into)), data);
        let refusals = world.ends[1].qp.stats().refusals;
        assert!(refusals.stray > 100);
        assert_eq!((refusals.out_of_sequence, refusals.duplicates, refusals.refused), (0, 0, 0));
    }
}

#[test]
fn whatever_comes_nothing_panics_or_grows() {
    for seed in 0..200 {
        let mut rng = SplitMix64::new(seed);
        let repairs = [Repair::GoBackN, Repair::SelectiveRepeat];
        let strength = [None, Some("8:1"), Some("16:4"), Some("mds:8:2")][rng.below(4) as usize];
        let shim = strength.map_or(ShimSettings::Accept, |strength| ShimSettings::Protect {
            strength: strength.parse().unwrap(),
            caps_short_blocks: false,
        });
        let config =
            |number| RcConfig { repair: repairs[seed as usize % 2], ..config(number, 1024) };
        let pipe = PipeConfig { delay_ns: 5_000_000, ..PipeConfig::default() };
        let configs = [config(3), config(5)];
        let mut world = World::with_shims(configs, [shim; 2], [pipe.clone(), pipe], seed);
        world.ends[0].post(write(1, &pattern(100_000, seed), world.ends[1].remote(0)));
        world.ends[0].post(read(2, all_of(&region(50_000)), world.ends[1].remote(0)));
        world.ends[1].post_recv(3, all_of(&region(2000)));
        let first_psn = [0, 1].map(|at| world.ends[at].qp.config().first_psn);
        for _ in 0..30 {
            world.run_until(300_000, |_| false);
            world.now_ns += 1;
            for _ in 0..50 {
                let at = rng.below(2) as usize;
                let near = first_psn[rng.below(2) as usize].wrapping_add(rng.below(200) as u32);
                let destination = world.ends[at].qp.config().number;
                let bytes = match rng.below(2) {
                    0 => packet(&mut rng, destination, near),
                    _ => repair(&mut rng, destination, near),
                };
                let now_ns = world.now_ns;
                world.ends[at].take(now_ns, &bytes);
            }
        }
        world.run_out();
        for end in &world.ends {
            assert_eq!(end.shared.ring.used(), 0, "seed {seed}: packets wait for ever");
        }
        let done = world.ends[0].take_done();
        assert_eq!(done.iter().filter(|done| done.received.is_none()).count(), 2, "{done:?}");
    }
}
