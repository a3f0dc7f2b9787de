//! A submessage under bursts, as a step of the link's chain.
//!
//! The losses of a submessage depend on those of the one before: a burst longer than a submessage hits
//! several in a row, so all succeed more often than if they were independent. So a submessage is two
//! matrices over (state of the link before its first chunk, state after its last): `ok`, it can be
//! repaired, and `lost`, it cannot. They compose like those of chunks ([`Step`]), and all of `L` submessages
//! can be repaired with probability `pi ok^L 1`: exact, at `log L` products.
//!
//! - MDS: `sum_n D_n Q_j` over `n` lost data chunks and `j` lost parity chunks, whose matrices come
//!   from a walk over (losses, state).
//! - XOR of up to [`GROUPS_MAX`] groups: a walk over (set of groups hit, state).
//! - XOR of more groups: the chunks `j`, `j + m`, `j + 2m`, ... side by side, a state for each of these
//!   passes. The chunks of a group then come together, and a pass begins in the state in which the one
//!   before it ends.
//! - XOR of more groups and long ones: the smaller of two upper bounds. Groups that know nothing of
//!   each other are one, as losses in a row help each other; a submessage that stands no second loss in
//!   any group is the other, and near the truth where bursts are long.

use crate::code::Outcome;
use crate::gilbert::{ChunkChain, Matrix, Step, product, row_times, sum};
use crate::{Code, CodeKind};

/// XOR groups that are followed as a set, `2^groups` of them.
const GROUPS_MAX: u32 = 10;

/// Steps of the walk over passes at most, each some ten nanoseconds.
const PASS_STEPS_MAX: u64 = 1 << 20;

/// Losses of a submessage beyond what the code stands that are told apart.
const LOSSES_MAX: u32 = 64;

/// Chunks of which fewer than this are late are late one at a time.
pub(crate) const SELDOM: f64 = 1e-4;

/// Numbers of missing chunks that are less likely than all by this factor are left out.
const NEGLIGIBLE: f64 = 1e-13;

const NOTHING: Matrix = [[0.0; 2]; 2];
const UNCHANGED: Matrix = [[1.0, 0.0], [0.0, 1.0]];

/// When the parity of a submessage passes the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parity {
    /// Right behind its data, as the transport does.
    AtOnce,
    /// After the data of the message (4.1.2): the link has forgotten the data, and what the parity of
    /// neighbours has in common does not count.
    Later,
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Block {
    /// `ok`: it can be repaired.
    pub(crate) step: Step,
    /// Numbers of data chunks that are missing for good, with their parts of `step.lost`. Of an XOR code
    /// the mean number stands for all.
    pub(crate) missing: Vec<(f64, Matrix)>,
    pub(crate) stationary: [f64; 2],
    mean_chunks: f64,
}

impl Block {
    pub(crate) fn new(code: Code, chain: &ChunkChain, parity: Parity) -> Self {
        let (k, m) = (code.k(), code.m());
        let (step, missing) = match code.kind() {
            CodeKind::Mds => counted(chain, k, m, m, parity),
            CodeKind::Xor => {
                let step = xor(code, chain, m, parity);
                let failure = total(chain.stationary, &step.lost);
                let number = mean_missing(code, chain, parity) / failure;
                (step, vec![(number.clamp(1.0, k.into()), step.lost)])
            }
        };
        let mean_chunks = mean(chain.stationary, &missing);
        Self { step, missing, stationary: chain.stationary, mean_chunks }
    }

    /// With its first `sent` parity chunks alone, for `sent = 0, ..., m`, and these later.
    pub(crate) fn early(code: Code, chain: &ChunkChain) -> impl Iterator<Item = Self> {
        let steps: Vec<_> = match code.kind() {
            CodeKind::Mds => counted_early(chain, code.k(), code.m()),
            CodeKind::Xor => {
                (0..=code.m()).map(|sent| xor(code, chain, sent, Parity::Later)).collect()
            }
        };
        let stationary = chain.stationary;
        let of = move |step| Self { step, missing: Vec::new(), stationary, mean_chunks: 0.0 };
        steps.into_iter().map(of)
    }

