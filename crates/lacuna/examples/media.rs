//! A media-like stream over a lossy path: frames of some 100 KB, 60 in a second, each written into the receiver's
//! memory by one Write-Record. The receiver knows of each frame which bytes are there, and decides by its deadline
//! whether to show it with holes; nothing is ever sent again.
//!
//! ```text
//! cargo run --release -p lacuna --example media -- --help
//! cargo run --release -p lacuna --example media
//! cargo run --release -p lacuna --example media -- --loss 0.05 --burst 8 --deadline 30
//! ```
//!
//! Both ends are in this process, over loopback. The path between them is a relay with a UDP port of its own: it drops and
//! delays packets as `lacuna wan` does ([`lacuna_link::Pipe`]), one way alone, as nothing comes back.
//!
//! A frame of the receiver's memory has one of 64 places, by its number, so that the place says which frame it is. Its
//! record closes when all of it is there, when the sender has said that it was all, or by silence; then, or by its
//! deadline, the frame is shown if enough of it is there. For each frame that is not whole a line tells what is
//! missing: `#` is a fortieth that is there, `+` one that is there in part, `.` one that is missing.

use lacuna::datagram::{Arrived, Operation, QueuePair, SendWork, Settings, Target, Verb};
use lacuna::{Context, ContextConfig, Region, RegionOptions};
use lacuna_link::{Fraction, Loss, Pipe, PipeConfig, SplitMix64};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
usage: media [OPTIONS]
  --frames N           how many [300]
  --fps N              frames a second [60]
  --size BYTES         of a frame, in the mean; every 30th has half as much again [100000]
  --loss SHARE         packets that the path loses [0.01]
  --burst PACKETS      lose them in bursts of this mean length [1]
  --delay MS           of the path [20]
  --deadline MS        a frame is shown so long after it was sent, at the latest [60]
  --enough SHARE       of a frame's bytes, for it to be shown with holes [0.9]
  --seed N             of losses [1]";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Places of frames in the receiver's memory: a second of them.
const PLACES: u32 = 64;
/// Cells of a bar.
const CELLS: u64 = 40;
/// How much faster than its mean the stream may be sent: a frame leaves within a third of its time.
const PACE: u64 = 3;
/// Every so many frames one is longer.
const LONG: u32 = 30;

#[derive(Debug, Clone, Copy)]
struct Options {
    frames: u32,
    fps: u32,
    size: u32,
    loss: f64,
    burst: f64,
    delay: Duration,
    deadline: Duration,
    enough: f64,
    seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            frames: 300,
            fps: 60,
            size: 100_000,
            loss: 0.01,
            burst: 1.0,
            delay: Duration::from_millis(20),
            deadline: Duration::from_millis(60),
            enough: 0.9,
            seed: 1,
        }
    }
}

impl Options {
    /// Bytes of a frame: 3/4 to 5/4 of the mean, or 3/2.
    fn frame_bytes(&self, number: u32) -> u32 {
        match number % LONG {
            0 => self.place_bytes(),
            _ => {
                self.size * 3 / 4
                    + SplitMix64::new(number.into()).below(u64::from(self.size) / 2) as u32
            }
        }
    }

    fn place_bytes(&self) -> u32 {
        self.size * 3 / 2
    }

    /// Where a frame is in the receiver's memory.
    fn place(&self, number: u32) -> u64 {
        u64::from(number % PLACES) * u64::from(self.place_bytes())
    }

    /// When a frame is sent, since the start.
    fn sent(&self, number: u32) -> Duration {
        Duration::from_secs(1) * number / self.fps
    }

