//! What a packet costs as things get many or large: slots in use, queue pairs,
//! bytes of a message. And what a queue pair costs in memory.
//!
//! Both ends run on one thread over real sockets, and its processor time is
//! what counts: it does not grow when another process takes the core. All
//! settings of an axis move as many packets, in turn, round by round.

use crate::pin;
use crate::run::spread;
use anyhow::{Context as _, Result, ensure};
use lacuna::{
    ConnectionConfig, Context, ContextConfig, Mode, Progress, QueuePair, RecvHandle, SendBuffer,
    SendHandle,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const MTU_BYTES: usize = 4096;
/// Bytes that each setting moves in a round.
const ROUND_BYTES: usize = 256 << 20;

/// One setting.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Setting {
    axis: &'static str,
    queue_pairs: usize,
    /// Messages in flight on each queue pair, a slot each.
    slots: usize,
    message_bytes: usize,
    ns_per_packet: f64,
    /// Over the first setting of the axis, median of the rounds.
    ratio: f64,
}

/// Buffers of all settings of an axis together, so that each walks as much
/// memory: far more than the caches hold.
const POOL_BYTES: usize = 256 << 20;

fn settings() -> Vec<Setting> {
    let at = |axis, queue_pairs, slots, message_bytes| Setting {
        axis,
        queue_pairs,
        slots,
        message_bytes,
        ns_per_packet: 0.0,
        ratio: 0.0,
    };
    let message = POOL_BYTES / 1024;
    let mut settings = Vec::new();
    settings.extend([1, 4, 32, 256, 1000].map(|slots| at("slots in use", 1, slots, message)));
    settings
        .extend([1, 10, 100, 1000].map(|pairs| at("queue pairs", pairs, 1000 / pairs, message)));
    // As many bytes in flight, as far as messages can be so short.
    for (bits, slots) in [(16, 64), (18, 16), (20, 4), (24, 1), (28, 1), (30, 1)] {
        settings.push(at("message bytes", 1, slots, 1 << bits));
    }
    settings
}

/// Measures all settings, `rounds` times each; prints a table or JSON.
pub(crate) fn run(rounds: u32, json: bool) -> Result<()> {
    let core = *pin::allowed()?.last().context("no core")?;
    pin::this_thread(core)?;
    // First: what others have freed would be taken again without a trace.
    let memory = queue_pair_bytes(10_000)?;
    let mut settings = settings();
    for axis in ["slots in use", "queue pairs", "message bytes"] {
        let mut fleets = Vec::new();
        for setting in settings.iter().filter(|setting| setting.axis == axis) {
            fleets.push((Fleet::new(setting)?, Vec::new()));
        }
        for _ in 0..rounds {
            for (fleet, costs) in &mut fleets {
                costs.push(fleet.round(ROUND_BYTES)?);
            }
        }
        let base = fleets[0].1.clone();
        let axis = settings.iter_mut().filter(|setting| setting.axis == axis);
        for (setting, (_, costs)) in axis.zip(fleets) {
            let ratios = costs.iter().zip(&base).map(|(cost, base)| cost / base).collect();
            setting.ns_per_packet = spread(costs).context("no rounds")?.median;
            setting.ratio = spread(ratios).context("no rounds")?.median;
        }
    }
    if json {
        for setting in &settings {
            println!("{}", serde_json::to_string(setting)?);
        }
        println!("{}", serde_json::json!({ "queue_pair_bytes": memory }));
        return Ok(());
    }
    println!("axis           queue pairs  slots  message bytes  CPU ns/packet  ratio");
    for s in &settings {
        println!(
            "{:<14} {:>11} {:>6} {:>14} {:>14.0} {:>6.2}",
            s.axis, s.queue_pairs, s.slots, s.message_bytes, s.ns_per_packet, s.ratio
        );
    }
    println!("a connected queue pair with one receive posted takes {memory} bytes");
    Ok(())
}

/// Queue pairs between two contexts on this thread.
struct Fleet {
    contexts: [Context; 2],
    pairs: Vec<Pair>,
    message: Arc<Vec<u8>>,
}

struct Pair {
    sender: QueuePair,
    receiver: QueuePair,
    posted: VecDeque<RecvHandle>,
    sent: VecDeque<SendHandle>,
    /// Buffers that wait for their turn to be posted.
    spare: VecDeque<Vec<u8>>,
}

fn context() -> Result<Context> {
    Ok(Context::new(ContextConfig {
        bind: Ipv4Addr::LOCALHOST.into(),
        progress: Progress::Manual,
        ..ContextConfig::default()
    })?)
}

