//! How much time an operation gets that ends in time rather than complete: published rules, and one that
//! is steered to a loss.
//!
//! After each operation every rank proposes how long it would have taken to complete ([`Observed`] to
//! [`Proposal`]). Proposals travel with the next operation ([`crate::run::Runner::publish`]); from those of all ranks each computes the next
//! timeout, the same on all ranks ([`Profile::update`]).
//!
//! | rule | proposal | timeout |
//! |---|---|---|
//! | [`Rule::OptiNic`] (3.1.2) | elapsed / bytes that came x bytes | `0.2 median + 0.8 T`; first `1.25 T_warmup + 50 us` |
//! | [`Rule::Celeris`] (III-B) | elapsed, or elapsed x sent / came; averaged with weight 0.2 | median, within 0.5 to 4 times the first |
//! | [`Rule::CelerisDeviation`] (IV) | | median + standard deviation of the warm-up, for good |
//! | [`Rule::Steered`] | elapsed x bytes / highest place that came | `(1 + gamma) median + 50 us`, from 1.25 to 4 medians |
//!
//! As published, the first two estimate the full time of each rank and take the median, which half of the
//! full times exceed: they cut half of the ranks off in each step. `gamma` is what the steered rule learns
//! from the distribution of full times and from what was late (`steered`), so over many operations the loss by
//! being late is the target at most, whatever the distribution is, unless the cap binds; where full times hardly
//! vary it is less. Bytes that the path lost are
//! not counted: only those behind the highest place that had come at the deadline.

mod experiment;
mod profiles;
mod steered;
#[cfg(test)]
mod tests;

use crate::run::{Reason, Report};
pub use experiment::{Outcome, Weather, scaled_to_loss, simulate, table};
pub use profiles::{Key, Profiles};
use steered::Steering;

/// What is added for timers and the end of a message, in every rule that has it (OptiNIC 3.1.2).
const SLACK_NS: u64 = 50_000;

/// Weight of the newest median (OptiNIC 3.1.2).
const WEIGHT: f64 = 0.2;

/// Fraction of the bytes that may be late, if nothing else is said: half of the one percent that the papers
/// report as harmless.
pub const TARGET_LATE: f64 = 0.005;

/// First gamma at least, since a short warm-up has seen little: OptiNIC's.
const GAMMA_FIRST_MIN: f64 = 0.25;

/// Largest timeout in medians; `gamma` is below it.
const CAP_MEDIANS: f64 = 4.0;

/// Weight of the newest median in the steered rule: what varies from step to step is in the histogram, so the
/// median has to follow drifts only. With 0.2, p99 is 1 % longer in calm weather.
const MEDIAN_WEIGHT: f64 = 0.1;

/// Range of an estimate, in first timeouts (Celeris) or current medians (ours). The papers state none.
const CLAMP: (f64, f64) = (0.5, 4.0);

/// What a rank has seen of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// How long it took.
    pub elapsed_ns: u64,
    /// Bytes that were to come.
    pub bytes: u64,
    /// Bytes that came.
    pub came_bytes: u64,
    /// The highest places that came, over all receives.
    pub reached_bytes: u64,
    /// Bytes behind these that the deadline cut off.
    pub late_bytes: u64,
}

impl Observed {
    /// From a report.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let cut = report.hops.iter().filter(|hop| hop.reason == Reason::Deadline);
        Self {
            elapsed_ns: report.ended_ns - report.started_ns,
            bytes: report.bytes(),
            came_bytes: report.bytes() - report.lost_bytes(),
            reached_bytes: report.reached_bytes(),
            late_bytes: cut.map(|hop| hop.bytes - hop.reached_bytes).sum(),
        }
    }
}

/// What a rank tells the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proposal {
    /// How long it would have taken, for this rank.
    pub estimate_ns: f64,
    /// The fraction of its bytes that was cut off.
    pub late: f64,
}

impl Proposal {
    /// For a note: two numbers of eight bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.estimate_ns.to_le_bytes());
        bytes[8..].copy_from_slice(&self.late.to_le_bytes());
        bytes
    }

    /// From a note; `None` if it is no time or no fraction.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 16]) -> Option<Self> {
        let (estimate, late) = bytes.split_first_chunk::<8>()?;
        let estimate_ns = f64::from_le_bytes(*estimate);
        let late = f64::from_le_bytes(*late.first_chunk()?);
        let is_sound = estimate_ns.is_finite() && estimate_ns >= 0.0 && (0.0..=1.0).contains(&late);
        is_sound.then_some(Self { estimate_ns, late })
    }
}

/// How timeouts are computed; see the module's table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// OptiNIC's.
    OptiNic,
    /// Celeris', as described.
    Celeris,
    /// Celeris', as evaluated.
    CelerisDeviation,
    /// Ours.
    Steered {
        /// The fraction of bytes that may be late.
        target: f64,
    },
}

impl Default for Rule {
    fn default() -> Self {
        Self::Steered { target: TARGET_LATE }
    }
}

