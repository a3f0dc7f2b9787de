//! `lacuna wan` as a user runs it. Where there are no namespaces to be had, what needs them says so
//! and passes.

#![cfg(target_os = "linux")]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

/// Its hosts are alone on their network.
fn lacuna() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacuna"));
    command.env("LACUNA_INSECURE", "1");
    command
}

fn wan(args: &[&str]) -> Output {
    lacuna().arg("wan").args(args).stdin(Stdio::null()).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The same, unless this machine gives no hosts; that has to be said in one line.
fn run(args: &[&str]) -> Option<Output> {
    let output = wan(args);
    let text = stderr(&output);
    assert!(!text.contains("panicked"), "{text}");
    if output.status.code() == Some(5) && text.contains("run as root") {
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        eprintln!("skipped: {text}");
        return None;
    }
    Some(output)
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one object")
}

#[test]
fn the_exit_code_is_the_clients_and_the_programs_know_where_they_are() {
    let client = "echo $LACUNA_WAN_HOST $LACUNA_WAN_ADDR $LACUNA_WAN_PEER $LACUNA_WAN_SERVER \
                  $LACUNA_WAN_CLIENT $LACUNA_WAN_MTU; exit 7";
    let args = ["run", "--ready", "0s", "--mtu", "1400", "--", "sleep", "1000", "--", "sh", "-c"];
    let mut args = args.to_vec();
    args.push(client);
    let Some(output) = run(&args) else { return };
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "client 10.77.0.2 10.77.0.1 10.77.0.1 10.77.0.2 1400\n");
    let text = stderr(&output);
    assert!(text.contains("server sleep: signal 15") && text.contains("client sh: exit code 7"));
}

#[test]
fn a_transfer_over_a_bad_path_is_told_in_json_with_its_time_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (csv, svg) = (path("wan.csv"), path("wan.svg"));
    let lacuna = env!("CARGO_BIN_EXE_lacuna");
    let client = format!(
        "{lacuna} perf client --json --validate --size 1MiB --iters 8 $LACUNA_WAN_SERVER 2>&1"
    );
    let Some(output) = run(&[
        "run",
        "--json",
        "--rate",
        "200mbit",
        "--rtt",
        "10ms",
        "--loss",
        "1e-2,1e-3",
        "--burst",
        "2",
        "--seed",
        "5",
        "--csv",
        &csv,
        "--plot",
        &svg,
        "--",
        lacuna,
        "perf",
        "server",
        "--",
        "sh",
        "-c",
        &client,
    ]) else {
        return;
    };
    let result = object(&output);
    assert_eq!(output.status.code(), Some(0), "{result}");
    assert_eq!((&result["seed"], &result["mtu_bytes"]), (&5.into(), &1500.into()));
    assert_eq!(result["client"]["exit_code"], 0);
    let said = result["client"]["stdout"].as_str().expect("text");
    assert!(said.contains("\"validated\":true"), "{said}");
    let way = &result["to_server"];
    assert!(way["sent_bytes"].as_u64() > Some(8 << 20) && way["lost"].as_u64() > Some(10), "{way}");
    assert!(way["path"].as_str().is_some_and(|path| path.contains("bursts of 2")), "{way}");
    let text = std::fs::read_to_string(csv).expect("a time line");
    let lost = text.lines().skip(1).filter(|line| line.contains("to_server"));
    let lost = lost.map(|line| line.split(',').nth(8).unwrap().parse::<u64>().unwrap());
    assert_eq!(Some(lost.sum()), way["lost"].as_u64());
    assert!(std::fs::read_to_string(svg).expect("a picture").contains("queue, KiB"));
}