    /// Of one, whatever was before it.
    pub(crate) fn outcome(&self) -> Outcome {
        outcome(self.stationary, &self.step)
    }

    /// All of so many in a row and the last.
    pub(crate) fn run(&self, count: u64, last: Option<&Self>) -> Outcome {
        let run = self.step.repeated(count);
        outcome(self.stationary, &last.map_or(run, |last| run.then(&last.step)))
    }

    /// So many in a row, each as if it were independent: all of them come to the same.
    pub(crate) fn each_of(&self, count: u64) -> Outcome {
        each_of(self.stationary, &self.step, count).0
    }

    /// Of one that follows so many of the other, all of which could be repaired.
    pub(crate) fn after(&self, other: &Self, count: u64) -> Outcome {
        outcome(each_of(self.stationary, &other.step, count).1, &self.step)
    }

    /// Data chunks that are missing for good, on average.
    pub(crate) fn mean_chunks(&self) -> f64 {
        self.mean_chunks
    }

    /// The same, of a submessage where some are, as the nearest power of two: the rounds of so many chunks
    /// are then those of few numbers.
    pub(crate) fn chunks_if_any(&self) -> u64 {
        let number = self.mean_chunks() / self.outcome().failure;
        if number.is_nan() { 1 } else { number.log2().round().max(0.0).exp2() as u64 }
    }

    /// The probability that something of one is missing, whatever was before it, once each of its chunks
    /// that was missing has come with `e^ln_came`: [`Self::repeated`], cheaper.
    pub(crate) fn late(&self, ln_came: f64) -> f64 {
        let most = self.missing.iter().fold(0.0, |most, (number, _)| f64::max(most, *number));
        if -ln_came * most < SELDOM {
            // One at a time.
            return -ln_came * self.mean_chunks;
        }
        let late = |(number, share): &(f64, Matrix)| {
            crate::sr::lost(number * ln_came) * total(self.stationary, share)
        };
        self.missing.iter().map(late).sum::<f64>().min(1.0)
    }

    /// Of the submessages that miss something for good, the share that misses more than so many chunks.
    pub(crate) fn share_missing_more_than(&self, most: u32) -> f64 {
        let share = |(_, share): &(f64, Matrix)| total(self.stationary, share);
        let all = self.missing.iter().map(share).sum::<f64>();
        let more = self.missing.iter().filter(|(number, _)| *number > f64::from(most));
        if all > 0.0 { (more.map(share).sum::<f64>() / all).min(1.0) } else { 0.0 }
    }

    /// What it is once each of its chunks that was missing has come with `e^ln_came`.
    pub(crate) fn repeated(&self, ln_came: f64) -> Step {
        let mut step = Step { ok: self.step.ok, lost: NOTHING };
        for (number, share) in &self.missing {
            let late = crate::sr::lost(number * ln_came);
            step.ok = sum(&step.ok, &scaled(share, 1.0 - late));
            step.lost = sum(&step.lost, &scaled(share, late));
        }
        step
    }
}

/// Below this a probability of success is on its way out of what an `f64` holds.
const SUCCESS_MIN: f64 = 1e-200;

/// So many in a row, each as if it were independent, and the state behind them if all came. Where that
/// hardly ever happens fewer are as good a measure of each.
pub(crate) fn each_of(from: [f64; 2], step: &Step, count: u64) -> (Outcome, [f64; 2]) {
    let comes = |run: &Step| total(from, &run.ok) >= SUCCESS_MIN;
    let (mut run, mut length) = (*step, 1);
    while length < count {
        let longer = length.saturating_mul(2).min(count);
        let next = if longer == count { step.repeated(count) } else { run.then(&run) };
        if !comes(&next) {
            break;
        }
        (run, length) = (next, longer);
    }
    let all = outcome(from, &run);
    let ln_each = all.ln_success() / length as f64;
    let behind = row_times(from, &run.ok);
    let behind = if all.success > 0.0 { behind.map(|share| share / all.success) } else { from };
    (Outcome { success: ln_each.exp(), failure: -ln_each.exp_m1() }, behind)
}

