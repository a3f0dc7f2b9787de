//! The computed collectives against the drawn ones.

use super::*;
use crate::monte_carlo::RepeatSampler;
use crate::{ChunkLoss, Completion, ModelError, Random, RepairTiming, SelectiveRepeat, Transfer};

const Z: f64 = 4.0;
const POINTS: usize = 1024;

fn stage(loss: f64) -> (SelectiveRepeat, RepeatSampler) {
    let loss = ChunkLoss::independent(loss).unwrap();
    let transfer = Transfer::from_chunks(2000, 1e-6, 0.01, loss).unwrap();
    let timing = RepairTiming::TIMEOUT;
    (
        SelectiveRepeat::new(&transfer, timing).unwrap(),
        RepeatSampler::new(&transfer, timing).unwrap(),
    )
}

fn assert_within(exact_s: f64, (low, high): (f64, f64), slack: f64) {
    assert!(
        low * (1.0 - slack) <= exact_s && exact_s <= high * (1.0 + slack),
        "{exact_s} {low} {high}"
    );
}

#[test]
fn a_tree_agrees_with_its_simulation() {
    for sites in [2, 3, 8, 13] {
        for loss in [1e-5, 1e-3, 0.05] {
            let (model, sampler) = stage(loss);
            let exact = tree_allreduce(&model, sites, POINTS).unwrap();
            let drawn =
                draw_tree_allreduce(&sampler, sites, 4000, &mut Random::new(u64::from(sites)))
                    .unwrap();
            // Half a step of the grid per message, and what a rare event hides from 4000 trials.
            assert_within(exact.mean_s(), drawn.mean_interval_s(Z), 5e-3);
            for probability in [0.5, 0.9, 0.99] {
                let interval = drawn.quantile_interval_s(probability, Z);
                assert_within(exact.quantile_s(probability), interval, 5e-3);
            }
        }
    }
}

#[test]
fn a_ring_of_two_is_in_lockstep() {
    for loss in [1e-4, 1e-3, 0.05] {
        let (model, sampler) = stage(loss);
        let exact = lockstep_ring_allreduce(&model, 2, POINTS).unwrap();
        let drawn = ring_allreduce(&sampler, 2, 10_000, &mut Random::new(4)).unwrap();
        assert_within(exact.mean_s(), drawn.mean_interval_s(Z), 3e-3);
        for probability in [0.5, 0.9, 0.99] {
            let interval = drawn.quantile_interval_s(probability, Z);
            assert_within(exact.quantile_s(probability), interval, 3e-3);
        }
    }
}

#[test]
fn a_ring_lies_between_its_bounds() {
    for sites in [3, 6] {
        for loss in [1e-4, 0.02] {
            let (model, sampler) = stage(loss);
            let drawn = ring_allreduce(&sampler, sites, 4000, &mut Random::new(8)).unwrap();
            let (low, high) = drawn.mean_interval_s(Z);
            assert!(high >= ring_mean_s_min(&model, sites).unwrap(), "appendix C");
            let late = lockstep_ring_allreduce(&model, sites, POINTS).unwrap();
            assert!(low <= late.mean_s() * 1.003);
            let (low, _) = drawn.quantile_interval_s(0.99, Z);
            assert!(low <= late.quantile_s(0.99) * 1.003);
        }
    }
}

#[test]
fn as_many_trials_as_narrow_a_quantile_down() {
    let (model, sampler) = stage(1e-4);
    let exact_s = lockstep_ring_allreduce(&model, 2, POINTS).unwrap().quantile_s(0.99);
    let narrow = Narrow { probability: 0.99, z: Z, half_width: 0.01, trials: 500..=200_000 };
    let drawn = ring_allreduce_until(&sampler, 2, &narrow, &mut Random::new(5)).unwrap();
    let (low, high) = drawn.quantile_interval_s(0.99, Z);
    assert!(high - low <= 0.02 * drawn.quantile_s(0.99) || drawn.count() == 200_000);
    assert!(drawn.count() > 500, "{}", drawn.count());
    assert_within(exact_s, (low, high), 3e-3);
    // No more than allowed, however wide the interval is.
    let narrow = Narrow { half_width: 0.0, trials: 100..=700, ..narrow };
    let (_, sampler) = stage(0.05);
    let drawn = ring_allreduce_until(&sampler, 2, &narrow, &mut Random::new(5)).unwrap();
    assert_eq!(drawn.count(), 700);
}

#[test]
fn without_loss_a_collective_takes_its_stages() {
    let (model, sampler) = stage(0.0);
    let ring = ring_allreduce(&sampler, 5, 10, &mut Random::new(1)).unwrap();
    assert!((ring.mean_s() / (8.0 * 0.012) - 1.0).abs() < 1e-9);
    let tree = tree_allreduce(&model, 7, POINTS).unwrap();
    assert!((tree.mean_s() / (4.0 * 0.012) - 1.0).abs() < 1e-9);
    assert!((tree.quantile_s(0.999) / (4.0 * 0.012) - 1.0).abs() < 1e-9);
}

#[test]
fn one_site_is_no_collective() {
    let (model, sampler) = stage(0.1);
    for sites in [0, 1, SITES_MAX + 1] {
        assert!(matches!(
            ring_stages(sites),
            Err(ModelError::OutOfRange { argument: "sites", .. })
        ));
        assert!(tree_allreduce(&model, sites, POINTS).is_err());
        assert!(ring_allreduce(&sampler, sites, 1, &mut Random::new(0)).is_err());
    }
}
