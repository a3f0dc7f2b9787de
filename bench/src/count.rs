//! Instructions per packet and per message, counted by valgrind's callgrind: of
//! packets much the same on a busy machine as on a quiet one, so a change of some
//! per cent between commits can be seen where times cannot show it.
//!
//! Both ends run on one thread, over real sockets; what the kernel does is not
//! counted. Looking for packets that are not here yet and reports that are due
//! by time are, and a busy or slow machine has more of both, by a fifth for a message
//! of 64 bytes; so what seems to have grown is counted again, and the least counts.

use anyhow::{Context as _, Result, bail, ensure};
use lacuna::{
    ConnectionConfig, Context, ContextConfig, Mode, Progress, QueuePair, RecvHandle, SendBuffer,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A workload: messages of one kind, and what one unit of it is.
struct Workload {
    name: &'static str,
    mode: &'static str,
    size: usize,
    mtu: u32,
    chunk: u64,
    inflight: usize,
    messages: usize,
    /// Units per message: packets, or 1 for the message itself.
    units: usize,
}

const WORKLOADS: &[Workload] = &[
    Workload {
        name: "message-64-bytes-raw",
        mode: "raw",
        size: 64,
        mtu: 4096,
        chunk: 4096,
        inflight: 1,
        messages: 500,
        units: 1,
    },
    Workload {
        name: "packet-4096-raw",
        mode: "raw",
        size: 1 << 20,
        mtu: 4096,
        chunk: 65536,
        inflight: 4,
        messages: 16,
        units: 256,
    },
    Workload {
        name: "packet-4096-sr",
        mode: "sr",
        size: 1 << 20,
        mtu: 4096,
        chunk: 65536,
        inflight: 4,
        messages: 16,
        units: 256,
    },
    Workload {
        name: "packet-1400-sr-chunk-1",
        mode: "sr",
        size: 1 << 20,
        mtu: 1400,
        chunk: 1400,
        inflight: 4,
        messages: 16,
        units: 749,
    },
];

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

/// Counts all workloads and compares with `kept`: fails if one has grown by
/// more than `tolerance`. With `update` it writes them down instead.
pub(crate) fn run(kept: &Path, tolerance: f64, update: bool) -> Result<()> {
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
    for workload in WORKLOADS {
        let was = before.as_ref().and_then(|before| before.instructions.get(workload.name));
        let mut least = count(workload)?;
        for _ in 1..COUNTS_MAX {
            if was.is_none_or(|was| least <= was * (1.0 + tolerance)) {
                break;
            }
            least = least.min(count(workload)?);
        }
        instructions.insert(workload.name.to_owned(), (least * 10.0).round() / 10.0);
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

fn count(workload: &Workload) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(std::env::current_exe()?)
        .args(["counted", workload.name])
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
    Ok(total / (workload.messages * workload.units) as f64)
}

/// Runs one workload, to be counted.
pub(crate) fn counted(name: &str) -> Result<()> {
    let workload = WORKLOADS.iter().find(|workload| workload.name == name);
    let workload = workload.with_context(|| format!("no workload is called {name}"))?;
    let mut pair = Pair::new(workload)?;
    // What is allocated once is not counted.
    lacuna_bench_warm(&mut pair, workload)?;
    lacuna_bench_counted(&mut pair, workload)
}

#[inline(never)]
fn lacuna_bench_warm(pair: &mut Pair, workload: &Workload) -> Result<()> {
    pair.move_messages(4 * workload.inflight.max(4))
}

/// Its name is known to callgrind.
#[allow(unsafe_code, reason = "the name must survive to be found")]
// SAFETY: no other symbol of this program has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn lacuna_bench_counted(pair: &mut Pair, workload: &Workload) -> Result<()> {
    pair.move_messages(workload.messages)
}

/// Two ends on this thread.
struct Pair {
    contexts: [Context; 2],
    sender: QueuePair,
    receiver: QueuePair,
    message: Arc<Vec<u8>>,
    posted: VecDeque<RecvHandle>,
    inflight: usize,
}

impl Pair {
    fn new(workload: &Workload) -> Result<Self> {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let context = || {
            Context::new(ContextConfig {
                bind: local,
                progress: Progress::Manual,
                ..ContextConfig::default()
            })
        };
        let contexts = [context()?, context()?];
        let config = ConnectionConfig {
            mode: workload.mode.parse::<Mode>()?,
            mtu_bytes: Some(workload.mtu),
            chunk_bytes: workload.chunk,
            ..ConnectionConfig::default()
        };
        let sender = contexts[0].queue_pair(&config)?;
        let receiver = contexts[1].queue_pair(&config)?;
        let (info, other) = (sender.info(local), receiver.info(local));
        sender.connect(&other)?;
        receiver.connect(&info)?;
        let mut posted = VecDeque::new();
        for _ in 0..2 * workload.inflight.max(4) {
            posted.push_back(receiver.post_recv(vec![0; workload.size])?);
        }
        let message = Arc::new(vec![0x5A; workload.size]);
        let inflight = workload.inflight;
        Ok(Self { contexts, sender, receiver, message, posted, inflight })
    }

    fn move_messages(&mut self, messages: usize) -> Result<()> {
        let mut sent = VecDeque::new();
        let (mut started, mut done) = (0, 0);
        while done < messages {
            while started < messages && started - done < self.inflight {
                sent.push_back(self.sender.send(SendBuffer::new(self.message.clone()), None)?);
                started += 1;
            }
            for context in &self.contexts {
                context.progress();
            }
            while self.posted.front().is_some_and(RecvHandle::is_complete) {
                let front = self.posted.pop_front().context("looked at")?;
                let buffer = front.complete().buffer;
                self.posted.push_back(self.receiver.post_recv(buffer)?);
                sent.pop_front();
                done += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_ends() {
        for workload in WORKLOADS {
            let mut pair = Pair::new(workload).unwrap();
            pair.move_messages(8).unwrap();
        }
    }
}
