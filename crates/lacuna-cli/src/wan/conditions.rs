//! The emulated path from options, and its changes over time.

use super::values::{self, Depth, Pair, bytes_in};
use crate::failure::Failure;
use crate::units::{self, show_bytes, show_rate, show_time};
use clap::{Args, Parser};
use lacuna_wan::{
    Background, Delay, DelayTrace, Fraction, Loss, WayConfig, WayError, parse_losses,
};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Least queue of a link by default: several segmentation-offload bundles, which arrive at once
/// however well the sender paces.
const QUEUE_BYTES_MIN: u64 = 512 << 10;

/// Largest recording that is read.
const TRACE_BYTES_MAX: u64 = 1 << 30;

/// Everything about the path that may also change while it runs. A value is for both ways, or two
/// values for one each.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The path (one value for both ways, or TO_SERVER,TO_CLIENT)")]
pub(super) struct Conditions {
    /// Rate of the link; without, it is as fast as this machine
    #[arg(long, value_parser = values::rates, value_name = "RATE")]
    rate: Option<Pair<u64>>,
    /// Round-trip time: half of it each way
    #[arg(long, value_parser = units::duration, value_name = "TIME",
          conflicts_with_all = ["delay", "delay_trace"])]
    rtt: Option<Duration>,
    /// Time of one way
    #[arg(long, value_parser = values::times, value_name = "TIME", conflicts_with = "delay_trace")]
    delay: Option<Pair<Duration>>,
    /// A recorded delay: lines of TIME DELAY in milliseconds, repeated at the end
    #[arg(long, value_parser = values::files, value_name = "FILE")]
    delay_trace: Option<Pair<String>>,
    /// Up to this much is added to the delay; packets keep their order
    #[arg(long, value_parser = values::times, value_name = "TIME")]
    jitter: Option<Pair<Duration>>,
    /// Share of packets that get lost, in front of queue and link: 1e-3, 0.1%, 100% (dark)
    #[arg(long, value_parser = values::shares, value_name = "SHARE", conflicts_with = "loss_trace")]
    loss: Option<Pair<f64>>,
    /// Lose packets in bursts of this mean length, by a two-state Markov chain
    #[arg(long, value_parser = values::bursts, value_name = "PACKETS", conflicts_with = "loss_trace")]
    burst: Option<Pair<f64>>,
    /// Lose packets by a chain of two states (Gilbert and Elliott): the loss in the low and in the high state,
    /// and the probabilities per packet of going up and down; for both ways, or TO_SERVER/TO_CLIENT
    #[arg(
        long,
        value_parser = values::chains,
        value_name = "LOW,HIGH,UP,DOWN",
        conflicts_with_all = ["loss", "burst", "loss_trace"]
    )]
    gilbert: Option<Pair<Loss>>,
    /// Recorded losses: 0 for a packet that came, 1 for one that did not, repeated at the end
    #[arg(long, value_parser = values::files, value_name = "FILE")]
    loss_trace: Option<Pair<String>>,
    /// What may wait in front of the link, 5MB or 20ms; rate times round-trip time if not given,
    /// but 512KiB at least
    #[arg(long, value_parser = values::depths, value_name = "DEPTH")]
    queue: Option<Pair<Depth>>,
    /// Mark packets (CE) that meet a queue of more than this, 1MB or 5ms
    #[arg(long, value_parser = values::depths, value_name = "DEPTH")]
    ecn: Option<Pair<Depth>>,
    /// Share of packets that are marked (CE) whatever the queue
    #[arg(long, value_parser = values::shares, value_name = "SHARE")]
    mark: Option<Pair<f64>>,
    /// Share of packets that are held back for others to pass
    #[arg(long, value_parser = values::shares, value_name = "SHARE")]
    reorder: Option<Pair<f64>>,
    /// How long they are held back [default: 1ms]
    #[arg(long, value_parser = values::times, value_name = "TIME")]
    reorder_delay: Option<Pair<Duration>>,
    /// Share of packets that arrive twice
    #[arg(long, value_parser = values::shares, value_name = "SHARE")]
    duplicate: Option<Pair<f64>>,
    /// Share of packets in which a bit is flipped
    #[arg(long, value_parser = values::shares, value_name = "SHARE")]
    corrupt: Option<Pair<f64>>,
    /// Share of the rate, in the mean, that others' packets take: bursts at the link's full rate and pauses, each of
    /// random length, of UDP, which does not give way. They fill the queue, and nobody receives them
    #[arg(long, value_parser = values::shares, value_name = "SHARE")]
    background: Option<Pair<f64>>,
    /// Mean length of the bursts of --background [default: 10ms]
    #[arg(long, value_parser = values::times, value_name = "TIME")]
    background_burst: Option<Pair<Duration>>,
    /// What the link charges each packet besides its bytes from the IP header on; the default is
    /// an Ethernet header [default: 14]
    #[arg(long, value_parser = values::overhead, value_name = "BYTES")]
    overhead: Option<u32>,
    /// Packets of a bundle wait for each other at most so long: shorter is truer, and costs more;
    /// a 25th of the delay if not given, within 100us and 600us
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    bundle: Option<Duration>,
}

