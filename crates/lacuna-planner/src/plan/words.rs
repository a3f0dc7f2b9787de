//! A recommendation in sentences.

use super::Recommendation;
use crate::auto;
use crate::completion::ASSUMED_OF_MODES;
use lacuna_model::plan::{Axis, DOES_NOT_MATTER, InTime, LossKnown};
use lacuna_units::{show_bytes, show_rate, show_time, show_time_fixed};

impl Recommendation {
    /// The recommendation, why, whether it matters, and where it changes: one sentence per line.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let plan = &self.plan;
        let name = self.objective_name();
        let fixed = plan.fixed_choice();
        let mut lines = self.take();
        lines.push(format!("why {} of the fixed modes: {}", fixed.candidate.scheme, plan.reason));
        if plan.matters {
            let worse = if plan.other_family_worse.is_finite() {
                longer(plan.other_family_worse)
            } else {
                "for ever".to_owned()
            };
            let other = if fixed.candidate.scheme.is_coded() { "repeating" } else { "coding" };
            lines.push(format!("among them the choice matters: by {name}, {other} takes {worse}"));
        } else {
            lines.push(format!(
                "among them the choice does not matter much: by {name}, the best of the other kind is within {:.0} %",
                DOES_NOT_MATTER * 100.0
            ));
        }
        for flip in &plan.flips {
            let from = flip.axis.of(&self.question);
            let side = if flip.value > from { "above" } else { "below" };
            let (axis, value) = match flip.axis {
                Axis::Size => ("size", two_figures(&show_bytes(flip.value as u64))),
                Axis::Loss => ("loss", format!("{:.1e}", flip.value)),
                Axis::Rtt => ("round trip", two_figures(&show_time(flip.value))),
            };
            let to = if flip.to_coding { "coding" } else { "repeating" };
            lines.push(format!("flips to {to} {side} a {axis} of about {value}"));
        }
        lines.extend(self.connection_lines());
        lines
    }

    /// What is there by a deadline: of the mode to take, of the mode that has most messages in time, and
    /// without repairs.
    #[must_use]
    pub fn lines_by(&self, deadline_s: f64, in_time: &InTime) -> Vec<String> {
        let plan = &self.plan;
        let chance = |index: usize| in_time.candidates.get(index).copied().unwrap_or(0.0);
        let name = |index: usize| {
            let expected = &plan.candidates[index];
            format!("{}, chunks of {}", expected.candidate.scheme, show_bytes(expected.chunk_bytes))
        };
        let indices = 0..plan.candidates.len();
        // Of equals the first, which is the better one by the objective.
        let most = indices.rev().max_by(|a, b| chance(*a).total_cmp(&chance(*b)));
        let most = most.unwrap_or(plan.recommended);
        let taken = plan.recommended;
        let time = show_time_fixed(deadline_s);
        let mut line = format!(
            "by {time} a message is complete with {} ({})",
            odds(chance(taken)),
            name(taken)
        );
        if chance(most) > chance(taken) {
            line += &format!(", at best with {} ({})", odds(chance(most)), name(most));
        }
        let bounded = format!(
            "without repairs (mode bounded) {:.4} % of its bytes are there by then, and all of them with {}",
            in_time.unrepaired_share * 100.0,
            odds(in_time.unrepaired_complete)
        );
        vec![line, bounded, format!("assumed: {ASSUMED_OF_MODES}")]
    }

    /// The recommended mode, and how it compares with the best fixed or default one.
    pub(super) fn take(&self) -> Vec<String> {
        let plan = &self.plan;
        let fixed = plan.fixed_choice();
        let settings = format!(
            "{} with chunks of {}, a window of {} and a {} of {}",
            fixed.candidate.scheme,
            show_bytes(fixed.chunk_bytes),
            show_bytes(plan.window_bytes),
            if fixed.candidate.scheme.is_coded() { "fallback timeout" } else { "repair time" },
            show_time_fixed(fixed.timeout_s),
        );
        let Some(auto) = plan.auto() else { return vec![format!("take {settings}")] };
        let what = auto::describe(&auto.tails);
        let name = self.objective_name();
        if plan.recommended == plan.fixed {
            let worse = longer(self.worse(auto, fixed));
            return vec![
                format!("take {settings}"),
                format!("by {name}, auto, the default, takes {worse}: {what}"),
            ];
        }
        let worse = longer(self.worse(fixed, auto));
        vec![
            format!("take auto, the default: {what}"),
            format!("by {name}, the best fixed mode takes {worse}: {settings}"),
        ]
    }

    /// The path, for a title.
    pub(super) fn describe_path(&self) -> String {
        let question = &self.question;
        let loss = match question.loss {
            LossKnown::At(loss) => format!("loss {loss:.1e}"),
            LossKnown::Between(low, high) => format!("loss {low:.1e} to {high:.1e}"),
        };
        let bursts = question
            .mean_burst_packets
            .map_or_else(String::new, |packets| format!(" in bursts of {packets:.1}"));
        format!(
            "{}, round trip {}, {loss}{bursts}, packets of {}",
            show_rate(question.rate_bits_per_s),
            show_time(question.rtt_s),
            show_bytes(question.packet_bytes),
        )
    }
}

pub(super) fn longer(fraction: f64) -> String {
    match (fraction * 100.0).round() {
        0.0 => "as long".to_owned(),
        percent if percent < 0.0 => format!("{:.0} % less", -percent),
        percent => format!("{percent:.0} % longer"),
    }
}

/// Formats a quantity that is known to two digits only.
fn two_figures(shown: &str) -> String {
    let Some((number, unit)) = shown.split_once(' ') else { return shown.to_owned() };
    let Ok(value) = number.parse::<f64>() else { return shown.to_owned() };
    let second = |value: f64| value.max(f64::MIN_POSITIVE).log10().floor() - 1.0;
    let step = 10f64.powf(second(value));
    let value = (value / step).round() * step;
    // Rounding up to the next power of ten adds a digit before the point.
    let digits = (-second(value * (1.0 + f64::EPSILON))).max(0.0) as usize;
    format!("{value:.digits$} {unit}")
}

/// A probability, with the digits that its distance from 0 or 1 needs.
fn odds(probability: f64) -> String {
    match 1.0 - probability {
        _ if probability > 0.0 && probability < 1e-3 => format!("{probability:.1e}"),
        missing if missing > 1e-3 || missing <= 0.0 => format!("{probability:.4}"),
        missing => format!("1 - {missing:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_to_a_few_percent_has_two_figures() {
        for (shown, told) in [
            ("1.23 GiB", "1.2 GiB"),
            ("638.04 MiB", "640 MiB"),
            ("12.8 ms", "13 ms"),
            ("9.96 us", "10 us"),
            ("2 h", "2.0 h"),
        ] {
            assert_eq!(two_figures(shown), told);
        }
    }
}
