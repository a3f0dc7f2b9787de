//! `lacuna model`: the completion time of one message under one scheme.

use super::{LossPerName, arguments};
use crate::failure::Failure;
use crate::output::Output;
use crate::units;
use clap::{Args, ValueEnum};
use lacuna_planner::{
    CodeKind, CodeQuestion, CompletionAnswer, CompletionError, CompletionQuestion, Draws,
    Reliability, completion,
};

/// Compute how long a message takes over a long, lossy path, by the model of SDR-RDMA 4.2
///
/// Exact mean and percentiles, as the sender sees them. By default the paper's model as it stands:
/// payload only, the loss is that of a chunk, repairs take no link time. What `lacuna demo`
/// measures is met by `--headers --wire-time --loss-per packet`, with `--rto-rtts 1` for the mode sr,
/// `--rto-rtts 1 --streamed` for ec, and `--rto-rtts 3` for sr:rto (docs/model-against-transport.md has both side by side).
///
/// --mode auto is the transport's default as it runs, on a path that it knows: repairs after one round trip
/// take link time, chunks are packets, and the end of a message gets the parity that the transport's own rule
/// says. Of a message with fewer chunks than --k the code is shortened, as the transport does: one submessage
/// of all chunks, with its share of the parity, rounded up.
///
/// Examples:
///   lacuna model --mode sr --rate 400gbit --rtt 25ms --loss 1e-5 --size 128MiB
///   lacuna model --mode ec --code mds --k 32 --m 8 --rate 400gbit --rtt 25ms --loss 1e-5 --size 128MiB
///   lacuna model --mode auto --headers --rate 1gbit --rtt 25ms --loss 1e-3 --size 64MiB
///   lacuna model --mode sr --rto-rtts 1 --headers --wire-time --rate 1gbit --rtt 25ms --loss 1e-3 --size 64MiB
///   lacuna model --mode bounded --deadline 600ms --headers --rate 1gbit --rtt 25ms --loss 1e-3 --size 64MiB
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ModelArgs {
    /// Reliability: selective repeat, erasure coding, what the transport does by default, or best effort with
    /// a deadline
    #[arg(long, value_enum)]
    mode: ModeName,
    /// Rate of the path
    #[arg(long, value_parser = arguments::rate, allow_hyphen_values = true)]
    rate: f64,
    /// Round-trip time of the path
    #[arg(long, value_parser = arguments::rtt_s, allow_hyphen_values = true)]
    rtt: f64,
    /// Probability that a chunk (or packet, see --loss-per) is lost
    #[arg(long, value_parser = units::fraction, allow_hyphen_values = true)]
    loss: f64,
    /// Bytes of the message
    #[arg(long, value_parser = arguments::size, allow_hyphen_values = true)]
    size: u64,
    /// Bytes per chunk, the unit of repair
    #[arg(long, default_value = "4KiB", value_parser = arguments::size)]
    chunk: u64,
    /// Round trips until a lost chunk goes out again: 3 is the paper's timeout, 1 its NACK
    #[arg(long, default_value = "3", value_parser = arguments::factor, allow_hyphen_values = true)]
    rto_rtts: f64,
    /// Erasure code
    #[arg(long, value_enum, default_value_t = CodeName::Mds)]
    code: CodeName,
    /// Data chunks of a submessage; a message of fewer is one short submessage with its share of the parity
    #[arg(long, default_value_t = 32)]
    k: u32,
    /// Parity chunks of a submessage
    #[arg(long, default_value_t = 8)]
    m: u32,
    /// Round trips from the end of sending to the fallback timeout
    #[arg(long, default_value = "1", value_parser = arguments::factor, allow_hyphen_values = true)]
    beta: f64,
    /// The receiver answers as soon as all can be repaired, not when all parity is in
    #[arg(long)]
    early_ack: bool,
    /// Parity follows its submessage, and one that fails is repaired while later ones are sent, as the
    /// transport does; without this the fallback waits for the end of the message (4.1.2)
    #[arg(long, conflicts_with_all = ["beta", "early_ack"])]
    streamed: bool,
    /// Say what the receiver has by then, from the first byte sent: the probability that it is all, and of best
    /// effort, whose receive ends then, the expected share
    #[arg(long, value_name = "TIME", value_parser = arguments::rtt_s, required_if_eq("mode", "best-effort"))]
    deadline: Option<f64>,
    /// What --loss counts: chunks whatever their length (4.2.1), or packets (5.4.2)
    #[arg(long, value_enum, default_value_t = LossPerName::Chunk)]
    loss_per: LossPerName,
    /// Payload bytes per packet
    #[arg(long, default_value = "4096", value_name = "SIZE", value_parser = units::packet_bytes)]
    mtu: u32,
    /// Packets are lost in bursts of this mean length
    ///
    /// A burst takes the submessages of a code together. How often a message falls back is exact, and so is
    /// the mean of what does; that every burst takes as many makes high percentiles early where it takes as
    /// long to send as a round trip. With --streamed, repairs of different submessages are lost independently.
    #[arg(long, value_parser = arguments::factor, conflicts_with = "correlation")]
    burst: Option<f64>,
    /// Correlation of the losses of two packets of a chunk, 0 to 1
    #[arg(long, value_parser = arguments::factor)]
    correlation: Option<f64>,
    /// Count 48 bytes per packet besides its payload: the transport's headers and trailer, UDP, IPv4 (parity
    /// has 16 more, which are not counted)
    #[arg(long)]
    headers: bool,
    /// Repairs take link time from first transmissions (matters when sending takes longer than a
    /// repair)
    #[arg(long)]
    wire_time: bool,
    /// Draw the completion time so many times beside, and print the 99 % confidence intervals
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    trials: u32,
    /// Seed of the draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeName {
    Sr,
    Ec,
    Auto,
    #[value(alias = "bounded")]
    BestEffort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CodeName {
    Mds,
    Xor,
}

pub(crate) fn run(args: &ModelArgs, output: Output) -> Result<(), Failure> {
    let answer = completion(&args.question())?;
    if output.json { output.object(&answer) } else { output.line(&render(&answer)) }
}

impl ModelArgs {
    fn question(&self) -> CompletionQuestion {
        CompletionQuestion {
            reliability: self.reliability(),
            rate_bits_per_s: self.rate,
            rtt_s: self.rtt,
            loss: self.loss,
            loss_per: self.loss_per.loss_per(),
            size_bytes: self.size,
            chunk_bytes: self.chunk,
            packet_bytes: self.mtu,
            rto_rtts: self.rto_rtts,
            burst_packets: self.burst,
            correlation: self.correlation,
            has_headers: self.headers,
            wire_time: self.wire_time,
            deadline_s: self.deadline,
            draws: (self.trials > 0).then_some(Draws { trials: self.trials, seed: self.seed }),
        }
    }

    fn reliability(&self) -> Reliability {
        match self.mode {
            ModeName::Sr => Reliability::Repeat,
            ModeName::Ec => Reliability::Code(CodeQuestion {
                kind: match self.code {
                    CodeName::Mds => CodeKind::Mds,
                    CodeName::Xor => CodeKind::Xor,
                },
                k: self.k,
                m: self.m,
                beta: self.beta,
                early_ack: self.early_ack,
                streamed: self.streamed,
            }),
            ModeName::Auto => Reliability::Auto,
            // The command line is not taken without one.
            ModeName::BestEffort => {
                Reliability::BestEffort { deadline_s: self.deadline.unwrap_or(f64::NAN) }
            }
        }
    }
}

impl From<CompletionError> for Failure {
    fn from(error: CompletionError) -> Self {
        Self::Usage(match error {
            CompletionError::AutoIsNotDrawn => {
                "--trials draws sr, ec and best-effort: of auto there is the exact distribution alone"
                    .to_owned()
            }
            CompletionError::BurstsAreNotDrawn => {
                "--trials draws no bursts on a link that repairs share: leave out --wire-time"
                    .to_owned()
            }
            error => error.to_string(),
        })
    }
}

fn render(answer: &CompletionAnswer) -> String {
    let mut lines = vec![
        format!("chunks         {}", answer.chunks),
        format!("ideal          {}", time(answer.ideal_s)),
    ];
    if let Some(code) = &answer.code {
        let why = match code.is_shortened {
            true => ", the whole message: it has fewer chunks than the code asked for",
            false => "",
        };
        lines.push(format!("submessage     {} data and {} parity{why}", code.k, code.m));
    }
    if let Some(tail) = &answer.tail {
        lines.push(format!("chosen         {}, {} packets", tail.what, tail.packets));
    }
    for (name, time_s) in [
        ("mean", answer.mean_s),
        ("p50", answer.p50_s),
        ("p99", answer.p99_s),
        ("p99.9", answer.p999_s),
    ] {
        lines.push(format!("{name:<14} {}  {:.3} x ideal", time(time_s), time_s / answer.ideal_s));
    }
    if let Some(fallback) = answer.p_fallback {
        lines.push(format!("P(fallback)    {fallback:.4e}"));
    }
    if let Some(formula_s) = answer.mean_paper_formula_s {
        lines.push(format!("formula 4.2.3  {}", time(formula_s)));
    }
    if let Some(missing) = &answer.missing {
        lines.push(format!(
            "missing        mean {:.3e}, p99 {:.3e}, p99.9 {:.3e}; nothing with {:.4}",
            missing.mean, missing.p99, missing.p999, missing.p_complete
        ));
    }
    if let Some(by) = &answer.by_deadline {
        let until = time(by.deadline_s);
        lines.push(format!("by {}  complete with {:.6}", until.trim(), by.p_complete));
        if let Some(share) = by.arrived_share {
            lines.push(format!("               {:.4} % of the bytes are expected", share * 100.0));
        }
        lines.push(format!("assumed        {}", by.assumed));
    }
    if let Some(drawn) = &answer.monte_carlo {
        for (name, time_s, (low, high)) in [
            ("drawn mean", drawn.mean_s, drawn.mean_interval_s),
            ("drawn p99", drawn.p99_s, drawn.p99_interval_s),
            ("drawn p99.9", drawn.p999_s, drawn.p999_interval_s),
        ] {
            let interval = format!("[{}, {}]", time(low).trim(), time(high).trim());
            lines.push(format!("{name:<14} {}  99 % interval {interval}", time(time_s)));
        }
        lines.push(format!("trials         {}", drawn.trials));
    }
    lines.join("\n")
}

/// Milliseconds, with the digits that a microsecond needs.
fn time(seconds: f64) -> String {
    format!("{:>12.4} ms", seconds * 1e3)
}
