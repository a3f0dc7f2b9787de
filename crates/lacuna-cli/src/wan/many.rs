//! Programs in many hosts, on a LAN or at sites that links join.
//!
//! The first command runs in host 1, the second in host 2, and the last in all hosts that are left: those before it
//! are servers, which are to listen before the programs of the last command start, and which are ended when these
//! have all ended.

use super::programs::{Running, Said, Stream, show_status, unstarted};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use lacuna_wan::Member;
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often servers are checked until they listen.
const LISTEN_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// What ranks have to end by themselves once one has failed, and to say why.
const END_FOR: Duration = Duration::from_secs(5);

/// What happens while the programs of the last command run.
pub(super) struct Course<'a, C> {
    /// Changes of the path, by the time since they have started.
    pub(super) changes: Vec<(Duration, C)>,
    /// Carries a change out.
    pub(super) apply: &'a dyn Fn(C) -> Result<(), Failure>,
    /// Whether all end when one of them has failed: ranks wait for each other.
    pub(super) end_together: bool,
}

/// What runs where.
#[derive(Debug)]
pub(super) struct Commands<'a> {
    /// Of the first hosts, in order.
    pub(super) servers: Vec<&'a [String]>,
    /// Of all others.
    pub(super) last: &'a [String],
    pub(super) hosts: u8,
}

impl<'a> Commands<'a> {
    pub(super) fn new(
        words: &'a [String],
        hosts: Option<u8>,
        range: RangeInclusive<u8>,
    ) -> Result<Self, Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        let mut servers: Vec<&[String]> = words.split(|word| word == "--").collect();
        if servers.iter().any(|words| words.is_empty()) {
            return usage("a program is missing: -- PROGRAM -- PROGRAM ...".to_owned());
        }
        let count = servers.len();
        let (least, most) = (range.start(), range.end());
        let hosts = match (hosts, u8::try_from(count)) {
            (Some(hosts), _) if usize::from(hosts) < count => {
                return usage(format!(
                    "{count} programs for {hosts} hosts: wrap a command line that has a -- of its \
                     own in sh -c '...'"
                ));
            }
            (Some(hosts), _) if range.contains(&hosts) => hosts,
            (Some(hosts), _) => {
                return usage(format!("{hosts} hosts are out of range: use {least} to {most}"));
            }
            (None, Ok(1)) => return usage("one program alone needs --hosts".to_owned()),
            (None, Ok(hosts)) if range.contains(&hosts) => hosts,
            (None, _) => {
                return usage(format!("{count} hosts are out of range: use {least} to {most}"));
            }
        };
        let Some(last) = servers.pop() else { return usage("there is no program".to_owned()) };
        Ok(Self { servers, last, hosts })
    }
}

/// Starts the servers and, once they listen, the clients; waits for the clients, and changes the path meanwhile.
/// Returns the host whose program failed first, if the others are ended for that.
pub(super) fn start_and_watch<C>(
    hosts: &[Member],
    commands: &Commands<'_>,
    programs: &mut Vec<Running>,
    ready: Duration,
    course: Course<'_, C>,
    output: Output,
) -> Result<Option<usize>, Failure> {
    let pids: Vec<String> = hosts.iter().map(|host| host.pid().to_string()).collect();
    let pids = pids.join(" ");
    let (servers, clients) = hosts.split_at(commands.servers.len());
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
    let failed = watch(&mut programs[servers.len()..], course)?;
    Ok(failed.map(|client| servers.len() + client))
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

/// Waits for the clients; the first one that failed, if the others have had their time to end by then.
fn watch<C>(clients: &mut [Running], course: Course<'_, C>) -> Result<Option<usize>, Failure> {
    let Course { changes, apply, end_together } = course;
    let started = Instant::now();
    let mut changes = changes.into_iter().peekable();
    let mut failed: Option<(usize, Instant)> = None;
    let mut first = 0;
    while let Some(client) = clients.get_mut(first) {
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
        let now = started.elapsed();
        if let Some((_, change)) = changes.next_if(|(at, _)| *at <= now) {
            apply(change)?;
            continue;
        }
        let next = changes.peek().map_or(interrupt::POLL_INTERVAL, |(at, _)| *at - now);
        // Those behind it may have ended before.
        if client.wait(next.min(interrupt::POLL_INTERVAL))?.is_some() {
            first += 1;
        }
        if !end_together {
            continue;
        }
        for (at, client) in clients.iter_mut().enumerate() {
            let outcome = client.wait(Duration::ZERO)?;
            if outcome.is_some_and(|outcome| !outcome.status.success()) {
                failed.get_or_insert((at, Instant::now()));
            }
        }
        if let Some((at, _)) = failed.filter(|(_, since)| since.elapsed() > END_FOR) {
            return Ok(Some(at));
        }
    }
    Ok(failed.map(|(at, _)| at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: RangeInclusive<u8> = 2..=100;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_last_command_runs_in_all_hosts_that_are_left() {
        let line = words("a -s -- b -c x -- c");
        for (hosts, expected) in [(None, 3), (Some(3), 3), (Some(9), 9)] {
            let commands = Commands::new(&line, hosts, HOSTS).unwrap();
            assert_eq!((commands.servers.len(), commands.hosts), (2, expected));
            assert_eq!(
                (commands.servers[1].join(" ").as_str(), commands.last),
                ("b -c x", &line[7..])
            );
        }
        let line = words("a");
        let commands = Commands::new(&line, Some(4), HOSTS).unwrap();
        assert!(commands.servers.is_empty() && commands.last == ["a"]);
    }

    #[test]
    fn commands_that_fit_no_hosts_are_refused() {
        let many = vec!["a"; 101].join(" -- ");
        for (text, hosts, part) in [
            ("a", None, "needs --hosts"),
            ("a -- b -- c", Some(2), "3 programs for 2 hosts"),
            ("a --", None, "missing"),
            ("a", Some(1), "out of range"),
            (&many, None, "out of range"),
        ] {
            let error = Commands::new(&words(text), hosts, HOSTS).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
