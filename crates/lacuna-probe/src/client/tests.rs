//! Client and server over an emulated path on a fake clock: what the path is known to do has to come
//! out, within the interval that comes with it.

use super::*;
use crate::PAYLOAD_BYTES_MAX;
use crate::server::{Server, ServerConfig};
use crate::summary::{PathEstimate, Summary};
use lacuna_datapath::{
    Burst, BurstBuffers, Datapath, Fraction, Impair, Impairment, Loss, Mem, MemNetwork, Placer,
    ReceivedBatch,
};
use std::collections::VecDeque;
use std::net::SocketAddr;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// How a path is, each way, and what is done over it.
struct Scene {
    to_server: Impairment,
    to_client: Impairment,
    seed: u64,
    config: ClientConfig,
    server_answers: bool,
    refuses: Refuses,
}

/// Whether the client's host refuses a packet at a time.
type Refuses = fn(u64, &Packet) -> bool;

impl Scene {
    /// A path of 20 ms that does nothing else; 4 s at 10 Mbit/s.
    fn new() -> Self {
        let way = Impairment { delay_ns: 10 * MS, ..Impairment::default() };
        let config = ClientConfig {
            nonce: 77,
            seed: 5,
            rate_bits_per_s: 10_000_000,
            overhead_bytes: 28,
            flows: 1,
            payloads_bytes: vec![1000],
            trials: 1,
            duration_ns: 4 * S,
            largest_bytes: PAYLOAD_BYTES_MAX,
            fragments: false,
        };
        let (to_server, to_client) = (way.clone(), way);
        Self { to_server, to_client, seed: 1, config, server_answers: true, refuses: |_, _| false }
    }

    fn run(self) -> World {
        let mut world = World::new(self);
        world.run();
        world
    }
}

struct World {
    now_ns: u64,
    client: Client,
    lanes: Vec<Impair<Mem>>,
    server: Server,
    server_end: Impair<Mem>,
    server_answers: bool,
    refuses: Refuses,
    /// When each packet was sent, and its length with headers.
    sent: Vec<(u64, u64)>,
    stop_at_ns: Option<u64>,
}

/// Keeps what came.
#[derive(Default)]
struct Kept(VecDeque<(SocketAddr, Vec<u8>)>);

impl Placer for Kept {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        self.0.extend(batch.packets().map(|packet| (batch.source, packet.to_vec())));
    }
}

fn send(end: &mut Impair<Mem>, now_ns: u64, to: SocketAddr, bytes: &[u8]) {
    let mut buffers = BurstBuffers::new();
    let mut burst: Burst<'_, '_> = buffers.start(to);
    burst.push(&[], bytes, &[]);
    assert_eq!(end.send(now_ns, &burst).expect("the network takes it"), 1);
}

fn receive(end: &mut Impair<Mem>, now_ns: u64) -> Kept {
    let mut kept = Kept::default();
    while end.receive(now_ns, &mut kept).expect("no sockets") > 0 {}
    kept
}

impl World {
    fn new(scene: Scene) -> Self {
        let network = MemNetwork::new();
        let end = |address: &str, way: &Impairment, seed: u64| {
            let address: SocketAddr = address.parse().expect("an address");
            let inner = network.bind(address, 1 << 30).expect("free");
            Impair::new(inner, way.clone(), seed)
        };
        let lanes = (0..=u64::from(scene.config.flows))
            .map(|lane| end("10.0.0.1:0", &scene.to_server, scene.seed ^ lane << 32))
            .collect();
        let config = ServerConfig {
            key: [1; 32],
            clients_max: 1,
            session_ns_max: 7 * 24 * 3600 * S,
            silence_ns_max: 30 * S,
        };
        Self {
            now_ns: 0,
            client: Client::new(scene.config, 0).expect("a sane configuration"),
            lanes,
            server: Server::new(config),
            server_end: end("10.0.0.2:7403", &scene.to_client, !scene.seed),
            server_answers: scene.server_answers,
            refuses: scene.refuses,
            sent: Vec::new(),
            stop_at_ns: None,
        }
    }

    fn run(&mut self) {
        while !self.client.is_done() {
            self.step();
            assert!(self.now_ns < 100_000 * S, "it hangs");
        }
    }

