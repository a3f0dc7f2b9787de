//! Queue pairs that know nothing of gateways, over a path with faults: everything arrives, with and without
//! gateways, with one alone, and when one begins anew.

mod common;

use common::hosts::{all_of, bytes_of, pattern, read, region, send, write};
use common::{Look, World};
use lacuna_gateway::{Config, Gateway, Strength};
use lacuna_link::{Chances, Fraction, Loss, PipeConfig};

const MESSAGE_BYTES: usize = 24_000;

fn strength(text: &str) -> Option<Strength> {
    Some(text.parse().unwrap())
}

fn gateways(text: &str) -> [Option<Config>; 2] {
    [1, 2].map(|seed| Some(Config { seed, ..Config::new(strength(text)) }))
}

fn lossy(loss: f64) -> PipeConfig {
    let loss = Loss::Independent(Fraction::from_f64(loss));
    PipeConfig { delay_ns: 10_000_000, loss, ..PipeConfig::default() }
}

/// Sends, writes and reads on all connections and both ways; checks every byte. Returns the world.
fn exchange(mut world: World, mut meanwhile: impl FnMut(&mut World)) -> World {
    let mut inboxes = Vec::new();
    for (index, connection) in world.connections.iter_mut().enumerate() {
        for at in 0..2 {
            let seed = (2 * index + at) as u64;
            let inbox = region(MESSAGE_BYTES);
            let read_into = region(MESSAGE_BYTES);
            connection.ends[at].post_recv(9, all_of(&inbox));
            inboxes.push((index, at, inbox, read_into, seed));
        }
    }
    for (index, at, _, read_into, seed) in &inboxes {
        let ends = &mut world.connections[*index].ends;
        let remote = ends[1 - at].remote(0);
        let end = &mut ends[*at];
        end.post(write(1, &pattern(MESSAGE_BYTES, *seed), remote));
        end.post(send(2, &pattern(MESSAGE_BYTES, seed + 1000)));
        end.post(read(3, all_of(read_into), remote));
    }
    let expected = 4 * inboxes.len();
    world.run_until(|world| {
        meanwhile(world);
        let ends = world.connections.iter().flat_map(|connection| &connection.ends);
        ends.map(|end| end.done.len()).sum::<usize>() == expected
    });
    for connection in &world.connections {
        for done in connection.ends.iter().flat_map(|end| &end.done) {
            assert_eq!(done.status, Ok(()), "{done:?}");
        }
    }
    for (index, at, inbox, read_into, seed) in &inboxes {
        let other = if *at == 0 { seed + 1 } else { seed - 1 };
        assert!(bytes_of(&all_of(inbox)) == pattern(MESSAGE_BYTES, other + 1000), "{index} {at}");
        assert!(bytes_of(&all_of(read_into)) == pattern(MESSAGE_BYTES, *seed), "{index} {at}");
    }
    world
}

fn received(world: &World) -> u64 {
    let gateways = world.gateways.iter().flatten();
    gateways.map(|gateway| gateway.counters().received.packets_recovered).sum()
}

#[test]
fn a_hundred_flows_both_ways_are_sent_again_far_less_with_gateways() {
    let plain = exchange(World::new(100, [None; 2], &lossy(0.01)), |_| {});
    let world = exchange(World::new(100, gateways("8:1"), &lossy(0.01)), |_| {});
    assert_eq!(world.repairs_at_hosts, 0);
    assert!(received(&world) > 0);
    let (with, without) = (world.retransmitted(), plain.retransmitted());
    assert!(with * 4 < without, "{with} with gateways, {without} without");
    let trips = world.gateways.iter().flatten().map(|gateway| gateway.counters().round_trip_ns);
    trips.for_each(|ns| assert!((20_000_000..30_000_000).contains(&ns), "{ns}"));
}

#[test]
fn a_path_that_reorders_and_duplicates_is_no_harm() {
    let pipe = PipeConfig {
        chances: Chances {
            reorder: Fraction::from_f64(0.05),
            duplicate: Fraction::from_f64(0.02),
            ..Chances::default()
        },
        reorder_delay_ns: 500_000,
        ..lossy(0.01)
    };
    for look in [Look::V4, Look::V4Tagged, Look::V6] {
        let mut world = World::new(10, gateways("mds:8:2"), &pipe);
        world.look = look;
        let world = exchange(world, |_| {});
        assert_eq!(world.repairs_at_hosts, 0);
        assert!(received(&world) > 0, "{look:?}");
    }
}

#[test]
fn a_gateway_that_begins_anew_in_mid_flow_harms_nothing() {
    for at in 0..2 {
        let mut turns = 0;
        let world = exchange(World::new(30, gateways("8:1"), &lossy(0.03)), |world| {
            turns += 1;
            if turns % 3 == 0 {
                // All that waits in it is lost.
                world.gateways[at] = Some(Gateway::new(gateways("8:1")[at].unwrap()).unwrap());
            }
        });
        assert!(turns > 6, "{turns}");
        assert_eq!(world.repairs_at_hosts, 0);
    }
}

#[test]
fn one_gateway_alone_is_no_harm() {
    for at in 0..2 {
        let mut both = gateways("8:1");
        both[1 - at] = None;
        let world = exchange(World::new(4, both, &lossy(0.01)), |_| {});
        assert!(world.repairs_at_hosts > 0, "the far side has nobody who takes them");
        assert_eq!(received(&world), 0);
    }
}
