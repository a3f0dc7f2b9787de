//! What a packet costs as things get many or large: slots in use, queue pairs,
//! bytes of a message. And what a queue pair costs in memory.
//!
//! Both ends run on one thread over real sockets, and its processor time is
//! what counts: it does not grow when another process takes the core. All
//! settings of an axis move as many packets, in turn, round by round, from and
//! into as much memory, far more than the caches hold: a message of 64 KiB that
//! is sent from the same 64 KiB again and again would be compared with one of
//! 1 GiB by what memory costs. Each round has sockets and queue pairs of its own.
//! Settings whose messages are equally long receive into the very same buffers, which
//! they hand on to each other: where the allocator's pages lie depends on what else was
//! allocated between them, and by that alone copying a payload may cost a fifth more or less.

use crate::pin;
use crate::run::spread;
use anyhow::{Context as _, Result, ensure};
use lacuna::{
    Completion, CompletionQueue, ConnectionConfig, Context, ContextConfig, Mode, Outcome, Progress,
    QueuePair, QueuedSend, RecvHandle, RecvOptions, SendBuffer, SendHandle,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const MTU_BYTES: usize = 4096;
/// Completions per poll.
const BATCH: usize = 64;

/// Settings that are compared with each other.
struct Axis {
    name: &'static str,
    /// Memory that each setting moves bytes from and to: as much as the longest message takes.
    pool_bytes: usize,
    /// How often it is moved in a round. More than once where each of the most queue pairs would
    /// send its messages once only: how a round begins and ends would be much of what is measured.
    passes: usize,
    settings: Vec<Setting>,
}

/// One setting.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Setting {
    axis: &'static str,
    /// How much there is of what the axis is about.
    value: usize,
    queue_pairs: usize,
    /// Messages in flight on each queue pair, a slot each.
    slots: usize,
    message_bytes: usize,
    /// All queue pairs complete into one queue at each end, instead of on handles.
    is_queued: bool,
    ns_per_packet: f64,
    /// Over the first setting of the axis, median of the rounds.
    ratio: f64,
    /// The least and the most of them.
    ratio_least: f64,
    ratio_most: f64,
}

fn axes() -> Vec<Axis> {
    let axis = |name, (pool_bytes, passes), settings: &[(usize, usize, usize, usize)]| Axis {
        name,
        pool_bytes,
        passes,
        settings: settings
            .iter()
            .map(|&(value, queue_pairs, slots, message_bytes)| Setting {
                axis: name,
                value,
                queue_pairs,
                slots,
                message_bytes,
                is_queued: false,
                ns_per_packet: 0.0,
                ratio: 0.0,
                ratio_least: 0.0,
                ratio_most: 0.0,
            })
            .collect(),
    };
    let queued = |axis: Axis, name| {
        let setting = |setting| Setting { axis: name, is_queued: true, ..setting };
        Axis { name, settings: axis.settings.into_iter().map(setting).collect(), ..axis }
    };
    let message = 256 << 10;
    let pairs = || [1, 10, 100, 1000];
    vec![
        axis(
            "slots in use",
            (256 << 20, 1),
            &[1, 4, 32, 256, 1000].map(|slots| (slots, 1, slots, message)),
        ),
        // Alike, so that with more of them there is more in flight: what a thousand cost more
        // than one is theirs and not that of another pattern.
        axis("queue pairs", (1 << 30, 4), &pairs().map(|pairs| (pairs, pairs, 4, message))),
        // The same, with one completion queue for all: what it adds to the ratios is its share.
        queued(
            axis("", (1 << 30, 4), &pairs().map(|pairs| (pairs, pairs, 4, message))),
            "queue pairs, queued",
        ),
        axis("queue pairs, long", (2 << 30, 4), &pairs().map(|pairs| (pairs, pairs, 2, 1 << 20))),
        axis(
            "queue pairs, short",
            (1 << 30, 4),
            &pairs().map(|pairs| (pairs, pairs, 16, 64 << 10)),
        ),
        // A queue pair of a single slot has nothing to send from the end of a message until its
        // peer has posted again: one is in lock step, and ten, which are in every cache, show what
        // of the next axis is that and what the number of queue pairs.
        axis(
            "queue pairs, one slot",
            (256 << 20, 4),
            &pairs().map(|pairs| (pairs, pairs, 1, message)),
        ),
        // As many messages in flight, on more of them.
        axis(
            "slots spread",
            (256 << 20, 4),
            &pairs().map(|pairs| (pairs, pairs, 1000 / pairs, message)),
        ),
        // As many bytes in flight, as far as messages can be so short.
        axis(
            "message bytes",
            (1 << 30, 1),
            &[(16, 64), (18, 16), (20, 4), (24, 1), (28, 1), (30, 1)]
                .map(|(bits, slots)| (1 << bits, 1, slots, 1 << bits)),
        ),
    ]
}

