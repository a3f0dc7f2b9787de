//! What go-back-N keeps of a long lossy path, beside its closed form, in virtual time: it is the baseline that
//! other schemes are measured against, so it must be neither worse nor better than its rules.

mod common;

use common::{START_NS, World, config, fixed, pattern};
use lacuna_link::{Fraction, Loss, PipeConfig};
use lacuna_path::controller::{AnyController, ControllerConfig, Setup};
use lacuna_place::buffer::SendBuffer;
use lacuna_rc::{Flags, Repair, SendWork, ShimSettings, Verb};
use lacuna_wire::rc::{CodeKind, Strength};

const RATE: u64 = 1_000_000_000;
const MTU_BYTES: u32 = 1024;
const MESSAGE_BYTES: usize = 1 << 20;

/// Share of the path's lossless goodput that WRITEs back to back keep at this loss, both ways, at the path's
/// rate.
fn kept(rtt_ms: u64, loss: f64, seed: u64, seconds: u64) -> f64 {
    kept_by(&fixed(RATE), Repair::GoBackN, ShimSettings::Off, (rtt_ms, loss), seed, seconds)
}

fn kept_by(
    controller: &AnyController,
    repair: Repair,
    shim: ShimSettings,
    (rtt_ms, loss): (u64, f64),
    seed: u64,
    seconds: u64,
) -> f64 {
    let pipe = PipeConfig {
        delay_ns: rtt_ms * 500_000,
        rate_bits_per_s: Some(RATE),
        queue_bytes: RATE / 8 * rtt_ms / 1000,
        loss: Loss::Independent(Fraction::checked_from_f64(loss).unwrap()),
        ..PipeConfig::default()
    };
    let configs = [3, 5].map(|number| {
        let mut config = config(number, MTU_BYTES);
        config.controller = controller.clone();
        config.repair = repair;
        config
    });
    let shims = [shim, ShimSettings::Accept];
    let mut world = World::with_shims(configs, shims, [pipe.clone(), pipe], seed);
    let data = SendBuffer::from(pattern(MESSAGE_BYTES, seed));
    let remote = world.ends[1].remote(0);
    let mut id = 0;
    let post = |world: &mut World, id: &mut u64| {
        let verb = Verb::Write { data: data.clone(), remote, immediate: None };
        world.ends[0].post(SendWork { id: *id, verb, flags: Flags::default() });
        *id += 1;
    };
    for _ in 0..64 {
        post(&mut world, &mut id);
    }
    // From the end of the first round trip on, so that the start counts for nothing.
    let begin_ns = START_NS + 1_000_000_000;
    let (mut before, end_ns) = (0, begin_ns + seconds * 1_000_000_000);
    while world.now_ns < end_ns {
        world.run_until(1_000_000, |_| false);
        for done in world.ends[0].take_done() {
            assert_eq!(done.status, Ok(()));
            post(&mut world, &mut id);
        }
        if world.now_ns < begin_ns {
            before = acknowledged(&world);
        }
    }
    let came = acknowledged(&world) - before;
    let seconds = (world.now_ns - begin_ns) as f64 / 1e9;
    let packet_bits = 8.0 * f64::from(MTU_BYTES + 16 + 28);
    let lossless = RATE as f64 / packet_bits * f64::from(MTU_BYTES);
    came as f64 / seconds / lossless
}

fn acknowledged(world: &World) -> u64 {
    world.ends[0].qp.stats().bytes_acknowledged
}

#[test]
fn go_back_n_keeps_what_its_closed_form_says() {
    for (rtt_ms, loss) in [(40, 1e-4), (40, 1e-3), (80, 5e-4)] {
        let window_packets = RATE as f64 * rtt_ms as f64 / 1e3 / 8.0 / f64::from(MTU_BYTES + 44);
        let closed = 1.0 / (1.0 + loss * window_packets);
        let kept = (0..3).map(|seed| kept(rtt_ms, loss, seed, 10)).sum::<f64>() / 3.0;
        let ratio = kept / closed;
        println!("{rtt_ms} ms, {loss}: {kept:.3}, closed form {closed:.3}: {ratio:.3}");
        assert!((0.93..1.05).contains(&ratio), "{rtt_ms} ms, {loss}: {kept:.3} of {closed:.3}");
    }
    assert!(kept(40, 0.0, 1, 2) > 0.99);
}

/// What is lost is sent again once, and nothing else.
#[test]
fn selective_repeat_keeps_all_but_the_losses() {
    for (rtt_ms, loss) in [(40, 0.0), (40, 1e-3), (80, 1e-2)] {
        let selective = Repair::SelectiveRepeat;
        let kept = kept_by(&fixed(RATE), selective, ShimSettings::Off, (rtt_ms, loss), 1, 3);
        println!("{rtt_ms} ms, {loss}: {kept:.4}");
        assert!(kept > 0.99 * (1.0 - loss), "{rtt_ms} ms, {loss}: {kept:.4}");
    }
}

#[test]
fn bbr_finds_the_rate_from_acknowledgements_alone() {
    let controller = ControllerConfig::Bbr.build(Setup { packet_bytes: 1084, seed: 1 });
    for rtt_ms in [5, 40] {
        let found = kept_by(&controller, Repair::GoBackN, ShimSettings::Off, (rtt_ms, 0.0), 1, 6);
        println!("{rtt_ms} ms: {found:.3}");
        assert!(found > 0.9, "{rtt_ms} ms: {found:.3}");
    }
}

/// LoWAR(r, 1) fails a block that loses two packets or more, its repair among them; what fails costs a window
/// as it does without. The packets of a message's last, shorter block are taken for those of a full one.
#[test]
fn a_shim_keeps_what_its_closed_form_says() {
    for (block_packets, rtt_ms, loss) in [(32, 40, 1e-3), (32, 80, 1e-3), (8, 40, 1e-2f64)] {
        let strength = Strength { block_packets, repairs: 1, code: CodeKind::Xor };
        let shim = ShimSettings::Protect { strength, caps_short_blocks: false };
        let window_packets = RATE as f64 * rtt_ms as f64 / 1e3 / 8.0 / f64::from(MTU_BYTES + 44);
        let n = f64::from(block_packets);
        let share = n / (n + 1.0);
        let [none, one] = [(1.0 - loss).powf(n + 1.0), (n + 1.0) * loss * (1.0 - loss).powf(n)];
        let failures_per_packet = (1.0 - none - one) / n;
        let closed = share / (1.0 + failures_per_packet * window_packets * share);
        let kept = (0..3)
            .map(|seed| kept_by(&fixed(RATE), Repair::GoBackN, shim, (rtt_ms, loss), seed, 5))
            .sum::<f64>()
            / 3.0;
        let ratio = kept / closed;
        println!(
            "({block_packets}, 1), {rtt_ms} ms, {loss}: {kept:.3}, form {closed:.3}: {ratio:.3}"
        );
        assert!((0.93..1.05).contains(&ratio), "{rtt_ms} ms, {loss}: {kept:.3} of {closed:.3}");
    }
}

#[test]
fn bbr_finds_the_rate_with_repairs_too() {
    let controller = ControllerConfig::Bbr.build(Setup { packet_bytes: 1084, seed: 1 });
    let strength = Strength { block_packets: 8, repairs: 1, code: CodeKind::Xor };
    let shim = ShimSettings::Protect { strength, caps_short_blocks: false };
    let found = kept_by(&controller, Repair::GoBackN, shim, (40, 0.0), 1, 6);
    println!("{found:.3} of 0.889");
    assert!(found > 0.8, "{found:.3} of the path, of which repairs leave 8 of 9");
}
