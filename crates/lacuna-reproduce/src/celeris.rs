//! Celeris: "Reimagining RDMA Through the Lens of ML": figure 1, what losses do to accuracy, from the record of a training,
//! and section III-B, how much time an operation gets.
//!
//! Rules of OptiNIC and Celeris, and the steered one, in weather ([`lacuna_schedule::budget`]): as they are, and
//! with their timeouts multiplied such that they lose what the steered rule loses, a factor that is known only
//! with hindsight. Loss is what is late; what the path loses is apart.

use crate::cells::{Lab, Stopped};
use crate::outcome::{Csv, Item, Outcome, Rows, Statement, Study, Verdict};
use crate::training;
use lacuna_schedule::budget::{self, Rule, TARGET_LATE, Weather, scaled_to_loss, simulate};

/// The paper's name on command lines.
pub const NAME: &str = "celeris";

/// What can be done again, with what it shows.
pub const EXPERIMENTS: [(Item, &str); 2] = [
    (Item::Figure(1), "accuracy against loss, from the record of a training"),
    (Item::Study(Study::Budgets), "rules for the time that an operation gets"),
];

const PUBLISHED: [Rule; 3] = [Rule::OptiNic, Rule::Celeris, Rule::CelerisDeviation];
const NODES: usize = 8;
const STEPS: usize = 20_000;

/// Does an experiment again. `None` if there is no such one.
///
/// # Errors
/// When it was told to stop.
pub fn run(item: Item, lab: &Lab<'_>) -> Option<Result<Outcome, Stopped>> {
    Some(match item {
        Item::Figure(1) => {
            Ok(training::accuracy((NAME, item, "II-B, figure 1"), EXPERIMENTS[0].1.to_owned()))
        }
        Item::Study(Study::Budgets) => budgets(lab),
        _ => return None,
    })
}

/// What a rule did in weather; with which factor.
#[derive(Debug, Clone)]
struct Found {
    weather: Weather,
    seed: u64,
    rule: Rule,
    scale: f64,
    outcome: budget::Outcome,
}

fn budgets(lab: &Lab<'_>) -> Result<Outcome, Stopped> {
    let seeds = lab.effort.pick(1, 5);
    let runs: Vec<(Weather, u64)> = Weather::ALL
        .into_iter()
        .flat_map(|weather| (1..=seeds).map(move |seed| (weather, seed)))
        .collect();
    let found = lab.each(&runs, |(weather, seed)| {
        let (weather, seed) = (*weather, *seed);
        let one = |rule, scale, outcome| Found { weather, seed, rule, scale, outcome };
        let ours = simulate(Rule::default(), 1.0, weather, NODES, STEPS, seed);
        let mut found = vec![one(Rule::default(), 1.0, ours.clone())];
        for rule in PUBLISHED {
            if (lab.stop)() {
                return None;
            }
            found.push(one(rule, 1.0, simulate(rule, 1.0, weather, NODES, STEPS, seed)));
            let (scale, scaled) = scaled_to_loss(rule, ours.late, weather, NODES, STEPS, seed);
            found.push(one(rule, scale, scaled));
        }
        Some(found)
    })?;
    Ok(outcome(&found))
}

/// Longest p99 of the steered rule over that of the best published one at equal loss, in this weather.
fn excess(found: &[Vec<Found>], weather: Weather) -> f64 {
    let of_seed = |runs: &Vec<Found>| {
        // The first is the steered rule; then each rule as it is, and scaled.
        let scaled = runs[1..].iter().skip(1).step_by(2).map(|run| run.outcome.p99_ms);
        runs[0].outcome.p99_ms / scaled.fold(f64::INFINITY, f64::min)
    };
    let here = found.iter().filter(|runs| runs[0].weather == weather);
    here.map(of_seed).fold(0.0, f64::max)
}

