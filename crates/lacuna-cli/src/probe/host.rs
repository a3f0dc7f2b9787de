//! This host's own drop counters (Linux; elsewhere only the datapath's).
//!
//! | counter | source |
//! |---|---|
//! | socket, receiving | the socket itself, `SO_MEMINFO` |
//! | socket, sending | `SndbufErrors` of `/proc/net/snmp`, of all sockets |
//! | kernel, receiving | the per-processor queue, second column of `/proc/net/softnet_stat`; `InDiscards` of `/proc/net/snmp` |
//! | card, receiving | `fifo` of `/proc/net/dev`, and `rx_missed_errors` of each device |
//! | card, sending | `drop` and `fifo` of `/proc/net/dev` |
//!
//! The receiving `drop` column is left out: cards and kernel count frames of unknown protocols
//! there. All counters but the first cover the whole host, so another program's drops mark a trial,
//! too: better one too many.

use super::refusals::Refusals;
use lacuna_probe::{Host, HostDrops};
use std::fs;

/// Counters of a receiving host.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    /// The socket's drops so far, updated by its owner.
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

/// Counters of a sending host.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// Packets that the system refused and that were dropped.
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

/// A file that cannot be read counts as empty.
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
