//! The benchmark program of `examples/c` over shapes of queue pairs: every
//! immediate and every byte checked, nothing lost; and receives that are cut off.
//! `cargo test` runs some rows. All of them, with a table:
//!
//! ```sh
//! LACUNA_C_MATRIX=full cargo test --release -p lacuna-capi --test matrix -- --nocapture
//! ```
//!
//! The full matrix has each pair of values of two settings in some row, the
//! extremes, and as many messages as wrap around the message numbers many times.

mod common;

use common::{Build, Runner, compile, root};
use std::fmt;
use std::path::PathBuf;

/// What a row is made of: message bytes, chunk bytes, MTU, channels, messages in
/// flight, generations, worker threads.
const NAMES: [&str; 7] = ["size", "chunk", "mtu", "channels", "in flight", "gens", "workers"];
const VALUES: [&[u64]; 7] = [
    &[64 << 10, 1 << 20, 8 << 20, 64 << 20],
    &[4 << 10, 16 << 10, 64 << 10, 256 << 10],
    &[64, 128, 256, 512, 1024, 2048, 4096],
    &[1, 2, 4, 8, 16],
    &[1, 2, 16, 64, 128],
    &[1, 2, 3, 4],
    &[0, 2],
];
/// Memory of a row at each end, so that both have room on a small machine. Long
/// messages have fewer in flight.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Bytes and packets of a row, which bound its time.
const ROW_BYTES: u64 = 256 << 20;
const ROW_PACKETS: u64 = 1 << 20;

/// One run.
#[derive(Debug, Clone, Copy)]
struct Row {
    values: [u64; 7],
    messages: u64,
}

impl Row {
    fn new(mut values: [u64; 7]) -> Self {
        let [size, _, mtu, _, in_flight, ..] = values;
        values[4] = in_flight.min((MEMORY_BYTES_MAX / size).max(1));
        let messages = (ROW_BYTES.min(ROW_PACKETS * mtu) / size).clamp(3, 2000);
        Self { values, messages }
    }

    fn of(&self, messages: u64) -> Self {
        Self { messages, ..*self }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { values: [size, chunk, mtu, channels, in_flight, generations, workers], .. } =
            *self;
        write!(
            f,
            "{size:>9} {chunk:>7} {mtu:>5} {channels:>8} {in_flight:>9} {generations:>4} {workers:>7} {:>8}",
            self.messages
        )
    }
}

/// Rows with each pair of values of two settings in one of them: from candidates
/// in a fixed order the one that has most pairs which no row had, again and again.
fn pairwise() -> Vec<[u64; 7]> {
    let mut open: Vec<(usize, u64, usize, u64)> = Vec::new();
    for (a, of_a) in VALUES.iter().enumerate() {
        for (b, of_b) in VALUES.iter().enumerate().skip(a + 1) {
            for &x in *of_a {
                open.extend(of_b.iter().map(|&y| (a, x, b, y)));
            }
        }
    }
    let mut rows = Vec::new();
    let mut number = 1u64;
    while let Some(&(a, x, b, y)) = open.first() {
        let mut best = ([0; 7], 0);
        for _ in 0..200 {
            let mut row = [0; 7];
            for (value, values) in row.iter_mut().zip(VALUES) {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *value = values[(number >> 33) as usize % values.len()];
            }
            (row[a], row[b]) = (x, y);
            let had = open.iter().filter(|(a, x, b, y)| row[*a] == *x && row[*b] == *y).count();
            if had > best.1 {
                best = (row, had);
            }
        }
        let row = best.0;
        open.retain(|(a, x, b, y)| row[*a] != *x || row[*b] != *y);
        rows.push(row);
    }
    rows
}

/// Runs a row; what the client measured.
fn run(program: &std::path::Path, row: &Row) -> f64 {
    let [size, chunk, mtu, channels, in_flight, generations, workers] =
        row.values.map(|value| value.to_string());
    let messages = row.messages.to_string();
    let client = [
        "client",
        "127.0.0.1",
        "--port",
        "PORT",
        "--check",
        "--size",
        &size,
        "--chunk",
        &chunk,
        "--mtu",
        &mtu,
        "--channels",
        &channels,
        "--in-flight",
        &in_flight,
        "--messages",
        &messages,
    ];
    let environment = vec![
        ("SDR_QP_NUM_GENERATIONS", generations.clone()),
        ("LACUNA_SDR_WORKERS", workers.clone()),
        ("SDR_DPA_RX_PROFILE_STATS_REPORT", "1".to_owned()),
    ];
    let runner = Runner { environment, ..Runner::default() };
    let (served, sent) = runner.run_pair(program, &["server", "--port", "0"], &client);
    let checked = format!("received {messages} messages, every byte checked");
    assert!(served.contains(&checked), "{row}: {served}");
    assert!(served.contains("liblacuna: 0 packets lost"), "{row}: {served}");
    let clean = served.matches(" 0 duplicates, 0 discarded").count();
    assert_eq!(clean, channels.parse::<usize>().unwrap(), "{row}: {served}");
    let rate = sent.split_once(" Gbit/s").and_then(|(before, _)| before.rsplit(' ').next());
    let rate = rate.and_then(|rate| rate.parse().ok());
    rate.unwrap_or_else(|| panic!("{row}: {sent}"))
}