/// Measures the settings whose axis and value begin with one of `only`, as in
/// "queue pairs 10", `rounds` times each; prints a table or JSON.
pub(crate) fn run(only: &[String], rounds: u32, json: bool) -> Result<()> {
    // Whole words: "queue pairs 10" is not one with 100 of them.
    let is_named = |name: &str, part: &str| format!("{name} ").starts_with(&format!("{part} "));
    let is_wanted = |name: &str| only.is_empty() || only.iter().any(|part| is_named(name, part));
    let mut axes = axes();
    let names = axes.iter().map(|axis| axis.name).collect::<Vec<_>>().join("\", \"");
    for axis in &mut axes {
        axis.settings.retain(|setting| is_wanted(&format!("{} {}", axis.name, setting.value)));
    }
    axes.retain(|axis| !axis.settings.is_empty());
    let is_any = is_wanted("memory") || !axes.is_empty();
    ensure!(is_any, "no setting {only:?}: there are \"{names}\" and \"memory\"");
    let core = *pin::allowed()?.last().context("no core")?;
    pin::this_thread(core)?;
    // First: what others have freed would be taken again without a trace.
    let memory = match is_wanted("memory") {
        true => Some(queue_pair_bytes(10_000)?),
        false => None,
    };
    let mut settings = Vec::new();
    for axis in &axes {
        let source = SendBuffer::new(Arc::new(vec![0x5A; axis.pool_bytes]));
        let mut costs = vec![Vec::new(); axis.settings.len()];
        for _ in 0..rounds {
            let mut buffers = Vec::new();
            for (setting, costs) in axis.settings.iter().zip(&mut costs) {
                let mut fleet = Fleet::new(setting, &source, buffers)?;
                costs.push(fleet.round(axis.passes * axis.pool_bytes)?);
                buffers = fleet.into_buffers();
            }
        }
        for (setting, costs_ns) in axis.settings.iter().zip(&costs) {
            let ratios = costs_ns.iter().zip(&costs[0]).map(|(cost, base)| cost / base).collect();
            let ratios = spread(ratios).context("no rounds")?;
            settings.push(Setting {
                ns_per_packet: spread(costs_ns.clone()).context("no rounds")?.median,
                ratio: ratios.median,
                ratio_least: ratios.least,
                ratio_most: ratios.most,
                ..setting.clone()
            });
        }
    }
    if json {
        for setting in &settings {
            println!("{}", serde_json::to_string(setting)?);
        }
        if let Some(memory) = memory {
            println!("{}", serde_json::json!({ "queue_pair_bytes": memory }));
        }
        return Ok(());
    }
    if !settings.is_empty() {
        println!("axis                  queue pairs  slots  message bytes  CPU ns/packet  ratio");
    }
    for s in &settings {
        println!(
            "{:<21} {:>11} {:>6} {:>14} {:>14.0} {:>6.2} [{:.2}-{:.2}]",
            s.axis,
            s.queue_pairs,
            s.slots,
            s.message_bytes,
            s.ns_per_packet,
            s.ratio,
            s.ratio_least,
            s.ratio_most
        );
    }
    if let Some(memory) = memory {
        println!("a connected queue pair with one receive posted takes {memory} bytes");
    }
    Ok(())
}

/// Queue pairs between two contexts on this thread.
struct Fleet {
    contexts: [Context; 2],
    pairs: Vec<Pair>,
    message_bytes: usize,
    /// What messages are sent from, one behind the other, round and round.
    source: SendBuffer,
    at: usize,
    /// Of the sends and of the receives, if operations complete into queues.
    queues: Option<[CompletionQueue; 2]>,
    found: Vec<Completion>,
}