    fn step(&mut self) {
        let server_addr = self.server_end.local_addr();
        if self.stop_at_ns.take_if(|at_ns| self.now_ns >= *at_ns).is_some() {
            self.client.stop(self.now_ns);
        }
        while let Some(packet) = self.client.poll_transmit(self.now_ns, &mut ()) {
            if (self.refuses)(self.now_ns, &packet) {
                self.client.on_refused(self.now_ns, packet.lane);
                continue;
            }
            self.client.on_taken();
            let bytes = packet.bytes(filler());
            self.sent.push((self.now_ns, bytes.len() as u64 + 28));
            send(&mut self.lanes[packet.lane], self.now_ns, server_addr, &bytes);
        }
        // What is due on the way there is released first, so that nobody waits for a step.
        self.take_what_came();
        for (from, bytes) in receive(&mut self.server_end, self.now_ns).0 {
            let answer = self.server.on_datagram(self.now_ns, from, &bytes, &mut ());
            if let Some(answer) = answer.filter(|_| self.server_answers) {
                send(&mut self.server_end, self.now_ns, from, &answer);
            }
        }
        self.take_what_came();
        let ends = self.lanes.iter().chain([&self.server_end]);
        let events = ends.filter_map(Datapath::next_event_ns);
        let next = events.chain(self.client.poll_timeout()).chain(self.stop_at_ns).min();
        self.now_ns = next.unwrap_or(self.now_ns).max(self.now_ns + 1);
    }

    fn take_what_came(&mut self) {
        for lane in &mut self.lanes {
            for (_, bytes) in receive(lane, self.now_ns).0 {
                self.client.on_datagram(self.now_ns, &bytes);
            }
        }
    }

    /// What all trials together say; there was no error.
    fn path(&self) -> PathEstimate {
        assert_eq!(self.client.error(), None);
        Summary::new(self.client.trials(), 28).path.expect("a trial")
    }
}

/// Of so many paths that differ by their luck only, how many come out within the interval. It is one
/// of 95 %, so of 20 some may not.
fn held(scene: impl Fn() -> Scene, holds: impl Fn(&PathEstimate) -> bool) -> usize {
    (0..20)
        .filter(|seed| {
            let mut scene = scene();
            scene.seed = 1000 + seed;
            holds(&scene.run().path())
        })
        .count()
}

#[test]
fn a_perfect_path_is_reported_as_one() {
    let world = Scene::new().run();
    let path = world.path();
    let trial = &world.client.trials()[0];
    // 10 Mbit/s of 1028 bytes for 4 s.
    assert!((4860..=4865).contains(&trial.sent), "{}", trial.sent);
    assert_eq!((trial.lost(), trial.counted.duplicates, trial.counted.reordered), (0, 0, 0));
    assert!(path.loss.low == 0.0 && path.loss.high < 1e-3 && path.bursts.is_none());
    let rtt = path.rtt.expect("round trips");
    assert!(rtt.samples > 4000);
    assert_eq!((rtt.min_s, rtt.max_s, rtt.deviation_s.value), (20e6 * 1e-9, 20e6 * 1e-9, 0.0));
    assert!(path.rate_bits_per_s.expect("it arrived").holds(10e6), "{path:?}");
    let mtu = world.client.path_mtu().expect("found");
    assert_eq!((mtu.payload_bytes, mtu.is_hosts_limit), (PAYLOAD_BYTES_MAX, true));
    assert_eq!(world.server.clients(), 0, "it said goodbye");
}

#[test]
fn known_loss_and_bursts_are_within_their_intervals() {
    for (loss, burst) in [(1e-2, 1.02), (2e-2, 4.0), (5e-2, 8.0)] {
        let scene = || {
            let mut scene = Scene::new();
            scene.to_server.loss = Loss::bursts(loss, burst).expect("possible");
            scene.config.duration_ns = 10 * S;
            scene
        };
        let losses = held(scene, |path| path.loss.holds(loss));
        assert!(losses >= 17, "{loss} in bursts of {burst}: {losses} of 20");
        let bursts =
            held(scene, |path| path.bursts.is_some_and(|fit| fit.mean_burst_packets.holds(burst)));
        assert!(bursts >= 17, "bursts of {burst}: {bursts} of 20");
    }
}