    fn loss(&self) -> Result<Loss> {
        Ok(match self.burst > 1.0 {
            true => Loss::bursts(self.loss, self.burst)?,
            false => Loss::Independent(Fraction::from_f64(self.loss)),
        })
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(&words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options, &mut |shown| println!("{shown}")) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Result<Options> {
    fn value<T: FromStr>(name: &str, text: &str) -> Result<T> {
        text.parse().map_err(|_| format!("{name} {text}: no such value").into())
    }
    let mut options = Options::default();
    for pair in words.chunks(2) {
        let [name, text] = pair else { return Err(format!("{} needs a value", pair[0]).into()) };
        match name.as_str() {
            "--frames" => options.frames = value(name, text)?,
            "--fps" => options.fps = value(name, text)?,
            "--size" => options.size = value(name, text)?,
            "--loss" => options.loss = value(name, text)?,
            "--burst" => options.burst = value(name, text)?,
            "--delay" => options.delay = Duration::from_millis(value(name, text)?),
            "--deadline" => options.deadline = Duration::from_millis(value(name, text)?),
            "--enough" => options.enough = value(name, text)?,
            "--seed" => options.seed = value(name, text)?,
            _ => return Err(format!("{name} {text}: no such option").into()),
        }
    }
    let has_frames = options.frames > 0 && (1..=1000).contains(&options.fps);
    if !has_frames || !(1000..=10_000_000).contains(&options.size) {
        return Err("a frame at least, 1 to 1000 a second, of 1000 to 10000000 bytes".into());
    }
    if !(0.0..1.0).contains(&options.loss) || !(0.0..=1.0).contains(&options.enough) {
        return Err("a loss below 1, and enough is a share of 1".into());
    }
    options.loss()?;
    Ok(options)
}

/// What a frame has at this byte.
fn content(number: u32, at: u64) -> u8 {
    (u64::from(number) * 131 + at * 7 + (at >> 8)) as u8
}

// ---- the path ----

/// What the path did.
#[derive(Debug, Clone, Copy, Default)]
struct Path {
    packets: u64,
    lost: u64,
}

/// Carries packets from a socket to an address, until it is told to end.
fn relay(
    options: &Options,
    socket: &UdpSocket,
    to: SocketAddr,
    is_over: &AtomicBool,
) -> Result<Path> {
    let delay_ns = options.delay.as_nanos() as u64;
    let config = PipeConfig { delay_ns, loss: options.loss()?, ..PipeConfig::default() };
    let mut pipe = Pipe::new(config, options.seed, 0);
    let start = Instant::now();
    let now_ns = || start.elapsed().as_nanos() as u64;
    let mut path = Path::default();
    // All packets are delayed alike, so they leave in order.
    let mut flight: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
    let mut packet = vec![0; 65_536];
    while !is_over.load(Ordering::Relaxed) {
        while let Some((due_ns, _)) = flight.front()
            && *due_ns <= now_ns()
        {
            let Some((_, packet)) = flight.pop_front() else { break };
            socket.send_to(&packet, to)?;
        }
        let due_ns = flight.front().map_or(u64::MAX, |(due_ns, _)| *due_ns);
        let wait = Duration::from_nanos(due_ns.saturating_sub(now_ns()));
        // A timeout of 0 would be none.
        let wait = wait.clamp(Duration::from_micros(1), Duration::from_millis(50));
        socket.set_read_timeout(Some(wait))?;
        let bytes = match socket.recv(&mut packet) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        path.packets += 1;
        let faults = pipe.draw(bytes as u64);
        if faults.is_lost {
            path.lost += 1;
        } else if let Some(passed) = pipe.pass(now_ns(), bytes as u64, &faults) {
            flight.push_back((passed.release_ns, packet[..bytes].to_vec()));
        }
    }
    Ok(path)
}

// ---- the sender ----

fn send(
    options: &Options,
    from: &QueuePair,
    to: SocketAddr,
    key: u32,
    start: Instant,
) -> Result<()> {
    let peer = from.peer(to).ok_or("no room for a peer")?;
    for number in 0..options.frames {
        std::thread::sleep(options.sent(number).saturating_sub(start.elapsed()));
        let bytes = u64::from(options.frame_bytes(number));
        let data: Vec<u8> = (0..bytes).map(|at| content(number, at)).collect();
        let to = Target { key, offset: options.place(number) };
        let verb = Verb::WriteRecord { data: data.into(), to };
        from.post_send(SendWork::new(number.into(), peer, verb))?;
        // Once it has left, the receiver is told that this was all: else it waits for the next frame, or for long
        // enough a silence, to know that the rest of this one is lost.
        from.wait(Duration::from_secs(10)).ok_or("a frame does not leave")?.status?;
        from.say_sent(peer);
    }
    Ok(())
}

// ---- the receiver ----

/// What became of a frame.
#[derive(Debug, Clone, PartialEq)]
enum Fate {
    Whole,
    /// Shown with holes.
    Holed,
    /// Too little of it is there.
    Dropped,
    /// Nothing was known of it by its deadline.
    Absent,
}

/// A frame that was decided.
struct Shown {
    number: u32,
    bytes: u64,
    /// The bytes that are there, and the ranges of them.
    came_bytes: u64,
    ranges: Vec<Range<u64>>,
    fate: Fate,
    /// From the deadline; negative is after it.
    early_ms: f64,
}

impl Shown {
    fn share(&self) -> f64 {
        self.came_bytes as f64 / self.bytes as f64
    }

    /// The map of the frame.
    fn bar(&self) -> String {
        let cell = |at: u64| {
            let (start, end) = (self.bytes * at / CELLS, self.bytes * (at + 1) / CELLS);
            let within =
                |range: &Range<u64>| range.end.min(end).saturating_sub(range.start.max(start));
            match self.ranges.iter().map(within).sum::<u64>() {
                0 => '.',
                came if came == end - start => '#',
                _ => '+',
            }
        };
        (0..CELLS).map(cell).collect()
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, bytes, early_ms, .. } = self;
        let (bar, percent) = (self.bar(), self.share() * 100.0);
        let fate = match self.fate {
            Fate::Whole => "whole",
            Fate::Holed => "shown with holes",
            Fate::Dropped => "dropped: too little of it",
            Fate::Absent => "dropped: nothing known by its deadline",
        };
        write!(f, "frame {number:5} {bytes:8} B [{bar}] {percent:6.2} %  {fate}")?;
        if self.fate != Fate::Absent {
            write!(f, ", {early_ms:.1} ms early")?;
        }
        Ok(())
    }
}

/// How it went.
#[derive(Debug, Default)]
struct Report {
    whole: u32,
    holed: u32,
    dropped: u32,
    absent: u32,
    /// Records that closed after their frame was decided.
    late: u32,
    /// Bytes of all frames, of those that came in time, and of those that were shown.
    bytes: u64,
    came_bytes: u64,
    shown_bytes: u64,
    /// Bytes that a map said were there and that were not what was sent.
    wrong_bytes: u64,
    /// Frames of which nothing came, as the queue pair tells by the numbers of messages.
    missed: u64,
    path: Path,
}

impl Report {
    fn add(&mut self, shown: &Shown) {
        let count = match shown.fate {
            Fate::Whole => &mut self.whole,
            Fate::Holed => &mut self.holed,
            Fate::Dropped => &mut self.dropped,
            Fate::Absent => &mut self.absent,
        };
        *count += 1;
        self.bytes += shown.bytes;
        self.came_bytes += shown.came_bytes;
        if matches!(shown.fate, Fate::Whole | Fate::Holed) {
            self.shown_bytes += shown.came_bytes;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whole, holed, dropped, absent, late, .. } = self;
        let percent = |part: u64, of: u64| part as f64 * 100.0 / (of as f64).max(1.0);
        let frames = whole + holed + dropped + absent;
        writeln!(
            f,
            "{frames} frames: {whole} whole, {holed} shown with holes, {dropped} dropped with too little"
        )?;
        writeln!(
            f,
            "  {absent} of which nothing was known by the deadline ({late} were known later)"
        )?;
        writeln!(f, "  {} of which nothing came at all, by the numbers of messages", self.missed)?;
        let [came, shown] =
            [self.came_bytes, self.shown_bytes].map(|part| percent(part, self.bytes));
        writeln!(f, "{came:.2} % of the bytes came in time, {shown:.2} % were shown")?;
        let lost = percent(self.path.lost, self.path.packets);
        writeln!(f, "the path lost {lost:.2} % of {} packets", self.path.packets)?;
        write!(f, "{} bytes are other than the maps say", self.wrong_bytes)
    }
}

struct Receiver<'r> {
    options: &'r Options,
    queue_pair: &'r QueuePair,
    memory: &'r Region,
    start: Instant,
    /// The frame that is decided next.
    next: u32,
    /// Closed records of frames that are not decided.
    closed: BTreeMap<u32, Box<Arrived>>,
    /// What to add to the number of a message to have that of its frame.
    base: Option<u32>,
    report: Report,
}

