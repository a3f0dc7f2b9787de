//! A host: a network namespace with one device that leads to the other host, or to the other hosts of a LAN
//! or of a network of links ([`Member`]).

mod keeper;
mod listening;
mod member;
mod netlink;
mod program;
mod syscall;

use lacuna_datapath::limit::{Limit, Said};
use std::ffi::CString;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use keeper::{Device, Keeper, Plan, Step};
pub use member::Member;
pub(crate) use member::{Neighbourhood, mac as member_mac, member_of};
pub use program::{Outcome, Program};

/// Which of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the server runs.
    Server,
    /// Where the client runs.
    Client,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Server, Self::Client];

    /// Its name, as in [`Host::variables`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Server => Self::Client,
            Self::Client => Self::Server,
        }
    }

    /// Its IPv4 address, always the same: each pair of hosts has its own namespaces.
    #[must_use]
    pub const fn ipv4(self) -> Ipv4Addr {
        match self {
            Self::Server => Ipv4Addr::new(10, 77, 0, 1),
            Self::Client => Ipv4Addr::new(10, 77, 0, 2),
        }
    }

    /// Its IPv6 address, a unique local one (RFC 4193).
    #[must_use]
    pub const fn ipv6(self) -> Ipv6Addr {
        match self {
            Self::Server => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1),
            Self::Client => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2),
        }
    }
}

/// The settings of both hosts.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The longest packet, from its IP header on. Below 1280 there is no IPv6.
    pub mtu_bytes: u32,
    /// Whether the kernel may pass bundles of packets. Without them packets are forwarded one by one, at
    /// about ten times the cost.
    pub offload: bool,
    /// Settings of `sysctl`, like `("net.ipv4.tcp_congestion_control", "bbr")`.
    pub sysctls: Vec<(String, String)>,
}

impl HostConfig {
    /// Bounds of [`HostConfig::mtu_bytes`]: the minimum that IPv4 requires (RFC 791) and the maximum of its
    /// length field.
    pub const MTU_BYTES: std::ops::RangeInclusive<u32> = 576..=65_535;
    /// The most settings.
    pub const SYSCTLS_MAX: usize = 255;
}

impl Default for HostConfig {
    fn default() -> Self {
        Self { mtu_bytes: 1500, offload: true, sysctls: vec![] }
    }
}

