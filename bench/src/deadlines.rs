//! Bounded mode in real time: how late receives and sends end after their deadlines, over a link of
//! 1 Gbit/s and 25 ms with losses, beside a witness thread that sleeps to the same instants. Whatever the
//! machine adds to a sleep, the witness feels as well.
//!
//! And how long a critical message takes that is sent behind 64 MiB of droppable ones.
//!
//! Both ends run in this process over loopback; the link is emulated on the sending side of each.

use anyhow::{Context as _, Result, ensure};
use lacuna::datapath::impair::{Fraction, Impair, Impairment, Loss};
use lacuna::{
    Class, Classes, Connection, ConnectionConfig, Context, ContextConfig, ControllerKind, Listener,
    Outcome, QueuedSend, Reason, RecvOptions, SendBuffer, Wrap,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// One way of the link.
const DELAY: Duration = Duration::from_micros(12_500);
const RATE_BITS_PER_S: u64 = 1_000_000_000;
/// Of the link, so that its queue stays empty.
const SENT_SHARE: f64 = 0.95;
/// An operation may end so late, but for one of a thousand, …
const LATE_MAX: Duration = Duration::from_millis(5);
/// … which may end so much later than the witness woke.
const WITNESS_SLACK: Duration = Duration::from_millis(2);
/// Ends what would hang.
const LONG: Duration = Duration::from_secs(60);

/// Settings of the command line.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DeadlinesArgs {
    /// Messages of each setting; of those of 8 MiB a fifth
    #[arg(long, default_value_t = 1000)]
    messages: usize,
    /// Only this share of losses, as in 1e-3
    #[arg(long)]
    loss: Option<f64>,
    /// Only messages of so many bytes: 65536, 1048576, 8388608
    #[arg(long)]
    size: Option<usize>,
    /// Leave out the critical messages behind bulk
    #[arg(long)]
    no_critical: bool,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// What was found of one setting and one kind of deadline.
#[derive(Debug, Serialize)]
struct Line {
    loss: f64,
    burst: u32,
    message_bytes: usize,
    deadline_ms: f64,
    messages: usize,
    /// Receives by reason, those that occurred.
    ended: Vec<(String, usize)>,
    receives: Lateness,
    sends: Lateness,
    witness: Lateness,
    /// Receives and sends that ended more than 5 ms late.
    late: usize,
    /// Those of them that ended more than 2 ms after the witness woke.
    later_than_witness: usize,
    holds: bool,
}

/// Milliseconds after the deadline; 0 for what ended before.
#[derive(Debug, Clone, Copy, Serialize)]
struct Lateness {
    median_ms: f64,
    p999_ms: f64,
    most_ms: f64,
}

impl Lateness {
    fn of(late: &[Duration]) -> Self {
        let mut sorted: Vec<_> = late.iter().map(|late| late.as_secs_f64() * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (sorted.len() as f64 * share) as usize;
            sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
        };
        Self { median_ms: at(0.5), p999_ms: at(0.999), most_ms: at(1.0) }
    }
}

/// Measures everything; prints a table.
pub(crate) fn run(args: &DeadlinesArgs) -> Result<()> {
    ensure!(args.messages >= 10, "--messages must be 10 or more");
    let mut all_hold = true;
    for loss in [1e-4, 1e-3, 1e-2, 5e-2] {
        for burst in [1, 8] {
            for message_bytes in [64 << 10, 1 << 20, 8 << 20] {
                let is_wanted = args.loss.is_none_or(|wanted| wanted == loss)
                    && args.size.is_none_or(|wanted| wanted == message_bytes);
                if !is_wanted {
                    continue;
                }
                let messages = match message_bytes {
                    0x80_0000 => args.messages / 5,
                    _ => args.messages,
                };
                for line in setting(loss, burst, message_bytes, messages)? {
                    all_hold &= line.holds;
                    show(&line, args.json)?;
                }
            }
        }
    }
    if !args.no_critical {
        for controller in [ControllerKind::Fixed, ControllerKind::Bbr] {
            critical(controller, args.json)?;
        }
    }
    ensure!(all_hold, "some operations ended too late");
    Ok(())
}

fn show(line: &Line, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(line)?);
        return Ok(());
    }
    let ended: Vec<_> = line.ended.iter().map(|(why, count)| format!("{count} {why}")).collect();
    let late = |of: &Lateness| format!("{:.2}/{:.2}/{:.2}", of.median_ms, of.p999_ms, of.most_ms);
    println!(
        "loss {:.0e} bursts of {} {:>8} B deadline {:>5.1} ms: {}; late (median/p99.9/most ms): \
         receives {}, sends {}, witness {}; {} over 5 ms, {} of them over the witness{}",
        line.loss,
        line.burst,
        line.message_bytes,
        line.deadline_ms,
        ended.join(", "),
        late(&line.receives),
        late(&line.sends),
        late(&line.witness),
        line.late,
        line.later_than_witness,
        if line.holds { "" } else { "  TOO LATE" }
    );
    Ok(())
}

