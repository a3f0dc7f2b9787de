//! The completion queue alone: what polling costs when there is nothing, and per completion when
//! there is, with entries as long as a completion. Medians of the rounds.
//!
//! Each round begins with a thousand entries filled, so that the time of reading a clock does not
//! count; filling is timed apart. Across cores, the producer fills on another core, and the consumer
//! begins when it has finished: what it pays for is fetching lines from the other core's cache. In
//! the stream both run at once, at the pace of the slower one.

use crate::pin;
use crate::run::spread;
use anyhow::{Context as _, Result, anyhow, ensure};
use lacuna::{Context, ContextConfig, DatapathKind};
use lacuna_completion::Queue;
use serde::Serialize;
use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Entries filled per round.
const ENTRIES: u32 = 1024;
/// Completions per poll.
const BATCH: usize = 16;
/// Completions of one round of the stream: a few milliseconds, so that on a busy machine some rounds
/// run without an interruption, which makes both ends wait.
const STREAM: u32 = 1 << 13;
const EMPTY_POLLS: u32 = 1 << 20;

/// As long as a completion, and with memory of its own to drop.
struct Entry {
    _fields: [u64; 17],
    _buffer: Vec<u8>,
}

impl Entry {
    fn new(number: u32) -> Self {
        Self { _fields: [number.into(); 17], _buffer: Vec::new() }
    }
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    ns: f64,
    ns_least: f64,
    ns_most: f64,
}

