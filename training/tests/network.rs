//! Training by ranks in threads, over real groups and emulated paths that lose packets.

use lacuna_training::exchange::Exact;
use lacuna_training::network::{Network, Path, on_all_ranks};
use lacuna_training::optimizer::Rule;
use lacuna_training::task::{DataSize, Task, TaskKind};
use lacuna_training::trainer::{Replicas, Settings};
use lacuna_training::{parallel, sharded, trainer};

const SMALL: DataSize = DataSize { training: 640, test: 500 };

/// Losses that no delivery can miss, and no delay, so that tests are short.
fn network(ranks: usize, delivery: &str, loss: f64) -> anyhow::Result<Network> {
    let path = Path { rate_bits_per_s: None, rtt_ms: 1.0, loss, burst_packets: 1.0 };
    Ok(Network { ranks, path, delivery: delivery.parse()?, seed: 1 })
}

fn settings(steps: usize) -> Settings {
    Settings {
        ranks: 4,
        batch: 32,
        steps,
        rule: Rule::Momentum,
        rate: 0.02,
        replicas: Replicas::Own { resync_every: 3 },
        evaluate_every: 4,
        seed: 1,
    }
}

fn vector(rank: usize, length: usize) -> Vec<f32> {
    (0..length).map(|at| ((at * 7 + rank * 13) % 101) as f32).collect()
}

#[test]
fn a_reliable_average_is_the_same_on_all_ranks_whatever_the_path_loses() -> anyhow::Result<()> {
    let (ranks, length) = (3, 100_001);
    let all: Vec<Vec<f32>> = (0..ranks).map(|rank| vector(rank, length)).collect();
    for delivery in ["auto", "gbn"] {
        let found = on_all_ranks(&network(ranks, delivery, 0.05)?, |ends| {
            ends.data.average(vector(ends.rank(), length), &[])
        })?;
        for received in &found {
            assert_eq!((received.lost_bytes, received.missing), (0, 0.0));
            assert_eq!(received.values, found[0].values);
        }
        for (at, value) in found[0].values.iter().enumerate() {
            let sum: f32 = all.iter().map(|vector| vector[at]).sum();
            assert!((value - sum / 3.0).abs() < 1e-4, "{delivery}, element {at}: {value}");
        }
    }
    Ok(())
}

#[test]
fn numbers_of_the_first_rank_reach_all() -> anyhow::Result<()> {
    let found = on_all_ranks(&network(3, "bounded", 0.02)?, |ends| {
        ends.exact.tell(&[7 + ends.rank() as u32, 0, (1 << 24) - 1])
    })?;
    assert_eq!(found, vec![vec![7, 0, (1 << 24) - 1]; 3]);
    Ok(())
}

#[test]
fn a_bounded_average_says_what_it_lacks() -> anyhow::Result<()> {
    let length = 400_000;
    let found = on_all_ranks(&network(4, "bounded", 0.05)?, |ends| {
        ends.data.average(vec![1.0; length], &[])
    })?;
    for received in found {
        assert!(received.lost_bytes > 0 && received.missing > 0.0);
        // Contributors all say 1; where nothing came, there is nothing.
        assert!(received.values.iter().all(|value| *value == 1.0 || *value == 0.0));
        let none = received.values.iter().filter(|value| **value == 0.0).count();
        assert!(none as f64 / length as f64 <= received.missing, "{none} of {length} are 0");
    }
    Ok(())
}

#[test]
fn training_over_a_lossy_path_is_that_of_one_process_if_losses_are_repaired() -> anyhow::Result<()>
{
    let task = Task::new(TaskKind::Glyphs, SMALL, 1, 1)?;
    let settings = settings(8);
    let alone = trainer::train(
        &task,
        &mut Exact,
        &Settings { replicas: Replicas::Same, ..settings },
        |_| {},
    )?;
    for delivery in ["auto", "auto+transform"] {
        let network = network(4, delivery, 0.01)?;
        for timed in [
            parallel::train(&task, &network, &settings)?,
            sharded::train(&task, &network, &settings)?,
        ] {
            let steps: Vec<usize> = timed.points.iter().map(|point| point.step).collect();
            assert_eq!(steps, [4, 8]);
            for (point, expected) in timed.points.iter().zip(&alone.points) {
                let (loss, expected) = (point.quality.loss, expected.quality.loss);
                assert!((loss - expected).abs() < 1e-3, "{delivery}: {loss}, {expected}");
            }
        }
    }
    Ok(())
}

#[test]
fn training_goes_on_with_what_came_and_counts_what_did_not() -> anyhow::Result<()> {
    let task = Task::new(TaskKind::Glyphs, SMALL, 1, 1)?;
    let before = task.evaluate()?.loss;
    let network = network(4, "bounded+transform", 0.02)?;
    for timed in [
        parallel::train(&task, &network, &settings(8))?,
        sharded::train(&task, &network, &settings(8))?,
    ] {
        let last = timed.points.last().expect("a point at the end");
        assert!(last.quality.loss < 0.95 * before, "{before} to {}", last.quality.loss);
        assert!(timed.means.lost > 0.005 && timed.means.missing > 0.005, "{:?}", timed.means);
        assert!(timed.steps.iter().all(|step| step.budget_ms.is_some()));
        assert!(timed.seconds_to(0.0).is_some() && timed.seconds_to(1.1).is_none());
    }
    Ok(())
}

#[test]
fn a_rank_that_fails_ends_all_with_its_own_error() -> anyhow::Result<()> {
    let found = on_all_ranks(&network(3, "auto", 0.0)?, |ends| {
        anyhow::ensure!(ends.rank() != 1, "rank 1 has no more memory");
        ends.data.average(vec![1.0; 1000], &[])
    });
    assert_eq!(found.expect_err("a rank failed").to_string(), "rank 1 has no more memory");
    Ok(())
}
