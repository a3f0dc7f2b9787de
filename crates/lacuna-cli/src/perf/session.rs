//! One client's session at a server, from request to counters. Every step has a time limit, so a
//! client that is silent, never opens the measured connection, or dies releases its seat.

use super::cpu;
use super::datagram::{self, Shape};
use super::pattern;
use super::protocol::{
    Answer, Awaited, Counters, Done, LENT_BYTES_MAX, Opening, Request, TOLD_WITHIN, Terms, send,
};
use super::rc::{self, Described, Served};
use super::receiving::{Receiving, lost};
use super::region::{self, Exposed};
use super::verb::Verb;
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::memory;
use crate::output::{Output, start_line};
use crate::units::{show_bytes, show_count};
use lacuna::{Connection, Mode, Region};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The parts of the server that a session uses.
pub(super) struct Session<'a> {
    pub(super) connection: &'a Connection,
    /// Delivers the measured connection.
    pub(super) measured: &'a Receiver<Connection>,
    /// How long the client may take to open it.
    pub(super) pairing: Duration,
    /// How long a client may send nothing.
    pub(super) idle: Duration,
    /// Whether the server had no other client so far.
    pub(super) is_alone: &'a dyn Fn() -> bool,
    pub(super) stop: &'a dyn Fn() -> bool,
    pub(super) output: Output,
}

/// The counters of a client, complete or not.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) mode: String,
    pub(super) size_bytes: u64,
    pub(super) took: Duration,
    pub(super) counters: Counters,
}

/// What a client is lent.
enum Lent {
    /// A buffer for each receive.
    Buffers(Vec<Vec<u8>>),
    /// Memory that it writes or reads.
    Region(Region, Verb),
    /// The same, or memory for its sends, over a reliable connection; and how that is described.
    Rc(Region, Box<rc::Ends>, Described),
    /// A queue pair for datagrams, and its memory.
    Datagram(Box<datagram::Lent>),
}

