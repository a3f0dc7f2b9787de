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
fn a_line_that_makes_no_sense_says_what_to_do() {
    for (line, part) in [
        ("bench", "--ranks N"),
        ("bench --ranks 2 --mode bounded", "add --budget"),
        ("bench --ranks 2 --budget 1ms", "add --mode bounded"),
        ("bench --ranks 2 --mode raw", "use a reliable mode, or bounded"),
        ("bench --ranks 2 -b 2M -e 1M", "choose a larger -e"),
        ("bench --loss 1%", "--ranks"),
        ("bench --algorithm star", "use ring"),
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
    for rank in (0..4).filter(|rank| *rank != victim) {
        let child = &mut ranks.0[rank];
        let status = loop {
            match child.try_wait().expect("a child") {
                Some(status) => break status,
                None if begin.elapsed() > PATIENCE => panic!("rank {rank} hangs"),
                None => std::thread::yield_now(),
            }
        };
        let error = BufReader::new(child.stderr.take().unwrap()).lines();
        let error: Vec<String> = error.map_while(Result::ok).collect();
        assert_eq!(status.code(), Some(3), "rank {rank}: {error:?}");
        // Before all had met, it is the rank that did not come.
        let names = [format!("rank {victim}"), format!(": {victim}")];
        let is_named = |line: &String| line.contains(&names[0]) || line.ends_with(&names[1]);
        assert!(error.iter().any(is_named), "rank {rank}: {error:?}");
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
    for round in 0..50_u64 {
        let random = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let after = Duration::from_micros(random >> 40 & 0x1ffff);
        kill_one((random >> 8) as usize % 4, (random >> 16) as usize % 4, after);
    }
}
