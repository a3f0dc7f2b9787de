//! The commands as a user runs them: results on standard output, exit codes,
//! one-line answers to nonsense.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn lacuna(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacuna"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    lacuna(args).output().expect("the binary runs")
}

fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

#[test]
fn the_demo_verifies_every_mode() {
    let output = run(&[
        "demo",
        "--size",
        "2MiB",
        "--rtt",
        "4ms",
        "--loss",
        "1e-2",
        "--rate",
        "500mbit",
        "--runs",
        "2",
        "--no-plot",
        "--json",
        "--quiet",
    ]);
    assert!(output.status.success(), "{output:?}");
    let results = objects(&output);
    let modes: Vec<&str> = results.iter().filter_map(|result| result["mode"].as_str()).collect();
    assert_eq!(modes, ["sr", "sr:rto"]);
    for result in &results {
        assert_eq!(result["verified"], true);
        assert_eq!(result["size_bytes"], 2 << 20);
        assert_eq!(result["runs"], 2);
        let mean = result["completion_ms"]["mean"].as_f64().expect("a number");
        let ideal = result["ideal_ms"].as_f64().expect("a number");
        assert!(mean >= ideal * 0.99, "faster than the ideal: {result}");
        assert!(result["goodput_gbit_per_s"].as_f64() > Some(0.0));
        assert!(result["retransmitted_chunks"].as_u64() > Some(0));
    }
}

#[test]
fn the_demo_draws_a_plot() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plot = folder.path().join("plot.svg");
    let path = plot.to_str().expect("UTF-8");
    let output =
        run(&["demo", "--size", "64KiB", "--rtt", "1ms", "--runs", "1", "--plot", path, "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    let svg = std::fs::read_to_string(&plot).expect("the plot was written");
    assert!(svg.starts_with("<svg") && svg.contains("sr:rto"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("verified"));
}

/// Starts a perf server on a free port and says which.
fn perf_server() -> (std::process::Child, String) {
    let mut server = lacuna(&["perf", "server", "--listen", "127.0.0.1:0", "--once"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let stderr = server.stderr.take().expect("piped");
    let mut line = String::new();
    BufReader::new(stderr).read_line(&mut line).expect("the server says where it listens");
    let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    (server, address)
}

#[test]
fn perf_measures_and_validates_in_every_mode() {
    for mode in ["raw", "sr"] {
        let (mut server, address) = perf_server();
        let output = run(&[
            "perf",
            "client",
            &address,
            "--size",
            "256KiB",
            "--iters",
            "40",
            "--inflight",
            "4",
            "--mode",
            mode,
            "--validate",
            "--json",
            "--quiet",
        ]);
        assert!(output.status.success(), "{output:?}");
        let report = &objects(&output)[0];
        assert_eq!(report["mode"], mode);
        assert_eq!(report["iterations"], 40);
        assert_eq!(report["validated"], true);
        assert_eq!(report["receive_drops"], 0);
        for field in [
            "gbit_per_s",
            "mpps",
            "mean_us",
            "p99_us",
            "lost_packets",
            "retransmitted_packets",
            "rejected_packets",
            "cpu_s_per_gbyte",
        ] {
            assert!(report[field].is_number(), "{field} in {report}");
        }
        assert!(server.wait().expect("the server ends").success());
    }
}

#[test]
fn nonsense_is_answered_in_one_line_with_exit_code_2() {
    for args in [
        &["demo", "--loss", "2"][..],
        &["demo", "--size", "many"],
        &["demo", "--mode", "magic"],
        &["demo", "--rtt", "25"],
        &["demo", "--mtu", "70000", "--runs", "1", "--no-plot"],
        &["perf", "client"],
        &["fly"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains("panicked"), "{text}");
        assert!(!text.is_empty());
    }
}

#[test]
fn nobody_listening_is_a_network_failure() {
    let output = run(&["perf", "client", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot reach 127.0.0.1:1"), "{text}");
}

#[test]
fn a_port_in_use_says_so() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let output = run(&["perf", "server", "--listen", &address]);
    assert_eq!(output.status.code(), Some(5));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot listen on") && text.contains("in use"), "{text}");
}

#[test]
fn help_is_there_for_everything() {
    for command in
        [&["demo"][..], &["send"], &["recv"], &["perf"], &["perf", "client"], &["perf", "server"]]
    {
        let output = run(&[command, &["--help"]].concat());
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Usage: lacuna"));
    }
}