/// Of a step that begins in these states.
pub(crate) fn outcome(from: [f64; 2], step: &Step) -> Outcome {
    // Over many steps rounding adds up.
    Outcome { success: total(from, &step.ok).min(1.0), failure: total(from, &step.lost).min(1.0) }
}

fn total(from: [f64; 2], matrix: &Matrix) -> f64 {
    row_times(from, matrix).iter().sum()
}

fn mean(from: [f64; 2], missing: &[(f64, Matrix)]) -> f64 {
    missing.iter().map(|(number, share)| number * total(from, share)).sum()
}

fn scaled(matrix: &Matrix, factor: f64) -> Matrix {
    matrix.map(|row| row.map(|entry| entry * factor))
}

/// How many of the chunks so far are lost: exactly 0, 1, ..., or more.
struct Losses {
    exactly: Vec<Matrix>,
    more: Matrix,
    passed: usize,
}

impl Losses {
    /// None so far; more than `max` are not told apart.
    fn new(max: usize) -> Self {
        let mut exactly = vec![NOTHING; max + 1];
        exactly[0] = UNCHANGED;
        Self { exactly, more: NOTHING, passed: 0 }
    }

    /// So many chunks pass the link.
    fn pass(mut self, step: &Step, chunks: u32) -> Self {
        let all = step.all();
        for _ in 0..chunks {
            let mut lost_before = NOTHING;
            for states in self.exactly.iter_mut().take(self.passed + 2) {
                let lost = product(states, &step.lost);
                *states = sum(&product(states, &step.ok), &lost_before);
                lost_before = lost;
            }
            self.more = product(&self.more, &all);
            self.passed += 1;
            if self.passed >= self.exactly.len() {
                self.more = sum(&self.more, &lost_before);
            }
        }
        self
    }

    /// As if the link forgot: the chances of each number, and none of the state.
    fn forgotten(self, from: [f64; 2]) -> Self {
        let forget = |matrix: &Matrix| scaled(&UNCHANGED, total(from, matrix));
        Self {
            exactly: self.exactly.iter().map(forget).collect(),
            more: forget(&self.more),
            passed: self.passed,
        }
    }
}

/// `data` chunks and then `parity` chunks, of which together no more than `allowed` may be lost if one
/// of data is.
fn counted(
    chain: &ChunkChain,
    data: u32,
    parity: u32,
    allowed: u32,
    place: Parity,
) -> (Step, Vec<(f64, Matrix)>) {
    let most = data.min(allowed + LOSSES_MAX);
    let of_data = Losses::new(most as usize).pass(&chain.step, data);
    let mut of_parity = Losses::new(allowed as usize).pass(&chain.step, parity);
    if place == Parity::Later {
        of_parity = of_parity.forgotten(chain.stationary);
    }
    // At most and more than n lost parity chunks.
    let mut at_most = of_parity.exactly.clone();
    let mut more_than = vec![of_parity.more; at_most.len()];
    for n in 1..at_most.len() {
        at_most[n] = sum(&at_most[n - 1], &at_most[n]);
    }
    for n in (1..more_than.len()).rev() {
        more_than[n - 1] = sum(&more_than[n], &of_parity.exactly[n]);
    }
    let whatever = sum(&at_most[allowed as usize], &of_parity.more);
    let mut step = Step { ok: product(&of_data.exactly[0], &whatever), lost: NOTHING };
    let mut missing = Vec::with_capacity(most as usize + 1);
    for n in 1..=most {
        let lost = &of_data.exactly[n as usize];
        if n <= allowed {
            step.ok = sum(&step.ok, &product(lost, &at_most[(allowed - n) as usize]));
            missing.push((f64::from(n), product(lost, &more_than[(allowed - n) as usize])));
        } else {
            missing.push((f64::from(n), product(lost, &whatever)));
        }
    }
    missing.push((f64::from((most + 1).min(data)), product(&of_data.more, &whatever)));
    step.lost = missing.iter().fold(NOTHING, |lost, (_, share)| sum(&lost, share));
    let size = |matrix: &Matrix| matrix.iter().flatten().sum::<f64>();
    let least = size(&step.lost) * NEGLIGIBLE;
    missing.retain(|(_, share)| size(share) > least);
    (step, missing)
}