/// A connection over two contexts of which each sends through the link.
fn connected(
    link: &Impairment,
    config: ConnectionConfig,
) -> Result<([Context; 2], [Connection; 2])> {
    let context = |seed: u64, loss: Loss| {
        let link = Impairment { loss, ..link.clone() };
        let wrap: Wrap = Arc::new(move |channel, datapath| {
            Box::new(Impair::new(datapath, link.clone(), seed + u64::from(channel)))
        });
        Context::new(ContextConfig {
            bind: LOCALHOST.into(),
            wrap: Some(wrap),
            ..ContextConfig::default()
        })
    };
    let (here, there) = (context(1, link.loss.clone())?, context(1001, link.loss.clone())?);
    let listener = Listener::bind(&there, (LOCALHOST, 0).into(), ConnectionConfig::default())?;
    let address = listener.local_addr();
    let ends = std::thread::scope(|scope| {
        let accepting = scope.spawn(move || listener.accept());
        let sending = Connection::connect(&here, address, config)?;
        let receiving = accepting.join().ok().context("accepting panicked")??;
        anyhow::Ok([sending, receiving])
    })?;
    Ok(([here, there], ends))
}

fn setting(loss: f64, burst: u32, message_bytes: usize, messages: usize) -> Result<[Line; 2]> {
    let losses = match burst {
        1 => Loss::Independent(Fraction::from_f64(loss)),
        _ => Loss::bursts(loss, f64::from(burst))?,
    };
    let link = Impairment {
        loss: losses,
        delay_ns: DELAY.as_nanos() as u64,
        rate_bits_per_s: Some(RATE_BITS_PER_S),
        ..Impairment::default()
    };
    let config = ConnectionConfig {
        mode: "bounded".parse()?,
        controller: Some(ControllerKind::Fixed),
        rate_bits_per_s: Some((RATE_BITS_PER_S as f64 * SENT_SHARE) as u64),
        ..ConnectionConfig::default()
    };
    let (_contexts, [sending, receiving]) = connected(&link, config)?;
    let pair = Pair::new(sending, receiving, &_contexts, message_bytes)?;
    let on_wire =
        Duration::from_secs_f64(message_bytes as f64 * 8.0 / SENT_SHARE / RATE_BITS_PER_S as f64);
    // Until the last byte: the receive's announcement, and the message.
    let whole = 2 * DELAY + on_wire;
    let window = window(message_bytes) as u32;
    let deadlines = [whole * 7 / 10, whole + window * on_wire + 2 * LATE_MAX];
    let mut lines = Vec::new();
    for deadline in deadlines {
        let half = messages / 2;
        let found = pair.measure(deadline, half)?;
        lines.push(found.line(loss, burst, message_bytes, deadline));
    }
    lines.try_into().ok().context("two kinds of deadlines")
}

/// Receives that are posted at once.
fn window(message_bytes: usize) -> usize {
    (1 << 19) / message_bytes.min(1 << 19)
}

struct Pair {
    ends: [Connection; 2],
    queues: [lacuna::CompletionQueue; 2],
    message: SendBuffer,
}

/// How late each operation ended, and why receives did.
struct Found {
    receives: Vec<(Duration, Reason)>,
    sends: Vec<Duration>,
    witness: Vec<Duration>,
}

