//! `lacuna wan`: runs two programs in network namespaces that an emulated path joins, or many in those of an
//! emulated LAN, star or ring.

mod conditions;
mod lan;
mod many;
mod network;
mod programs;
mod report;
mod timeline;
mod values;

use crate::failure::{Ending, Failure};
use crate::output::{Output, conclude};
use crate::{interrupt, units, upfront};
use clap::{Args, Subcommand, ValueEnum};
use conditions::{Change, ChangeSpec, Conditions};
use lacuna_wan::{
    Direction, HostConfig, HostError, LanConfig, Outcome, Report, Side, Wan, WanConfig, WanError,
};
use programs::{Ended, Running, exit_code, wait_until_ready};
use report::RunResult;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  lacuna wan run --rate 1gbit --rtt 40ms --loss 1e-4 -- iperf3 -s -- iperf3 -c 10.77.0.1
  lacuna wan run --rate 1gbit --rtt 40ms --loss 1e-3 --burst 8 --plot wan.svg \\
      -- lacuna perf server --insecure -- lacuna perf client --insecure 10.77.0.1
  lacuna wan run --rate 1gbit,20mbit --delay 10ms,30ms -- SERVER -- CLIENT
                                     what differs by direction: TO_SERVER,TO_CLIENT
  lacuna wan run --rate 1gbit --rtt 40ms --at '5s loss=100%' --at '8s loss=0' \\
      -- SERVER -- CLIENT            dark from 5 s to 8 s
  lacuna wan shell --rtt 100ms -- iperf3 -s
                                     a shell in the client's host
  lacuna wan run --topology lan --hosts 4 --rate 1gbit --loss 1e-2 \\
      -- LISTENER -- LISTENER -- LISTENER -- SENDER
                                     a LAN: broadcasts of host 4 reach hosts 1 to 3,
                                     each of which loses by itself
  lacuna wan run --topology lan --hosts 9 -- SERVER -- CLIENT
                                     a server in host 1, clients in hosts 2 to 9
  lacuna wan run --topology star --hosts 4 --rate 1gbit --rtt 20ms --loss 5e-4 \\
      -- lacuna collective bench --insecure -b 16M -e 16M
                                     four sites, 40 ms from each to each
  lacuna wan run --topology ring --hosts 4 --rate 1gbit --rtt 25ms --background 30% \\
      -- python3 train.py            four ranks of PyTorch, others on their links";

const HOSTS: &str = "\
Hosts: the server's address is 10.77.0.1 (fd77::1), the client's 10.77.0.2
(fd77::2); nothing else can be reached. In the environment of both programs:
  LACUNA_WAN_HOST                    server or client: where it runs
  LACUNA_WAN_ADDR, LACUNA_WAN_PEER   its own address, the other host's
  LACUNA_WAN_SERVER, LACUNA_WAN_CLIENT
                                     the same by role
  ..._ADDR6, ..._PEER6, ..._SERVER6, ..._CLIENT6
                                     IPv6, where there is any
  LACUNA_WAN_DEVICE, LACUNA_WAN_MTU  the device, and its longest packet
  LACUNA_WAN_PEER_PID                a process of the other host: to run something
                                     there, nsenter -t $LACUNA_WAN_PEER_PID -n COMMAND

Without root the hosts live in a user namespace, and programs in them believe
to be root. Everything in the hosts ends with this command, however it ends.

Exit code: the client's (128 + N if signal N ended it); else 2 usage, 5 this
machine, 130 interrupted.";

const LAN: &str = "\
A LAN (--topology lan): hosts 1 to N have the addresses 10.77.0.1 to 10.77.0.N
(fd77::1 ..., in hexadecimal) and a switch between them: what is for one goes to
that one, what is for all (10.77.0.255, 255.255.255.255) or for a group goes to
all others. The path's options are for the way from the switch to each host, by
random numbers of its own: of a broadcast each host loses others; half of --rtt
is the way from any host to any other. ARP and neighbour discovery are packets
like others.
  The first command runs in host 1, the second in host 2, and the last in all
