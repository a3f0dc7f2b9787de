//! `lowar:auto` on paths that change and on paths that do not, against the best strengths that stay as they
//! are, in virtual time.

mod world;

use lacuna_link::{Fraction, Loss};
use lacuna_model::{Code, Completion, ConnectionMessage, ConnectionPath, Gilbert, GoBackN, Shim};
use lacuna_wire::rc::{CodeKind, Strength};
use world::{Protection, Setup, World};

const SECOND_NS: u64 = 1_000_000_000;

/// The kinds of path that follow each other.
fn kinds() -> [Loss; 3] {
    [independent(1e-4), independent(1e-2), Loss::bursts(1e-3, 8.0).unwrap()]
}

fn independent(loss: f64) -> Loss {
    Loss::Independent(Fraction::from_f64(loss))
}

fn fixed() -> Vec<Strength> {
    let sizes = [(16, 1), (32, 1), (64, 1), (64, 8), (128, 8)];
    let codes = [CodeKind::Xor, CodeKind::Mds];
    sizes.into_iter().flat_map(|(r, c)| codes.map(|code| strength(r, c, code))).collect()
}

/// What a run came to: packets in order over the whole, and in each kind of phase after its first second,
/// each as a share of what the path carries.
#[derive(Clone, Debug, Default)]
struct Kept {
    whole: f64,
    kinds: [f64; 3],
    repairs: f64,
}

fn run(setup: Setup, phase_ns: u64, end_ns: u64) -> Kept {
    let packet_ns = setup.packet_ns();
    let mut world = World::new(setup);
    let mut kept = Kept::default();
    let mut times = [0u64; 3];
    let settle_ns = SECOND_NS.min(phase_ns / 2);
    for (phase, begin_ns) in (0..end_ns).step_by(phase_ns as usize).enumerate() {
        let kind = phase % 3;
        world.set_loss(&kinds()[kind]);
        world.run_to((begin_ns + settle_ns).min(end_ns));
        let before = world.received();
        let until_ns = (begin_ns + phase_ns).min(end_ns);
        world.run_to(until_ns);
        kept.kinds[kind] += (world.received() - before) as f64;
        times[kind] += until_ns - (begin_ns + settle_ns).min(until_ns);
        if std::env::var("TRACE").is_ok()
            && let Some(reason) = world.receiver().auto().and_then(|auto| auto.reason())
        {
            println!("{:>4} s {reason}", until_ns / SECOND_NS);
        }
    }
    if std::env::var("TRACE").is_ok() {
        println!("{:?}", world.receiver().counters().auto);
    }
    for (kept, time) in kept.kinds.iter_mut().zip(times) {
        *kept *= packet_ns / time.max(1) as f64;
    }
    kept.whole = world.received() as f64 * packet_ns / end_ns as f64;
    kept.repairs = world.repairs as f64 / world.packets as f64;
    kept
}

