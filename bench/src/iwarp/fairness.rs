//! One greedy peer and 99 small ones, at one queue pair.
//!
//! The greedy one is sent 8 MiB Write-Records without a pause, as fast as the host can: there is always another one
//! posted. It is a socket that nobody reads, so that what it costs is its packets' way out. The small ones are sent a
//! small message and answer it; each is told the next once it has answered. In one pattern all of them are asked at the same time, in the other one after the other. Their round trips are measured alone and beside the
//! greedy one, in turns.

use super::Effort;
use super::datagram::queue_pair;
use super::echo::Echo;
use super::end::{Wait, look_until};
use super::hub::{Hub, PACKET_BYTES};
use super::line::{Goal, Printer, Samples};
use super::turn::Sides;
use anyhow::{Context as _, Result};
use lacuna::SendBuffer;
use lacuna::datagram::{PeerId, QueuePair, SendWork, Target, Verb};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const SMALL_PEERS: usize = 99;
const GREEDY_BYTES: usize = 8 << 20;
/// Messages of the greedy one that are posted.
const GREEDY_AHEAD: usize = 2;
/// Of a small one's alone, at most.
const GOAL: f64 = 2.0;
const ALONE: &str = "alone";
const BESIDE: &str = "beside a greedy one";

/// How many of the small peers are asked at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pattern {
    All,
    OneByOne,
}

struct Greedy {
    peer: PeerId,
    data: SendBuffer,
    _unread: QueuePair,
}

/// Measures over loopback.
pub(super) fn run(sides: Sides<'_>, effort: Effort, out: &mut Printer) -> Result<()> {
    let echo = Echo::new()?;
    let hub = Hub::new(2 * SMALL_PEERS)?;
    let peers = hub.meet_all(&echo, SMALL_PEERS)?;
    let unread = queue_pair(Ipv4Addr::LOCALHOST.into(), PACKET_BYTES)?;
    let greedy = Greedy {
        peer: hub.meet(unread.local_addr())?,
        data: SendBuffer::new(Arc::new(vec![0x5A; GREEDY_BYTES])),
        _unread: unread,
    };
    let patterns = [(Pattern::All, "all at a time"), (Pattern::OneByOne, "one by one")];
    for (pattern, name) in patterns {
        // Round trips by peer, alone and beside.
        let mut trips = [vec![Vec::new(); SMALL_PEERS], vec![Vec::new(); SMALL_PEERS]];
        let mut samples = Samples::default();
        let mut greedy_gbit = Samples::default();
        for round in 0..=effort.rounds {
            for is_beside in [round % 2 == 1, round % 2 == 0] {
                let with = is_beside.then_some(&greedy);
                let turn = turn(sides, &echo, (&hub, &peers), with, pattern, effort.trips / 8)?;
                if round == 0 {
                    continue;
                }
                let all: Vec<f64> = turn.trips_us.iter().flatten().copied().collect();
                samples.add(if is_beside { BESIDE } else { ALONE }, percentile_99(all));
                if is_beside {
                    greedy_gbit.add("greedy", turn.greedy_gbit);
                }
                for (into, new) in trips[usize::from(is_beside)].iter_mut().zip(turn.trips_us) {
                    into.extend(new);
                }
            }
        }
        out.figures(&format!("p99, {name}"), "us", super::hub::BYTES, &samples)?;
        out.figures("beside them", "Gbit/s", GREEDY_BYTES, &greedy_gbit)?;
        let [alone, beside] = trips.map(|peers| peers.into_iter().map(percentile_99));
        let ratios: Vec<f64> = beside.zip(alone).map(|(beside, alone)| beside / alone).collect();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        let ratio = format!("p99 of small peers beside a greedy one / alone, {name}");
        out.judge(&ratio, ratios, None)?;
        let ratio = format!("the worst small peer's, {name}");
        out.judge(&ratio, vec![worst], Some(Goal::AtMost(GOAL)))?;
    }
    Ok(())
}

struct Turn {
    trips_us: Vec<Vec<f64>>,
    greedy_gbit: f64,
}

fn turn(
    sides: Sides<'_>,
    echo: &Echo,
    (hub, peers): (&Hub, &[PeerId]),
    greedy: Option<&Greedy>,
    pattern: Pattern,
    trips: usize,
) -> Result<Turn> {
    let is_over = AtomicBool::new(false);
    let run = || {
        let result = play(hub, peers, greedy, pattern, trips);
        is_over.store(true, Ordering::Relaxed);
        result
    };
    sides.both(run, || {
        while !is_over.load(Ordering::Relaxed) {
            echo.once(Wait::Poll)?;
        }
        Ok(())
    })
}

fn play(
    hub: &Hub,
    peers: &[PeerId],
    greedy: Option<&Greedy>,
    pattern: Pattern,
    trips: usize,
) -> Result<Turn> {
    let numbers: HashMap<PeerId, usize> = peers.iter().copied().zip(0..).collect();
    let begun = Instant::now();
    let mut sent = vec![begun; peers.len()];
    let mut trips_us = vec![Vec::with_capacity(trips); peers.len()];
    let mut greedy_messages = 0;
    let feed = |greedy: &Greedy| {
        let to = Target { key: 1, offset: 0 };
        let verb = Verb::WriteRecord { data: greedy.data.clone(), to };
        hub.queue_pair.post_send(SendWork::new(1, greedy.peer, verb))
    };
    if let Some(greedy) = greedy {
        (0..GREEDY_AHEAD).try_for_each(|_| feed(greedy))?;
    }
    let ask = |number: usize, sent: &mut [Instant]| -> Result<()> {
        sent[number] = Instant::now();
        hub.post(peers[number])
    };
    match pattern {
        Pattern::All => (0..peers.len()).try_for_each(|number| ask(number, &mut sent))?,
        Pattern::OneByOne => ask(0, &mut sent)?,
    }
    for _ in 0..trips * peers.len() {
        let peer = look_until(|| {
            hub.poll(|_| {
                // The greedy one's: the next goes behind the one that is still there.
                greedy_messages += 1;
                Ok(greedy.map_or(Ok(()), feed)?)
            })
        })?;
        let number = *numbers.get(&peer).context("only small ones answer")?;
        trips_us[number].push(sent[number].elapsed().as_secs_f64() * 1e6);
        match pattern {
            Pattern::All if trips_us[number].len() < trips => ask(number, &mut sent)?,
            Pattern::All => {}
            Pattern::OneByOne => ask((number + 1) % peers.len(), &mut sent)?,
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let greedy_gbit = (greedy_messages * GREEDY_BYTES * 8) as f64 / seconds / 1e9;
    // What is on its way now is no part of the next turn.
    hub.flush()?;
    if pattern == Pattern::OneByOne {
        hub.take()?;
    }
    while hub.queue_pair.poll().is_some() {}
    Ok(Turn { trips_us, greedy_gbit })
}

fn percentile_99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = values.len() * 99 / 100;
    values.get(at).copied().unwrap_or(0.0)
}