#[test]
fn several_flows_with_losses_of_their_own_show_their_bursts() {
    let scene = || {
        let mut scene = Scene::new();
        scene.to_server.loss = Loss::bursts(2e-2, 6.0).expect("possible");
        scene.config.flows = 16;
        scene.config.duration_ns = 10 * S;
        scene
    };
    let both = held(scene, |path| {
        path.loss.holds(2e-2) && path.bursts.is_some_and(|fit| fit.mean_burst_packets.holds(6.0))
    });
    assert!(both >= 16, "{both} of 20");
}

#[test]
fn loss_on_the_way_back_is_not_the_paths() {
    let mut scene = Scene::new();
    scene.to_client.loss = Loss::Independent(Fraction::from_f64(0.3));
    let world = scene.run();
    assert_eq!(world.client.trials()[0].lost(), 0);
    let rtt = world.path().rtt.expect("some came back");
    assert!((2500..4300).contains(&rtt.samples), "{}", rtt.samples);
}

#[test]
fn known_delay_and_its_spread_are_within_their_intervals() {
    // Packets keep their order, so jitter must be small against the gaps for it to be uniform.
    let (gap_ns, jitter_ns) = (822_400, 700_000);
    let scene = || {
        let mut scene = Scene::new();
        scene.to_server.jitter_ns = jitter_ns;
        assert!(jitter_ns < gap_ns);
        scene
    };
    let mean_s = (20 * MS + jitter_ns / 2) as f64 / 1e9;
    let deviation_s = jitter_ns as f64 / 12f64.sqrt() / 1e9;
    let means = held(scene, |path| path.rtt.is_some_and(|rtt| rtt.mean_s.holds(mean_s)));
    assert!(means >= 17, "{means} of 20");
    let medians = held(scene, |path| path.rtt.is_some_and(|rtt| rtt.p50_s.holds(mean_s)));
    assert!(medians >= 17, "{medians} of 20");
    let spreads =
        held(scene, |path| path.rtt.is_some_and(|rtt| rtt.deviation_s.holds(deviation_s)));
    assert!(spreads >= 17, "{spreads} of 20");
    let tails = held(scene, |path| {
        path.rtt.is_some_and(|rtt| rtt.p99_s.holds((20 * MS) as f64 / 1e9 + 0.99 * 700e-6))
    });
    assert!(tails >= 17, "{tails} of 20");
}

#[test]
fn known_reordering_is_within_its_interval() {
    let scene = || {
        let mut scene = Scene::new();
        scene.to_server.reorder = Fraction::from_f64(0.02);
        scene.to_server.reorder_delay_ns = 5 * MS;
        scene
    };
    let shares = held(scene, |path| path.reordered.holds(0.02));
    assert!(shares >= 17, "{shares} of 20");
    let path = scene().run().path();
    // 5 ms are six packets; one or two that were held before may come in between as well.
    assert!((6..=8).contains(&path.reordering_extent.1), "{path:?}");
    assert!((5e-3 - 1e-3..=5e-3).contains(&path.reordering_late_s), "{path:?}");
}

#[test]
fn the_rate_that_a_link_delivers_is_within_its_interval() {
    let scene = || {
        let mut scene = Scene::new();
        scene.to_server.rate_bits_per_s = Some(4_000_000);
        scene.to_server.queue_bytes = 20_000;
        scene
    };
    let world = scene().run();
    let path = world.path();
    assert!(path.rate_bits_per_s.expect("it arrived").holds(4e6), "{path:?}");
    assert!(path.loss.holds(0.6) || (path.loss.value - 0.6).abs() < 0.01, "{:?}", path.loss);
    // 20 kB wait for 40 ms.
    let rtt = path.rtt.expect("round trips");
    assert!(rtt.max_s > 0.055 && rtt.max_s < 0.065, "{rtt:?}");
}