struct Pair {
    sender: QueuePair,
    receiver: QueuePair,
    posted: VecDeque<RecvHandle>,
    sent: VecDeque<SendHandle>,
    /// Buffers that wait for their turn to be posted.
    spare: VecDeque<Vec<u8>>,
    /// Sends and receives under way that complete into queues.
    queued: [usize; 2],
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
    Ok(Pair { sender, receiver, posted, sent, spare, queued: [0; 2] })
}

impl Pair {
    fn queue_recv(&mut self, buffer: Vec<u8>, number: usize) -> Result<()> {
        self.receiver.queue_recv(buffer, RecvOptions::default(), number as u64)?;
        self.queued[1] += 1;
        Ok(())
    }
}

impl Fleet {
    /// Receives into `buffers`, if they have the right length, else into new ones.
    fn new(setting: &Setting, source: &SendBuffer, mut buffers: Vec<Vec<u8>>) -> Result<Self> {
        // As many as fill the memory, and at least one for each slot.
        let per_pair = source.len() / setting.message_bytes / setting.queue_pairs;
        let per_pair = per_pair.max(setting.slots);
        buffers.retain(|buffer| buffer.len() == setting.message_bytes);
        buffers.resize_with(per_pair * setting.queue_pairs, || vec![0; setting.message_bytes]);
        buffers.sort_by_key(|buffer| buffer.as_ptr());
        let mut buffers = buffers.into_iter();
        let config = ConnectionConfig {
            mode: Mode::SR,
            mtu_bytes: Some(MTU_BYTES as u32),
            chunk_bytes: 64 << 10,
            ..ConnectionConfig::default()
        };
        let contexts = [context()?, context()?];
        // Of each, a send and a receive per slot.
        let entries = (setting.queue_pairs * setting.slots) as u32;
        let queues = match setting.is_queued {
            true => Some([
                contexts[0].completion_queue(entries)?,
                contexts[1].completion_queue(entries)?,
            ]),
            false => None,
        };
        let mut pairs = Vec::new();
        for number in 0..setting.queue_pairs {
            let mut pair = connect(&contexts, &config)?;
            if let Some([sends, receives]) = &queues {
                pair.sender.complete_to(sends)?;
                pair.receiver.complete_to(receives)?;
            }
            for buffer in buffers.by_ref().take(setting.slots) {
                if setting.is_queued {
                    pair.queue_recv(buffer, number)?;
                } else {
                    pair.posted.push_back(pair.receiver.post_recv(buffer)?);
                }
            }
            pair.spare.extend(buffers.by_ref().take(per_pair - setting.slots));
            pairs.push(pair);
        }
        let message_bytes = setting.message_bytes;
        let (source, found) = (source.clone(), Vec::new());
        let mut fleet = Self { contexts, pairs, message_bytes, source, at: 0, queues, found };
        // Memory is touched and the window found before anything counts.
        fleet.round(fleet.source.len())?;
        Ok(fleet)
    }

    fn into_buffers(self) -> Vec<Vec<u8>> {
        let of_pair = |pair: Pair| {
            let posted = pair.posted.into_iter().map(|handle| handle.complete().buffer);
            posted.chain(pair.spare).collect::<Vec<_>>()
        };
        let mut buffers: Vec<_> = self.pairs.into_iter().flat_map(of_pair).collect();
        // Queued receives end with their queue pairs.
        if let Some([_, receives]) = &self.queues {
            let mut found = Vec::new();
            while receives.try_poll(&mut found, BATCH).is_ok_and(|polled| polled > 0) {
                let received = found.drain(..).filter_map(|completion| match completion.outcome {
                    Outcome::Received(ended) => Some(ended.take().buffer),
                    _ => None,
                });
                buffers.extend(received);
            }
        }
        buffers
    }

    /// What is sent next.
    fn message(&mut self) -> Result<SendBuffer> {
        if self.at + self.message_bytes > self.source.len() {
            self.at = 0;
        }
        let message = self.source.part(self.at, self.message_bytes)?;
        self.at += self.message_bytes;
        Ok(message)
    }

