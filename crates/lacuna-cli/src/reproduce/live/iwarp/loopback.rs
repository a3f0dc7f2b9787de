//! Messages over loopback between two threads of this process: back and forth (figure 5), and one way (figure 6).
//!
//! The ends are of TCP (`tcp`) or datagram queue pairs (`datagram`), and nobody else makes progress: a thread that
//! polls looks again and again, one that blocks sleeps until the system wakes it.

mod datagram;
mod tcp;

use crate::failure::Failure;
use crate::interrupt;
use lacuna_reproduce::iwarp::loopback::{Flow, Ping, Waiting, Way};
use lacuna_service::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) use datagram::PACKET_BYTES;

/// How long an end that blocks sleeps before it looks whether all is over.
const TURN: Duration = Duration::from_millis(20);
/// A message that has not come back after this is lost.
const LOST: Duration = Duration::from_millis(200);
/// Lost messages in a row that end a measurement.
const LOST_MAX: u32 = 10;
/// Round trips that a median is of at least, and how much longer than asked for they may take on a busy machine.
const ROUNDS_MIN: usize = 20;
const LONGER_MAX: u32 = 20;
/// Part of the time before anything counts.
const WARM_UP_SHARE: u32 = 5;
/// Round trips whose times are kept, at most.
const ROUNDS_MAX: usize = 1 << 22;

/// An end of a way.
trait End: Send {
    /// Sends a message; of one way as soon as there is room for it.
    fn send(&mut self) -> Result<(), String>;

    /// Looks for a message, or a part of one that counts by itself: how many bytes came.
    fn take(&mut self) -> Result<u64, String>;
}

/// Two ends of a way.
type Ends = (Box<dyn End>, Box<dyn End>);

/// How ends are made.
#[derive(Debug, Clone, Copy)]
struct Kind {
    way: Way,
    waiting: Waiting,
    message_bytes: usize,
    /// Messages go one way, many at a time.
    is_flow: bool,
}

fn open(kind: Kind) -> Result<Ends, String> {
    match kind.way {
        Way::Tcp | Way::TcpGathered => tcp::open(kind).map_err(|error| error.to_string()),
        Way::Send | Way::WriteRecord => datagram::open(kind),
    }
}

/// The median of half of the round trips, in ns; in one line why there is none.
///
/// # Errors
/// When it was interrupted.
pub(super) fn latency(ping: &Ping, time: Duration) -> Result<Result<f64, String>, Failure> {
    let Ping { way, waiting, message_bytes } = *ping;
    let kind = Kind { way, waiting, message_bytes: message_bytes as usize, is_flow: false };
    ended(open(kind).and_then(|ends| ping_pong(ends, message_bytes.into(), time)))
}

/// Payload that came in bits per second; in one line why there is none.
///
/// # Errors
/// When it was interrupted.
pub(super) fn bandwidth(flow: &Flow, time: Duration) -> Result<Result<f64, String>, Failure> {
    let Flow { way, message_bytes } = *flow;
    let waiting = Waiting::Blocking;
    let kind = Kind { way, waiting, message_bytes: message_bytes as usize, is_flow: true };
    ended(open(kind).and_then(|ends| stream(ends, time)))
}

fn ended<T>(result: T) -> Result<T, Failure> {
    if interrupt::requested() { Err(Failure::Interrupted) } else { Ok(result) }
}

/// Runs `work` on a thread until `over`, and `measure` here.
fn beside<T>(
    over: &Arc<AtomicBool>,
    work: impl FnOnce() -> Result<(), String> + Send + 'static,
    measure: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let other = thread::start("lacuna-loopback", work).map_err(|error| error.to_string())?;
    let measured = measure();
    over.store(true, Ordering::Relaxed);
    let worked = other.join().map_err(|_| "a thread panicked".to_owned())?;
    // An end that has failed is why the other one has nothing.
    worked.and(measured)
}

fn ping_pong((mut near, mut far): Ends, message_bytes: u64, time: Duration) -> Result<f64, String> {
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let answer = move || {
        let mut came = 0;
        while !is_over.load(Ordering::Relaxed) {
            came += far.take()?;
            if came >= message_bytes {
                came = 0;
                far.send()?;
            }
        }
        Ok(())
    };
    beside(&over, answer, || {
        let mut halves: Vec<f64> = Vec::new();
        let began = Instant::now();
        let mut lost = 0;
        let goes_on = |rounds: usize| {
            let elapsed = began.elapsed();
            let is_short = rounds < ROUNDS_MIN && elapsed < time * LONGER_MAX;
            rounds < ROUNDS_MAX && (elapsed < time || is_short) && !interrupt::requested()
        };
        while goes_on(halves.len()) {
            let sent = Instant::now();
            near.send()?;
            let mut came = 0;
            while came < message_bytes && sent.elapsed() < LOST {
                came += near.take()?;
            }
            let took = sent.elapsed();
            if came < message_bytes {
                lost += 1;
                if lost >= LOST_MAX {
                    return Err("messages are lost over loopback".to_owned());
                }
                continue;
            }
            lost = 0;
            if began.elapsed() >= time / WARM_UP_SHARE {
                halves.push(took.as_nanos() as f64 / 2.0);
            }
        }
        halves.sort_by(f64::total_cmp);
        halves.get(halves.len() / 2).copied().ok_or_else(|| "no message came back".to_owned())
    })
}

fn stream((mut near, mut far): Ends, time: Duration) -> Result<f64, String> {
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let send = move || {
        while !is_over.load(Ordering::Relaxed) {
            near.send()?;
        }
        Ok(())
    };
    let warm_up = time / WARM_UP_SHARE;
    beside(&over, send, || {
        let began = Instant::now();
        while began.elapsed() < warm_up && !interrupt::requested() {
            far.take()?;
        }
        let (began, mut bytes) = (Instant::now(), 0);
        while began.elapsed() < time && !interrupt::requested() {
            bytes += far.take()?;
        }
        let seconds = began.elapsed().as_secs_f64();
        // What is on its way goes into the void, so that the sender does not wait for room.
        over.store(true, Ordering::Relaxed);
        let drained = Instant::now();
        while drained.elapsed() < 2 * TURN && far.take().is_ok() {}
        Ok(bytes as f64 * 8.0 / seconds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(60);

    #[test]
    fn every_way_brings_messages_there_and_back() {
        for way in [Way::Tcp, Way::Send, Way::WriteRecord] {
            for waiting in [Waiting::Polling, Waiting::Blocking] {
                for message_bytes in [1, 100_000] {
                    let ping = Ping { way, waiting, message_bytes };
                    let ns = latency(&ping, TIME).expect("not interrupted");
                    assert!(ns.as_ref().is_ok_and(|ns| *ns > 0.0), "{}: {ns:?}", ping.words());
                }
            }
        }
    }

    #[test]
    fn every_way_brings_messages_one_way() {
        for way in [Way::Tcp, Way::TcpGathered, Way::Send, Way::WriteRecord] {
            for message_bytes in [64, 100_000] {
                let flow = Flow { way, message_bytes };
                let rate = bandwidth(&flow, TIME).expect("not interrupted");
                assert!(rate.as_ref().is_ok_and(|rate| *rate > 0.0), "{}: {rate:?}", flow.words());
            }
        }
    }
}
