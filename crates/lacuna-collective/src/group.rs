//! A group of ranks, and its operations.

use crate::adapt::Adapt;
use crate::config::{Budget, GroupConfig, Options, Transport};
use crate::driver::{Driver, Limit};
use crate::encode::{Asked, Coder, Decoded, Work};
use crate::error::{GroupError, OperationError};
use crate::fabric::Sockets;
use crate::mesh;
use crate::paths::{FAR_US, Paths};
use crate::rendezvous::{Places, Roll};
use lacuna::controller::ControllerConfig;
use lacuna::{Classes, Connection, ConnectionConfig, Context, ContextConfig, Listener, Progress};
use lacuna_schedule::budget::Key;
use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::run::{
    Buffers, Fabric, FabricError, Job, Label, Report, RunError, Runner, Time, Vectors,
};
use lacuna_schedule::schedule::{Algorithm, Collective, Request, plan};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// No operation of a queue pair has a limit of its own: operations of the group do.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// For what was sent to arrive when a group is dropped, or formed again though it has not failed.
pub(crate) const CLOSE_FOR: Duration = Duration::from_secs(2);

/// Ranks that compute together. All start the same operations in the same order.
pub struct Group {
    pub(crate) driver: Driver,
    pub(crate) roll: Roll,
    pub(crate) config: GroupConfig,
    /// For a meeting of those that are left.
    pub(crate) reserve: TcpListener,
    /// How often it was split.
    pub(crate) splits: AtomicU64,
    coder: Coder,
    paths: Paths,
}

/// What a rank has before it meets the others.
pub(crate) struct Ends {
    context: Context,
    listener: Listener,
    pub(crate) connection: ConnectionConfig,
    reserve: TcpListener,
    pub(crate) places: Places,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("roll", &self.roll).finish_non_exhaustive()
    }
}

/// An operation that goes on while the caller does something else. Dropped, it goes on, and its result is lost.
#[derive(Debug)]
pub struct Operation<'g> {
    group: Held<'g>,
    sequence: Option<u64>,
    algorithm: String,
    budget: Option<Duration>,
    /// What is left to do if it is encoded.
    work: Option<Work>,
}

/// The group of an operation, which outlives it.
#[derive(Debug)]
enum Held<'g> {
    Lent(&'g Group),
    Kept(Arc<Group>),
}

impl std::ops::Deref for Held<'_> {
    type Target = Group;

    fn deref(&self) -> &Group {
        match self {
            Self::Lent(group) => group,
            Self::Kept(group) => group,
        }
    }
}

/// An operation that is over.
pub struct Outcome {
    /// The memory that it was started with; the result is in the output.
    pub buffers: Box<dyn Buffers>,
    /// How it went.
    pub report: Report,
    /// The schedule that it was carried out by.
    pub algorithm: String,
    /// The time it had, if it was to end with what is there.
    pub budget: Option<Duration>,
    /// What became of the result, if the operation was encoded.
    pub decoded: Option<Decoded>,
}

