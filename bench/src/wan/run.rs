//! One run: a new path, servers and clients of all flows in its hosts, and what came of it.

use super::cell::Cell;
use super::contestant::Contestant;
use super::end::{Identity, Line, Order, Program, Side, Task, now_ns};
use super::meddle;
use super::neighbours::{Neighbours, Pulse};
use super::path;
use super::process::Process;
use super::sample::{Found, Sample};
use crate::pin::{self, process_time};
use anyhow::{Result, bail, ensure};
use lacuna_wan::{Host, Side as HostSide, Wan};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// The first flow's port; each has ten.
const PORT: u16 = 7000;
/// How long a server may take until it listens.
const READY: Duration = Duration::from_secs(10);
/// How long a bulk transfer may take to connect, besides its seconds.
const CONNECTED: Duration = Duration::from_secs(20);
/// A tunnel says nothing when it is there.
const TUNNEL: Duration = Duration::from_millis(500);
/// How often the race looks.
const LOOK: Duration = Duration::from_millis(5);
/// How much later a server may be gone than its client, which hears of the end at once: its memory
/// is given back first.
const FAREWELL: Duration = Duration::from_secs(2);

/// What all runs share.
pub(crate) struct Place {
    pub(crate) identity: Identity,
    /// How long the messages of a run may take.
    pub(crate) budget: Duration,
}

/// Both ends of a flow, and its tunnel's.
struct Flow {
    server: Process,
    client: Process,
    tunnel: Vec<Process>,
    /// Whether its processor time can be known.
    is_metered: bool,
}

pub(crate) fn run(
    cell: &Cell,
    contestants: &[&Contestant],
    seed: u64,
    place: &Place,
) -> Result<Sample> {
    let mut sysctls: Vec<_> = contestants.iter().flat_map(|one| one.sysctls.clone()).collect();
    sysctls.sort();
    sysctls.dedup();
    let wan = path::start(cell, &sysctls, seed)?;
    let neighbours = Neighbours::watch(pin::allowed()?);
    let own_before_s = process_time().as_secs_f64();
    let mut servers = Vec::new();
    for (index, contestant) in contestants.iter().enumerate() {
        servers.push(start_server(&wan, cell, contestant, index, place)?);
    }
    let arrived = vec![Vec::new(); contestants.len()];
    let mut found = Found { began_ns: now_ns(), arrived, ..Found::default() };
    let mut flows = Vec::new();
    for (index, (contestant, (server, tunnel))) in contestants.iter().zip(servers).enumerate() {
        let command = end_command(cell, contestant, index, Side::Client, place)?;
        let client = Process::start(wan.host(HostSide::Client), command)?;
        let is_metered = !matches!(contestant.program, Program::Piped { .. });
        flows.push(Flow { server, client, tunnel, is_metered });
    }
    let watched = watch(&wan, cell, &mut flows, &mut found, place);
    found.ended_ns = now_ns();
    let mut used_s = 0.0;
    for flow in &mut flows {
        for process in [&mut flow.client, &mut flow.server].into_iter().chain(&mut flow.tunnel) {
            let outcome = process.end()?;
            used_s += (outcome.user + outcome.system).as_secs_f64();
        }
        found.messages.extend(flow.client.lines.try_iter().filter_map(as_message));
    }
    found.cpu_s = flows.iter().all(|flow| flow.is_metered).then_some(used_s);
    let own_s = process_time().as_secs_f64() - own_before_s;
    found.others_cores = neighbours.cores(used_s + own_s);
    found.core_s = neighbours.core_s();
    let report = wan.stop()?;
    let is_nothing = match cell.task {
        Task::Bulk { .. } => found.arrived.iter().any(Vec::is_empty),
        _ => found.messages.is_empty() && !found.is_cut,
    };
    if is_nothing || watched.is_err() {
        let complaints = flows.into_iter().flat_map(|flow| [flow.client, flow.server]);
        let complaints: Vec<_> = complaints.map(Process::complaint).collect();
        watched.map_err(|error| error.context(complaints.join("; ")))?;
        bail!("nothing arrived: {}", complaints.join("; "));
    }
    let mut sample = Sample::new(cell, &found, &report);
    if sample.missing > 0 {
        let complaints: Vec<_> = flows.into_iter().map(|flow| flow.client.complaint()).collect();
        sample.complaint = complaints.join("; ");
    }
    Ok(sample)
}