#[test]
fn a_probe_finds_the_loss_bursts_delay_reordering_and_mtu_that_the_path_has() {
    let lacuna = env!("CARGO_BIN_EXE_lacuna");
    let client = format!(
        "{lacuna} probe client --json --trials 1 --time 2s --payload 1KiB --rate 20mbit \
         $LACUNA_WAN_SERVER"
    );
    let (loss, burst_packets, held_back, rtt_s) = (1e-2, 4.0, 2e-2, 0.04);
    // The way back, over which only some echoes go, is left alone.
    let path = "--rate 100mbit --rtt 40ms --loss 1e-2,0 --burst 4 --reorder 2e-2,0 \
                --reorder-delay 5ms,0ms --mtu 1400 --seed 1";
    let mut args = vec!["run", "--json"];
    args.extend(path.split_whitespace());
    args.extend(["--", lacuna, "probe", "server", "--once", "--", "sh", "-c", &client]);
    let Some(output) = run(&args) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = object(&output);
    let said = result["client"]["stdout"].as_str().expect("text");
    let report: Value = serde_json::from_str(said).expect("one object");
    assert_eq!(report["path_mtu_bytes"], 1400);
    let trial = &report["trials"][0];
    let number = |name: &str| trial[name].as_f64().unwrap_or_else(|| panic!("{name}: {trial}"));
    let holds = |name: &str, low: &str, high: &str, truth: f64| {
        assert!((number(low)..=number(high)).contains(&truth), "{name} {truth}: {trial}");
    };
    holds("loss", "loss_low", "loss_high", loss);
    let (low, high) = ("mean_burst_packets_low", "mean_burst_packets_high");
    holds("mean burst", low, high, burst_packets);
    holds("reordered", "reordered_share_low", "reordered_share_high", held_back);
    // The path delays no packet less, and a busy machine all of them more.
    assert!(number("rtt_min_s") >= rtt_s, "{trial}");
    // What the path says that it lost is what was missed: the exchange loses a packet or two more.
    let lost = result["to_server"]["lost"].as_u64().expect("a number");
    assert!(trial["lost_packets"].as_u64() >= Some(lost - lost / 10), "{lost}: {trial}");
}

#[test]
fn a_path_that_goes_dark_loses_what_is_sent_from_then_on() {
    // The client sends to nobody; what counts is what the path does to it.
    let client = "i=0; while [ $i -lt 50 ]; do echo x > /dev/udp/10.77.0.1/9; \
                  i=$((i+1)); sleep 0.01; done";
    let Some(output) = run(&[
        "run",
        "--json",
        "--ready",
        "0s",
        "--at",
        "0s loss=100%",
        "--",
        "sleep",
        "100",
        "--",
        "bash",
        "-c",
        client,
    ]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = object(&output);
    let way = &result["to_server"];
    assert!(way["lost"].as_u64() > Some(0), "{way}");
}

#[test]
fn a_server_that_ends_at_once_is_named_with_its_exit_code() {
    let Some(output) = run(&["run", "--", "sh", "-c", "exit 3", "--", "true"]) else { return };
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("the server sh ended before it listened (exit code 3)"));
    let Some(output) = run(&["run", "--", "/nonexistent/server", "--", "true"]) else { return };
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("cannot start the server /nonexistent/server"));
}