hosts that are left. The programs of the last command start when something
listens in each host before (--ready), and the run ends when they have all
ended. What they print goes to standard output, all else to standard error, each
line behind the host's number; with --quiet as it is.
  LACUNA_WAN_HOST, LACUNA_WAN_HOSTS  the host's number, and how many there are
  LACUNA_WAN_ADDR, LACUNA_WAN_SERVER its own address, that of host 1
  LACUNA_WAN_ADDRS, LACUNA_WAN_PEERS those of all hosts, of all others
  LACUNA_WAN_BROADCAST               the address of all
  LACUNA_WAN_DEVICE, LACUNA_WAN_MTU  as above
  LACUNA_WAN_PIDS                    a process of each host, in order
Exit code: the first that is not 0 of the last command's programs, in the order
of hosts; else as above.";

const NETWORK: &str = "\
A star or a ring (--topology star|ring): hosts 1 to N, with the addresses of a LAN,
are sites that long paths join. The path's options are for each link, each way of
which loses, queues and delays by itself:
  star   a link between each host and a switch in the middle; two values are
         TO_SWITCH,TO_HOST. From host to host it is two links: twice the --rtt,
         the losses of both
  ring   a link between each host and the next, and the last and the first; two
         values are CLOCKWISE,BACK. Packets for others than neighbours pass the
         links between, over the shorter way around
All packets are IP packets that are routed: there are no broadcasts and groups.
  Commands run as in a LAN: one alone runs in every host. Once one of the last
command's programs has failed, the others are ended, 5 s later if they have not
ended by themselves. In their environment is what a LAN has, without a broadcast
address. There and in a LAN also:
  RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
                                     as torchrun sets them: a rank in each host
  GLOO_SOCKET_IFNAME                 the device, for PyTorch
Exit code: that of the program that failed first; else as above.";

/// Run programs in two hosts on this machine, joined by an emulated long path,
/// or in many, joined by an emulated LAN, star or ring.
///
/// Each host is a network namespace. The path between them has a rate, a queue,
/// a delay, losses and more, each way by itself, for IP packets of any protocol.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct WanArgs {
    #[command(subcommand)]
    command: WanCommand,
}

#[derive(Debug, Subcommand)]
enum WanCommand {
    /// Start a server and a client, or the programs of a LAN, and tell what the path did
    #[command(
        override_usage = "lacuna wan run [OPTIONS] -- SERVER [ARGS] -- CLIENT [ARGS]\n       \
                          lacuna wan run --topology lan|star|ring [--hosts N] [OPTIONS] -- PROGRAM [ARGS] [-- PROGRAM [ARGS]]...",
        after_help = format!("{EXAMPLES}\n\n{HOSTS}\n\n{LAN}\n\n{NETWORK}\n\n{}", units::HELP)
    )]
    Run(RunArgs),
    /// Open a shell in the client's host
    #[command(
        override_usage = "lacuna wan shell [OPTIONS] [-- SERVER [ARGS]]",
        after_help = format!("{EXAMPLES}\n\n{HOSTS}\n\n{}", units::HELP)
    )]
    Shell(ShellArgs),
}

/// Options of both commands.
#[derive(Debug, Args)]
struct PathArgs {
    #[command(flatten)]
    conditions: Conditions,
    /// Change the path at a time after the client's start, like '10s rate=100mbit loss=1e-2'; may
    /// be given several times
    #[arg(long, value_parser = conditions::change, value_name = "CHANGE")]
    at: Vec<ChangeSpec>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Longest packet of the hosts, from the IP header on; below 1280 there is no IPv6
    #[arg(long, default_value = "1500", value_parser = units::count(HostConfig::MTU_BYTES), value_name = "BYTES")]
    mtu: u32,
    /// Every packet by itself, as without segmentation offload; ten times the cost
    #[arg(long)]
    no_offload: bool,
    /// Set this in both hosts, like net.ipv4.tcp_rmem='4096 131072 67108864'; may be given several
    /// times
    #[arg(long, value_parser = values::setting, value_name = "NAME=VALUE")]
    sysctl: Vec<(String, String)>,
    /// Interval of the time line
    #[arg(long, default_value = "50ms", value_parser = units::some_duration, value_name = "TIME")]
    interval: Duration,
    /// Write queue, loss and rate over time as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the same as a picture (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// How long the server may take until it listens, before the client is started regardless
    #[arg(long, default_value = "10s", value_parser = units::duration, value_name = "TIME")]
    ready: Duration,
}