/// Runs them all and compares; the share of the best fixed strength that `auto` had over the whole, and in the
/// kind of phase where that is the least: of the seed where it is the least, and of the mean over all seeds.
fn compare(
    setup: &Setup,
    seeds: std::ops::Range<u64>,
    phase_ns: u64,
    end_ns: u64,
    fixed: &[Strength],
) -> [(f64, f64); 2] {
    let runs = |protection: Protection| -> Vec<Kept> {
        let of = |seed| run(Setup { seed, protection, ..setup.clone() }, phase_ns, end_ns);
        let runs: Vec<Kept> = seeds.clone().map(of).collect();
        let mean = |of: &dyn Fn(&Kept) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let kinds = [0, 1, 2].map(|kind| mean(&|kept| kept.kinds[kind]));
        println!(
            "{protection:?}: {:.4}, by kind {:.4} {:.4} {:.4}, repairs {:.4}",
            mean(&|kept| kept.whole),
            kinds[0],
            kinds[1],
            kinds[2],
            mean(&|kept| kept.repairs)
        );
        runs
    };
    let others: Vec<Vec<Kept>> =
        fixed.iter().map(|strength| runs(Protection::Fixed(*strength))).collect();
    let auto = runs(Protection::Auto);
    let least = |of: &dyn Fn(&Kept) -> f64| {
        let best = |seed: usize| others.iter().map(|runs| of(&runs[seed])).fold(0.0, f64::max);
        let shares = auto.iter().enumerate().map(|(seed, kept)| of(kept) / best(seed));
        shares.fold(f64::INFINITY, f64::min)
    };
    let mean = |of: &dyn Fn(&Kept) -> f64| {
        let sum = |runs: &Vec<Kept>| runs.iter().map(of).sum::<f64>();
        sum(&auto) / others.iter().map(sum).fold(0.0, f64::max)
    };
    let kinds = 0..3;
    let least_kind = kinds.clone().map(|kind| least(&|kept| kept.kinds[kind]));
    let mean_kind = kinds.map(|kind| mean(&|kept| kept.kinds[kind]));
    let both = [
        (least(&|kept| kept.whole), least_kind.fold(f64::INFINITY, f64::min)),
        (mean(&|kept| kept.whole), mean_kind.fold(f64::INFINITY, f64::min)),
    ];
    for ((whole, phases), name) in both.into_iter().zip(["worst seed", "mean"]) {
        println!(
            "{name}: {whole:.4} of the best over the whole, {phases:.4} in the worst kind of phase"
        );
    }
    both
}

/// Packets in order as a share of what the path carries, and repairs as a share of all packets, on a path that
/// stays as it is, after its first second.
fn steady(setup: Setup, loss: &Loss, seconds: u64) -> (f64, f64) {
    let packet_ns = setup.packet_ns();
    let mut world = World::new(setup);
    world.set_loss(loss);
    world.run_to(SECOND_NS);
    let before = world.received();
    world.run_to((1 + seconds) * SECOND_NS);
    let kept = (world.received() - before) as f64 * packet_ns / (seconds * SECOND_NS) as f64;
    if std::env::var("TRACE").is_ok()
        && let Some(auto) = world.receiver().auto()
    {
        println!("{}\n{:?}", auto.reason().unwrap(), auto.counters());
    }
    (kept, world.repairs as f64 / world.packets as f64)
}

fn strength(block_packets: u16, repairs: u16, code: CodeKind) -> Strength {
    Strength { block_packets, repairs, code }
}

/// The closed forms of a connection.
fn model(setup: &Setup, loss: &Loss) -> GoBackN {
    let loss = match loss {
        Loss::Independent(loss) => lacuna_model::Loss::PerPacket(loss.to_f64()),
        Loss::Gilbert { low, high, low_to_high, high_to_low } => {
            let [a, b, c, d] = [low, high, low_to_high, high_to_low].map(|of| of.to_f64());
            lacuna_model::Loss::Bursts(Gilbert::new(a, b, c, d).unwrap())
        }
        _ => lacuna_model::Loss::PerPacket(0.0),
    };
    let path = ConnectionPath::new(setup.packet_ns() * 1e-9, setup.rtt_ns as f64 * 1e-9, loss);
    let shim = match setup.protection {
        Protection::Fixed(Strength { block_packets, repairs, code }) => {
            let (r, c) = (block_packets.into(), repairs.into());
            let code = match code {
                CodeKind::Xor => Code::xor(r, c),
                CodeKind::Mds => Code::mds(r, c),
            };
            Some(Shim::new(code.unwrap()))
        }
        _ => None,
    };
    GoBackN::new(&path, shim).unwrap()
}

