//! The document of the race: tables of what was found, goals, and the cells that Lacuna loses, said
//! as plainly as the others.

use super::cell::{Cell, Goal, Kind, loss_name, matches};
use super::contestant;
use super::end::{Program, Task};
use super::glance;
use super::goal;
use super::plot;
use super::race::STANDSTILL_MS;
use super::record::{Entry, Record};
use super::summary::{Summary, best, best_by, is_default, is_ours, is_rate};
use std::collections::BTreeSet;
use std::fmt::Write as _;

const HEAD: &str = "\
# The race over an emulated long path

Written by `cargo run --release --manifest-path bench/Cargo.toml -- wan … --record`, from the records
in `bench/wan/record`; cells and contestants are data in `bench/wan`. Do not edit.

Two hosts (network namespaces) are joined by `lacuna-wan`: a link of the rate of the cell with a
queue of one product of rate and round-trip time (512 KiB at least), half of the round-trip time
each way, and losses both ways, independent or in bursts. Contestants run one after the other, each
over a path of its own, in an order that turns around from round to round; in a round all meet the
same seed of losses.

- **Goodput** is what the receiving application got, from the client's arrival on, start-up
  included; *steady* is the second half. Full: 0.9 of the ideal rate for 100 ms or a round trip.
- **A message** takes from the client's call until the client knows that all of it arrived: the
  peer's answer of one byte for TCP and QUIC, the acknowledged write for Lacuna. Connecting is told
  apart (*set-up*; *both* is the mean with it). The set-up of `kcptun` is that of the tunnel's near
  end, which stands already. `fresh`: each message on a connection of its own, of the same process and path
  (from the second on Lacuna's needs no new TCP connection: the one of the last serves again);
  *first* is the first of them, over a path not seen before. `kept`: all on one connection. *p99* is of
  all but the first, if all of a round came.
- **Ideal** is what headers and loss leave of the rate (1,352 bytes of payload in 1,442 on the
  link), for a message with one way out and one way back. Larger packets allow 1 % more, which
  Lacuna finds on a path that takes them, and TCP's smaller headers 2 %. Packets are lost in front of
  queue and link and take none of its time, so that a transfer may exceed the ideal by the loss, too.
- **Queue** is the waiting time in front of the link, over all packets and at most.
- **CPU** is processor time of both ends per 10^9 bytes. The kernel's work of receiving a packet
  happens where the emulator hands it over, so it is in the column *path*, with the emulator's own.
  *Cores*: what the race's cores were not idle for. It holds what the kernel does in nobody's name, as
  TCP's pacing, and what others did on these cores; where two have it, goals compare by it.
- **Others** is what else ran on the machine meanwhile, in cores.
- Values are medians of the rounds with their range. `>`: a message did not end within the time that
  a round has, and had taken longer than the others already; it counts with the time that it had.
";

/// The document, of what is there.
pub(crate) fn document(
    records: &[Record],
    goals: &[Goal],
    contestants: &contestant::File,
) -> String {
    let mut text = HEAD.to_owned();
    text += &origins(records);
    text += &glance::tables(records);
    text += &losses(records);
    text += &goals_table(records, goals);
    let mut grids: Vec<&str> = Vec::new();
    for record in records {
        if !grids.contains(&record.cell.grid.as_str()) {
            grids.push(&record.cell.grid);
        }
    }
    for grid in grids {
        let of_grid: Vec<_> = records.iter().filter(|record| record.cell.grid == grid).collect();
        let _ = writeln!(text, "\n## {grid}\n\n{}.", of_grid[0].cell.about);
        for name in plot::names(records, grid) {
            let _ = writeln!(text, "\n![{name}](race/{name})");
        }
        for record in of_grid {
            text += &table(record);
        }
    }
    let cells: Vec<_> = records.iter().map(|record| &record.cell).collect();
    text += "\n## Contestants and their settings\n\n| contestant | program | settings |\n|---|---|---|\n";
    for one in contestants.of(&cells) {
        let program = match &one.program {
            Program::Lacuna { mode, cc, sealed } => {
                let sealed = if *sealed { ", encrypted" } else { "" };
                format!("Lacuna, `--mode {mode}`, rate control {cc}{sealed}")
            }
            Program::Tcp { cc } => format!("TCP, {cc}"),
            Program::Quinn { cc, .. } => format!("quinn 0.11, {cc}"),
            Program::Piped { client, .. } => {
                let built = one.source.as_deref().unwrap_or_default();
                format!("`{}`", client.join(" ").replace("{built}", built))
            }
        };
        let mut settings = one.about.clone();
        for (name, value) in &one.sysctls {
            let _ = write!(settings, "; `{name}={value}`");
        }
        if let Some(tunnel) = &one.tunnel {
            let _ = write!(settings, "; `{}`", tunnel.client.join(" "));
        }
        let _ = writeln!(text, "| {} | {program} | {settings} |", one.name);
    }
    text
}

/// Where and when it was measured.
fn origins(records: &[Record]) -> String {
    let all: BTreeSet<String> = entries(records)
        .map(|entry| {
            let machine = &entry.machine;
            let note = match entry.note.as_str() {
                "" => String::new(),
                note => format!(" {note}."),
            };
            format!(
                "- {}: {}, {} cores, Linux {}, {}, commit `{}`.{note}\n",
                entry.day,
                machine.processor,
                machine.cores,
                machine.kernel,
                machine.compiler,
                machine.commit,
            )
        })
        .collect();
    format!("\nMeasured:\n\n{}", all.into_iter().collect::<String>())
}

fn entries(records: &[Record]) -> impl Iterator<Item = &Entry> {
    records.iter().flat_map(|record| record.entries.values())
}

/// The cells where somebody else is better than all of Lacuna's.
fn losses(records: &[Record]) -> String {
    let mut text = "\n## Where Lacuna loses\n\n".to_owned();
    let mut compared = 0;
    let mut lost = 0;
    for record in records.iter().filter(|record| !record.cell.is_shared()) {
        let cell = &record.cell;
        let Some(theirs) = best(record, |name| !is_ours(name)) else { continue };
        if !record.entries.keys().any(|name| is_default(name)) {
            continue;
        }
        compared += 1;
        let Some(ours) = best(record, is_default) else {
            lost += 1;
            let _ = writeln!(text, "- {}: Lacuna failed", cell.name);
            continue;
        };
        let alone = defeat(cell.kind, ours, theirs);
        // A connection that is fresh has to be made first.
        let with_setup =
            |takes: &dyn Fn(&str) -> bool| best_by(record, takes, |summary| summary.with_setup_ms);
        let together = with_setup(&is_default)
            .zip(with_setup(&|name| !is_ours(name)))
            .and_then(|(ours, theirs)| defeat(cell.kind, ours, theirs));
        lost += u32::from(alone.is_some() || together.is_some());
        for (defeat, what) in [(alone, ""), (together, ", connecting included")] {
            if let Some(defeat) = defeat {
                let _ = writeln!(text, "- {}{what}: {defeat}", cell.name);
            }
        }
    }
    let _ = writeln!(
        text,
        "\n{lost} of {compared} cells, Lacuna's best mode at its defaults against the best of all others."
    );
    text
}

/// How much better theirs is, in words, if it is.
fn defeat(kind: Kind, ours: (&str, f64), theirs: (&str, f64)) -> Option<String> {
    let (unit, factor) = match is_rate(kind) {
        true => ("Mbit/s", theirs.1 / ours.1),
        false => ("ms", ours.1 / theirs.1),
    };
    (factor > 1.0).then(|| {
        let (ours_value, theirs_value) = (show(ours.1), show(theirs.1));
        format!(
            "{} {ours_value} {unit}, {} {theirs_value} {unit}: {factor:.2} times better",
            ours.0, theirs.0
        )
    })
}

fn goals_table(records: &[Record], goals: &[Goal]) -> String {
    let mut rows = String::new();
    for goal in goals {
        for record in records.iter().filter(|record| matches(&goal.cells, &record.cell.name)) {
            for verdict in goal::verdicts(goal, record) {
                let _ = writeln!(
                    rows,
                    "| {} | {} | {} | {} | {} | {} |",
                    record.cell.name,
                    goal.ours,
                    verdict.what,
                    show(verdict.found),
                    verdict.wanted,
                    if verdict.holds { "holds" } else { "**misses**" },
                );
            }
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let head = "| cell | ours | what | found | wanted | |\n|---|---|---|---|---|---|";
    format!("\n## Goals\n\n{head}\n{rows}")
}

/// Three digits or so.
pub(crate) fn show(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

pub(crate) fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), show)
}

/// The table of a cell, the best first.
fn table(record: &Record) -> String {
    let cell = &record.cell;
    let mut text = format!("\n### {}\n\n", cell.name);
    let ideal = match cell.ideal_ms() {
        Some(ideal_ms) => format!("{} ms", show(ideal_ms)),
        None => format!("{} Mbit/s", show(cell.ideal_mbit())),
    };
    let _ = write!(
        text,
        "{} Mbit/s, {} ms, loss {}{}, queue {} KiB; ideal {ideal}",
        cell.rate_mbit,
        cell.rtt_ms,
        loss_name(cell.loss),
        if cell.burst > 1 { format!(" in bursts of {}", cell.burst) } else { String::new() },
        cell.queue_bytes >> 10,
    );
    for change in &cell.changes {
        let rate = change.rate_mbit.map_or(String::new(), |rate| format!(" {rate} Mbit/s"));
        let loss = change.loss.map_or(String::new(), |loss| format!(" loss {}", loss_name(loss)));
        let moved = if change.rebind { " the client comes from other ports" } else { "" };
        let place = if change.behind { "behind" } else { "in front of" };
        let forged = change.forged_mbit.map_or(String::new(), |rate| {
            format!(" {rate} Mbit/s of forged packets {place} the link")
        });
        let _ = write!(text, "; at {} s{rate}{loss}{moved}{forged}", change.at_s);
    }
    let tasks: BTreeSet<_> = record.entries.values().map(run_as).collect();
    let _ = writeln!(text, ". Run: {}.\n", tasks.into_iter().collect::<Vec<_>>().join("; "));
    text += match (cell.kind, cell.is_shared()) {
        (Kind::Bulk, false) => {
            "| contestant | goodput | of ideal | steady | full after ms | resumed after ms | pause ms, kept rate | queue ms mean, most | drops | CPU-s/GB ends, path, cores | others |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
        }
        (Kind::Bulk, true) => {
            "| flows | goodput together | share of the first | Jain | queue ms mean, most | drops | others |\n|---|---|---|---|---|---|---|\n"
        }
        (Kind::Crowd, _) => {
            "| contestant | all there after ms | of ideal | p99 of one ms | first ms | set-up ms | messages | queue ms mean, most | CPU-s/GB ends, path, cores | others |\n|---|---|---|---|---|---|---|---|---|---|\n"
        }
        (Kind::Message, _) => {
            "| contestant | mean ms | of ideal | p99 ms | first ms | set-up ms | both ms | messages | queue ms mean, most | CPU-s/GB ends, path, cores | others |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
        }
    };
    let mut rows: Vec<_> =
        record.entries.iter().map(|(name, entry)| (name, entry, Summary::new(entry))).collect();
    let key = |summary: &Summary| {
        let value = summary.value.map_or(f64::INFINITY, |value| value.median);
        if is_rate(cell.kind) && value.is_finite() { -value } else { value }
    };
    rows.sort_by(|one, other| key(&one.2).total_cmp(&key(&other.2)));
    for (name, entry, summary) in rows {
        text += &row(cell, name, entry, &summary);
    }
    text
}

/// How long or how often a contestant was run.
fn run_as(entry: &Entry) -> String {
    let rounds = entry.samples.len();
    match entry.task {
        Task::Bulk { seconds } => format!("{seconds} s, {rounds} rounds"),
        Task::Messages { count, .. } => {
            format!("{count} messages, {} s at most, {rounds} rounds", entry.budget_s)
        }
        Task::Crowd { connections, .. } => format!("{connections} connections, {rounds} rounds"),
    }
}

fn row(cell: &Cell, name: &str, entry: &Entry, summary: &Summary) -> String {
    let name = if is_ours(name) { format!("**{name}**") } else { name.to_owned() };
    if let Some(why) = &entry.skipped {
        return format!("| {name} | skipped: {why} |\n");
    }
    let Some(value) = summary.value else {
        let why = match summary.missing {
            0 => entry.failures.last().map_or("no result", String::as_str).to_owned(),
            missing => format!("{missing} messages did not come: {}", summary.complaint),
        };
        return format!("| {name} | failed: {} |\n", why.replace('|', "/"));
    };
    let at_least = if summary.is_at_least { "> " } else { "" };
    let range =
        format!("{at_least}{} [{}-{}]", show(value.median), show(value.least), show(value.most));
    let of_ideal = summary.of_ideal(cell).map_or(String::new(), |share| format!("{share:.2}"));
    let queue = format!("{}, {}", maybe(summary.queue_ms_mean), maybe(summary.queue_ms_max));
    let cpu = [summary.cpu_s_per_gbyte, summary.path_cpu_s_per_gbyte, summary.core_s_per_gbyte];
    let cpu = cpu.map(maybe).join(", ");
    let mut others = maybe(summary.others_cores);
    if summary.late_drops > 0 {
        let _ = write!(others, "; the path came too late for {} packets", summary.late_drops);
    }
    if summary.standstill_ms > STANDSTILL_MS {
        let _ = write!(others, "; the machine stood still for {:.0} ms", summary.standstill_ms);
    }
    let failed = entry.samples.iter().filter(|sample| sample.is_none()).count();
    if failed > 0 {
        let why = entry.failures.last().map_or("", String::as_str).replace('|', "/");
        let _ = write!(others, "; failed in {failed} rounds: {why}");
    }
    // A crowd connects within its time.
    let both = match cell.kind {
        Kind::Message => maybe(summary.with_setup_ms),
        _ => String::new(),
    };
    let columns = match (cell.kind, cell.is_shared()) {
        (Kind::Bulk, false) => vec![
            range,
            of_ideal,
            maybe(summary.steady_mbit),
            maybe(summary.full_after_ms),
            maybe(summary.resumed_ms),
            match (summary.pause_ms, summary.kept_rate) {
                (None, None) => String::new(),
                (pause_ms, kept) => format!("{}, {}", maybe(pause_ms), maybe(kept)),
            },
            queue,
            maybe(summary.queue_drops),
            cpu,
            others,
        ],
        (Kind::Bulk, true) => vec![
            range,
            maybe(summary.share),
            maybe(summary.jain),
            queue,
            maybe(summary.queue_drops),
            others,
        ],
        _ => vec![
            range,
            of_ideal,
            maybe(summary.p99_ms),
            maybe(summary.first_ms),
            maybe(summary.setup_ms),
            both,
            summary.messages.to_string(),
            queue,
            cpu,
            others,
        ],
    };
    let columns: Vec<_> = columns.into_iter().filter(|column| !column.is_empty()).collect();
    format!("| {name} | {} |\n", columns.join(" | "))
}
