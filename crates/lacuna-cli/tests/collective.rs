//! `lacuna collective` as a user runs it.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Without the variables of whoever runs the tests.
fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacuna"));
    for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LACUNA_RENDEZVOUS"] {
        command.env_remove(name);
    }
    command.arg("collective").args(line.split_whitespace());
    command
}

fn run(line: &str) -> Output {
    command(line).output().expect("the binary runs")
}

fn rows(line: &str) -> Vec<Value> {
    let output = run(&format!("{line} --json"));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

#[test]
fn every_operation_is_right_between_processes() {
    for (op, types) in [
        ("all-reduce", "--type bf16 --reduce average"),
        ("reduce-scatter", "--type i32 --reduce max"),
        ("all-gather", "--type u8"),
        ("broadcast", "--type f64"),
        ("reduce", "--type f16 --reduce product"),
        ("all-to-all", ""),
    ] {
        let rows =
            rows(&format!("bench --ranks 3 --op {op} {types} -b 3000 -e 300000 -f 100 -n 2 -w 1"));
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(
                (&row["op"], &row["ranks"], &row["wrong"]),
                (&op.into(), &3.into(), &0.into())
            );
            assert_eq!(row["lost_fraction"], 0.0);
            assert!(row["time_us"]["p50"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn a_lossy_path_is_repaired_or_what_is_missing_is_told() {
    let path = "--rate 200mbit --rtt 4ms --loss 2% -b 200000 -e 200000 -n 3";
    for row in rows(&format!("bench --ranks 2 {path} -w 1")) {
        assert_eq!((&row["wrong"], row["lost_fraction"].as_f64()), (&0.into(), Some(0.0)));
    }
    for row in rows(&format!("bench --ranks 2 --mode bounded --budget 500ms {path} -w 1")) {
        assert_eq!(row["wrong"], 0);
        assert_eq!(row["budget_us"], 500_000.0);
    }
    for row in rows(&format!("bench --ranks 2 --mode bounded --budget adaptive {path} -w 8")) {
        assert_eq!(row["wrong"], 0);
        assert!(row["budget_us"].as_f64().unwrap() < 10e6, "{row}");
    }
}

#[test]
fn encoded_operations_are_right_within_rounding() {
    for (op, types) in [
        ("all-reduce", "--type bf16 --reduce average"),
        ("reduce-scatter", "--type f16"),
        ("all-gather", ""),
        ("broadcast", ""),
        ("reduce", ""),
    ] {
        let line = format!("bench --ranks 3 --op {op} {types} -b 3000 -e 300000 -f 100 -n 2 -w 1");
        for row in rows(&format!("{line} --encode hadamard:16")) {
            assert_eq!((&row["op"], &row["wrong"]), (&op.into(), &0.into()));
            assert_eq!(row["encode"], "hadamard:16:1024");
        }
    }
}

#[test]
fn encoding_spares_the_worst_block_what_losses_do() {
    let path = "--rate 500mbit --loss 2% -b 2M -e 2M -n 3 -w 1 --mode bounded --budget 5s";
    let of = |encode: &str| {
        let row = rows(&format!("bench --ranks 2 {path} {encode}")).remove(0);
        assert_eq!(row["wrong"], 0, "{row}");
        let of = |name: &str| row[name].as_f64().expect("a number");
        (of("relative_mse"), of("relative_mse_worst_block"))
    };
    let ((raw, raw_worst), (encoded, encoded_worst)) = (of(""), of("--encode hadamard"));
    assert!(raw > 0.005 && encoded > 0.2 * raw && encoded < 5.0 * raw, "{raw} and {encoded}");
    assert!(encoded_worst < 0.5 * raw_worst, "{raw_worst} and {encoded_worst}");
}

#[test]
fn losses_of_a_log_are_replayed_with_the_same_missing_ranges_and_results() {
    let directory = tempfile::tempdir().expect("a folder");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let read = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(path(name)).expect("a log");
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    };
    for encode in ["", "--encode hadamard"] {
        // The same schedule in both runs: the choice depends on the round trips of each.
        let options = format!(
            "-b 300000 -e 600000 -n 2 -w 1 --ranks 3 --mode bounded --algorithm ring {encode}"
        );
        let (log, again) = (path("log"), path("again"));
        rows(&format!("bench {options} --budget 5s --loss 2% --loss-log {log}"));
        rows(&format!("bench {options} --budget 30s --replay {log} --loss-log {again}"));
        let (logged, replayed) = (read("log"), read("again"));
        // Two sizes, three operations, three ranks.
        assert_eq!(logged.len(), 18);
        let order: Vec<_> = logged.iter().map(|line| (&line["operation"], &line["rank"])).collect();
        assert_eq!((order[4].0.as_u64(), order[4].1.as_u64()), (Some(1), Some(1)));
        let losses = |line: &Value| {
            let hops = line["hops"].as_array().expect("receives");
            hops.iter().map(|hop| hop["lost"].as_array().expect("ranges").len()).sum::<usize>()
        };
        assert!(logged.iter().map(losses).sum::<usize>() > 20, "the path loses");
        assert_eq!(logged, replayed);
        let gone = run(&format!("bench --ranks 2 --mode bounded --budget 5s --replay {log}.gone"));
        assert_eq!(gone.status.code(), Some(5));
        assert_eq!(String::from_utf8_lossy(&gone.stderr).lines().count(), 1, "{gone:?}");
        // Another run than the one that was logged.
        let other = run(&format!("bench --ranks 3 --mode bounded --budget 5s --replay {log}"));
        assert_eq!(other.status.code(), Some(2));
        let text = String::from_utf8_lossy(&other.stderr).into_owned();
        assert!(text.contains("with the options of the run that wrote it"), "{text}");
    }
}

#[test]
fn a_line_that_makes_no_sense_says_what_to_do() {
    for (line, part) in [
        ("bench", "--ranks N"),
        ("bench --ranks 2 --mode bounded", "add --budget"),
        ("bench --ranks 2 --budget 1ms", "add --mode bounded"),
        ("bench --ranks 2 --mode raw", "use a reliable mode, or bounded"),
        ("bench --ranks 2 -b 2M -e 1M", "choose a larger -e"),
        ("bench --loss 1%", "--ranks"),
        ("bench --algorithm star", "use ring"),
        ("bench --encode haar", "use hadamard[:STRIDE[:BLOCK]]"),
        ("bench --encode hadamard --type i32", "use f32, f16 or bf16"),
        ("bench --encode hadamard --reduce max", "use sum or average"),
        ("bench --encode hadamard --op all-to-all", "use all-reduce"),
        ("bench --loss-log log", "add --mode bounded"),
        ("bench --mode bounded --budget 1s --loss-log log --replay log", "use another file"),
        ("bench --mode bounded --budget adaptive:fast", "adaptive:optinic"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(part), "{line}: {error}");
    }
}

/// Ranks of one run, which end with this.
struct Ranks(Vec<Child>);

impl Ranks {
    fn start(ranks: usize, line: &str) -> Self {
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let start = |rank: usize| {
            command(line)
                .args(["--bind", "127.0.0.1", "--json"])
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", ranks.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", port.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the binary runs")
        };
        Self((0..ranks).map(start).collect())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Kills one of four ranks somewhere in the middle; what the others say of it.
fn kill_one(victim: usize, after_rows: usize, after: Duration) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let mut ranks = Ranks::start(4, "bench -b 64 -e 4M -f 4 -n 200 -w 1 --timeout 10s");
    // The victim may be the one that prints.
    let out = ranks.0[0].stdout.take().unwrap();
    let mut rows = BufReader::new(out).lines();
    for _ in 0..after_rows {
        rows.next().expect("a row").expect("readable");
    }
    // No synchronisation: the place is to be anywhere.
    std::thread::sleep(after);
    ranks.0[victim].kill().expect("it runs");
    let begin = Instant::now();
    let mut left: Vec<(usize, Option<i32>, Vec<String>)> = Vec::new();
    for rank in (0..4).filter(|rank| *rank != victim) {
        let child = &mut ranks.0[rank];
        let status = loop {
            match child.try_wait().expect("a child") {
                Some(status) => break status,
                None if begin.elapsed() > PATIENCE => panic!("rank {rank} hangs: {left:?}"),
                None => std::thread::yield_now(),
            }
        };
        let error = BufReader::new(child.stderr.take().unwrap()).lines();
        left.push((rank, status.code(), error.map_while(Result::ok).collect()));
    }
    for (rank, code, error) in &left {
        assert_eq!(*code, Some(3), "rank {rank}, rank {victim} was killed: {left:?}");
        // Before all had met, it is the rank that did not come.
        let names = [format!("rank {victim}"), format!(": {victim}")];
        let is_named = |line: &String| line.contains(&names[0]) || line.ends_with(&names[1]);
        assert!(error.iter().any(is_named), "rank {rank}, rank {victim} was killed: {left:?}");
    }
}

#[test]
fn a_rank_that_is_killed_is_named_by_all_others_and_nobody_hangs() {
    for (victim, after_rows, after_ms) in [(3, 1, 3), (0, 2, 1), (1, 0, 400)] {
        kill_one(victim, after_rows, Duration::from_millis(after_ms));
    }
}

#[test]
#[ignore = "takes minutes; in .ci/long"]
fn ranks_that_are_killed_anywhere_are_named_fifty_times() {
    // Before a release, `LACUNA_KILLS=500`.
    let rounds = std::env::var("LACUNA_KILLS").map_or(50, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let round: u64 = round;
        let random = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let after = Duration::from_micros(random >> 40 & 0x1ffff);
        kill_one((random >> 8) as usize % 4, (random >> 16) as usize % 4, after);
    }
}