impl Rule {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OptiNic => "optinic",
            Self::Celeris => "celeris",
            Self::CelerisDeviation => "celeris-deviation",
            Self::Steered { .. } => "steered",
        }
    }
}

/// What is known of one kind of operation. Ranks that are given the same numbers have the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    rule: Rule,
    timeout_ns: f64,
    first_ns: f64,
    least_ns: f64,
    median_ns: f64,
    /// Ours.
    steering: Option<Steering>,
    /// Celeris' average of this rank's own estimates.
    own_ns: Option<f64>,
}

impl Profile {
    /// From complete operations of all ranks, which were given time enough. `None` if there is none.
    #[must_use]
    pub fn new(rule: Rule, warm_up_ns: &[u64]) -> Option<Self> {
        let mut times_ns: Vec<f64> = warm_up_ns.iter().map(|time_ns| *time_ns as f64).collect();
        let median_ns = median(&mut times_ns)?;
        let slack_ns = SLACK_NS as f64;
        let generous_ns = 1.25 * median_ns + slack_ns;
        let mut steering = None;
        let first_ns = match rule {
            Rule::OptiNic | Rule::Celeris => generous_ns,
            Rule::CelerisDeviation => median_ns + deviation(&times_ns),
            Rule::Steered { target } => {
                let mut learned = Steering::new(target);
                learned.learn(times_ns.iter().map(|time_ns| time_ns / median_ns));
                let medians = learned.medians().max(1.0 + GAMMA_FIRST_MIN);
                steering = Some(learned);
                medians * median_ns + slack_ns
            }
        };
        let least_ns = times_ns.iter().copied().fold(f64::INFINITY, f64::min);
        let (timeout_ns, own_ns) = (first_ns, None);
        Some(Self { rule, timeout_ns, first_ns, least_ns, median_ns, steering, own_ns })
    }

    /// The time that the next operation gets.
    #[must_use]
    pub fn timeout_ns(&self) -> u64 {
        self.timeout_ns as u64
    }

    /// How much of that is divided over the phases. Published rules have no reserve.
    #[must_use]
    pub fn usual_ns(&self) -> u64 {
        match self.rule {
            Rule::Steered { .. } => self.median_ns.min(self.timeout_ns) as u64,
            _ => self.timeout_ns(),
        }
    }

    /// What this rank proposes after an operation.
    #[must_use]
    pub fn proposal(&mut self, observed: &Observed) -> Proposal {
        let elapsed_ns = observed.elapsed_ns as f64;
        let bytes = observed.bytes.max(1) as f64;
        // Over nothing, infinity: it is clamped.
        let by = |part: u64| elapsed_ns * bytes / part as f64;
        let estimate_ns = match self.rule {
            Rule::OptiNic if observed.came_bytes > 0 => by(observed.came_bytes),
            // What has nothing to go by keeps the timeout.
            Rule::OptiNic | Rule::CelerisDeviation => self.timeout_ns,
            Rule::Celeris => {
                let (least, most) = (CLAMP.0 * self.first_ns, CLAMP.1 * self.first_ns);
                let now_ns = by(observed.came_bytes).clamp(least, most);
                let before_ns = self.own_ns.unwrap_or(now_ns);
                let own_ns = WEIGHT * now_ns + (1.0 - WEIGHT) * before_ns;
                self.own_ns = Some(own_ns);
                own_ns
            }
            Rule::Steered { .. } => {
                let (least, most) = (CLAMP.0 * self.median_ns, CLAMP.1 * self.median_ns);
                by(observed.reached_bytes).clamp(least, most)
            }
        };
        Proposal { estimate_ns, late: observed.late_bytes as f64 / bytes }
    }

    /// Takes the proposals of the ranks, in any order; those that did not arrive are left out.
    pub fn update(&mut self, proposals: &[Proposal]) {
        let mut estimates_ns: Vec<f64> = proposals.iter().map(|p| p.estimate_ns).collect();
        let Some(median_ns) = median(&mut estimates_ns) else { return };
        match self.rule {
            Rule::OptiNic => {
                self.timeout_ns = WEIGHT * median_ns + (1.0 - WEIGHT) * self.timeout_ns;
            }
            Rule::Celeris => self.timeout_ns = median_ns,
            Rule::CelerisDeviation => {}
            Rule::Steered { .. } => {
                let Some(steering) = &mut self.steering else { return };
                let ratios = proposals.iter().map(|p| p.estimate_ns / self.median_ns);
                steering.learn(ratios);
                let late = proposals.iter().map(|p| p.late).sum::<f64>() / proposals.len() as f64;
                steering.owe(late);
                self.median_ns = MEDIAN_WEIGHT * median_ns + (1.0 - MEDIAN_WEIGHT) * self.median_ns;
                let timeout_ns = steering.medians() * self.median_ns + SLACK_NS as f64;
                // Of the two bounds, the floor gives way where the path has become faster.
                let cap_ns = CAP_MEDIANS * self.median_ns;
                self.timeout_ns = timeout_ns.max(self.least_ns).min(cap_ns);
            }
        }
    }
}

/// The lower of the two in the middle; `None` of nothing.
fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
}
