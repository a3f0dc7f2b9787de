//! `--qp rc`: the measurement over a reliable connection (`lacuna::rc`), both sides of it.
//!
//! There is no second connection: the ends exchange the descriptions of their queue pairs over the session.
//! A reliable connection delivers in order and whole, so a message's content is that of its number modulo
//! the messages in flight. Twice as many receives are posted, so that a message that follows a completion at
//! once finds one.

use super::protocol::{Awaited, Counters, Done, Ended, Repairs, Request, Sent, Terms};
use super::receiving::lost;
use super::report::{Facts, RcCounts};
use super::sending::{Operations, Tally};
use super::verb::Verb;
use super::{ClientArgs, pattern};
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use lacuna::controller::ControllerConfig;
pub(super) use lacuna::rc::QueuePair as End;
use lacuna::rc::{
    self, Flags, RcStats, RecvWork, Remote, Repair, SendWork, Settings, ShimCounters, ShimSettings,
};
use lacuna::{Connection, Reason, Region, SendBuffer, Wire};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest packet payload that a card could take, too.
const MTU_BYTES_MAX: u32 = rc::MTU_BYTES_MAX;
/// What headers of a reliable connection and of LoWAR's repairs take more than those of other packets.
const MORE_HEADER_BYTES: u32 = 16;
/// Requests in flight, at most.
pub(super) const DEPTH_MAX: u32 = 512;
/// Completions that are taken before it is asked again whether the client is done.
const TAKEN_BETWEEN: u32 = 64;

/// A queue pair of one end, as it is told to the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Described {
    /// `QueuePair::info`, in hexadecimal.
    info: String,
    mtu_bytes: u32,
    /// How losses are repaired; go-back-N of an end of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    repair: Option<String>,
    /// The shim that both ends are to have; none of a client of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shim: Option<String>,
}

impl Described {
    fn of(qp: &End, session: &Connection, settings: &Settings) -> Self {
        let Settings { mtu_bytes, repair, shim, .. } = *settings;
        // The host is known from the session; only the port counts.
        let info = qp.info(session.peer().ip());
        Self {
            info: info.iter().map(|byte| format!("{byte:02x}")).collect(),
            mtu_bytes,
            repair: (repair != Repair::default()).then(|| repair.name().to_owned()),
            shim: (shim != ShimSettings::Off).then(|| shim.to_string()),
        }
    }

    /// The settings that the server is asked for.
    fn settings(&self) -> Result<Settings, String> {
        let shim = self.shim.as_deref().map_or(Ok(ShimSettings::Off), str::parse);
        let shim = shim.map_err(|error| error.to_string())?;
        let repair = self.repair.as_deref().map_or(Ok(Repair::default()), str::parse);
        let repair = repair.map_err(|error| error.to_string())?;
        Ok(Settings { mtu_bytes: self.mtu_bytes, repair, shim, ..Settings::default() })
    }

    /// Connects a queue pair to the one that is described, which is where the session's peer is.
    fn connect(&self, qp: &End, session: &Connection) -> Result<(), String> {
        let digits = self.info.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let info: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        let info = info.ok_or("the queue pair's description is no hexadecimal number")?;
        qp.connect_at(&info, session.peer()).map_err(|error| error.to_string())
    }
}

/// Payload of a packet: as asked for, or what the path of the session passes.
fn mtu_bytes(args: &ClientArgs, session: &Connection) -> u32 {
    let found = session.chosen().mtu_bytes.saturating_sub(MORE_HEADER_BYTES);
    args.mtu.unwrap_or(found.clamp(rc::MTU_BYTES_MIN, MTU_BYTES_MAX) / 4 * 4)
}

/// The client's end, not connected yet, and what the server is told of it.
pub(super) fn open(args: &ClientArgs, session: &Connection) -> Result<(End, Described), Failure> {
    let controller = ControllerConfig::of(args.pace.cc, args.pace.rate)
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let mtu_bytes = mtu_bytes(args, session);
    // Another controller than `fixed` only begins at the rate.
    let is_fixed = matches!(controller, ControllerConfig::Fixed { .. });
    let start_bits_per_s = args.pace.rate.filter(|_| !is_fixed);
    let settings = Settings {
        mtu_bytes,
        controller,
        start_bits_per_s,
        repair: args.repair,
        shim: args.shim,
        ..Settings::default()
    };
    let opened = session.queue_pair().context().rc_queue_pair(&settings);
    let qp = opened.map_err(|error| Failure::Usage(error.to_string()))?;
    let described = Described::of(&qp, session, &settings);
    Ok((qp, described))
}

