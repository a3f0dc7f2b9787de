//! The measurement: threads start together on their own blocks, and all cases take turns, round by
//! round, so that a busy minute affects all cases alike.

use super::coder::{Coder, Shape};
use super::contenders::Contender;
use super::{Op, Row};
use crate::failure::{Ending, Failure};
use lacuna_service::thread;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Least data per thread and measurement, repeated if the input is smaller: takes milliseconds, so
/// that the common start does not matter.
const THREAD_BYTES_MIN: usize = 64 << 20;

/// Data between two checks for a stop: about a millisecond.
const CHECK_BYTES: usize = 4 << 20;

/// Alignment of the data, as a large allocation has it; an allocation in the middle of a cache line
/// would make every vector cross one.
const ALIGN_BYTES: usize = 4096;

/// One contender, one operation, one number of threads.
struct Case<'c> {
    contender: &'c Contender,
    op: Op,
    /// One coder per thread.
    coders: Vec<Box<dyn Coder>>,
    gbyte_per_s: Vec<f64>,
}

/// Measures all cases; rows are ordered by threads, operations, contenders. If `stop` or a failure
/// ends it early, the rows cover the complete rounds, if any.
pub(super) fn all(
    shape: &Shape,
    contenders: &[Contender],
    ops: &[Op],
    threads: &[usize],
    rounds: u32,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<(Vec<Row>, Option<Failure>), Failure> {
    let mut cases = Vec::new();
    for count in threads {
        for op in ops {
            for contender in contenders {
                let coders =
                    (0..*count).map(|_| (contender.make)()).collect::<Result<Vec<_>, _>>()?;
                if coders.iter().all(|coder| coder.can(*op)) {
                    cases.push(Case { contender, op: *op, coders, gbyte_per_s: Vec::new() });
                }
            }
        }
    }
    let mut data = Aligned::new(shape.size_bytes());
    data.bytes().copy_from_slice(&pattern(shape.size_bytes()));
    let mut parity = Aligned::new(shape.blocks * shape.parity_bytes());
    // Touch every page before the measurement.
    parity.bytes().fill(1);
    let mut measure = || {
        for _ in 0..rounds {
            for case in &mut cases {
                let coders = &mut case.coders;
                let rate = once(shape, case.op, coders, data.bytes(), parity.bytes(), stop)?;
                case.gbyte_per_s.push(rate);
            }
        }
        Ok(())
    };
    let ended: Option<Failure> = measure().err();
    let ending = Ending::of(ended.as_ref());
    let measured = cases.into_iter().filter(|case| !case.gbyte_per_s.is_empty());
    Ok((measured.map(|case| row(shape, case, &ending)).collect(), ended))
}

/// Bytes that are neither zeros nor a short cycle.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

fn row(shape: &Shape, mut case: Case<'_>, ending: &Ending) -> Row {
    case.gbyte_per_s.sort_by(f64::total_cmp);
    let rates = &case.gbyte_per_s;
    let at = |index: usize| rates.get(index).copied().unwrap_or(0.0);
    Row {
        code: case.contender.code,
        engine: case.contender.engine.clone(),
        op: case.op,
        k: shape.k,
        m: shape.m,
        chunk_bytes: shape.chunk_bytes,
        size_bytes: shape.size_bytes(),
        threads: case.coders.len(),
        lost: if case.op == Op::Decode { shape.lost } else { 0 },
        rounds: rates.len(),
        ending: ending.clone(),
        gbyte_per_s: at(rates.len() / 2),
        slowest: at(0),
        fastest: at(rates.len().saturating_sub(1)),
    }
}

/// Processes all blocks at least once on all threads; returns GB of data per second.
fn once(
    shape: &Shape,
    op: Op,
    coders: &mut [Box<dyn Coder>],
    data: &mut [u8],
    parity: &mut [u8],
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<f64, Failure> {
    let threads = coders.len();
    let passes = (THREAD_BYTES_MIN * threads).div_ceil(shape.size_bytes());
    let start = Start::of(threads);
    let spans = std::thread::scope(|scope| {
        let mut workers = Vec::new();
        let (mut data, mut parity) = (data, parity);
        for (index, coder) in coders.iter_mut().enumerate() {
            // Blocks are divided evenly; the first threads get the remainder.
            let blocks = shape.blocks / threads + usize::from(index < shape.blocks % threads);
            let (own_data, rest) = data.split_at_mut(blocks * shape.block_bytes());
            data = rest;
            let (own_parity, rest) = parity.split_at_mut(blocks * shape.parity_bytes());
            parity = rest;
            let start = &start;
            let shares = (own_data, own_parity);
            let work = move || work(shape, op, coder.as_mut(), shares, passes, start, stop);
            match thread::start_in(scope, "lacuna-code", work) {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    start.call_off();
                    return Err(error.into());
                }
            }
        }
        let panicked = |_| Failure::Local("a measuring thread panicked".to_owned());
        let spans = workers.into_iter().map(|worker| worker.join().map_err(panicked)?);
        spans.collect::<Result<Vec<_>, _>>()
    })?;
    let start = spans.iter().map(|(start, _)| *start).min();
    let end = spans.iter().map(|(_, end)| *end).max();
    let time = end.zip(start).map_or(Duration::ZERO, |(end, start)| end - start);
    Ok((passes * shape.size_bytes()) as f64 / time.as_secs_f64().max(1e-9) / 1e9)
}

/// One thread's part; returns when it started and ended.
fn work(
    shape: &Shape,
    op: Op,
    coder: &mut dyn Coder,
    (data, parity): (&mut [u8], &mut [u8]),
    passes: usize,
    together: &Start,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<(Instant, Instant), Failure> {
    let (block_bytes, parity_bytes) = (shape.block_bytes(), shape.parity_bytes());
    // Decoding needs the parity of the coder's own code. Every thread must reach the start, even
    // after a failure.
    let mut prepared = Ok(());
    if op == Op::Decode {
        prepared = (data.chunks_exact(block_bytes))
            .zip(parity.chunks_exact_mut(parity_bytes))
            .try_for_each(|(data, parity)| coder.encode(data, parity));
    }
    together.wait();
    prepared?;
    let look_every = (CHECK_BYTES / block_bytes).max(1);
    let start = Instant::now();
    for _ in 0..passes {
        let blocks = data.chunks_exact_mut(block_bytes).zip(parity.chunks_exact_mut(parity_bytes));
        for (index, (data, parity)) in blocks.enumerate() {
            if index % look_every == 0 && stop() {
                return Err(Failure::Interrupted);
            }
            match op {
                Op::Encode => coder.encode(data, parity)?,
                Op::Update => coder.update(data, parity)?,
                Op::Decode => coder.decode(data, parity)?,
            }
        }
    }
    Ok((start, Instant::now()))
}

/// A start line for threads. Not a `Barrier`, because some threads may fail to start.
struct Start {
    /// Threads that have not arrived.
    missing: Mutex<usize>,
    changed: Condvar,
}

impl Start {
    fn of(threads: usize) -> Self {
        Self { missing: Mutex::new(threads), changed: Condvar::new() }
    }

    fn wait(&self) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = missing.saturating_sub(1);
        if *missing == 0 {
            self.changed.notify_all();
        }
        let waited = self.changed.wait_while(missing, |missing| *missing > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Releases the threads that have arrived; their results are ignored.
    fn call_off(&self) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = 0;
        self.changed.notify_all();
    }
}

/// Bytes that start at a multiple of [`ALIGN_BYTES`].
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGN_BYTES];
        let start = bytes.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
        Self { bytes, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
