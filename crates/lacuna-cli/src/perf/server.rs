//! The receiving end: posts receives, polls them in order, completes and posts
//! again.

use super::protocol::{Answer, Counters, Done, LENT_BYTES_MAX, Request, receive, send};
use super::{ServerArgs, cpu, pattern};
use crate::failure::Failure;
use crate::output::Output;
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener, RecvHandle};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How long a path must be quiet before a message without repair is given up
/// that nothing came after: above most round trips.
const QUIET: Duration = Duration::from_millis(300);
/// Longest single wait, so that the end of the measurement is noticed.
const NAP: Duration = Duration::from_millis(50);

pub(super) fn run(args: &ServerArgs, output: Output) -> Result<(), Failure> {
    let context = Context::new(ContextConfig {
        bind: args.listen.ip(),
        channels: args.end.channels,
        progress: args.end.progress(),
        datapath: args.end.datapath(),
        ..ContextConfig::default()
    })?;
    let config = ConnectionConfig { deadline: Duration::MAX, ..ConnectionConfig::default() };
    let listener = Listener::bind(&context, args.listen, config)?;
    output.note(&format!("listening on {}", listener.local_addr()));
    loop {
        let served = serve(&listener, output);
        match (served, args.once) {
            (Err(failure), true) => return Err(failure),
            (Err(failure), false) => output.note(&format!("lacuna: {failure}")),
            (Ok(()), true) => return Ok(()),
            (Ok(()), false) => {}
        }
    }
}

/// One client, from its request to its counters.
fn serve(listener: &Listener, output: Output) -> Result<(), Failure> {
    let session = listener.accept()?;
    let request: Request = receive(&session)?;
    let lent = request.size_bytes.saturating_mul(u64::from(request.inflight));
    if lent > LENT_BYTES_MAX || request.inflight == 0 {
        let reason = format!(
            "{} messages of {} bytes: this server lends {LENT_BYTES_MAX} bytes at most",
            request.inflight, request.size_bytes
        );
        return send(&session, &Answer::Refused { reason });
    }
    send(&session, &Answer::Ready)?;
    let measured = listener.accept()?;
    output.note(&format!("{}: {}", measured.peer(), measured.chosen()));
    // The session tells how many messages there were; it is read on the side.
    let expected = Arc::new(AtomicU64::new(u64::MAX));
    let (tell, told) = mpsc::channel();
    let reader = {
        let (session, expected) = (session.clone(), expected.clone());
        std::thread::spawn(move || {
            let done: Result<Done, Failure> = receive(&session);
            expected.store(done.as_ref().map_or(0, |done| done.messages), Ordering::Release);
            // The measuring side may have ended already.
            let _ = tell.send(done.map(|_| ()));
        })
    };
    let cpu_before_s = cpu::process_s();
    let counters = take(&measured, &request, &expected);
    let told = told.recv().unwrap_or(Err(Failure::Interrupted));
    // The reader has told, so it is about to end.
    let _ = reader.join();
    told?;
    let mut counters = counters?;
    counters.cpu_s = cpu::process_s() - cpu_before_s;
    send(&session, &counters)
}

/// Receives until as many messages were taken as the client says it sent.
fn take(
    measured: &Connection,
    request: &Request,
    expected: &AtomicU64,
) -> Result<Counters, Failure> {
    let size = request.size_bytes as usize;
    let mut posted: VecDeque<RecvHandle> = VecDeque::new();
    for _ in 0..request.inflight {
        posted.push_back(post(measured, vec![0; size])?);
    }
    let mut counters = Counters {
        complete: 0,
        missing_chunks: 0,
        wrong: 0,
        first_wrong: None,
        lost_packets: 0,
        duplicate_packets: 0,
        rejected_packets: 0,
        receive_drops: 0,
        cpu_s: 0.0,
    };
    let mut taken = 0u64;
    let mut patience = Patience::new();
    while taken < expected.load(Ordering::Acquire) {
        if !is_over(&posted, &mut patience, expected, taken, measured)? {
            continue;
        }
        let Some(front) = posted.pop_front() else { break };
        let chunks = front.chunks();
        let done = front.complete();
        if done.is_complete {
            counters.complete += 1;
            check(request, &done.buffer[..done.len.unwrap_or(0)], taken, &mut counters);
        } else {
            let here: u32 = done.chunks.iter().map(|word| word.count_ones()).sum();
            counters.missing_chunks += u64::from(chunks.saturating_sub(here));
        }
        taken += 1;
        posted.push_back(post(measured, done.buffer)?);
    }
    let stats = measured.stats();
    counters.lost_packets = stats.lost_packets;
    counters.duplicate_packets = stats.channels.iter().map(|channel| channel.duplicates).sum();
    counters.rejected_packets = stats.context.rejected_packets();
    counters.receive_drops = stats.context.receive_drops;
    Ok(counters)
}

/// When a message of a mode without repair is given up: what is still missing
/// of it was lost.
struct Patience {
    /// Packets that had come when last looked, and since when there were no more.
    packets: u64,
    quiet_since: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { packets: 0, quiet_since: Instant::now() }
    }

    /// Whether the front receive is to be given up now. Later messages were put
    /// on the wire after it, so one wait is enough once they arrive; without
    /// them the path must have been quiet for a while.
    fn is_over(&mut self, posted: &VecDeque<RecvHandle>, measured: &Connection) -> bool {
        let stats = measured.stats();
        let packets = stats.channels.iter().map(|channel| channel.packets).sum();
        if packets != self.packets {
            self.packets = packets;
            self.quiet_since = Instant::now();
        }
        let is_overtaken = posted.iter().skip(1).any(|later| later.chunks_done() > 0);
        is_overtaken || (self.packets > 0 && self.quiet_since.elapsed() > QUIET)
    }
}

/// Waits for the front receive: `true` when it is complete or given up.
fn is_over(
    posted: &VecDeque<RecvHandle>,
    patience: &mut Patience,
    expected: &AtomicU64,
    taken: u64,
    measured: &Connection,
) -> Result<bool, Failure> {
    let Some(front) = posted.front() else { return Ok(false) };
    match front.wait(NAP) {
        Ok(()) => return Ok(true),
        Err(lacuna::RecvError::Deadline { .. }) => {}
        // The client has ended; what it said on the session decides.
        Err(_) if expected.load(Ordering::Acquire) <= taken => return Ok(false),
        // It gave up what was left when its time was over, and is about to say so.
        Err(lacuna::RecvError::Failed(lacuna::ReceiveFailure::Cancelled(_))) => {
            std::thread::park_timeout(NAP);
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(measured.chosen().mode == "raw" && patience.is_over(posted, measured))
}

fn post(measured: &Connection, buffer: Vec<u8>) -> Result<RecvHandle, Failure> {
    measured.post_recv(buffer).map_err(|error| Failure::Network(error.to_string()))
}

fn check(request: &Request, message: &[u8], number: u64, counters: &mut Counters) {
    if !request.validate {
        return;
    }
    let wrong = if message.len() as u64 == request.size_bytes {
        pattern::first_wrong(message, number)
    } else {
        Some(message.len())
    };
    if let Some(at) = wrong {
        counters.wrong += 1;
        counters.first_wrong.get_or_insert_with(|| format!("message {number} at byte {at}"));
    }
}
