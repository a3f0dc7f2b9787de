//! The rules in weather: steps of a group in virtual time, to compare what they lose and how long they take.
//!
//! In a step each node would complete after a time of its own, and its bytes come evenly until then, but
//! for those that the path loses. A deadline cuts off what is not there. A step is over when the last node
//! is, so its time is the slowest node's, or the deadline.

use super::{Observed, Profile, Rule};
use lacuna_link::SplitMix64;
use std::fmt::Write;

const BYTES: u64 = 1 << 20;
/// A node's usual time.
const BASE_NS: f64 = 10e6;
/// Bytes that the path loses whatever the deadline is.
const PATH_LOSS: f64 = 1e-3;
const WARM_UP_STEPS: usize = 20;

/// What makes nodes slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Times of one node vary by 5 %.
    Calm,
    /// One step in 50 begins a burst of ten on average, in which one node takes 1.5 to 4 times as long.
    Bursty,
    /// 5,000 steps of the first, 5,000 of the second, and so on.
    Changing,
    /// The usual time rises and falls by half within 2,000 steps, and varies by 10 %.
    Drifting,
}

impl Weather {
    /// All of it.
    pub const ALL: [Self; 4] = [Self::Calm, Self::Bursty, Self::Changing, Self::Drifting];
}

/// Times of all nodes, step by step.
struct Times {
    weather: Weather,
    random: SplitMix64,
    step: u64,
    burst: Option<(usize, f64)>,
}

impl Times {
    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Sum of twelve uniform numbers: near enough to normal, and the same on every machine.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    fn next(&mut self, nodes: usize) -> Vec<f64> {
        self.step += 1;
        let (base, spread) = match self.weather {
            Weather::Calm | Weather::Bursty | Weather::Changing => (1.0, 0.05),
            Weather::Drifting => {
                // A triangle of period 2,000 from 0.5 to 1.5.
                let phase = (self.step % 2000) as f64 / 1000.0;
                (0.5 + if phase < 1.0 { phase } else { 2.0 - phase }, 0.1)
            }
        };
        let has_bursts = match self.weather {
            Weather::Bursty => true,
            Weather::Changing => self.step / 5000 % 2 == 1,
            Weather::Calm | Weather::Drifting => false,
        };
        if !has_bursts {
            self.burst = None;
        } else {
            if self.burst.is_none() && self.random.chance(20_000) {
                let node = self.random.below(nodes as u64) as usize;
                self.burst = Some((node, 1.5 + 2.5 * self.uniform()));
            } else if self.burst.is_some() && self.random.chance(100_000) {
                self.burst = None;
            }
        }
        let mut times: Vec<f64> =
            (0..nodes).map(|_| BASE_NS * base * (1.0 + spread * self.normal().max(-4.0))).collect();
        if let Some((node, factor)) = self.burst {
            times[node] *= factor;
        }
        times
    }
}

/// What a rule did.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The fraction of bytes that was late.
    pub late: f64,
    /// The same over the worst hundred steps in a row.
    pub late_worst: f64,
    /// The fraction of nodes that were cut off.
    pub cut: f64,
    /// Times of steps.
    pub mean_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
}

