//! `lacuna wan run --topology lan`: programs in many hosts that a switch joins.
//!
//! The first command runs in host 1, the second in host 2, and the last in all hosts that are left: those before it
//! are servers, which are to listen before the programs of the last command start, and which are ended when these
//! have all ended.

use super::PathArgs;
use super::conditions::{self, describe};
use super::programs::{Ended, Running, Said, Stream, exit_code, show_status, unstarted};
use super::report::{ProgramResult, WayCounts, ending, table};
use crate::failure::{Ending, Failure};
use crate::interrupt;
use crate::output::{Output, conclude};
use crate::units::show_time;
use lacuna_wan::{
    HostConfig, HostError, Lan, LanConfig, LanError, LanReport, Member, Outcome, PortCounters,
    WayConfig,
};
use serde::Serialize;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How often servers are checked until they listen.
const LISTEN_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What runs where.
#[derive(Debug)]
struct Commands<'a> {
    /// Of the first hosts, in order.
    servers: Vec<&'a [String]>,
    /// Of all others.
    last: &'a [String],
    hosts: u8,
}

impl<'a> Commands<'a> {
    fn new(words: &'a [String], hosts: Option<u8>) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        let mut servers: Vec<&[String]> = words.split(|word| word == "--").collect();
        if servers.iter().any(|words| words.is_empty()) {
            return usage("a program is missing: -- PROGRAM -- PROGRAM ...".to_owned());
        }
        let count = servers.len();
        let (least, most) = (LanConfig::HOSTS.start(), LanConfig::HOSTS.end());
        let hosts = match (hosts, u8::try_from(count)) {
            (Some(hosts), _) if usize::from(hosts) < count => {
                return usage(format!(
                    "{count} programs for {hosts} hosts: wrap a command line that has a -- of its \
                     own in sh -c '...'"
                ));
            }
            (Some(hosts), _) => hosts,
            (None, Ok(1)) => return usage("one program alone needs --hosts".to_owned()),
            (None, Ok(hosts)) if LanConfig::HOSTS.contains(&hosts) => hosts,
            (None, _) => {
                return usage(format!("{count} hosts are out of range: use {least} to {most}"));
            }
        };
        let Some(last) = servers.pop() else { return usage("there is no program".to_owned()) };
        Ok(Self { servers, last, hosts })
    }
}

pub(super) fn run(
    args: &PathArgs,
    hosts: Option<u8>,
    words: &[String],
    output: Output,
) -> Result<ExitCode, Failure> {
    let commands = Commands::new(words, hosts)?;
    if args.csv.is_some() || args.plot.is_some() {
        return Err(Failure::Usage(
            "a LAN has no time line: leave --csv and --plot out".to_owned(),
        ));
    }
    let (way, course) = conditions::lan_course(&args.conditions, &args.at)?;
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
    let watched = start_and_watch(&lan, &commands, &mut programs, args.ready, course, output);
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

/// Starts the servers and, once they listen, the clients; waits for the clients, and changes the LAN meanwhile.
fn start_and_watch(
    lan: &Lan,
    commands: &Commands<'_>,
    programs: &mut Vec<Running>,
    ready: Duration,
    course: Vec<(Duration, WayConfig)>,
    output: Output,
) -> Result<(), Failure> {
    let pids: Vec<String> = lan.hosts().iter().map(|host| host.pid().to_string()).collect();
    let pids = pids.join(" ");
    let (servers, clients) = lan.hosts().split_at(commands.servers.len());
    for (host, words) in servers.iter().zip(&commands.servers) {
        programs.push(start(host, words, &pids, Stream::Error, output)?);
    }
    wait_until_ready(servers, programs, ready, output)?;
    for host in clients {
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
        programs.push(start(host, commands.last, &pids, Stream::Output, output)?);
    }
    watch(lan, &mut programs[servers.len()..], course)
}

/// Starts a program in a host.
fn start(
    host: &Member,
    words: &[String],
    pids: &str,
    stream: Stream,
    output: Output,
) -> Result<Running, Failure> {
    let who = format!("program of host {}", host.number());
    let [name, arguments @ ..] = words else {
        return Err(Failure::Usage("a program without a name".to_owned()));
    };
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null());
    host.place(&mut command).map_err(|error| unstarted(&who, name, &error))?;
    command.env("LACUNA_WAN_PIDS", pids);
    let prefix = format!("host {}: ", host.number());
    let said = match (output.json, output.quiet) {
        (true, quiet) => Said::Kept((!quiet).then_some(prefix)),
        (false, true) => Said::Through(stream),
        (false, false) => Said::Behind(prefix, stream),
    };
    Running::spawn(command, words, &who, said)
}

/// Waits until something listens in each of these hosts, at most `timeout`. A program that has done its work by
/// then need not listen.
fn wait_until_ready(
    hosts: &[Member],
    programs: &mut [Running],
    timeout: Duration,
    output: Output,
) -> Result<(), Failure> {
    let give_up = Instant::now() + timeout;
    for (host, program) in hosts.iter().zip(programs) {
        while !host.is_listening() {
            if interrupt::requested() {
                return Err(Failure::Interrupted);
            }
            match program.wait(LISTEN_POLL_INTERVAL)? {
                Some(outcome) if outcome.status.success() => break,
                Some(outcome) => {
                    return Err(Failure::Local(format!(
                        "the program {} of host {} ended before it listened ({})",
                        program.name(),
                        host.number(),
                        show_status(outcome.status)
                    )));
                }
                None => {}
            }
            if Instant::now() >= give_up {
                output.note(&format!(
                    "nothing listens in host {} yet; starting the others (--ready)",
                    host.number()
                ));
                break;
            }
        }
    }
    Ok(())
}

fn watch(
    lan: &Lan,
    clients: &mut [Running],
    course: Vec<(Duration, WayConfig)>,
) -> Result<(), Failure> {
    let started = Instant::now();
    let mut course = course.into_iter().peekable();
    let mut first = 0;
    while let Some(client) = clients.get_mut(first) {
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
        let now = started.elapsed();
        if let Some((_, way)) = course.next_if(|(at, _)| *at <= now) {
            lan.change(way).map_err(failure)?;
            continue;
        }
        let next = course.peek().map_or(interrupt::POLL_INTERVAL, |(at, _)| *at - now);
        // Those behind it may have ended before.
        if client.wait(next.min(interrupt::POLL_INTERVAL))?.is_some() {
            first += 1;
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_last_command_runs_in_all_hosts_that_are_left() {
        let line = words("a -s -- b -c x -- c");
        for (hosts, expected) in [(None, 3), (Some(3), 3), (Some(9), 9)] {
            let commands = Commands::new(&line, hosts).unwrap();
            assert_eq!((commands.servers.len(), commands.hosts), (2, expected));
            assert_eq!(
                (commands.servers[1].join(" ").as_str(), commands.last),
                ("b -c x", &line[7..])
            );
        }
        let line = words("a");
        let commands = Commands::new(&line, Some(4)).unwrap();
        assert!(commands.servers.is_empty() && commands.last == ["a"]);
    }

    #[test]
    fn commands_that_fit_no_hosts_are_refused() {
        let many = vec!["a"; 101].join(" -- ");
        for (text, hosts, part) in [
            ("a", None, "needs --hosts"),
            ("a -- b -- c", Some(2), "3 programs for 2 hosts"),
            ("a --", None, "missing"),
            (&many, None, "out of range"),
        ] {
            let error = Commands::new(&words(text), hosts).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
