//! Turns of contestants: both ends on threads of their own cores, one of them timed.

use super::end::{Contestant, Ends, Role, Wait};
use super::line::Samples;
use super::path::Path;
use crate::pin;
use crate::run::spread;
use anyhow::{Context as _, Result, anyhow};
use std::time::{Duration, Instant};

/// Of a turn's round trips, those that warm up: one of so many.
const WARM_UP: usize = 8;

/// Where the ends of a turn are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sides<'p> {
    pub(super) cores: [usize; 2],
    pub(super) path: &'p Path,
}

impl Sides<'_> {
    /// Runs one thing on the first side and the other on the second; what the first found.
    pub(super) fn both<R: Send>(
        self,
        run: impl FnOnce() -> Result<R> + Send,
        serve: impl FnOnce() -> Result<()> + Send,
    ) -> Result<R> {
        std::thread::scope(|scope| {
            let serving = scope.spawn(move || {
                pin::this_thread(self.cores[1])?;
                self.path.enter(1)?;
                serve()
            });
            let running = scope.spawn(move || {
                pin::this_thread(self.cores[0])?;
                self.path.enter(0)?;
                run()
            });
            let result = running.join().map_err(|_| anyhow!("an end panicked"))?;
            let served = serving.join().map_err(|_| anyhow!("the other end panicked"))?;
            let result = result?;
            served.map(|()| result)
        })
    }
}

/// Half of the median round trip, in microseconds.
pub(super) fn ping_pong(
    [near, far]: &mut Ends,
    sides: Sides<'_>,
    wait: Wait,
    trips: usize,
) -> Result<f64> {
    let all = trips + trips / WARM_UP;
    for end in [&mut *near, &mut *far] {
        end.begin(wait, Role::PingPong)?;
    }
    let run = || -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(all);
        for _ in 0..all {
            let sent = Instant::now();
            near.send()?;
            near.take()?;
            times.push(sent.elapsed());
        }
        Ok(times)
    };
    let serve = || {
        for _ in 0..all {
            far.take()?;
            far.send()?;
        }
        Ok(())
    };
    let times = sides.both(run, serve)?;
    let half_us = times[all - trips..].iter().map(|time| time.as_secs_f64() * 1e6 / 2.0);
    Ok(spread(half_us.collect()).context("no round trips")?.median)
}

/// Seconds until the peer has taken so many messages.
pub(super) fn one_way([near, far]: &mut Ends, sides: Sides<'_>, messages: usize) -> Result<f64> {
    near.begin(Wait::Poll, Role::Sender)?;
    far.begin(Wait::Poll, Role::Receiver)?;
    let run = || {
        let begun = Instant::now();
        for _ in 0..messages {
            near.send()?;
        }
        near.await_peer()?;
        Ok(begun.elapsed().as_secs_f64())
    };
    let serve = || {
        for _ in 0..messages {
            far.take()?;
        }
        far.tell_peer()
    };
    sides.both(run, serve)
}

/// All contestants in all rounds, in turned-around order from round to round. The first round is not counted.
pub(super) fn rounds(
    contestants: &mut [Contestant<'_>],
    count: u32,
    turn: impl Fn(&mut Ends) -> Result<f64>,
) -> Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..=count {
        let mut order: Vec<_> = contestants.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for contestant in order {
            let value = contestant.take(&turn)?;
            if round > 0 {
                samples.add(contestant.name, value);
            }
        }
    }
    for contestant in contestants {
        samples.add_lost_turns(contestant.name, contestant.lost_turns);
    }
    Ok(samples)
}
