//! One run of figures 8 and 9: its command line, and what is read from its result.

use super::super::process::{self, PATIENCE, Printed, SERVER};
use crate::failure::Failure;
use crate::reproduce::datagrams::Brought;
use lacuna_reproduce::iwarp::loss::{Cell, RATE_BITS_PER_S, Scheme};
use lacuna_reproduce::iwarp::{Came, CameInDatagrams, Reassembly};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// The link: faster than what is offered, so that nothing but its losses loses packets.
const LINK_BITS_PER_S: u64 = 2 * RATE_BITS_PER_S;
/// Payload of packets of 1,500 bytes or a little less, in steps of 4: of a Send, and of a Write-Record.
pub(super) const SEND_BYTES: u32 = 1448;
const RECORD_BYTES: u32 = 1436;
/// Messages in flight hold this much together.
const IN_FLIGHT_BYTES: u64 = 4 << 20;
/// `net.ipv4.ipfrag_high_thresh` that holds all broken datagrams of a run.
const REASSEMBLY_BYTES: u64 = 1 << 30;

/// What all runs have in common.
#[derive(Debug)]
pub(super) struct Setting {
    /// This program.
    pub(super) program: PathBuf,
    pub(super) time: Duration,
    pub(super) seed: u64,
}

/// What `lacuna perf client --json` prints, as far as it is used.
#[derive(Debug, Deserialize)]
struct PerfResult {
    gbit_per_s: f64,
    size_bytes: u64,
    messages: u64,
    messages_whole: Option<u64>,
    messages_partial: Option<u64>,
    placed_fraction: Option<f64>,
    sent_packets: u64,
    lost_packets: Option<u64>,
    interrupted: bool,
    why: Option<String>,
}

impl Setting {
    /// Does a run: its numbers, or in one line why there are none.
    ///
    /// # Errors
    /// When no further run can work, or it was interrupted.
    pub(super) fn measure(&self, cell: &Cell) -> Result<Result<CameInDatagrams, String>, Failure> {
        let limit = self.time + PATIENCE;
        match process::run(&self.program, &self.words(cell), limit)? {
            Some(printed) => read(cell, &printed),
            None => Ok(Err(format!("given up after {} s", limit.as_secs()))),
        }
    }

    /// The arguments of this program for a run.
    fn words(&self, cell: &Cell) -> Vec<String> {
        let mut words = Vec::new();
        let mut add = |text: &str| words.extend(text.split(' ').map(str::to_owned));
        add(&format!(
            "wan run -q --json --rate {LINK_BITS_PER_S}bit --rtt 2ms --queue 64MiB --mtu 1500 --seed {}",
            self.seed
        ));
        if cell.loss > 0.0 {
            // What comes back is the control connection, which has to end in time.
            add(&format!("--loss {:e}", cell.loss));
        }
        if cell.scheme == Scheme::Fragments(Reassembly::Unbounded) {
            add(&format!("--sysctl net.ipv4.ipfrag_high_thresh={REASSEMBLY_BYTES}"));
        }
        let [server, client] = self.ends(cell);
        let program = self.program.display().to_string();
        for end in [server, client] {
            words.extend(["--".to_owned(), program.clone()]);
            words.extend(end.split(' ').map(str::to_owned));
        }
        words
    }

    /// The arguments of the server and of the client.
    fn ends(&self, cell: &Cell) -> [String; 2] {
        let Cell { scheme, message_bytes, .. } = *cell;
        let time_ms = self.time.as_millis();
        let (verb, payload_bytes) = match scheme {
            Scheme::Send | Scheme::Reliable => ("send", SEND_BYTES),
            Scheme::WriteRecord => ("write-record", RECORD_BYTES),
            Scheme::Fragments(_) => {
                return [
                    "reproduce datagrams receive -q --json".to_owned(),
                    format!(
                        "reproduce datagrams send {SERVER} -q --json --size {message_bytes} --rate {RATE_BITS_PER_S}bit --time {time_ms}ms"
                    ),
                ];
            }
        };
        let qp = if scheme == Scheme::Reliable { "rd" } else { "ud" };
        let inflight = (IN_FLIGHT_BYTES / u64::from(message_bytes)).clamp(4, 512);
        [
            "perf server --once -q --json".to_owned(),
            format!(
                "perf client {SERVER} -q --json --qp {qp} --verb {verb} --size {message_bytes} --inflight {inflight} --mtu {payload_bytes} --rate {RATE_BITS_PER_S}bit --duration {time_ms}ms"
            ),
        ]
    }
}