/// An operation that has begun.
struct Begun {
    sequence: u64,
    algorithm: String,
    budget: Option<Duration>,
    work: Option<Work>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outcome").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Group {
    /// Meets the other ranks and connects with all.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn form(config: &GroupConfig) -> Result<Self, GroupError> {
        let ends = Ends::open(config)?;
        let roll = config.meeting.meet(ends.places)?;
        Self::connect(config.clone(), ends, roll)
    }

    pub(crate) fn connect(config: GroupConfig, ends: Ends, roll: Roll) -> Result<Self, GroupError> {
        let Ends { context, listener, connection, reserve, .. } = ends;
        let timeout = config.meeting.timeout;
        let connections = mesh::connect(&context, &listener, &roll, &connection, timeout)?;
        let ranks = roll.addresses.len();
        let runner = Runner::new(roll.rank, ranks, config.settings);
        let known = connections.clone();
        let sockets = sockets(&context, connections, &config).inspect_err(|error| {
            if let GroupError::Fabric(FabricError::Peer { peer, .. }) = error {
                mesh::give_up(&known, *peer);
            }
        })?;
        let chunk_bytes = Fabric::chunk_bytes(&sockets);
        let adapt = (Adapt::new(config.rule, ranks), ranks);
        let driver = Driver::new(context, runner, sockets, adapt).map_err(GroupError::Thread)?;
        let coder = Coder::new(roll.rank, ranks, roll.group);
        let splits = AtomicU64::new(0);
        let paths = Paths::default();
        let mut group = Self { driver, roll, config, reserve, splits, coder, paths };
        // What is known from connecting alone is of a time at which this host was busy with much else. All ranks see the
        // same rows, so all ask again as often.
        group.gathered(&row(&known))?;
        let mut rows = group.gathered(&row(&known))?;
        for _ in 0..ASKED_AGAIN_MAX {
            if !rows.iter().any(|row| row.last() == Some(&DOUBTFUL)) {
                break;
            }
            rows = group.gathered(&row(&known))?;
        }
        rows.iter_mut().for_each(|row| _ = row.pop());
        group.paths = Paths::new(&rows, chunk_bytes);
        Ok(group)
    }

    /// What all ranks say, by rank: so many numbers of each.
    fn gathered(&self, row: &[u64]) -> Result<Vec<Vec<u64>>, GroupError> {
        if self.ranks() == 1 {
            return Ok(vec![row.to_vec()]);
        }
        let input: Vec<u8> = row.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let output = vec![0; input.len() * self.ranks()];
        let collective = Collective::AllGather { counts: vec![row.len(); self.ranks()] };
        let options = Options {
            algorithm: Some(Algorithm::Transpose),
            budget: Budget::Within(self.config.meeting.timeout),
            ..Options::default()
        };
        let buffers = Box::new(Vectors { input, output });
        let outcome = self.run(&collective, (Element::U64, Op::Sum), buffers, &options)?;
        let numbers = outcome.buffers.output().chunks_exact(8);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let numbers: Vec<u64> = numbers.map(number).collect();
        Ok(numbers.chunks_exact(row.len()).map(<[u64]>::to_vec).collect())
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.roll.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.roll.addresses.len()
    }

    /// Where each rank listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.roll.addresses
    }

    /// Why the group has to be formed again, if it has: all its operations fail with this.
    #[must_use]
    pub fn failure(&self) -> Option<RunError> {
        self.driver.failure()
    }

    /// Starts an operation. If the input of `buffers` is empty though the operation has one, it is in place.
    ///
    /// # Errors
    /// When the operation makes no sense, the memory is not as long as it says, or the group has failed.
    pub fn start(
        &self,
        collective: &Collective,
        types: (Element, Op),
        buffers: Box<dyn Buffers>,
        options: &Options,
    ) -> Result<Operation<'_>, OperationError> {
        Self::start_held(Held::Lent(self), collective, types, buffers, options)
    }

    /// The same for a group that several share: the operation keeps it.
    ///
    /// # Errors
    /// As [`Group::start`].
    pub fn start_shared(
        self: &Arc<Self>,
        collective: &Collective,
        types: (Element, Op),
        buffers: Box<dyn Buffers>,
        options: &Options,
    ) -> Result<Operation<'static>, OperationError> {
        Self::start_held(Held::Kept(self.clone()), collective, types, buffers, options)
    }

    fn start_held<'g>(
        held: Held<'g>,
        collective: &Collective,
        types: (Element, Op),
        buffers: Box<dyn Buffers>,
        options: &Options,
    ) -> Result<Operation<'g>, OperationError> {
        let begun = held.begin(collective, types, buffers, options)?;
        let Begun { sequence, algorithm, budget, work } = begun;
        Ok(Operation { group: held, sequence: Some(sequence), algorithm, budget, work })
    }

    fn begin(
        &self,
        collective: &Collective,
        (element, op): (Element, Op),
        buffers: Box<dyn Buffers>,
        options: &Options,
    ) -> Result<Begun, OperationError> {
        self.driver.check()?;
        let size = element.size_bytes();
        let request = |is_in_place, algorithm| Request {
            collective,
            algorithm,
            rank: self.roll.rank,
            ranks: self.ranks(),
            is_average: op == Op::Average,
            is_in_place,
        };
        let bytes = buffers.output().len().max(buffers.input().len());
        let elements = elements(collective);
        let chosen = match &options.algorithm {
            Some(algorithm) => algorithm.clone(),
            None => self.paths.choose(collective, self.ranks(), (elements, size), bytes),
        };
        let algorithm = &chosen;
        let mut table = plan(&request(false, algorithm))?;
        if buffers.input().is_empty() && table.input > 0 {
            table = plan(&request(true, algorithm))?;
        }
        let expect = |what, found: usize, elements: usize| match elements * size {
            expected if found == expected => Ok(()),
            expected => Err(OperationError::Memory { what, found, expected }),
        };
        expect("input", buffers.input().len(), table.input)?;
        expect("output", buffers.output().len(), table.output)?;
        let is_bounded = matches!(options.budget, Budget::Fixed(_) | Budget::Adaptive);
        if is_bounded && self.config.transport != Transport::Sdr {
            return Err(OperationError::WholeOnly);
        }
        if !is_bounded && !options.losses.is_empty() {
            return Err(OperationError::Losses);
        }
        let losses = options.losses.iter().map(|hop| hop.iter().cloned().collect()).collect();
        let in_time = if is_bounded { ", in time" } else { "" };
        let encoded = options.encode.as_ref().map_or(String::new(), |e| format!(", {}", e.label()));
        let label = Label {
            name: format!("{} by {algorithm}{in_time}{encoded}", collective.name()),
            elements: elements as u64,
            element,
            op,
        };
        let key = Key::new(0, kind(collective), bytes as u64);
        let (budget, divisor) = (options.budget, options.divisor);
        let limit = Limit { key, bytes: bytes as u64, budget, divisor };
        let (buffers, work) = match &options.encode {
            None => (buffers, None),
            Some(encode) => {
                let (is_in_place, divisor) = (table.is_in_place, is_bounded.then_some(divisor));
                let asked = Asked { encode, collective, element, op, is_in_place, divisor };
                let (buffers, work) = self.coder.encode(asked, buffers)?;
                (buffers, Some(work))
            }
        };
        let job = Job { table, label, buffers, time: Time::Unlimited, losses };
        let (sequence, budget_ns) = self.driver.start(job, limit);
        let budget = budget_ns.map(Duration::from_nanos);
        Ok(Begun { sequence, algorithm: algorithm.to_string(), budget, work })
    }

    /// Starts an operation and waits for it.
    ///
    /// # Errors
    /// As [`Group::start`] and [`Operation::wait`].
    pub fn run(
        &self,
        collective: &Collective,
        types: (Element, Op),
        buffers: Box<dyn Buffers>,
        options: &Options,
    ) -> Result<Outcome, OperationError> {
        self.start(collective, types, buffers, options)?.wait()
    }

    /// Waits for everybody.
    ///
    /// # Errors
    /// As [`Group::run`].
    pub fn barrier(&self) -> Result<Report, OperationError> {
        let types = (Element::U8, Op::Sum);
        let buffers = Box::new(Vectors::default());
        Ok(self.run(&Collective::Barrier, types, buffers, &Options::default())?.report)
    }
}