/// The steps of `counted` with the first `sent` chunks of later parity alone, as many as may then be lost,
/// for `sent = 0, ..., parity`: one walk over the data and one over the parity.
fn counted_early(chain: &ChunkChain, data: u32, parity: u32) -> Vec<Step> {
    let of_data = Losses::new(data.min(parity) as usize).pass(&chain.step, data);
    // More than n data chunks.
    let mut data_above = vec![of_data.more; of_data.exactly.len()];
    for n in (1..data_above.len()).rev() {
        data_above[n - 1] = sum(&data_above[n], &of_data.exactly[n]);
    }
    let mut of_parity = Losses::new(parity as usize);
    let mut steps = Vec::with_capacity(parity as usize + 1);
    for sent in 0..=parity as usize {
        if sent > 0 {
            of_parity = of_parity.pass(&chain.step, 1);
        }
        let chance: Vec<_> =
            of_parity.exactly[..=sent].iter().map(|n| total(chain.stationary, n)).collect();
        let mut more_than = vec![0.0; chance.len()];
        for n in (1..chance.len()).rev() {
            more_than[n - 1] = more_than[n] + chance[n];
        }
        let beyond = sent.min(of_data.exactly.len() - 1);
        let mut step = Step { ok: NOTHING, lost: data_above[beyond] };
        // Fewer parity chunks may be lost the more data chunks are.
        let mut at_most = chance[..sent - beyond].iter().sum::<f64>();
        for n in (0..=beyond).rev() {
            at_most += chance[sent - n];
            step.ok = sum(&step.ok, &scaled(&of_data.exactly[n], at_most));
            if n > 0 {
                step.lost = sum(&step.lost, &scaled(&of_data.exactly[n], more_than[sent - n]));
            }
        }
        steps.push(step);
    }
    steps
}

/// Data chunks of an XOR code that are missing for good, on average: those of each group.
fn mean_missing(code: Code, chain: &ChunkChain, place: Parity) -> f64 {
    let apart = thinned(chain, code.m());
    let of_group = |data: u64| mean(chain.stationary, &counted(&apart, data as u32, 1, 1, place).1);
    let groups = code.groups().filter(|(_, count)| *count > 0);
    groups.map(|(data, count)| count as f64 * of_group(data)).sum()
}

/// An XOR submessage with its first `sent` parity chunks.
fn xor(code: Code, chain: &ChunkChain, sent: u32, place: Parity) -> Step {
    let passes = code.k().div_ceil(code.m()) + 1;
    let pass_steps =
        4u64.saturating_pow(passes).saturating_mul(u64::from(passes) * u64::from(code.m()));
    if code.m() <= GROUPS_MAX {
        xor_by_sets(code, &chain.step, chain.stationary, sent, place)
    } else if pass_steps <= PASS_STEPS_MAX {
        xor_by_passes(code, chain, passes, sent, place)
    } else {
        xor_at_most(code, chain, sent, place)
    }
}