impl Receiver<'_> {
    /// Decides all frames in order, each when its record has closed or by its deadline.
    fn run(mut self, tell: &mut dyn FnMut(&Shown)) -> Result<Report> {
        while self.next < self.options.frames {
            let due = self.options.sent(self.next) + self.options.deadline;
            let left = due.saturating_sub(self.start.elapsed());
            if left.is_zero() || self.closed.contains_key(&self.next) {
                let shown = self.decide(due)?;
                if shown.fate != Fate::Whole {
                    tell(&shown);
                }
                self.report.add(&shown);
                self.next += 1;
                continue;
            }
            if let Some(done) = self.queue_pair.wait(left)
                && done.operation == Operation::Record
                && let Some(arrived) = done.arrived
            {
                self.on_record(arrived)?;
            }
        }
        self.report.missed = self.queue_pair.stats().messages_missed;
        Ok(self.report)
    }

    fn on_record(&mut self, arrived: Box<Arrived>) -> Result<()> {
        let place = arrived.place.ok_or("a record without a place")?;
        let at = (place.offset / u64::from(self.options.place_bytes())) as u32;
        // The first place says which frame it is, as no others were before; then messages are counted.
        let base = *self.base.get_or_insert(at.wrapping_sub(arrived.number));
        let number = arrived.number.wrapping_add(base);
        if number % PLACES != at || arrived.length != self.options.frame_bytes(number) {
            return Err(format!("frame {number} in place {at}, of {} bytes", arrived.length).into());
        }
        if number < self.next {
            self.report.late += 1;
        } else {
            self.closed.insert(number, arrived);
        }
        Ok(())
    }

    fn decide(&mut self, due: Duration) -> Result<Shown> {
        let number = self.next;
        let bytes = u64::from(self.options.frame_bytes(number));
        let early_ms = (due.as_secs_f64() - self.start.elapsed().as_secs_f64()) * 1e3;
        let mut shown =
            Shown { number, bytes, came_bytes: 0, ranges: vec![], fate: Fate::Absent, early_ms };
        let Some(arrived) = self.closed.remove(&number) else { return Ok(shown) };
        shown.ranges = arrived.map.ranges(arrived.length).collect();
        shown.came_bytes = arrived.map.bytes(arrived.length);
        shown.fate = match shown.share() {
            share if share >= 1.0 => Fate::Whole,
            share if share >= self.options.enough => Fate::Holed,
            _ => Fate::Dropped,
        };
        let mut frame = vec![0; bytes as usize];
        self.memory.read(self.options.place(number), &mut frame)?;
        // Unless this machine has slept for so long that another frame is written there.
        if self.start.elapsed() < self.options.sent(number.saturating_add(PLACES)) {
            for range in &shown.ranges {
                let wrong = range.clone().filter(|at| frame[*at as usize] != content(number, *at));
                self.report.wrong_bytes += wrong.count() as u64;
            }
        }
        Ok(shown)
    }
}

