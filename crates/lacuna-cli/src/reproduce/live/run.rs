//! One run: its command line, the process, and what is read from its result.
//!
//! How it is started and waited for is in [`process`].

use super::super::bulk::Received;
use super::process::{self, PATIENCE, Printed, SERVER, WanResult};
use crate::failure::Failure;
use lacuna_reproduce::lowar::live::{MESSAGE_BYTES, Measured, PAYLOAD_BYTES, Run, Transport};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// The longest packet of TCP: payload, 20 bytes each of IP and TCP, 12 of timestamps.
const TCP_MTU_BYTES: u32 = PAYLOAD_BYTES + 20 + 20 + 12;
/// Buffers of TCP: two round trips of 80 ms at 1 Gbit/s, and room for what is out of order.
const TCP_BUFFER_BYTES: u64 = 64 << 20;
/// Round trips before TCP's payload counts, and the least time: slow start, and cubic's first loss.
const TCP_WARM_UP_RTTS: u32 = 40;
const TCP_WARM_UP_MIN: Duration = Duration::from_millis(500);

/// What all runs have in common.
#[derive(Debug)]
pub(super) struct Setting {
    /// This program.
    pub(super) program: PathBuf,
    pub(super) rate_bits_per_s: u64,
    pub(super) time: Duration,
    pub(super) seed: u64,
}

/// How a run ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    Numbers(Measured),
    /// In one line, why there are none.
    Failed(String),
}

/// What `lacuna perf client --json` prints, as far as it is used.
#[derive(Debug, Deserialize)]
struct PerfResult {
    gbit_per_s: f64,
    size_bytes: u64,
    messages: u64,
    interrupted: bool,
    why: Option<String>,
}

impl Setting {
    /// Does a run.
    ///
    /// # Errors
    /// When no further run can work, or it was interrupted.
    pub(super) fn measure(&self, run: &Run) -> Result<Ended, Failure> {
        let limit = self.time + PATIENCE;
        match process::run(&self.program, &self.words(run), limit)? {
            Some(printed) => read(run, &printed),
            None => Ok(Ended::Failed(format!("given up after {} s", limit.as_secs()))),
        }
    }

    /// The arguments of this program for a run.
    fn words(&self, run: &Run) -> Vec<String> {
        let mut words = Vec::new();
        let mut add = |text: &str| words.extend(text.split(' ').map(str::to_owned));
        let Self { rate_bits_per_s: rate, seed, .. } = self;
        add(&format!("wan run -q --json --rate {rate}bit --overhead 0 --seed {seed}"));
        add(&format!("--rtt {}ms", run.rtt_ms));
        if run.loss > 0.0 {
            add(&format!("--loss {:e}", run.loss));
        }
        if run.transport.congestion().is_some() {
            add(&format!("--mtu {TCP_MTU_BYTES}"));
            for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
                words.push("--sysctl".to_owned());
                words.push(format!("{name}=4096 131072 {TCP_BUFFER_BYTES}"));
            }
        }
        let [server, client] = self.ends(run);
        let program = self.program.display().to_string();
        for end in [server, client] {
            words.extend(["--".to_owned(), program.clone()]);
            words.extend(end.split(' ').map(str::to_owned));
        }
        words
    }

    /// The arguments of the server and of the client.
    fn ends(&self, run: &Run) -> [String; 2] {
        let Self { rate_bits_per_s: rate, time, .. } = self;
        let (count, time_ms) = (run.connections, time.as_millis());
        if let Some(cc) = run.transport.congestion() {
            let round_trips = Duration::from_millis(run.rtt_ms.into()) * TCP_WARM_UP_RTTS;
            let warm_up_ms = round_trips.max(TCP_WARM_UP_MIN).as_millis();
            return [
                format!(
                    "reproduce tcp receive -q --json --streams {count} --warmup {warm_up_ms}ms --time {time_ms}ms"
                ),
                format!("reproduce tcp send {SERVER} -q --streams {count} --cc {cc}"),
            ];
        }
        let repair = match run.transport {
            Transport::Wide => " --shim lowar:32:1",
            Transport::Auto => " --shim lowar:auto",
            Transport::Selective => " --repair sr",
            Transport::GoBackN | Transport::Cubic | Transport::Bbr => "",
        };
        let inflight = run.inflight(*rate);
        [
            "perf server --once -q --json".to_owned(),
            format!(
                "perf client {SERVER} -q --json --qp rc --verb write --size {MESSAGE_BYTES} --inflight {inflight} --mtu {PAYLOAD_BYTES} --rate {rate}bit --cc fixed --duration {time_ms}ms --queue-pairs {count}{repair}"
            ),
        ]
    }
}