impl Pair {
    fn new(
        sending: Connection,
        receiving: Connection,
        contexts: &[Context; 2],
        message_bytes: usize,
    ) -> Result<Self> {
        let queues = [contexts[0].completion_queue(64)?, contexts[1].completion_queue(64)?];
        sending.complete_to(&queues[0])?;
        receiving.complete_to(&queues[1])?;
        let message = SendBuffer::new(Arc::new(vec![0x5A; message_bytes]));
        Ok(Self { ends: [sending, receiving], queues, message })
    }

    /// Moves messages with this deadline of both ends.
    fn measure(&self, deadline: Duration, messages: usize) -> Result<Found> {
        let (to_witness, instants) = mpsc::channel::<Instant>();
        let (to_sends, sends) = mpsc::channel::<Instant>();
        std::thread::scope(|scope| {
            let witness = scope.spawn(move || {
                let lateness = |due: Instant| {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    due.elapsed()
                };
                instants.into_iter().map(lateness).collect::<Vec<_>>()
            });
            let sent = scope.spawn(move || self.ends_of_sends(&sends, messages));
            let received = self.receives(deadline, messages, |due| {
                // They wait until the end of the scope.
                _ = to_witness.send(due);
                _ = to_sends.send(due);
            });
            drop((to_witness, to_sends));
            let (sends, witness) = (
                sent.join().ok().context("the sends' thread panicked")??,
                witness.join().ok().context("the witness panicked")?,
            );
            Ok(Found { receives: received?, sends, witness })
        })
    }

    fn receives(
        &self,
        deadline: Duration,
        messages: usize,
        tell: impl Fn(Instant),
    ) -> Result<Vec<(Duration, Reason)>> {
        let [sending, receiving] = &self.ends;
        let mut buffers: VecDeque<_> =
            (0..window(self.message.len())).map(|_| vec![0; self.message.len()]).collect();
        let mut due = Vec::new();
        let mut ended = vec![None; messages];
        let mut found = Vec::new();
        let mut done = 0;
        while done < messages {
            while due.len() < messages
                && let Some(buffer) = buffers.pop_front()
            {
                let number = due.len() as u64;
                let posted = Instant::now();
                receiving.queue_recv(buffer, RecvOptions::within(deadline), number)?;
                let options = QueuedSend {
                    deadline: Some(deadline),
                    user_data: number,
                    ..QueuedSend::default()
                };
                sending.queue_send(self.message.clone(), options)?;
                due.push(posted + deadline);
                tell(posted + deadline);
            }
            let polled = self.queues[1].poll(&mut found, 64, LONG)?;
            let now = Instant::now();
            ensure!(polled > 0, "{done} of {messages} receives ended");
            for completion in found.drain(..) {
                let Outcome::Received(receive) = completion.outcome else { continue };
                let number = completion.user_data as usize;
                let late = now.saturating_duration_since(due[number]);
                ended[number] = Some((late, receive.reason()));
                buffers.push_back(receive.take().buffer);
                done += 1;
            }
        }
        ended.into_iter().collect::<Option<_>>().context("each receive ends once")
    }

    /// How late the sends end, whose deadlines are told when they are posted.
    fn ends_of_sends(
        &self,
        due: &mpsc::Receiver<Instant>,
        messages: usize,
    ) -> Result<Vec<Duration>> {
        let mut known = Vec::new();
        let mut late = vec![Duration::ZERO; messages];
        let mut found = Vec::new();
        let mut done = 0;
        while done < messages {
            let polled = self.queues[0].poll(&mut found, 64, LONG)?;
            let now = Instant::now();
            ensure!(polled > 0, "{done} of {messages} sends ended");
            for completion in found.drain(..) {
                let number = completion.user_data as usize;
                while known.len() <= number {
                    known.push(due.recv()?);
                }
                late[number] = now.saturating_duration_since(known[number]);
                done += 1;
            }
        }
        Ok(late)
    }
}

