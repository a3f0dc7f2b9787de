//! A group of ranks, and its operations.

use crate::adapt::Adapt;
use crate::config::{GroupConfig, Options};
use crate::driver::{Driver, Limit};
use crate::error::{GroupError, OperationError};
use crate::fabric::Sockets;
use crate::mesh;
use crate::rendezvous::{Places, Roll};
use lacuna::{Classes, ConnectionConfig, Context, ContextConfig, Listener, Progress};
use lacuna_schedule::budget::Key;
use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::run::{Buffers, Job, Label, Report, RunError, Runner, Time, Vectors};
use lacuna_schedule::schedule::{Algorithm, Collective, Request, plan};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Below so many bytes latency counts, not the rate.
const SMALL_BYTES: usize = 64 << 10;
/// No operation of a queue pair has a limit of its own: operations of the group do.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// For what was sent to arrive when a group is dropped.
const CLOSE_FOR: Duration = Duration::from_secs(2);

/// Ranks that compute together. All start the same operations in the same order.
pub struct Group {
    driver: Driver,
    roll: Roll,
    config: GroupConfig,
    /// For a meeting of those that are left.
    reserve: TcpListener,
}

/// What a rank has before it meets the others.
struct Ends {
    context: Context,
    listener: Listener,
    connection: ConnectionConfig,
    reserve: TcpListener,
    places: Places,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("roll", &self.roll).finish_non_exhaustive()
    }
}

/// An operation that goes on while the caller does something else. Dropped, it goes on, and its result is lost.
#[derive(Debug)]
pub struct Operation<'g> {
    group: &'g Group,
    sequence: Option<u64>,
    algorithm: String,
    budget: Option<Duration>,
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

    /// Forms a group of the ranks that are left, when one is gone: in the order of their old ranks, by a meeting that the
    /// lowest of them hosts. All that are left have to call it, within `timeout` of each other; who does not is no part of the
    /// new group. Operations that were under way are lost.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn form_again(mut self, timeout: Duration) -> Result<Self, GroupError> {
        let gone = match self.driver.failure() {
            Some(RunError::Gone { rank, .. } | RunError::Aborted { rank, .. }) => Some(rank),
            _ => None,
        };
        self.driver.close(Duration::ZERO);
        let ends = Ends::open(&self.config)?;
        let reserve = self.reserve.try_clone().map_err(GroupError::Reserve)?;
        let gone = gone.into_iter().filter(|rank| *rank != self.roll.rank).collect();
        let roll = self.roll.again(reserve, ends.places, &gone, timeout)?;
        let mut config = self.config.clone();
        config.meeting.timeout = timeout;
        Self::connect(config, ends, roll)
    }

    fn connect(config: GroupConfig, ends: Ends, roll: Roll) -> Result<Self, GroupError> {
        let Ends { context, listener, connection, reserve, .. } = ends;
        let timeout = config.meeting.timeout;
        let connections = mesh::connect(&context, &listener, &roll, &connection, timeout)?;
        let ranks = roll.addresses.len();
        let runner = Runner::new(roll.rank, ranks, config.settings);
        let sockets = Sockets::new(context.clone(), connections)?;
        let adapt = (Adapt::new(config.rule, ranks), ranks);
        let driver = Driver::new(context, runner, sockets, adapt).map_err(GroupError::Thread)?;
        Ok(Self { driver, roll, config, reserve })
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

    /// Starts an operation. If the input of `buffers` is empty though the operation has one, it is in place.
    ///
    /// # Errors
    /// When the operation makes no sense, the memory is not as long as it says, or the group has failed.
    pub fn start(
        &self,
        collective: &Collective,
        (element, op): (Element, Op),
        buffers: Box<dyn Buffers>,
        options: &Options,
    ) -> Result<Operation<'_>, OperationError> {
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
        let usual = usual(collective, bytes, self.ranks());
        let algorithm = options.algorithm.as_ref().unwrap_or(&usual);
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
        let elements = match collective {
            Collective::AllReduce { count }
            | Collective::Broadcast { count, .. }
            | Collective::Reduce { count, .. } => *count,
            Collective::ReduceScatter { counts }
            | Collective::AllGather { counts }
            | Collective::Gather { counts, .. }
            | Collective::Scatter { counts, .. } => counts.iter().sum(),
            _ => 0,
        };
        let label = Label {
            name: format!("{} by {algorithm}", collective.name()),
            elements: elements as u64,
            element,
            op,
        };
        let key = Key::new(0, kind(collective), bytes as u64);
        let (budget, divisor) = (options.budget, options.divisor);
        let limit = Limit { key, bytes: bytes as u64, budget, divisor };
        let job = Job { table, label, buffers, time: Time::Unlimited };
        let (sequence, budget_ns) = self.driver.start(job, limit);
        Ok(Operation {
            group: self,
            sequence: Some(sequence),
            algorithm: algorithm.to_string(),
            budget: budget_ns.map(Duration::from_nanos),
        })
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

impl Ends {
    fn open(config: &GroupConfig) -> Result<Self, GroupError> {
        let context = Context::new(ContextConfig {
            bind: config.bind,
            progress: Progress::Manual,
            wrap: config.wrap.clone(),
            ..ContextConfig::default()
        })?;
        let connection = ConnectionConfig {
            mode: config.mode,
            chunk_bytes: config.chunk_bytes,
            controller: config.controller,
            rate_bits_per_s: config.rate_bits_per_s,
            silence: config.silence,
            deadline: FOREVER,
            classes: Classes { critical: true, ..Classes::NONE },
            ..ConnectionConfig::default()
        };
        let local = SocketAddr::new(config.bind.ip(), config.port);
        let listener = Listener::bind(&context, local, connection)
            .map_err(|error| GroupError::Listen(Box::new(error)))?;
        let reserve = TcpListener::bind((config.bind.ip(), 0)).map_err(GroupError::Reserve)?;
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
        Ok(Some(Outcome { buffers: finished.buffers, report, algorithm, budget: self.budget }))
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence {
            self.group.driver.forget(sequence);
        }
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

/// The schedule that is usual for an operation.
fn usual(collective: &Collective, bytes: usize, ranks: usize) -> Algorithm {
    let is_small = bytes <= SMALL_BYTES;
    match collective {
        Collective::AllReduce { .. } if is_small || ranks == 2 && bytes < 4 * SMALL_BYTES => {
            Algorithm::Doubling
        }
        Collective::AllReduce { .. }
        | Collective::ReduceScatter { .. }
        | Collective::AllGather { .. } => Algorithm::Ring,
        Collective::Broadcast { .. } if !is_small => Algorithm::Ring,
        Collective::Broadcast { .. } | Collective::Reduce { .. } => Algorithm::Tree,
        Collective::Barrier => Algorithm::Doubling,
        Collective::Gather { .. }
        | Collective::Scatter { .. }
        | Collective::AllToAll { .. }
        | Collective::Exchange { .. } => Algorithm::Direct,
    }
}
