//! The commands as a user runs them: results on standard output, exit codes,
//! one-line answers to nonsense.

mod process;

use process::{Finished, lacuna, perf_server, run, spawn, start};
use serde_json::json;

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SMALL_DEMO: [&str; 10] =
    ["demo", "--size", "64KiB", "--rtt", "1ms", "--rate", "500mbit", "--no-plot", "--runs", "1"];

#[test]
fn the_demo_says_which_mode_a_chunk_does_not_fit_and_why_that_would_run() {
    let chunk = ["demo", "--size", "64KiB", "--no-plot", "--chunk", "1GiB"];
    let output = run(&chunk);
    assert_eq!(output.code, 2, "{output:?}");
    for part in ["--chunk 1 GiB", "ec:mds:32:8", "no --mode", "smaller chunks"] {
        assert!(output.stderr.contains(part), "{output:?}");
    }
    let named = run(&[&chunk[..], &["--mode", "ec"]].concat());
    assert_eq!(named.code, 2, "{named:?}");
    assert!(!named.stderr.contains("no --mode"), "{named:?}");
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
    assert_eq!(output.code, 0, "{output:?}");
    let results = output.objects();
    let modes: Vec<&str> = results.iter().filter_map(|result| result["mode"].as_str()).collect();
    assert_eq!(modes, ["auto", "sr", "sr:rto", "ec:mds:32:8", "bounded"]);
    for result in &results {
        assert_eq!(result["verified"], true);
        assert_eq!(result["size_bytes"], 2 << 20);
        assert_eq!((&result["runs"], &result["interrupted"]), (&json!(2), &json!(false)));
        let mean = result["completion_ms"]["mean"].as_f64().expect("a number");
        let ideal = result["ideal_ms"].as_f64().expect("a number");
        assert!(mean >= ideal * 0.99, "faster than the ideal: {result}");
        assert!(result["goodput_gbit_per_s"].as_f64() > Some(0.0));
        let is_coded = result["mode"] == "ec:mds:32:8";
        let done = match result["mode"].as_str() {
            Some("ec:mds:32:8") => "repaired_chunks",
            Some("bounded") => "missing_bytes",
            _ => "retransmitted_chunks",
        };
        assert!(result[done].as_u64() > Some(0), "{result}");
        let ended: u64 = result["ended"]
            .as_object()
            .expect("by reason")
            .values()
            .filter_map(serde_json::Value::as_u64)
            .sum();
        assert_eq!(ended, 2);
        // The mode `auto` says what it found, and what it did about it.
        let auto = &result["auto"];
        assert_eq!(auto.is_object(), result["mode"] == "auto");
        if auto.is_object() {
            assert!(auto["loss"].as_f64() > Some(1e-3) && auto["rtt_us"].as_f64() > Some(3e3));
            assert_eq!(auto["messages"], 2);
            assert!(auto["why"].as_str().is_some_and(|why| why.contains("loss")), "{auto}");
        } else {
            assert_eq!(result["parity_packets"].as_u64() > Some(0), is_coded);
        }
        // What it was done over.
        let path = json!({
            "rate_bits_per_s": 500_000_000, "rtt_ms": 4.0, "loss": 0.01,
            "burst_packets": 1.0, "queue_bytes": 512 << 10,
        });
        assert_eq!(result["path"], path);
        assert_eq!((&result["seed"], &result["find_rate"]), (&json!(1), &json!(false)));
        assert_eq!((&result["chunk_bytes"], &result["mtu_bytes"]), (&json!(4096), &json!(4096)));
        assert!(result["queue_dropped_packets"].is_number());
    }
    assert!(results[2]["timeouts"].as_u64() > Some(0), "sr:rto repairs by timeouts: {results:?}");
}

#[test]
fn a_plot_that_nobody_asked_for_and_that_cannot_be_written_fails_no_demo() {
    let folder = tempfile::tempdir().expect("a folder");
    // Also for the superuser, who may write into any folder.
    std::fs::create_dir(folder.path().join("lacuna-demo.svg")).expect("made");
    let small = [&SMALL_DEMO[..7], &["--runs", "1", "--mode", "sr"]].concat();
    let demo = |options: &[&str]| {
        spawn(lacuna(&[&small, options].concat()).current_dir(folder.path())).finish()
    };
    let output = demo(&[]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("no plot: cannot write lacuna-demo.svg"), "{output:?}");
    let quiet = demo(&["-q"]);
    assert_eq!((quiet.code, &*quiet.stderr), (0, ""), "{quiet:?}");
    let asked = demo(&["-q", "--plot", "lacuna-demo.svg"]);
    assert_eq!(asked.code, 5, "{asked:?}");
    assert!(asked.stdout.is_empty(), "before it begins: {asked:?}");
}

