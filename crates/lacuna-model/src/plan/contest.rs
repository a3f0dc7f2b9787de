//! Compares coding with repeating cheaply: the search for flips does so some sixty times.
//!
//! Three things make a comparison cheap. A lower bound of a code's time (its injection, and a repair near
//! the end where that is likely) costs next to nothing; if a repeater is done by then, no code is
//! evaluated. Whether a scheme is done *by* a time is cheaper than *when*: a distribution function instead
//! of its inverse. In a mixture the parts with the largest losses mostly decide, so they are evaluated
//! first, and the others only if they matter.

use super::candidate::{Candidate, Model, Scheme};
use super::{Fates, Objective, Question, TIE};
use crate::ec::together;
use crate::{Completion, Mixture, ModelError, RepairTiming};

/// What rounding may add to a bound.
const ROUNDING: f64 = 1e-11;

/// The schemes that are compared.
#[derive(Debug)]
pub(super) struct Contest {
    repeating: Vec<Candidate>,
    coding: Vec<Candidate>,
}

impl Contest {
    pub(super) fn new(candidates: Vec<Candidate>) -> Self {
        let (coding, repeating) =
            candidates.into_iter().partition(|candidate| candidate.scheme.is_coded());
        Self { repeating, coding }
    }

    /// Whether some code is done so much earlier than all repeaters that it is more than a tie.
    pub(super) fn coding_wins(
        &self,
        question: &Question,
        fates: &Fates,
    ) -> Result<bool, ModelError> {
        let objective = question.objective;
        let mut repeating = Vec::with_capacity(self.repeating.len());
        for candidate in &self.repeating {
            repeating.extend(candidate.if_it_comes(candidate.model(question, fates))?);
        }
        let mut coding = Vec::with_capacity(self.coding.len());
        for candidate in &self.coding {
            let least_s = candidate.if_it_comes(candidate.at_least_s(question, fates))?;
            coding.extend(least_s.map(|least_s| (least_s, candidate)));
        }
        coding.sort_by(|a, b| a.0.total_cmp(&b.0));
        let least_s = coding.first().map_or(f64::INFINITY, |code| code.0);
        let bound_s = least_s * (1.0 + TIE) * (1.0 - ROUNDING);
        if repeating.iter().any(|model| model.is_done_by(objective, bound_s)) {
            return Ok(false);
        }
        let mut to_beat_s = None;
        for (least_s, candidate) in coding {
            let model = candidate.model(question, fates)?;
            // What no repeater reaches is beaten by a code that is sure to.
            let bound_s = least_s * (1.0 + TIE) * (1.0 + ROUNDING);
            if to_beat_s.is_none()
                && model.is_done_by(objective, least_s * (1.0 + ROUNDING))
                && !repeating.iter().any(|model| model.is_done_by(objective, bound_s))
            {
                return Ok(true);
            }
            let to_beat_s = *to_beat_s.get_or_insert_with(|| earliest_s(&repeating, objective));
            if least_s * (1.0 - ROUNDING) > to_beat_s / (1.0 + TIE) {
                return Ok(false);
            }
            if model.is_done_by(objective, to_beat_s / (1.0 + TIE)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The time at which the first of them is done.
fn earliest_s(models: &[Mixture<Model>], objective: Objective) -> f64 {
    models.iter().fold(f64::INFINITY, |earliest_s, model| {
        if model.is_done_by(objective, earliest_s) {
            model.judged_s(objective).min(earliest_s)
        } else {
            earliest_s
        }
    })
}

impl Candidate {
    /// What it takes at least, by the question's objective. For a code only.
    fn at_least_s(&self, question: &Question, fates: &Fates) -> Result<f64, ModelError> {
        let Scheme::Code(code) = self.scheme else { return Ok(0.0) };
        // Without repairs, the least that a repair near the end adds, and its probability.
        let mut parts = Vec::new();
        self.each(question, fates, |transfer, fate| {
            let chunks = transfer.chunks();
            let code = code.shortened_to(chunks);
            let (k, m) = (u64::from(code.k()), u64::from(code.m()));
            let (whole, tail) = (chunks / k, chunks % k);
            let sent_s = |chunks: u64| chunks as f64 * transfer.chunk_s();
            let (each_s, tail_s) = (sent_s(k + m), sent_s(tail + (tail * m).div_ceil(k)));
            let end_s = whole as f64 * each_s + tail_s + transfer.rtt_s();
            // Those whose repair ends half a round trip late or later.
            let last = (transfer.rtt_s() / 2.0 / each_s) as u64;
            let last = last.clamp(1, whole);
            let late_s = transfer.rtt_s() - (last - 1) as f64 * each_s - tail_s;
            let timing = RepairTiming { rto_rtts: 1.0, wire_time: true };
            let fails = fate.outcome(code, together(transfer, code, timing)).all_of(last).failure;
            parts.push((end_s, late_s.max(0.0), fails));
            Ok(())
        })?;
        let count = parts.len() as f64;
        Ok(match question.objective.probability() {
            None => {
                let sum_s: f64 = parts.iter().map(|(end_s, late_s, f)| end_s + f * late_s).sum();
                sum_s / count
            }
            Some(probability) => {
                // Of a part all survive until its end, and those that fail until the repair's.
                let mut drops = Vec::with_capacity(2 * parts.len());
                for (end_s, late_s, fails) in &parts {
                    drops.push((*end_s, (1.0 - fails) / count));
                    drops.push((end_s + late_s, fails / count));
                }
                drops.sort_by(|a, b| a.0.total_cmp(&b.0));
                let mut survival = 1.0;
                let allowed = (1.0 - probability) * (1.0 + ROUNDING);
                let at_most = |(time_s, drop): &(f64, f64)| {
                    survival -= drop;
                    (survival <= allowed).then_some(*time_s)
                };
                drops.iter().find_map(at_most).unwrap_or(0.0)
            }
        })
    }
}

impl Mixture<Model> {
    /// The time that the objective looks at.
    pub(super) fn judged_s(&self, objective: Objective) -> f64 {
        match objective.probability() {
            None => self.mean_s(),
            Some(probability) => self.quantile_s(probability),
        }
    }

    /// Whether that time is at most so much.
    fn is_done_by(&self, objective: Objective, time_s: f64) -> bool {
        // Before it is asked.
        let bounds = |model: &Model| match objective {
            Objective::Mean => (model.quantile_s(0.0), f64::INFINITY),
            _ => (0.0, 1.0),
        };
        let exact = |model: &Model| match objective {
            Objective::Mean => model.mean_s(),
            _ => model.survival(time_s),
        };
        let most = objective.probability().map_or(time_s, |probability| 1.0 - probability);
        let mut bounds: Vec<(f64, f64)> =
            self.parts().iter().map(|(_, model)| bounds(model)).collect();
        let weighted = |bounds: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| -> f64 {
            self.parts().iter().zip(bounds).map(|((weight, _), bound)| weight * of(bound)).sum()
        };
        for i in (0..bounds.len()).rev() {
            if weighted(&bounds, |bound| bound.1) <= most * (1.0 - ROUNDING) {
                return true;
            }
            if weighted(&bounds, |bound| bound.0) > most * (1.0 + ROUNDING) {
                return false;
            }
            let value = exact(&self.parts()[i].1);
            bounds[i] = (value, value);
        }
        weighted(&bounds, |bound| bound.0) <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{LossKnown, candidate};

    #[test]
    fn the_winner_is_that_of_all_times_worked_out() {
        let fates = Fates::default();
        let (mut won, mut lost) = (0, 0);
        for objective in [Objective::Mean, Objective::P99, Objective::P999] {
            for (size, rtt_s) in
                [(1 << 17, 0.025), (1 << 27, 0.025), (1 << 32, 0.1), (1 << 23, 1e-5)]
            {
                for loss in [
                    LossKnown::At(1e-6),
                    LossKnown::At(1e-3),
                    LossKnown::At(0.05),
                    LossKnown::Between(1e-5, 1e-2),
                    LossKnown::Between(0.03, 0.3),
                ] {
                    for sizes_bytes in [vec![size], vec![size, 3 * size]] {
                        let question = Question {
                            rate_bits_per_s: 10e9,
                            rtt_s,
                            loss,
                            mean_burst_packets: None,
                            sizes_bytes,
                            objective,
                            packet_bytes: 4096,
                            overhead_bytes: 64,
                            auto: None,
                        };
                        let contest = Contest::new(candidate::all(&question).collect());
                        let earliest_s = |candidates: &[Candidate]| {
                            let models = candidates.iter().map(|c| c.model(&question, &fates));
                            let times_s = models.map(|model| model.unwrap().judged_s(objective));
                            times_s.fold(f64::INFINITY, f64::min)
                        };
                        let repeating_s = earliest_s(&contest.repeating);
                        let coding_s = earliest_s(&contest.coding);
                        let expected = coding_s * (1.0 + TIE) <= repeating_s;
                        let actual = contest.coding_wins(&question, &fates).unwrap();
                        assert_eq!(actual, expected, "{question:?}: {coding_s} {repeating_s}");
                        *(if actual { &mut won } else { &mut lost }) += 1;
                    }
                }
            }
        }
        assert!(won > 10 && lost > 10, "{won} {lost}");
    }
}