#[test]
fn a_run_that_is_asked_to_end_ends_its_programs_and_tells_what_was() {
    let mut child = lacuna()
        .args(["wan", "run", "--ready", "0s", "--", "sleep", "1000", "--"])
        .args(["sh", "-c", "echo here; exec sleep 1000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    // Nothing is said where there are no hosts.
    let has_hosts = stdout.read_line(&mut line).expect("text") > 0;
    if has_hosts {
        let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(kill.expect("kill(1)").success());
    }
    let output = child.wait_with_output().expect("it ends");
    let text = stderr(&output);
    if !has_hosts {
        assert!(text.contains("run as root"), "{text}");
        eprintln!("skipped: {text}");
        return;
    }
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("client sh: signal 15") && text.contains("interrupted"), "{text}");
}

#[test]
fn a_run_that_is_asked_to_end_says_so_in_its_json() {
    let folder = tempfile::tempdir().expect("a folder");
    let begun = folder.path().join("begun");
    assert!(Command::new("mkfifo").arg(&begun).status().expect("mkfifo(1)").success());
    let client = format!("echo here; echo begun > {}; exec sleep 1000", begun.display());
    // The run has the pipe open, too: it is at its end if the run ends before it has begun.
    let holding = format!("exec 3> {}; exec \"$@\"", begun.display());
    let child = Command::new("sh")
        .args(["-c", &holding, "sh", env!("CARGO_BIN_EXE_lacuna")])
        .args(["wan", "run", "--json", "--ready", "0s", "--", "sleep", "1000", "--"])
        .args(["sh", "-c", &client])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut said = String::new();
    let pipe = std::fs::File::open(&begun).expect("a pipe");
    BufReader::new(pipe).read_line(&mut said).expect("readable");
    if said == "begun\n" {
        let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(kill.expect("kill(1)").success());
    }
    let output = child.wait_with_output().expect("it ends");
    if stderr(&output).contains("run as root") {
        eprintln!("skipped: {}", stderr(&output));
        return;
    }
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let result = object(&output);
    assert_eq!((&result["interrupted"], &result["why"]), (&true.into(), &"SIGTERM".into()));
    assert_eq!(result["client"]["stdout"], "here\n");
}

#[test]
fn a_shell_runs_in_the_clients_host() {
    let shell = env!("CARGO_BIN_EXE_lacuna");
    // No terminal here: the shell reads its commands from nowhere and ends.
    let output = Command::new(shell)
        .args(["wan", "shell", "--quiet", "--rtt", "10ms"])
        .env("SHELL", "/usr/bin/env")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    if stderr(&output).contains("run as root") {
        eprintln!("skipped: {}", stderr(&output));
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("LACUNA_WAN_HOST=client"));
}

#[test]
fn nonsense_is_answered_in_one_line_that_says_what_to_do() {
    let programs = ["--", "a", "--", "b"];
    for (args, part) in [
        (&["--rate", "1"][..], "no unit"),
        (&["--rtt", "10ms", "--delay", "5ms"], "cannot be used with"),
        (&["--loss", "2"], "less than 1"),
        (&["--queue", "20ms"], "needs a --rate"),
        (&["--mtu", "100"], "576 to 65535"),
        (&["--sysctl", "kernel.panic=1"], "net.ipv4"),
        (&["--at", "10s"], "changes nothing"),
        (&["--rate", "1gbit,1gbit,1gbit"], "TO_SERVER,TO_CLIENT"),
        (&["--loss-trace", "/nonexistent"], "cannot read"),
    ] {
        let args = [&["run"], args, &programs].concat();
        let output = wan(&args);
        let text = stderr(&output);
        assert!(matches!(output.status.code(), Some(2 | 5)), "{text}");
        assert!(text.contains(part), "{args:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
    for (words, part) in [(&["run", "--", "a"][..], "no client"), (&["run"], "not provided")] {
        let output = wan(words);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}

/// Says what it hears until the end.
const LISTENER: &str = "
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 7000))
s.settimeout(60)
heard = []
while True:
    data = s.recv(100)
    if data == b'end':
        break
    heard.append(data.decode())
print('heard', *heard)
";

#[test]
fn a_broadcast_on_a_lan_reaches_the_programs_of_all_other_hosts() {
    let sender = "
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for word in (os.environ['LACUNA_WAN_HOST'], os.environ['LACUNA_WAN_HOSTS'], 'end'):
    s.sendto(word.encode(), (os.environ['LACUNA_WAN_BROADCAST'], 7000))
for address in os.environ['LACUNA_WAN_PEERS'].split():
    print(address)
";
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3");
        return;
    }
    let lan = ["run", "--topology", "lan", "--hosts", "4"];
    let python = ["--", "python3", "-c"];
    let mut args = lan.to_vec();
    for _ in 0..3 {
        args.extend(python);
        args.push(LISTENER);
    }
    args.extend(python);
    args.push(sender);
    let Some(output) = run(&args) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "host 4: 10.77.0.1\nhost 4: 10.77.0.2\nhost 4: 10.77.0.3\n");
    let text = stderr(&output);
    assert!(text.contains("a LAN of 4 hosts") && text.contains("to host 3"), "{text}");
    // The listeners are ended when the sender has ended, and may not have said anything by then.
    assert!(text.contains("host 1 python3: ") && text.contains("switch: "), "{text}");
}