#[test]
fn the_demo_without_repair_tells_what_is_missing() {
    let options = ["--mode", "raw", "--mode", "raw", "--loss", "0.1", "--size", "4MiB"];
    let args = [&SMALL_DEMO[..1], &SMALL_DEMO[3..], &options].concat();
    let output = run(&[&args[..], &["--json"]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    let results = output.objects();
    assert_eq!(results.len(), 1, "a mode given twice runs once");
    let result = &results[0];
    assert!(result["missing_chunks"].as_u64() > Some(0), "{result}");
    assert!(result["lost_packets"].as_u64() > Some(0), "{result}");
    assert_eq!(result["verified"], true, "what came is right");
    assert_eq!(result["retransmitted_chunks"], 0);

    let output = run(&args);
    let table = output.stdout;
    assert!(table.contains(" missing"), "{table}");
}

#[test]
fn the_demo_draws_a_plot_that_says_what_it_shows() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plot = folder.path().join("plot.svg");
    let path = plot.to_str().expect("UTF-8");
    let output =
        run(&["demo", "--size", "64KiB", "--rtt", "1ms", "--runs", "1", "--plot", path, "--quiet"]);
    assert_eq!(output.code, 0, "{output:?}");
    let svg = std::fs::read_to_string(&plot).expect("the plot was written");
    assert!(svg.starts_with("<svg") && svg.contains("sr:rto"));
    for part in ["1 Gbit/s, 1 ms RTT, loss 0.001", "seed 1", "one run", "mean", "ideal"] {
        assert!(svg.contains(part), "{part}");
    }
    assert!(output.stdout.contains("verified"));
}

#[test]
fn perf_measures_and_validates_in_every_mode() {
    for mode in ["raw", "sr", "ec:xor:8:2"] {
        let (server, address) = perf_server(&["--once"]);
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
        assert_eq!(output.code, 0, "{output:?}");
        let report = &output.objects()[0];
        assert_eq!(report["mode"], mode);
        assert_eq!(report["iterations"], 40);
        assert_eq!(report["validated"], true);
        assert_eq!(report["receive_drops"], 0);
        assert_eq!(report["interrupted"], false);
        for field in [
            "gbit_per_s",
            "mpps",
            "mean_us",
            "p99_us",
            "lost_packets",
            "missing_chunks",
            "retransmitted_packets",
            "rejected_packets",
            "cpu_s_per_gbyte",
        ] {
            assert!(report[field].is_number(), "{field} in {report}");
        }
        assert_eq!(server.finish().code, 0);
    }
}

#[test]
fn perf_tells_how_writes_and_reads_ended() {
    for verb in ["write", "write-imm", "read"] {
        let (server, address) = perf_server(&["--once", "--json"]);
        let size = ["--size", "256KiB", "--iters", "20", "--inflight", "4", "--validate"];
        let verb_and_mode = ["--verb", verb, "--mode", "bounded", "--deadline", "20s"];
        let command = ["perf", "client", &address, "--json", "--quiet"];
        let output = run(&[&command[..], &size, &verb_and_mode].concat());
        assert_eq!(output.code, 0, "{output:?}");
        let report = &output.objects()[0];
        assert_eq!((&report["verb"], &report["qp"]), (&json!(verb), &json!("sdr")));
        assert_eq!((&report["validated"], &report["iterations"]), (&json!(true), &json!(20)));
        let ended = report["ended"].as_object().expect("by reason");
        let all: u64 = ended.values().filter_map(serde_json::Value::as_u64).sum();
        assert_eq!(Some(all), report["messages"].as_u64(), "{report}");
        assert!(report["lost_bytes"].is_u64() && report["deadline_us"] == 20_000_000, "{report}");
        let server = server.finish();
        assert_eq!(server.code, 0, "{server:?}");
        // The first says where it listens.
        assert_eq!(server.objects()[1]["ended"], report["ended"]);
    }
}

#[test]
fn fewer_channels_than_asked_for_are_said_at_the_start() {
    let (_server, address) = perf_server(&["--once"]);
    let size = ["--size", "64KiB", "--iters", "4"];
    let output = run(&[&["perf", "client", &address, "--channels", "3"], &size[..]].concat());
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("1 of 3 channels (the peer has no more)"), "{output:?}");
}

