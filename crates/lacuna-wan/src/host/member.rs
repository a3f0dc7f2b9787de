//! A host among many: a network namespace whose device leads to a LAN's switch, or to the links of a network.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use super::keeper::{Device, Keeper};
use super::{HostConfig, HostError, listening, place, plan};
use crate::bundle::ethernet::Mac;

/// The port of rank 0 in `MASTER_PORT`: that of torchrun by default.
const MASTER_PORT: u16 = 29_500;

/// How hosts reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbourhood {
    /// By frames of Ethernet, which a switch forwards; broadcasts and groups reach all.
    Switched,
    /// By IP packets, which are routed.
    Routed,
}

/// A host of a LAN or of a network of links; see the module's text. When it is dropped, all programs in it are killed.
#[derive(Debug)]
pub struct Member {
    number: u8,
    /// How many there are.
    hosts: u8,
    mtu_bytes: u32,
    device: Device,
    keeper: Keeper,
}

impl Member {
    /// The address of all hosts of a LAN.
    pub const BROADCAST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 255);

    /// All hosts.
    pub(crate) fn all(
        hosts: u8,
        neighbourhood: Neighbourhood,
        config: &HostConfig,
    ) -> Result<Vec<Self>, HostError> {
        let mut members: Vec<Self> = vec![];
        for number in 1..=hosts {
            let device = match neighbourhood {
                Neighbourhood::Switched => Device::Lan {
                    mac: mac(number),
                    broadcast: Self::BROADCAST,
                    link_local: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number.into()),
                },
                Neighbourhood::Routed => Device::Path,
            };
            let plan = plan(device, ipv4(number), ipv6(number), config)?;
            let neighbour = members.first().and_then(|first| first.keeper.user.as_ref());
            let keeper = Keeper::start(&plan, neighbour.map(AsFd::as_fd))?;
            members.push(Self { number, hosts, mtu_bytes: config.mtu_bytes, device, keeper });
        }
        Ok(members)
    }

    /// The descriptor of the device; only the first call returns it.
    pub(crate) fn take_device(&mut self) -> Option<OwnedFd> {
        self.keeper.tun.take()
    }

    /// Its number: 1 is the first.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Its IPv4 address: that of host 1 is 10.77.0.1.
    #[must_use]
    pub fn ipv4(&self) -> Ipv4Addr {
        ipv4(self.number)
    }

    /// Its IPv6 address: that of host 1 is fd77::1. In a LAN it has fe80::1, too.
    #[must_use]
    pub fn ipv6(&self) -> Ipv6Addr {
        ipv6(self.number)
    }

    /// A process in the host, for `nsenter --target PID --net` (and `--user` from outside, if
    /// [`Member::is_rootless`]) to join it.
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

    /// Whether it has its IPv6 addresses.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.keeper.has_ipv6
    }

    /// Makes `command` start in the host, with [`Member::variables`] in its environment.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left.
    pub fn place(&self, command: &mut Command) -> io::Result<()> {
        place(&self.keeper, command, self.variables())
    }

    /// Environment variables of programs in the host; lists have a space between their items:
    ///
    /// | variable | |
    /// |---|---|
    /// | `LACUNA_WAN_HOST` | its number, from 1 on |
    /// | `LACUNA_WAN_HOSTS` | how many hosts there are |
    /// | `LACUNA_WAN_ADDR`, `LACUNA_WAN_ADDR6` | its own addresses |
    /// | `LACUNA_WAN_SERVER`, `LACUNA_WAN_SERVER6` | those of host 1 |
    /// | `LACUNA_WAN_ADDRS`, `LACUNA_WAN_ADDRS6` | those of all hosts, in order |
    /// | `LACUNA_WAN_PEERS`, `LACUNA_WAN_PEERS6` | those of all others, in order |
    /// | `LACUNA_WAN_BROADCAST` | the address of all; in a LAN |
    /// | `LACUNA_WAN_DEVICE` | the device that leads to the others |
    /// | `LACUNA_WAN_MTU` | its longest packet |
    /// | `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` | as torchrun sets them with a rank in each host, host 1 the first |
    /// | `GLOO_SOCKET_IFNAME` | the device, which PyTorch's Gloo would else look for by the host's name |
    #[must_use]
    pub fn variables(&self) -> Vec<(String, String)> {
        let all = 1..=self.hosts;
        let others: Vec<u8> = all.clone().filter(|number| *number != self.number).collect();
        let list = |numbers: &[u8], show: &dyn Fn(u8) -> String| {
            numbers.iter().map(|number| show(*number)).collect::<Vec<_>>().join(" ")
        };
        let all: Vec<u8> = all.collect();
        let of = |name: &str, value: String| (format!("LACUNA_WAN_{name}"), value);
        let mut variables = vec![
            of("HOST", self.number.to_string()),
            of("HOSTS", self.hosts.to_string()),
            of("DEVICE", self.device.name().to_owned()),
            of("MTU", self.mtu_bytes.to_string()),
        ];
        if matches!(self.device, Device::Lan { .. }) {
            variables.push(of("BROADCAST", Self::BROADCAST.to_string()));
        }
        let of_ranks = [
            ("RANK", (self.number - 1).to_string()),
            ("LOCAL_RANK", "0".to_owned()),
            ("WORLD_SIZE", self.hosts.to_string()),
            ("MASTER_ADDR", ipv4(1).to_string()),
            ("MASTER_PORT", MASTER_PORT.to_string()),
            ("GLOO_SOCKET_IFNAME", self.device.name().to_owned()),
        ];
        variables.extend(of_ranks.map(|(name, value)| (name.to_owned(), value)));
        let groups: [(&str, &[u8]); 4] =
            [("ADDR", &[self.number]), ("SERVER", &[1]), ("ADDRS", &all), ("PEERS", &others)];
        for (name, numbers) in groups {
            variables.push(of(name, list(numbers, &|number| ipv4(number).to_string())));
            if self.has_ipv6() {
                let value = list(numbers, &|number| ipv6(number).to_string());
                variables.push(of(&format!("{name}6"), value));
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
        listening::device_drops(self.pid(), self.device.name())
    }
}

/// The index of the host that has this address, if there are so many.
pub(crate) fn member_of(address: IpAddr) -> Option<usize> {
    let number = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let is_ours =
        number > 0 && [IpAddr::V4(ipv4(number)), IpAddr::V6(ipv6(number))].contains(&address);
    is_ours.then(|| usize::from(number) - 1)
}

fn ipv4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

fn ipv6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into())
}

/// The address of a host's device: a local one (bit 1 of the first byte), with the host's IPv4 address in it.
pub(crate) fn mac(number: u8) -> Mac {
    let [a, b, c, d] = ipv4(number).octets();
    [2, 0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_known_by_their_addresses() {
        for number in [1, 9, 64] {
            let index = Some(usize::from(number) - 1);
            assert_eq!(member_of(ipv4(number).into()), index);
            assert_eq!(member_of(ipv6(number).into()), index);
        }
        for other in ["10.77.0.0", "10.77.1.1", "224.0.0.1", "fd77::1:1", "ff02::1", "fe80::1"] {
            assert_eq!(member_of(other.parse().unwrap()), None, "{other}");
        }
    }
}