#[test]
fn programs_of_a_lan_are_told_in_json_each_with_its_host() {
    let script = "echo $LACUNA_WAN_HOST of $LACUNA_WAN_HOSTS at $LACUNA_WAN_ADDR; \
                  echo noise >&2; [ $LACUNA_WAN_HOST != 3 ] || exit 9";
    let args =
        ["run", "--json", "--topology", "lan", "--hosts", "3", "--loss", "1e-2", "--", "sh", "-c"];
    let mut args = args.to_vec();
    args.push(script);
    let Some(output) = run(&args) else { return };
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
    let result = object(&output);
    assert_eq!((&result["topology"], &result["interrupted"]), (&"lan".into(), &false.into()));
    let hosts = result["hosts"].as_array().expect("hosts");
    assert_eq!(hosts.len(), 3);
    for (number, host) in (1..).zip(hosts) {
        assert_eq!(
            (&host["host"], &host["address"]),
            (&number.into(), &format!("10.77.0.{number}").into())
        );
        let said = &host["program"]["stdout"];
        assert_eq!(said, &format!("{number} of 3 at 10.77.0.{number}\n"));
        assert!(host["to_host"]["lost"].is_u64() && host["sent_packets"].is_u64());
    }
    assert!(stderr(&output).contains("host 2: noise"), "{}", stderr(&output));
}

#[test]
fn clients_of_a_lan_reach_the_server_of_host_1() {
    let lacuna = env!("CARGO_BIN_EXE_lacuna");
    let client = format!("{lacuna} perf client --json --size 1MiB --iters 2 $LACUNA_WAN_SERVER");
    let path = "--topology lan --rate 200mbit --rtt 2ms --loss 1e-3";
    let mut args = vec!["run", "--quiet"];
    args.extend(path.split_whitespace());
    args.extend(["--", lacuna, "perf", "server", "--", "sh", "-c", &client]);
    let Some(output) = run(&args) else { return };
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // As the client said it.
    let said: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(said["interrupted"], false, "{said}");
}

#[test]
fn a_broadcast_reaches_three_servers_of_a_lan_each_of_which_asks_for_what_it_misses() {
    let lacuna = env!("CARGO_BIN_EXE_lacuna");
    let of = |options: &str| {
        let path = "--topology lan --rate 1gbit --rtt 1ms --loss 2e-2 --queue 8MiB";
        let client = "perf client --json 10.77.0.1 10.77.0.2 10.77.0.3 --qp ud --group 10.77.0.255 \
                      --rate 50mbit --size 16KiB --iters 300 --warmup 0 --validate";
        let mut args = vec!["run", "--quiet"];
        args.extend(path.split_whitespace());
        (0..3).for_each(|_| args.extend(["--", lacuna, "perf", "server", "--once"]));
        args.extend(["--", lacuna]);
        args.extend(client.split_whitespace());
        args.extend(options.split_whitespace());
        let output = run(&args)?;
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let said: Value = serde_json::from_slice(&output.stdout).expect("one object");
        assert_eq!(said["validated"], true, "{said}");
        let receivers = said["receivers"].as_array().expect("each").clone();
        assert_eq!(receivers.len(), 3, "{said}");
        let share = |receiver: &Value| receiver["placed_fraction"].as_f64().expect("a share");
        Some(receivers.iter().map(share).collect::<Vec<_>>())
    };
    let Some(repaired) = of("") else { return };
    assert!(repaired.iter().all(|share| *share > 0.98), "{repaired:?}");
    // 12 packets a message.
    let bare = of("--no-group-repair").expect("there are hosts");
    assert!(bare.iter().all(|share| *share < 0.9), "{bare:?}");
}