/// What carries the group's messages.
fn sockets(
    context: &Context,
    connections: Vec<Option<Connection>>,
    config: &GroupConfig,
) -> Result<Sockets, GroupError> {
    let mut sockets = Sockets::new(context.clone(), connections, config.silence)?;
    if let Transport::Rc(repair) = config.transport {
        let controller = ControllerConfig::of(config.controller, config.rate_bits_per_s)?;
        sockets.use_rc(repair, controller, config.meeting.timeout)?;
    }
    Ok(sockets)
}

impl Ends {
    pub(crate) fn open(config: &GroupConfig) -> Result<Self, GroupError> {
        if config.transport != Transport::Sdr && !config.mode.is_reliable() {
            return Err(GroupError::Transport(config.mode));
        }
        let context = Context::new(ContextConfig {
            bind: config.bind,
            progress: Progress::Manual,
            wrap: config.wrap.clone(),
            security: config.security.clone(),
            ..ContextConfig::default()
        })?;
        let connection = ConnectionConfig {
            mode: config.mode,
            chunk_bytes: config.chunk_bytes,
            controller: config.controller,
            rate_bits_per_s: config.rate_bits_per_s,
            silence: config.silence,
            deadline: FOREVER,
            classes: Classes {
                critical: true,
                repaired: !config.mode.is_reliable(),
                ..Classes::NONE
            },
            ..ConnectionConfig::default()
        };
        let local = SocketAddr::new(config.bind.ip(), config.port);
        let listener = Listener::bind(&context, local, connection)
            .map_err(|error| GroupError::Listen(Box::new(error)))?;
        let reserve = TcpListener::bind((config.bind.ip(), 0)).map_err(GroupError::Reserve)?;
        // A child process closes it, as all sockets that it inherits.
        #[cfg(unix)]
        lacuna::datapath::process::descriptors::note(&reserve);
        let meets = reserve.local_addr().map_err(GroupError::Reserve)?;
        let mut places = Places { listens: listener.local_addr(), meets };
        if let Some(announced) = config.announce {
            places.listens.set_ip(announced);
            places.meets.set_ip(announced);
        }
        Ok(Self { context, listener, connection, reserve, places })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.driver.close(CLOSE_FOR);
    }
}

