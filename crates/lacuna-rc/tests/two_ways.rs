//! A shim below a connection that is used in both directions at once: requests and answers are numbered apart
//! in each, so four streams of numbers pass between the two ends.

mod common;

use common::{START_NS, World, config, fixed, pattern};
use lacuna_link::{Fraction, Loss, PipeConfig};
use lacuna_place::buffer::SendBuffer;
use lacuna_rc::{Flags, SendWork, ShimSettings, Verb};

const RATE: u64 = 1_000_000_000;
const MESSAGE_BYTES: usize = 1 << 18;
const LOSS: f64 = 1e-3;
const SECONDS: u64 = 3;

/// What both ends counted together.
struct Seen {
    recovered: u64,
    sent_again: u64,
    /// Blocks that ended early.
    cut: u64,
}

/// Both ends write to each other and, if `reads`, read from each other, all back to back.
fn both_ways(shim: ShimSettings, reads: bool) -> Seen {
    let pipe = PipeConfig {
        delay_ns: 10_000_000,
        rate_bits_per_s: Some(RATE),
        queue_bytes: 4 << 20,
        loss: Loss::Independent(Fraction::checked_from_f64(LOSS).unwrap()),
        ..PipeConfig::default()
    };
    let configs = [3, 5].map(|number| {
        let mut config = config(number, 1024);
        config.controller = fixed(RATE * 4 / 10);
        config
    });
    let mut world = World::with_shims(configs, [shim; 2], [pipe.clone(), pipe], 5);
    let data = SendBuffer::from(pattern(MESSAGE_BYTES, 1));
    let remotes = [world.ends[1].remote(0), world.ends[0].remote(0)];
    let into = world.ends.each_ref().map(|end| common::slice(&end.region, 0, MESSAGE_BYTES as u64));
    let mut id = 0;
    let mut post = |world: &mut World, end: usize| {
        id += 1;
        let verb = match reads && id % 4 < 2 {
            true => common::read(id, into[end].clone(), remotes[end]).verb,
            false => Verb::Write { data: data.clone(), remote: remotes[end], immediate: None },
        };
        world.ends[end].post(SendWork { id, verb, flags: Flags::default() });
    };
    for _ in 0..16 {
        post(&mut world, 0);
        post(&mut world, 1);
    }
    while world.now_ns < START_NS + SECONDS * 1_000_000_000 {
        world.run_until(1_000_000, |_| false);
        for end in 0..2 {
            for done in world.ends[end].take_done() {
                assert_eq!(done.status, Ok(()));
                post(&mut world, end);
            }
        }
    }
    let mut seen = Seen { recovered: 0, sent_again: 0, cut: 0 };
    for end in &world.ends {
        seen.sent_again += end.qp.stats().retransmitted_packets;
        let shim = end.lane.shim().unwrap().counters();
        seen.recovered += shim.received.packets_recovered;
        seen.cut += shim.sent.blocks_cut;
    }
    seen
}

#[test]
fn losses_are_recovered_both_ways_at_once() {
    // Three losses in a block are needed to defeat it: one in a million blocks.
    let shim: ShimSettings = "lowar:mds:16:2".parse().unwrap();
    for reads in [false, true] {
        let Seen { recovered, sent_again, cut } = both_ways(shim, reads);
        assert!(recovered > 100, "{recovered}");
        assert_eq!((sent_again, cut), (0, 0), "with READs: {reads}");
    }
}