/// Connects the client's end to the server's.
pub(super) fn connect(
    args: &ClientArgs,
    qp: &End,
    session: &Connection,
    described: Option<Described>,
) -> Result<(), Failure> {
    let described = described.ok_or_else(|| {
        let text = "the server is of an older version, which has no reliable connections";
        Failure::Network(text.to_owned())
    })?;
    if args.shim != ShimSettings::Off && described.shim.is_none() {
        let text =
            "the server is of an older version, which has no --shim: update it, or leave it out";
        return Err(Failure::Network(text.to_owned()));
    }
    described.connect(qp, session).map_err(Failure::Network)
}

/// The requests of the client.
pub(super) struct Requests<'a> {
    args: &'a ClientArgs,
    qp: &'a End,
    request: Request,
    /// Key of the server's region.
    key: u32,
    buffers: Vec<Arc<Vec<u8>>>,
    /// Where reads go.
    into: Option<&'a Region>,
    /// Operations that have ended.
    ended: u64,
    /// For one message, if it is checked.
    checked: Vec<u8>,
}

impl<'a> Requests<'a> {
    pub(super) fn new(
        args: &'a ClientArgs,
        qp: &'a End,
        key: u32,
        buffers: Vec<Arc<Vec<u8>>>,
        into: Option<&'a Region>,
    ) -> Self {
        let is_checked = args.validate && into.is_some();
        let checked = vec![0; if is_checked { args.size as usize } else { 0 }];
        Self { args, qp, request: args.request(), key, buffers, into, ended: 0, checked }
    }

    fn verb(&self, number: u64) -> Result<rc::Verb, Failure> {
        let address = self.request.place(number);
        let remote = Remote { address, key: self.key };
        if let Some(into) = self.into {
            let range = address..address + self.request.size_bytes;
            let into = into.slice(range).map_err(|error| Failure::Local(error.to_string()))?;
            return Ok(rc::Verb::Read { into, remote });
        }
        let place = number % u64::from(self.request.inflight.max(1));
        let data = SendBuffer::new(self.buffers[place as usize].clone());
        Ok(match self.args.verb {
            Verb::Send => rc::Verb::Send { data, immediate: None },
            Verb::WriteImm => rc::Verb::Write { data, remote, immediate: Some(number as u32) },
            Verb::Write | Verb::Read => rc::Verb::Write { data, remote, immediate: None },
        })
    }
}

impl Operations for Requests<'_> {
    fn post(&mut self, number: u64) -> Result<Instant, Failure> {
        let work = SendWork { id: number, verb: self.verb(number)?, flags: Flags::default() };
        let posted = Instant::now();
        self.qp.post_send(work).map_err(|error| Failure::Network(error.to_string()))?;
        Ok(posted)
    }

    fn wait_oldest(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        let Some(done) = self.qp.wait(POLL_INTERVAL) else { return Ok(false) };
        done.status.map_err(|failure| Failure::Network(failure.to_string()))?;
        tally.count(Reason::Whole, 0);
        let number = self.ended;
        self.ended += 1;
        if let (Some(into), false) = (self.into, self.checked.is_empty()) {
            let read = into.read(self.request.place(number), &mut self.checked);
            read.map_err(|error| Failure::Local(error.to_string()))?;
            let place = number % u64::from(self.request.inflight.max(1));
            if let Some(at) = pattern::first_wrong(&self.checked, 0..self.checked.len(), place) {
                tally.wrong(number, at as u64);
            }
        }
        Ok(true)
    }

    fn are_awaited(&self) -> bool {
        true
    }

    fn give_up(&mut self) {
        // Whatever is left is flushed.
        self.qp.close();
    }
}

/// What a user is told at the start.
pub(super) fn start_line(args: &ClientArgs, session: &Connection) -> String {
    let mtu_bytes = mtu_bytes(args, session);
    let shim = match args.shim {
        ShimSettings::Off => String::new(),
        shim => format!(", repairs {shim}"),
    };
    let repair = match args.repair {
        Repair::GoBackN => "go-back-N",
        Repair::SelectiveRepeat => "selective repeat",
    };
    format!("reliable connection, {repair}, {mtu_bytes} bytes a packet{shim}")
}