#[test]
fn the_shim_and_go_back_n_keep_what_their_closed_forms_say() {
    let xor = |r, c| Protection::Fixed(strength(r, c, CodeKind::Xor));
    let mds = |r, c| Protection::Fixed(strength(r, c, CodeKind::Mds));
    for (protection, loss) in [
        (Protection::Off, independent(1e-4)),
        (Protection::Off, independent(1e-3)),
        (Protection::Off, Loss::bursts(1e-3, 8.0).unwrap()),
        (xor(32, 1), independent(1e-3)),
        (xor(64, 8), independent(3e-3)),
        (xor(64, 8), Loss::bursts(1e-3, 8.0).unwrap()),
        (mds(128, 8), independent(1e-2)),
        (mds(128, 8), Loss::bursts(1e-3, 8.0).unwrap()),
    ] {
        let setup = |seed| Setup::long_path(seed, protection);
        let (mut kept, runs) = (0.0, 2);
        for seed in 0..runs {
            kept += steady(setup(seed), &loss, 6).0 / runs as f64;
        }
        let closed = model(&setup(0), &loss).goodput(1024);
        let ratio = kept / closed;
        println!(
            "{protection:?} {:.0e}: {kept:.4}, closed form {closed:.4}: {ratio:.3}",
            loss.mean()
        );
        assert!((0.93..1.05).contains(&ratio), "{protection:?} {loss:?}: {kept} of {closed}");
    }
}

#[test]
fn messages_one_by_one_take_as_long_as_their_closed_form_says() {
    let fixed = |r, c, code| Protection::Fixed(strength(r, c, code));
    for protection in [Protection::Off, fixed(32, 1, CodeKind::Xor), fixed(64, 8, CodeKind::Mds)] {
        for loss in [independent(1e-4), independent(1e-3), Loss::bursts(1e-3, 8.0).unwrap()] {
            let setup = Setup::long_path(7, protection);
            let mut world = World::new(setup.clone());
            world.set_loss(&loss);
            let times = world.messages(500);
            let mean_s = times.iter().sum::<u64>() as f64 / 500.0 / 1e9;
            let closed_s = ConnectionMessage::new(&model(&setup, &loss), 1024).mean_s();
            println!(
                "{protection:?} {:.0e}: {:.2} ms, closed form {:.2} ms",
                loss.mean(),
                1e3 * mean_s,
                1e3 * closed_s
            );
            let ratio = mean_s / closed_s;
            assert!((0.95..1.06).contains(&ratio), "{protection:?} {loss:?}: {ratio}");
        }
    }
}

#[test]
fn a_path_that_loses_next_to_nothing_has_next_to_no_repairs() {
    for loss in [Loss::None, independent(1e-5)] {
        let (kept, repairs) = steady(Setup::long_path(1, Protection::Auto), &loss, 8);
        println!("{:.0e}: {kept:.4}, repairs {repairs:.4}", loss.mean());
        assert!(kept > 0.98 && repairs < 0.01, "{loss:?}: {kept} with repairs of {repairs}");
    }
}

#[test]
fn auto_follows_a_path_that_changes_every_other_second() {
    let fixed = [(64, 1, CodeKind::Xor), (64, 8, CodeKind::Mds), (128, 8, CodeKind::Mds)];
    let fixed = fixed.map(|(r, c, code)| strength(r, c, code));
    let setup = Setup::long_path(0, Protection::Off);
    let [(whole, phases), _] = compare(&setup, 1..2, 2 * SECOND_NS, 12 * SECOND_NS, &fixed);
    assert!(whole >= 0.99 && phases >= 0.95, "{whole} {phases}");
}

