//! One run of figure 7: a LAN of several receivers and a source, its command line, and what is read from its result.

use super::super::process::{self, PATIENCE, Printed, Program};
use super::lossy::SEND_BYTES;
use crate::failure::Failure;
use lacuna_reproduce::iwarp::broadcast::{Came, RATE_BITS_PER_S, Run};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// The way to each host: faster than what is offered, so that nothing but its losses loses packets.
const LINK_BITS_PER_S: u64 = 1_000_000_000;
/// The broadcast address of the LAN.
const ALL: &str = "10.77.0.255";
/// Messages in flight hold this much together.
const IN_FLIGHT_BYTES: u64 = 2 << 20;

/// What all runs have in common.
#[derive(Debug)]
pub(super) struct Setting {
    /// This program.
    pub(super) program: PathBuf,
    pub(super) time: Duration,
    pub(super) seed: u64,
}

/// What `lacuna wan run --topology lan --json` prints, as far as it is used.
#[derive(Debug, Deserialize)]
struct LanResult {
    hosts: Vec<Host>,
}

#[derive(Debug, Deserialize)]
struct Host {
    device_dropped_frames: u64,
    program: Program,
}

/// What `lacuna perf client --json` prints, as far as it is used.
#[derive(Debug, Deserialize)]
struct PerfResult {
    iterations: u64,
    size_bytes: u64,
    seconds: f64,
    sent_packets: u64,
    retransmitted_packets: u64,
    receivers: Vec<Receiver>,
    interrupted: bool,
    why: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Receiver {
    placed_fraction: Option<f64>,
}

impl Setting {
    /// Does a run: its numbers, or in one line why there are none.
    ///
    /// # Errors
    /// When no further run can work, or it was interrupted.
    pub(super) fn measure(&self, run: &Run) -> Result<Result<Came, String>, Failure> {
        let limit = self.time + PATIENCE;
        match process::run(&self.program, &self.words(run), limit)? {
            Some(printed) => read(&printed),
            None => Ok(Err(format!("given up after {} s", limit.as_secs()))),
        }
    }

    /// The arguments of this program for a run: receivers in the first hosts, the source in the last.
    fn words(&self, run: &Run) -> Vec<String> {
        let Run { receivers, message_bytes, loss, repairs } = *run;
        let mut words = Vec::new();
        let mut add = |text: &str| words.extend(text.split(' ').map(str::to_owned));
        add(&format!(
            "wan run -q --json --topology lan --rate {LINK_BITS_PER_S}bit --rtt 400us --queue 64MiB --mtu 1500 --seed {}",
            self.seed
        ));
        if loss > 0.0 {
            add(&format!("--loss {loss:e}"));
        }
        let program = self.program.display().to_string();
        let mut start = |text: &str| {
            words.extend(["--".to_owned(), program.clone()]);
            words.extend(text.split(' ').map(str::to_owned));
        };
        (0..receivers).for_each(|_| start("perf server --once -q --json"));
        let hosts: Vec<_> = (1..=receivers).map(|host| format!("10.77.0.{host}")).collect();
        let inflight = (IN_FLIGHT_BYTES / u64::from(message_bytes)).clamp(4, 512);
        let time_ms = self.time.as_millis();
        let unrepaired = if repairs { "" } else { " --no-group-repair" };
        start(&format!(
            "perf client {} -q --json --qp ud --group {ALL} --size {message_bytes} --inflight {inflight} --mtu {SEND_BYTES} --rate {RATE_BITS_PER_S}bit --duration {time_ms}ms{unrepaired}",
            hosts.join(" ")
        ));
        words
    }
}

/// The numbers in what a run printed.
fn read(printed: &Printed) -> Result<Result<Came, String>, Failure> {
    let LanResult { hosts } = printed.object()?;
    let Some(Host { program: client, .. }) = hosts.last() else {
        return Ok(Err("it had no hosts".to_owned()));
    };
    if client.exit_code != Some(0) {
        return Ok(Err(printed.complaint()));
    }
    let perf = match client.last_object() {
        Some(PerfResult { interrupted: true, why: Some(why), .. }) => return Ok(Err(why)),
        Some(perf) => perf,
        None => return Ok(Err(printed.complaint())),
    };
    let shares = perf.receivers.iter().map(|receiver| receiver.placed_fraction);
    let Some(shares) = shares.collect::<Option<Vec<f64>>>() else {
        return Ok(Err("a receiver has not said what it has".to_owned()));
    };
    let bits = perf.iterations as f64 * perf.size_bytes as f64 * 8.0;
    Ok(Ok(Came {
        offered_bits_per_s: bits / perf.seconds.max(1e-9),
        shares,
        packets: perf.sent_packets,
        packets_again: perf.retransmitted_packets,
        dropped_frames: hosts.iter().map(|host| host.device_dropped_frames).sum(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run { receivers: 3, message_bytes: 1 << 20, loss: 0.01, repairs: true };

    fn printed(client: &str, exit_code: i32) -> Printed {
        let host = |stdout: &str, code: i32| {
            let program = serde_json::json!({ "exit_code": code, "user_s": 0.2, "system_s": 0.7, "stdout": stdout });
            serde_json::json!({ "device_dropped_frames": 2, "program": program })
        };
        let result =
            serde_json::json!({ "hosts": [host("", 0), host("", 0), host(client, exit_code)] });
        Printed { result: result.to_string(), said: "lacuna: no route\n".to_owned() }
    }

    #[test]
    fn receivers_are_in_the_first_hosts_and_the_source_names_them_all() {
        let program = PathBuf::from("/a folder/lacuna");
        let setting = Setting { program, time: Duration::from_secs(2), seed: 7 };
        let words = |run| setting.words(&run);
        let all = words(RUN);
        assert_eq!(all.iter().filter(|word| *word == "/a folder/lacuna").count(), 4);
        let text = all.join(" ");
        assert!(
            text.contains("--topology lan --rate 1000000000bit") && text.contains("--loss 1e-2")
        );
        assert!(text.contains("perf client 10.77.0.1 10.77.0.2 10.77.0.3 -q"), "{text}");
        assert!(text.contains("--group 10.77.0.255 --size 1048576 --inflight 4"), "{text}");
        assert!(!text.contains("--no-group-repair"), "{text}");
        let bare = words(Run { receivers: 1, loss: 0.0, repairs: false, ..RUN }).join(" ");
        assert!(bare.ends_with("--no-group-repair") && !bare.contains("--loss"), "{bare}");
        assert!(bare.contains("perf client 10.77.0.1 -q"), "{bare}");
    }

    #[test]
    fn numbers_are_each_receivers_and_a_run_that_fails_says_why() {
        let perf = r#"{"iterations":100,"size_bytes":125000,"seconds":0.5,"sent_packets":900,"retransmitted_packets":20,"receivers":[{"placed_fraction":1.0},{"placed_fraction":0.5}],"interrupted":false,"why":null}"#;
        let came = read(&printed(perf, 0)).expect("there are hosts").expect("it has numbers");
        assert!((came.aggregate_bits_per_s() - 3e8).abs() < 1.0, "{came:?}");
        assert_eq!((came.shares, came.packets_again, came.dropped_frames), (vec![1.0, 0.5], 20, 6));
        let unknown = perf.replace("0.5}]", "null}]");
        assert!(read(&printed(&unknown, 0)).expect("there are hosts").is_err());
        let failed = read(&printed("", 3)).expect("there are hosts");
        assert_eq!(failed, Err("no route".to_owned()));
    }
}