/// What the report says of the connection.
pub(super) fn facts(
    args: &ClientArgs,
    session: &Connection,
    stats: &RcStats,
    refused_packets: u64,
) -> Facts {
    let mtu_bytes = mtu_bytes(args, session);
    Facts {
        mode: args.repair.name().to_owned(),
        channels: 1,
        chunk_bytes: mtu_bytes.into(),
        mtu_bytes,
        wire: Wire::Rdma.name(),
        payload_bytes_max: mtu_bytes,
        refused_packets,
        sent: sent(stats),
        auto: None,
        rc: Some(RcCounts {
            psn_naks: stats.psn_naks,
            rnr_naks: stats.rnr_naks,
            timeouts: stats.timeouts,
            shim: args.shim.to_string(),
            repairs: Repairs::of(stats),
        }),
    }
}

impl Repairs {
    fn of(stats: &RcStats) -> Self {
        let ShimCounters { sent, received, .. } = stats.shim.unwrap_or_default();
        Self {
            sent: sent.repairs_sent,
            blocks_uncoded: sent.blocks_uncoded,
            recovered: received.packets_recovered,
            failed: received.blocks_failed,
        }
    }
}

/// What the client's end has sent.
fn sent(stats: &RcStats) -> Sent {
    Sent {
        packets: stats.packets,
        bytes: stats.bytes_acknowledged,
        retransmitted_packets: stats.retransmitted_packets,
        ..Sent::default()
    }
}

/// The memory of sends: a place for each receive that is posted.
pub(super) fn places_of(request: &Request) -> Request {
    Request { inflight: request.inflight.saturating_mul(2), ..*request }
}

/// The server's end of one measurement.
pub(super) struct Served<'a> {
    session: &'a Connection,
    qp: &'a End,
    request: &'a Request,
    verb: Verb,
    /// Name of the repair.
    mode: &'static str,
    region: &'a Region,
    /// Messages that came, of verbs that tell.
    came: u64,
    counters: Counters,
    checked: Vec<u8>,
    started: Instant,
    idle: Duration,
    /// Packets that had come or gone when the path was last busy, and when that was.
    busy: (u64, Instant),
}

/// Makes the server's end for the client's, and says how it is described.
pub(super) fn accept(session: &Connection, client: &Described) -> Result<(End, Described), String> {
    // What this end sends are answers, as fast as the client's end takes them.
    let settings = client.settings()?;
    let qp = session.queue_pair().context().rc_queue_pair(&settings);
    let qp = qp.map_err(|error| error.to_string())?;
    client.connect(&qp, session)?;
    let described = Described::of(&qp, session, &settings);
    Ok((qp, described))
}

impl<'a> Served<'a> {
    pub(super) fn new(
        session: &'a Connection,
        qp: &'a End,
        request: &'a Request,
        terms: &Terms,
        region: &'a Region,
        idle: Duration,
    ) -> Result<Self, Failure> {
        let verb = Verb::of_name(&terms.verb).map_err(Failure::Network)?;
        let repair = terms.rc.as_ref().map(Described::settings).transpose();
        let repair = repair.map_err(Failure::Network)?.unwrap_or_default().repair;
        let started = Instant::now();
        let served = Self {
            session,
            qp,
            request,
            verb,
            mode: repair.name(),
            region,
            came: 0,
            counters: Counters::default(),
            checked: vec![0; if request.validate { request.size_bytes as usize } else { 0 }],
            started,
            idle,
            busy: (0, started),
        };
        for number in 0..served.receives() {
            served.post(number)?;
        }
        Ok(served)
    }

    /// Receives that are posted at a time.
    fn receives(&self) -> u64 {
        2 * u64::from(self.request.inflight)
    }

    /// Posts the receive of message `number`.
    fn post(&self, number: u64) -> Result<(), Failure> {
        let at = self.place(number);
        let range = match self.verb {
            Verb::Send => at..at + self.request.size_bytes,
            // The write itself says where it goes.
            Verb::WriteImm => 0..0,
            Verb::Write | Verb::Read => return Ok(()),
        };
        let into = self.region.slice(range).map_err(|error| Failure::Local(error.to_string()))?;
        let posted = self.qp.post_recv(RecvWork { id: number, into });
        posted.map_err(|error| Failure::Network(format!("lost the client: {error}")))
    }

