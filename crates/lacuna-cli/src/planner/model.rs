//! `lacuna model`: the completion time of one message under one scheme.

use super::{OVERHEAD_BYTES, Z_99, arguments, auto};
use crate::failure::Failure;
use crate::output::Output;
use crate::units;
use clap::{Args, ValueEnum};
use lacuna_model::monte_carlo::{
    CodedSampler, RepeatSampler, Sample, Samples, SerializedSampler, StreamedSampler,
};
use lacuna_model::{
    BestEffort, Code, Completion, EcConfig, ErasureCoding, Framing, Loss, Path, Random,
    RepairTiming, SelectiveRepeat, StreamedCoding, TailCoding, Transfer,
};
use serde::Serialize;

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
    /// Of best effort: when the receive ends, from the first byte sent
    #[arg(long, value_parser = arguments::rtt_s, required_if_eq("mode", "best-effort"))]
    deadline: Option<f64>,
    /// What --loss counts: chunks whatever their length (4.2.1), or packets (5.4.2)
    #[arg(long, value_enum, default_value_t = LossPer::Chunk)]
    loss_per: LossPer,
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
    BestEffort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CodeName {
    Mds,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LossPer {
    Chunk,
    Packet,
}

/// The result; the fields that a mode does not have are null.
#[derive(Debug, Serialize)]
struct Answer {
    chunks: u64,
    ideal_s: f64,
    mean_s: f64,
    p50_s: f64,
    p99_s: f64,
    p999_s: f64,
    p_fallback: Option<f64>,
    mean_paper_formula_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<UsedCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tail: Option<Tail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Missing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    monte_carlo: Option<Drawn>,
}

/// The code of each submessage but a shorter last one.
#[derive(Debug, Serialize)]
struct UsedCode {
    k: u32,
    m: u32,
    /// The message has fewer chunks than the code that was asked for.
    is_shortened: bool,
}

/// What the mode auto does about the end of the message.
#[derive(Debug, Serialize)]
struct Tail {
    packets: u64,
    /// Chunks per submessage of 32.
    parity: u32,
    repair_copies: u32,
    #[serde(skip)]
    what: String,
}

/// What best effort leaves out, as fractions of the message.
#[derive(Debug, Serialize)]
struct Missing {
    mean: f64,
    p99: f64,
    p999: f64,
    p_complete: f64,
}

/// The draws beside the exact values, with 99 % confidence intervals.
#[derive(Debug, Serialize)]
struct Drawn {
    trials: usize,
    mean_s: f64,
    mean_interval_s: (f64, f64),
    p99_s: f64,
    p99_interval_s: (f64, f64),
    p999_s: f64,
    p999_interval_s: (f64, f64),
}

pub(crate) fn run(args: &ModelArgs, output: Output) -> Result<(), Failure> {
    let answer = answer(args)?;
    if output.json { output.object(&answer) } else { output.line(&render(&answer)) }
}

fn answer(args: &ModelArgs) -> Result<Answer, Failure> {
    if args.trials > 0 && args.mode == ModeName::Auto {
        return Err(Failure::Usage(
            "--trials draws sr, ec and best-effort: of auto there is the exact distribution alone"
                .into(),
        ));
    }
    if args.trials > 0 && args.wire_time && args.burst.is_some() {
        return Err(Failure::Usage(
            "--trials draws no bursts on a link that repairs share: leave out --wire-time".into(),
        ));
    }
    let transfer = transfer(args)?;
    let timing = RepairTiming { rto_rtts: args.rto_rtts, wire_time: args.wire_time };
    match args.mode {
        ModeName::Sr => {
            let model = SelectiveRepeat::new(&transfer, timing)?;
            let drawn = if args.wire_time {
                draw(args, &SerializedSampler::new(&transfer, timing)?)
            } else {
                draw(args, &RepeatSampler::new(&transfer, timing)?)
            };
            Ok(Answer { monte_carlo: drawn, ..of(&transfer, &model) })
        }
        ModeName::Ec => {
            let code = match args.code {
                CodeName::Mds => Code::mds(args.k, args.m),
                CodeName::Xor => Code::xor(args.k, args.m),
            }?;
            let short = code.shortened_to(transfer.chunks());
            let used = UsedCode { k: short.k(), m: short.m(), is_shortened: short != code };
            let config =
                EcConfig { code, beta: args.beta, fallback: timing, early_ack: args.early_ack };
            let model = ErasureCoding::new(&transfer, config)?;
            if args.streamed {
                let streamed = StreamedCoding::new(&transfer, code, timing)?;
                return Ok(Answer {
                    code: Some(used),
                    p_fallback: Some(streamed.fallback_probability()),
                    mean_paper_formula_s: Some(model.mean_paper_formula_s()),
                    monte_carlo: draw(args, &StreamedSampler::new(&transfer, code, timing)?),
                    ..of(&transfer, &streamed)
                });
            }
            Ok(Answer {
                code: Some(used),
                p_fallback: Some(model.fallback_probability()),
                mean_paper_formula_s: Some(model.mean_paper_formula_s()),
                monte_carlo: draw(args, &CodedSampler::new(&transfer, config)?),
                ..of(&transfer, &model)
            })
        }
        ModeName::Auto => {
            let model = TailCoding::new(&transfer, &auto::mode(args.mtu)?)?;
            let (question, choice) = (*model.question(), model.choice());
            let tail = Tail {
                packets: question.tail_packets,
                parity: choice.parity,
                repair_copies: choice.repair_copies,
                what: auto::describe(&[(question, choice)]),
            };
            let p_fallback = model.fallback_probability();
            Ok(Answer { tail: Some(tail), p_fallback, ..of(&transfer, &model) })
        }
        ModeName::BestEffort => {
            let model = BestEffort::new(&transfer, args.deadline.unwrap_or(f64::NAN))?;
            let missing = Missing {
                mean: model.missing_mean(),
                p99: model.missing_quantile(0.99),
                p999: model.missing_quantile(0.999),
                p_complete: model.complete_probability(),
            };
            Ok(Answer { missing: Some(missing), ..of(&transfer, &model) })
        }
    }
}

fn transfer(args: &ModelArgs) -> Result<Transfer, Failure> {
    let loss = match (args.burst, args.correlation, args.loss_per) {
        (Some(_), _, _) if args.loss == 0.0 => Loss::PerPacket(0.0),
        (Some(packets), _, _) => Loss::bursts(args.loss, packets)?,
        (None, Some(correlation), _) => Loss::Correlated { loss: args.loss, correlation },
        (None, None, LossPer::Chunk) => Loss::PerChunk(args.loss),
        (None, None, LossPer::Packet) => Loss::PerPacket(args.loss),
    };
    let path = Path { rate_bits_per_s: args.rate, rtt_s: args.rtt, loss };
    let framing = Framing {
        chunk_bytes: match args.mode {
            ModeName::Auto => args.mtu.into(),
            _ => args.chunk,
        },
        packet_bytes: args.mtu.into(),
        overhead_bytes: if args.headers { OVERHEAD_BYTES } else { 0 },
    };
    Ok(Transfer::new(&path, &framing, args.size)?)
}

fn of(transfer: &Transfer, model: &impl Completion) -> Answer {
    Answer {
        chunks: transfer.chunks(),
        ideal_s: transfer.ideal_s(),
        mean_s: model.mean_s(),
        p50_s: model.quantile_s(0.5),
        p99_s: model.quantile_s(0.99),
        p999_s: model.quantile_s(0.999),
        p_fallback: None,
        mean_paper_formula_s: None,
        code: None,
        tail: None,
        missing: None,
        monte_carlo: None,
    }
}

fn draw(args: &ModelArgs, sampler: &impl Sample) -> Option<Drawn> {
    if args.trials == 0 {
        return None;
    }
    let samples = Samples::draw(sampler, args.trials as usize, &mut Random::new(args.seed));
    Some(Drawn {
        trials: samples.count(),
        mean_s: samples.mean_s(),
        mean_interval_s: samples.mean_interval_s(Z_99),
        p99_s: samples.quantile_s(0.99),
        p99_interval_s: samples.quantile_interval_s(0.99, Z_99),
        p999_s: samples.quantile_s(0.999),
        p999_interval_s: samples.quantile_interval_s(0.999, Z_99),
    })
}

fn render(answer: &Answer) -> String {
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

#[cfg(test)]
mod tests {
    use lacuna::Layout;
    use lacuna_model::{Code, CodeKind};

    #[test]
    fn a_short_submessage_has_the_transports_parity() {
        for (kind, k, m) in [
            (CodeKind::Mds, 32, 8),
            (CodeKind::Mds, 32, 1),
            (CodeKind::Xor, 32, 12),
            (CodeKind::Xor, 7, 3),
        ] {
            let transports = match kind {
                CodeKind::Mds => lacuna_code::Code::mds(k as usize, m as usize),
                CodeKind::Xor => lacuna_code::Code::xor(k as usize, m as usize),
            };
            let layout = Layout::new(transports.expect("a code"), 1, 1 << 16).expect("a layout");
            let code = Code::new(kind, k, m).expect("a code");
            for chunks in 1..=k {
                let short = code.shortened_to(chunks.into());
                assert_eq!(
                    (short.k(), short.m()),
                    (chunks, layout.parity_chunks(chunks)),
                    "{code:?}"
                );
            }
        }
    }
}
