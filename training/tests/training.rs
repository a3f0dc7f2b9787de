//! Data, exchanges and training, on small amounts of each.

use lacuna_link::{Fraction, Loss};
use lacuna_training::exchange::{Divisor, Encoded, Exact, Exchange, Lossy, PACKET_ELEMENTS};
use lacuna_training::optimizer::Rule;
use lacuna_training::random::{Random, Stream};
use lacuna_training::task::{CLASSES, DataSize, Glyphs, PIXELS, Task, TaskKind, Text};
use lacuna_training::trainer::{Batches, Replicas, Settings, train};

const SMALL: DataSize = DataSize { training: 256, test: 64 };

fn vectors(ranks: usize, elements: usize, seed: u64) -> Vec<Vec<f32>> {
    let mut random = Random::new(seed, Stream::Training);
    (0..ranks).map(|_| (0..elements).map(|_| random.normal() as f32).collect()).collect()
}

fn independent(percent: f64) -> Loss {
    Loss::Independent(Fraction::from_f64(percent / 100.0))
}

fn largest_difference(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

#[test]
fn the_same_seed_makes_the_same_data_and_another_seed_others() {
    let of = |seed| Glyphs::new(seed).examples(seed, Stream::Training, 20);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    let (pixels, classes) = of(1);
    assert_eq!(pixels.len(), 20 * PIXELS);
    assert!(classes.iter().all(|class| (*class as usize) < CLASSES));

    let of = |seed| Text::new(seed).characters(seed, Stream::Training, 5000);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn the_test_set_is_not_the_training_set() {
    let glyphs = Glyphs::new(1);
    assert_ne!(glyphs.examples(1, Stream::Training, 20), glyphs.examples(1, Stream::Test, 20));
}

/// What can be known without context is well above what is said: a model can learn from it.
#[test]
fn characters_are_far_from_equally_frequent_and_brackets_are_closed() {
    let text = Text::new(1);
    let characters = text.characters(1, Stream::Training, 50_000);
    let readable = Text::readable(&characters);
    let mut depth = 0i32;
    for letter in readable.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        assert!((0..=2).contains(&depth), "brackets within brackets within brackets");
        assert!(letter != '.' || depth == 0, "a sentence ends with its brackets closed");
    }
    let mut counts = vec![0.0; text.alphabet()];
    characters.iter().for_each(|character| counts[*character as usize] += 1.0);
    let total = characters.len() as f64;
    let entropy: f64 = counts
        .iter()
        .filter(|count| **count > 0.0)
        .map(|count| -count / total * (count / total).ln())
        .sum();
    assert!((2.0..(text.alphabet() as f64).ln() - 0.1).contains(&entropy), "{entropy} nats");
}

#[test]
fn every_example_comes_once_before_any_comes_twice() {
    let mut batches = Batches::new(10, 1);
    for _ in 0..3 {
        let mut seen: Vec<u32> = [batches.take(4), batches.take(4), batches.take(2)].concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }
    assert_eq!(Batches::new(10, 1).take(25), Batches::new(10, 1).take(25));
}

#[test]
fn gradients_of_the_shares_of_a_batch_average_to_that_of_the_batch() -> anyhow::Result<()> {
    for (kind, batch) in [(TaskKind::Glyphs, 16), (TaskKind::Text, 4)] {
        let task = Task::new(kind, DataSize { training: 64, test: 4 }, 1, 1)?;
        let examples = Batches::new(task.examples(), 1).take(batch);
        let count = task.initial().len();
        let mut whole = vec![0.0; count];
        task.gradient(&examples, &mut whole)?;
        let mut shares = vec![vec![0.0; count]; 4];
        for (share, examples) in shares.iter_mut().zip(examples.chunks(batch / 4)) {
            task.gradient(examples, share)?;
        }
        let mut average = vec![vec![0.0; count]];
        Exact.average(&shares, &mut average)?;
        let largest = whole.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let difference = largest_difference(&whole, &average[0]);
        assert!(largest > 0.0 && difference < 1e-4 * largest, "{difference} of {largest}");
    }
    Ok(())
}

#[test]
fn without_loss_the_lossy_ring_averages_exactly() -> anyhow::Result<()> {
    for (ranks, elements) in [(1, 10), (2, 1), (3, 2 * PACKET_ELEMENTS), (4, 12_345), (8, 5000)] {
        let vectors = vectors(ranks, elements, 7);
        let mut exact = vec![vec![0.0; elements]];
        Exact.average(&vectors, &mut exact)?;
        for count in [1, ranks] {
            let mut lossy = Lossy::new(ranks, &Loss::None, Divisor::Contributors, 1);
            let mut results = vec![vec![f32::NAN; elements]; count];
            let missing = lossy.average(&vectors, &mut results)?;
            assert_eq!(
                (missing.lost_packets, missing.contributions, missing.results),
                (0, 0.0, 0.0)
            );
            for result in &results {
                assert_eq!(result, &results[0], "the same bits on every rank");
                assert!(largest_difference(result, &exact[0]) < 1e-6);
            }
            let mut encoded = Encoded::new(lossy, &[elements], 3)?;
            encoded.average(&vectors, &mut results)?;
            assert!(largest_difference(&results[0], &exact[0]) < 1e-5);
        }
    }
    Ok(())
}

/// Where all ranks say the same, the average over contributors is that, whatever is lost on the way to it.
#[test]
fn an_average_over_contributors_keeps_what_all_ranks_agree_on() -> anyhow::Result<()> {
    let (ranks, elements) = (4, 20_000);
    let vectors = vec![vectors(1, elements, 5).remove(0); ranks];
    let mut lossy = Lossy::new(ranks, &independent(20.0), Divisor::Contributors, 1);
    let mut results = vec![vec![0.0; elements]];
    let missing = lossy.average(&vectors, &mut results)?;
    assert!(missing.contributions > 0.1 && missing.results == 0.0, "{missing:?}");
    assert!(largest_difference(&results[0], &vectors[0]) < 1e-6);
    Ok(())
}

/// Over many patterns, a contribution that has `hops` hops before it counts `(1 - loss)^hops` times, if the sum
/// is divided by all ranks; and a result comes as often as its hops leave it.
#[test]
fn over_many_patterns_each_contribution_counts_as_its_hops_let_it() -> anyhow::Result<()> {
    let (ranks, packets, patterns) = (4usize, 8usize, 4000);
    let elements = packets * PACKET_ELEMENTS;
    let mut lossy = Lossy::new(ranks, &independent(20.0), Divisor::Ranks, 1);
    let mut results = vec![vec![0.0; elements]; ranks];
    for from in 0..ranks {
        let mut vectors = vec![vec![0.0; elements]; ranks];
        vectors[from].fill(ranks as f32);
        let mut sums = vec![vec![0.0f64; packets]; ranks];
        for _ in 0..patterns {
            lossy.average(&vectors, &mut results)?;
            for (sums, result) in sums.iter_mut().zip(&results) {
                let firsts = result.iter().step_by(PACKET_ELEMENTS);
                sums.iter_mut().zip(firsts).for_each(|(sum, value)| *sum += f64::from(*value));
            }
        }
        for (to, sums) in sums.iter().enumerate() {
            for (packet, sum) in sums.iter().enumerate() {
                let part = packet * ranks / packets;
                let hops = (part + ranks - from) % ranks + (to + ranks - part) % ranks;
                let expected = 0.8f64.powi(hops as i32);
                let mean = sum / f64::from(patterns);
                // Six standard errors of 4,000 patterns.
                assert!((mean - expected).abs() < 0.048, "{from} to {to}: {mean}, {expected}");
            }
        }
    }
    Ok(())
}

/// With the transform, what does not come makes all elements a little wrong, in both directions: over many
/// seeds of its signs the mean is what came of the coefficients.
#[test]
fn encoded_results_are_unbiased_but_for_the_share_that_came() -> anyhow::Result<()> {
    let (ranks, elements, patterns) = (2, 64 * 1024, 200);
    let vectors = vec![vec![1.0f32; elements]; ranks];
    let lossy = Lossy::new(ranks, &independent(10.0), Divisor::Contributors, 9);
    let mut encoded = Encoded::new(lossy, &[elements], 11)?;
    let mut results = vec![vec![0.0; elements]; ranks];
    let mut sums = vec![0.0f64; 1000];
    let mut zeros = 0;
    for _ in 0..patterns {
        encoded.average(&vectors, &mut results)?;
        for (sum, value) in sums.iter_mut().zip(&results[0]) {
            *sum += f64::from(*value);
            zeros += usize::from(*value == 0.0);
        }
    }
    // Rank 0 lacks a tenth of the half that ends at rank 1.
    let mean = sums.iter().sum::<f64>() / (1000.0 * f64::from(patterns));
    assert!((mean - 0.95).abs() < 0.01, "{mean}");
    assert!(sums.iter().all(|sum| (sum / f64::from(patterns) - 0.95).abs() < 0.1));
    // Some errors are -1 by chance; without the transform, 10,000 elements would be zero.
    assert!(zeros < 100, "{zeros} of 200,000 elements are lost as a whole");
    Ok(())
}

#[test]
fn lost_results_are_zero_on_the_ranks_that_lack_them_and_only_there() -> anyhow::Result<()> {
    let (ranks, elements) = (4, 40 * PACKET_ELEMENTS);
    let vectors = vec![vec![1.0; elements]; ranks];
    let mut lossy = Lossy::new(ranks, &independent(20.0), Divisor::Contributors, 3);
    let mut results = vec![vec![f32::NAN; elements]; ranks];
    let missing = lossy.average(&vectors, &mut results)?;
    let zeros = results.iter().flatten().filter(|value| **value == 0.0).count();
    let ones = results.iter().flatten().filter(|value| **value == 1.0).count();
    assert_eq!(zeros + ones, ranks * elements);
    assert!((missing.results - zeros as f64 / (ranks * elements) as f64).abs() < 1e-9);
    for (rank, result) in results.iter().enumerate() {
        // What ends at a rank needs no hop to it.
        assert!(
            result[rank * elements / ranks..(rank + 1) * elements / ranks]
                .iter()
                .all(|v| *v == 1.0)
        );
    }
    Ok(())
}

fn settings(replicas: Replicas) -> Settings {
    Settings {
        ranks: 4,
        batch: 32,
        steps: 12,
        rule: Rule::Momentum,
        rate: 0.02,
        replicas,
        evaluate_every: 4,
        seed: 1,
    }
}

#[test]
fn some_steps_of_training_lower_the_loss_even_if_packets_are_lost() -> anyhow::Result<()> {
    let task = Task::new(TaskKind::Glyphs, SMALL, 1, 1)?;
    let lossy = Lossy::new(4, &independent(5.0), Divisor::Contributors, 1);
    let mut encoded = Encoded::new(lossy, &task.tensors(), 1)?;
    let before = task.evaluate()?.loss;
    let trained = train(&task, &mut encoded, &settings(Replicas::Same), |_| {})?;
    assert!(trained.quality().loss < 0.9 * before, "{before} to {}", trained.quality().loss);
    assert_eq!(trained.points.len(), 3);
    Ok(())
}

#[test]
fn text_is_learned_too() -> anyhow::Result<()> {
    let task = Task::new(TaskKind::Text, DataSize { training: 64, test: 8 }, 1, 1)?;
    assert!((500_000..2_000_000).contains(&task.initial().len()));
    let before = task.evaluate()?.loss;
    let settings = Settings { batch: 4, rule: Rule::Adam, rate: 0.003, ..settings(Replicas::Same) };
    let trained = train(&task, &mut Exact, &settings, |_| {})?;
    assert!(trained.quality().loss < before - 0.3, "{before} to {}", trained.quality().loss);
    Ok(())
}

#[test]
fn replicas_drift_apart_only_with_losses_and_until_they_are_averaged() -> anyhow::Result<()> {
    let task = Task::new(TaskKind::Glyphs, SMALL, 1, 1)?;
    let drift = |percent, resync_every| -> anyhow::Result<Vec<f64>> {
        let mut lossy = Lossy::new(4, &independent(percent), Divisor::Contributors, 1);
        let settings = settings(Replicas::Own { resync_every });
        let trained = train(&task, &mut lossy, &settings, |_| {})?;
        Ok(trained.points.iter().map(|point| point.drift).collect())
    };
    assert!(drift(0.0, 0)?.iter().all(|drift| *drift < 1e-6));
    let (free, cured) = (drift(5.0, 0)?, drift(5.0, 4)?);
    assert!(free[2] > 1.1 * free[0] && free[0] > 1e-4, "{free:?}");
    assert!(cured[2] < free[2], "{cured:?}, {free:?}");
    Ok(())
}

#[test]
fn a_run_repeats_to_the_bit() -> anyhow::Result<()> {
    let once = || -> anyhow::Result<_> {
        let task = Task::new(TaskKind::Glyphs, SMALL, 1, 1)?;
        let lossy = Lossy::new(4, &independent(5.0), Divisor::Contributors, 1);
        let mut encoded = Encoded::new(lossy, &task.tensors(), 1)?;
        train(&task, &mut encoded, &settings(Replicas::Own { resync_every: 0 }), |_| {})
    };
    assert_eq!(once()?, once()?);
    Ok(())
}
