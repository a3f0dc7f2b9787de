//! Connecting to a server by its name: to the first of its addresses that
//! answers, from sockets of the same family.

use crate::failure::Failure;
use crate::purpose::Purpose;
use lacuna::{ConnectError, Connection, ConnectionConfig, Context, ContextConfig};
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Connects to `host`, which is HOST:PORT. `sockets` are bound as the address
/// found needs it.
pub(crate) fn connect(
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