fn connect(contexts: &[Context; 2], config: &ConnectionConfig) -> Result<Pair> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let sender = contexts[0].queue_pair(config)?;
    let receiver = contexts[1].queue_pair(config)?;
    let (info, other) = (sender.info(local), receiver.info(local));
    sender.connect(&other)?;
    receiver.connect(&info)?;
    let (posted, sent, spare) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
    Ok(Pair { sender, receiver, posted, sent, spare })
}

impl Fleet {
    fn new(setting: &Setting) -> Result<Self> {
        let config = ConnectionConfig {
            mode: Mode::SR,
            mtu_bytes: Some(MTU_BYTES as u32),
            chunk_bytes: 64 << 10,
            ..ConnectionConfig::default()
        };
        let contexts = [context()?, context()?];
        let mut pairs = Vec::new();
        for _ in 0..setting.queue_pairs {
            let mut pair = connect(&contexts, &config)?;
            for _ in 0..setting.slots {
                let buffer = vec![0; setting.message_bytes];
                pair.posted.push_back(pair.receiver.post_recv(buffer)?);
            }
            let buffers = POOL_BYTES / setting.message_bytes / setting.queue_pairs;
            let spare = buffers.saturating_sub(setting.slots);
            pair.spare.extend((0..spare).map(|_| vec![0; setting.message_bytes]));
            pairs.push(pair);
        }
        let message = Arc::new(vec![0x5A; setting.message_bytes]);
        let mut fleet = Self { contexts, pairs, message };
        // Memory is touched and the window found before anything counts.
        fleet.round(POOL_BYTES.max(setting.message_bytes))?;
        Ok(fleet)
    }

    /// Moves `bytes` in all; processor nanoseconds per packet.
    fn round(&mut self, bytes: usize) -> Result<f64> {
        let messages = (bytes / self.message.len()).max(1);
        let (mut started, mut done) = (0, 0);
        let before = pin::thread_time();
        while done < messages {
            for pair in &mut self.pairs {
                while started < messages && pair.sent.len() < pair.posted.len() {
                    let data = SendBuffer::new(self.message.clone());
                    pair.sent.push_back(pair.sender.send(data, None)?);
                    started += 1;
                }
            }
            // All that goes by itself, so that looking at each queue pair does
            // not cost more than what is measured.
            for _ in 0..self.pairs.len() {
                let [here, there] = &self.contexts;
                if !(here.progress() | there.progress()) {
                    break;
                }
            }
            for pair in &mut self.pairs {
                while !pair.sent.is_empty()
                    && pair.posted.front().is_some_and(RecvHandle::is_complete)
                {
                    let front = pair.posted.pop_front().context("looked at")?;
                    pair.spare.push_back(front.complete().buffer);
                    let buffer = pair.spare.pop_front().context("put there")?;
                    pair.posted.push_back(pair.receiver.post_recv(buffer)?);
                    pair.sent.pop_front();
                    done += 1;
                }
            }
        }
        let took = pin::thread_time() - before;
        let packets = messages * self.message.len().div_ceil(MTU_BYTES);
        Ok(took.as_nanos() as f64 / packets as f64)
    }
}

/// Memory of a connected queue pair with a receive posted, both ends' own
/// structures: what the process grew by, over how many there are.
fn queue_pair_bytes(count: usize) -> Result<u64> {
    let contexts = [context()?, context()?];
    let config =
        ConnectionConfig { mtu_bytes: Some(MTU_BYTES as u32), ..ConnectionConfig::default() };
    let before = resident_bytes()?;
    let mut pairs = Vec::with_capacity(count / 2);
    for _ in 0..count / 2 {
        let mut pair = connect(&contexts, &config)?;
        pair.posted.push_back(pair.receiver.post_recv(vec![0; 64])?);
        pairs.push(pair);
    }
    for context in &contexts {
        while context.progress() {}
    }
    let grown = resident_bytes()?.saturating_sub(before);
    ensure!(pairs.len() == count / 2, "all are held");
    Ok(grown / count as u64)
}

fn resident_bytes() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.context("/proc/self/statm")? * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_moves_its_messages() {
        for setting in settings().into_iter().filter(|s| s.message_bytes <= 1 << 20) {
            let small = Setting {
                queue_pairs: setting.queue_pairs.min(20),
                slots: setting.slots.min(20),
                ..setting
            };
            Fleet::new(&small).unwrap().round(1 << 20).unwrap();
        }
        queue_pair_bytes(100).unwrap();
    }
}
