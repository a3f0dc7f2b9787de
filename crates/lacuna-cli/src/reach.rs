//! Connecting to a server by its name: to the first of its addresses that
//! answers, from sockets of the same family.

use crate::failure::Failure;
use crate::purpose::Purpose;
use crate::thread;
use lacuna::{ConnectError, Connection, ConnectionConfig, Context, ContextConfig};
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Connects to `host`, which is HOST:PORT, unless `stop` says that nobody wants
/// it any more. `sockets` are bound as the address found needs it.
pub(crate) fn connect(
    host: &str,
    sockets: &ContextConfig,
    config: ConnectionConfig,
    stop: &dyn Fn() -> bool,
) -> Result<Result<(Context, Connection), ConnectError>, Failure> {
    let (host, sockets) = (host.to_owned(), sockets.clone());
    unless(stop, move || connect_to(&host, &sockets, config))
}

/// Connects once more over the same sockets.
pub(crate) fn connect_again(
    context: &Context,
    peer: SocketAddr,
    config: ConnectionConfig,
    stop: &dyn Fn() -> bool,
) -> Result<Connection, Failure> {
    let context = context.clone();
    Ok(unless(stop, move || Connection::connect(&context, peer, config))??)
}

/// The addresses of `host`, which is HOST:PORT.
pub(crate) fn addresses(host: &str, stop: &dyn Fn() -> bool) -> Result<Vec<SocketAddr>, Failure> {
    let name = host.to_owned();
    let found = unless(stop, move || name.to_socket_addrs())?;
    let found = found.map_err(|error| Failure::Network(format!("cannot find {host}: {error}")))?;
    Ok(found.collect())
}

/// Finding and connecting wait in the system, for seconds if nobody answers.
fn unless<T: Send + 'static>(
    stop: &dyn Fn() -> bool,
    connect: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    thread::unless(stop, "lacuna-connect", connect)
}

fn connect_to(
    host: &str,
    sockets: &ContextConfig,
    config: ConnectionConfig,
) -> Result<(Context, Connection), ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { peer: host.to_owned(), source };
    let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
    for address in host.to_socket_addrs().map_err(unreachable)? {
        let bind: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let context = Context::new(ContextConfig { bind, ..sockets.clone() })?;
        match Connection::connect(&context, address, config) {
            Ok(connection) => return Ok((context, connection)),
            Err(ConnectError::Unreachable { source, .. }) => last = source,
            Err(error) => return Err(error),
        }
    }
    Err(unreachable(last))
}

/// An error of connecting, with what should be listening there if nobody is.
pub(crate) fn failure(error: ConnectError, purpose: Purpose) -> Failure {
    match &error {
        ConnectError::Unreachable { source, .. }
            if source.kind() == ErrorKind::ConnectionRefused =>
        {
            let server = purpose.server();
            Failure::Network(format!("{error}: is {server} running there, on that port?"))
        }
        _ => error.into(),
    }
}
