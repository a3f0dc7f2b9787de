//! Connections of every rank with every other, which messages and notes go over.
//!
//! The higher rank connects to the lower one, and says by the connection's tag which group and rank it is of; so who
//! comes from elsewhere is refused before any packet is sent. Many are made at once: each takes two round trips.

use crate::control;
use crate::group::CLOSE_FOR;
use crate::rendezvous::{RANKS_MAX, Roll};
use lacuna::{Class, ConnectError, Connection, ConnectionConfig, Context, Listener};
use lacuna_schedule::run::abort_note;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Connections that are made at once.
const AT_ONCE_MAX: usize = 16;
/// Bits of a tag that say the rank.
const RANK_BITS: u32 = 12;
/// Between two looks for a connection that comes.
const LOOK_EVERY: Duration = Duration::from_micros(200);

const _: () = assert!(RANKS_MAX <= 1 << RANK_BITS);

/// Why not all ranks are connected. Retryable if the cause is.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// A rank could not be reached.
    #[error("cannot connect to rank {rank} at {address}: {source}")]
    Connect {
        /// Who.
        rank: usize,
        /// Where.
        address: std::net::SocketAddr,
        /// Why not.
        source: Box<ConnectError>,
    },
    /// Some ranks did not connect in time.
    #[error(
        "waited {waited_s} s, and these ranks did not connect: {}",
        crate::rendezvous::list(missing)
    )]
    Missing {
        /// How long.
        waited_s: u64,
        /// Who.
        missing: Vec<usize>,
    },
    /// The listener does not work any more.
    #[error("cannot take connections: {0}")]
    Accept(Box<ConnectError>),
}

impl MeshError {
    /// Because of whom; the first of several.
    fn rank(&self) -> Option<usize> {
        match self {
            Self::Connect { rank, .. } => Some(*rank),
            Self::Missing { missing, .. } => missing.first().copied(),
            Self::Accept(_) => None,
        }
    }
}

fn tag(group: u64, rank: usize) -> u64 {
    group << RANK_BITS | rank as u64
}

/// Connects this rank with all others; its own place is empty. `config` is for the connections that this end makes.
pub(crate) fn connect(
    context: &Context,
    listener: &Listener,
    roll: &Roll,
    config: &ConnectionConfig,
    timeout: Duration,
) -> Result<Vec<Option<Connection>>, MeshError> {
    let begin = Instant::now();
    let ranks = roll.addresses.len();
    let made: Vec<Mutex<Option<Connection>>> = (0..ranks).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let config =
        ConnectionConfig { tag: tag(roll.group, roll.rank), connect_timeout: timeout, ..*config };
    let to_lower = || {
        loop {
            let rank = next.fetch_add(1, Ordering::Relaxed);
            if rank >= roll.rank {
                return Ok(());
            }
            let address = roll.addresses[rank];
            let connection = Connection::connect(context, address, config)
                .map_err(|source| MeshError::Connect { rank, address, source: Box::new(source) })?;
            *made[rank].lock().expect("no panic while it is held") = Some(connection);
        }
    };
    let met = std::thread::scope(|scope| {
        let connecting: Vec<_> =
            (0..roll.rank.min(AT_ONCE_MAX)).map(|_| scope.spawn(to_lower)).collect();
        let accepted = accept(listener, roll, begin, timeout);
        let connected: Result<Vec<()>, MeshError> = connecting
            .into_iter()
            .map(|thread| thread.join().expect("connecting does not panic"))
            .collect();
        let (accepted, lacking) = accepted;
        for (rank, connection) in accepted {
            *made[rank].lock().expect("no panic while it is held") = Some(connection);
        }
        connected.map(drop).and(lacking)
    });
    let made = made.into_iter().map(|made| made.into_inner().expect("nobody holds it"));
    let made: Vec<Option<Connection>> = made.collect();
    met.inspect_err(|error| {
        if let Some(rank) = error.rank() {
            give_up(&made, rank);
        }
    })?;
    Ok(made)
}

