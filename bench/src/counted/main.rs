//! What `lacuna-bench count` runs under callgrind: one workload, both ends on one thread, over
//! real sockets, with a clock of its own (`clock.rs`).
//!
//! Without an argument it names the workloads, each with its units: packets, or messages.

// Tests run by the system's clock, which their runner waits by.
#[cfg(not(test))]
mod clock;

use anyhow::{Context as _, Result};
use lacuna::{
    ConnectionConfig, Context, ContextConfig, Mode, Progress, QueuePair, RecvHandle, SendBuffer,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
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

fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(name) => counted(&name),
        None => {
            for workload in WORKLOADS {
                println!("{} {}", workload.name, workload.messages * workload.units);
            }
            Ok(())
        }
    }
}

/// Runs one workload, to be counted.
fn counted(name: &str) -> Result<()> {
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
                bind: local.into(),
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