/// The measured side.
enum Side<'a> {
    Receiving(Receiving<'a>),
    Exposed(Exposed<'a>),
    Served(Served<'a>),
    Datagram(datagram::Served<'a>),
}

impl Side<'_> {
    fn take(&mut self, done: Awaited<Done>, stop: &dyn Fn() -> bool) -> Result<(), Failure> {
        match self {
            Self::Receiving(receiving) => receiving.take(done, stop),
            Self::Exposed(exposed) => exposed.take(done, stop),
            Self::Served(served) => served.take(done, stop),
            Self::Datagram(served) => served.take(done, stop),
        }
    }

    fn counters(&self) -> Counters {
        match self {
            Self::Receiving(receiving) => receiving.counters(),
            Self::Exposed(exposed) => exposed.counters(),
            Self::Served(served) => served.counters(),
            Self::Datagram(served) => served.counters(),
        }
    }

    fn elapsed(&self) -> Duration {
        match self {
            Self::Receiving(receiving) => receiving.elapsed(),
            Self::Exposed(exposed) => exposed.elapsed(),
            Self::Served(served) => served.elapsed(),
            Self::Datagram(served) => served.elapsed(),
        }
    }
}

impl Session<'_> {
    /// Serves the client; its counters are in `taken` however it ends.
    pub(super) fn serve(&self, taken: &mut Option<Taken>) -> Result<(), Failure> {
        let Opening { request, terms } = Awaited::<Opening>::post(self.connection)
            .map_err(Into::into)
            .and_then(|request| request.wait(TOLD_WITHIN, self.stop))
            .map_err(lost)?;
        let mut lent = match self.lend(&request, terms.as_ref()) {
            Ok(lent) => lent,
            Err(reason) => {
                let failure = Failure::Network(format!("refused: {reason}"));
                send(self.connection, &Answer::Refused { reason })?;
                return Err(failure);
            }
        };
        let done = Awaited::<Done>::post(self.connection).map_err(Into::into).map_err(lost)?;
        let agreed = |key, rc, datagram| Answer::Agreed { key, rc, datagram };
        let answer = match &lent {
            Lent::Region(region, _) => agreed(Some(region.key()), None, None),
            Lent::Rc(region, _, described) => {
                agreed(Some(region.key()), Some(described.clone()), None)
            }
            Lent::Datagram(lent) => agreed(None, None, Some(lent.offered())),
            Lent::Buffers(_) if terms.is_some() => agreed(None, None, None),
            Lent::Buffers(_) => Answer::Ready,
        };
        // The receives are posted before the client sends anything.
        let terms = terms.unwrap_or_default();
        if let Lent::Rc(region, end, _) = &lent {
            let served = Served::new(self.connection, end, &request, &terms, region, self.idle)?;
            send(self.connection, &answer)?;
            let mode = served.mode().to_owned();
            return self.count(&mut Side::Served(served), (mode, &request), done, taken);
        }
        if let Lent::Datagram(lent) = &lent {
            let served = datagram::Served::new(self.connection, lent, &request, self.idle)?;
            send(self.connection, &answer)?;
            let mode = Mode::Raw.to_string();
            return self.count(&mut Side::Datagram(served), (mode, &request), done, taken);
        }
        send(self.connection, &answer)?;
        let measured = self.await_measured()?;
        if matches!(lent, Lent::Region(..)) && !measured.has_one_sided() {
            let text = "it measures writes or reads over a connection that has none";
            return Err(Failure::Network(text.to_owned()));
        }
        self.output.note(&start_line(&measured));
        let mut side = match &mut lent {
            Lent::Buffers(buffers) => {
                let buffers = std::mem::take(buffers);
                let receiving = Receiving::new(&measured, &request, &terms, buffers, self.idle)?;
                Side::Receiving(receiving)
            }
            Lent::Region(region, verb) => {
                let exposed = Exposed::new(&measured, &request, &terms, *verb, region, self.idle);
                Side::Exposed(exposed)
            }
            Lent::Rc(..) | Lent::Datagram(_) => unreachable!("these are served above"),
        };
        let mode = measured.chosen().mode.clone();
        self.count(&mut side, (mode, &request), done, taken)
    }

    /// Serves the measurement to its end, and sends the counters.
    fn count(
        &self,
        side: &mut Side<'_>,
        (mode, request): (String, &Request),
        done: Awaited<Done>,
        taken: &mut Option<Taken>,
    ) -> Result<(), Failure> {
        let cpu_before_s = cpu::process_s();
        let result = side.take(done, self.stop);
        let cpu_s = (self.is_alone)().then(|| cpu::process_s() - cpu_before_s);
        let counters = Counters { cpu_s, ..side.counters() };
        *taken = Some(Taken {
            mode,
            size_bytes: request.size_bytes,
            took: side.elapsed(),
            counters: counters.clone(),
        });
        result?;
        send(self.connection, &counters)
    }

    /// Allocates what a client needs, or says why not.
    fn lend(&self, request: &Request, terms: Option<&Terms>) -> Result<Lent, String> {
        let verb = terms.map_or(Ok(Verb::Send), |terms| Verb::of_name(&terms.verb))?;
        if let Some(asked) = terms.and_then(|terms| terms.datagram.as_ref()) {
            let shape = Shape::new(request, verb, asked)?;
            let memory = lend_region(shape.all())?;
            let lent = datagram::Lent::open(self.connection, (verb, shape), request, asked, memory);
            return lent.map(|lent| Lent::Datagram(Box::new(lent)));
        }
        if let Some(refused) = verb.refused(false) {
            return Err(refused);
        }
        let client = terms.and_then(|terms| terms.rc.as_ref());
        if !verb.is_one_sided() && client.is_none() {
            return lend(request).map(Lent::Buffers);
        }
        let count = client.map_or(1, Described::count);
        let mut memory = match verb {
            Verb::Send => lend_region(&rc::places_of(request).times(count)),
            _ => lend_region(&request.times(count)),
        }?;
        if verb == Verb::Read {
            let all = request.times(count);
            for number in 0..u64::from(all.inflight) {
                let at = all.place(number) as usize;
                let place = memory.get_mut(at..at + request.size_bytes as usize);
                let content = number % u64::from(request.inflight.max(1));
                pattern::fill(place.unwrap_or_default(), 0, content);
                if (self.stop)() {
                    return Err("it is about to end".to_owned());
                }
            }
        }
        let region = region::register(self.connection, verb, memory)?;
        let Some(client) = client else { return Ok(Lent::Region(region, verb)) };
        let (end, described) = rc::accept(self.connection, client)?;
        Ok(Lent::Rc(region, Box::new(end), described))
    }

    fn await_measured(&self) -> Result<Connection, Failure> {
        let since = Instant::now();
        loop {
            match self.measured.recv_timeout(POLL_INTERVAL) {
                Ok(measured) => return Ok(measured),
                Err(RecvTimeoutError::Timeout) => {}
                // The seat holds the sender, so this does not happen.
                Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(POLL_INTERVAL),
            }
            if (self.stop)() {
                return Err(Failure::Interrupted);
            }
            if let Some(failure) = self.connection.failure() {
                return Err(Failure::Network(format!("lost the client: {failure}")));
            }
            if since.elapsed() >= self.pairing {
                let pairing_s = self.pairing.as_secs_f64();
                let text = format!("connected nothing to measure within {pairing_s:.0} s");
                return Err(Failure::Network(text));
            }
        }
    }
}

/// Allocates the memory that a client requests, or says why not.
fn lend(request: &Request) -> Result<Vec<Vec<u8>>, String> {
    let Request { size_bytes, inflight, .. } = *request;
    check(request, size_bytes.saturating_mul(inflight.into()))?;
    let buffers = (0..inflight).map(|_| memory::zeroed(size_bytes as usize));
    buffers.collect::<Result<_, _>>().map_err(|failure| failure.to_string())
}

/// The same in one piece.
fn lend_region(request: &Request) -> Result<Vec<u8>, String> {
    check(request, request.region_bytes())?;
    memory::zeroed(request.region_bytes() as usize).map_err(|failure| failure.to_string())
}

/// Refuses to lend too much.
fn check(request: &Request, lent_bytes: u64) -> Result<(), String> {
    let Request { size_bytes, inflight, .. } = *request;
    let what = format!("{} of {}", show_count(inflight.into(), "message"), show_bytes(size_bytes));
    if size_bytes == 0 || inflight == 0 {
        return Err(format!("{what}: nothing to measure"));
    }
    if lent_bytes > LENT_BYTES_MAX {
        return Err(format!("{what}: this server lends {} at most", show_bytes(LENT_BYTES_MAX)));
    }
    memory::check(lent_bytes, &what, "choose a smaller --size or --inflight")
        .map_err(|failure| failure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_lent_within_bounds() {
        let request = |size_bytes, inflight| Request { size_bytes, inflight, validate: false };
        let buffers = lend(&request(1000, 3)).expect("little");
        assert_eq!(buffers, vec![vec![0; 1000]; 3]);
        for (request, part) in [
            (request(0, 3), "nothing to measure"),
            (request(3, 0), "nothing to measure"),
            (request(u64::MAX, u32::MAX), "lends 16 GiB at most"),
            (request(17 << 30, 1), "1 message of 17 GiB: this server lends 16 GiB at most"),
        ] {
            let reason = lend(&request).expect_err(part);
            assert!(reason.contains(part), "{reason}");
        }
    }
}