/// Why a host could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Neither as root nor in a user namespace.
    #[error(
        "this system gives an ordinary user no network namespace ({error}): run as root, or allow \
         user namespaces (sysctl user.max_user_namespaces > 0, kernel.unprivileged_userns_clone=1, \
         kernel.apparmor_restrict_unprivileged_userns=0, whichever there is)"
    )]
    NoNamespace {
        /// What the system said.
        error: io::Error,
    },
    /// `/dev/net/tun` cannot be opened.
    #[error(
        "cannot open /dev/net/tun ({error}): run as root, or make it as most systems have it \
         (modprobe tun; chmod 666 /dev/net/tun; in a container --device /dev/net/tun)"
    )]
    NoTun {
        /// What the system said.
        error: io::Error,
    },
    /// A setting that does not exist, or does not take this value.
    #[error("cannot set {path} in a host ({error}): check the name and the value")]
    Sysctl {
        /// Its file.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// A setting with an invalid name, or too many settings.
    #[error("\"{name}\" is no setting: use a name like net.ipv4.tcp_rmem, 255 of them at most")]
    SysctlName {
        /// As given.
        name: String,
    },
    /// An MTU out of bounds.
    #[error("an MTU of {mtu_bytes} is out of range: use 576 to 65535")]
    Mtu {
        /// As given.
        mtu_bytes: u32,
    },
    /// Another error of the system.
    #[error("cannot make a host: cannot {what}: {}", Said(error))]
    System {
        /// The step that failed, for this sentence.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The process that makes the host failed.
    #[error("cannot make a host: {why}", why = Said(.0))]
    Keeper(#[source] io::Error),
}

impl HostError {
    fn at(step: Step, errno: Errno, sysctl: impl FnOnce() -> String) -> Self {
        let error = io::Error::from(errno);
        match step {
            // A resource limit, not a missing right.
            step if Limit::of(&error).is_some() => Self::System { what: step.what(), error },
            Step::Namespace | Step::UserMap => Self::NoNamespace { error },
            // AppArmor may allow a user namespace but withhold its capabilities.
            Step::CreateTun if errno == Errno::PERM => Self::NoNamespace { error },
            Step::OpenTun => Self::NoTun { error },
            Step::Sysctl => Self::Sysctl { path: sysctl(), error },
            step => Self::System { what: step.what(), error },
        }
    }
}

/// A host; see the module's text. When it is dropped, all programs in it are killed.
#[derive(Debug)]
pub struct Host {
    side: Side,
    mtu_bytes: u32,
    keeper: Keeper,
}

impl Host {
    /// Both hosts.
    pub(crate) fn pair(config: &HostConfig) -> Result<[Self; 2], HostError> {
        let server = Self::new(Side::Server, config, None)?;
        let client = Self::new(Side::Client, config, Some(&server))?;
        Ok([server, client])
    }

    fn new(side: Side, config: &HostConfig, neighbour: Option<&Self>) -> Result<Self, HostError> {
        let plan = plan(Device::Path, side.ipv4(), side.ipv6(), config)?;
        let user = neighbour.and_then(|neighbour| neighbour.keeper.user.as_ref());
        let keeper = Keeper::start(&plan, user.map(AsFd::as_fd))?;
        Ok(Self { side, mtu_bytes: config.mtu_bytes, keeper })
    }

    /// The descriptor of the TUN device; only the first call returns it.
    pub(crate) fn take_tun(&mut self) -> Option<OwnedFd> {
        self.keeper.tun.take()
    }

    /// Which of the two hosts this is.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    /// A process in the host, for `nsenter --target PID --net` (and `--user` from outside, if
    /// [`Host::is_rootless`]) to join it.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.keeper.pid().as_raw_nonzero().get()
    }

    /// Whether the host has a user namespace, because this process is not root. Programs in it see
    /// themselves as root.
    #[must_use]
    pub fn is_rootless(&self) -> bool {
        self.keeper.user.is_some()
    }

    /// Whether UDP bundles stay whole (Linux 6.2).
    #[must_use]
    pub fn has_udp_offload(&self) -> bool {
        self.keeper.has_udp_offload
    }

    /// Whether it has its IPv6 address.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.keeper.has_ipv6
    }

    /// Makes `command` start in the host, with [`Host::variables`] in its environment.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn place(&self, command: &mut Command) -> io::Result<()> {
        place(&self.keeper, command, self.variables())
    }

    /// Environment variables of programs in the host:
    ///
    /// | variable | |
    /// |---|---|
    /// | `LACUNA_WAN_HOST` | `server` or `client`: where it runs |
    /// | `LACUNA_WAN_ADDR`, `LACUNA_WAN_ADDR6` | its own addresses |
    /// | `LACUNA_WAN_PEER`, `LACUNA_WAN_PEER6` | the other host's |
    /// | `LACUNA_WAN_SERVER`, `LACUNA_WAN_SERVER6` | the server's |
    /// | `LACUNA_WAN_CLIENT`, `LACUNA_WAN_CLIENT6` | the client's |
    /// | `LACUNA_WAN_DEVICE` | the device that leads to the other host |
    /// | `LACUNA_WAN_MTU` | its longest packet |
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let (own, peer) = (self.side, self.side.other());
        let mut variables = vec![
            ("LACUNA_WAN_HOST".to_owned(), own.name().to_owned()),
            ("LACUNA_WAN_DEVICE".to_owned(), Device::Path.name().to_owned()),
            ("LACUNA_WAN_MTU".to_owned(), self.mtu_bytes.to_string()),
        ];
        let sides =
            [("ADDR", own), ("PEER", peer), ("SERVER", Side::Server), ("CLIENT", Side::Client)];
        for (name, side) in sides {
            variables.push((format!("LACUNA_WAN_{name}"), side.ipv4().to_string()));
            if self.has_ipv6() {
                variables.push((format!("LACUNA_WAN_{name}6"), side.ipv6().to_string()));
            }
        }
        variables
    }

    /// Whether a program in the host listens: a TCP socket, or a UDP socket with a port.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        listening::is_listening(self.pid())
    }

    /// Frames that the host's device dropped because the emulator did not read fast enough.
    #[must_use]
    pub fn device_drops(&self) -> u64 {
        listening::device_drops(self.pid(), Device::Path.name())
    }
}

