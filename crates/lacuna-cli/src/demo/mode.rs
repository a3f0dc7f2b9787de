//! One mode of the demo: sends its messages one by one over a path of its own, each into a receive
//! that was posted beforehand, and compares every byte.

use super::DemoArgs;
use super::path::{Path, Ways};
use super::result::{ModeResult, Seen};
use crate::capture::Capture;
use crate::chunks::Chunks;
use crate::failure::{Ending, Failure};
use crate::interrupt::POLL_INTERVAL;
use crate::memory;
use crate::output::Output;
use lacuna::{Completed, Connection, ConnectionConfig, Mode, RecvError, SendBuffer, SendError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a receive without repair is checked; this is the error of its time.
const CHECK_INTERVAL_RAW: Duration = Duration::from_millis(2);
/// How long posting a receive and announcing it may take.
const POSTED_WITHIN: Duration = Duration::from_secs(30);

/// Sends all messages of a mode. If `stop` or a failure ends it early, returns the result so far,
/// `None` if there is none.
pub(super) fn run(
    args: &DemoArgs,
    ways: &Ways,
    mode: Mode,
    capture: &Capture,
    output: Output,
    stop: &dyn Fn() -> bool,
) -> (Option<ModeResult>, Option<Failure>) {
    let path = match open(args, ways, mode, capture) {
        Ok(path) => path,
        Err(failure) => return (None, Some(failure)),
    };
    output.note(&format!("{:#}", path.sender.chosen()));
    let mut seen = Seen {
        times: Vec::new(),
        missing_chunks: 0,
        missing_bytes: 0,
        ended: BTreeMap::new(),
        verified: true,
        ending: Ending::default(),
    };
    let ended = send_all(args, &path, mode, &mut seen, output, stop).err();
    seen.ending = Ending::of(ended.as_ref());
    let has_some = !seen.times.is_empty();
    let result = has_some.then(|| ModeResult {
        capture: capture.so_far(),
        ..ModeResult::new(args, ways, mode, &path, seen)
    });
    (result, ended)
}

fn open(args: &DemoArgs, ways: &Ways, mode: Mode, capture: &Capture) -> Result<Path, Failure> {
    let ideal = Duration::from_secs_f64(args.ideal_s());
    Path::open(ways, args.seed, capture, |config| ConnectionConfig {
        mode,
        chunk_bytes: args.chunk.unwrap_or(config.chunk_bytes),
        mtu_bytes: Some(args.mtu),
        wire: args.wire,
        rate_bits_per_s: (!args.find_rate).then_some(args.rate),
        // Nothing may hang: ten times the ideal time plus time for a bad path.
        deadline: ideal.saturating_mul(10).saturating_add(POSTED_WITHIN),
        ..config
    })
}

fn send_all(
    args: &DemoArgs,
    path: &Path,
    mode: Mode,
    seen: &mut Seen,
    output: Output,
    stop: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let mut buffer = memory::zeroed(args.size as usize)?;
    for run in 0..args.runs {
        if stop() {
            return Err(Failure::Interrupted);
        }
        let mut message = memory::zeroed(args.size as usize)?;
        fill(&mut message, args.seed.wrapping_add(u64::from(run)));
        let message = Arc::new(message);
        let (took, done) = one_message(path, mode, &message, buffer, args.rtt, stop)?;
        compare(seen, &path.receiver, mode, &message, &done);
        seen.times.push(took);
        buffer = done.buffer;
        if !matches!(mode, Mode::Bounded(_)) {
            // A bounded mode zeroes what is missing; so the comparison sees whether it does.
            buffer.fill(0);
        }
        let took_ms = took.as_secs_f64() * 1e3;
        output.note(&format!("{mode}: run {} of {}: {took_ms:.1} ms", run + 1, args.runs));
    }
    Ok(())
}

/// Compares the received message with the sent one.
fn compare(seen: &mut Seen, receiver: &Connection, mode: Mode, message: &[u8], done: &Completed) {
    *seen.ended.entry(done.reason.name()).or_default() += 1;
    let chunks = Chunks::new(receiver.chosen(), message.len() as u64);
    for (bytes, is_here) in chunks.of(done) {
        if is_here {
            seen.verified &= done.buffer[bytes.clone()] == message[bytes];
        } else {
            seen.missing_chunks += 1;
            seen.missing_bytes += bytes.len() as u64;
            seen.verified &= !mode.is_reliable();
        }
    }
    if matches!(mode, Mode::Bounded(_)) {
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        seen.verified &= done.packets.gaps().all(|gap| is_zero(&done.buffer[gap]));
    }
}

/// Sends one message into a receive that the sender knows of. Returns the time until the sender
/// knew that the receive was over; in mode `raw` the wait for packets that were lost does not count.
fn one_message(
    path: &Path,
    mode: Mode,
    message: &Arc<Vec<u8>>,
    buffer: Vec<u8>,
    rtt: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<(Duration, Completed), Failure> {
    let (sender, receiver) = (&path.sender, &path.receiver);
    let posted = receiver.post_recv(buffer).map_err(|error| Failure::Local(error.to_string()))?;
    sender.wait_clear_to_send(POSTED_WITHIN)?;
    let start = Instant::now();
    let send = sender
        .start_send(SendBuffer::new(message.clone()), None)
        .map_err(|error| Failure::Network(error.to_string()))?;
    if let Mode::Bounded(_) = mode {
        while posted.wait_over(POLL_INTERVAL).is_none() {
            send.status().outcome.transpose().map_err(SendError::Failed)?;
            if stop() {
                return Err(Failure::Interrupted);
            }
        }
        let done = posted.complete();
        if !send.wait_finished(POSTED_WITHIN) {
            return Err(Failure::Network("the sender heard nothing of its message".to_owned()));
        }
        return Ok((start.elapsed(), done));
    }
    if !mode.is_reliable() {
        // Everything was sent; what does not arrive within two round trips was lost. The receiver
        // tells the sender by closing.
        let quiet_max = rtt * 2 + Duration::from_millis(200);
        let (mut chunks_done, mut last) = (0, start);
        while !posted.is_complete() {
            if stop() {
                return Err(Failure::Interrupted);
            }
            let is_sent = send.status().outcome.transpose().map_err(SendError::Failed)?.is_some();
            if posted.chunks_done() != chunks_done || !is_sent {
                (chunks_done, last) = (posted.chunks_done(), Instant::now());
            } else if last.elapsed() > quiet_max {
                break;
            }
            match posted.wait(CHECK_INTERVAL_RAW) {
                Ok(()) => last = Instant::now(),
                Err(RecvError::Deadline { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Modes that repair are measured until the sender knows; without repair, the wait for lost
        // packets does not count.
        let arrived = last - start;
        let told = Instant::now();
        let done = posted.complete();
        if !send.wait_finished(POSTED_WITHIN) {
            return Err(Failure::Network("the sender heard nothing of its message".to_owned()));
        }
        return Ok((arrived + told.elapsed(), done));
    }
    while !send.wait_finished(POLL_INTERVAL) {
        send.status().outcome.transpose().map_err(SendError::Failed)?;
        if stop() {
            return Err(Failure::Interrupted);
        }
    }
    let took = start.elapsed();
    posted.wait(POSTED_WITHIN)?;
    Ok((took, posted.complete()))
}

/// Pseudo-random bytes.
fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_add(0x9E37_79B9_7F4A_7C15).max(1);
    for word in bytes.chunks_mut(8) {
        // xorshift64 (Marsaglia 2003); the state must not be zero.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn contents_follow_from_the_seed_alone() {
        let contents = |seed| {
            let mut bytes = [0; 21];
            fill(&mut bytes, seed);
            bytes
        };
        assert_eq!(contents(3), contents(3));
        assert_ne!(contents(3), contents(4));
        // The seed that would make the generator stand still.
        assert_ne!(contents(0u64.wrapping_sub(0x9E37_79B9_7F4A_7C15)), [0; 21]);
    }
}