fn run(options: &Options, tell: &mut dyn FnMut(&Shown)) -> Result<Report> {
    let bind = Ipv4Addr::LOCALHOST.into();
    let context = || Context::new(ContextConfig { bind, ..ContextConfig::default() });
    let (here, there) = (context()?, context()?);
    let rate = u64::from(options.size) * u64::from(options.fps) * 8 * PACE;
    let settings = Settings { bind, ..Settings::default() };
    let receiver = there.datagram_queue_pair(&settings)?;
    let settings = Settings { rate_bits_per_s: Some(rate), ..settings };
    let sender = here.datagram_queue_pair(&settings)?;
    let places = PLACES as usize * options.place_bytes() as usize;
    let memory = there.register(vec![0; places], RegionOptions::default())?;
    let entry = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (to, key, is_over) = (receiver.local_addr(), memory.key(), AtomicBool::new(false));
    let entry_address = entry.local_addr()?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let relaying =
            scope.spawn(|| relay(options, &entry, to, &is_over).map_err(|error| error.to_string()));
        let sending = scope.spawn(|| {
            send(options, &sender, entry_address, key, start).map_err(|error| error.to_string())
        });
        let receiver = Receiver {
            options,
            queue_pair: &receiver,
            memory: &memory,
            start,
            next: 0,
            closed: BTreeMap::new(),
            base: None,
            report: Report::default(),
        };
        let received = receiver.run(tell);
        let sent = sending.join().map_err(|_| "the sender panicked");
        is_over.store(true, Ordering::Relaxed);
        let path = relaying.join().map_err(|_| "the relay panicked");
        sent??;
        Ok(Report { path: path??, ..received? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So late that each frame is decided when its record closes, however busy this machine is.
    fn patient(loss: f64) -> Options {
        Options { frames: 60, loss, deadline: Duration::from_secs(60), ..Options::default() }
    }

    #[test]
    fn what_is_missing_of_frames_is_what_the_path_lost() {
        let mut told = vec![];
        let report = run(&patient(0.02), &mut |shown| {
            assert!(shown.bar().contains(['.', '+']), "{shown}");
            assert_eq!(
                shown.ranges.iter().map(|range| range.end - range.start).sum::<u64>(),
                shown.came_bytes
            );
            told.push(shown.number);
        })
        .unwrap();
        println!("{report}");
        assert_eq!(report.whole + report.holed + report.dropped, 60, "{report:?}");
        assert_eq!(told.len() as u32, report.holed + report.dropped);
        assert!(told.is_sorted() && !told.is_empty());
        assert!(report.path.lost > 0 && report.came_bytes < report.bytes);
        assert_eq!(report.wrong_bytes, 0);
    }

    #[test]
    fn bars_tell_fortieths_that_are_there_in_part_or_not() {
        let shown = Shown {
            number: 7,
            bytes: 4000,
            came_bytes: 3750,
            ranges: vec![0..250, 400..3900],
            fate: Fate::Holed,
            early_ms: 3.0,
        };
        let bar = format!("##+.{}.", "#".repeat(35));
        assert_eq!(shown.bar(), bar);
        let text = shown.to_string();
        assert!(
            text.contains(&bar) && text.contains("93.75 %  shown with holes, 3.0 ms"),
            "{text}"
        );
    }

    #[test]
    fn frames_stay_in_their_places() {
        let options = Options::default();
        for number in 0..1000 {
            assert!(options.frame_bytes(number) <= options.place_bytes());
            assert_eq!(options.place(number), options.place(number + PLACES));
        }
        assert_eq!(options.sent(60), Duration::from_secs(1));
    }

    #[test]
    fn options_are_read_and_wrong_ones_refused() {
        let parse = |text: &str| parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let options = parse("--frames 5 --loss 0.5 --burst 8 --deadline 10").unwrap();
        assert_eq!((options.frames, options.deadline), (5, Duration::from_millis(10)));
        for wrong in
            ["--frames", "--fps x", "--loss 1", "--size 1", "--loss 0.9 --burst 1.1", "-x 1"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
