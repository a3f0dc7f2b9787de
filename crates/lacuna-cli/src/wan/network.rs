//! `lacuna wan run --topology star|ring`: programs at many sites that long paths join. Those of the last command end
//! together: once one has failed, the others have some seconds left to say what they miss.

use super::PathArgs;
use super::conditions::{self, Change, describe};
use super::many::{Commands, Course, start_and_watch};
use super::programs::{Ended, Running, exit_code};
use super::report::{ProgramResult, WayCounts, ending, table};
use crate::failure::{Ending, Failure};
use crate::interrupt;
use crate::output::{Output, conclude};
use crate::units::show_time;
use lacuna_wan::{
    HostConfig, HostError, Member, Network, NetworkConfig, NetworkError, NetworkReport, Outcome,
    Topology, WayConfig,
};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

pub(super) fn run(
    topology: Topology,
    args: &PathArgs,
    hosts: Option<u8>,
    words: &[String],
    output: Output,
) -> Result<ExitCode, Failure> {
    let commands = Commands::new(words, hosts, NetworkConfig::HOSTS)?;
    if args.csv.is_some() || args.plot.is_some() {
        let name = topology.name();
        return Err(Failure::Usage(format!(
            "a {name} has no time line: leave --csv and --plot out"
        )));
    }
    let (ways, changes) = conditions::course(&args.conditions, &args.at)?;
    let host =
        HostConfig { mtu_bytes: args.mtu, offload: !args.no_offload, sysctls: args.sysctl.clone() };
    let config = NetworkConfig {
        topology,
        hosts: commands.hosts,
        ways: ways.clone(),
        host,
        seed: args.seed,
    };
    let network = Network::start(&config).map_err(failure)?;
    interrupt::install()?;
    let is_rootless = network.hosts().iter().any(Member::is_rootless);
    let path = introduce(topology, &ways);
    let who = if is_rootless { "; hosts in a user namespace" } else { "" };
    let (name, count) = (topology.name(), commands.hosts);
    output.note(&format!("a {name} of {count} hosts; {path}; seed {}{who}", args.seed));

    let mut programs: Vec<Running> = vec![];
    let apply = |ways| network.change(ways).map_err(failure);
    let changes: Vec<(Duration, [WayConfig; 2])> =
        changes.into_iter().map(|Change { at, ways }| (at, ways)).collect();
    let course = Course { changes, apply: &apply, end_together: true };
    let hosts = network.hosts();
    let watched = start_and_watch(hosts, &commands, &mut programs, args.ready, course, output);
    let (failed, mut ended) = match watched {
        Ok(failed) => (failed, None),
        Err(failure) => (None, Some(failure)),
    };
    if let Some(failure) = ended.take_if(|_| programs.len() < hosts.len()) {
        return Err(failure);
    }
    // From here on there is a report, whatever fails. All are asked before one is waited for.
    programs.iter().for_each(Running::terminate);
    let mut outcomes: Vec<Outcome> = vec![];
    for program in &mut programs {
        match program.end() {
            Ok(outcome) => outcomes.push(outcome),
            Err(failure) => return Err(ended.unwrap_or(failure)),
        }
    }
    let addresses: Vec<String> = hosts.iter().map(|host| host.ipv4().to_string()).collect();
    let report = match network.stop() {
        Ok(report) => report,
        Err(error) => return Err(ended.unwrap_or_else(|| failure(error))),
    };
    ended = ended.or_else(|| interrupt::requested().then_some(Failure::Interrupted));

    let programs: Vec<Ended> = programs
        .into_iter()
        .zip(outcomes)
        .map(|(program, outcome)| program.ended(outcome))
        .collect();
    let told = match output.json {
        true => {
            let ending = Ending::of(ended.as_ref());
            output.object(&NetworkResult {
                command: "wan",
                topology: name,
                seed: args.seed,
                mtu_bytes: args.mtu,
                rootless: is_rootless,
                ending,
                elapsed_s: report.total.elapsed.as_secs_f64(),
                emulator_cpu_s: report.total.cpu.as_secs_f64(),
                path,
                ways: way_results(&report),
                hosts: host_results(&addresses, &report, &programs),
            })
        }
        false => {
            output.note(&text(&report, &programs));
            Ok(())
        }
    };
    conclude(ended, told)?;
    // Those behind the one that failed were ended for it.
    let clients = &programs[commands.servers.len()..];
    let first = failed.map(|host| exit_code(programs[host].outcome.status));
    let codes = clients.iter().map(|client| exit_code(client.outcome.status));
    let code = first.or_else(|| codes.into_iter().find(|code| *code != 0));
    Ok(ExitCode::from(code.unwrap_or(0)))
}