fn xor_by_sets(code: Code, step: &Step, from: [f64; 2], sent: u32, place: Parity) -> Step {
    let (k, m, all) = (code.k(), code.m(), step.all());
    // The groups in the set have lost one data chunk, none has lost two.
    let mut hit = vec![NOTHING; 1 << m];
    hit[0] = UNCHANGED;
    let mut lost = NOTHING;
    for j in 0..k {
        lost = product(&lost, &all);
        let bit = 1 << (j % m);
        let reached = 1 << m.min(j + 1);
        for block in hit[..reached].chunks_mut(2 * bit) {
            let (without, with) = block.split_at_mut(bit);
            for (without, with) in without.iter_mut().zip(with) {
                lost = sum(&lost, &product(with, &step.lost));
                *with = sum(&product(with, &step.ok), &product(without, &step.lost));
                *without = product(without, &step.ok);
            }
        }
    }
    // The parity of a group that was hit must have been sent, and come.
    if place == Parity::Later {
        let mut ok = NOTHING;
        let came = parity_came(step, from, sent);
        for (set, states) in hit.iter().enumerate() {
            let came = came.get(set).copied().unwrap_or(Outcome { success: 0.0, failure: 1.0 });
            ok = sum(&ok, &scaled(states, came.success));
            lost = sum(&lost, &scaled(states, came.failure));
        }
        return Step { ok, lost };
    }
    for _ in 0..m {
        lost = product(&lost, &all);
        // The group of the lowest bit gets its parity, and is done.
        for set in 0..hit.len() / 2 {
            let (without, with) = (hit[2 * set], hit[2 * set + 1]);
            lost = sum(&lost, &product(&with, &step.lost));
            hit[set] = sum(&product(&without, &all), &product(&with, &step.ok));
        }
        hit.truncate(hit.len() / 2);
    }
    Step { ok: hit[0], lost }
}

/// Of so many parity chunks, for each set of them: whether all in the set come.
fn parity_came(step: &Step, from: [f64; 2], parity: u32) -> Vec<Outcome> {
    // The states of the link if so far those in the set came, and whether one of them did not.
    let mut sets = vec![(from, 0.0)];
    let all = step.all();
    for _ in 0..parity {
        let needed = |(states, failure): &([f64; 2], f64)| {
            (row_times(*states, &step.ok), failure + total(*states, &step.lost))
        };
        let with: Vec<_> = sets.iter().map(needed).collect();
        for (states, _) in &mut sets {
            *states = row_times(*states, &all);
        }
        sets.extend(with);
    }
    let outcome =
        |(states, failure): ([f64; 2], f64)| Outcome { success: states[0] + states[1], failure };
    sets.into_iter().map(outcome).collect()
}

/// Side by side, pass `i` in bit `i` of the state; the last of them is the parity.
fn xor_by_passes(code: Code, chain: &ChunkChain, passes: u32, sent: u32, place: Parity) -> Step {
    let (k, m) = (code.k(), code.m());
    let (size, of_parity) = (1usize << passes, passes - 1);
    // Where each pass must end: in the state in which the next one has begun.
    let linked = if place == Parity::AtOnce { of_parity } else { of_parity - 1 };
    let mask = (1 << linked) - 1;
    let mut result = Step { ok: NOTHING, lost: NOTHING };
    // No group so far has lost more than it stands, and this one none, one, more; and some group has.
    let mut lost = [0; 3].map(|_| vec![0.0; size]);
    let mut failed = vec![0.0; size];
    for start in 0..size {
        lost[0].fill(0.0);
        failed.fill(0.0);
        lost[0][start] = 1.0;
        for group in 0..m {
            for pass in 0..passes {
                if pass < of_parity && pass * m + group >= k {
                    continue;
                }
                if pass < of_parity || group < sent {
                    chunk(&mut lost, &mut failed, 1 << pass, &chain.step);
                    continue;
                }
                let [none, one, more] = &mut lost;
                more.iter_mut().zip(&*one).for_each(|(more, one)| *more += one);
                std::mem::swap(none, one);
                none.fill(0.0);
            }
            let [none, one, more] = &mut lost;
            none.iter_mut().zip(&*one).for_each(|(none, one)| *none += one);
            failed.iter_mut().zip(&*more).for_each(|(failed, more)| *failed += more);
            one.fill(0.0);
            more.fill(0.0);
        }
        let weight = match place {
            Parity::AtOnce => 1.0,
            Parity::Later => chain.stationary[start >> of_parity & 1],
        };
        for end in (0..size).filter(|end| end & mask == start >> 1 & mask) {
            let (from, to) = (start & 1, end >> linked & 1);
            result.ok[from][to] += weight * lost[0][end];
            result.lost[from][to] += weight * failed[end];
        }
    }
    result
}

