//! What this host says that it dropped by itself (Linux; elsewhere only what the datapath says).
//!
//! | counter | where it is |
//! |---|---|
//! | socket, receiving | of the socket itself, `SO_MEMINFO` |
//! | socket, sending | `SndbufErrors` of `/proc/net/snmp`, of all sockets |
//! | kernel, receiving | the queue of a processor, second column of `/proc/net/softnet_stat`; `InDiscards` of `/proc/net/snmp` |
//! | card, receiving | `fifo` of `/proc/net/dev`, and `rx_missed_errors` of each device |
//! | card, sending | `drop` and `fifo` of `/proc/net/dev` |
//!
//! The `drop` column of receiving is left out: cards and kernel count frames there that are of no
//! protocol they know, which has nothing to do with packets of ours. All but the first are of the
//! whole host, so another program's drops mark a trial, too: rather one trial too many.

use super::refusals::Refusals;
use lacuna_probe::{Host, HostDrops};
use std::fs;

/// Counters of a host that receives.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    /// Drops of the socket so far; whoever has the socket keeps it up to date.
    pub(super) socket_drops: u64,
}

impl Host for Receiving {
    fn drops(&mut self) -> HostDrops {
        let device = read("/proc/net/dev");
        HostDrops {
            socket: self.socket_drops,
            kernel: backlog(&read("/proc/net/softnet_stat"))
                + snmp(&read("/proc/net/snmp"), "Ip:", "InDiscards"),
            card: devices(&device, &[RX_FIFO])
                + names(&device)
                    .map(|name| {
                        let path = format!("/sys/class/net/{name}/statistics/rx_missed_errors");
                        read(&path).trim().parse().unwrap_or(0)
                    })
                    .sum::<u64>(),
        }
    }
}

/// Counters of a host that sends.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// Packets that the system did not take and that were given up.
    pub(super) refusals: Refusals,
}

impl Host for Sending {
    fn drops(&mut self) -> HostDrops {
        HostDrops {
            socket: snmp(&read("/proc/net/snmp"), "Udp:", "SndbufErrors"),
            kernel: self.refusals.packets(),
            card: devices(&read("/proc/net/dev"), &[TX_DROP, TX_FIFO]),
        }
    }
}

/// Columns of `/proc/net/dev` behind the name.
const RX_FIFO: usize = 4;
const TX_DROP: usize = 11;
const TX_FIFO: usize = 12;

/// What is not there says nothing.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Lines of `/proc/net/dev` behind the two of titles: name and numbers.
fn rows(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().skip(2).filter_map(|line| line.trim().split_once(':'))
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    rows(text).map(|(name, _)| name)
}

/// Sum of these columns over all devices.
fn devices(text: &str, columns: &[usize]) -> u64 {
    let number = |numbers: &str, column: usize| {
        numbers.split_ascii_whitespace().nth(column).and_then(|number| number.parse::<u64>().ok())
    };
    rows(text)
        .flat_map(|(_, numbers)| columns.iter().filter_map(move |column| number(numbers, *column)))
        .sum()
}

/// A counter of `/proc/net/snmp`: a line of names, then one of numbers.
fn snmp(text: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_ascii_whitespace().zip(numbers.split_ascii_whitespace());
    let found = pairs.find(|(candidate, _)| *candidate == name);
    found.and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

/// What the queues of all processors dropped: a line each, in hexadecimal.
fn backlog(text: &str) -> u64 {
    let dropped = |line: &str| {
        let column = line.split_ascii_whitespace().nth(1)?;
        u64::from_str_radix(column, 16).ok()
    };
    text.lines().filter_map(dropped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 100 1 0 7 3 0 0 0 100 1 0 11 13 0 0 0
  eth0:900 9 1 70 40 0 0 0 900 9 1 500 0 0 0 0
";

    #[test]
    fn counters_of_all_devices_are_summed_up() {
        assert_eq!(devices(DEV, &[RX_FIFO]), 43);
        assert_eq!(devices(DEV, &[TX_DROP, TX_FIFO]), 524);
        assert_eq!(names(DEV).collect::<Vec<_>>(), ["lo", "eth0"]);
        assert_eq!((devices("", &[0]), devices("nonsense", &[0])), (0, 0));
    }

    #[test]
    fn counters_of_a_protocol_are_found_by_name() {
        let text = "Ip: Forwarding InDiscards\nIp: 1 5\n\
                    Udp: InDatagrams RcvbufErrors SndbufErrors\nUdp: 10 2 3\n";
        assert_eq!((snmp(text, "Udp:", "SndbufErrors"), snmp(text, "Ip:", "InDiscards")), (3, 5));
        assert_eq!((snmp(text, "Udp:", "Other"), snmp("", "Udp:", "SndbufErrors")), (0, 0));
    }

    #[test]
    fn queues_of_all_processors_are_summed_up() {
        assert_eq!(backlog("0000ffff 0000000a 00000000\n00000000 00000010 00000000\n"), 26);
        assert_eq!(backlog("?"), 0);
    }
}