/// Waits until the run is over, and changes the path meanwhile.
fn watch(
    wan: &Wan,
    cell: &Cell,
    flows: &mut [Flow],
    found: &mut Found,
    place: &Place,
) -> Result<()> {
    let began = Instant::now();
    let mut pulse = Pulse::start(now_ns());
    let is_bulk = matches!(cell.task, Task::Bulk { .. });
    // They end with this.
    let mut meddlers = Vec::new();
    let mut changes = cell.changes.iter().peekable();
    let patience = match cell.task {
        Task::Bulk { seconds } => Duration::from_secs_f64(seconds) + CONNECTED,
        _ => place.budget,
    };
    loop {
        let elapsed = began.elapsed();
        pulse.beat(now_ns());
        found.standstill_ns = pulse.longest_ns();
        if let Some(change) = changes.next_if(|change| change.at_s <= elapsed.as_secs_f64()) {
            if !change.is_of_ends() {
                path::change(wan, cell, change)?;
            }
            if change.rebind {
                meddle::rebind(wan)?;
            }
            if let Some(rate_mbit) = change.forged_mbit {
                meddlers.push(meddle::forge(wan, rate_mbit, change.behind)?);
            }
            found.changes.push((now_ns(), *change));
        }
        let mut is_over = true;
        for flow in flows.iter_mut() {
            if is_bulk {
                let mut has_ended = flow.server.has_ended(LOOK)?;
                if !has_ended && flow.client.has_ended(Duration::ZERO)? {
                    // A client ends with its server; one that ends before has failed.
                    has_ended = flow.server.has_ended(FAREWELL)?;
                    ensure!(has_ended, "the client ended");
                }
                is_over &= has_ended;
            } else {
                is_over &= flow.client.has_ended(LOOK)?;
                found.messages.extend(flow.client.lines.try_iter().filter_map(as_message));
            }
        }
        if is_over {
            // By flow, so that shares are whose they are.
            if is_bulk {
                for (flow, arrived) in flows.iter().zip(&mut found.arrived) {
                    // An ended server's lines end too.
                    *arrived = flow.server.lines.iter().find_map(as_arrived).unwrap_or_default();
                }
            }
            return Ok(());
        }
        if elapsed > patience {
            ensure!(!is_bulk, "no end after {} s", patience.as_secs());
            found.is_cut = true;
            return Ok(());
        }
    }
}

fn as_arrived(line: Line) -> Option<Vec<(u64, u64)>> {
    match line {
        Line::Arrived(series) => Some(series),
        _ => None,
    }
}

fn as_message(line: Line) -> Option<super::end::Message> {
    match line {
        Line::Message(message) => Some(message),
        _ => None,
    }
}

/// Where a flow's client meets its server, or the tunnel that leads there.
fn address(contestant: &Contestant, index: usize) -> SocketAddr {
    let host = match contestant.tunnel {
        Some(_) => Ipv4Addr::LOCALHOST,
        None => HostSide::Server.ipv4(),
    };
    SocketAddr::new(IpAddr::V4(host), PORT + 10 * index as u16)
}

fn end_command(
    cell: &Cell,
    contestant: &Contestant,
    index: usize,
    side: Side,
    place: &Place,
) -> Result<Command> {
    let order = Order {
        side,
        address: address(contestant, index),
        program: contestant.program(),
        task: cell.task,
        rate_bits_per_s: cell.rate_mbit * 1_000_000,
        bdp_bytes: cell.bdp_bytes(),
        identity: place.identity.clone(),
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("wan-end").arg(serde_json::to_string(&order)?);
    Ok(command)
}

/// A server that listens, and its tunnel.
fn start_server(
    wan: &Wan,
    cell: &Cell,
    contestant: &Contestant,
    index: usize,
    place: &Place,
) -> Result<(Process, Vec<Process>)> {
    let host = wan.host(HostSide::Server);
    let command = end_command(cell, contestant, index, Side::Server, place)?;
    let mut server = Process::start(host, command)?;
    match server.lines.recv_timeout(READY) {
        Ok(Line::Listening) => {}
        Err(RecvTimeoutError::Timeout) => bail!("the server of {} is not ready", contestant.name),
        _ => {
            server.end()?;
            bail!("{}", server.complaint());
        }
    }
    let Some(tunnel) = &contestant.tunnel else { return Ok((server, Vec::new())) };
    let meeting = address(contestant, index);
    let start = |host: &Host, words: &[String]| -> Result<Process> {
        let filled = |word: &String| {
            word.replace("{host}", &HostSide::Server.ipv4().to_string())
                .replace("{port}", &(meeting.port() + 1).to_string())
                .replace("{to}", &meeting.to_string())
                .replace("{local}", &meeting.to_string())
        };
        let [program, arguments @ ..] = words else { bail!("a tunnel without a program") };
        let mut command = Command::new(program);
        command.args(arguments.iter().map(filled));
        Process::start(host, command)
    };
    let tunnel =
        vec![start(host, &tunnel.server)?, start(wan.host(HostSide::Client), &tunnel.client)?];
    let begun = Instant::now();
    while !wan.host(HostSide::Client).is_listening() {
        ensure!(begun.elapsed() < READY, "the tunnel of {} is not ready", contestant.name);
        std::thread::sleep(LOOK);
    }
    std::thread::sleep(TUNNEL);
    Ok((server, tunnel))
}