    /// Moves `bytes` in all; processor nanoseconds per packet.
    fn round(&mut self, bytes: usize) -> Result<f64> {
        let messages = (bytes / self.message_bytes).max(1);
        let before = pin::thread_time();
        match self.queues.clone() {
            Some(queues) => self.move_queued(messages, &queues)?,
            None => self.move_on_handles(messages)?,
        }
        let took = pin::thread_time() - before;
        let packets = messages * self.message_bytes.div_ceil(MTU_BYTES);
        Ok(took.as_nanos() as f64 / packets as f64)
    }

    /// Lets everything go on that does by itself, so that looking at each queue pair does not cost more than
    /// what is measured.
    fn progress(&self) {
        let [here, there] = &self.contexts;
        for _ in 0..self.pairs.len() {
            if !(here.progress() | there.progress()) {
                break;
            }
        }
    }

    fn move_on_handles(&mut self, messages: usize) -> Result<()> {
        let (mut started, mut done) = (0, 0);
        while done < messages {
            for index in 0..self.pairs.len() {
                while started < messages
                    && self.pairs[index].sent.len() < self.pairs[index].posted.len()
                {
                    let message = self.message()?;
                    let pair = &mut self.pairs[index];
                    pair.sent.push_back(pair.sender.send(message, None)?);
                    started += 1;
                }
            }
            self.progress();
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
        Ok(())
    }

    fn move_queued(&mut self, messages: usize, queues: &[CompletionQueue; 2]) -> Result<()> {
        let [sends, receives] = queues;
        let (mut started, mut done) = (0, 0);
        while done < messages {
            for index in 0..self.pairs.len() {
                while started < messages
                    && self.pairs[index].queued[0] < self.pairs[index].queued[1]
                {
                    let message = self.message()?;
                    let pair = &mut self.pairs[index];
                    let options = QueuedSend { user_data: index as u64, ..QueuedSend::default() };
                    pair.sender.queue_send(message, options)?;
                    pair.queued[0] += 1;
                    started += 1;
                }
            }
            self.progress();
            let mut found = std::mem::take(&mut self.found);
            sends.try_poll(&mut found, BATCH)?;
            for completion in found.drain(..) {
                self.pairs[completion.user_data as usize].queued[0] -= 1;
            }
            receives.try_poll(&mut found, BATCH)?;
            for completion in found.drain(..) {
                let Outcome::Received(ended) = completion.outcome else { continue };
                let index = completion.user_data as usize;
                let pair = &mut self.pairs[index];
                pair.queued[1] -= 1;
                pair.spare.push_back(ended.take().buffer);
                let buffer = pair.spare.pop_front().context("put there")?;
                pair.queue_recv(buffer, index)?;
                done += 1;
            }
            self.found = found;
        }
        Ok(())
    }
}

/// Memory of a connected queue pair with a receive posted, both ends' own
/// structures: what the process grew by, over how many there are.
pub(crate) fn queue_pair_bytes(count: usize) -> Result<u64> {
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
    fn a_setting_that_there_is_not_is_an_error_that_names_those_that_there_are() {
        let error = run(&["queue pair".to_string()], 1, false).unwrap_err().to_string();
        assert!(error.contains("\"queue pairs, short\""), "{error}");
    }

    #[test]
    fn every_setting_moves_its_messages() {
        let source = SendBuffer::new(Arc::new(vec![0x5A; 2 << 20]));
        let settings = axes().into_iter().flat_map(|axis| axis.settings);
        for setting in settings.filter(|s| s.message_bytes <= 1 << 20) {
            let small = Setting {
                queue_pairs: setting.queue_pairs.min(20),
                slots: setting.slots.min(20),
                ..setting
            };
            let mut fleet = Fleet::new(&small, &source, Vec::new()).unwrap();
            fleet.round(1 << 20).unwrap();
            let buffers = fleet.into_buffers();
            let begin = |buffers: &[Vec<u8>]| {
                let mut begin: Vec<_> = buffers.iter().map(Vec::as_ptr).collect();
                begin.sort_unstable();
                begin
            };
            let before = begin(&buffers);
            let next = Fleet::new(&small, &source, buffers).unwrap();
            assert_eq!(begin(&next.into_buffers()), before, "the same buffers");
        }
        queue_pair_bytes(100).unwrap();
    }
}