#[test]
fn nonsense_is_answered_in_one_line_with_exit_code_2() {
    for args in [
        &["demo", "--loss", "2"][..],
        &["demo", "--loss", "0.9"],
        &["demo", "--size", "many"],
        &["demo", "--size", "0"],
        &["demo", "--mode", "magic"],
        &["demo", "--rtt", "25"],
        &["demo", "--rtt", "1h"],
        &["demo", "--rtt", "10s"],
        &["demo", "--rate", "1000tbit"],
        &["demo", "--rate", "1bit", "--size", "1"],
        &["demo", "--rate", "1mbit", "--size", "10GiB"],
        &["demo", "--runs", "0"],
        &["demo", "--burst", "nan"],
        &["demo", "--burst", "0"],
        &["demo", "--chunk", "0"],
        &["demo", "--mtu", "70000"],
        &["demo", "--mtu", "9001"],
        &["demo", "--mtu", "0"],
        &["perf", "client"],
        &["perf", "client", "host:99999"],
        &["perf", "client", "host", "-n", "0"],
        &["perf", "client", "host", "-s", "0"],
        &["perf", "client", "host", "--duration", "0s"],
        &["perf", "client", "host", "--inflight", "0"],
        &["perf", "client", "host", "--mtu", "9001"],
        &["perf", "server", "--listen", "127.0.0.1:99999"],
        &["perf", "server", "--clients", "0"],
        &["perf", "client", "host", "--verb", "atomic"],
        &["perf", "client", "host", "--qp", "xrc"],
        &["perf", "client", "127.0.0.1:1", "--qp", "rd", "--ping-pong"],
        &["perf", "client", "127.0.0.1:1", "--qp", "ud", "--verb", "write"],
        &["perf", "client", "host", "--qp", "ud", "--group", "all"],
        &["perf", "client", "host", "--qp", "ud", "--no-group-repair"],
        &["perf", "client", "127.0.0.1:1", "--qp", "ud", "--group", "10.0.0.255"],
        &["perf", "client", "host", "--missing", "ones"],
        &["perf", "client", "host", "--deadline", "0s"],
        &["perf", "client", "127.0.0.1:1", "--ping-pong"],
        &["perf", "client", "127.0.0.1:1", "--verb", "read", "--missing", "keep"],
        &["perf", "client", "127.0.0.1:1", "--verb", "read", "-t", "1000"],
        &["perf", "fly"],
        &["fly"],
    ] {
        let output = run(args);
        assert_eq!(output.code, 2, "{args:?}: {output:?}");
        let text = output.stderr;
        assert!(text.starts_with("lacuna: ") && text.lines().count() == 1, "{args:?}: {text}");
        assert!(output.stdout.is_empty());
    }
}

/// Numbers at the edge of what is allowed do not turn into NaN or a panic.
#[cfg(target_os = "linux")]
#[test]
fn a_gateway_says_what_its_command_line_lacks() {
    for (args, part) in [
        (&["--local", "nothere0", "--remote", "lo"][..], "no interface nothere0"),
        (&["--local", "lo", "--remote", "lo", "--shim", "0:1"], "use R:C"),
        (&["--local", "lo", "--remote", "lo", "--shim", "lots"], "auto, or off"),
        (&["--local", "lo"], "not provided: --remote"),
        (&["--local", "lo", "--remote", "lo"], "use two interfaces"),
    ] {
        let output = run(&[&["lowar", "gateway"], args].concat());
        assert_eq!(output.code, 2, "{args:?}: {output:?}");
        assert!(output.stderr.contains(part), "{args:?}: {output:?}");
    }
}

