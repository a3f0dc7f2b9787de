//! Decoding by ranks that have a part of the model each.

use candle_core::{Device, Tensor};
use lacuna_training::inference::{Settings, Weights, alone, over};
use lacuna_training::model::{Model, Shape, Split, SplitError, Transformer};
use lacuna_training::network::{Network, Path, on_all_ranks};
use lacuna_training::random::{Random, Stream};

const SHAPE: Shape = Shape { alphabet: 25, context: 24, width: 32, heads: 4, layers: 2 };

fn network(ranks: usize, delivery: &str, loss: f64) -> anyhow::Result<Network> {
    let path = Path { rate_bits_per_s: None, rtt_ms: 1.0, loss, burst_packets: 1.0 };
    Ok(Network { ranks, path, delivery: delivery.parse()?, seed: 1 })
}

fn transformer(seed: u64) -> anyhow::Result<Transformer> {
    Ok(Transformer::new(SHAPE, &mut Random::new(seed, Stream::Parameters))?)
}

fn weights() -> anyhow::Result<Weights> {
    let parameters = transformer(1)?.parameters().initial().to_vec();
    Ok(Weights { shape: SHAPE, parameters })
}

/// Sums of more than what goes by the control messages of a group: 192 KiB at first, then 12 KiB.
fn settings() -> Settings {
    Settings { texts: 96, prompt: 16, more: 8, warm_up: 0, batches: 1, readings: 1, data_seed: 1 }
}

#[test]
fn a_split_model_is_the_whole_one_within_rounding() -> anyhow::Result<()> {
    let (texts, whole) = (3, transformer(1)?);
    let characters: Vec<u32> =
        (0..texts * SHAPE.context).map(|at| (at * 7 % SHAPE.alphabet) as u32).collect();
    let inputs = Tensor::from_slice(&characters, (texts, SHAPE.context), &Device::Cpu)?;
    let expected = whole.scores(&inputs)?;
    let expected = expected.reshape((texts, SHAPE.context, SHAPE.alphabet))?.to_vec3::<f32>()?;
    // Some at once, then one by one.
    let steps: Vec<(usize, usize)> =
        [(0, 5), (5, 9)].into_iter().chain((9..SHAPE.context).map(|at| (at, at + 1))).collect();
    for ranks in [1, 2, 4] {
        let found = on_all_ranks(&network(ranks, "sr", 0.0)?, |ends| {
            let part = (ends.rank(), ranks);
            let split = Split::new(SHAPE, whole.parameters().initial(), part)?;
            let (mut seen, mut scores) = (split.begin(texts), Vec::new());
            for (from, to) in &steps {
                let next: Vec<u32> = characters
                    .chunks(SHAPE.context)
                    .flat_map(|text| &text[*from..*to])
                    .copied()
                    .collect();
                let sum = &mut |part| Ok(ends.data.sum(part, 1.0)?.values);
                scores.push(split.see(&mut seen, &next, sum)?.to_vec2::<f32>()?);
            }
            assert!(split.see(&mut seen, &[0; 3], &mut Ok).is_err(), "it sees no more");
            Ok(scores)
        })?;
        for scores in &found {
            for ((_, to), scores) in steps.iter().zip(scores) {
                for (text, scores) in scores.iter().enumerate() {
                    for (found, expected) in scores.iter().zip(&expected[text][to - 1]) {
                        assert!((found - expected).abs() < 1e-4, "{ranks} ranks, {to}: {found}");
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_model_that_cannot_be_shared_is_refused() -> anyhow::Result<()> {
    let parameters = weights()?.parameters;
    let split = |parameters: &[f32], ranks| Split::new(SHAPE, parameters, (0, ranks));
    let error = split(&parameters, 3).expect_err("4 heads by 3 ranks");
    assert!(matches!(error, SplitError::Heads { heads: 4, ranks: 3 }));
    let error = split(&parameters[1..], 2).expect_err("too few");
    assert!(matches!(error, SplitError::Parameters { .. }));
    Ok(())
}

#[test]
fn ranks_choose_what_one_process_chooses_if_losses_are_repaired() -> anyhow::Result<()> {
    let (weights, settings) = (weights()?, settings());
    let expected = alone(&weights, &settings)?;
    assert_eq!(expected.chosen.len(), settings.texts * settings.more);
    assert!(expected.reading.loss > 1.0, "random parameters know nothing");
    for (ranks, delivery) in [(2, "sr"), (4, "sr"), (4, "gbn"), (2, "auto")] {
        let found = over(&weights, &network(ranks, delivery, 0.01)?, &settings)?;
        assert_eq!((found.lost, found.late, found.missing), (0.0, 0.0, 0.0));
        assert_eq!(found.chosen, expected.chosen, "{ranks} ranks, {delivery}");
        assert_eq!(found.reading.choices, expected.reading.choices);
        assert!((found.reading.loss - expected.reading.loss).abs() < 1e-5);
        assert!(found.agreement(&expected).scores < 1e-5);
        assert_eq!((found.first_ms.len(), found.next_ms.len()), (1, settings.more - 1));
    }
    Ok(())
}

#[test]
fn decoding_goes_on_with_what_came_and_says_how_far_off_it_is() -> anyhow::Result<()> {
    let (weights, settings) = (weights()?, settings());
    let expected = alone(&weights, &settings)?;
    for delivery in ["bounded", "bounded@100", "bounded@100+transform"] {
        let found = over(&weights, &network(4, delivery, 0.05)?, &settings)?;
        assert!(found.lost > 0.005 && found.missing > 0.005, "{delivery}: {}", found.lost);
        let agreement = found.agreement(&expected);
        assert!(agreement.scores > 0.001, "{delivery}: {agreement:?}");
        assert!(agreement.read > 0.2 && agreement.read < 1.0, "{delivery}: {agreement:?}");
        assert!(found.reading.loss.is_finite() && found.per_s > 0.0);
    }
    assert_eq!(expected.agreement(&expected).chosen, 1.0);
    Ok(())
}
