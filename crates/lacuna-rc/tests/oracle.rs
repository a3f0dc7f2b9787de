//! Random work of both ends over a link that loses, repeats and reorders, against an oracle: every request
//! completes once and in order, every SEND is delivered once and in order, and all bytes are right.

mod common;

use common::{World, all_of, bytes_of, config, pattern, read, region, slice};
use lacuna_link::{Chances, Fraction, Loss, PipeConfig, SplitMix64};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::Slices;
use lacuna_rc::{Done, Flags, Operation, RcConfig, Repair, SendWork, ShimSettings, Verb};
use lacuna_wire::rc::{CodeKind, Strength};
use std::collections::VecDeque;

/// Bytes of the region that are only read, and then of those that are only written.
const READ_BYTES: u64 = 1 << 19;

/// Id, operation, bytes, and where the bytes that were read are and what they are.
type Sent = (u64, Operation, u64, Option<(Slices, Vec<u8>)>);
/// Operation, bytes, immediate, and the bytes.
type Came = (Operation, u64, Option<u32>, Option<Vec<u8>>);

struct Expected {
    /// Of the requester.
    sends: VecDeque<Sent>,
    /// Of the responder.
    receives: VecDeque<Came>,
    /// What was written to the peer's region.
    written: Vec<u8>,
}

fn post(world: &mut World, from: usize, id: u64, rng: &mut SplitMix64, expected: &mut Expected) {
    let peer = 1 - from;
    let len = match rng.below(4) {
        0 => rng.below(3),
        1 => rng.below(2000),
        2 => 1024 * rng.below(8),
        _ => rng.below(40_000),
    } as usize;
    let data = pattern(len, rng.next_u64());
    let buffer = SendBuffer::from(data.clone());
    let flags = Flags { is_fenced: rng.below(10) == 0, ..Flags::default() };
    let immediate = (rng.below(2) == 0).then(|| rng.next_u64() as u32);
    match rng.below(3) {
        0 => {
            let verb = Verb::Send { data: buffer, immediate };
            world.ends[from].post(SendWork { id, verb, flags });
            expected.sends.push_back((id, Operation::Send, len as u64, None));
            expected.receives.push_back((Operation::Receive, len as u64, immediate, Some(data)));
        }
        1 => {
            let at = rng.below(READ_BYTES - len as u64);
            let remote = world.ends[peer].remote(READ_BYTES + at);
            let verb = Verb::Write { data: buffer, remote, immediate };
            world.ends[from].post(SendWork { id, verb, flags });
            expected.written[at as usize..][..len].copy_from_slice(&data);
            expected.sends.push_back((id, Operation::Write, len as u64, None));
            if immediate.is_some() {
                expected.receives.push_back((
                    Operation::ReceiveWritten,
                    len as u64,
                    immediate,
                    None,
                ));
            }
        }
        _ => {
            let at = rng.below(READ_BYTES - len as u64);
            let into = all_of(&region(len));
            let there = bytes_of(&slice(&world.ends[peer].region, at, len as u64));
            let mut work = read(id, into.clone(), world.ends[peer].remote(at));
            work.flags = flags;
            world.ends[from].post(work);
            expected.sends.push_back((id, Operation::Read, len as u64, Some((into, there))));
        }
    }
}

/// What completed at an end, in order: requests, and messages of the peer.
type Completed = (Vec<Done>, Vec<Done>);