#[test]
fn extreme_numbers_that_make_sense_work() {
    let rates: [&[&str]; 3] = [
        &["--rate", "1000tbit", "--rtt", "0s", "--size", "1"],
        &["--mtu", "9kb", "--rtt", "0s"],
        &["--seed", "18446744073709551615", "--runs", "2", "--rtt", "0s"],
    ];
    for options in rates {
        let small = ["demo", "--size", "64KiB", "--runs", "1", "--no-plot", "--json", "--quiet"];
        // The last of two values would be an error: take those of the case.
        let mut args: Vec<&str> = vec![small[0]];
        for pair in small[1..5].chunks(2).filter(|pair| !options.contains(&pair[0])) {
            args.extend(pair);
        }
        args.extend(&small[5..]);
        args.extend(options);
        let output = run(&args);
        assert_eq!(output.code, 0, "{args:?}: {output:?}");
        for result in output.objects() {
            assert_eq!(result["verified"], true);
            let fields = ["goodput_gbit_per_s", "ideal_ms", "retransmitted_share"];
            assert!(fields.iter().all(|field| result[field].is_f64()), "NaN is null: {result}");
        }
    }
}

#[test]
fn nobody_listening_is_a_network_failure() {
    let output = run(&["perf", "client", "127.0.0.1:1"]);
    assert_eq!(output.code, 3);
    let text = output.stderr;
    assert!(text.starts_with("lacuna: cannot reach 127.0.0.1:1: "), "{text}");
    assert!(text.ends_with(": is lacuna perf server running there, on that port?\n"), "{text}");
}

#[test]
fn what_this_machine_cannot_do_is_said_before_it_is_begun() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let huge = "1000TiB";
    let rate = ["--rate", "1000000tbit", "--rtt", "0s"];
    for (args, part) in [
        (&["perf", "server", "--listen", &address][..], "choose another with --listen"),
        (&["perf", "client", "127.0.0.1:1", "--size", huge], "16 messages of 1000 TiB"),
        (&[&["demo", "--size", huge], &rate[..]].concat(), "choose a smaller --size"),
    ] {
        let output = run(args);
        assert_eq!(output.code, 5, "{args:?}: {output:?}");
        let text = output.stderr;
        assert!(text.contains(part) && text.lines().count() == 1, "{args:?}: {text}");
    }
}

/// A server that reports wrong bytes: the client's exit code says so.
#[test]
fn wrong_data_is_a_failure_of_its_own() {
    use lacuna::{ConnectionConfig, Context, ContextConfig, Listener};
    let context = Context::new(ContextConfig::default()).expect("sockets");
    let any_port = "127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&context, any_port, ConnectionConfig::default()).expect("a port");
    let address = listener.local_addr().to_string();
    let serving = std::thread::spawn(move || {
        let session = listener.accept().expect("the session");
        session.recv(&mut [0; 1000]).expect("the request");
        session.send(b"\"Ready\"").expect("the client takes it");
        let measured = listener.accept().expect("what is measured");
        let done = session.post_recv(vec![0; 1000]).expect("a slot");
        for _ in 0..5 {
            measured.recv(&mut [0; 1024]).expect("a message");
        }
        done.wait(std::time::Duration::from_secs(60)).expect("it is over");
        let counters = json!({
            "messages": 5, "incomplete": 0, "missing_chunks": 0, "missing_bytes": 0,
            "wrong": 1, "first_wrong": "message 3 at byte 7", "lost_packets": 0,
            "duplicate_packets": 0, "rejected_packets": 0, "receive_drops": 0, "cpu_s": 0.1,
        });
        session.send(counters.to_string().as_bytes()).expect("the client takes it");
    });
    let options = ["--size", "1KiB", "-n", "5", "--inflight", "1", "--warmup", "0", "--validate"];
    let output = run(&[&["perf", "client", &address, "--json"], &options[..]].concat());
    assert_eq!(output.code, 4, "{output:?}");
    assert_eq!(output.objects()[0]["validated"], false);
    let text = output.stderr;
    assert!(text.contains("1 message arrived wrong, first: message 3 at byte 7"), "{text}");
    serving.join().expect("no panic");
}

/// The other way round is among the tests of `send`.
#[cfg(unix)]
#[test]
fn a_receiver_of_files_is_told_from_a_perf_server_at_once() {
    let inbox = tempfile::tempdir().expect("a temporary folder");
    let dir = inbox.path().to_str().expect("UTF-8");
    let receiver = start(&["recv", "--listen", "127.0.0.1:0", "--dir", dir]);
    let output = run(&["perf", "client", &receiver.address()]);
    assert_eq!(output.code, 3, "{output:?}");
    let reason = "refused: this is lacuna recv; lacuna perf client needs lacuna perf server\n";
    assert!(output.stderr.ends_with(reason), "{output:?}");
}

