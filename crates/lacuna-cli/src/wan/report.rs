//! Results of a run, as text and as JSON.

use super::PathArgs;
use super::conditions::describe;
use super::programs::{Ended, show_status};
use crate::failure::Ending;
use crate::units::{show_bytes, show_rate, show_time};
use comfy_table::{CellAlignment, Table, presets};
use lacuna_wan::{Direction, Host, Report, WayConfig, WayCounters};
use serde::Serialize;
use std::os::unix::process::ExitStatusExt;

/// A result on standard output with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct RunResult {
    command: &'static str,
    seed: u64,
    mtu_bytes: u32,
    /// Whether the hosts are in a user namespace.
    rootless: bool,
    #[serde(flatten)]
    ending: Ending,
    elapsed_s: f64,
    /// Processor time of the emulator.
    emulator_cpu_s: f64,
    to_server: WayResult,
    to_client: WayResult,
    /// `null` if there was none.
    server: Option<ProgramResult>,
    client: ProgramResult,
}

#[derive(Debug, Serialize)]
struct WayResult {
    /// The direction at the start, in words.
    path: String,
    /// Frames lost before the path, because this host was too slow.
    device_dropped_frames: u64,
    #[serde(flatten)]
    counts: WayCounts,
}

/// What one way did.
#[derive(Debug, Serialize)]
pub(super) struct WayCounts {
    sent_packets: u64,
    sent_bytes: u64,
    delivered_packets: u64,
    delivered_bytes: u64,
    delivered_bits_per_s: f64,
    lost: u64,
    loss_bursts: u64,
    queue_dropped: u64,
    held_dropped: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    marked: u64,
    refused: u64,
    malformed_frames: u64,
    link_local: u64,
    background_packets: u64,
    background_dropped: u64,
    queue_bytes_max: u64,
    queue_ms_mean: f64,
    queue_ms_max: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct ProgramResult {
    command: Vec<String>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    took_s: f64,
    user_s: f64,
    system_s: f64,
    memory_kib_max: u64,
    stdout: Option<String>,
}

impl RunResult {
    pub(super) fn new(
        args: &PathArgs,
        rootless: bool,
        ending: Ending,
        ways: &[WayConfig; 2],
        report: &Report,
        server: Option<&Ended>,
        client: &Ended,
    ) -> Self {
        let elapsed_s = report.total.elapsed.as_secs_f64();
        let way = |index: usize| {
            let counters = &report.total.ways[index];
            WayResult::new(&ways[index], counters, report.device_drops[index], elapsed_s)
        };
        Self {
            command: "wan",
            seed: args.seed,
            mtu_bytes: args.mtu,
            rootless,
            ending,
            elapsed_s,
            emulator_cpu_s: report.total.cpu.as_secs_f64(),
            to_server: way(0),
            to_client: way(1),
            server: server.map(ProgramResult::new),
            client: ProgramResult::new(client),
        }
    }
}

impl WayResult {
    fn new(way: &WayConfig, counters: &WayCounters, device_drops: u64, elapsed_s: f64) -> Self {
        Self {
            path: describe(way),
            device_dropped_frames: device_drops,
            counts: WayCounts::new(counters, elapsed_s),
        }
    }
}

impl WayCounts {
    pub(super) fn new(counters: &WayCounters, elapsed_s: f64) -> Self {
        Self {
            sent_packets: counters.sent_packets,
            sent_bytes: counters.sent_bytes,
            delivered_packets: counters.delivered_packets,
            delivered_bytes: counters.delivered_bytes,
            delivered_bits_per_s: counters.delivered_bytes as f64 * 8.0 / elapsed_s.max(1e-9),
            lost: counters.lost,
            loss_bursts: counters.loss_bursts,
            queue_dropped: counters.queue_dropped,
            held_dropped: counters.held_dropped,
            duplicated: counters.duplicated,
            reordered: counters.reordered,
            corrupted: counters.corrupted,
            marked: counters.marked,
            refused: counters.refused,
            malformed_frames: counters.malformed_frames,
            link_local: counters.link_local,
            background_packets: counters.background_packets,
            background_dropped: counters.background_dropped,
            queue_bytes_max: counters.queue_bytes_max,
            queue_ms_mean: counters.queue_ns_mean() / 1e6,
            queue_ms_max: counters.queue_ns_max as f64 / 1e6,
        }
    }
}

impl ProgramResult {
    pub(super) fn new(ended: &Ended) -> Self {
        let outcome = &ended.outcome;
        Self {
            command: ended.words.clone(),
            exit_code: outcome.status.code(),
            signal: outcome.status.signal(),
            took_s: outcome.took.as_secs_f64(),
            user_s: outcome.user.as_secs_f64(),
            system_s: outcome.system.as_secs_f64(),
            memory_kib_max: outcome.memory_kib_max,
            stdout: ended.output.clone(),
        }
    }
}

/// The path before anything runs, in a line.
pub(super) fn introduce(ways: &[WayConfig; 2], host: &Host, seed: u64) -> String {
    let [to_server, to_client] = ways.each_ref().map(describe);
    let path = match to_server == to_client {
        true => format!("each way {to_server}"),
        false => format!("to the server {to_server}; to the client {to_client}"),
    };
    let who = if host.is_rootless() { "; hosts in a user namespace" } else { "" };
    format!("{path}; seed {seed}{who}")
}

/// Results of a run for people.
pub(super) fn text(report: &Report, server: Option<&Ended>, client: &Ended) -> String {
    let elapsed_s = report.total.elapsed.as_secs_f64();
    let rows: Vec<_> = Direction::ALL
        .iter()
        .zip(&report.total.ways)
        .map(|(direction, counters)| (direction.name().replace('_', " "), counters))
        .collect();
    let mut lines = vec![table(&rows, elapsed_s)];
    for (drops, way) in report.device_drops.iter().zip(["to the server", "to the client"]) {
        if *drops > 0 {
            lines.push(format!(
                "{drops} frames {way} were lost before the path: this machine is too slow for it"
            ));
        }
    }
    for (side, ended) in [("server", server), ("client", Some(client))] {
        let Some(ended) = ended else { continue };
        lines.push(ending(side, ended));
    }
    lines.push(format!(
        "emulator: {} of processor time in {}",
        show_time(report.total.cpu.as_secs_f64()),
        show_time(elapsed_s)
    ));
    lines.join("\n")
}

/// How a program ended, in a line.
pub(super) fn ending(who: &str, ended: &Ended) -> String {
    let outcome = &ended.outcome;
    format!(
        "{who} {}: {} after {}, {} of processor time",
        ended.words[0],
        show_status(outcome.status),
        show_time(outcome.took.as_secs_f64()),
        show_time((outcome.user + outcome.system).as_secs_f64()),
    )
}

/// The counters of ways, each with its name; columns of zeros are left out.
pub(super) fn table(rows: &[(String, &WayCounters)], elapsed_s: f64) -> String {
    type Column = (&'static str, fn(&WayCounters) -> u64);
    const COUNTS: [Column; 11] = [
        ("lost", |counters| counters.lost),
        ("dropped in queue", |counters| counters.queue_dropped),
        ("dropped for memory", |counters| counters.held_dropped),
        ("marked", |counters| counters.marked),
        ("held back", |counters| counters.reordered),
        ("duplicated", |counters| counters.duplicated),
        ("corrupted", |counters| counters.corrupted),
        ("refused", |counters| counters.refused),
        ("malformed", |counters| counters.malformed_frames),
        ("others' packets", |counters| counters.background_packets),
        ("others' dropped", |counters| counters.background_dropped),
    ];
    let counts: Vec<&Column> =
        COUNTS.iter().filter(|(_, count)| rows.iter().any(|(_, way)| count(way) > 0)).collect();
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    let mut header = vec!["", "packets"];
    header.extend(counts.iter().map(|(name, _)| *name));
    header.extend(["delivered", "mean rate", "queue mean", "max"]);
    table.set_header(header);
    for (name, counters) in rows {
        let mut row = vec![name.clone(), counters.sent_packets.to_string()];
        row.extend(counts.iter().map(|(_, count)| count(counters).to_string()));
        row.push(show_bytes(counters.delivered_bytes));
        row.push(show_rate(counters.delivered_bytes as f64 * 8.0 / elapsed_s.max(1e-9)));
        row.push(show_time(counters.queue_ns_mean() / 1e9));
        row.push(show_time(counters.queue_ns_max as f64 / 1e9));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
