//! Strengths that gateways choose: hosts write to each other over a path whose loss nobody tells, and two
//! gateways are followed frame by frame where it takes long.

mod common;

use common::hosts::{all_of, pattern, read, region, write};
use common::{Look, World, frame_of, packet_of};
use lacuna_gateway::{AutoConfig, Config, Counters, GATEWAYS, Gateway, Layout, Strength};
use lacuna_link::{Fraction, Loss, PipeConfig};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{REPAIR_OPCODE, RepairHeader};

const MESSAGE_BYTES: usize = 60_000;
/// Messages that an end has under way.
const DEPTH: u64 = 40;

fn auto(seed: u64) -> Config {
    Config { auto: Some(AutoConfig::default()), seed, ..Config::new(None) }
}

fn autos() -> [Option<Config>; 2] {
    [1, 2].map(|seed| Some(auto(seed)))
}

fn path(loss: f64) -> PipeConfig {
    let loss = match loss {
        0.0 => Loss::None,
        _ => Loss::Independent(Fraction::from_f64(loss)),
    };
    PipeConfig { delay_ns: 10_000_000, loss, ..PipeConfig::default() }
}

/// On some connections the end at this side has so many messages done, and all of them arrive.
fn run(world: &mut World, some: std::ops::Range<usize>, side: usize, messages: u64, reads: bool) {
    let data = pattern(MESSAGE_BYTES, 5);
    let into = all_of(&region(MESSAGE_BYTES));
    let mut posted = vec![0; world.connections.len()];
    let mut post = |world: &mut World| {
        let mut is_done = true;
        for index in some.clone() {
            let ends = &mut world.connections[index].ends;
            let remote = ends[1 - side].remote(0);
            let end = &mut ends[side];
            let (done, posted) = (end.done.len() as u64, &mut posted[index]);
            while *posted < messages && *posted - done < DEPTH {
                end.post(match reads {
                    true => read(*posted, into.clone(), remote),
                    false => write(*posted, &data, remote),
                });
                *posted += 1;
            }
            is_done &= done == messages;
        }
        is_done
    };
    post(world);
    world.run_until(post);
    for end in world.connections.iter_mut().flat_map(|connection| &mut connection.ends) {
        assert!(end.take_done().iter().all(|done| done.status == Ok(())));
    }
}

fn counters(world: &World, at: usize) -> Counters {
    world.gateways[at].as_ref().unwrap().counters()
}

/// Repairs for a hundred packets.
fn percent(strength: Option<Strength>) -> f64 {
    strength.map_or(0.0, |it| 100.0 * f64::from(it.repairs) / f64::from(it.block_packets))
}

#[test]
fn a_path_that_loses_nothing_has_less_than_one_repair_in_a_hundred_packets() {
    let mut world = World::new(1, autos(), &path(0.0));
    // The receiving side writes, too, so that its gateway knows the round trip.
    run(&mut world, 0..1, 1, 1, false);
    run(&mut world, 0..1, 0, 4_000, false);
    let sent = counters(&world, 0);
    assert!(100 * sent.repairs_sent < sent.local_frames, "{sent:?}");
    println!("{} repairs in {} frames", sent.repairs_sent, sent.local_frames);
    let before = sent.repairs_sent;
    run(&mut world, 0..1, 0, 500, false);
    assert_eq!(counters(&world, 0).repairs_sent, before, "there are none in the end");
    assert_eq!((world.retransmitted(), world.repairs_at_hosts), (0, 0));
}

#[test]
fn a_path_that_loses_gets_a_strength_that_saves_most_retransmissions() {
    let again = |gateways| {
        let mut world = World::new(4, gateways, &path(0.01));
        run(&mut world, 0..4, 0, 100, false);
        (world.retransmitted(), world)
    };
    let ((with, world), (without, _)) = (again(autos()), again([None; 2]));
    println!("{with} packets again with gateways, {without} without");
    assert!(4 * with < without, "{with} with gateways, {without} without");
    assert_eq!(world.repairs_at_hosts, 0);
    let (near, far) = (counters(&world, 0), counters(&world, 1));
    let chosen = far.chosen.unwrap();
    assert!((4.0..10.0).contains(&percent(chosen.strength)), "{chosen}");
    assert!((0.006..0.014).contains(&chosen.loss.loss), "{chosen}");
    assert!(far.requests_sent > 0 && near.requests_granted > 0, "{far:?} {near:?}");
    assert!(near.requests_granted <= near.requests_received && far.requests_sent < 10);
}