/// Runs a rule, with its timeouts multiplied by `scale`.
///
/// # Panics
/// Without nodes or steps.
#[must_use]
pub fn simulate(
    rule: Rule,
    scale: f64,
    weather: Weather,
    nodes: usize,
    steps: usize,
    seed: u64,
) -> Outcome {
    assert!(nodes > 0 && steps > 0, "{nodes} nodes, {steps} steps");
    let mut times = Times { weather, random: SplitMix64::new(seed), step: 0, burst: None };
    let warm_up: Vec<u64> =
        (0..WARM_UP_STEPS).flat_map(|_| times.next(nodes)).map(|time_ns| time_ns as u64).collect();
    let new = || Profile::new(rule, &warm_up).expect("there are nodes");
    // All ranks get the same proposals, but make their own.
    let mut profiles: Vec<Profile> = (0..nodes).map(|_| new()).collect();
    let (mut late, mut cut, mut durations_ns) = (Vec::new(), 0usize, Vec::with_capacity(steps));
    for _ in 0..steps {
        let timeout_ns = profiles[0].timeout_ns() as f64 * scale;
        let full_ns = times.next(nodes);
        let mut proposals = Vec::with_capacity(nodes);
        let (mut slowest_ns, mut step_late) = (0f64, 0.0);
        for (profile, full_ns) in profiles.iter_mut().zip(&full_ns) {
            let elapsed_ns = full_ns.min(timeout_ns);
            let reached = elapsed_ns / full_ns;
            step_late += (1.0 - reached) / nodes as f64;
            cut += usize::from(reached < 1.0);
            slowest_ns = slowest_ns.max(elapsed_ns);
            let reached_bytes = (BYTES as f64 * reached).round() as u64;
            proposals.push(profile.proposal(&Observed {
                elapsed_ns: elapsed_ns as u64,
                bytes: BYTES,
                came_bytes: (reached_bytes as f64 * (1.0 - PATH_LOSS)) as u64,
                reached_bytes,
                late_bytes: BYTES - reached_bytes,
            }));
        }
        profiles.iter_mut().for_each(|profile| profile.update(&proposals));
        late.push(step_late);
        durations_ns.push(slowest_ns);
    }
    let mean_ms = durations_ns.iter().sum::<f64>() / steps as f64 / 1e6;
    durations_ns.sort_by(f64::total_cmp);
    let window = 100.min(steps);
    let windows = late.windows(window).map(|late| late.iter().sum::<f64>() / window as f64);
    let late_worst = windows.fold(0.0, f64::max);
    let cut = cut as f64 / (nodes * steps) as f64;
    let late = late.iter().sum::<f64>() / steps as f64;
    let p99_ms = durations_ns[(steps * 99 / 100).min(steps - 1)] / 1e6;
    let p50_ms = durations_ns[steps / 2] / 1e6;
    Outcome { late, late_worst, cut, mean_ms, p50_ms, p99_ms }
}

/// The same rule with its timeouts multiplied such that no more than this is late, and the factor.
#[must_use]
pub fn scaled_to_loss(
    rule: Rule,
    late: f64,
    weather: Weather,
    nodes: usize,
    steps: usize,
    seed: u64,
) -> (f64, Outcome) {
    let (mut low, mut high) = (0.5, 16.0);
    for _ in 0..24 {
        let scale = (low + high) / 2.0;
        if simulate(rule, scale, weather, nodes, steps, seed).late > late {
            low = scale;
        } else {
            high = scale;
        }
    }
    (high, simulate(rule, high, weather, nodes, steps, seed))
}

/// All rules in all weather, as they are and scaled to what the steered rule loses.
#[must_use]
pub fn table(nodes: usize, steps: usize, seed: u64) -> String {
    let mut text = String::from(
        "weather   rule               scale   late %  worst %    cut %  mean ms   p99 ms\n",
    );
    let mut line = |weather: Weather, rule: Rule, scale: f64, outcome: &Outcome| {
        let _ = writeln!(
            text,
            "{:<10}{:<18}{scale:>6.2}{:>9.3}{:>9.2}{:>9.2}{:>9.2}{:>9.2}",
            format!("{weather:?}").to_lowercase(),
            rule.name(),
            100.0 * outcome.late,
            100.0 * outcome.late_worst,
            100.0 * outcome.cut,
            outcome.mean_ms,
            outcome.p99_ms
        );
    };
    for weather in Weather::ALL {
        let ours = simulate(Rule::default(), 1.0, weather, nodes, steps, seed);
        line(weather, Rule::default(), 1.0, &ours);
        for rule in [Rule::OptiNic, Rule::Celeris, Rule::CelerisDeviation] {
            line(weather, rule, 1.0, &simulate(rule, 1.0, weather, nodes, steps, seed));
            let (scale, scaled) = scaled_to_loss(rule, ours.late, weather, nodes, steps, seed);
            line(weather, rule, scale, &scaled);
        }
    }
    text
}
