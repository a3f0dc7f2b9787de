//! `lacuna collective` as a user runs it.

use serde_json::Value;
use std::process::{Command, Output};

/// Without the variables of whoever runs the tests.
fn run(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacuna"));
    for name in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LACUNA_RENDEZVOUS"] {
        command.env_remove(name);
    }
    command.arg("collective").args(line.split_whitespace()).output().expect("the binary runs")
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