impl Conditions {
    /// These conditions, completed from `before`.
    fn over(&self, before: &Self) -> Self {
        let (new, old) = (self.clone(), before.clone());
        // One way to state a delay or loss replaces all others.
        let says_delay = new.rtt.is_some() || new.delay.is_some() || new.delay_trace.is_some();
        let delays = if says_delay { &new } else { &old };
        let says_loss = new.loss.is_some() || new.loss_trace.is_some() || new.gilbert.is_some();
        let losses = if says_loss { &new } else { &old };
        Self {
            rtt: delays.rtt,
            delay: delays.delay,
            delay_trace: delays.delay_trace.clone(),
            loss: losses.loss,
            loss_trace: losses.loss_trace.clone(),
            gilbert: losses.gilbert.clone(),
            burst: new.burst.or(old.burst),
            rate: new.rate.or(old.rate),
            jitter: new.jitter.or(old.jitter),
            queue: new.queue.or(old.queue),
            ecn: new.ecn.or(old.ecn),
            mark: new.mark.or(old.mark),
            reorder: new.reorder.or(old.reorder),
            reorder_delay: new.reorder_delay.or(old.reorder_delay),
            duplicate: new.duplicate.or(old.duplicate),
            corrupt: new.corrupt.or(old.corrupt),
            background: new.background.or(old.background),
            background_burst: new.background_burst.or(old.background_burst),
            overhead: new.overhead.or(old.overhead),
            bundle: new.bundle.or(old.bundle),
        }
    }

    /// Whether all is the same for both ways.
    fn is_alike(&self) -> bool {
        alike(&self.rate)
            && alike(&self.delay)
            && alike(&self.delay_trace)
            && alike(&self.jitter)
            && alike(&self.loss)
            && alike(&self.burst)
            && alike(&self.gilbert)
            && alike(&self.loss_trace)
            && alike(&self.queue)
            && alike(&self.ecn)
            && alike(&self.mark)
            && alike(&self.reorder)
            && alike(&self.reorder_delay)
            && alike(&self.duplicate)
            && alike(&self.corrupt)
            && alike(&self.background)
            && alike(&self.background_burst)
    }

    /// The path's configuration to the server and to the client.
    pub(super) fn ways(&self) -> Result<[WayConfig; 2], Failure> {
        let delays = [self.way_delay(0)?, self.way_delay(1)?];
        let rtt = Duration::from_nanos(delays.iter().map(Delay::max_ns).sum());
        let [to_server, to_client] = delays;
        Ok([self.way(0, to_server, rtt)?, self.way(1, to_client, rtt)?])
    }