#[test]
fn the_paths_mtu_is_found_by_what_comes_through_and_larger_probes_are_left_out() {
    let mut scene = Scene::new();
    scene.config.payloads_bytes = vec![1000, 1400, 4000, 8000];
    scene.config.duration_ns = S / 2;
    scene.config.largest_bytes = 1472;
    let world = scene.run();
    let mtu = world.client.path_mtu().expect("found");
    assert_eq!((mtu.packet_bytes, mtu.is_hosts_limit), (1500, true));
    assert_eq!(world.client.payloads_bytes(), [1000, 1400]);
    let sizes: Vec<u32> = world.client.trials().iter().map(|trial| trial.payload_bytes).collect();
    assert_eq!(sizes, [1000, 1400]);

    let mut scene = Scene::new();
    scene.config.payloads_bytes = vec![4000];
    scene.config.largest_bytes = 1472;
    let world = scene.run();
    let error = ClientError::NothingFits { payload_bytes_max: 1472 };
    assert_eq!(world.client.error(), Some(&error));
}

#[test]
fn duplicates_are_counted_and_damage_is_loss() {
    let mut scene = Scene::new();
    scene.to_server.duplicate = Fraction::from_f64(0.1);
    scene.to_server.corrupt = Fraction::from_f64(0.05);
    let world = scene.run();
    let path = world.path();
    // The copy of a damaged packet is whole, but there is one for every tenth only.
    assert!(path.loss.holds(0.045), "{:?}", path.loss);
    assert!((380..590).contains(&path.duplicates), "{}", path.duplicates);
    assert!(world.server.ignored().damaged > 0);
}

#[test]
fn an_exchange_over_a_bad_path_comes_to_its_end() {
    let mut scene = Scene::new();
    let half = Loss::Independent(Fraction::from_f64(0.4));
    (scene.to_server.loss, scene.to_client.loss) = (half.clone(), half);
    scene.config.trials = 3;
    scene.config.duration_ns = S;
    let world = scene.run();
    assert_eq!(world.client.trials().len(), 3);
    assert!(world.path().loss.holds(0.4));
}

#[test]
fn the_rate_is_never_exceeded_whatever_is_sent() {
    let mut scene = Scene::new();
    scene.to_server.loss = Loss::Independent(Fraction::from_f64(0.2));
    scene.config.payloads_bytes = vec![100, 9000];
    scene.config.flows = 3;
    scene.config.duration_ns = S / 2;
    let world = scene.run();
    let mut bits = 0;
    for (at_ns, bytes) in &world.sent {
        bits += u128::from(bytes * 8);
        assert!(bits * 1_000_000_000 <= u128::from(*at_ns) * 10_000_000, "at {at_ns} ns");
    }
    assert!(world.sent.len() > 4800);
}

