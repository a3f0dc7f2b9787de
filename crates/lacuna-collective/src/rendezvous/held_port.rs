//! A port for a meeting of ranks on one machine, whose starter has to know it before rank 0 listens there.
//!
//! A port that is only looked up, and free again, may be somebody else's by then: the system gives it to whoever asks for
//! any. So it stays bound, without listening. Who binds it by its number, and allows to use addresses again as hosts of meetings
//! do, may listen there all the same.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A port that nobody gets by chance while this lives. See the module's text.
#[derive(Debug)]
pub struct HeldPort {
    _socket: Socket,
    address: SocketAddr,
}

impl HeldPort {
    /// Any port of this address.
    ///
    /// # Errors
    /// When the address is not this machine's, or no port is free.
    pub fn any(address: IpAddr) -> io::Result<Self> {
        let address = SocketAddr::new(address, 0);
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(address))?;
        let bound = socket.local_addr()?.as_socket();
        let address = bound.ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { _socket: socket, address })
    }

    /// Where rank 0 hosts the meeting: [`super::Meeting::host`] as text.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    #[test]
    fn a_held_port_is_nobodys_until_a_host_listens_there() {
        let held = HeldPort::any(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert!(TcpStream::connect(held.address()).is_err(), "nobody listens");
        let others: Vec<TcpListener> =
            (0..200).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let is_other = |other: &TcpListener| other.local_addr().unwrap() != held.address();
        assert!(others.iter().all(is_other));
        let _host = TcpListener::bind(held.address()).unwrap();
        assert!(TcpStream::connect(held.address()).is_ok());
    }
}