#[test]
fn answers_to_reads_are_protected_too() {
    let run = |gateways| {
        let mut world = World::new(2, gateways, &path(0.01));
        let start_ns = world.now_ns;
        run(&mut world, 0..2, 1, 400, true);
        (world.now_ns - start_ns, world)
    };
    let ((with_ns, world), (without_ns, _)) = (run(autos()), run([None; 2]));
    println!("{} ms with gateways, {} without", with_ns / 1_000_000, without_ns / 1_000_000);
    // Sixteen READs under way are far less than the path holds, so a loss costs less than one of a WRITE.
    assert!(5 * with_ns < 4 * without_ns, "{with_ns} with gateways, {without_ns} without");
    let far = counters(&world, 1);
    assert!(far.received.packets_recovered > 200, "{far:?}");
    assert!(percent(far.chosen.unwrap().strength) > 4.0, "{far:?}");
}

#[test]
fn a_change_of_loss_is_followed() {
    let mut world = World::new(1, autos(), &path(0.0));
    run(&mut world, 0..1, 1, 1, false);
    let mut phase = |loss, messages| {
        world.set_path(&path(loss));
        run(&mut world, 0..1, 0, messages, false);
        let before = (world.retransmitted(), counters(&world, 0).repairs_sent);
        run(&mut world, 0..1, 0, 300, false);
        let after = (world.retransmitted(), counters(&world, 0).repairs_sent);
        let chosen = counters(&world, 1).chosen.unwrap();
        println!("{loss}: {} again, {} repairs; {chosen}", after.0 - before.0, after.1 - before.1);
        (percent(chosen.strength), after.0 - before.0)
    };
    let clean = phase(0.0, 2_000);
    let (weak, _) = phase(0.001, 500);
    let (strong, again) = phase(0.01, 300);
    let (back, _) = phase(0.0, 4_000);
    assert_eq!(clean, (0.0, 0));
    assert!(weak > 0.0 && strong > 1.5 * weak, "{weak} {strong}");
    // Without protection each loss costs thousands.
    assert!(again < 10_000, "{again}");
    assert!(back < weak, "{back} {weak}");
}

#[test]
fn a_new_flow_is_protected_from_its_first_block_on() {
    let mut world = World::new(2, autos(), &path(0.01));
    run(&mut world, 0..1, 0, 200, false);
    let before = counters(&world, 0);
    assert!(before.requests_granted > 0);
    run(&mut world, 1..2, 0, 1, false);
    let after = counters(&world, 0);
    assert_eq!(after.flows.0, before.flows.0 + 1);
    assert!(after.repairs_sent > before.repairs_sent);
}

#[test]
fn one_gateway_alone_is_no_harm() {
    for at in 0..2 {
        let mut gateways = autos();
        gateways[1 - at] = None;
        let mut world = World::new(2, gateways, &path(0.01));
        run(&mut world, 0..2, 0, 30, false);
        let Counters { repairs_sent, requests_sent, .. } = counters(&world, at);
        assert_eq!(repairs_sent, 0, "nobody asks for any");
        // What a host sees is some requests, which it drops.
        assert!(
            world.repairs_at_hosts <= requests_sent,
            "{} {requests_sent}",
            world.repairs_at_hosts
        );
        let seconds = world.now_ns / 1_000_000_000;
        assert!(requests_sent <= 20 * (1 + seconds), "{requests_sent} in {seconds} s");
    }
}

#[test]
fn a_gateway_with_a_fixed_strength_grants_nothing() {
    let fixed = Config { seed: 1, ..Config::new(Some("32:1".parse().unwrap())) };
    let mut world = World::new(2, [Some(fixed), Some(auto(2))], &path(0.01));
    run(&mut world, 0..2, 0, 60, false);
    let near = counters(&world, 0);
    assert!(near.requests_received > 0 && near.requests_granted == 0, "{near:?}");
    assert!(near.repairs_sent * 25 < near.packets_coded, "{near:?}");
    assert_eq!(world.repairs_at_hosts, 0, "what is for gateways ends there");
}

