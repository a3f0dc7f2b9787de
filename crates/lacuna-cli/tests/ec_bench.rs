//! `lacuna ec-bench` as a user runs it: figures for every code, a picture, and
//! answers to shapes that make no sense.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn ec_bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lacuna"))
        .arg("ec-bench")
        .args(args)
        .env_remove("LACUNA_EC_ENGINE")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect()
}

fn error(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn every_code_is_measured_in_every_operation_it_has() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plot = folder.path().join("figure.svg");
    // Odd numbers throughout: chunks that fill no vector, uneven shares.
    let output = ec_bench(&[
        "--k",
        "6",
        "--m",
        "3",
        "--chunk",
        "30002",
        "--size",
        "1MiB",
        "--threads",
        "1,2",
        "--lost",
        "2",
        "--rounds",
        "1",
        "--json",
        "--quiet",
        "--plot",
        plot.to_str().expect("UTF-8"),
    ]);
    let rows = rows(&output);
    for (code, ops) in [
        ("copy", &["encode"][..]),
        ("xor", &["encode", "update", "decode"]),
        ("mds", &["encode", "update", "decode"]),
        ("reed-solomon-simd", &["encode", "decode"]),
    ] {
        for threads in [1, 2] {
            let of_code: Vec<&Value> =
                rows.iter().filter(|r| r["code"] == code && r["threads"] == threads).collect();
            let have: Vec<&str> = of_code.iter().filter_map(|row| row["op"].as_str()).collect();
            assert_eq!(have, ops, "{code}");
            for row in of_code {
                assert_eq!((&row["k"], &row["m"]), (&6.into(), &3.into()));
                assert_eq!(row["chunk_bytes"], 30_002);
                // Whole blocks: five of 180,012 bytes.
                assert_eq!(row["size_bytes"], 900_060);
                assert_eq!(row["lost"], if row["op"] == "decode" { 2 } else { 0 });
                assert!(row["engine"].is_string());
                assert!(row["gbyte_per_s"].as_f64() > Some(0.0), "{row}");
            }
        }
    }
    let svg = std::fs::read_to_string(&plot).expect("the plot was written");
    assert!(svg.starts_with("<svg") && svg.contains("GB/s of data"));
}

#[test]
fn a_choice_of_codes_and_operations_measures_nothing_else() {
    let output = ec_bench(&[
        "--code",
        "xor",
        "--op",
        "update",
        "--threads",
        "1",
        "--chunk",
        "4KiB",
        "--size",
        "128KiB",
        "--rounds",
        "1",
        "--json",
    ]);
    let rows = rows(&output);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0]["code"].as_str(), rows[0]["op"].as_str()), (Some("xor"), Some("update")));
    assert_eq!((rows[0]["k"].as_u64(), rows[0]["m"].as_u64()), (Some(32), Some(8)));
}

#[test]
fn shapes_that_make_no_code_are_usage_errors_with_the_accepted_range() {
    for (args, part) in [
        (&["--k", "0"][..], "k = 0"),
        (&["--k", "250", "--m", "8"], "255"),
        (&["--lost", "9"], "repairs 1 to 8"),
        (&["--chunk", "0"], "at least 1"),
        (&["--size", "1MiB"], "use at least"),
        (&["--threads", "0"], "1 to"),
        (&["--k", "4", "--m", "5", "--chunk", "4KiB", "--code", "xor"], "at most one parity"),
        (&["--chunk", "4097", "--size", "1MiB", "--code", "reed-solomon-simd"], "even"),
    ] {
        let text = error(&ec_bench(args), 2);
        assert!(text.contains(part), "{args:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let text = error(&ec_bench(&["--isal", "/nonexistent/libisal.so"]), 5);
    assert!(text.contains("/nonexistent/libisal.so"), "{text}");
}

#[test]
fn an_engine_that_does_not_exist_is_refused_with_those_that_do() {
    let output = Command::new(env!("CARGO_BIN_EXE_lacuna"))
        .args(["ec-bench", "--code", "mds", "--chunk", "4KiB", "--size", "1MiB"])
        .env("LACUNA_EC_ENGINE", "mmx")
        .output()
        .expect("the binary runs");
    let text = error(&output, 2);
    assert!(text.contains("mmx") && text.contains("avx512-gfni"), "{text}");
}
