//! Commands that are interrupted, and those whose peer is: what was measured is printed, the exit code says why, and nobody is left
//! waiting.
#![cfg(unix)]

mod process;

use process::{Running, perf_server, run, spawn, start};
use rustix::process::Signal;
use serde_json::json;

#[test]
fn the_demo_prints_what_it_finished() {
    let demo = start(&[
        "demo",
        "--size",
        "64KiB",
        "--rtt",
        "1ms",
        "--runs",
        "10000",
        "--no-plot",
        "--json",
    ]);
    demo.wait_for("auto: run 3 of 10000");
    demo.signal(Signal::INT);
    let output = demo.finish();
    assert_eq!(output.code, 130, "{output:?}");
    let results = output.objects();
    assert_eq!(results.len(), 1, "sr did not begin");
    assert_eq!((&results[0]["mode"], &results[0]["interrupted"]), (&json!("auto"), &json!(true)));
    assert!(results[0]["runs"].as_u64() >= Some(3));
    assert!(output.stderr.ends_with("lacuna: interrupted\n"), "{output:?}");
}

#[test]
fn the_demo_says_in_its_table_how_far_it_came() {
    let options = ["--runs", "10000", "--size", "64KiB", "--rtt", "1ms", "--no-plot"];
    let demo = start(&[&["demo"], &options[..]].concat());
    demo.wait_for("auto: run 3 of 10000");
    demo.signal(Signal::INT);
    let output = demo.finish();
    assert_eq!(output.code, 130, "{output:?}");
    let text = output.stdout;
    assert!(text.contains("verified"), "{text}");
    assert!(text.contains("interrupted; runs finished: auto "), "{text}");
    assert!(text.contains("sr 0 of 10000"), "{text}");
}

#[test]
fn perf_prints_what_it_measured_and_the_server_ends_cleanly() {
    let (server, address) = perf_server(&[]);
    let size = ["--size", "64KiB", "--warmup", "0", "--duration", "1h"];
    let args = [&["perf", "client", &address, "--json"], &size[..]].concat();
    let client = start(&args);
    client.wait_for("mode auto");
    client.signal(Signal::INT);
    let output = client.finish();
    assert_eq!(output.code, 130, "{output:?}");
    let report = &output.objects()[0];
    assert_eq!(report["interrupted"], true);
    assert!(report["messages"].as_u64() >= report["iterations"].as_u64(), "{report}");

    server.wait_for("served");
    server.signal(Signal::INT);
    let output = server.finish();
    assert_eq!(output.code, 130, "{output:?}");
    let lines: Vec<&str> = output.stderr.lines().rev().take(2).collect();
    assert_eq!(lines[0], "lacuna: interrupted");
    assert!(lines[1].contains(": served, ") && lines[1].contains(" of 64 KiB in "), "{output:?}");
}

/// Nobody is left waiting for a server that ends.
#[test]
fn a_server_that_ends_takes_its_clients_along() {
    let (server, address) = perf_server(&[]);
    let client = start(&["perf", "client", &address, "--duration", "1h"]);
    server.wait_for("mode auto");
    server.signal(Signal::TERM);
    assert_eq!(server.finish().code, 130);
    let output = client.finish();
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.stderr.contains("closed the connection"), "{output:?}");
}

/// Starts a client that measures for an hour, and waits until it does.
fn endless(server: &Running, address: &str) -> Running {
    let size = ["--size", "64KiB", "--warmup", "0", "--duration", "1h"];
    let client = start(&[&["perf", "client", address, "--json"], &size[..]].concat());
    // Both ends: the one may be connected before the other knows.
    server.wait_for("mode auto");
    client.wait_for("mode auto");
    client
}

#[test]
fn perf_prints_what_it_measured_when_the_server_is_killed() {
    let (server, address) = perf_server(&[]);
    let client = endless(&server, &address);
    server.signal(Signal::KILL);
    let output = client.finish();
    assert_eq!(output.code, 3, "{output:?}");
    let report = &output.objects()[0];
    assert_eq!((&report["interrupted"], &report["messages"]), (&json!(true), &json!(null)));
    let why = report["why"].as_str().expect("a reason");
    assert!(output.stderr.ends_with(&format!("lacuna: {why}\n")), "{output:?}");
}

#[test]
fn a_server_tells_what_it_counted_of_a_client_that_is_killed() {
    let (server, address) = perf_server(&["--once", "--json"]);
    endless(&server, &address).signal(Signal::KILL);
    let output = server.finish();
    assert_eq!(output.code, 3, "{output:?}");
    // The first says where it listens.
    let result = &output.objects()[1];
    assert_eq!((&result["interrupted"], &result["size_bytes"]), (&json!(true), &json!(65_536)));
    assert!(result["why"].is_string() && result["messages"].is_u64(), "{result}");
}

fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

/// `timeout` sends its signal to the process and to its group.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    for (signal, why) in [(Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")] {
        // Under nohup it is ignored, by whatever is started there too.
        if signal == Signal::HUP && is_hangup_ignored() {
            continue;
        }
        let (server, address) = perf_server(&[]);
        let client = endless(&server, &address);
        client.signal(signal);
        client.signal(signal);
        let output = client.finish();
        assert_eq!(output.code, 130, "{output:?}");
        let report = &output.objects()[0];
        assert_eq!((&report["interrupted"], &report["why"]), (&json!(true), &json!(why)));
    }
}

#[test]
fn what_runs_under_nohup_outlives_its_terminal() {
    let (server, address) = perf_server(&[]);
    let lacuna = env!("CARGO_BIN_EXE_lacuna");
    let script = format!("trap '' HUP; exec {lacuna} perf client {address} --json -n 200");
    let client = spawn(&mut process::piped("sh", &["-c", &script]));
    server.wait_for("mode auto");
    client.signal(Signal::HUP);
    let output = client.finish();
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.objects()[0]["interrupted"], false);
}

#[test]
fn ec_bench_prints_what_it_measured() {
    let small = ["--size", "2MiB", "--threads", "1", "--chunk", "4KiB", "--code", "xor"];
    let rounds = ["ec-bench", "--json", "--rounds", "1000"];
    let bench = start(&[&rounds[..], &small].concat());
    bench.wait_for("rounds");
    bench.signal(Signal::INT);
    let output = bench.finish();
    assert_eq!(output.code, 130, "{output:?}");
    for row in output.objects() {
        assert_eq!((&row["interrupted"], &row["why"]), (&json!(true), &json!("Ctrl-C")));
        assert!((1..1000).contains(&row["rounds"].as_u64().expect("a count")), "{row}");
    }
}

/// A client that stands still holds up no other.
#[test]
fn a_stopped_client_holds_up_nobody() {
    let (server, address) = perf_server(&[]);
    let still = start(&["perf", "client", &address, "--duration", "1h"]);
    server.wait_for("mode auto");
    still.signal(Signal::STOP);
    let output = run(&["perf", "client", &address, "-n", "4", "--size", "64KiB"]);
    assert_eq!(output.code, 0, "{output:?}");
    drop(still);
    // Its death is noticed.
    server.wait_for("lost the client");
}