fn outcome(found: &[Vec<Found>]) -> Outcome {
    let mut csv = Csv::new("weather,rule,seed,scale,late,late_worst_100,cut,mean_ms,p50_ms,p99_ms");
    let mut rows = Vec::new();
    let name = |weather: Weather| format!("{weather:?}").to_lowercase();
    for Found { weather, seed, rule, scale, outcome } in found.iter().flatten() {
        let budget::Outcome { late, late_worst, cut, mean_ms, p50_ms, p99_ms } = *outcome;
        let numbers = [*seed as f64, *scale, late, late_worst, cut, mean_ms, p50_ms, p99_ms];
        csv.row(&[&name(*weather), rule.name()], &numbers);
        if *seed == 1 {
            let shares = [late, late_worst, cut].map(|share| format!("{:.3}", 100.0 * share));
            let times = [mean_ms, p50_ms, p99_ms].map(|ms| format!("{ms:.2}"));
            let names = vec![name(*weather), rule.name().to_owned(), format!("{scale:.2}")];
            rows.push([names, shares.into(), times.into()].concat());
        }
    }
    let is = |holds: bool| if holds { Verdict::Holds } else { Verdict::Differs };
    let all = || found.iter().flatten();
    let ours = all().filter(|run| !PUBLISHED.contains(&run.rule));
    let late = ours.map(|run| run.outcome.late).fold(0.0, f64::max);
    let published = all().filter(|run| run.scale == 1.0 && PUBLISHED[..2].contains(&run.rule));
    let cut: Vec<f64> = published.clone().map(|run| run.outcome.cut).collect();
    let (least, most) =
        (cut.iter().copied().fold(1.0, f64::min), cut.iter().copied().fold(0.0, f64::max));
    let lost = published.map(|run| run.outcome.late).fold(1.0, f64::min);
    let excesses = Weather::ALL.map(|weather| (weather, excess(found, weather)));
    let shown: Vec<String> =
        excesses.iter().map(|(weather, by)| format!("{} {by:.3}", name(*weather))).collect();
    let header =
        ["weather", "rule", "scale", "late %", "worst %", "cut %", "mean ms", "p50 ms", "p99 ms"];
    Outcome {
        paper: NAME,
        item: Item::Study(Study::Budgets),
        live: false,
        title: EXPERIMENTS[1].1.to_owned(),
        workload: format!(
            "{NODES} nodes, {STEPS} steps, usual time 10 ms, 1e-3 lost by the path beside; rules as they are, and \
             scaled to lose by being late what the steered rule loses"
        ),
        statements: vec![
            Statement {
                section: "OptiNIC 5.3.1, Celeris IV-A",
                paper: "less than 1 % is lost with the adaptive timeout".to_owned(),
                ours: format!(
                    "OptiNIC's and Celeris' rules as they are lose {:.1} % at least and cut {:.0} to {:.0} % of the nodes off",
                    100.0 * lost,
                    100.0 * least,
                    100.0 * most
                ),
                verdict: is(lost < 0.01),
                why: Some("the median of the full times is exceeded by half of them".to_owned()),
            },
            Statement {
                section: "the steered rule",
                paper: format!("at most twice the target of {} % is late", 100.0 * TARGET_LATE),
                ours: format!("{:.3} % at most", 100.0 * late),
                verdict: is(late <= 2.0 * TARGET_LATE),
                why: None,
            },
            Statement {
                section: "the steered rule",
                paper: "p99 is no higher than that of published rules scaled to equal loss".to_owned(),
                ours: format!("longest over the best of them: {}", shown.join(", ")),
                verdict: is(excesses.iter().all(|(_, by)| *by <= 1.005)),
                why: Some("the factor is known with hindsight; of all times a fixed one has the lowest p99 for what it loses, and a rule that has to learn it from rare bursts varies around it".to_owned()),
            },
        ],
        charts: Vec::new(),
        rows: Some(Rows { header: header.map(str::to_owned).into(), rows }),
        remarks: vec!["Worst: late over the worst hundred steps in a row.".to_owned()],
        csv,
    }
}