/// Does the work of a seed with these shims; the packets that they recovered and placed ahead go to `helped`.
fn run(
    seed: u64,
    loss_ppm: u32,
    (repair, shims): (Repair, [ShimSettings; 2]),
    helped: &mut [u64; 2],
) -> [Completed; 2] {
    let mut rng = SplitMix64::new(seed);
    let mtu_bytes = [256, 512, 1024, 1436, 4096][rng.below(5) as usize];
    let of = |ppm: u32| Fraction::checked_from_f64(f64::from(ppm) / 1e6).unwrap();
    let has_reordering = rng.below(2) == 0;
    let pipe = PipeConfig {
        delay_ns: 1_000_000,
        loss: if loss_ppm > 0 { Loss::Independent(of(loss_ppm)) } else { Loss::None },
        chances: Chances {
            reorder: of(if has_reordering { 5_000 } else { 0 }),
            duplicate: of(if loss_ppm > 0 { 5_000 } else { 0 }),
            ..Chances::default()
        },
        reorder_delay_ns: 100_000,
        ..PipeConfig::default()
    };
    let config = |number| RcConfig { repair, ..config(number, mtu_bytes) };
    let configs = [config(3), config(5)];
    let mut world = World::with_shims(configs, shims, [pipe.clone(), pipe], seed);
    for end in &world.ends {
        end.region.write(0, &pattern(READ_BYTES as usize, seed ^ 77)).unwrap();
    }
    let mut expected = [0, 1].map(|_| Expected {
        sends: VecDeque::new(),
        receives: VecDeque::new(),
        written: vec![0; READ_BYTES as usize],
    });
    // Receives are posted late now and then.
    let mut targets = [VecDeque::new(), VecDeque::new()];
    let mut owed = [0u64; 2];
    let mut next_id = 1;
    for _ in 0..rng.below(40) + 5 {
        for from in 0..2 {
            for _ in 0..rng.below(4) {
                let before = expected[from].receives.len();
                post(&mut world, from, next_id, &mut rng, &mut expected[from]);
                owed[1 - from] += (expected[from].receives.len() - before) as u64;
                next_id += 1;
            }
        }
        for at in 0..2 {
            let now = rng.below(owed[at] + 1);
            for _ in 0..now {
                let into = all_of(&region(40_000));
                targets[at].push_back(into.clone());
                world.ends[at].post_recv(1_000_000 + targets[at].len() as u64, into);
            }
            owed[at] -= now;
        }
        let some_ns = rng.below(3_000_000);
        world.run_until(some_ns, |_| false);
        world.now_ns += 1;
    }
    for at in 0..2 {
        for _ in 0..owed[at] {
            let into = all_of(&region(40_000));
            targets[at].push_back(into.clone());
            world.ends[at].post_recv(1, into);
        }
    }
    world.run_out();
    let completed = [0, 1].map(|at| world.ends[at].take_done());
    for at in 0..2 {
        for done in &completed[at] {
            assert_eq!(done.status, Ok(()), "seed {seed}: {done:?}");
            match done.received {
                None => {
                    let (id, operation, bytes, read) = expected[at].sends.pop_front().unwrap();
                    assert_eq!((done.id, done.operation, done.bytes), (id, operation, bytes));
                    if let Some((into, there)) = read {
                        assert!(bytes_of(&into) == there, "seed {seed}: read {id}");
                    }
                }
                Some(received) => {
                    let (operation, bytes, immediate, data) =
                        expected[1 - at].receives.pop_front().unwrap();
                    let into = targets[at].pop_front().unwrap();
                    assert_eq!((done.operation, done.bytes), (operation, bytes), "seed {seed}");
                    assert_eq!(received.immediate, immediate);
                    if let Some(data) = data {
                        assert!(bytes_of(&into.part(0..bytes).unwrap()) == data, "seed {seed}");
                    }
                }
            }
        }
        assert!(
            expected[at].sends.is_empty(),
            "seed {seed}: {} sends are open",
            expected[at].sends.len()
        );
        assert!(expected[1 - at].receives.is_empty(), "seed {seed}");
        let written = bytes_of(&slice(&world.ends[at].region, READ_BYTES, READ_BYTES));
        assert!(written == expected[1 - at].written, "seed {seed}: bytes that were written");
        let stats = world.ends[at].qp.stats();
        assert_eq!(stats.in_flight_bytes, 0, "seed {seed}: {stats:?}");
        if let Some(shim) = stats.shim {
            helped[0] += shim.received.packets_recovered;
            helped[1] += shim.received.packets_placed_ahead;
            if loss_ppm == 0 && !has_reordering {
                let received = shim.received;
                assert_eq!(received.blocks_failed, 0, "seed {seed}: nothing is lost: {received:?}");
                assert_eq!(received.packets_held, 0, "seed {seed}: {received:?}");
            }
        }
        let shared = &world.ends[at].shared;
        assert_eq!(shared.ring.used(), 0, "seed {seed}: packets wait for ever");
    }
    completed
        .map(|done| done.into_iter().map(without_wish).partition(|done| done.received.is_none()))
}

/// Whether a sender wished a wake-up is lost with a packet that is recovered: a shim sets the wish then.
fn without_wish(mut done: Done) -> Done {
    if let Some(received) = &mut done.received {
        received.is_solicited = false;
    }
    done
}

fn lowar(block_packets: u16, repairs: u16, code: CodeKind) -> ShimSettings {
    let strength = Strength { block_packets, repairs, code };
    ShimSettings::Protect { strength, caps_short_blocks: block_packets == 16 }
}

#[test]
fn random_work_is_done_once_in_order_and_whole() {
    for seed in 0..250 {
        for loss_ppm in [0, 1_000, 10_000, 50_000] {
            for repair in [Repair::GoBackN, Repair::SelectiveRepeat] {
                let how = (repair, [ShimSettings::Off; 2]);
                run(u64::from(loss_ppm) + seed, loss_ppm, how, &mut [0; 2]);
            }
        }
    }
}

#[test]
fn a_shim_changes_no_completion_and_no_byte() {
    let shims = [
        lowar(8, 1, CodeKind::Xor),
        lowar(16, 4, CodeKind::Xor),
        lowar(32, 1, CodeKind::Xor),
        lowar(16, 3, CodeKind::Mds),
    ];
    let mut helped = [0; 2];
    for seed in 0..120 {
        for loss_ppm in [0, 1_000, 10_000, 50_000] {
            let seed = u64::from(loss_ppm) + seed;
            let [one, other] = [seed % 4, seed / 4 % 4].map(|at| shims[at as usize]);
            let repair = [Repair::GoBackN, Repair::SelectiveRepeat][seed as usize % 2];
            let without = run(seed, loss_ppm, (repair, [ShimSettings::Off; 2]), &mut helped);
            for shims in [[one, other], [one, ShimSettings::Accept], [ShimSettings::Off, other]] {
                let with = run(seed, loss_ppm, (repair, shims), &mut helped);
                assert!(with == without, "seed {seed}, {shims:?}");
            }
        }
    }
    let [recovered, placed_ahead] = helped;
    assert!(recovered > 2_000 && placed_ahead > 10_000, "{recovered}, {placed_ahead}");
}