    fn way(&self, index: usize, delay: Delay, rtt: Duration) -> Result<WayConfig, Failure> {
        let default = WayConfig::default();
        let rate_bits_per_s = of(&self.rate, index);
        let depth = |option: &str, depth: Depth| {
            depth.bytes(rate_bits_per_s).ok_or_else(|| {
                Failure::Usage(format!("--{option} as a time needs a --rate to tell its bytes by"))
            })
        };
        let queue_bytes = match (of(&self.queue, index), rate_bits_per_s) {
            (Some(queue), _) => depth("queue", queue)?,
            (None, Some(rate)) => bytes_in(rate, rtt).max(QUEUE_BYTES_MIN),
            (None, None) => default.queue_bytes,
        };
        let share = |option: &Option<Pair<f64>>| {
            of(option, index).and_then(Fraction::checked_from_f64).unwrap_or(Fraction::never())
        };
        let way = WayConfig {
            rate_bits_per_s,
            queue_bytes,
            overhead_bytes: self.overhead.unwrap_or(default.overhead_bytes),
            delay,
            jitter_ns: of(&self.jitter, index).map_or(0, ns),
            loss: self.way_loss(index)?,
            reorder: share(&self.reorder),
            reorder_delay_ns: of(&self.reorder_delay, index).map_or(1_000_000, ns),
            duplicate: share(&self.duplicate),
            corrupt: share(&self.corrupt),
            mark: share(&self.mark),
            background: of(&self.background, index).filter(|share| *share > 0.0).map(|share| {
                Background {
                    share_ppm: (share * 1e6).ceil() as u32,
                    burst_ns: of(&self.background_burst, index).map_or(Background::BURST_NS, ns),
                }
            }),
            mark_above_bytes: of(&self.ecn, index).map(|ecn| depth("ecn", ecn)).transpose()?,
            bundle_ns_max: self.bundle.map(ns),
        };
        if way.mark_above_bytes.is_some() && rate_bits_per_s.is_none() {
            return Err(Failure::Usage(
                "--ecn needs a --rate: without one nothing waits".to_owned(),
            ));
        }
        way.validate().map_err(|error| {
            Failure::Usage(match error {
                WayError::Background { .. } => {
                    "--background takes shares up to 95%, --background-burst \
                    10us or more"
                        .to_owned()
                }
                WayError::BackgroundWithoutRate => {
                    "--background needs a --rate to be a share of".to_owned()
                }
                error => error.to_string(),
            })
        })?;
        Ok(way)
    }

    fn way_delay(&self, index: usize) -> Result<Delay, Failure> {
        if let Some(files) = &self.delay_trace {
            let path = files.by_way()[index];
            let trace = DelayTrace::parse(&read(path)?);
            let trace = trace.map_err(|error| Failure::Usage(format!("{path}: {error}")))?;
            return Ok(Delay::Trace(trace));
        }
        let half = self.rtt.map(|rtt| rtt / 2);
        Ok(Delay::Fixed(of(&self.delay, index).or(half).map_or(0, ns)))
    }

    fn way_loss(&self, index: usize) -> Result<Loss, Failure> {
        if let Some(files) = &self.loss_trace {
            let path = files.by_way()[index];
            let losses = parse_losses(&read(path)?);
            return losses.map_err(|error| Failure::Usage(format!("{path}: {error}")));
        }
        if let Some(chains) = &self.gilbert {
            return Ok(chains.by_way()[index].clone());
        }
        let loss = of(&self.loss, index).unwrap_or(0.0);
        match of(&self.burst, index) {
            // All lost, in one endless burst.
            Some(burst) if (0.0..1.0).contains(&loss) && loss > 0.0 => {
                Loss::bursts(loss, burst).map_err(|error| Failure::Usage(error.to_string()))
            }
            _ if loss > 0.0 => Ok(Loss::Independent(Fraction::from_f64(loss))),
            _ => Ok(Loss::None),
        }
    }
}

/// Whether a value is the same for both directions.
fn alike<T: PartialEq>(option: &Option<Pair<T>>) -> bool {
    option.as_ref().is_none_or(|pair| pair.to_server == pair.to_client)
}