/// A chunk of the pass with this bit.
fn chunk(lost: &mut [Vec<f64>; 3], failed: &mut [f64], bit: usize, step: &Step) {
    let all = step.all();
    for low in (0..failed.len()).filter(|state| state & bit == 0) {
        let at = [low, low | bit];
        let [none, one, more] = [0, 1, 2].map(|losses| at.map(|state| lost[losses][state]));
        let add = |a: [f64; 2], b: [f64; 2]| [a[0] + b[0], a[1] + b[1]];
        let then = [
            row_times(none, &step.ok),
            add(row_times(one, &step.ok), row_times(none, &step.lost)),
            add(row_times(more, &all), row_times(one, &step.lost)),
        ];
        let failed_then = row_times(at.map(|state| failed[state]), &all);
        for (i, state) in at.into_iter().enumerate() {
            (0..3).for_each(|losses| lost[losses][state] = then[losses][i]);
            failed[state] = failed_then[i];
        }
    }
}

/// The smaller of the two bounds of the module's text.
fn xor_at_most(code: Code, chain: &ChunkChain, sent: u32, place: Parity) -> Step {
    // Where some parity is not sent, there may be a group that stands no loss at all.
    let (bound, _) = counted(chain, code.k(), sent, u32::from(sent == code.m()), place);
    let together = total(chain.stationary, &bound.lost);
    let share = (xor_apart(code, chain, sent).failure / together).min(1.0);
    let (all, lost) = (bound.all(), scaled(&bound.lost, share));
    let ok = [0, 1].map(|i| [0, 1].map(|j| (all[i][j] - lost[i][j]).max(0.0)));
    Step { ok, lost }
}

/// Groups that know nothing of each other.
fn xor_apart(code: Code, chain: &ChunkChain, sent: u32) -> Outcome {
    let apart = thinned(chain, code.m());
    let of_group = |data: u64, is_sent: bool| {
        let parity = u32::from(is_sent);
        outcome(chain.stationary, &counted(&apart, data as u32, parity, parity, Parity::Later).0)
    };
    let (mut left, mut all) = (u64::from(sent), Outcome::CERTAIN);
    // Groups have one of two lengths, the longer ones come first.
    for (data, count) in code.groups() {
        let with = left.min(count);
        left -= with;
        all = all.and(of_group(data, true).all_of(with));
        if with < count {
            all = all.and(of_group(data, false).all_of(count - with));
        }
    }
    all
}