/// How hosts are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Topology {
    /// Two hosts, by a path
    Path,
    /// Many hosts, by a switch
    Lan,
    /// Many sites, each by a long path to a switch in the middle
    Star,
    /// Many sites, each by a long path to the next
    Ring,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    path: PathArgs,
    /// How the hosts are joined
    #[arg(long, value_enum, default_value = "path")]
    topology: Topology,
    /// Hosts of a LAN, 2 to 100, or of a star or ring, 3 to 64; as many as there are commands if not given
    #[arg(long, value_parser = units::count(LanConfig::HOSTS), value_name = "N")]
    hosts: Option<u8>,
    /// The server's command line, --, and the client's; of many hosts the programs of hosts 1, 2, ...
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    words: Vec<String>,
}

#[derive(Debug, Args)]
struct ShellArgs {
    #[command(flatten)]
    path: PathArgs,
    /// The command line of a server to start in the other host
    #[arg(last = true, value_name = "PROGRAM")]
    server: Vec<String>,
}

pub(crate) fn run(args: &WanArgs, output: Output) -> Result<ExitCode, Failure> {
    match &args.command {
        WanCommand::Run(args) => run_topology(args, output),
        WanCommand::Shell(args) => {
            let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
            let server = (!args.server.is_empty()).then_some(&args.server[..]);
            run_programs(&args.path, server, &[shell], output)
        }
    }
}

fn run_topology(args: &RunArgs, output: Output) -> Result<ExitCode, Failure> {
    let network = |topology| network::run(topology, &args.path, args.hosts, &args.words, output);
    match args.topology {
        Topology::Lan => lan::run(&args.path, args.hosts, &args.words, output),
        Topology::Star => network(lacuna_wan::Topology::Star),
        Topology::Ring => network(lacuna_wan::Topology::Ring),
        Topology::Path => {
            if args.hosts.is_some_and(|hosts| hosts != 2) {
                let text = "a path joins two hosts: --hosts is for --topology lan, star and ring";
                return Err(Failure::Usage(text.to_owned()));
            }
            let (server, client) = split(&args.words)?;
            run_programs(&args.path, Some(server), client, output)
        }
    }
}

/// Splits the arguments after the first `--` into server and client.
fn split(words: &[String]) -> Result<(&[String], &[String]), Failure> {
    let parts: Vec<&[String]> = words.split(|word| word == "--").collect();
    match parts[..] {
        [server, client] if !server.is_empty() && !client.is_empty() => Ok((server, client)),
        [_, _] => Err(Failure::Usage("a program is missing: -- SERVER -- CLIENT".to_owned())),
        [_] => Err(Failure::Usage(
            "there is no client: give the server, --, and the client".to_owned(),
        )),
        _ => Err(Failure::Usage(
            "more than two programs: wrap a command line that has a -- of its own in sh -c '...'"
                .to_owned(),
        )),
    }
}

