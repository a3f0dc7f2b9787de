//! Multicast: which groups a socket gets packets of, and how those leave that it sends to groups.
//!
//! A dual-stack socket has both families, so options of IPv4 are set on it, too. What the system does not have is
//! refused when it is asked for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use socket2::{InterfaceIndexOrAddress, Socket};

/// See the module's text. It holds a descriptor of the socket's, and so the socket.
#[derive(Debug)]
pub struct Groups {
    socket: Socket,
    is_v6: bool,
}

impl Groups {
    pub(super) fn of(socket: &UdpSocket) -> io::Result<Self> {
        let is_v6 = socket.local_addr()?.is_ipv6();
        let groups = Self { socket: socket.try_clone()?.into(), is_v6 };
        #[cfg(unix)]
        crate::process::descriptors::note(&groups.socket);
        // Else a socket gets what others of this host have joined. Old systems have no such option.
        #[cfg(target_os = "linux")]
        {
            let _ = groups.socket.set_multicast_all_v4(false);
            let _ = is_v6 && groups.socket.set_multicast_all_v6(false).is_ok();
        }
        Ok(groups)
    }

    /// Joins a group on an interface, by its number; 0 is the one of the route.
    ///
    /// # Errors
    ///
    /// When the address is no group's, the group is joined already, or there is no such interface.
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        match group.to_canonical() {
            IpAddr::V4(group) => self.socket.join_multicast_v4_n(&group, &interface_v4(interface)),
            IpAddr::V6(group) => self.socket.join_multicast_v6(&group, interface),
        }
    }

    /// Leaves a group.
    ///
    /// # Errors
    ///
    /// When it was not joined.
    pub fn leave(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        match group.to_canonical() {
            IpAddr::V4(group) => self.socket.leave_multicast_v4_n(&group, &interface_v4(interface)),
            IpAddr::V6(group) => self.socket.leave_multicast_v6(&group, interface),
        }
    }

    /// How many routers packets to groups pass at most, and one more; 1, the usual, stays in the network.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn set_ttl(&self, ttl: u8) -> io::Result<()> {
        self.each(
            |socket| socket.set_multicast_ttl_v4(ttl.into()),
            |socket| socket.set_multicast_hops_v6(ttl.into()),
        )
    }

    /// Whether what is sent to groups also comes to sockets of this host.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn set_loop(&self, loops: bool) -> io::Result<()> {
        self.each(
            |socket| socket.set_multicast_loop_v4(loops),
            |socket| socket.set_multicast_loop_v6(loops),
        )
    }

    /// The interface that packets to groups leave by.
    ///
    /// # Errors
    ///
    /// When there is no such interface.
    pub fn set_interface(&self, interface: u32) -> io::Result<()> {
        self.each(
            |socket| set_interface_v4(socket, interface),
            |socket| socket.set_multicast_if_v6(interface),
        )
    }

    /// For both families, as far as the socket has them.
    fn each(
        &self,
        v4: impl FnOnce(&Socket) -> io::Result<()>,
        v6: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.is_v6 {
            v6(&self.socket)?;
        }
        v4(&self.socket)
    }
}

#[cfg(target_os = "linux")]
fn set_interface_v4(socket: &Socket, interface: u32) -> io::Result<()> {
    use std::os::fd::AsFd;
    super::syscall::set_group_interface(socket.as_fd(), interface)
}

#[cfg(not(target_os = "linux"))]
fn set_interface_v4(_: &Socket, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// An interface by its number; 0 is the one of the route.
fn interface_v4(interface: u32) -> InterfaceIndexOrAddress {
    match interface {
        0 => InterfaceIndexOrAddress::Address(Ipv4Addr::UNSPECIFIED),
        index => InterfaceIndexOrAddress::Index(index),
    }
}
