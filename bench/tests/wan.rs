//! The race at a small size, so that it does not rot: every end of ours over a real path. Where the
//! system gives no namespaces the tests say so and pass.

#![cfg(target_os = "linux")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const CONTESTANTS: &str = r#"
    [[contestant]]
    name = "lacuna-sr"
    about = ""
    program = { kind = "lacuna", mode = "sr" }
    [[contestant]]
    name = "lacuna-ec-fixed"
    about = ""
    program = { kind = "lacuna", mode = "ec", cc = "fixed" }
    [[contestant]]
    name = "tcp"
    about = ""
    program = { kind = "tcp", cc = "reno" }
    sysctls = [["net.ipv4.tcp_wmem", "4096 65536 8388608"]]
    [[contestant]]
    name = "quinn"
    about = ""
    program = { kind = "quinn", cc = "bbr", window_bdp = 1.5 }
    [[contestant]]
    name = "absent"
    about = ""
    program = { kind = "tcp", cc = "reno" }
    needs = ["no-such-program"]
    package = "none"
"#;

/// Runs a race of the cells in `folder`; `None` where there can be none.
fn race(folder: &Path, cells: &str, arguments: &[&str]) -> Option<Output> {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a temporary folder");
        path
    };
    let cells = file("cells.toml", cells);
    let contestants = file("contestants.toml", CONTESTANTS);
    let output = Command::new(env!("CARGO_BIN_EXE_lacuna-bench"))
        .args(["wan", "*", "--rounds", "1", "--cells-file"])
        .arg(cells)
        .arg("--contestants-file")
        .arg(contestants)
        .arg("--out")
        .arg(folder)
        .args(arguments)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("gives an ordinary user no network namespace") || said.contains("/dev/net/tun")
    {
        eprintln!("skipped: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(output)
}

fn sample(folder: &Path, cell: &str, contestant: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(format!("record/{cell}.json")));
    let record: Value = serde_json::from_str(&text.expect("a record")).expect("JSON");
    let entry = &record["entries"][contestant];
    let sample = entry["samples"][0].clone();
    assert!(sample.is_object(), "{cell} {contestant}: {entry}");
    sample
}

#[test]
fn every_end_moves_bulk_and_messages_and_crowds() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cells = r#"
        [[grid]]
        name = "bulk"
        about = "Bulk"
        kind = "bulk"
        rates_mbit = [100]
        rtts_ms = [10]
        losses = [1e-3]
        seconds = 1
        contestants = ["lacuna-sr", "lacuna-ec-fixed", "tcp", "quinn", "absent"]
        [[grid]]
        name = "message"
        about = "Messages"
        kind = "message"
        rates_mbit = [100]
        rtts_ms = [10]
        losses = [0, 1e-3]
        sizes_kib = [64]
        count = 2
        connections = ["fresh", "kept"]
        contestants = ["lacuna-sr", "lacuna-ec-fixed", "tcp", "quinn"]
        [[grid]]
        name = "crowd"
        about = "Crowd"
        kind = "crowd"
        rates_mbit = [100]
        rtts_ms = [10]
        losses = [0]
        sizes_kib = [16]
        count = 8
        contestants = ["lacuna-sr", "tcp", "quinn"]
        [[goal]]
        ours = "lacuna-sr"
        cells = "message-*"
        against = ["tcp"]
        factor = 0.001
    "#;
    let Some(output) = race(folder.path(), cells, &[]) else { return };
    assert!(String::from_utf8_lossy(&output.stderr).contains("skipped, no-such-program"));
    for contestant in ["lacuna-sr", "lacuna-ec-fixed", "tcp", "quinn"] {
        let bulk = sample(folder.path(), "bulk-100m-10ms-1e-3", contestant);
        assert!(bulk["goodput_mbit"].as_f64().is_some_and(|rate| rate > 0.1), "{bulk}");
        for cell in ["fresh-100m-10ms-0", "kept-100m-10ms-1e-3"] {
            let found = sample(folder.path(), &format!("message-64k-{cell}"), contestant);
            let times = found["messages_ms"].as_array().expect("times");
            assert_eq!(times.len(), 2, "{found}");
            // One way out and one way back is what no message can save.
            assert!(times.iter().all(|time| time.as_f64().is_some_and(|ms| ms > 9.0)), "{found}");
        }
    }
    for contestant in ["lacuna-sr", "tcp", "quinn"] {
        let crowd = sample(folder.path(), "crowd-16k-100m-10ms-0", contestant);
        assert_eq!(crowd["missing"], 0, "{crowd}");
        assert_eq!(crowd["messages_ms"].as_array().map(Vec::len), Some(8));
    }
    let document = std::fs::read_to_string(folder.path().join("race.md")).expect("a document");
    for part in ["## Where Lacuna loses", "## Goals", "### crowd-16k-100m-10ms-0", "skipped"] {
        assert!(document.contains(part), "{part} is missing");
    }
    assert!(folder.path().join("race/message-64k-fresh-100m-10ms.svg").exists());
}

#[test]
fn flows_share_a_path_that_goes_dark() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cells = r#"
        [[grid]]
        name = "share"
        about = "Share"
        kind = "bulk"
        rates_mbit = [100]
        rtts_ms = [10]
        losses = [0]
        seconds = 1
        changes = [{ at_s = 0.4, loss = 1.0 }, { at_s = 0.5, rate_mbit = 50 }]
        contestants = ["lacuna-sr+tcp"]
    "#;
    if race(folder.path(), cells, &["--seconds", "1.5"]).is_none() {
        return;
    }
    let found = sample(folder.path(), "share-100m-10ms-0", "lacuna-sr+tcp");
    assert_eq!(found["steady_mbit"].as_array().map(Vec::len), Some(2), "{found}");
    assert!(found["resumed_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{found}");
    assert!(found["lost"].as_u64().is_some_and(|lost| lost > 0), "{found}");
}

#[test]
fn records_of_other_contestants_stay() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cells = r#"
        [[grid]]
        name = "message"
        about = "Messages"
        kind = "message"
        rates_mbit = [100]
        rtts_ms = [1]
        losses = [0]
        sizes_kib = [1]
        count = 1
        connections = ["fresh"]
        contestants = ["tcp", "quinn"]
    "#;
    if race(folder.path(), cells, &["--only", "tcp", "--count", "3"]).is_none() {
        return;
    }
    race(folder.path(), cells, &["--only", "quinn"]).expect("it went before");
    let tcp = sample(folder.path(), "message-1k-fresh-100m-1ms-0", "tcp");
    assert_eq!(tcp["messages_ms"].as_array().map(Vec::len), Some(3));
    sample(folder.path(), "message-1k-fresh-100m-1ms-0", "quinn");
}
