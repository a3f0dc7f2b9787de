//! Connections of every rank with every other, which messages and notes go over.
//!
//! The higher rank connects to the lower one, and says by the connection's tag which group and rank it is of; so who
//! comes from elsewhere is refused before any packet is sent. Many are made at once: each takes two round trips.

use crate::rendezvous::{RANKS_MAX, Roll};
use lacuna::{ConnectError, Connection, ConnectionConfig, Context, Listener};
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
    std::thread::scope(|scope| {
        let connecting: Vec<_> =
            (0..roll.rank.min(AT_ONCE_MAX)).map(|_| scope.spawn(to_lower)).collect();
        let accepted = accept(listener, roll, begin, timeout);
        let connected: Result<Vec<()>, MeshError> = connecting
            .into_iter()
            .map(|thread| thread.join().expect("connecting does not panic"))
            .collect();
        connected?;
        for (rank, connection) in accepted? {
            *made[rank].lock().expect("no panic while it is held") = Some(connection);
        }
        Ok(())
    })?;
    Ok(made.into_iter().map(|made| made.into_inner().expect("nobody holds it")).collect())
}

/// Takes the connections of all higher ranks.
fn accept(
    listener: &Listener,
    roll: &Roll,
    begin: Instant,
    timeout: Duration,
) -> Result<BTreeMap<usize, Connection>, MeshError> {
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
                return Err(MeshError::Accept(Box::new(error)));
            }
            // A stranger, or a peer that went; the listener goes on.
            Err(error) => tracing::debug!(%error, "no rank"),
        }
        if begin.elapsed() > timeout {
            let missing = expected.filter(|rank| !accepted.contains_key(rank)).collect();
            return Err(MeshError::Missing { waited_s: begin.elapsed().as_secs(), missing });
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(accepted)
}

fn rank_of(tag: u64) -> usize {
    (tag & ((1 << RANK_BITS) - 1)) as usize
}
