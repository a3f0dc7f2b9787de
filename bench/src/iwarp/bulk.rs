//! 8 MiB at a time: Write-Records beside one-sided writes on a Lacuna connection, and READs beside Write-Records.
//!
//! The connection repairs losses and its sender knows what arrived; the datagram queue pair does neither. Both move
//! the same bytes from and to one buffer each, with as many in flight.

use super::datagram::{Kind, Reader};
use super::end::{Contestant, End, LONG, Role, Wait};
use super::line::{Goal, Printer};
use super::path::Path;
use super::turn::{Sides, one_way, rounds};
use super::{Effort, UD_RECORD, ud};
use anyhow::{Context as _, Result, anyhow, bail};
use lacuna::{
    Connection, ConnectionConfig, Context, ContextConfig, Listener, Progress, Region,
    RegionOptions, SendBuffer, SendHandle, Target,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const BYTES: usize = 8 << 20;
pub(super) const IN_FLIGHT: usize = 2;
/// How long a receiver goes on after the last message, so that its sender learns of it.
const LINGER: Duration = Duration::from_millis(1);
const WRITE: &str = "connection write";
const READ: &str = "UD READ";
/// Of the connection's write, and of Write-Record, at least.
const RECORD_GOAL: f64 = 0.95;
const READ_GOAL: f64 = 0.9;

/// Measures over one path.
pub(super) fn run(sides: Sides<'_>, effort: Effort, out: &mut Printer) -> Result<()> {
    let path = sides.path;
    let messages = (effort.bytes / BYTES).max(2 * IN_FLIGHT);
    let mut contestants = [
        ud(UD_RECORD, path, Kind::WriteRecord, BYTES),
        Contestant::new(WRITE, || {
            Ok(Connected::pair(path)?.map(|end| Box::new(end) as Box<dyn End>))
        }),
        Contestant::new(READ, || {
            Ok(Reader::pair(path, BYTES)?.map(|end| Box::new(end) as Box<dyn End>))
        }),
    ];
    let samples = rounds(&mut contestants, effort.rounds, |ends| {
        let seconds = one_way(ends, sides, messages)?;
        Ok((messages * BYTES * 8) as f64 / seconds / 1e9)
    })?;
    out.figures("one way", "Gbit/s", BYTES, &samples)?;
    for (ours, theirs, goal) in [(UD_RECORD, WRITE, RECORD_GOAL), (READ, UD_RECORD, READ_GOAL)] {
        let ratio = format!("one way, {BYTES} B, {ours} / {theirs}");
        out.judge(&ratio, samples.ratios(ours, theirs), Some(Goal::AtLeast(goal)))?;
    }
    Ok(())
}

/// An end of a connection, which writes into its peer's memory.
struct Connected {
    /// It lives as long as its connection.
    _context: Context,
    connection: Connection,
    memory: Region,
    target: Target,
    data: SendBuffer,
    in_flight: VecDeque<SendHandle>,
}

impl Connected {
    fn pair(path: &Path) -> Result<[Self; 2]> {
        let config = ConnectionConfig {
            mode: "sr".parse()?,
            one_sided: true,
            deadline: LONG,
            ..ConnectionConfig::default()
        };
        let context = |side: usize| {
            path.inside(side, || {
                Ok(Context::new(ContextConfig {
                    bind: path.address(side).into(),
                    progress: Progress::Manual,
                    ..ContextConfig::default()
                })?)
            })
        };
        let (here, there) = (context(0)?, context(1)?);
        let listener =
            path.inside(1, || Ok(Listener::bind(&there, (path.address(1), 0).into(), config)?))?;
        let address = listener.local_addr();
        let is_connected = AtomicBool::new(false);
        let (connected, accepted) = std::thread::scope(|scope| {
            let accepting = scope.spawn(|| {
                path.inside(1, || {
                    let accepted = listener.accept()?;
                    // The other end probes the path.
                    while !is_connected.load(Ordering::Relaxed) {
                        there.progress();
                    }
                    Ok(accepted)
                })
            });
            let connected = path.inside(0, || Ok(Connection::connect(&here, address, config)?));
            is_connected.store(true, Ordering::Relaxed);
            (connected, accepting.join())
        });
        let accepted = accepted.map_err(|_| anyhow!("the accepting end panicked"))?;
        let mut ends = [Self::new(here, connected?)?, Self::new(there, accepted?)?];
        let keys = [0, 1].map(|side: usize| ends[side].memory.key());
        for (end, key) in ends.iter_mut().zip([keys[1], keys[0]]) {
            end.target.key = key;
        }
        Ok(ends)
    }

    fn new(context: Context, connection: Connection) -> Result<Self> {
        Ok(Self {
            memory: context.register(vec![0; BYTES], RegionOptions::default())?,
            _context: context,
            connection,
            target: Target { key: 0, address: 0 },
            data: SendBuffer::new(Arc::new(vec![0x5A; BYTES])),
            in_flight: VecDeque::new(),
        })
    }

    fn await_first(&mut self) -> Result<()> {
        let first = self.in_flight.pop_front().context("something is in flight")?;
        if !first.wait_finished(LONG) {
            bail!("a write does not end: {:?}", self.connection.failure());
        }
        Ok(())
    }
}

impl End for Connected {
    fn begin(&mut self, _: Wait, _: Role) -> Result<()> {
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        if self.in_flight.len() == IN_FLIGHT {
            self.await_first()?;
        }
        // Its immediate tells the receiver of it.
        let write = self.connection.start_write_to(self.target, self.data.clone(), Some(1))?;
        self.in_flight.push_back(write);
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        self.connection.wait_written(LONG).context("nothing was written").map(|_| ())
    }

    fn await_peer(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.await_first()?;
        }
        Ok(())
    }

    fn tell_peer(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < LINGER {
            self.connection.wait_written(LINGER);
        }
        Ok(())
    }
}
