//! Instructions per packet and per message, counted by valgrind's callgrind: much the same on a
//! busy machine as on a quiet one, so a change of some per cent between commits can be seen where
//! times cannot show it.
//!
//! What is counted is a program of its own (`counted/`), because its clock is: time passes there by
//! the reading. By the system's clock a slow or busy host has more reports that are due by time and
//! more looks for what is not here yet, by half as many instructions again for a message of 64 bytes.
//! What the kernel does is not counted, but it may be late with a packet; so what seems to have grown
//! is counted again, and the least counts.

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// How often a workload that seems to have grown is counted.
const COUNTS_MAX: u32 = 4;

/// The function whose calls are counted, and what it calls.
const COUNTED: &str = "lacuna_bench_counted";

/// What is kept in the repository.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    compiler: String,
    instructions: BTreeMap<String, f64>,
}

/// Counts all workloads of `program` and compares with `kept`: fails if one has grown by
/// more than `tolerance`. With `update` it writes them down instead.
pub(crate) fn run(program: &Path, kept: &Path, tolerance: f64, update: bool) -> Result<()> {
    let compiler = crate::machine::compiler();
    let before: Option<Kept> = match update {
        true => None,
        false => {
            let text = std::fs::read_to_string(kept)
                .with_context(|| format!("cannot read {}", kept.display()))?;
            Some(serde_json::from_str(&text)?)
        }
    };
    let mut instructions = BTreeMap::new();
    for workload in workloads(program)? {
        let was = before.as_ref().and_then(|before| before.instructions.get(&workload.name));
        let mut least = count(program, &workload)?;
        for _ in 1..COUNTS_MAX {
            if was.is_none_or(|was| least <= was * (1.0 + tolerance)) {
                break;
            }
            least = least.min(count(program, &workload)?);
        }
        instructions.insert(workload.name, (least * 10.0).round() / 10.0);
    }
    let Some(before) = before else {
        let text = serde_json::to_string_pretty(&Kept { compiler, instructions })?;
        return std::fs::write(kept, text + "\n")
            .with_context(|| format!("cannot write {}", kept.display()));
    };
    if before.compiler != compiler {
        println!(
            "counted before with {}, now with {compiler}: what has grown does not fail",
            before.compiler
        );
    }
    let mut grown = Vec::new();
    for (name, now) in &instructions {
        let Some(was) = before.instructions.get(name) else {
            println!("{name}: {now:.1} instructions, not counted before");
            continue;
        };
        let change = now / was - 1.0;
        println!("{name}: {now:.1} instructions, {:+.1} % of {was:.1}", change * 100.0);
        if change > tolerance {
            grown.push(name.as_str());
        }
    }
    ensure!(
        grown.is_empty() || before.compiler != compiler,
        "{} grew by more than {:.0} %: make it smaller, or write it down with --update and say why",
        grown.join(", "),
        tolerance * 100.0
    );
    Ok(())
}

/// Whether callgrind can be had.
pub(crate) fn is_available() -> bool {
    let status = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// What the program can run.
struct Workload {
    name: String,
    /// Packets, or messages.
    units: f64,
}

fn workloads(program: &Path) -> Result<Vec<Workload>> {
    let output = Command::new(program).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8(output.stdout)?;
    let of_line = |line: &str| {
        let (name, units) = line.split_once(' ')?;
        Some(Workload { name: name.to_owned(), units: units.parse().ok()? })
    };
    let workloads: Option<Vec<_>> = said.lines().map(of_line).collect();
    workloads
        .filter(|workloads| !workloads.is_empty())
        .with_context(|| format!("{} named no workloads: {said}", program.display()))
}

fn count(program: &Path, workload: &Workload) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(program)
        .arg(&workload.name)
        .stdin(Stdio::null())
        .output()
        .context("cannot run valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{} under valgrind: {said}", workload.name);
    }
    let total = said.lines().find_map(|line| line.split_once("Collected :"));
    let total = total.and_then(|(_, number)| number.trim().parse::<f64>().ok());
    let total = total.with_context(|| format!("what callgrind said: {said}"))?;
    Ok(total / workload.units)
}