/// A pipe that nobody reads.
fn unread() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer
}

#[test]
fn nobody_reading_is_a_quiet_end() {
    for json in [&["--json"][..], &[]] {
        let args = [&SMALL_DEMO[..], json].concat();
        let output = lacuna(&args).stdout(unread()).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = stderr(&output);
        assert!(!text.contains("panicked") && !text.contains("lacuna:"), "{text}");
    }
    // What only makes more results ends with the first that nobody reads.
    let args = [&SMALL_DEMO[..], &["--json"]].concat();
    let output = lacuna(&args).stdout(unread()).output().expect("the binary runs");
    assert!(!stderr(&output).contains("sr:rto"), "{output:?}");
    let output = lacuna(&["--help"]).stdout(unread()).output().expect("the binary runs");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let (_perf, perf) = perf_server(&[]);
    let probe = start(&["probe", "server", "--listen", "127.0.0.1:0"]);
    let probed = probe.address();
    let perf = ["perf", "client", &perf, "-n", "4", "--size", "64KiB"];
    let probe = ["probe", "client", &probed, "--trials", "1", "--time", "50ms", "-s", "500"];
    let bench = ["ec-bench", "--size", "2MiB", "--rounds", "1", "--threads", "1", "--code", "copy"];
    for args in [&perf[..], &probe, &bench] {
        for json in [&["--json"][..], &[]] {
            let args = [args, json].concat();
            let output = lacuna(&args).stdout(unread()).output().expect("the binary runs");
            assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
            let text = stderr(&output);
            assert!(!text.contains("panicked") && !text.contains("lacuna:"), "{text}");
            // Nobody hears the notes either.
            let mut deaf = lacuna(&args);
            let status = deaf.stdout(unread()).stderr(unread()).status().expect("it runs");
            assert_eq!(status.code(), Some(0), "{args:?}");
        }
    }
}

#[test]
fn a_closed_standard_error_changes_no_exit_code() {
    for (args, code) in [
        (&[&SMALL_DEMO[..], &["-vvv"]].concat()[..], 0),
        (&["demo", "--size", "0"], 2),
        (&["perf", "client", "127.0.0.1:1"], 3),
        (&["perf", "client", "127.0.0.1:1", "--size", "1000TiB"], 5),
    ] {
        let output = lacuna(args).stderr(unread()).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_the_results_is_this_machines_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = lacuna(&SMALL_DEMO).stdout(full).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(stderr(&output).contains("cannot write the result"), "{output:?}");
}

#[test]
fn logs_have_colours_on_a_terminal_only() {
    let output = lacuna(&SMALL_DEMO).arg("-vv").output().expect("the binary runs");
    let text = stderr(&output);
    assert!(text.contains("INFO") && !text.contains('\x1b'), "{text}");
}

/// Hosts that name this machine, by the families that it has.
fn own_hosts() -> impl Iterator<Item = &'static str> {
    let has_v6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    ["127.0.0.1", "::ffff:127.0.0.1"].into_iter().chain(has_v6.then_some("::1"))
}

#[cfg(unix)]
#[test]
fn a_port_alone_is_listened_on_everywhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, "content").expect("written");
    let (file, inbox) = (file.to_str().expect("text"), dir.path().join("inbox"));
    let inbox = inbox.to_str().expect("text");
    let probe = &["--time", "50ms", "-n", "1", "-s", "200", "--rate", "1mbit"][..];
    for (server, client, client_args, protocol) in [
        (&["perf", "server"][..], &["perf", "client"][..], &["-n", "1", "-s", "1KiB"][..], "tcp"),
        (&["probe", "server"], &["probe", "client"], probe, "udp"),
        (&["recv", "--dir", inbox], &["send", "--retry", "0s", file], &[], "tcp"),
    ] {
        let running = start(&[server, &["--listen", "0", "--json"]].concat());
        let line = running.wait_for("listening on");
        let (_, rest) = line.split_once("listening on [::]:").unwrap_or_else(|| panic!("{line}"));
        assert!(rest.contains("IPv6 and IPv4)"), "{line}");
        let port = rest.split([' ', ',']).next().expect("a port");
        for host in own_hosts() {
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            let output = run(&[client, &[&format!("{host}:{port}")], client_args].concat());
            assert_eq!(output.code, 0, "{client:?} {host}: {output:?}");
            // A peer of IPv4 is one, whichever socket it came to.
            assert!(!running.stderr().contains("ffff"), "{}", running.stderr());
        }
        running.signal(rustix::process::Signal::INT);
        let said = running.finish().objects().remove(0);
        let expected = json!({
            "listening": format!("[::]:{port}"), "protocol": protocol, "families": ["ipv6", "ipv4"]
        });
        assert_eq!(said, expected);
    }
}