/// Tells those that are connected because of whom this rank leaves: they may be at the group's first operation already,
/// and would take this rank for the one that is gone. Best effort.
pub(crate) fn give_up(made: &[Option<Connection>], rank: usize) {
    let connected = || made.iter().flatten();
    for class in connected().filter_map(|connection| connection.class(Class::Critical)) {
        if let Err(error) = control::tell(class, &abort_note(rank)) {
            tracing::debug!(%error, "a rank is not told");
        }
    }
    let begin = Instant::now();
    for connection in connected() {
        connection.flush(CLOSE_FOR.saturating_sub(begin.elapsed()));
    }
}

/// Takes the connections of all higher ranks: those that came, and why not all.
fn accept(
    listener: &Listener,
    roll: &Roll,
    begin: Instant,
    timeout: Duration,
) -> (BTreeMap<usize, Connection>, Result<(), MeshError>) {
    let expected = roll.rank + 1..roll.addresses.len();
    let mut accepted = BTreeMap::new();
    while accepted.len() < expected.len() {
        let takes = |tag: u64| {
            if tag >> RANK_BITS != roll.group & (u64::MAX >> RANK_BITS) {
                return Err("this rank is of another group".to_owned());
            }
            match rank_of(tag) {
                rank if !expected.contains(&rank) => {
                    Err(format!("rank {rank} is to be connected to"))
                }
                rank if accepted.contains_key(&rank) => {
                    Err(format!("rank {rank} is there already"))
                }
                _ => Ok(()),
            }
        };
        match listener.try_accept_if(takes) {
            Ok(Some(connection)) => {
                accepted.insert(rank_of(connection.tag()), connection);
                continue;
            }
            Ok(None) => {}
            Err(error @ ConnectError::Accept { .. }) => {
                return (accepted, Err(MeshError::Accept(Box::new(error))));
            }
            // A stranger, or a peer that went; the listener goes on.
            Err(error) => tracing::debug!(%error, "no rank"),
        }
        if begin.elapsed() > timeout {
            let missing = expected.filter(|rank| !accepted.contains_key(rank)).collect();
            let waited_s = begin.elapsed().as_secs();
            return (accepted, Err(MeshError::Missing { waited_s, missing }));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    (accepted, Ok(()))
}

fn rank_of(tag: u64) -> usize {
    (tag & ((1 << RANK_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GroupConfig;
    use crate::error::GroupError;
    use crate::group::{Ends, Group};
    use crate::rendezvous::Meeting;
    use lacuna::ContextConfig;
    use std::net::Ipv4Addr;

    /// Rank 2 has connected to rank 0 and goes no further. Rank 0 begins the group's first operation, while rank 1 waits
    /// for rank 2, gives up and leaves.
    #[test]
    fn who_gives_up_while_connecting_says_because_of_whom() {
        const PATIENCE: Duration = Duration::from_millis(300);
        let config = |rank, timeout| {
            let (host, job) = (String::new(), String::new());
            let meeting = Meeting { host, rank, ranks: 3, job, timeout };
            GroupConfig { bind: Ipv4Addr::LOCALHOST.into(), ..GroupConfig::new(meeting) }
        };
        let configs =
            [config(0, Duration::from_secs(60)), config(1, PATIENCE), config(2, PATIENCE)];
        let ends = configs.each_ref().map(|config| Ends::open(config).unwrap());
        let addresses: Vec<_> = ends.iter().map(|ends| ends.places.listens).collect();
        let roll =
            |rank| Roll { group: 7, rank, addresses: addresses.clone(), meets: addresses.clone() };
        let here = ContextConfig { bind: Ipv4Addr::LOCALHOST.into(), ..ContextConfig::default() };
        let here = Context::new(here).unwrap();
        let [ends0, ends1, ends2] = ends;
        let [config0, config1, _] = configs;
        let settings = ConnectionConfig { tag: tag(7, 2), ..ends2.connection };
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| Group::connect(config1, ends1, roll(1)).map(drop));
            let first = scope.spawn(|| Group::connect(config0, ends0, roll(0)).map(drop));
            let victim = Connection::connect(&here, addresses[0], settings).unwrap();
            let (first, second) = (first.join().unwrap(), second.join().unwrap());
            drop(victim);
            (first.unwrap_err(), second.unwrap_err())
        });
        assert!(matches!(second, GroupError::Mesh(MeshError::Missing { .. })), "{second}");
        assert!(first.to_string().contains("rank 1 gave up because of rank 2"), "{first}");
    }
}