/// The numbers in what a run printed.
fn read(cell: &Cell, printed: &Printed) -> Result<Result<CameInDatagrams, String>, Failure> {
    let client = printed.parse()?.client;
    if client.exit_code != Some(0) {
        return Ok(Err(printed.complaint()));
    }
    let came = match cell.scheme {
        Scheme::Fragments(_) => client.last_object().map(|brought| of_datagrams(cell, &brought)),
        Scheme::Send | Scheme::Reliable | Scheme::WriteRecord => match client.last_object() {
            Some(PerfResult { interrupted: true, why: Some(why), .. }) => return Ok(Err(why)),
            perf => perf.as_ref().and_then(of_perf),
        },
    };
    Ok(came.ok_or_else(|| printed.complaint()))
}

fn of_datagrams(cell: &Cell, brought: &Brought) -> CameInDatagrams {
    let Brought { messages, offered_bytes, packets, seconds, placed_bytes, whole, partial } =
        *brought;
    let placed = Came {
        messages,
        whole,
        partial,
        offered_bytes,
        placed_bytes,
        packets,
        // Nobody sees the fragments.
        lost_packets: (packets as f64 * cell.loss) as u64,
        sent_ns: (seconds * 1e9) as u64,
    };
    CameInDatagrams { placed, whole_bytes: whole * u64::from(cell.message_bytes) }
}

/// `None` if the server's counts are not there.
fn of_perf(perf: &PerfResult) -> Option<CameInDatagrams> {
    let offered_bytes = perf.messages.saturating_mul(perf.size_bytes);
    let placed_bytes = (perf.placed_fraction? * offered_bytes as f64).round() as u64;
    let whole = perf.messages_whole?;
    let bits_per_s = perf.gbit_per_s * 1e9;
    let placed = Came {
        messages: perf.messages,
        whole,
        partial: perf.messages_partial?,
        offered_bytes,
        placed_bytes,
        packets: perf.sent_packets,
        lost_packets: perf.lost_packets?,
        // The rate is of what came, after the warm-up.
        sent_ns: (placed_bytes as f64 * 8.0 * 1e9 / bits_per_s.max(1.0)) as u64,
    };
    Some(CameInDatagrams { placed, whole_bytes: whole * perf.size_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(scheme: Scheme) -> Cell {
        Cell { scheme, message_bytes: 1 << 20, loss: 0.01 }
    }

    fn printed(client: &str, exit_code: i32) -> Printed {
        let program = |stdout: &str, code: i32| serde_json::json!({ "exit_code": code, "user_s": 0.2, "system_s": 0.7, "stdout": stdout });
        let way = serde_json::json!({ "queue_dropped": 0, "device_dropped_frames": 0 });
        let result = serde_json::json!({ "to_server": way, "to_client": way,
            "server": program("", 0), "client": program(client, exit_code) });
        Printed { result: result.to_string(), said: "lacuna: no route\n".to_owned() }
    }

    #[test]
    fn each_scheme_has_its_programs_and_the_same_link() {
        let setting = Setting {
            program: PathBuf::from("/a folder/lacuna"),
            time: Duration::from_secs(2),
            seed: 7,
        };
        let words = |scheme| setting.words(&cell(scheme)).join(" ");
        let record = words(Scheme::WriteRecord);
        assert!(record.contains("--loss 1e-2 --") && record.contains("--mtu 1436"), "{record}");
        assert!(record.contains("--verb write-record --size 1048576 --inflight 4"), "{record}");
        assert!(words(Scheme::Send).contains("--verb send"));
        let linux = words(Scheme::Fragments(Reassembly::Linux));
        assert!(linux.contains("reproduce datagrams send 10.77.0.1") && !linux.contains("sysctl"));
        let unbounded = words(Scheme::Fragments(Reassembly::Unbounded));
        assert!(unbounded.contains("--sysctl net.ipv4.ipfrag_high_thresh="), "{unbounded}");
    }

    #[test]
    fn numbers_are_what_came_and_a_run_that_fails_says_why() {
        let perf = r#"{"gbit_per_s":0.4,"size_bytes":1000,"messages":500,"messages_whole":400,"messages_partial":90,"placed_fraction":0.9,"sent_packets":1000,"lost_packets":100,"interrupted":false,"why":null}"#;
        let ended = read(&cell(Scheme::WriteRecord), &printed(perf, 0)).expect("there are hosts");
        let came = ended.expect("it has numbers");
        assert_eq!((came.placed.placed_bytes, came.whole_bytes), (450_000, 400_000));
        assert!((came.placed.goodput_bits_per_s() - 4e8).abs() < 1.0, "{came:?}");
        let brought = r#"{"messages":10,"offered_bytes":10485760,"packets":7200,"seconds":2.0,"placed_bytes":6000000,"whole":0,"partial":10}"#;
        let cell = cell(Scheme::Fragments(Reassembly::Linux));
        let ended = read(&cell, &printed(brought, 0)).expect("there are hosts");
        let came = ended.expect("it has numbers");
        assert!((came.placed.goodput_bits_per_s() - 24e6).abs() < 1.0, "{came:?}");
        let failed = read(&cell, &printed("", 3)).expect("there are hosts");
        assert_eq!(failed, Err("no route".to_owned()));
    }
}
