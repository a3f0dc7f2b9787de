//! One queue pair and ten thousand peers: what a message costs beside one peer's, and what a peer costs in memory.
//!
//! **Time** is the processor time of the queue pair's thread for a small Send and the peer's Send back. In a phase it posts
//! some messages, each to the next peer, and lets each leave before the next is posted, so that each is one datagram
//! in one system call, of one peer as of ten thousand. Then the peers answer, on the other core, and then the
//! queue pair takes the answers; nobody waits by looking. Bundles are the same with one peer, a queue
//! pair too, where both sides may send what they have at once.
//!
//! **Memory** is what the heap grew by, to the byte.

use super::Effort;
use super::echo::Echo;
use super::end::Wait;
use super::hub::Hub;
use super::line::{Goal, Printer, Samples};
use super::turn::Sides;
use crate::{heap, pin, scale};
use anyhow::{Result, anyhow};
use lacuna::datagram::PeerId;
use std::sync::mpsc;

/// Messages of a phase.
const PHASE: usize = 256;
const PEERS: usize = 10_000;
/// Of one peer's, both with one datagram a message, at most.
const COST_GOAL: f64 = 1.3;
const HEAP_GOAL_BYTES: f64 = 2e6;
const ONE: &str = "1 peer";
const MANY: &str = "10,000 peers";
const BUNDLES: &str = "1 peer, bundles";

/// How messages leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    Each,
    Together,
}

/// Measures over loopback.
pub(super) fn run(sides: Sides<'_>, effort: Effort, out: &mut Printer) -> Result<()> {
    memory(out)?;
    let echo = Echo::new()?;
    let (one, many) = (Hub::new(2 * PHASE)?, Hub::new(2 * PHASE)?);
    let ones = one.meet_all(&echo, 1)?;
    let manys = many.meet_all(&echo, PEERS)?;
    let (bundled, answering) = (Hub::new(2 * PHASE)?, Hub::new(2 * PHASE)?);
    let other = vec![bundled.meet(answering.queue_pair.local_addr())?];
    let back = answering.meet(bundled.queue_pair.local_addr())?;
    // Each peer is met some times in a round.
    let phases = (effort.peer_messages / PHASE).max(1);
    let echo_all = || {
        let mut left = PHASE;
        while left > 0 {
            left -= usize::from(echo.once(Wait::Block)?);
        }
        Ok(())
    };
    let answer_all = || {
        for _ in 0..PHASE {
            answering.take()?;
        }
        (0..PHASE).try_for_each(|_| answering.post(back))?;
        answering.flush()
    };
    let mut samples = Samples::default();
    for round in 0..=effort.rounds {
        let mut add = |name, ns: f64| {
            if round > 0 {
                samples.add(name, ns);
            }
        };
        add(ONE, turn(sides, &one, (&ones, Leave::Each), phases, echo_all)?);
        add(MANY, turn(sides, &many, (&manys, Leave::Each), phases, echo_all)?);
        add(BUNDLES, turn(sides, &bundled, (&other, Leave::Together), phases, answer_all)?);
    }
    out.figures("send + receive", "ns CPU", super::hub::BYTES, &samples)?;
    let ratio = "send + receive of a message, 10,000 peers / 1 peer";
    out.judge(ratio, samples.ratios(MANY, ONE), Some(Goal::AtMost(COST_GOAL)))?;
    let ratio = "send + receive of a message, 10,000 peers / 1 peer in bundles";
    out.judge(ratio, samples.ratios(MANY, BUNDLES), None)?;
    Ok(())
}

/// Processor nanoseconds of the queue pair's thread for a message and its answer.
fn turn(
    sides: Sides<'_>,
    hub: &Hub,
    (peers, leave): (&[PeerId], Leave),
    phases: usize,
    answer: impl Fn() -> Result<()> + Send + Sync,
) -> Result<f64> {
    let (sent, are_sent) = mpsc::channel::<()>();
    let (answered, are_answered) = mpsc::channel::<()>();
    let run = move || {
        let mut next = peers.iter().copied().cycle();
        let before = pin::thread_time();
        for _ in 0..phases {
            for _ in 0..PHASE {
                hub.post(next.next().expect("there are peers"))?;
                if leave == Leave::Each {
                    hub.queue_pair.progress();
                }
            }
            hub.flush()?;
            sent.send(())?;
            are_answered.recv().map_err(|_| anyhow!("the peers have ended"))?;
            for _ in 0..PHASE {
                hub.take()?;
            }
        }
        let took = pin::thread_time() - before;
        Ok(took.as_nanos() as f64 / (phases * PHASE) as f64)
    };
    let serve = move || {
        while are_sent.recv().is_ok() {
            answer()?;
            answered.send(())?;
        }
        Ok(())
    };
    sides.both(run, serve)
}

/// What peers and connections take.
fn memory(out: &mut Printer) -> Result<()> {
    // First: what others have freed would be taken again without a trace.
    let connection_bytes = scale::queue_pair_bytes(PEERS)? as f64;
    let echo = Echo::new()?;
    let hub = Hub::new(2 * PHASE)?;
    let (peers, idle) = heap::growth_bytes(|| hub.meet_all(&echo, PEERS));
    let peers = peers?;
    // All of them have something to send, and nothing leaves.
    let (posted, active) = heap::growth_bytes(|| peers.iter().try_for_each(|peer| hub.post(*peer)));
    posted?;
    let (left, after) = heap::growth_bytes(|| hub.flush());
    left?;
    out.figure("heap", "10,000 idle peers", "bytes", idle as f64)?;
    out.figure("heap", "each active peer, beside that", "bytes", active as f64 / PEERS as f64)?;
    let kept = (active + after) as f64 / PEERS as f64;
    out.figure("heap", "of that kept when all are idle again", "bytes", kept)?;
    out.figure(
        "resident memory",
        "each of 10,000 connections' queue pairs",
        "bytes",
        connection_bytes,
    )?;
    let ratio = "heap of 10,000 idle peers / 2 MB";
    out.judge(ratio, vec![idle as f64 / HEAP_GOAL_BYTES], Some(Goal::AtMost(1.0)))?;
    Ok(())
}