/// The chain as chunks see it that are `distance` apart.
pub(crate) fn thinned(chain: &ChunkChain, distance: u32) -> ChunkChain {
    let skipped = chain.step.repeated(u64::from(distance - 1)).all();
    let skip = Step { ok: skipped, lost: NOTHING };
    ChunkChain { step: skip.then(&chain.step), stationary: chain.stationary }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gilbert, Loss};

    const PLACES: [Parity; 2] = [Parity::AtOnce, Parity::Later];

    fn chains() -> Vec<ChunkChain> {
        let general = Gilbert::new(0.01, 0.4, 0.05, 0.2).unwrap();
        [(0.2, 1.5), (1e-2, 6.0), (1e-3, 40.0)]
            .map(|(loss, burst)| Gilbert::bursts(loss, burst).unwrap())
            .into_iter()
            .chain([general])
            .flat_map(|chain| [1, 3].map(|packets| ChunkChain::new(&chain, packets)))
            .collect()
    }

    fn assert_same(what: &str, a: &Matrix, b: &Matrix) {
        for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
            assert!((a - b).abs() <= 1e-12 * a.abs() + 1e-300, "{what}: {a} is not {b}");
        }
    }

    #[test]
    fn walks_over_sets_and_over_passes_come_to_the_same() {
        for chain in chains() {
            for (k, m) in [(4, 1), (6, 6), (7, 3), (8, 4), (15, 6), (20, 10)] {
                let code = Code::xor(k, m).unwrap();
                let passes = k.div_ceil(m) + 1;
                for place in PLACES {
                    let least = if place == Parity::Later { 0 } else { m };
                    for sent in least..=m {
                        let sets = xor_by_sets(code, &chain.step, chain.stationary, sent, place);
                        let side_by_side = xor_by_passes(code, &chain, passes, sent, place);
                        let what = format!("{k} {m} {sent} {place:?}");
                        assert_same(&what, &sets.ok, &side_by_side.ok);
                        assert_same(&what, &sets.lost, &side_by_side.lost);
                    }
                }
            }
        }
    }

    #[test]
    fn one_walk_over_early_parity_comes_to_what_a_walk_for_each_does() {
        for chain in chains() {
            for (k, m) in [(1, 1), (1, 3), (7, 2), (8, 8), (3, 9), (32, 8)] {
                let early: Vec<_> = Block::early(Code::mds(k, m).unwrap(), &chain).collect();
                assert_eq!(early.len(), m as usize + 1);
                for (sent, block) in (0..).zip(&early) {
                    let (step, _) = counted(&chain, k, sent, sent, Parity::Later);
                    let what = format!("{k} {m} {sent}");
                    assert_same(&what, &block.step.ok, &step.ok);
                    assert_same(&what, &block.step.lost, &step.lost);
                }
            }
        }
    }

    #[test]
    fn what_is_known_of_many_long_groups_is_a_bound() {
        for chain in chains() {
            for (k, m) in [(16, 4), (32, 8), (30, 10)] {
                let code = Code::xor(k, m).unwrap();
                for place in PLACES {
                    let exact = Block::new(code, &chain, place).outcome();
                    let bound = outcome(chain.stationary, &xor_at_most(code, &chain, m, place));
                    assert!(bound.failure >= exact.failure * (1.0 - 1e-9), "{code:?} {place:?}");
                    assert!((bound.success + bound.failure - 1.0).abs() < 1e-12);
                }
            }
        }
        // Where bursts are long it is next to exact.
        let chain = ChunkChain::new(&Gilbert::bursts(1e-3, 300.0).unwrap(), 1);
        let code = Code::xor(32, 8).unwrap();
        let exact = Block::new(code, &chain, Parity::Later).outcome().failure;
        let bound = outcome(chain.stationary, &xor_at_most(code, &chain, 8, Parity::Later)).failure;
        assert!(bound < exact * 1.05, "{bound} {exact}");
    }

    #[test]
    fn more_groups_of_the_same_data_fail_less_often() {
        for chain in chains() {
            let failure =
                |m| Block::new(Code::xor(32, m).unwrap(), &chain, Parity::Later).outcome().failure;
            let failures = [1, 2, 4, 8, 16, 32].map(failure);
            assert!(failures.windows(2).all(|pair| pair[0] > pair[1]), "{failures:?}");
        }
    }

    #[test]
    fn what_is_repaired_and_what_is_not_is_all() {
        for chain in chains() {
            for kind in [CodeKind::Mds, CodeKind::Xor] {
                for (k, m) in [(1, 1), (5, 2), (24, 12), (100, 20)] {
                    let code = Code::new(kind, k, m).unwrap();
                    for place in PLACES {
                        let block = Block::new(code, &chain, place);
                        let sent = if place == Parity::AtOnce { k + m } else { k };
                        let all = chain.step.repeated(sent.into()).all();
                        assert_same(&format!("{code:?} {place:?}"), &block.step.all(), &all);
                        assert!(block.mean_chunks() <= f64::from(k) * chain.loss() * (1.0 + 1e-9));
                    }
                }
            }
        }
    }

    #[test]
    fn submessages_in_a_row_fail_together_under_a_burst_longer_than_they_are() {
        let loss = Loss::bursts(1e-3, 1000.0).unwrap().of_chunk(1).unwrap();
        let block = Block::new(Code::mds(32, 8).unwrap(), loss.chain().unwrap(), Parity::AtOnce);
        let (alone, run) = (block.outcome().failure, block.run(25, None).failure);
        assert!(run < 2.5 * alone, "{run} for 25, {alone} for one");
        assert!((block.each_of(25).all_of(25).failure / run - 1.0).abs() < 1e-9);
        assert!(block.after(&block, 1).failure < 0.1 * alone, "the burst is not on");
    }
}
