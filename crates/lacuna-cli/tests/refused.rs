//! What happens when this host refuses packets for a moment, or has no way to a peer at all: in hosts
//! of `lacuna wan`, by routes and, where there is one, by a firewall. Where there are no namespaces or
//! no `ip` to be had, the tests say so and pass.

#![cfg(target_os = "linux")]

use serde_json::Value;
use std::process::{Command, Output, Stdio};

const LACUNA: &str = env!("CARGO_BIN_EXE_lacuna");

/// Ways to have the host refuse what goes to `$LACUNA_WAN_SERVER` (`on`), and to have it stop that
/// (`off`), with the system's number for it (EACCES, EINVAL, EHOSTUNREACH, EPERM).
const WAYS: &str = r#"
route() { kind=$1; on() { ip route add "$kind" "$LACUNA_WAN_SERVER/32"; }
          off() { ip route del "$kind" "$LACUNA_WAN_SERVER/32"; }; }
firewall() { on() { iptables -A OUTPUT -p udp -j REJECT; }; off() { iptables -F OUTPUT; }; }
each() {
    route prohibit; "$@" 13; route blackhole; "$@" 22; route unreachable; "$@" 113
    if command -v iptables >/dev/null && iptables -F OUTPUT 2>/dev/null; then
        firewall; "$@" 1
    else
        echo "not tested: no iptables here" >&2
    fi
}
"#;

/// Runs a server and a script in the client's host; `None` if this machine gives no hosts.
fn in_hosts(server: &[&str], script: &str) -> Option<Output> {
    if Command::new("ip").arg("-V").output().is_err() {
        eprintln!("skipped: there is no ip(8) here");
        return None;
    }
    let script = format!("{WAYS}\n{script}");
    let output = Command::new(LACUNA)
        .args(["wan", "run", "--quiet", "--rtt", "2ms", "--", LACUNA])
        .args(server)
        .args(["--", "bash", "-c", &script])
        .env("lacuna", LACUNA)
        .env("LACUNA_INSECURE", "1")
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(5) && stderr.contains("run as root") {
        eprintln!("skipped: {stderr}");
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    Some(output)
}

fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("an object per line")).collect()
}

#[test]
fn a_momentary_refusal_costs_a_probe_packets_and_not_its_trials() {
    // It is refused in the second trial, until the client has said so.
    let script = r#"
        probe() {
            log=$(mktemp)
            "$lacuna" probe client --json --time 500ms --trials 2 --payload 500 \
                "$LACUNA_WAN_SERVER" 2>"$log" &
            client=$!
            until grep -q "trial 1:" "$log"; do kill -0 $client || exit 1; sleep 0.01; done
            on
            until grep -q "os error $1)" "$log"; do kill -0 $client || break; sleep 0.01; done
            off
            wait $client || { cat "$log" >&2; exit 1; }
            rm "$log"
        }
        each probe"#;
    let Some(output) = in_hosts(&["probe", "server"], script) else { return };
    let reports = objects(&output);
    assert!(reports.len() >= 3, "{output:?}");
    for report in reports {
        assert_eq!((&report["interrupted"], &report["why"]), (&false.into(), &Value::Null));
        let refused = report["refused_packets"].as_u64().expect("a count");
        let errors = report["refusals"].as_array().expect("a list");
        let packets = errors.iter().map(|one| one["packets"].as_u64().expect("a count"));
        assert!(refused > 0 && refused == packets.sum::<u64>(), "{report}");
        let trials = report["trials"].as_array().expect("trials");
        assert_eq!(trials.len(), 2, "{report}");
        let number = |trial: usize, field: &str| trials[trial][field].as_u64().expect("a count");
        assert_eq!((number(0, "refused_packets"), &trials[0]["marked"]), (0, &false.into()));
        let [refused, lost] = ["refused_packets", "lost_packets"].map(|field| number(1, field));
        assert!(refused > 0 && lost >= refused, "{report}");
        assert_eq!(trials[1]["marked"], true, "it does not speak of the path");
    }
}

#[test]
fn a_path_that_this_host_cannot_send_to_is_said_to_be_one() {
    let script = r#"
        try() {
            on
            "$lacuna" probe client --quiet "$LACUNA_WAN_SERVER" 2>&1
            echo "exit code $?: os error $1"
            off
        }
        each try
        "$lacuna" probe client --quiet 203.0.113.1 2>&1
        echo "exit code $?: os error 101""#;
    let Some(output) = in_hosts(&["probe", "server"], script) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() >= 8, "{text}");
    for pair in lines.chunks(2) {
        let [said, ended] = pair else { panic!("{text}") };
        let (code, error) = ended.split_once(": ").expect("two parts");
        assert!(said.starts_with("lacuna: cannot send to ") && said.contains(error), "{text}");
        assert!(said.contains("this host refused each of "), "{text}");
        // There is no way, or this machine is against it.
        let is_no_way = error.ends_with("101") || error.ends_with("113");
        assert_eq!(code, if is_no_way { "exit code 3" } else { "exit code 5" }, "{text}");
    }
}

#[test]
fn a_transfer_goes_on_behind_a_momentary_refusal() {
    let script = r#"
        transfer() {
            log=$(mktemp)
            "$lacuna" perf client --json --validate --duration 2s --size 256KiB --rate 50mbit \
                "$LACUNA_WAN_SERVER" 2>"$log" &
            client=$!
            until grep -q "rtt" "$log"; do kill -0 $client || exit 1; sleep 0.01; done
            on; sleep 0.3; off
            wait $client || { cat "$log" >&2; exit 1; }
            rm "$log"
        }
        each transfer"#;
    let Some(output) = in_hosts(&["perf", "server"], script) else { return };
    for report in objects(&output) {
        assert_eq!((&report["interrupted"], &report["validated"]), (&false.into(), &true.into()));
        assert!(report["refused_packets"].as_u64() > Some(0), "{report}");
        assert!(report["iterations"].as_u64() > Some(0), "{report}");
    }
}
