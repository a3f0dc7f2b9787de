//! `--group`: one message goes to several servers at once, by broadcast or multicast (datagram-iWARP 2.3 and 3.2.2).
//!
//! Each server has a session of its own and takes what is sent to the group on the group's port. What it misses it
//! asks for, unless the client has said that nothing is repaired. No server tells how fast it could take messages,
//! so a rate has to be given.

use super::Counted;
use crate::failure::Failure;
use crate::perf::verb::Verb;
use crate::perf::{ClientArgs, protocol};
use lacuna::address::show;
use lacuna::datagram::QueuePair;
use lacuna::{ControllerKind, ScopedIp};
use serde::Serialize;
use std::net::SocketAddr;

/// Where servers take what is sent to a group, unless told otherwise.
const PORT: u16 = 7409;

/// Parses a group: ADDRESS or ADDRESS:PORT.
pub(in crate::perf) fn parse(text: &str) -> Result<SocketAddr, String> {
    let alone = || text.parse::<ScopedIp>().ok().map(|ip| ip.at_port(PORT));
    let address = lacuna::address::parse(text).ok().or_else(alone);
    address.filter(|group| !group.ip().is_unspecified() && group.port() != 0).ok_or_else(|| {
        format!(
            "\"{text}\" is no group: use a multicast or broadcast address, like 239.1.2.3, or with a port, \
             192.168.1.255:{PORT}"
        )
    })
}

/// Why these arguments make no sense with or without `--group`, if so.
pub(in crate::perf) fn refused(args: &ClientArgs) -> Option<&'static str> {
    if args.group.is_none() {
        let is_one = args.others.is_empty();
        return (!is_one).then_some(
            "several servers are for --qp ud --group: name one, or a group that they hear",
        );
    }
    let refused = [
        (args.qp != "ud", "--group is for --qp ud: take it, or leave --group out"),
        (
            args.verb != Verb::Send,
            "--group is for --verb send: writes go to the memory of one server",
        ),
        (args.peers > 1, "--group is for one queue pair: leave --peers out"),
        (args.pace.rate.is_none(), "--group needs --rate: no server says how fast it can take it"),
        (
            args.pace.cc.is_some_and(|cc| cc != ControllerKind::Fixed),
            "--group has the rate that is given: leave --cc out",
        ),
        (
            args.end.progress != "threads",
            "--group needs --progress threads, which repair while the servers count",
        ),
    ];
    refused.into_iter().find_map(|(is_so, why)| is_so.then_some(why))
}

/// Takes what is sent to a group: its multicast groups have to be joined, broadcasts come anyway.
pub(super) fn join(qp: &QueuePair, group: SocketAddr) -> Result<(), String> {
    if !group.ip().to_canonical().is_multicast() {
        return Ok(());
    }
    let joined = qp.join(group.ip(), 0);
    joined.map_err(|error| format!("cannot join the group {}: {error}", ScopedIp::from(group)))
}

/// What came to one of the servers of a group.
#[derive(Debug, Clone, Serialize)]
pub(in crate::perf) struct Receiver {
    host: String,
    /// Of what it has; of it, like the time, none is of the warm-up.
    pub(in crate::perf) gbit_per_s: Option<f64>,
    #[serde(flatten)]
    counted: ReceiverCounts,
}

#[derive(Debug, Clone, Serialize)]
struct ReceiverCounts {
    placed_fraction: Option<f64>,
    messages_whole: Option<u64>,
    messages_missed: Option<u64>,
    no_buffer_packets: Option<u64>,
    duplicate_packets: Option<u64>,
}

impl Receiver {
    /// `counters`: those of the server, if they are known.
    pub(super) fn new(
        host: &str,
        counted: &Counted,
        counters: Option<&protocol::Counters>,
    ) -> Self {
        let counted = ReceiverCounts {
            placed_fraction: counted.placed_fraction,
            messages_whole: counted.messages_whole,
            messages_missed: counted.messages_missed,
            no_buffer_packets: counted.no_buffer_packets,
            duplicate_packets: counters.map(|counters| counters.duplicate_packets),
        };
        Self { host: host.to_owned(), gbit_per_s: None, counted }
    }

    pub(in crate::perf) fn placed_fraction(&self) -> Option<f64> {
        self.counted.placed_fraction
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let ReceiverCounts { placed_fraction, messages_whole, messages_missed, .. } = self.counted;
        let (Some(placed), Some(whole), Some(missed)) =
            (placed_fraction, messages_whole, messages_missed)
        else {
            return format!(" {}: what came is not known", self.host);
        };
        let dropped = match self.counted.no_buffer_packets {
            Some(count @ 1..) => format!("; packets without a receive {count}"),
            _ => String::new(),
        };
        format!(
            " {}: {:.2} Gbit/s, {:.3} % of the bytes: messages whole {whole}, missed {missed}{dropped}",
            self.host,
            self.gbit_per_s.unwrap_or(0.0),
            placed * 100.0,
        )
    }
}

/// The group's name at the start and in reports.
pub(super) fn name(group: SocketAddr) -> String {
    show(group).to_string()
}

/// A server that takes what is sent to another port does not know of groups.
pub(super) fn check(host: &str, group: SocketAddr, port: u16) -> Result<(), Failure> {
    if port == group.port() {
        return Ok(());
    }
    Err(Failure::Network(format!("{host} is of an older version, which has no --group: update it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_an_address_with_or_without_a_port() {
        let group = |text| parse(text).map(name);
        assert_eq!(group("239.1.2.3"), Ok("239.1.2.3:7409".to_owned()));
        assert_eq!(group("10.0.0.255:81"), Ok("10.0.0.255:81".to_owned()));
        assert_eq!(group("[ff05::1]:81"), Ok("[ff05::1]:81".to_owned()));
        assert_eq!(group("ff05::1"), Ok("[ff05::1]:7409".to_owned()));
        for text in ["", "0.0.0.0", "81", "239.1.2.3:0", "239.1.2.3:", "all"] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("is no group") && !error.contains('\n'), "{error}");
        }
    }
}