/// Makes `command` start in a host, with these variables in its environment.
fn place(
    keeper: &Keeper,
    command: &mut Command,
    variables: Vec<(String, String)>,
) -> io::Result<()> {
    let user = keeper.user.as_ref().map(OwnedFd::try_clone).transpose()?;
    let net = keeper.net.try_clone()?;
    command.envs(variables);
    syscall::start_in(command, syscall::Namespaces { user, net });
    Ok(())
}

fn plan(
    device: Device,
    ipv4: Ipv4Addr,
    ipv6: Ipv6Addr,
    config: &HostConfig,
) -> Result<Plan, HostError> {
    let mtu_bytes = config.mtu_bytes;
    if !HostConfig::MTU_BYTES.contains(&mtu_bytes) {
        return Err(HostError::Mtu { mtu_bytes });
    }
    if let Some((name, _)) = config.sysctls.get(HostConfig::SYSCTLS_MAX) {
        return Err(HostError::SysctlName { name: name.clone() });
    }
    let sysctls = config.sysctls.iter().map(|(name, value)| {
        let wrong = || HostError::SysctlName { name: name.clone() };
        // Only settings of the network belong to the namespace; others would change this machine.
        if !name.starts_with("net.") || name.contains("..") || name.contains('/') {
            return Err(wrong());
        }
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        Ok((CString::new(path).map_err(|_| wrong())?, value.clone().into_bytes()))
    });
    Ok(Plan {
        device,
        ipv4,
        ipv4_prefix_bits: 24,
        ipv6,
        ipv6_prefix_bits: 64,
        mtu_bytes,
        offload: config.offload,
        sysctls: sysctls.collect::<Result<_, _>>()?,
        uid_map: format!("0 {} 1\n", geteuid().as_raw()).into_bytes(),
        gid_map: format!("0 {} 1\n", getegid().as_raw()).into_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_server(config: &HostConfig) -> Result<Plan, HostError> {
        plan(Device::Path, Side::Server.ipv4(), Side::Server.ipv6(), config)
    }

    #[test]
    fn only_settings_of_the_network_are_taken() {
        let config = |name: &str| HostConfig {
            sysctls: vec![(name.to_owned(), "1".to_owned())],
            ..HostConfig::default()
        };
        let plan_of = |name: &str| of_server(&config(name));
        let plan = plan_of("net.ipv4.tcp_rmem").unwrap();
        assert_eq!(plan.sysctls[0].0.as_c_str(), c"/proc/sys/net/ipv4/tcp_rmem");
        for name in ["kernel.panic", "net...kernel.panic", "net.x/../../kernel", "net.a\0b", ""] {
            assert!(matches!(plan_of(name), Err(HostError::SysctlName { .. })), "{name:?}");
        }
        let many = HostConfig {
            sysctls: vec![("net.a".to_owned(), String::new()); 256],
            ..HostConfig::default()
        };
        assert!(matches!(of_server(&many), Err(HostError::SysctlName { .. })));
    }

    #[test]
    fn an_mtu_out_of_range_is_refused() {
        for mtu_bytes in [0, 575, 65_536] {
            let config = HostConfig { mtu_bytes, ..HostConfig::default() };
            assert!(matches!(of_server(&config), Err(HostError::Mtu { .. })));
        }
    }
}