#[test]
fn a_lan_that_is_asked_to_end_ends_all_programs() {
    let mut child = lacuna()
        .args(["wan", "run", "--topology", "lan", "--hosts", "3", "--"])
        .args(["sh", "-c", "echo here; exec sleep 1000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut heard = 0;
    while heard < 3 && stdout.read_line(&mut line).expect("text") > 0 {
        assert!(line.starts_with("host ") && line.ends_with(": here\n"), "{line}");
        line.clear();
        heard += 1;
    }
    if heard == 3 {
        let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(kill.expect("kill(1)").success());
    }
    let output = child.wait_with_output().expect("it ends");
    let text = stderr(&output);
    if heard == 0 {
        assert!(text.contains("run as root"), "{text}");
        eprintln!("skipped: {text}");
        return;
    }
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("host 3 sh: signal 15") && text.contains("interrupted"), "{text}");
}

#[test]
fn nonsense_about_a_lan_is_answered_in_one_line() {
    for (args, part) in [
        (&["--topology", "lan", "--", "a"][..], "needs --hosts"),
        (&["--topology", "lan", "--hosts", "101", "--", "a"], "2 to 100"),
        (&["--topology", "lan", "--hosts", "2", "--", "a", "--", "b", "--", "c"], "3 programs"),
        (&["--topology", "lan", "--hosts", "2", "--loss", "0,0.1", "--", "a"], "no two directions"),
        (&["--topology", "lan", "--hosts", "2", "--csv", "x.csv", "--", "a"], "no time line"),
        (&["--topology", "mesh", "--", "a", "--", "b"], "ring"),
        (&["--hosts", "3", "--", "a", "--", "b"], "--topology lan"),
    ] {
        let output = wan(&[&["run"], args].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(part), "{args:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
}

#[test]
fn ranks_at_the_sites_of_a_star_and_a_ring_find_each_other_and_reduce() {
    let lacuna = env!("CARGO_BIN_EXE_lacuna");
    for topology in ["star", "ring"] {
        let path = "--hosts 4 --rate 200mbit --rtt 4ms --loss 1e-3 --background 10% \
                    --background-burst 100us";
        let bench = "collective bench --json -b 256KiB -e 256KiB -n 3 -w 1";
        let mut args = vec!["run", "--json", "--topology", topology];
        args.extend(path.split_whitespace());
        args.extend(["--", lacuna]);
        args.extend(bench.split_whitespace());
        let Some(output) = run(&args) else { return };
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let result = object(&output);
        assert_eq!(result["topology"], topology);
        let hosts = result["hosts"].as_array().expect("hosts");
        assert_eq!((hosts.len(), &hosts[3]["address"]), (4, &"10.77.0.4".into()));
        let said = hosts[0]["program"]["stdout"].as_str().expect("text");
        let row: Value = serde_json::from_str(said).expect("one object");
        assert_eq!((&row["ranks"], &row["wrong"]), (&4.into(), &0.into()), "{row}");
        let ways = result["ways"].as_array().expect("ways");
        assert_eq!(ways.len(), 8);
        let end = if topology == "star" { "switch" } else { "host 2" };
        assert_eq!((&ways[0]["from"], &ways[0]["to"]), (&"host 1".into(), &end.into()));
        assert!(ways.iter().all(|way| way["delivered_bytes"].as_u64() > Some(0)), "{result}");
        assert!(ways.iter().all(|way| way["background_packets"].as_u64() > Some(0)), "{result}");
    }
}

#[test]
fn once_a_rank_has_failed_the_others_are_ended_and_it_is_the_exit_code() {
    let script = "[ $RANK != 2 ] || exit 9; exec sleep 1000";
    let args = ["run", "--topology", "star", "--hosts", "4", "--", "sh", "-c", script];
    let Some(output) = run(&args) else { return };
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(9), "{text}");
    assert!(text.contains("host 3 sh: exit code 9") && text.contains("host 1 sh: signal 15"));
}

#[test]
fn a_ring_that_is_asked_to_end_ends_all_programs() {
    let mut child = lacuna()
        .args(["wan", "run", "--topology", "ring", "--hosts", "3", "--"])
        .args(["sh", "-c", "echo here; exec sleep 1000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let stdout = BufReader::new(child.stdout.take().expect("piped"));
    let heard = stdout.lines().take(3).map_while(Result::ok).count();
    if heard == 3 {
        let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(kill.expect("kill(1)").success());
    }
    let output = child.wait_with_output().expect("it ends");
    let text = stderr(&output);
    if heard == 0 {
        assert!(text.contains("run as root"), "{text}");
        eprintln!("skipped: {text}");
        return;
    }
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("host 3 sh: signal 15") && text.contains("interrupted"), "{text}");
}

#[test]
fn nonsense_about_a_star_or_ring_is_answered_in_one_line() {
    for (args, part) in [
        (&["--topology", "star", "--", "a"][..], "needs --hosts"),
        (&["--topology", "ring", "--hosts", "2", "--", "a"], "3 to 64"),
        (&["--topology", "ring", "--hosts", "65", "--", "a"], "3 to 64"),
        (&["--topology", "ring", "--hosts", "3", "--csv", "x.csv", "--", "a"], "no time line"),
        (&["--topology", "star", "--hosts", "3", "--background", "10%", "--", "a"], "a --rate"),
        (&["--background", "99%", "--rate", "1gbit", "--", "a", "--", "b"], "up to 95%"),
    ] {
        let output = wan(&[&["run"], args].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(part), "{args:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
}
