//! Connecting to a server by its name: to the first of its addresses that
//! answers, from sockets that reach all of them.

use crate::failure::Failure;
use crate::purpose::Purpose;
use crate::thread;
use lacuna::{ConnectError, Connection, ConnectionConfig, Context, ContextConfig};
use std::fmt;
use std::io::ErrorKind;
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

/// A name and its addresses.
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
    let unreachable = |source| ConnectError::Unreachable { peer: host.to_owned(), source };
    let addresses = host.to_socket_addrs().map_err(unreachable)?.collect();
    connect_to_one_of(Found { host, addresses }, sockets, config)
}

/// All at once: an address that is silent must not hold up the next.
fn connect_to_one_of(
    found: Found<'_>,
    sockets: &ContextConfig,
    config: ConnectionConfig,
) -> Result<(Context, Connection), ConnectError> {
    let bound = |bind: IpAddr| Context::new(ContextConfig { bind, ..sockets.clone() });
    let bound_v4 = || bound(Ipv4Addr::UNSPECIFIED.into());
    let bound_v6 = || bound(Ipv6Addr::UNSPECIFIED.into());
    let has_v4 = found.addresses.iter().any(SocketAddr::is_ipv4);
    let context = match found.addresses.iter().any(SocketAddr::is_ipv6) {
        false => bound_v4()?,
        // These reach both, where the system has them.
        true if has_v4 => bound_v6().or_else(|_| bound_v4())?,
        true => bound_v6()?,
    };
    let connection = Connection::connect(&context, found, config)?;
    Ok((context, connection))
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use lacuna::Listener;
    use std::net::{TcpListener, TcpStream};
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
        let bind = Ipv4Addr::LOCALHOST.into();
        let sockets = ContextConfig::default();
        let context = Context::new(ContextConfig { bind, ..sockets.clone() }).expect("sockets");
        let listener = Listener::bind(&context, (bind, 0).into(), config).expect("bound");
        let found = Found { host: "name", addresses: vec![there, listener.local_addr()] };
        let accepting = std::thread::spawn(move || listener.accept());
        let (_sockets, connection) = connect_to_one_of(found, &sockets, config).expect("one is");
        assert!(connection.peer().is_ipv4());
        accepting.join().expect("no panic").expect("accepted");
    }
}