fn run_programs(
    args: &PathArgs,
    server: Option<&[String]>,
    client: &[String],
    output: Output,
) -> Result<ExitCode, Failure> {
    let (ways, course) = conditions::course(&args.conditions, &args.at)?;
    upfront::check(args.csv.as_ref())?;
    upfront::check(args.plot.as_ref())?;
    let hosts =
        HostConfig { mtu_bytes: args.mtu, offload: !args.no_offload, sysctls: args.sysctl.clone() };
    let config = WanConfig { ways: ways.clone(), hosts, seed: args.seed, interval: args.interval };
    let wan = Wan::start(&config).map_err(failure)?;
    interrupt::install()?;
    let introduction = report::introduce(&ways, wan.host(Side::Server), args.seed);
    output.note(&introduction);

    let mut server = match server {
        Some(words) => Some(Running::start(&wan, Side::Server, words, output)?),
        None => None,
    };
    if let Some(server) = &mut server {
        wait_until_ready(&wan, server, args.ready, output)?;
    }
    let mut client = Running::start(&wan, Side::Client, client, output)?;
    let (outcome, mut ended) = match watch(&wan, &mut client, course) {
        Ok(outcome) => (outcome, None),
        Err(failure) => (client.end()?, Some(failure)),
    };
    // From here on there is a report, whatever fails.
    let server_outcome = match server.as_mut().map(Running::end).transpose() {
        Ok(outcome) => outcome,
        Err(failure) => {
            ended.get_or_insert(failure);
            None
        }
    };
    let is_rootless = wan.host(Side::Server).is_rootless();
    let report = match wan.stop() {
        Ok(report) => report,
        Err(error) => return Err(ended.unwrap_or_else(|| failure(error))),
    };
    let ended = ended.or_else(|| interrupt::requested().then_some(Failure::Interrupted));

    let server = server.zip(server_outcome).map(|(server, outcome)| server.ended(outcome));
    let client = client.ended(outcome);
    let run = Run { ways: &ways, is_rootless, report: &report, server, client };
    let told = tell(args, &run, Ending::of(ended.as_ref()), output);
    let told = told.and(write_timeline(args, &introduction, &report));
    conclude(ended, told)?;
    Ok(ExitCode::from(exit_code(run.client.outcome.status)))
}

/// Waits for the client's end, and changes the path meanwhile.
fn watch(wan: &Wan, client: &mut Running, course: Vec<Change>) -> Result<Outcome, Failure> {
    let started = Instant::now();
    let mut course = course.into_iter().peekable();
    loop {
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
        let now = started.elapsed();
        if let Some(change) = course.next_if(|change| change.at <= now) {
            for (direction, way) in Direction::ALL.into_iter().zip(change.ways) {
                wan.change(direction, way).map_err(failure)?;
            }
            continue;
        }
        let next = course.peek().map_or(interrupt::POLL_INTERVAL, |change| change.at - now);
        if let Some(outcome) = client.wait(next.min(interrupt::POLL_INTERVAL))? {
            return Ok(outcome);
        }
    }
}

/// A finished run.
struct Run<'a> {
    ways: &'a [lacuna_wan::WayConfig; 2],
    is_rootless: bool,
    report: &'a Report,
    server: Option<Ended>,
    client: Ended,
}

fn write_timeline(args: &PathArgs, title: &str, report: &Report) -> Result<(), Failure> {
    if let Some(path) = &args.csv {
        fs::write(path, timeline::csv(&report.timeline))
            .map_err(|error| Failure::file("write", path, &error))?;
    }
    match &args.plot {
        Some(path) => timeline::plot(path, title, &report.timeline),
        None => Ok(()),
    }
}

fn tell(args: &PathArgs, run: &Run<'_>, ending: Ending, output: Output) -> Result<(), Failure> {
    let Run { ways, is_rootless, report, server, client } = run;
    let server = server.as_ref();
    if output.json {
        let result = RunResult::new(args, *is_rootless, ending, ways, report, server, client);
        return output.object(&result);
    }
    // Standard output belongs to the client.
    output.note(&report::text(report, server, client));
    Ok(())
}

fn failure(error: WanError) -> Failure {
    match error {
        WanError::Way(_)
        | WanError::ZeroInterval
        | WanError::Host(HostError::Mtu { .. } | HostError::SysctlName { .. }) => {
            Failure::Usage(error.to_string())
        }
        error => Failure::Local(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_client_are_what_the_dashes_separate() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let all = words("a -s -- b -c x");
        let (server, client) = split(&all).unwrap();
        assert_eq!((server.join(" "), client.join(" ")), ("a -s".to_owned(), "b -c x".to_owned()));
        for (text, part) in
            [("a", "no client"), ("a --", "missing"), ("-- b", "missing"), ("a -- b -- c", "sh -c")]
        {
            let error = split(&words(text)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