fn failure(error: NetworkError) -> Failure {
    match error {
        NetworkError::Hosts { .. }
        | NetworkError::Way(_)
        | NetworkError::Host(HostError::Mtu { .. } | HostError::SysctlName { .. }) => {
            Failure::Usage(error.to_string())
        }
        error => Failure::Local(error.to_string()),
    }
}

/// The links before anything runs, in a line.
fn introduce(topology: Topology, ways: &[WayConfig; 2]) -> String {
    let [there, back] = ways.each_ref().map(describe);
    if there == back {
        return format!("each way of each link {there}");
    }
    match topology {
        Topology::Star => format!("to the switch {there}; to each host {back}"),
        Topology::Ring => format!("clockwise {there}; back {back}"),
    }
}

/// A result on standard output with `--json`.
#[derive(Debug, Serialize)]
struct NetworkResult<'a> {
    command: &'static str,
    topology: &'static str,
    seed: u64,
    mtu_bytes: u32,
    /// Whether the hosts are in a user namespace.
    rootless: bool,
    #[serde(flatten)]
    ending: Ending,
    elapsed_s: f64,
    /// Processor time of the emulator.
    emulator_cpu_s: f64,
    /// The links at the start, in words.
    path: String,
    ways: Vec<WayResult>,
    hosts: Vec<HostResult<'a>>,
}

#[derive(Debug, Serialize)]
struct WayResult {
    from: String,
    to: String,
    #[serde(flatten)]
    counts: WayCounts,
}

#[derive(Debug, Serialize)]
struct HostResult<'a> {
    /// Its number.
    host: usize,
    address: &'a str,
    /// Packets for no host of the network.
    unroutable_packets: u64,
    /// Frames lost before the links, because this machine was too slow.
    device_dropped_frames: u64,
    program: ProgramResult,
}

fn way_results(report: &NetworkReport) -> Vec<WayResult> {
    let elapsed_s = report.total.elapsed.as_secs_f64();
    let ways = report.total.ways.iter();
    ways.map(|way| WayResult {
        from: way.from.to_string(),
        to: way.to.to_string(),
        counts: WayCounts::new(&way.counters, elapsed_s),
    })
    .collect()
}

fn host_results<'a>(
    addresses: &'a [String],
    report: &NetworkReport,
    programs: &[Ended],
) -> Vec<HostResult<'a>> {
    let hosts = addresses.iter().zip(programs).enumerate();
    hosts
        .map(|(at, (address, program))| HostResult {
            host: at + 1,
            address,
            unroutable_packets: report.total.unroutable[at],
            device_dropped_frames: report.device_drops[at],
            program: ProgramResult::new(program),
        })
        .collect()
}

/// Results for people.
fn text(report: &NetworkReport, programs: &[Ended]) -> String {
    let elapsed_s = report.total.elapsed.as_secs_f64();
    let ways = report.total.ways.iter();
    let rows: Vec<_> =
        ways.map(|way| (format!("{} to {}", way.from, way.to), &way.counters)).collect();
    let mut lines = vec![table(&rows, elapsed_s)];
    for ((number, program), drops) in (1..).zip(programs).zip(&report.device_drops) {
        lines.push(ending(&format!("host {number}"), program));
        if *drops > 0 {
            lines.push(format!(
                "{drops} frames of host {number} were lost before the links: this machine is too \
                 slow for them"
            ));
        }
    }
    lines.push(format!(
        "emulator: {} of processor time in {}",
        show_time(report.total.cpu.as_secs_f64()),
        show_time(elapsed_s)
    ));
    lines.join("\n")
}