#[test]
fn a_request_of_a_host_passes_and_one_for_gateways_ends() {
    let strength = Some("8:1".parse().unwrap());
    for config in [auto(1), Config::new(None), Config::new(strength)] {
        for look in [Look::V4, Look::V4Tagged, Look::V6] {
            let mut gateway = Gateway::new(config).unwrap();
            let frame = |queue_pair| {
                let mut packet = [0; 16];
                RepairHeader::Request { strength }.emit(Qpn::from_bits(queue_pair), &mut packet);
                frame_of(look, 0, &packet, 7)
            };
            let mut out = Vec::new();
            for queue_pair in [2, 0x12_3456, 0xff_fffe] {
                gateway.on_remote(5, &frame(queue_pair), &mut |frame| out.push(frame.to_vec()));
                gateway.on_local(5, &frame(queue_pair), &mut |frame| out.push(frame.to_vec()));
                assert!(out == [frame(queue_pair), frame(queue_pair)]);
                out.clear();
            }
            let mut damaged = frame(GATEWAYS);
            let end = damaged.len();
            damaged[end - 1] ^= 1;
            for frame in [frame(GATEWAYS), damaged] {
                gateway.on_remote(5, &frame, &mut |_| panic!("it is for gateways"));
            }
            let counters = gateway.counters();
            assert_eq!((counters.requests_received, counters.requests_granted), (1, 0));
            assert_eq!(counters.bad_icrc, 1);
        }
    }
}

/// Two gateways with a flow from the near one to the far one, which loses every fiftieth packet, at 10,000
/// packets a second; every eighth is acknowledged.
struct Flow {
    near: Gateway,
    far: Option<Gateway>,
    now_ns: u64,
    psn: u32,
    at_hosts: u64,
}

impl Flow {
    fn new() -> Self {
        let [near, far] = [1, 2].map(Self::gateway);
        Self { near, far: Some(far), now_ns: 1, psn: 0, at_hosts: 0 }
    }

    fn gateway(seed: u64) -> Gateway {
        Gateway::new(Config { round_trip_ns: Some(40_000_000), ..auto(seed) }).unwrap()
    }

    /// Runs for some time; how many repairs were sent.
    fn run(&mut self, seconds: u64) -> u64 {
        let before = self.near.counters().repairs_sent;
        for _ in 0..seconds * 10_000 {
            self.step();
        }
        self.near.counters().repairs_sent - before
    }

    fn step(&mut self) {
        let Self { near, far, now_ns, psn, at_hosts } = self;
        *now_ns += 100_000;
        let [_, p2, p1, p0] = psn.to_be_bytes();
        let mut data = vec![0x07, 0, 0xff, 0xff, 0, 0, 0, 7, 0, p2, p1, p0];
        data.extend([p0; 64]);
        let is_lost = *psn % 50 == 11;
        near.on_local(*now_ns, &frame_of(Look::V4, 0, &data, 1), &mut |frame| {
            let layout = Layout::of(frame).unwrap();
            let is_repair = layout.packet(frame)[0] == REPAIR_OPCODE;
            match far {
                _ if is_lost && !is_repair => {}
                Some(far) => far.on_remote(*now_ns, frame, &mut |_| {}),
                None => *at_hosts += u64::from(is_repair),
            }
        });
        if *psn % 8 == 0 {
            let answer = [0x11, 0, 0xff, 0xff, 0, 0, 0, 9, 0, p2, p1, p0, 0, 0, 0, 1];
            let answer = frame_of(Look::V4, 1, &answer, 2);
            let mut path = Vec::new();
            match far {
                Some(far) => far.on_local(*now_ns, &answer, &mut |frame| path.push(frame.to_vec())),
                None => path.push(answer.clone()),
            }
            for frame in path {
                near.on_remote(*now_ns, &frame, &mut |frame| {
                    assert!(packet_of(frame)[0] != REPAIR_OPCODE && frame == answer);
                });
            }
        }
        if let Some(far) = far {
            far.on_timeout(*now_ns, &mut |_| {});
        }
        *psn = (*psn + 1) & 0xff_ffff;
    }
}

#[test]
fn a_gateway_that_begins_anew_is_asked_again() {
    let mut flow = Flow::new();
    assert!(flow.run(2) > 0);
    flow.near = Flow::gateway(3);
    assert!(flow.run(6) > 0, "within the time after which requests are repeated");
    let recovered = flow.far.as_ref().unwrap().counters().received.packets_recovered;
    assert!(recovered > 300, "{recovered}");
}

#[test]
fn a_strength_that_nobody_asks_for_any_more_ends() {
    let mut flow = Flow::new();
    assert!(flow.run(2) > 0);
    flow.far = None;
    assert!(flow.run(25) > 0);
    assert_eq!(flow.run(2), 0);
    assert!(flow.at_hosts > 0);
}