impl Found {
    fn line(&self, loss: f64, burst: u32, message_bytes: usize, deadline: Duration) -> Line {
        let receives: Vec<_> = self.receives.iter().map(|(late, _)| *late).collect();
        let with_witness = |late: &[Duration]| {
            let pairs = late.iter().zip(&self.witness);
            let is_late = |pair: &(&Duration, &Duration)| *pair.0 > LATE_MAX;
            let beyond = |pair: &(&Duration, &Duration)| *pair.0 > *pair.1 + WITNESS_SLACK;
            let late: Vec<_> = pairs.filter(is_late).collect();
            let later = late.iter().filter(|pair| beyond(pair)).count();
            (late.len(), later)
        };
        let (of_receives, of_sends) = (with_witness(&receives), with_witness(&self.sends));
        let (late, later_than_witness) = (of_receives.0 + of_sends.0, of_receives.1 + of_sends.1);
        let messages = receives.len();
        let ended = Reason::ALL.iter().filter_map(|reason| {
            let count = self.receives.iter().filter(|(_, why)| why == reason).count();
            (count > 0).then(|| (reason.to_string(), count))
        });
        Line {
            loss,
            burst,
            message_bytes,
            deadline_ms: deadline.as_secs_f64() * 1e3,
            messages,
            ended: ended.collect(),
            receives: Lateness::of(&receives),
            sends: Lateness::of(&self.sends),
            witness: Lateness::of(&self.witness),
            late,
            later_than_witness,
            // What is late because the machine was is excused; else one of a thousand.
            holds: later_than_witness * 1000 <= 2 * messages,
        }
    }
}

/// How long critical messages of 64 bytes take while 64 MiB of droppable data are being sent.
#[derive(Debug, Serialize)]
struct Critical {
    controller: &'static str,
    messages: usize,
    round_trip_ms: f64,
    median_ms: f64,
    most_ms: f64,
}

fn critical(controller: ControllerKind, json: bool) -> Result<()> {
    const RATE_BITS_PER_S: u64 = 100_000_000;
    const BULK_BYTES: usize = 64 << 20;
    let link = Impairment {
        delay_ns: DELAY.as_nanos() as u64,
        rate_bits_per_s: Some(RATE_BITS_PER_S),
        ..Impairment::default()
    };
    let config = ConnectionConfig {
        classes: Classes::ALL,
        controller: Some(controller),
        rate_bits_per_s: (controller == ControllerKind::Fixed)
            .then_some((RATE_BITS_PER_S as f64 * SENT_SHARE) as u64),
        deadline: LONG,
        ..ConnectionConfig::default()
    };
    let (_contexts, ends) = connected(&link, config)?;
    let [here, there] = ends.each_ref().map(|end| {
        let class = |class| end.class(class).context("the connection has classes");
        anyhow::Ok([class(Class::Droppable)?, class(Class::Critical)?])
    });
    let ([bulk, urgent], [bulk_there, urgent_there]) = (here?, there?);
    let receive = bulk_there.post_recv(vec![0; BULK_BYTES])?;
    let sent = bulk.send(vec![1; BULK_BYTES], None)?;
    receive.wait_chunks(receive.capacity_chunks() / 20, LONG);
    let mut took_ms = Vec::new();
    while !sent.is_done() {
        let posted = urgent_there.post_recv(vec![0; 64])?;
        // The announcement of the receive is not part of it.
        std::thread::sleep(2 * DELAY + Duration::from_millis(20));
        if sent.is_done() {
            break;
        }
        let begun = Instant::now();
        urgent.send(vec![2; 64], None)?.wait()?;
        took_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        posted.wait(LONG)?;
    }
    took_ms.sort_by(f64::total_cmp);
    ensure!(!took_ms.is_empty(), "the bulk was gone before a critical message was sent");
    let line = Critical {
        controller: if controller == ControllerKind::Fixed { "fixed" } else { "bbr" },
        messages: took_ms.len(),
        round_trip_ms: 2e3 * DELAY.as_secs_f64(),
        median_ms: took_ms[took_ms.len() / 2],
        most_ms: took_ms[took_ms.len() - 1],
    };
    if json {
        println!("{}", serde_json::to_string(&line)?);
    } else {
        println!(
            "{} critical messages of 64 B behind 64 MiB of droppable data at 100 Mbit/s ({}): median \
             {:.1} ms, most {:.1} ms; the round trip is {:.0} ms",
            line.messages, line.controller, line.median_ms, line.most_ms, line.round_trip_ms
        );
    }
    Ok(())
}