#[test]
fn an_address_of_ipv4_is_listened_on_over_ipv4_alone() {
    let server = start(&["perf", "server", "--listen", "0.0.0.0:0"]);
    let line = server.wait_for("listening on");
    assert!(line.contains("listening on 0.0.0.0:") && line.ends_with("(IPv4 alone)"), "{line}");
}

#[test]
fn a_link_local_address_needs_an_interface_that_there_is() {
    for (args, part) in [
        (&["perf", "client", "fe80::1"][..], "fe80::1 is link-local: use fe80::1%INTERFACE"),
        (&["perf", "server", "--listen", "[fe80::1]:0"], "fe80::1 is link-local"),
        (&["probe", "client", "[fe80::1%nothere0]:1"], "no network interface \"nothere0\""),
        (&["recv", "--listen", "fe80::1%nothere0"], "no network interface \"nothere0\""),
        (&["send", "Cargo.toml", "fe80::1"], "fe80::1 is link-local"),
    ] {
        let output = run(args);
        assert_eq!(output.code, 2, "{args:?}: {output:?}");
        assert!(output.stderr.contains(part) && output.stderr.contains("use "), "{output:?}");
    }
}

#[test]
fn help_is_there_for_everything_with_examples() {
    let help = |command: &[&str], option: &str| {
        let output = run(&[command, &[option]].concat());
        assert_eq!(output.code, 0);
        let text = output.stdout;
        assert!(text.contains("Usage: lacuna"), "{command:?}: {text}");
        assert!(text.contains("\nExamples:\n  lacuna "), "{command:?}: {text}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{command:?} {option}: {text}");
        text
    };
    for (command, has_quantities) in [
        (&[][..], false),
        (&["demo"], true),
        (&["send"], true),
        (&["recv"], true),
        (&["perf"], false),
        (&["perf", "client"], true),
        (&["perf", "server"], true),
    ] {
        let (short, long) = (help(command, "-h"), help(command, "--help"));
        assert!(short.lines().count() < long.lines().count(), "{command:?}: {short}");
        assert!(!short.contains("Units:"), "{command:?}: {short}");
        assert_eq!(long.contains("\nUnits:\n"), has_quantities, "{command:?}: {long}");
        // Said once.
        let has_codes = long.contains("Exit codes of every command:\n  0 ");
        assert_eq!(has_codes, command.is_empty(), "{command:?}: {long}");
    }
}

#[test]
fn the_version_is_printed() {
    let output = run(&["--version"]);
    assert_eq!(output.code, 0);
    let expected = concat!("lacuna ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(output.stdout, expected);
}

#[cfg(unix)]
#[test]
fn a_limit_on_the_length_of_files_fails_a_file_and_not_the_receiver() {
    let dir = tempfile::tempdir().expect("a folder");
    let (long, short) = (dir.path().join("long"), dir.path().join("short"));
    std::fs::write(&long, vec![1; 20 << 20]).expect("written");
    std::fs::write(&short, "short").expect("written");
    let inbox = dir.path().join("in");
    // 10 MiB, or half of that where a block has 512 bytes.
    let script = format!(
        "ulimit -f 10240; exec {} recv --once --listen 127.0.0.1:0 --dir {}",
        env!("CARGO_BIN_EXE_lacuna"),
        inbox.display()
    );
    let receiver = spawn(&mut process::piped("sh", &["-c", &script]));
    let address = receiver.address();
    let paths = [&long, &short].map(|path| path.to_str().expect("text"));
    let sent = run(&["send", "--retry", "0s", paths[0], paths[1], &address]);
    let received = receiver.finish();
    assert_eq!(received.code, 5, "{received:?}");
    assert!(received.stderr.contains("File too large"), "{received:?}");
    assert_eq!(sent.code, 3, "{sent:?}");
    assert_eq!(std::fs::read_to_string(inbox.join("short")).expect("it arrived"), "short");
}

#[cfg(unix)]
#[test]
fn a_client_is_interrupted_while_the_peer_says_nothing() {
    // It is there, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("bound").to_string();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for args in [&["perf", "client", &address][..], &["send", file, &address]] {
        let client = start(args);
        let _held = silent.accept().expect("it connects");
        client.signal(rustix::process::Signal::INT);
        let output = client.finish();
        assert_eq!(output.code, 130, "{args:?}: {output:?}");
    }
}

