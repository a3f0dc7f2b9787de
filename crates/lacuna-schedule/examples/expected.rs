//! The time that the model expects of an all-reduce of f32, by each algorithm that could do it: what chooses one, and what
//! measurements are compared with.
//!
//! ```sh
//! cargo run -p lacuna-schedule --example expected -- RANKS BYTES RATE_BITS_PER_S RTT_S LOSS [PACKET [OVERHEAD [CHUNK]]]
//! ```
//!
//! `LOSS` is of packets; sizes are in bytes, and of a packet payload and what the link charges besides. Prints a line for
//! each algorithm, the fastest first: its name, and seconds.

use lacuna_model::{Framing, Loss, Path, RepairTiming};
use lacuna_schedule::choose::{Surroundings, choose};
use lacuna_schedule::schedule::Collective;
use std::process::ExitCode;

const USAGE: &str =
    "expected RANKS BYTES RATE_BITS_PER_S RTT_S LOSS [PACKET_BYTES [OVERHEAD_BYTES [CHUNK_BYTES]]]";
/// Of what is measured: packets of 1400 bytes in frames of Ethernet, chunks that are passed on at once.
const DEFAULTS: [f64; 3] = [1400.0, 62.0, 65_536.0];

fn expected(words: &[String]) -> Result<String, String> {
    let numbers: Result<Vec<f64>, _> = words.iter().map(|word| word.parse()).collect();
    let numbers = numbers.map_err(|error| format!("{error}: {USAGE}"))?;
    let [ranks, bytes, rate_bits_per_s, rtt_s, loss, more @ ..] = &numbers[..] else {
        return Err(USAGE.to_owned());
    };
    let size = |at: usize| *more.get(at).unwrap_or(&DEFAULTS[at]) as u64;
    let surroundings = Surroundings {
        path: Path {
            rate_bits_per_s: *rate_bits_per_s,
            rtt_s: *rtt_s,
            loss: Loss::PerPacket(*loss),
        },
        near: None,
        framing: Framing { packet_bytes: size(0), overhead_bytes: size(1), chunk_bytes: size(2) },
        message_s: 0.0,
        repair: RepairTiming::NACK,
    };
    let collective = Collective::AllReduce { count: *bytes as usize / 4 };
    let choice = choose(&collective, *ranks as usize, 4, &surroundings)
        .map_err(|error| error.to_string())?;
    let lines =
        choice.compared.iter().map(|(algorithm, time_s)| format!("{algorithm} {time_s:.6}"));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match expected(&words) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}
