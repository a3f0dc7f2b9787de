//! What the runner costs: an all-reduce of ranks in one thread over a fabric that only copies, so the time is
//! that of all ranks' work, one after the other. `cargo bench -p lacuna-schedule --bench runner`

use lacuna_path::ranges::Ranges;
use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::run::{
    Buffers, Event, Fabric, FabricError, Job, Label, Posting, Reason, Runner, Settings, Time,
    Token, Vectors,
};
use lacuna_schedule::schedule::{Algorithm, Collective, Request, plan};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

const CHUNK_BYTES: usize = 64 << 10;

/// Bytes of a send that its receive waits for.
type Piece = (usize, Vec<u8>);

#[derive(Default)]
struct Channel {
    sends: Vec<(Token, Vec<Piece>)>,
    receives: Vec<(Token, usize)>,
}

#[derive(Default)]
struct Copies {
    channels: HashMap<(usize, usize), Channel>,
    sends: HashMap<(usize, Token), ((usize, usize), usize)>,
    buffers: HashMap<(usize, Token), (Vec<u8>, usize)>,
    events: HashMap<usize, VecDeque<Event>>,
    /// Memory to be used again, as a transport does: fresh pages would cost more than all the rest.
    spare: HashMap<usize, Vec<Vec<u8>>>,
}

impl Copies {
    fn take(&mut self, len: usize) -> Vec<u8> {
        self.spare.entry(len).or_default().pop().unwrap_or_else(|| vec![0; len])
    }

    fn put(&mut self, buffer: Vec<u8>) {
        self.spare.entry(buffer.len()).or_default().push(buffer);
    }

    fn deliver(&mut self, pair: (usize, usize), message: usize) {
        let channel = self.channels.entry(pair).or_default();
        let Some((token, len)) = channel.receives.get(message).copied() else { return };
        let Some((_, pieces)) = channel.sends.get_mut(message) else { return };
        let events = self.events.entry(pair.1).or_default();
        let Some((buffer, here)) = self.buffers.get_mut(&(pair.1, token)) else { return };
        for (offset, bytes) in pieces.drain(..) {
            buffer[offset..offset + bytes.len()].copy_from_slice(&bytes);
            *here += bytes.len();
            let len_here = bytes.len();
            self.spare.entry(len_here).or_default().push(bytes);
            events.push_back(Event::Arrived { token, bytes: offset..offset + len_here });
            if *here == len {
                events.push_back(Event::Ended {
                    token,
                    reason: Reason::Whole,
                    missing: Ranges::default(),
                    len_bytes: Some(len),
                });
            }
        }
    }
}

struct End<'a>(&'a mut Copies, usize);

impl Fabric for End<'_> {
    fn now_ns(&self) -> u64 {
        0
    }

    fn chunk_bytes(&self) -> usize {
        CHUNK_BYTES
    }

    fn post_receive(&mut self, posting: &Posting) -> Result<(), FabricError> {
        let pair = (posting.peer, self.1);
        let channel = self.0.channels.entry(pair).or_default();
        channel.receives.push((posting.token, posting.len_bytes));
        let message = channel.receives.len() - 1;
        let buffer = self.0.take(posting.len_bytes);
        self.0.buffers.insert((self.1, posting.token), (buffer, 0));
        self.0.deliver(pair, message);
        Ok(())
    }

    fn post_send(&mut self, posting: &Posting) -> Result<(), FabricError> {
        let pair = (self.1, posting.peer);
        let channel = self.0.channels.entry(pair).or_default();
        channel.sends.push((posting.token, Vec::new()));
        self.0.sends.insert((self.1, posting.token), (pair, channel.sends.len() - 1));
        Ok(())
    }

    fn offer(&mut self, token: Token, offset: usize, bytes: &[u8]) -> Result<(), FabricError> {
        let (pair, message) = self.0.sends[&(self.1, token)];
        // As a network does: chunk by chunk.
        for (index, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            let mut piece = self.0.take(chunk.len());
            piece.copy_from_slice(chunk);
            let pieces = &mut self.0.channels.entry(pair).or_default().sends[message].1;
            pieces.push((offset + index * CHUNK_BYTES, piece));
        }
        self.0.deliver(pair, message);
        Ok(())
    }

    fn view(&self, token: Token, bytes: Range<usize>) -> &[u8] {
        &self.0.buffers[&(self.1, token)].0[bytes]
    }

    fn release(&mut self, token: Token) {
        if let Some((buffer, _)) = self.0.buffers.remove(&(self.1, token)) {
            self.0.put(buffer);
        }
    }

    fn cancel(&mut self, _: Token) {}

    fn tell(&mut self, peer: usize, note: &[u8]) -> Result<(), FabricError> {
        let note = Event::Told { peer: self.1, note: note.to_vec() };
        self.0.events.entry(peer).or_default().push_back(note);
        Ok(())
    }

    fn poll(&mut self) -> Option<Event> {
        self.0.events.get_mut(&self.1)?.pop_front()
    }
}

/// Seconds of one operation, the median of some after a first one, per rank.
fn rank_s(ranks: usize, count: usize, algorithm: &Algorithm) -> f64 {
    let mut fabric = Copies::default();
    let settings = Settings::default();
    let mut runners: Vec<Runner> = (0..ranks).map(|r| Runner::new(r, ranks, settings)).collect();
    let collective = &Collective::AllReduce { count };
    let table = |rank| {
        let (is_average, is_in_place) = (false, false);
        plan(&Request { collective, algorithm, rank, ranks, is_average, is_in_place })
    };
    let mut memory: Vec<Box<dyn Buffers>> = (0..ranks)
        .map(|_| Vectors { input: vec![1; 4 * count], output: vec![1; 4 * count] })
        .map(|vectors| Box::new(vectors) as Box<dyn Buffers>)
        .collect();
    let mut times = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        for (rank, (runner, buffers)) in runners.iter_mut().zip(memory.drain(..)).enumerate() {
            let (element, op) = (Element::F32, Op::Sum);
            let label = Label { name: String::new(), elements: 0, element, op };
            let table = table(rank).expect("a schedule");
            let job = Job { table, label, buffers, time: Time::Unlimited, losses: Vec::new() };
            runner.start(&mut End(&mut fabric, rank), job);
        }
        while runners.iter().any(|runner| runner.in_flight() > 0) {
            for (rank, runner) in runners.iter_mut().enumerate() {
                runner.poll(&mut End(&mut fabric, rank));
            }
        }
        times.push(start.elapsed().as_secs_f64() / ranks as f64);
        memory.extend(runners.iter_mut().filter_map(Runner::take).map(|done| done.buffers));
    }
    times.remove(0);
    times.sort_by(f64::total_cmp);
    times[4]
}

fn main() {
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let sizes: &[usize] = if is_measured { &[2 << 10, 256 << 10, 16 << 20] } else { &[1 << 10] };
    println!("all-reduce of f32, all ranks in one thread, median of 9, planning included");
    println!(
        "{:>12}{:>7}{:>12}{:>14}{:>20}",
        "bytes", "ranks", "algorithm", "us per rank", "GB/s per rank"
    );
    for count in sizes {
        for ranks in [2, 4] {
            for algorithm in [Algorithm::Ring, Algorithm::Transpose, Algorithm::Doubling] {
                let rank_s = rank_s(ranks, *count, &algorithm);
                let rate = 4.0 * *count as f64 / rank_s / 1e9;
                println!(
                    "{:>12}{ranks:>7}{:>12}{:>14.1}{rate:>20.2}",
                    4 * count,
                    algorithm.to_string(),
                    rank_s * 1e6
                );
            }
        }
    }
}