/// Runs a command as a user with so many threads; `None` where that cannot be had.
#[cfg(target_os = "linux")]
fn run_with_threads(count: u32, args: &[&str]) -> Option<Finished> {
    // The limit is none for root, and for others counts all that they run in the
    // same namespace.
    let limit = format!("--nproc={count}");
    let user = match rustix::process::geteuid().is_root() {
        true => &["setpriv", "--reuid=54321", "--clear-groups"][..],
        false => &["unshare", "--user"],
    };
    let program = env!("CARGO_BIN_EXE_lacuna");
    let tried = process::piped(user[0], &[&user[1..], &[program, "--version"]].concat()).output();
    if !tried.ok()?.status.success() {
        return None;
    }
    let words = [&user[1..], &["prlimit", &limit, program], args].concat();
    Some(spawn(&mut process::piped(user[0], &words)).finish())
}

#[cfg(target_os = "linux")]
#[test]
fn a_thread_that_the_system_refuses_is_an_error_and_no_panic() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let (file, inbox) = (dir.path().join("file"), dir.path().join("in"));
    std::fs::write(&file, "content").expect("written");
    let [file, inbox] = [&file, &inbox].map(|path| path.to_str().expect("text"));
    let receiver = start(&["recv", "--listen", "127.0.0.1:0", "--dir", inbox]);
    let address = receiver.address();
    let coding = ["ec-bench", "--threads", "4", "--code", "xor", "--rounds", "1"];
    for args in [&["send", "--retry", "0s", file, &address][..], &SMALL_DEMO, &coding] {
        let mut refused = 0;
        for count in 1..=9 {
            let Some(output) = run_with_threads(count, args) else { return };
            assert!(matches!(output.code, 0 | 5), "{count}: {output:?}");
            assert!(!output.stderr.contains("panicked"), "{count}: {output:?}");
            refused += u32::from(output.stderr.contains("refused a thread"));
        }
        assert!(refused > 0, "{args:?} has enough with one thread");
    }
}

#[test]
fn a_server_names_the_address_that_it_cannot_have() {
    let dir = tempfile::tempdir().expect("a folder");
    let inbox = dir.path().join("in");
    let recv = ["recv", "--dir", inbox.to_str().expect("text")];
    for server in [&recv[..], &["perf", "server"], &["probe", "server"]] {
        let output = run(&[server, &["--listen", "192.0.2.77:7400"]].concat());
        assert_eq!(output.code, 5, "{output:?}");
        let expected = "cannot bind to 192.0.2.77:7400: no interface has this address: choose";
        assert!(output.stderr.contains(expected), "{output:?}");
    }
}

#[test]
fn a_plot_that_cannot_be_written_is_refused_before_the_work() {
    let dir = tempfile::tempdir().expect("a folder");
    let plot = dir.path().join("none").join("plot.svg");
    let plot = plot.to_str().expect("text");
    for command in [&["demo", "--runs", "10000"][..], &["ec-bench"], &["probe", "client", "host"]] {
        let output = run(&[command, &["--plot", plot]].concat());
        assert_eq!((output.code, &*output.stdout), (5, ""), "{output:?}");
        assert!(output.stderr.contains(&format!("cannot write {plot}")), "{output:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_says_nothing_of_connections_that_are_reset() {
    use rustix::net::sockopt::set_socket_linger;
    let (server, address) = perf_server(&[]);
    let connect = || std::net::TcpStream::connect(&address).expect("it listens");
    let local = |stream: &std::net::TcpStream| stream.local_addr().expect("bound").to_string();
    let reset = connect();
    let was_reset = local(&reset);
    let closes = || {
        let closed = connect();
        let was_closed = local(&closed);
        drop(closed);
        server.wait_for(&was_closed);
    };
    // So the one before it is accepted, too.
    closes();
    set_socket_linger(&reset, Some(std::time::Duration::ZERO)).expect("an option");
    drop(reset);
    closes();
    assert!(!server.stderr().contains(&was_reset), "{}", server.stderr());
}
