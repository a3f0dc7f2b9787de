//! `lacuna wan run --topology lan`: programs in many hosts that a switch joins.

use super::PathArgs;
use super::conditions::{self, describe};
use super::many::{Commands, Course, start_and_watch};
use super::programs::{Ended, Running, exit_code};
use super::report::{ProgramResult, WayCounts, ending, table};
use crate::failure::{Ending, Failure};
use crate::interrupt;
use crate::output::{Output, conclude};
use crate::units::show_time;
use lacuna_wan::{
    HostConfig, HostError, Lan, LanConfig, LanError, LanReport, Member, Outcome, PortCounters,
};
use serde::Serialize;
use std::process::ExitCode;

pub(super) fn run(
    args: &PathArgs,
    hosts: Option<u8>,
    words: &[String],
    output: Output,
) -> Result<ExitCode, Failure> {
    let commands = Commands::new(words, hosts, LanConfig::HOSTS)?;
    if args.csv.is_some() || args.plot.is_some() {
        return Err(Failure::Usage(
            "a LAN has no time line: leave --csv and --plot out".to_owned(),
        ));
    }
    let (way, changes) = conditions::lan_course(&args.conditions, &args.at)?;
    let host =
        HostConfig { mtu_bytes: args.mtu, offload: !args.no_offload, sysctls: args.sysctl.clone() };
    let config = LanConfig { hosts: commands.hosts, way: way.clone(), host, seed: args.seed };
    let lan = Lan::start(&config).map_err(failure)?;
    interrupt::install()?;
    let is_rootless = lan.hosts().iter().any(Member::is_rootless);
    let path = describe(&way);
    let who = if is_rootless { "; hosts in a user namespace" } else { "" };
    let count = commands.hosts;
    output.note(&format!("a LAN of {count} hosts; to each {path}; seed {}{who}", args.seed));

    let mut programs: Vec<Running> = vec![];
    let apply = |way| lan.change(way).map_err(failure);
    let course = Course { changes, apply: &apply, end_together: false };
    let watched =
        start_and_watch(lan.hosts(), &commands, &mut programs, args.ready, course, output);
    let mut ended = watched.err();
    if let Some(failure) = ended.take_if(|_| programs.len() < lan.hosts().len()) {
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
    let addresses: Vec<String> = lan.hosts().iter().map(|host| host.ipv4().to_string()).collect();
    let report = match lan.stop() {
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
            let results = addresses.iter().zip(&programs).enumerate();
            let hosts = results
                .map(|(at, (address, program))| HostResult {
                    host: at + 1,
                    address,
                    sent: SentResult::new(&report.total.hosts[at]),
                    device_dropped_frames: report.device_drops[at],
                    to_host: WayCounts::new(
                        &report.total.hosts[at].to_host,
                        report.total.elapsed.as_secs_f64(),
                    ),
                    program: ProgramResult::new(program),
                })
                .collect();
            output.object(&LanResult {
                command: "wan",
                topology: "lan",
                seed: args.seed,
                mtu_bytes: args.mtu,
                rootless: is_rootless,
                ending,
                elapsed_s: report.total.elapsed.as_secs_f64(),
                emulator_cpu_s: report.total.cpu.as_secs_f64(),
                path,
                hosts,
            })
        }
        false => {
            output.note(&text(&report, &programs));
            Ok(())
        }
    };
    conclude(ended, told)?;
    let clients = &programs[commands.servers.len()..];
    let codes = clients.iter().map(|client| exit_code(client.outcome.status));
    Ok(ExitCode::from(codes.into_iter().find(|code| *code != 0).unwrap_or(0)))
}

fn failure(error: LanError) -> Failure {
    match error {
        LanError::Hosts { .. }
        | LanError::Way(_)
        | LanError::Host(HostError::Mtu { .. } | HostError::SysctlName { .. }) => {
            Failure::Usage(error.to_string())
        }
        error => Failure::Local(error.to_string()),
    }
}

/// A result on standard output with `--json`.
#[derive(Debug, Serialize)]
struct LanResult<'a> {
    command: &'static str,
    topology: &'static str,
    seed: u64,
    mtu_bytes: u32,
    /// Whether the hosts are in a user namespace.
    rootless: bool,
    #[serde(flatten)]
    ending: Ending,
    elapsed_s: f64,
    /// Processor time of the switch.
    emulator_cpu_s: f64,
    /// The way to each host at the start, in words.
    path: String,
    hosts: Vec<HostResult<'a>>,
}

#[derive(Debug, Serialize)]
struct HostResult<'a> {
    /// Its number.
    host: usize,
    address: &'a str,
    #[serde(flatten)]
    sent: SentResult,
    /// Frames lost before the switch, because this machine was too slow.
    device_dropped_frames: u64,
    to_host: WayCounts,
    program: ProgramResult,
}

#[derive(Debug, Serialize)]
struct SentResult {
    sent_packets: u64,
    sent_bytes: u64,
    group_packets: u64,
    flooded_packets: u64,
    malformed_frames: u64,
}

impl SentResult {
    fn new(counters: &PortCounters) -> Self {
        Self {
            sent_packets: counters.sent_packets,
            sent_bytes: counters.sent_bytes,
            group_packets: counters.group_packets,
            flooded_packets: counters.flooded_packets,
            malformed_frames: counters.malformed_frames,
        }
    }
}

/// Results for people.
fn text(report: &LanReport, programs: &[Ended]) -> String {
    let elapsed_s = report.total.elapsed.as_secs_f64();
    let hosts = &report.total.hosts;
    let ways = (1..).zip(hosts).map(|(number, host)| (format!("to host {number}"), &host.to_host));
    let mut lines = vec![table(&ways.collect::<Vec<_>>(), elapsed_s)];
    for (at, (counters, program)) in hosts.iter().zip(programs).enumerate() {
        let number = at + 1;
        lines.push(format!(
            "{}; sent {} packets, {} of them to groups",
            ending(&format!("host {number}"), program),
            counters.sent_packets,
            counters.group_packets
        ));
        let drops = report.device_drops[at];
        if drops > 0 {
            lines.push(format!(
                "{drops} frames of host {number} were lost before the switch: this machine is too slow \
                 for it"
            ));
        }
    }
    let cpu_s = report.total.cpu.as_secs_f64();
    lines.push(format!(
        "switch: {} of processor time in {}",
        show_time(cpu_s),
        show_time(elapsed_s)
    ));
    lines.join("\n")
}