/// The value for one direction.
fn of<T: Copy>(option: &Option<Pair<T>>, index: usize) -> Option<T> {
    option.as_ref().map(|pair| *pair.by_way()[index])
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn read(path: &str) -> Result<String, Failure> {
    let path = Path::new(path);
    let failure = |error| Failure::file("read", path, &error);
    let bytes = fs::metadata(path).map_err(failure)?.len();
    if bytes > TRACE_BYTES_MAX {
        let (has, most) = (show_bytes(bytes), show_bytes(TRACE_BYTES_MAX));
        return Err(Failure::Usage(format!("{}: {has} is more than {most}", path.display())));
    }
    fs::read_to_string(path).map_err(failure)
}

/// A direction in words.
pub(super) fn describe(way: &WayConfig) -> String {
    let time = |ns: u64| show_time(ns as f64 / 1e9);
    let mut parts = vec![match way.rate_bits_per_s {
        Some(rate) => format!("{}, queue {}", show_rate(rate as f64), show_bytes(way.queue_bytes)),
        None => "no limit of rate".to_owned(),
    }];
    parts.push(match &way.delay {
        Delay::Fixed(delay_ns) => format!("delay {}", time(*delay_ns)),
        Delay::Trace(_) => format!("recorded delay up to {}", time(way.delay.max_ns())),
    });
    if way.jitter_ns > 0 {
        parts.push(format!("jitter {}", time(way.jitter_ns)));
    }
    match &way.loss {
        loss if loss.is_none() => {}
        loss @ Loss::Trace(_) => parts.push(format!("recorded loss, {:.2e}", loss.mean())),
        loss @ Loss::Gilbert { low, high, high_to_low, .. } => {
            let packets = 1.0 / high_to_low.to_f64();
            let all = if low.is_never() && *high == Fraction::always() {
                "in bursts of".to_owned()
            } else {
                format!("between {:.2e} and {:.2e}, high for", low.to_f64(), high.to_f64())
            };
            parts.push(format!("loss {:.2e} {all} {packets:.3}", loss.mean()));
        }
        loss => parts.push(format!("loss {:.2e}", loss.mean())),
    }
    for (name, share) in [
        ("marked", way.mark),
        ("held back", way.reorder),
        ("duplicated", way.duplicate),
        ("corrupted", way.corrupt),
    ] {
        if !share.is_never() {
            parts.push(format!("{:.2e} {name}", share.to_f64()));
        }
    }
    if let Some(Background { share_ppm, burst_ns }) = way.background {
        let share = f64::from(share_ppm) / 1e6;
        parts.push(format!("{share:.2} of the rate taken by others, {} at a time", time(burst_ns)));
    }
    if let Some(above) = way.mark_above_bytes {
        parts.push(format!("marks above {}", show_bytes(above)));
    }
    parts.join(", ")
}

/// The path from a time on.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) at: Duration,
    pub(super) ways: [WayConfig; 2],
}

/// A change on the command line: `10s rate=100mbit loss=1e-2`.
#[derive(Debug, Clone)]
pub(super) struct ChangeSpec {
    at: Duration,
    conditions: Conditions,
}

#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct ChangeLine {
    #[command(flatten)]
    conditions: Conditions,
}

/// Reads a change.
pub(super) fn change(text: &str) -> Result<ChangeSpec, String> {
    let mut words = text.split_whitespace();
    let at = words.next().ok_or("an empty change: use \"10s loss=1e-2\"")?;
    let at = units::duration(at)?;
    let options: Vec<String> = words.map(|word| format!("--{word}")).collect();
    if let Some(word) = options.iter().find(|word| !word.contains('=')) {
        return Err(format!("\"{}\" has no value: use NAME=VALUE", &word[2..]));
    }
    if options.is_empty() {
        return Err(format!("\"{text}\" changes nothing: use \"10s loss=1e-2\""));
    }
    match ChangeLine::try_parse_from(options) {
        Ok(line) => Ok(ChangeSpec { at, conditions: line.conditions }),
        Err(error) => Err(crate::one_line(&error.to_string())),
    }
}

