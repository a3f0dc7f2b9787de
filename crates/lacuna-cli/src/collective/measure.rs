//! One rank of a measurement. All measure the same; rank 0 prints. What the ranks have found is gathered by the same
//! operations that are measured, over a second group that loses nothing.

use super::data::{Errors, Plan};
use super::losses::{Losses, What as Logged};
use super::report::{Row, Times, bus_factor, header};
use super::{BenchArgs, Limit, What};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use lacuna::Wrap;
use lacuna::datapath::Impair;
use lacuna_collective::rendezvous::Meeting;
use lacuna_collective::{
    Budget, Buffers, Collective, Element, Group, GroupConfig, Op, OperationError, Options, Outcome,
    Reason, Rule, Transport, Vectors,
};
use std::ops::Range;
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
    differs: u64,
    interrupted: u64,
}

pub(super) fn run(args: &BenchArgs, output: Output) -> Result<(), Failure> {
    let meeting = Meeting::from_environment().map_err(|error| {
        Failure::Usage(format!("{error}; or give --ranks N to start N processes here"))
    })?;
    let meeting = Meeting { timeout: args.timeout, ..meeting };
    let mut losses = Losses::open(args.loss_log.as_deref(), args.replay.as_deref(), meeting.rank)?;
    let wrap = wrap(args, meeting.rank)?;
    let config = GroupConfig {
        bind: args.bind(),
        announce: args.announce,
        mode: args.mode,
        transport: args.qp,
        controller: args.cc,
        rate_bits_per_s: args.pace,
        rule: match args.budget {
            Some(Limit::Adaptive(rule)) => rule,
            _ => Rule::default(),
        },
        security: args.trust.security(output)?,
        wrap,
        ..GroupConfig::new(meeting)
    };
    let group = Group::form(&config).map_err(|error| Failure::Network(error.to_string()))?;
    // What was found goes by a group of its own, so that a bounded one loses none of it.
    let meeting =
        Meeting { job: format!("{}.found", config.meeting.job), ..config.meeting.clone() };
    let told = GroupConfig {
        bind: args.bind(),
        announce: args.announce,
        security: config.security.clone(),
        ..GroupConfig::new(meeting)
    };
    let told = Group::form(&told).map_err(|error| Failure::Network(error.to_string()))?;
    let is_first = group.rank() == 0;
    if is_first {
        output.note(&format!("{} ranks, mode {}", group.ranks(), args.mode));
        header(output, args.budget.is_some())?;
    }
    let mut bytes = args.begin;
    while bytes <= args.end {
        let (row, is_over) = size(args, (&group, &told), &mut losses, bytes)?;
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
    if is_first && let Some(operations) = losses.replayed()? {
        output.note(&format!(
            "{operations} operations lost what those of the log did, on every rank, with the same results"
        ));
    }
    Ok(())
}

fn wrap(args: &BenchArgs, rank: usize) -> Result<Option<Wrap>, Failure> {
    let Some(impairment) = args.impairment()? else { return Ok(None) };
    Ok(Some(Arc::new(move |channel, inner| {
        let seed = (rank as u64 + 1) << 32 | u64::from(channel);
        Box::new(Impair::new(inner, impairment.clone(), seed))
    })))
}

pub(super) fn of_group(error: OperationError) -> Failure {
    match error {
        OperationError::Run(error) => Failure::Network(error.to_string()),
        error => Failure::Usage(error.to_string()),
    }
}

/// Measures one size; whether Ctrl-C came at any rank.
fn size(
    args: &BenchArgs,
    (group, told): (&Group, &Group),
    losses: &mut Losses,
    bytes: u64,
) -> Result<(Option<Row>, bool), Failure> {
    let (rank, ranks) = (group.rank(), group.ranks());
    let element = args.element;
    let plan = Plan::new(args.op, bytes, element.size_bytes(), rank, ranks);
    let types = (element, args.reduce);
    let mut options = Options {
        algorithm: args.algorithm.clone(),
        budget: match args.budget {
            None => Budget::Unlimited,
            Some(Limit::Fixed(time)) => Budget::Fixed(time),
            Some(Limit::Adaptive(_)) => Budget::Adaptive,
        },
        encode: args.encode.clone(),
        ..Options::default()
    };
    let mut buffers: Box<dyn Buffers> = Box::new(Vectors {
        input: plan.fill(element, args.reduce, rank),
        output: vec![0; plan.output * element.size_bytes()],
    });
    let size_bytes = (plan.elements() * element.size_bytes()) as u64;
    let reduce = match plan.collective.reduces() {
        true => args.reduce.to_string(),
        false => "none".to_owned(),
    };
    let mut found = Found::default();
    let mut errors = Errors::default();
    let mut times_us = Vec::new();
    let mut algorithm = String::new();
    let mut budget = None;
    for round in 0..args.warmup + args.iterations {
        losses.prepare(&mut options)?;
        let begin = Instant::now();
        let outcome = group.run(&plan.collective, types, buffers, &options).map_err(of_group)?;
        let us = begin.elapsed().as_secs_f64() * 1e6;
        let report = &outcome.report;
        algorithm.clone_from(&outcome.algorithm);
        budget = outcome.budget;
        times_us.push(us);
        if round >= args.warmup {
            found.bytes += report.bytes();
            found.lost_bytes += report.lost_bytes();
            found.hops += report.hops.len() as u64;
            let cut_off = report.hops.iter().filter(|hop| hop.reason == Reason::Deadline);
            found.cut_off += cut_off.count() as u64;
            found.incomplete += told_ranges(&outcome).map(|range| range.len() as u64).sum::<u64>();
            found.elements += plan.output as u64;
        }
        losses.on_done(
            &Logged {
                op: name(args.op).to_owned(),
                size_bytes,
                element: element.to_string(),
                reduce: reduce.clone(),
                algorithm: algorithm.clone(),
                encode: args.encode.as_ref().map(ToString::to_string),
                ranks,
            },
            &outcome,
        )?;
        let is_last = round + 1 == args.warmup + args.iterations;
        if !args.no_check && (is_last || args.budget.is_some()) {
            let (output, all) = (outcome.buffers.output(), (rank, ranks));
            let ranges: Vec<Range<usize>> = told_ranges(&outcome).collect();
            found.wrong += plan.wrong(types, all, output, &ranges, args.encode.is_some());
            if round >= args.warmup
                && let Some(of_this) = plan.errors(types, all, output)
            {
                errors.square += of_this.square;
                errors.of += of_this.of;
                errors.worst = errors.worst.max(of_this.worst);
            }
        }
        // The same memory again. To copy it would keep the others, who have begun, waiting for this rank.
        buffers = outcome.buffers;
        if args.budget.is_some() {
            // Ranks of a bounded operation are apart by what they lacked.
            told.barrier().map_err(of_group)?;
        }
    }
    losses.write(told)?;
    found.differs = u64::from(losses.replayed().is_err());
    found.interrupted = u64::from(interrupt::requested());
    let found = sum(told, found)?;
    // The rank that differs says how; the others end with it.
    losses.replayed()?;
    if found.differs > 0 {
        return Err(Failure::Verification(format!(
            "{} of {ranks} ranks did not repeat the log",
            found.differs
        )));
    }
    let errors = worst(told, errors)?;
    let mut times_us = slowest(told, times_us)?;
    let first_us = times_us[0];
    let times = Times::of(times_us.split_off(args.warmup as usize));
    let algbw = size_bytes as f64 / times.mean / 1e3;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let row = Row {
        op: name(args.op),
        size_bytes,
        count: plan.elements() as u64,
        element: element.to_string(),
        reduce,
        algorithm,
        ranks,
        qp: match args.qp {
            Transport::Sdr => "sdr".to_owned(),
            Transport::Rc(repair) => format!("rc:{}", repair.name()),
        },
        mode: args.mode.to_string(),
        encode: args.encode.as_ref().map(ToString::to_string),
        iterations: args.iterations,
        first_us,
        time_us: times,
        algbw_gbyte_per_s: algbw,
        busbw_gbyte_per_s: algbw * bus_factor(args.op, ranks),
        lost_fraction: share(found.lost_bytes, found.bytes),
        cut_off_fraction: share(found.cut_off, found.hops),
        incomplete_fraction: share(found.incomplete, found.elements),
        relative_mse: errors.map(|errors| errors.square / errors.of),
        relative_mse_worst_block: errors.map(|errors| errors.worst),
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

/// Elements of the result that are told to lack something.
fn told_ranges(outcome: &Outcome) -> impl Iterator<Item = Range<usize>> + '_ {
    let decoded = outcome.decoded.as_ref();
    let raw = decoded.is_none().then_some(&outcome.report).into_iter();
    let raw = raw
        .flat_map(|report| report.missing.iter().map(|(range, _)| range).chain(&report.uncertain));
    let blocks = decoded.into_iter().flat_map(|decoded| &decoded.incomplete);
    raw.chain(blocks.map(|(range, _)| range)).cloned()
}

fn sum(group: &Group, found: Found) -> Result<Found, Failure> {
    let Found { bytes, lost_bytes, hops, cut_off, elements, incomplete, wrong, .. } = found;
    let Found { differs, interrupted, .. } = found;
    let own = [bytes, lost_bytes, hops, cut_off, elements, incomplete, wrong, differs, interrupted];
    let input: Vec<u8> = own.iter().flat_map(|value| value.to_le_bytes()).collect();
    let all = all_reduce(group, (Element::U64, Op::Sum), input)?;
    let all: Vec<u64> = all.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let [bytes, lost_bytes, hops, cut_off, elements, incomplete, wrong, differs, interrupted] =
        all[..]
    else {
        return Err(Failure::Network("the ranks' counts do not add up".to_owned()));
    };
    Ok(Found {
        bytes,
        lost_bytes,
        hops,
        cut_off,
        elements,
        incomplete,
        wrong,
        differs,
        interrupted,
    })
}

/// The errors of all ranks, if any were looked for.
fn worst(group: &Group, errors: Errors) -> Result<Option<Errors>, Failure> {
    let of_all = |op, values: &[f64]| -> Result<Vec<f64>, Failure> {
        let input = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = all_reduce(group, (Element::F64, op), input)?;
        Ok(all.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
    };
    let sums = of_all(Op::Sum, &[errors.square, errors.of])?;
    let worst = of_all(Op::Max, &[errors.worst])?;
    Ok((sums[1] > 0.0).then_some(Errors { square: sums[0], of: sums[1], worst: worst[0] }))
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
