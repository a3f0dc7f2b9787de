//! The handshake over a control connection of TCP: what the facade adds to the state machines of
//! [`lacuna_proto::handshake`], whose text says what the ends tell each other.
//!
//! It moves bytes (`pump.rs`), knows this host (its addresses, what TCP has measured, which queue
//! pairs there are) and makes the queue pair (`reservation.rs`). Nothing here waits but the functions
//! that say so, so one thread may have any number of handshakes under way.
//!
//! After the handshake TCP only tells that the peer lives; see `monitor.rs`.

mod accept;
mod connect;
mod pump;
mod reservation;

pub(crate) use accept::{Answer, Arrival};
pub(crate) use connect::{Connected, Exchange, Line};
pub use lacuna_proto::handshake::PROTOCOL_VERSION;

use crate::address::{ScopedIp, canonical};
use crate::config::{Chosen, ConnectionConfig};
use crate::context::Context;
use crate::queue_pair::QueuePair;
use crate::reuse::Origin;
use lacuna_datapath::families;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest time that connecting may take: what is longer counts as for ever.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// A finished handshake.
pub(crate) struct Agreed {
    pub(crate) queue_pair: QueuePair,
    pub(crate) config: ConnectionConfig,
    pub(crate) chosen: Chosen,
    pub(crate) peer: SocketAddr,
    /// The control connection; it does not block.
    pub(crate) control: TcpStream,
    /// Where the control connection is put back to afterwards, if it is reused.
    pub(crate) origin: Option<Origin>,
}

/// How long a handshake may take.
pub(crate) fn patience_of(config: &ConnectionConfig) -> Duration {
    config.connect_timeout.min(TIMEOUT_MAX)
}

/// Tells a peer that has said nothing yet that there is no room for it. As far as
/// its socket takes it at once: nobody waits for it.
pub(crate) fn turn_away(mut stream: &TcpStream, reason: String) {
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream.write_all(&lacuna_proto::handshake::busy(reason));
    }
}

/// Headers of IP and UDP towards a host.
fn header_bytes(host: SocketAddr) -> u32 {
    match host {
        SocketAddr::V4(_) => 28,
        SocketAddr::V6(_) => 48,
    }
}

/// The peer's host, if packets from this context's sockets can go there: control connections may be
/// of another address family. The zone of a link-local address is that of the control connection at
/// this end.
pub(crate) fn host_of(peer: SocketAddr, context: &Context) -> Result<SocketAddr, String> {
    let (local, peer) = (context.addresses()[0], canonical(peer));
    let (takes_v4, takes_v6) = families(local);
    if peer.is_ipv4() && !takes_v4 || peer.is_ipv6() && !takes_v6 {
        let (local, ip) = (ScopedIp::from(local), peer.ip());
        return Err(format!(
            "no packets from sockets at {local} to {ip}: bind the context to an address of the same family"
        ));
    }
    Ok(peer)
}