/// Measures everything `rounds` times; prints a table.
pub(crate) fn run(rounds: u32, json: bool) -> Result<()> {
    let cores = pin::allowed()?;
    ensure!(rounds > 0, "--rounds must be 1 or more");
    pin::this_thread(cores[0])?;
    let mut lines: Vec<(&'static str, Vec<f64>)> = Vec::new();
    for _ in 0..rounds {
        let mut measured = vec![("poll(64, 0), empty", empty()?)];
        let [push, poll] = queued()?;
        measured.push(("reserve and push, same core", push));
        measured.push(("queued, polls of 16, same core", poll));
        if let Some(&other) = cores.get(1) {
            let [push, poll] = crossed(other)?;
            measured.push(("reserve and push, polled by another core", push));
            measured.push(("queued by another core, polls of 16", poll));
            measured.push(("stream from another core, polls of 16", streamed(other)?));
        }
        for (at, (what, ns)) in measured.into_iter().enumerate() {
            if lines.len() == at {
                lines.push((what, Vec::new()));
            }
            lines[at].1.push(ns);
        }
    }
    if !json {
        println!(
            "nanoseconds per poll (empty) or completion, entries of {} bytes",
            size_of::<Entry>()
        );
    }
    for (what, values) in lines {
        let ns = spread(values).context("no rounds")?;
        let line = Line { what, ns: ns.median, ns_least: ns.least, ns_most: ns.most };
        if json {
            println!("{}", serde_json::to_string(&line)?);
        } else {
            println!("{what:<42} {:>7.1} [{:.1}-{:.1}]", ns.median, ns.least, ns.most);
        }
    }
    Ok(())
}

/// A poll of an empty queue of a context with threads, as programs see it.
fn empty() -> Result<f64> {
    let datapath = DatapathKind::Mem(lacuna_datapath::MemNetwork::new());
    let context = Context::new(ContextConfig { datapath, ..ContextConfig::default() })?;
    let queue = context.completion_queue(ENTRIES)?;
    let mut found = Vec::with_capacity(64);
    let begun = Instant::now();
    for _ in 0..EMPTY_POLLS {
        let count = black_box(&queue).poll(&mut found, 64, black_box(Duration::ZERO));
        ensure!(count == Ok(0), "there is a completion");
    }
    Ok(per(begun.elapsed(), EMPTY_POLLS))
}

/// Reserves and pushes one by one until the queue is full.
fn fill(queue: &Queue<Entry, ()>) -> Result<Duration> {
    let begun = Instant::now();
    for number in 0..ENTRIES {
        queue.reserve(1)?.push(Entry::new(number), false);
    }
    Ok(begun.elapsed())
}

/// Polls until the queue is empty.
fn drain(queue: &Queue<Entry, ()>, found: &mut Vec<Entry>) -> Result<Duration> {
    let begun = Instant::now();
    let mut count = 0;
    while count < ENTRIES as usize {
        found.clear();
        count += queue.poll(black_box(found), BATCH);
    }
    let took = begun.elapsed();
    ensure!(count == ENTRIES as usize && queue.ring().is_empty(), "{count} completions");
    Ok(took)
}

/// Both ends on this core: a push, and a completion of a poll.
fn queued() -> Result<[f64; 2]> {
    const TURNS: u32 = 64;
    let queue = Queue::new(ENTRIES, ())?;
    let mut found = Vec::with_capacity(BATCH);
    let (mut push, mut poll) = (Duration::ZERO, Duration::ZERO);
    for turn in 0..=TURNS {
        let (pushed, polled) = (fill(&queue)?, drain(&queue, &mut found)?);
        // The first turn touches the memory.
        if turn > 0 {
            (push, poll) = (push + pushed, poll + polled);
        }
    }
    Ok([per(push, TURNS * ENTRIES), per(poll, TURNS * ENTRIES)])
}

/// As [`queued`], with the producer on core `other`; they take turns.
fn crossed(other: usize) -> Result<[f64; 2]> {
    const TURNS: u32 = 64;
    let queue = Queue::new(ENTRIES, ())?;
    let barrier = Barrier::new(2);
    let mut found = Vec::with_capacity(BATCH);
    let (mut poll, mut polls) = (Duration::ZERO, Ok(()));
    let push = std::thread::scope(|scope| {
        let producer = scope.spawn(|| -> Result<Duration> {
            let mut push = pin::this_thread(other).map(|()| Duration::ZERO);
            for turn in 0..=TURNS {
                let pushed = fill(&queue);
                barrier.wait();
                barrier.wait();
                if turn > 0 {
                    push = push.and_then(|push| Ok(push + pushed?));
                }
            }
            push
        });
        for turn in 0..=TURNS {
            barrier.wait();
            match drain(&queue, &mut found) {
                Ok(polled) if turn > 0 => poll += polled,
                Ok(_) => {}
                Err(error) => polls = Err(error),
            }
            barrier.wait();
        }
        producer.join().map_err(|_| anyhow!("the producer panicked"))?
    })?;
    polls?;
    Ok([per(push, TURNS * ENTRIES), per(poll, TURNS * ENTRIES)])
}

/// A producer on core `other` and a consumer here, both at full speed.
fn streamed(other: usize) -> Result<f64> {
    let queue = Queue::new(ENTRIES, ())?;
    let begin = Barrier::new(2);
    let mut found = Vec::with_capacity(BATCH);
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| -> Result<()> {
            let pinned = pin::this_thread(other);
            begin.wait();
            for number in 0..STREAM {
                let mut reservation = loop {
                    match queue.reserve(1) {
                        Ok(reservation) => break reservation,
                        Err(_) => spin_loop(),
                    }
                };
                reservation.push(Entry::new(number), false);
            }
            pinned
        });
        begin.wait();
        let begun = Instant::now();
        let mut count = 0;
        while count < STREAM as usize {
            found.clear();
            count += queue.poll(black_box(&mut found), BATCH);
        }
        let took = begun.elapsed();
        producer.join().map_err(|_| anyhow!("the producer panicked"))??;
        Ok(per(took, STREAM))
    })
}

fn per(took: Duration, count: u32) -> f64 {
    took.as_nanos() as f64 / f64::from(count)
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_lines_are_measured() {
        super::run(1, true).unwrap();
    }
}
