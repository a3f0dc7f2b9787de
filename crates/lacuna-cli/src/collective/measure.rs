//! One rank of a measurement. All measure the same; rank 0 prints. What the ranks have found is gathered by the same
//! operations that are measured, over a second group that loses nothing.

use super::data::Plan;
use super::report::{Row, Times, bus_factor, header};
use super::{BenchArgs, Limit, What};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use lacuna::Wrap;
use lacuna::datapath::Impair;
use lacuna_collective::rendezvous::Meeting;
use lacuna_collective::{
    Budget, Collective, Element, Group, GroupConfig, Op, OperationError, Options, Reason, Rule,
    Vectors,
};
use std::sync::Arc;
use std::time::Instant;

/// What a rank adds to the sum over all.
#[derive(Debug, Default, Clone, Copy)]
struct Found {
    bytes: u64,
    lost_bytes: u64,
    hops: u64,
    cut_off: u64,
    elements: u64,
    incomplete: u64,
    wrong: u64,
    interrupted: u64,
}

pub(super) fn run(args: &BenchArgs, output: Output) -> Result<(), Failure> {
    let meeting = Meeting::from_environment().map_err(|error| {
        Failure::Usage(format!("{error}; or give --ranks N to start N processes here"))
    })?;
    let meeting = Meeting { timeout: args.timeout, ..meeting };
    let wrap = wrap(args, meeting.rank)?;
    let config = GroupConfig {
        bind: args.bind(),
        announce: args.announce,
        mode: args.mode,
        rule: match args.budget {
            Some(Limit::Adaptive(rule)) => rule,
            _ => Rule::default(),
        },
        wrap,
        ..GroupConfig::new(meeting)
    };
    let group = Group::form(&config).map_err(|error| Failure::Network(error.to_string()))?;
    // What was found goes by a group of its own, so that a bounded one loses none of it.
    let meeting =
        Meeting { job: format!("{}.found", config.meeting.job), ..config.meeting.clone() };
    let told =
        GroupConfig { bind: args.bind(), announce: args.announce, ..GroupConfig::new(meeting) };
    let told = Group::form(&told).map_err(|error| Failure::Network(error.to_string()))?;
    let is_first = group.rank() == 0;
    if is_first {
        output.note(&format!("{} ranks, mode {}", group.ranks(), args.mode));
        header(output)?;
    }
    let mut bytes = args.begin;
    while bytes <= args.end {
        let (row, is_over) = size(args, &group, &told, bytes)?;
        if is_first && let Some(row) = &row {
            row.print(output)?;
        }
        if row.as_ref().and_then(|row| row.wrong).is_some_and(|wrong| wrong > 0) {
            return Err(Failure::Verification(format!("wrong elements at {bytes} bytes")));
        }
        if is_over {
            return Err(Failure::Interrupted);
        }
        let Some(next) = bytes.checked_mul(args.factor) else { break };
        bytes = next;
    }
    told.barrier().map_err(of_group)?;
    Ok(())
}

fn wrap(args: &BenchArgs, rank: usize) -> Result<Option<Wrap>, Failure> {
    let Some(impairment) = args.impairment()? else { return Ok(None) };
    Ok(Some(Arc::new(move |channel, inner| {
        let seed = (rank as u64 + 1) << 32 | u64::from(channel);
        Box::new(Impair::new(inner, impairment.clone(), seed))
    })))
}

fn of_group(error: OperationError) -> Failure {
    match error {
        OperationError::Run(error) => Failure::Network(error.to_string()),
        error => Failure::Usage(error.to_string()),
    }
}

