//! `lacuna probe` as a user runs it: two processes over loopback, its files, and what the planner and
//! the figures make of them.

mod process;

use process::{lacuna, spawn};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const FAST: [&str; 6] = ["--time", "100ms", "--rate", "50mbit", "--payload", "1KiB,2KiB"];

fn client(address: &str, more: &[&str]) -> Command {
    lacuna(&[&["probe", "client", address][..], &FAST, more].concat())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_measured_path_goes_to_the_planner_and_to_figure_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let server = spawn(&mut lacuna(&["probe", "server", "--once", "--listen", "127.0.0.1:0"]));
    let address = server.address();
    let (csv, svg, path) = (file("p.csv"), file("p.svg"), file("path.json"));
    let more = ["--json", "--csv", text(&csv), "--plot", text(&svg), "--trials", "2"];
    let measured = spawn(&mut client(&address, &more)).finish();
    assert_eq!(measured.code, 0, "{measured:?}");
    let served = server.finish();
    assert_eq!(served.code, 0, "{served:?}");
    assert!(served.stderr.contains("served, 4 trials"), "{}", served.stderr);

    let report = measured.objects().remove(0);
    for field in ["rate_bits_per_s", "rtt_s", "mtu_bytes", "path_mtu_bytes", "seconds"] {
        assert!(report[field].as_f64() > Some(0.0), "{field}: {report}");
    }
    let loss = |end: usize| report["loss"][end].as_f64().expect("a number");
    assert!(0.0 < loss(0) && loss(0) < loss(1) && loss(1) < 1.0, "{report}");
    // 2048 less the transport's headers.
    assert_eq!(report["mtu_bytes"], 2012);
    let trials = report["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 4);
    for trial in trials {
        let number = |field: &str| trial[field].as_f64().unwrap_or_else(|| panic!("{field}"));
        assert!(number("packets") > 0.0 && number("seconds") > 0.0);
        assert!(number("loss_low") <= number("loss") && number("loss") <= number("loss_high"));
        assert!(number("rtt_s_low") <= number("rtt_s") && number("rtt_s") <= number("rtt_s_high"));
    }

    fs::write(&path, &measured.stdout).expect("written");
    let plan = ["plan", "--from", text(&path), "--size", "1MiB", "--json"];
    let plan = spawn(&mut lacuna(&plan)).finish();
    assert_eq!(plan.code, 0, "{plan:?}");
    let plan: &Value = &plan.objects()[0];
    let window = plan["recommended"]["window_bytes"].as_f64().expect("a number");
    let product =
        report["rate_bits_per_s"].as_f64().unwrap() * report["rtt_s"].as_f64().unwrap() / 8.0;
    assert!((window - product).abs() <= 1.0 + 1e-6 * product, "{window}, {product}");

    let rows = fs::read_to_string(&csv).expect("written");
    let columns = rows.lines().next().expect("names").split(',').count();
    assert!(rows.lines().count() == 5 && rows.lines().all(|row| row.split(',').count() == columns));
    for name in ["start", "end", "bytes", "bits_per_second", "jitter_ms", "lost_packets", "packets"]
    {
        assert!(
            rows.lines().next().expect("names").split(',').any(|column| column == name),
            "{name}"
        );
    }
    assert!(fs::read_to_string(&svg).expect("drawn").contains("drop rate"));

    let out = file("figures");
    for source in [&csv, &path] {
        let figures = ["figures", "2", "--probe", text(source), "--out", text(&out), "--json"];
        let figures = spawn(&mut lacuna(&figures)).finish();
        assert_eq!(figures.code, 0, "{figures:?}");
        let figure = &figures.objects()[0];
        assert_eq!(figure["figure"], 2);
        let ours = figure["headlines"][0]["ours"].as_str().expect("text").to_owned();
        assert!(ours.contains("at 1 KiB") && ours.contains("at 2 KiB"), "{ours}");
        let drawn = fs::read_to_string(out.join("figure-2.svg")).expect("drawn");
        assert!(drawn.contains("Paper, ") && drawn.contains("Here: "));
    }
}

#[test]
fn figure_11_is_drawn_from_a_benchmark_of_the_codes() {
    let folder = tempfile::tempdir().expect("a folder");
    let (codes, out) = (folder.path().join("codes.json"), folder.path().join("out"));
    let bench = ["ec-bench", "--json", "--op", "encode", "--code", "xor", "--code", "mds"];
    let small = ["--size", "2MiB", "--threads", "1", "--rounds", "1", "--chunk", "4KiB"];
    let bench = spawn(&mut lacuna(&[&bench[..], &small].concat())).finish();
    assert_eq!(bench.code, 0, "{bench:?}");
    fs::write(&codes, &bench.stdout).expect("written");
    let figure = ["figures", "11", "--ec-bench", text(&codes), "--out", text(&out), "--json"];
    let figure = spawn(&mut lacuna(&figure)).finish();
    assert_eq!(figure.code, 0, "{figure:?}");
    let ours = figure.objects()[0]["headlines"][0]["ours"].as_str().expect("text").to_owned();
    assert!(ours.contains("xor") && ours.contains("mds") && ours.contains("cores"), "{ours}");
    assert!(fs::read_to_string(out.join("figure-11.svg")).expect("drawn").contains("400 Gbit/s"));
    fs::write(&codes, "{}").expect("written");
    let figure = ["figures", "11", "--ec-bench", text(&codes), "--out", text(&out)];
    let refused = spawn(&mut lacuna(&figure)).finish();
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("ec-bench --json"), "{}", refused.stderr);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_measurement_with_what_there_is() {
    use rustix::process::Signal;
    let server = spawn(&mut lacuna(&["probe", "server", "--listen", "127.0.0.1:0"]));
    let address = server.address();
    let args = ["probe", "client", &address, "--json", "--time", "200ms", "--trials", "1000"];
    let running = spawn(lacuna(&args).args(["--payload", "500"]));
    running.wait_for("trial 1:");
    running.signal(Signal::INT);
    let measured = running.finish();
    assert_eq!(measured.code, 130, "{measured:?}");
    let report = measured.objects().remove(0);
    assert_eq!(report["interrupted"], true);
    assert!(report["trials"].as_array().is_some_and(|trials| !trials.is_empty()), "{report}");
    // The server is there for the next one.
    let again = spawn(&mut client(&address, &["--trials", "1"])).finish();
    assert_eq!(again.code, 0, "{again:?}");
    server.signal(Signal::INT);
    assert_eq!(server.finish().code, 130);
}

#[test]
fn a_silent_peer_is_an_error_that_says_how_long_it_was_waited_for() {
    // It takes what comes, and says nothing.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound").to_string();
    let finished = spawn(&mut client(&address, &[])).finish();
    assert_eq!(finished.code, 3, "{finished:?}");
    assert!(finished.stderr.contains("said nothing for 10 s: is lacuna probe server running"));
    assert_eq!(finished.stdout, "");
}