fn is_full() -> bool {
    std::env::var("LACUNA_C_MATRIX").is_ok_and(|value| value == "full")
}

/// Extremes, and what does not fit a pattern; also what `cargo test` runs.
fn short() -> Vec<Row> {
    let few = |values, messages| Row::new(values).of(messages);
    vec![
        few([8 << 20, 64 << 10, 4096, 8, 16, 1, 0], 6),
        few([64 << 10, 4 << 10, 64, 1, 128, 1, 0], 400),
        few([64 << 10, 256 << 10, 4096, 16, 1, 2, 2], 400),
        few([1 << 20, 256 << 10, 64, 4, 4, 3, 2], 12),
        few([1 << 20, 4 << 10, 4096, 16, 128, 4, 0], 48),
        few([16 << 20, 128 << 10, 1024, 3, 2, 4, 0], 3),
        few([100_001, 8 << 10, 512, 5, 7, 1, 2], 400),
        few([1, 4 << 10, 2048, 2, 3, 1, 2], 600),
        few([4097, 4 << 10, 4096, 1, 100, 1, 0], 600),
    ]
}

/// Extremes of the settings together; the acceptance line's own shape; and message
/// numbers that wrap around: there are 1,024 of them, or twice what is in flight.
fn long() -> Vec<Row> {
    let mut rows: Vec<_> = pairwise().into_iter().map(Row::new).collect();
    for (size, mtu) in [(64 << 10, 64), (64 << 10, 4096), (64 << 20, 64), (64 << 20, 4096)] {
        for (chunk, channels, in_flight) in [(4 << 10, 1, 1), (256 << 10, 16, 128)] {
            rows.push(Row::new([size, chunk, mtu, channels, in_flight, 1, 0]));
        }
    }
    for workers in [0, 2] {
        rows.push(Row::new([8 << 20, 64 << 10, 4096, 8, 128, 1, workers]).of(1000));
        rows.push(Row::new([1, 4 << 10, 64, 1, 128, 1, workers]).of(100_000));
        rows.push(Row::new([4000, 4 << 10, 4096, 4, 1, 4, workers]).of(20_000));
    }
    rows
}

fn example() -> PathBuf {
    compile(&root().join("examples/c/perf.c"), Build::C11)
}

#[test]
fn every_byte_of_every_shape_arrives_and_nothing_is_lost() {
    let program = example();
    let rows = if is_full() { long() } else { short() };
    println!("     size   chunk   mtu channels in flight gens workers messages  Gbit/s");
    for row in &rows {
        let gbit_per_s = run(&program, row);
        println!("{row} {gbit_per_s:>7.2}");
    }
    println!("{} rows: every immediate and every byte checked, no packet lost", rows.len());
}

#[test]
fn each_pair_of_values_is_in_some_row_of_the_full_matrix() {
    let rows = pairwise();
    for a in 0..7 {
        for b in a + 1..7 {
            for x in VALUES[a] {
                for y in VALUES[b] {
                    let is_there = rows.iter().any(|row| row[a] == *x && row[b] == *y);
                    assert!(is_there, "{} {x} with {} {y}", NAMES[a], NAMES[b]);
                }
            }
        }
    }
    assert!(rows.len() < 80, "{} rows", rows.len());
}

#[test]
fn nothing_is_written_to_a_buffer_after_its_receive_was_cut_off() {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/c/early.c");
    let program = compile(&source, if is_full() { Build::C11 } else { Build::Sanitized });
    // Bytes, and the powers of two that the chunk and the MTU are; channels.
    let mut shapes = vec![(1 << 20, 16, 12, 8), (1 << 16, 12, 6, 1), (1_000_001, 18, 10, 16)];
    if is_full() {
        shapes.extend([(1 << 26, 18, 12, 16), (1 << 26, 16, 8, 4), (1 << 23, 12, 12, 1)]);
        shapes.extend([(1 << 23, 16, 6, 16), (1 << 16, 16, 12, 2), (300_000, 13, 11, 3)]);
    }
    for (bytes, chunk_log, mtu_log, channels) in shapes {
        let rounds = if is_full() { ((1u64 << 30) / bytes).clamp(8, 2000) } else { 24 };
        let arguments = [bytes, chunk_log, mtu_log, channels, rounds].map(|n| n.to_string());
        for workers in ["0", "2"] {
            for device in ["udp:127.0.0.1", "mem"] {
                let mut all = vec![device];
                all.extend(arguments.iter().map(String::as_str));
                let runner = Runner {
                    environment: vec![("LACUNA_SDR_WORKERS", workers.to_owned())],
                    ..Runner::default()
                };
                let printed = runner.run(&program, &all);
                println!("{device} {} workers {workers}: {}", arguments.join(" "), printed.trim());
                assert!(printed.contains("no byte written later"), "{printed}");
            }
        }
    }
}