/// Measures one size; whether Ctrl-C came at any rank.
fn size(
    args: &BenchArgs,
    group: &Group,
    told: &Group,
    bytes: u64,
) -> Result<(Option<Row>, bool), Failure> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let element = args.element;
    let plan = Plan::new(args.op, bytes, element.size_bytes(), rank, ranks);
    let types = (element, args.reduce);
    let options = Options {
        algorithm: args.algorithm.clone(),
        budget: match args.budget {
            None => Budget::Unlimited,
            Some(Limit::Fixed(time)) => Budget::Fixed(time),
            Some(Limit::Adaptive(_)) => Budget::Adaptive,
        },
        ..Options::default()
    };
    let mut vectors = Vectors {
        input: plan.fill(element, args.reduce, rank),
        output: vec![0; plan.output * element.size_bytes()],
    };
    let mut found = Found::default();
    let mut times_us = Vec::new();
    let mut algorithm = String::new();
    let mut budget = None;
    for round in 0..args.warmup + args.iterations {
        let begin = Instant::now();
        let buffers = Box::new(std::mem::take(&mut vectors));
        let outcome = group.run(&plan.collective, types, buffers, &options).map_err(of_group)?;
        let us = begin.elapsed().as_secs_f64() * 1e6;
        let report = &outcome.report;
        algorithm.clone_from(&outcome.algorithm);
        budget = outcome.budget;
        if round >= args.warmup {
            times_us.push(us);
            found.bytes += report.bytes();
            found.lost_bytes += report.lost_bytes();
            found.hops += report.hops.len() as u64;
            let cut_off = report.hops.iter().filter(|hop| hop.reason == Reason::Deadline);
            found.cut_off += cut_off.count() as u64;
            let ranges = report.missing.iter().map(|(range, _)| range).chain(&report.uncertain);
            found.incomplete += ranges.map(|range| range.len() as u64).sum::<u64>();
            found.elements += plan.output as u64;
        }
        let is_last = round + 1 == args.warmup + args.iterations;
        if !args.no_check && (is_last || args.budget.is_some()) {
            found.wrong += plan.wrong(types, (rank, ranks), outcome.buffers.output(), report);
        }
        // The same memory again.
        vectors = Vectors {
            input: outcome.buffers.input().to_vec(),
            output: outcome.buffers.output().to_vec(),
        };
        if args.budget.is_some() {
            // Ranks of a bounded operation are apart by what they lacked.
            told.barrier().map_err(of_group)?;
        }
    }
    found.interrupted = u64::from(interrupt::requested());
    let found = sum(told, found)?;
    let times_us = slowest(told, times_us)?;
    let times = Times::of(times_us);
    let size_bytes = (plan.elements() * element.size_bytes()) as u64;
    let algbw = size_bytes as f64 / times.mean / 1e3;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let row = Row {
        op: name(args.op),
        size_bytes,
        count: plan.elements() as u64,
        element: element.to_string(),
        reduce: if plan.collective.reduces() { args.reduce.to_string() } else { "none".to_owned() },
        algorithm,
        ranks,
        mode: args.mode.to_string(),
        iterations: args.iterations,
        time_us: times,
        algbw_gbyte_per_s: algbw,
        busbw_gbyte_per_s: algbw * bus_factor(args.op, ranks),
        lost_fraction: share(found.lost_bytes, found.bytes),
        cut_off_fraction: share(found.cut_off, found.hops),
        incomplete_fraction: share(found.incomplete, found.elements),
        budget_us: budget.map(|budget| budget.as_secs_f64() * 1e6),
        wrong: (!args.no_check).then_some(found.wrong),
    };
    Ok((Some(row), found.interrupted > 0))
}

fn name(what: What) -> &'static str {
    match what {
        What::AllReduce => "all-reduce",
        What::ReduceScatter => "reduce-scatter",
        What::AllGather => "all-gather",
        What::Broadcast => "broadcast",
        What::Reduce => "reduce",
        What::AllToAll => "all-to-all",
    }
}

fn sum(group: &Group, found: Found) -> Result<Found, Failure> {
    let Found { bytes, lost_bytes, hops, cut_off, elements, incomplete, wrong, interrupted } =
        found;
    let own = [bytes, lost_bytes, hops, cut_off, elements, incomplete, wrong, interrupted];
    let input: Vec<u8> = own.iter().flat_map(|value| value.to_le_bytes()).collect();
    let all = all_reduce(group, (Element::U64, Op::Sum), input)?;
    let all: Vec<u64> =
        all.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())).collect();
    let [bytes, lost_bytes, hops, cut_off, elements, incomplete, wrong, interrupted] = all[..]
    else {
        return Err(Failure::Network("the ranks' counts do not add up".to_owned()));
    };
    Ok(Found { bytes, lost_bytes, hops, cut_off, elements, incomplete, wrong, interrupted })
}

/// The time of each operation on the rank that took longest.
fn slowest(group: &Group, times_us: Vec<f64>) -> Result<Vec<f64>, Failure> {
    let input: Vec<u8> = times_us.iter().flat_map(|us| us.to_le_bytes()).collect();
    let all = all_reduce(group, (Element::F64, Op::Max), input)?;
    Ok(all.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default())).collect())
}

fn all_reduce(group: &Group, types: (Element, Op), input: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let count = input.len() / types.0.size_bytes();
    let output = vec![0; input.len()];
    let buffers = Box::new(Vectors { input, output });
    let collective = Collective::AllReduce { count };
    let outcome = group.run(&collective, types, buffers, &Options::default()).map_err(of_group)?;
    Ok(outcome.buffers.output().to_vec())
}