/// The path at the start, and its changes, each on top of those before it.
pub(super) fn course(
    start: &Conditions,
    changes: &[ChangeSpec],
) -> Result<([WayConfig; 2], Vec<Change>), Failure> {
    let mut changes = changes.to_vec();
    changes.sort_by_key(|change| change.at);
    let mut conditions = start.clone();
    let mut course = vec![];
    for change in changes {
        conditions = change.conditions.over(&conditions);
        course.push(Change { at: change.at, ways: conditions.ways()? });
    }
    Ok((start.ways()?, course))
}

/// The way to each host of a LAN at the start, and its changes, each on top of those before it.
pub(super) fn lan_course(
    start: &Conditions,
    changes: &[ChangeSpec],
) -> Result<(WayConfig, Vec<(Duration, WayConfig)>), Failure> {
    if !start.is_alike() || !changes.iter().all(|change| change.conditions.is_alike()) {
        return Err(Failure::Usage(
            "a LAN has no two directions: give one value, for the way to each host".to_owned(),
        ));
    }
    let ([way, _], changes) = course(start, changes)?;
    let changes = changes.into_iter().map(|Change { at, ways: [way, _] }| (at, way)).collect();
    Ok((way, changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(words: &[&str]) -> Conditions {
        ChangeLine::try_parse_from(words).expect("conditions").conditions
    }

    #[test]
    fn options_become_ways() {
        let [to_server, to_client] = conditions(&[
            "--rate=1gbit,100mbit",
            "--rtt=40ms",
            "--loss=1e-3,0",
            "--burst=8",
            "--ecn=5ms",
            "--reorder=1%",
        ])
        .ways()
        .unwrap();
        assert_eq!(to_server.rate_bits_per_s, Some(1_000_000_000));
        assert_eq!((to_server.queue_bytes, to_client.queue_bytes), (5_000_000, 512 << 10));
        assert_eq!(to_server.delay.max_ns(), 20_000_000);
        assert!((to_server.loss.mean() - 1e-3).abs() < 1e-9 && to_client.loss.is_none());
        assert_eq!(to_server.mark_above_bytes, Some(625_000));
        assert_eq!(to_client.reorder, Fraction::from_f64(0.01));
        assert_eq!(to_client.reorder_delay_ns, 1_000_000);
        let text = describe(&to_server);
        assert!(text.contains("1 Gbit/s") && text.contains("bursts of 8"), "{text}");
    }

    #[test]
    fn a_chain_replaces_other_losses_until_another_is_stated() {
        let start = conditions(&["--loss=1e-3", "--burst=8"]);
        let changes = ["1s gilbert=0,0.3,1e-4,0.125/0,0,0,1", "2s loss=0.5"];
        let (_, course) = course(&start, &changes.map(|text| change(text).unwrap())).unwrap();
        let [to_server, to_client] = &course[0].ways;
        assert!((to_server.loss.mean() - 0.3 * 1e-4 / (1e-4 + 0.125)).abs() < 1e-9);
        assert_eq!(to_client.loss.mean(), 0.0);
        let text = describe(to_server);
        assert!(text.contains("between 0.00e0 and 3.00e-1, high for 8"), "{text}");
        assert!((course[1].ways[0].loss.mean() - 0.5).abs() < 1e-9);
        assert!(ChangeLine::try_parse_from(["--gilbert=0,1,0,1", "--loss=1e-3"]).is_err());
    }

    #[test]
    fn recordings_are_read_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (delays, losses) = (file("delays", "0 10\n50 30\n"), file("losses", "0001"));
        let words = [format!("--delay-trace={delays}"), format!("--loss-trace={losses}")];
        let [way, _] = conditions(&[&words[0], &words[1]]).ways().unwrap();
        assert_eq!((way.delay.max_ns(), way.loss.mean()), (30_000_000, 0.25));
        assert!(describe(&way).contains("recorded delay up to 30 ms"));
        for (option, part) in [
            (format!("--loss-trace={delays}"), "line 2: '5' is neither 0"),
            ("--loss-trace=/nonexistent".to_owned(), "cannot read /nonexistent"),
        ] {
            let error = conditions(&[&option]).ways().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn changes_come_on_top_of_each_other_in_the_order_of_their_times() {
        let start = conditions(&["--rate=1gbit", "--rtt=40ms", "--loss=1e-3"]);
        let changes =
            ["20s rtt=10ms", "3s loss=100%", "6s loss=0 rate=100mbit"].map(|c| change(c).unwrap());
        let (first, course) = course(&start, &changes).unwrap();
        assert!((first[0].loss.mean() - 1e-3).abs() < 1e-9);
        let seen: Vec<_> = course
            .iter()
            .map(|change| {
                let way = &change.ways[1];
                let rate = way.rate_bits_per_s.unwrap() / 1_000_000;
                (change.at.as_secs(), way.loss.mean(), rate, way.delay.max_ns() / 1_000_000)
            })
            .collect();
        assert_eq!(seen, [(3, 1.0, 1000, 20), (6, 0.0, 100, 20), (20, 0.0, 100, 5)]);
    }

    #[test]
    fn others_take_a_share_of_the_rate_until_they_are_told_not_to() {
        let start = conditions(&["--rate=1gbit", "--background=20%,0", "--background-burst=5ms"]);
        let (ways, course) = course(&start, &[change("2s background=0").unwrap()]).unwrap();
        let background = Background { share_ppm: 200_000, burst_ns: 5_000_000 };
        assert_eq!(ways.each_ref().map(|way| way.background), [Some(background), None]);
        assert_eq!(course[0].ways.each_ref().map(|way| way.background), [None; 2]);
        let text = describe(&ways[0]);
        assert!(text.contains("0.20 of the rate taken by others, 5 ms at a time"), "{text}");
    }

    #[test]
    fn a_lan_has_one_value_of_each() {
        let start = conditions(&["--rate=1gbit", "--rtt=1ms", "--gilbert=0,0.3,1e-4,0.125"]);
        let (way, course) = lan_course(&start, &[change("3s loss=1").unwrap()]).unwrap();
        assert_eq!((way.rate_bits_per_s, way.delay.max_ns()), (Some(1_000_000_000), 500_000));
        assert_eq!((course[0].0.as_secs(), course[0].1.loss.mean()), (3, 1.0));
        for words in [&["--loss=0.1,0.2"][..], &["--delay=1ms,2ms"]] {
            let error = lan_course(&conditions(words), &[]).unwrap_err().to_string();
            assert!(error.contains("no two directions"), "{error}");
        }
        assert!(lan_course(&start, &[change("3s loss=1,0").unwrap()]).is_err());
    }

    #[test]
    fn nonsense_is_answered_in_one_line() {
        for (text, part) in [
            ("", "empty"),
            ("10s", "changes nothing"),
            ("10 loss=1", "no unit"),
            ("10s loss", "NAME=VALUE"),
            ("10s colour=red", "--colour"),
            ("10s rate=1GB/s", "8gbit"),
        ] {
            let error = change(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
        for (words, part) in [
            (&["--queue=20ms"][..], "needs a --rate"),
            (&["--background=0.2"], "needs a --rate"),
            (&["--background=0.99", "--rate=1gbit"], "up to 95%"),
            (&["--ecn=1MB"], "needs a --rate"),
            (&["--loss=0.9", "--burst=1"], "bursts"),
            (&["--rate=100gbit", "--rtt=2s"], "more than 1073741824"),
        ] {
            let error = conditions(words).ways().unwrap_err();
            assert!(matches!(error, Failure::Usage(_)) && error.to_string().contains(part));
        }
    }
}