#[test]
fn a_peer_that_does_not_grant_what_is_asked_for_is_asked_for_less_and_then_no_more() {
    for (granted_percent, most, sent) in [(0, 0.0, 60), (5, 0.055, 30), (100, 0.2, 30)] {
        let setup = Setup { granted_percent, ..Setup::long_path(1, Protection::Auto) };
        let mut world = World::new(setup);
        world.set_loss(&Loss::bursts(1e-3, 8.0).unwrap());
        world.run_to(10 * SECOND_NS);
        let counters = world.receiver().counters();
        let share = world.repairs as f64 / world.packets as f64;
        println!("{granted_percent}: {share:.4} {} {:?}", counters.requests_sent, counters.auto);
        println!("{}", world.receiver().auto().and_then(|auto| auto.reason()).unwrap());
        assert!(share <= most && counters.requests_sent <= sent, "{granted_percent}: {share}");
        assert_eq!(counters.auto.refusals > 0, granted_percent < 100);
        assert_eq!(share > 0.0, granted_percent > 0);
    }
}

#[test]
#[ignore = "minutes of computing time"]
fn auto_is_as_good_as_the_best_fixed_strength_on_a_path_that_changes() {
    let setup = Setup::long_path(0, Protection::Off);
    for (phase_s, end_s) in [(10, 120), (3, 60), (30, 180)] {
        let [(whole, phases), _] =
            compare(&setup, 0..5, phase_s * SECOND_NS, end_s * SECOND_NS, &fixed());
        assert!(whole >= 0.99 && phases >= 0.95, "{phase_s} s: {whole} {phases}");
    }
}

#[test]
#[ignore = "minutes of computing time"]
fn auto_holds_on_other_paths_and_for_other_messages() {
    let long = Setup::long_path(0, Protection::Off);
    let ms = 1_000_000;
    for (setup, phase_ms) in [
        (Setup { rtt_ns: 10 * ms, ..long.clone() }, 5000),
        (Setup { rtt_ns: 80 * ms, ..long.clone() }, 5000),
        (Setup { rate_bits_per_s: 100_000_000, ..long.clone() }, 10_000),
        (Setup { rate_bits_per_s: 10_000_000_000, ..long.clone() }, 2000),
        (Setup { message_packets: 16, ..long.clone() }, 5000),
        (Setup { message_packets: 64, ..long.clone() }, 5000),
        (Setup { message_packets: 100_000, ..long.clone() }, 5000),
        (long, 1000),
    ] {
        println!("{setup:?}, phases of {phase_ms} ms");
        let [_, (whole, phases)] =
            compare(&setup, 0..3, phase_ms * ms, 6 * phase_ms * ms, &fixed());
        assert!(whole >= 0.99 && phases >= 0.95, "{setup:?}: {whole} {phases}");
    }
}

#[test]
#[ignore = "minutes of computing time"]
fn auto_finds_what_a_path_needs_that_stays_as_it_is() {
    let chain = |low: f64, high: f64, up: f64, down: f64| {
        let [low, high, low_to_high, high_to_low] = [low, high, up, down].map(Fraction::from_f64);
        Loss::Gilbert { low, high, low_to_high, high_to_low }
    };
    for loss in [
        Loss::None,
        independent(1e-5),
        independent(1e-3),
        independent(3e-2),
        Loss::bursts(1e-3, 3.0).unwrap(),
        Loss::bursts(1e-2, 20.0).unwrap(),
        // Figure 11 of the paper, and single losses beside bursts.
        chain(0.0, 0.3, 1e-4, 1.0 / 12.0),
        chain(0.0, 0.7, 1e-4, 1.0 / 4.0),
        chain(1e-3, 0.9, 1e-5, 1.0 / 10.0),
    ] {
        let of = |protection| {
            let runs = (0..2).map(|seed| steady(Setup::long_path(seed, protection), &loss, 8).0);
            runs.sum::<f64>() / 2.0
        };
        let fixed = fixed().into_iter().map(|strength| (of(Protection::Fixed(strength)), strength));
        let (best, strength) = fixed.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        let auto = of(Protection::Auto);
        println!("{:.0e}: {auto:.4} beside {best:.4} of {strength:?}", loss.mean());
        assert!(auto > 0.97 * best, "{loss:?}: {auto} beside {best} of {strength:?}");
    }
}