#[test]
fn a_silent_server_is_an_error_after_a_stated_time() {
    let mut scene = Scene::new();
    scene.server_answers = false;
    let world = scene.run();
    match world.client.error() {
        Some(ClientError::Silent { asked, waited_ns, was_heard: false }) => {
            assert_eq!((*asked, *waited_ns / S), ("the first packet", 10));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_falls_silent_leaves_what_was_measured() {
    let mut scene = Scene::new();
    scene.config.trials = 3;
    scene.config.duration_ns = S;
    let mut world = World::new(scene);
    while world.client.trials().len() < 2 {
        world.step();
    }
    world.server_answers = false;
    world.run();
    assert_eq!(world.client.trials().len(), 2);
    assert!(matches!(world.client.error(), Some(ClientError::Silent { was_heard: true, .. })));
}

#[test]
fn being_stopped_cuts_a_trial_short_and_keeps_it() {
    let mut scene = Scene::new();
    scene.config.trials = 5;
    let mut world = World::new(scene);
    world.stop_at_ns = Some(6 * S);
    world.run();
    assert_eq!(world.client.error(), None);
    let trials = world.client.trials();
    assert_eq!(trials.len(), 2);
    assert!(trials[1].duration_ns < 2 * S && trials[1].sent > 100, "{}", trials[1].duration_ns);
    assert_eq!(trials[1].lost(), 0);
    assert!(world.path().rate_bits_per_s.expect("it arrived").holds(10e6));
    assert_eq!(world.server.clients(), 0);
}

#[test]
fn sizes_take_turns() {
    let mut scene = Scene::new();
    scene.config.payloads_bytes = vec![1000, 2000, 1000];
    scene.config.trials = 2;
    scene.config.duration_ns = S / 10;
    let world = scene.run();
    let sizes: Vec<u32> = world.client.trials().iter().map(|trial| trial.payload_bytes).collect();
    assert_eq!(sizes, [1000, 2000, 1000, 2000]);
    let progress = world.client.progress(world.now_ns);
    assert_eq!((progress.trials_done, progress.trials), (4, 4));
}

#[test]
fn a_measurement_that_cannot_be_is_refused_with_what_would_do() {
    let config = Scene::new().config;
    for (config, part) in [
        (ClientConfig { payloads_bytes: vec![8], ..config.clone() }, "use 40 to 65507"),
        (ClientConfig { payloads_bytes: vec![], ..config.clone() }, "choose a payload"),
        (ClientConfig { trials: 0, ..config.clone() }, "choose a payload"),
        (ClientConfig { flows: 65, ..config.clone() }, "use 1 to 64"),
        (ClientConfig { rate_bits_per_s: 1, ..config.clone() }, "at least 80000"),
        (ClientConfig { duration_ns: u64::MAX, ..config.clone() }, "up to 3600 s"),
        (ClientConfig { rate_bits_per_s: u64::MAX, ..config.clone() }, "lower rate"),
    ] {
        let error = config.validate().expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn what_the_host_refuses_is_counted_and_not_taken_for_the_path() {
    // A second in the middle of the trial, and a moment before everything.
    let mut scene = Scene::new();
    scene.refuses = |now_ns, _| now_ns < 400 * MS || (2 * S..3 * S).contains(&now_ns);
    let world = scene.run();
    assert_eq!(world.client.error(), None);
    let trial = &world.client.trials()[0];
    // 10 Mbit/s of 1028 bytes.
    assert!((1200..=1230).contains(&trial.refused), "{}", trial.refused);
    assert_eq!(trial.lost(), trial.refused, "the path itself loses nothing");
    assert!(trial.is_marked());
    // A search during which packets are refused does not take the path for a narrow one.
    let mut scene = Scene::new();
    scene.refuses = |now_ns, packet| packet.payload_bytes() > 2000 && now_ns < 5 * S;
    let mtu = scene.run().client.path_mtu().expect("found");
    assert_eq!(mtu.payload_bytes, PAYLOAD_BYTES_MAX);
}

#[test]
fn a_host_that_takes_nothing_at_all_is_said_to_within_a_moment() {
    let mut scene = Scene::new();
    scene.refuses = |_, _| true;
    let world = scene.run();
    let Some(ClientError::Unsendable { packets, was_heard: false, .. }) = world.client.error()
    else {
        panic!("{:?}", world.client.error())
    };
    assert!(*packets > 10, "it tried for a moment: {packets}");
    assert!(world.now_ns < 2 * S, "{}", world.now_ns);
}

#[test]
fn a_host_that_takes_nothing_any_more_is_not_taken_for_a_silent_server() {
    for (since, trials) in [(50 * MS, 0), (300 * MS, 0), (6 * S, 1)] {
        let mut scene = Scene::new();
        scene.config.trials = 3;
        scene.refuses = match since / MS {
            50 => |now_ns, _| now_ns >= 50 * MS,
            300 => |now_ns, _| now_ns >= 300 * MS,
            _ => |now_ns, _| now_ns >= 6 * S,
        };
        let world = scene.run();
        let error = world.client.error();
        assert!(
            matches!(error, Some(ClientError::Unsendable { was_heard: true, .. })),
            "{error:?}"
        );
        assert_eq!(world.client.trials().len(), trials, "what was measured is kept");
    }
}

#[test]
fn a_server_that_is_silent_is_not_the_hosts_fault_because_something_was_refused_before() {
    let mut scene = Scene::new();
    scene.server_answers = false;
    scene.refuses = |now_ns, _| now_ns < 500 * MS;
    let world = scene.run();
    let error = world.client.error();
    assert!(matches!(error, Some(ClientError::Silent { was_heard: false, .. })), "{error:?}");
}