impl Operation<'_> {
    /// Waits until it is over.
    ///
    /// # Errors
    /// When a rank is gone, runs something else, or the operation's time is over.
    pub fn wait(mut self) -> Result<Outcome, OperationError> {
        loop {
            if let Some(outcome) = self.wait_within(None)? {
                return Ok(outcome);
            }
        }
    }

    /// Waits for at most this long, or as long as it takes; `None` if it is not over.
    ///
    /// # Errors
    /// As [`Operation::wait`].
    pub fn wait_within(
        &mut self,
        limit: Option<Duration>,
    ) -> Result<Option<Outcome>, OperationError> {
        let Some(sequence) = self.sequence else { return Ok(None) };
        let Some(finished) = self.group.driver.wait(sequence, limit) else { return Ok(None) };
        self.sequence = None;
        let report = finished.result?;
        let algorithm = std::mem::take(&mut self.algorithm);
        let (buffers, decoded) = match self.work.take() {
            None => (finished.buffers, None),
            Some(work) => {
                let (buffers, decoded) = work.decode(finished.buffers, &report);
                (buffers, Some(decoded))
            }
        };
        Ok(Some(Outcome { buffers, report, algorithm, budget: self.budget, decoded }))
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence {
            self.group.driver.forget(sequence);
        }
    }
}

/// How often round trips are gathered again while one is doubtful: over a short path each time is a message, and the
/// shortest of so many is not one that waited for a busy processor.
const ASKED_AGAIN_MAX: usize = 10;
/// What a busy host may add to a round trip. A judgement.
const BUSY_US: u64 = 10_000;
/// Behind a row of which a round trip is doubtful.
const DOUBTFUL: u64 = 1;

/// A rank's round trips in microseconds, by rank, and its least rate: what [`Paths::new`] takes. Behind them, whether one
/// of the round trips is doubtful: it is that of a far rank, and the control connection knows a near one, or a busy host
/// can explain it. Of the two, that of the group's own packets counts: the control connection may have another path.
fn row(connections: &[Option<Connection>]) -> Vec<u64> {
    let (mut row, mut is_doubtful) = (Vec::new(), false);
    for connection in connections {
        let Some(connection) = connection else {
            row.push(0);
            continue;
        };
        let measured_us = connection.stats().rtt.min_us.map(|us| us as u64);
        let known_us = connection.chosen().rtt_us;
        let rtt_us = measured_us.or(known_us).unwrap_or(0);
        let is_near = |us: u64| us < FAR_US;
        is_doubtful |= !is_near(rtt_us) && (rtt_us < BUSY_US || known_us.is_none_or(is_near));
        row.push(rtt_us);
    }
    let rates = connections.iter().flatten();
    let rate = rates.filter_map(|connection| connection.chosen().rate_bits_per_s).min();
    row.extend([rate.unwrap_or(0), u64::from(is_doubtful)]);
    row
}

/// A count of elements that is the same on all ranks.
fn elements(collective: &Collective) -> usize {
    match collective {
        Collective::AllReduce { count }
        | Collective::Broadcast { count, .. }
        | Collective::Reduce { count, .. } => *count,
        Collective::ReduceScatter { counts }
        | Collective::AllGather { counts }
        | Collective::Gather { counts, .. }
        | Collective::Scatter { counts, .. } => counts.iter().sum(),
        _ => 0,
    }
}

/// The number of an operation, by which its times are kept.
fn kind(collective: &Collective) -> u32 {
    match collective {
        Collective::AllReduce { .. } => 0,
        Collective::ReduceScatter { .. } => 1,
        Collective::AllGather { .. } => 2,
        Collective::Broadcast { .. } => 3,
        Collective::Reduce { .. } => 4,
        Collective::Gather { .. } => 5,
        Collective::Scatter { .. } => 6,
        Collective::AllToAll { .. } => 7,
        Collective::Barrier => 8,
        Collective::Exchange { .. } => 9,
    }
}
