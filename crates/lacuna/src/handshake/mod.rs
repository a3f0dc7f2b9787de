//! The handshake over a control connection (TCP): the I/O around the state machines of
//! [`lacuna_proto::handshake`], which document the messages.
//!
//! `pump.rs` moves bytes between socket and state machine; `connect.rs` and `accept.rs` supply the
//! facts about this host (addresses, TCP's measurements, queue pairs); `reservation.rs` makes the
//! queue pair. Only functions whose text says "waits" block, so one thread can drive any number of
//! handshakes.
//!
//! After the handshake the control connection only shows that the peer lives; see `monitor.rs`.

mod accept;
mod connect;
mod pump;
mod reservation;

pub(crate) use accept::{Answer, Incoming};
pub(crate) use connect::{Connected, ControlStream, Exchange};
pub use lacuna_proto::handshake::PROTOCOL_VERSION;

use crate::address::{ScopedIp, canonical};
use crate::config::{Chosen, ConnectionConfig};
use crate::context::Context;
use crate::control::Control;
use crate::queue_pair::QueuePair;
use crate::reuse::Origin;
use lacuna_datapath::families;
use lacuna_proto::handshake::Role;
use lacuna_trust::alert::{BUSY, TLS_FIRST_BYTE};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest handshake; more counts as for ever, and would overflow `Instant`.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Further queue pairs of a connection, at most one of each role.
#[derive(Debug, Default)]
pub(crate) struct Siblings(Vec<(Role, QueuePair)>);

impl Siblings {
    pub(crate) fn get(&self, role: Role) -> Option<&QueuePair> {
        self.0.iter().find(|(of, _)| *of == role).map(|(_, queue_pair)| queue_pair)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &QueuePair> {
        self.0.iter().map(|(_, queue_pair)| queue_pair)
    }
}

/// A finished handshake.
pub(crate) struct Agreed {
    pub(crate) queue_pair: QueuePair,
    /// Further queue pairs that both ends have.
    pub(crate) siblings: Siblings,
    pub(crate) config: ConnectionConfig,
    pub(crate) chosen: Chosen,
    pub(crate) peer: SocketAddr,
    /// The control connection, non-blocking.
    pub(crate) control: Control,
    /// Where the control connection is put back to, if it is reused.
    pub(crate) origin: Option<Origin>,
}

/// Time limit of a handshake.
pub(crate) fn timeout_of(config: &ConnectionConfig) -> Duration {
    config.connect_timeout.min(TIMEOUT_MAX)
}

/// Tells a peer that has not been heard yet that the listener is busy. Best effort: writes only what the socket takes at
/// once. One that has begun a session of TLS gets TLS's word for it, unless the session has eaten its first bytes.
pub(crate) fn turn_away(mut stream: &TcpStream, reason: String) {
    if stream.set_nonblocking(true).is_ok() {
        let mut first = [0];
        let _ = match (stream.peek(&mut first), first) {
            (Ok(1..), [TLS_FIRST_BYTE]) => stream.write_all(&BUSY),
            _ => stream.write_all(&lacuna_proto::handshake::busy(reason)),
        };
    }
}

/// Bytes of the IP and UDP headers towards `host`.
fn header_bytes(host: SocketAddr) -> u32 {
    match host {
        SocketAddr::V4(_) => 28,
        SocketAddr::V6(_) => 48,
    }
}

/// The peer's host, if this context's sockets can send to it: the control connection may use
/// another address family. A link-local address keeps the zone of the control connection at this
/// end.
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