    /// Where message `number` lies in the region.
    fn place(&self, number: u64) -> u64 {
        match self.verb {
            Verb::Send => places_of(self.request).place(number),
            Verb::Write | Verb::WriteImm | Verb::Read => self.request.place(number),
        }
    }

    /// Goes on until the client says that it is done.
    pub(super) fn take(
        &mut self,
        mut done: Awaited<Done>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let tells = matches!(self.verb, Verb::Send | Verb::WriteImm);
        loop {
            if let Some(done) = done.poll().map_err(lost)? {
                return self.conclude(&done);
            }
            if stop() {
                return Err(Failure::Interrupted);
            }
            if let Some(failure) = self.session.failure() {
                return Err(Failure::Network(format!("lost the client: {failure}")));
            }
            if tells {
                self.take_some(POLL_INTERVAL)?;
            } else {
                done.rest(POLL_INTERVAL);
            }
            self.check_idle()?;
        }
    }

    /// Takes messages that came, and waits for the first at most `limit`.
    fn take_some(&mut self, limit: Duration) -> Result<(), Failure> {
        for _ in 0..TAKEN_BETWEEN {
            let Some(done) = self.qp.wait(limit) else { return Ok(()) };
            // What is flushed at the end was never a message.
            if done.status.is_err() {
                continue;
            }
            let number = self.came;
            self.came += 1;
            self.counters.messages += 1;
            if self.request.validate {
                self.check(number)?;
            }
            self.post(number + self.receives())?;
        }
        Ok(())
    }

    fn check(&mut self, number: u64) -> Result<(), Failure> {
        let read = self.region.read(self.place(number), &mut self.checked);
        read.map_err(|error| Failure::Local(error.to_string()))?;
        let content = number % u64::from(self.request.inflight.max(1));
        if let Some(at) = pattern::first_wrong(&self.checked, 0..self.checked.len(), content) {
            self.counters.wrong += 1;
            let text = || format!("message {number} at byte {at}");
            self.counters.first_wrong.get_or_insert_with(text);
        }
        Ok(())
    }

    fn conclude(&mut self, done: &Done) -> Result<(), Failure> {
        while self.came < done.messages && matches!(self.verb, Verb::Send | Verb::WriteImm) {
            let came = self.came;
            self.take_some(Duration::ZERO)?;
            if came == self.came {
                break;
            }
        }
        self.counters.messages = self.counters.messages.max(done.messages);
        if self.request.validate && self.verb == Verb::Write {
            for number in 0..done.messages.min(self.request.inflight.into()) {
                self.check(number)?;
            }
        }
        Ok(())
    }

    /// How losses are repaired.
    pub(super) fn mode(&self) -> &'static str {
        self.mode
    }

    /// The counters so far.
    pub(super) fn counters(&self) -> Counters {
        let stats = self.qp.stats();
        let told = matches!(self.verb, Verb::WriteImm).then_some(self.came);
        let whole = self.counters.messages;
        Counters {
            told_messages: told,
            duplicate_packets: stats.refusals.duplicates,
            rejected_packets: stats.refusals.refused + stats.refusals.stray,
            sent: (self.verb == Verb::Read).then(|| Sent {
                packets: stats.answer_packets,
                bytes: whole * self.request.size_bytes,
                ..Sent::default()
            }),
            lost_bytes: Some(0),
            repairs: stats.shim.map(|_| Repairs::of(&stats)),
            ended: Ended::from([(Reason::Whole.name().to_owned(), whole)]),
            ..self.counters.clone()
        }
    }

    /// Time since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn check_idle(&mut self) -> Result<(), Failure> {
        let stats = self.qp.stats();
        let packets = stats.answer_packets + self.came;
        if packets != self.busy.0 {
            self.busy = (packets, Instant::now());
        }
        let quiet = self.busy.1.elapsed();
        if quiet < self.idle {
            return Ok(());
        }
        let quiet_s = quiet.as_secs_f64();
        Err(Failure::Network(format!("the client has sent nothing for {quiet_s:.0} s")))
    }
}
