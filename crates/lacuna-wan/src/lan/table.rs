//! Which hosts of a LAN a frame goes to: the forwarding table of a learning bridge (IEEE 802.1D, 7.7 to 7.9).
//!
//! A frame for a group or for all goes to all other hosts; one for a known address to the host that has it, and
//! nowhere if that is the host it came from; one for an unknown address to all others. The hosts' own addresses
//! are known from the start; others, of devices that programs make, are learned from what they send.
//!
//! Invariants: the hosts' own addresses are never learned anew; what is learned is bounded.

use std::collections::HashMap;

use crate::bundle::ethernet::{Header, Mac, is_group};

/// Addresses that are learned, at most: a host that invents addresses must not take memory without bound.
const LEARNED_MAX: usize = 1 << 12;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To this host.
    One(usize),
    /// Nowhere: it is for the host that it came from.
    Nobody,
    /// To all others, as it is for a group.
    Group,
    /// To all others, as nobody is known to have the address.
    Flood,
}

impl Destination {
    /// Whether it goes to this host, from that one.
    pub(crate) fn has(self, host: usize, from: usize) -> bool {
        match self {
            Self::One(one) => one == host,
            Self::Nobody => false,
            Self::Group | Self::Flood => host != from,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Table {
    hosts: HashMap<Mac, usize>,
    learned: HashMap<Mac, usize>,
}

impl Table {
    /// A table of hosts with these addresses.
    pub(crate) fn new(macs: impl IntoIterator<Item = Mac>) -> Self {
        let hosts = macs.into_iter().enumerate().map(|(host, mac)| (mac, host)).collect();
        Self { hosts, learned: HashMap::new() }
    }

    /// A frame came from a host.
    pub(crate) fn on_frame(&mut self, from: usize, header: &Header) -> Destination {
        let Header { source, destination, .. } = header;
        if !self.hosts.contains_key(source)
            && !is_group(source)
            && (self.learned.len() < LEARNED_MAX || self.learned.contains_key(source))
        {
            self.learned.insert(*source, from);
        }
        if header.is_for_group() {
            return Destination::Group;
        }
        match self.hosts.get(destination).or_else(|| self.learned.get(destination)) {
            Some(host) if *host == from => Destination::Nobody,
            Some(host) => Destination::One(*host),
            None => Destination::Flood,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::ethernet::BROADCAST;

    fn mac(number: u8) -> Mac {
        [2, 0, 0, 0, 0, number]
    }

    fn header(source: Mac, destination: Mac) -> Header {
        Header { destination, source, ether_type: 0x0800 }
    }

    fn reached(destination: Destination, from: usize) -> Vec<usize> {
        (0..4).filter(|host| destination.has(*host, from)).collect()
    }

    #[test]
    fn frames_go_to_whom_they_are_for_and_groups_to_all_others() {
        let mut table = Table::new((0..4).map(mac));
        let mut to = |from: usize, to: Mac| {
            reached(table.on_frame(from, &header(mac(from as u8), to)), from)
        };
        assert_eq!(to(1, mac(3)), [3]);
        assert_eq!(to(1, mac(1)), [0; 0]);
        assert_eq!(to(1, BROADCAST), [0, 2, 3]);
        assert_eq!(to(2, [1, 0, 0x5e, 1, 2, 3]), [0, 1, 3]);
        assert_eq!(to(0, mac(77)), [1, 2, 3]);
    }

    #[test]
    fn addresses_are_learned_within_bounds_and_hosts_keep_theirs() {
        let mut table = Table::new((0..4).map(mac));
        let other = mac(200);
        assert_eq!(table.on_frame(0, &header(mac(0), other)), Destination::Flood);
        table.on_frame(3, &header(other, mac(0)));
        assert_eq!(table.on_frame(0, &header(mac(0), other)), Destination::One(3));
        table.on_frame(2, &header(other, mac(0)));
        assert_eq!(table.on_frame(0, &header(mac(0), other)), Destination::One(2));
        // Under the address of another host.
        table.on_frame(2, &header(mac(1), mac(0)));
        assert_eq!(table.on_frame(0, &header(mac(0), mac(1))), Destination::One(1));
        for number in 0..2 * LEARNED_MAX as u16 {
            let [a, b] = number.to_be_bytes();
            table.on_frame(1, &header([2, 1, 1, 1, a, b], mac(0)));
        }
        assert_eq!(table.learned.len(), LEARNED_MAX);
    }
}