/// The numbers in what a run printed.
fn read(run: &Run, printed: &Printed) -> Result<Ended, Failure> {
    let result = printed.parse()?;
    let (queue_dropped, dropped_frames) = result.dropped();
    let WanResult { server, client, .. } = result;
    let failed = || Ok(Ended::Failed(printed.complaint()));
    let Some(server) = server else { return Ok(Ended::Failed("it had no server".to_owned())) };
    if client.exit_code != Some(0) {
        return failed();
    }
    let processor_s =
        [&server, &client].map(|program| program.user_s + program.system_s).into_iter().sum();
    let (goodput_bits_per_s, payload_bytes) = match run.transport.congestion() {
        Some(_) => match server.last_object::<Received>() {
            Some(received) => (received.goodput_bits_per_s, received.bytes),
            None => return failed(),
        },
        None => match client.last_object::<PerfResult>() {
            Some(PerfResult { interrupted: false, gbit_per_s, size_bytes, messages, .. }) => {
                (gbit_per_s * 1e9, size_bytes * messages)
            }
            Some(PerfResult { why: Some(why), .. }) => return Ok(Ended::Failed(why)),
            _ => return failed(),
        },
    };
    Ok(Ended::Numbers(Measured {
        goodput_bits_per_s,
        processor_s,
        payload_bytes,
        queue_dropped,
        dropped_frames,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(transport: Transport) -> Run {
        Run { transport, rtt_ms: 40, loss: 1e-3, connections: 1 }
    }

    fn setting() -> Setting {
        let program = PathBuf::from("/a folder/lacuna");
        let time = Duration::from_secs(6);
        Setting { program, rate_bits_per_s: 1_000_000_000, time, seed: 7 }
    }

    fn printed(result: &str, said: &str) -> Printed {
        Printed { result: result.to_owned(), said: said.to_owned() }
    }

    fn wan(client: &str, server: &str, exit_code: i32) -> String {
        let program = |stdout: &str, code: i32| {
            serde_json::json!({ "command": ["x"], "exit_code": code, "signal": null, "took_s": 5.0,
                "user_s": 0.25, "system_s": 0.75, "memory_kib_max": 1, "stdout": stdout })
        };
        let way = serde_json::json!({ "path": "1 Gbit/s", "queue_dropped": 3, "device_dropped_frames": 2 });
        serde_json::json!({ "command": "wan", "to_server": way, "to_client": way,
            "server": program(server, 130), "client": program(client, exit_code) })
        .to_string()
    }

    #[test]
    fn a_program_in_a_folder_with_a_space_is_one_word() {
        let words = setting().words(&run(Transport::Wide));
        let text = words.join(" ");
        assert_eq!(words.iter().filter(|word| *word == "/a folder/lacuna").count(), 2);
        assert!(text.contains("--rtt 40ms --loss 1e-3"), "{text}");
        assert!(text.ends_with("--duration 6000ms --queue-pairs 1 --shim lowar:32:1"), "{text}");
        assert!(!text.contains("--sysctl"), "{text}");
        let words = setting().words(&Run { loss: 0.0, ..run(Transport::Bbr) });
        let text = words.join(" ");
        assert!(!text.contains("--loss") && text.ends_with("--cc bbr"), "{text}");
        assert!(text.contains("--mtu 1076") && text.contains("--warmup 1600ms"), "{text}");
        assert!(words.iter().any(|word| word == "net.ipv4.tcp_rmem=4096 131072 67108864"));
    }

    #[test]
    fn numbers_of_a_reliable_connection_are_its_clients() {
        let perf = r#"{"mode":"gbn","gbit_per_s":0.88,"size_bytes":1000000,"messages":500,"interrupted":false,"why":null}"#;
        let result = wan(perf, "", 0);
        let numbers = Measured {
            goodput_bits_per_s: 0.88e9,
            processor_s: 2.0,
            payload_bytes: 500_000_000,
            queue_dropped: 6,
            dropped_frames: 4,
        };
        let of = |result: &str| {
            read(&run(Transport::Auto), &printed(result, "")).expect("there are hosts")
        };
        assert_eq!(of(&result), Ended::Numbers(numbers));
        let perf = r#"{"gbit_per_s":0.1,"size_bytes":1,"messages":1,"interrupted":true,"why":"lost the server"}"#;
        let failed = Ended::Failed("lost the server".to_owned());
        assert_eq!(of(&wan(perf, "", 0)), failed);
    }

    #[test]
    fn numbers_of_tcp_are_its_receivers() {
        let received = Received { goodput_bits_per_s: 9e8, seconds: 6.0, bytes: 800_000_000 };
        let json = serde_json::to_string(&received).expect("numbers");
        let result = read(&run(Transport::Cubic), &printed(&wan("", &json, 0), ""));
        let Ok(Ended::Numbers(numbers)) = result else { panic!("{result:?}") };
        assert_eq!((numbers.goodput_bits_per_s, numbers.payload_bytes), (9e8, 800_000_000));
    }

    #[test]
    fn a_run_that_fails_says_why_and_a_machine_without_hosts_ends_all() {
        let said =
            "lacuna: the kernel refuses TCP congestion control bbr: no\nlacuna: interrupted\n";
        let failed = read(&run(Transport::Bbr), &printed(&wan("", "", 5), said));
        let why = "the kernel refuses TCP congestion control bbr: no".to_owned();
        assert_eq!(failed.expect("there are hosts"), Ended::Failed(why));
        let error =
            read(&run(Transport::Bbr), &printed("", "lacuna: no namespaces: run as root\n"));
        let error = error.expect_err("there is no object").to_string();
        assert_eq!(error, "nothing is measured live: no namespaces: run as root");
    }
}
