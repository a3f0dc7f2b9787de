//! Connects to a server by name: to the first of its addresses that answers, from sockets of a
//! suitable address family, until the caller requests a stop.
//!
//! The name lookup and connecting block in the system, for seconds if nobody answers, and cannot be
//! interrupted. So they run on a thread of their own, which is abandoned on a stop.

use crate::thread::{self, ThreadError};
use lacuna::datapath::limit::{Limit, Said};
use lacuna::{
    ConnectError, Connection, ConnectionConfig, Context, ContextConfig, ContextError, ScopedIp,
    address,
};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::{fmt, io};

/// No connection was made.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// The transport could not connect.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The caller requested a stop, or the system gave no thread.
    #[error(transparent)]
    Thread(#[from] ThreadError),
}

/// A name could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    /// This host lacks a resource.
    #[error("cannot look up {host}: {}", Said(source))]
    Limit {
        /// HOST:PORT.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// The caller's or the network's fault: the name is wrong, or no name server answers.
    #[error("cannot find {host}: {source}")]
    Unknown {
        /// HOST:PORT.
        host: String,
        /// What the system says.
        source: io::Error,
    },
    /// The caller requested a stop, or the system gave no thread.
    #[error(transparent)]
    Thread(#[from] ThreadError),
}

/// Connects to `host` (HOST:PORT), unless `stop` returns true first. `sockets` are bound to the
/// address family that the peer's address needs.
///
/// # Errors
/// When no address answers, or `stop` returns true.
pub fn connect(
    host: &str,
    sockets: &ContextConfig,
    config: ConnectionConfig,
    stop: &dyn Fn() -> bool,
) -> Result<(Context, Connection), ReachError> {
    let (host, sockets) = (host.to_owned(), sockets.clone());
    Ok(unless(stop, move || connect_to(&host, &sockets, config))??)
}

/// Connects again over the same sockets.
///
/// # Errors
/// When no address answers, or `stop` returns true.
pub fn connect_again(
    context: &Context,
    peer: SocketAddr,
    config: ConnectionConfig,
    stop: &dyn Fn() -> bool,
) -> Result<Connection, ReachError> {
    let context = context.clone();
    Ok(unless(stop, move || Connection::connect(&context, peer, config))??)
}

/// The addresses of `host` (HOST:PORT).
///
/// # Errors
/// When it has none, or `stop` returns true.
pub fn addresses(host: &str, stop: &dyn Fn() -> bool) -> Result<Vec<SocketAddr>, LookUpError> {
    let host = host.to_owned();
    let name = host.clone();
    unless(stop, move || look_up(&name))?.map_err(|source| match Limit::of(&source) {
        Some(_) => LookUpError::Limit { host, source },
        None => LookUpError::Unknown { host, source },
    })
}

/// Looks a name up. The system's resolver does not report a lack of descriptors, so that is checked
/// separately.
fn look_up(host: &str) -> io::Result<Vec<SocketAddr>> {
    /// Descriptors that a lookup has open at a time, and some to spare.
    const DESCRIPTORS: usize = 4;
    let found = address::look_up(&host);
    found.map_err(|error| Limit::check_descriptors(DESCRIPTORS).err().unwrap_or(error))
}

fn unless<T: Send + 'static>(
    stop: &dyn Fn() -> bool,
    connect: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ThreadError> {
    thread::unless(stop, "lacuna-connect", connect)
}

/// A name with its addresses.
struct Found<'a> {
    host: &'a str,
    addresses: Vec<SocketAddr>,
}

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.host)
    }
}

impl ToSocketAddrs for Found<'_> {
    type Iter = std::vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> std::io::Result<Self::Iter> {
        Ok(self.addresses.clone().into_iter())
    }
}

fn connect_to(
    host: &str,
    sockets: &ContextConfig,
    config: ConnectionConfig,
) -> Result<(Context, Connection), ConnectError> {
    let addresses = look_up(host).map_err(|source| match Limit::of(&source) {
        Some(_) => ContextError::System { what: "to look up a name", source }.into(),
        None => ConnectError::Unreachable { peer: host.to_owned(), source },
    })?;
    connect_to_one_of(Found { host, addresses }, sockets, config)
}

/// Tries all addresses together: a silent one must not delay the next.
fn connect_to_one_of(
    found: Found<'_>,
    sockets: &ContextConfig,
    config: ConnectionConfig,
) -> Result<(Context, Connection), ConnectError> {
    let bind = match found.addresses.iter().any(SocketAddr::is_ipv6) {
        // The wildcard address reaches both families.
        true => ScopedIp::ANY,
        false => Ipv4Addr::UNSPECIFIED.into(),
    };
    let context = Context::new(ContextConfig { bind, ..sockets.clone() })?;
    let connection = Connection::connect(&context, found, config)?;
    Ok((context, connection))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use lacuna::Listener;
    use std::net::{Ipv6Addr, TcpListener, TcpStream};
    use std::time::Duration;

    #[test]
    fn an_address_that_is_silent_does_not_hold_up_one_of_the_other_family() {
        let Ok(silent) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else { return };
        // Its queue is full: connections are neither made nor refused.
        rustix::net::listen(&silent, 0).expect("shorter");
        let there = silent.local_addr().expect("bound");
        let within = Duration::from_millis(1);
        let _filling = [(); 4].map(|()| TcpStream::connect_timeout(&there, within));
        // Nobody would wait for that.
        let hours = Duration::from_secs(10_000);
        let config = ConnectionConfig { connect_timeout: hours, ..ConnectionConfig::default() };
        let here = Ipv4Addr::LOCALHOST;
        let sockets = ContextConfig::default();
        let context = Context::new(ContextConfig { bind: here.into(), ..sockets.clone() });
        let context = context.expect("sockets");
        let listener = Listener::bind(&context, (here, 0).into(), config).expect("bound");
        let found = Found { host: "name", addresses: vec![there, listener.local_addr()] };
        let accepting = std::thread::spawn(move || listener.accept());
        let (_sockets, connection) = connect_to_one_of(found, &sockets, config).expect("one is");
        assert!(connection.peer().is_ipv4());
        accepting.join().expect("no panic").expect("accepted");
    }
}
