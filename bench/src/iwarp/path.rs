//! Where contestants meet: over loopback, or over a veth pair between two network namespaces.
//!
//! The namespaces have no names. They exist as long as this process has them open, and the pair in them, so nothing is
//! left whatever ends it. A thread enters one, does what it has to there and ends. Sockets stay where they were made;
//! ends that may make more of them take their turns there. It needs root.

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::net::sockopt::set_tcp_congestion;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

/// Of loopback's device.
const LOOPBACK_MTU: usize = 65_536;
const ETHERNET_MTU: usize = 1500;
const IP_UDP_BYTES: usize = 28;
/// IP, TCP, and TCP's timestamps.
const IP_TCP_BYTES: usize = 52;
/// The longest that UDP has over IPv4.
const UDP_PAYLOAD_MAX: usize = 65_507;
/// Linux's own default since 2.6.19, which the paper's kernels are later than.
const CONGESTION: &str = "cubic";
/// The pair's devices; each namespace has nothing else but its loopback.
const DEVICES: [&str; 2] = ["veth0", "veth1"];
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];

/// See the module's text.
#[derive(Debug)]
pub(super) struct Path {
    /// The two namespaces of a veth pair; `None` is loopback.
    spaces: Option<[File; 2]>,
    /// The longest packet that is to be used, if it is not the path's.
    pub(super) packet_bytes: Option<usize>,
}

impl Path {
    pub(super) fn loopback() -> Self {
        Self { spaces: None, packet_bytes: None }
    }

    /// Makes namespaces and the pair between them.
    pub(super) fn veth() -> Result<Self> {
        let spaces = [new_namespace()?, new_namespace()?];
        let other = format!("/proc/{}/fd/{}", std::process::id(), spaces[1].as_raw_fd());
        let path = Self { spaces: Some(spaces), packet_bytes: None };
        path.inside(0, || {
            let pair = ["link", "add", DEVICES[0], "type", "veth", "peer", "name", DEVICES[1]];
            ip(&[&pair[..], &["netns", other.as_str()][..]].concat())
        })?;
        for side in 0..2 {
            let address = format!("{}/24", ADDRESSES[side]);
            path.inside(side, || {
                ip(&["addr", "add", &address, "dev", DEVICES[side]])?;
                ip(&["link", "set", "lo", "up"])?;
                ip(&["link", "set", DEVICES[side], "up"])
            })?;
        }
        Ok(path)
    }

    pub(super) fn name(&self) -> &'static str {
        if self.spaces.is_some() { "veth" } else { "loopback" }
    }

    pub(super) fn address(&self, side: usize) -> IpAddr {
        match self.spaces {
            None => Ipv4Addr::LOCALHOST.into(),
            Some(_) => ADDRESSES[side].into(),
        }
    }

    fn mtu(&self) -> usize {
        if self.spaces.is_some() { ETHERNET_MTU } else { LOOPBACK_MTU }
    }

    /// The longest payload of UDP that it passes unfragmented, or is to pass.
    pub(super) fn udp_bytes(&self) -> usize {
        let longest = (self.mtu() - IP_UDP_BYTES).min(UDP_PAYLOAD_MAX);
        self.packet_bytes.map_or(longest, |bytes| bytes.min(longest))
    }

    /// What a segment of TCP holds.
    pub(super) fn tcp_bytes(&self) -> usize {
        self.mtu() - IP_TCP_BYTES
    }

    /// Moves this thread to one of its sides. It is to end there.
    pub(super) fn enter(&self, side: usize) -> Result<()> {
        let Some(spaces) = &self.spaces else { return Ok(()) };
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(spaces[side].as_fd(), kind).context("a namespace")
    }

    /// Runs something on one of its sides.
    pub(super) fn inside<R: Send>(
        &self,
        side: usize,
        run: impl FnOnce() -> Result<R> + Send,
    ) -> Result<R> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter(side)?;
                run()
            });
            inside.join().map_err(|_| anyhow!("the thread in a namespace panicked"))?
        })
    }

    /// Two sockets of TCP, one of each side, with cubic as congestion control whatever the system's is.
    pub(super) fn sockets(&self) -> Result<[TcpStream; 2]> {
        let address = self.address(1);
        let listener = self.inside(1, || Ok(TcpListener::bind((address, 0))?))?;
        let local = listener.local_addr()?;
        let active = self.inside(0, || Ok(TcpStream::connect(local)?))?;
        let sockets = [active, listener.accept()?.0];
        for socket in &sockets {
            set_tcp_congestion(socket, CONGESTION)
                .with_context(|| format!("no {CONGESTION} here"))?;
        }
        Ok(sockets)
    }
}

fn new_namespace() -> Result<File> {
    let made = std::thread::spawn(|| -> Result<File> {
        // SAFETY: it unshares the network alone, and no table of descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.context("no network namespace (root?)")?;
        Ok(File::open("/proc/thread-self/ns/net")?)
    });
    made.join().map_err(|_| anyhow!("the thread of a namespace panicked"))?
}

/// Runs iproute2 where this thread is.
fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot run ip (iproute2)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), said.trim());
    Ok(())
}
