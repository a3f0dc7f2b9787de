//! Path MTU discovery by probe packets (RFC 8899), without ICMP messages of routers.
//!
//! Packets are never fragmented, so one that is too large is refused by this host or lost on the path.
//! A size counts as too large when none of six packets arrives: at a loss of 10 % that is wrong once in a
//! million. Between the largest size that passed and the smallest that did not, the search tries the
//! usual MTUs first, each with the byte above it, then bisects: the search is short on common paths and
//! exact to the byte on others.

use super::refusals::REFUSED_RETRY_NS;

/// Packets of one size per round, …
const TRIES_AT_ONCE: u32 = 3;
/// … and rounds.
const ROUNDS: u32 = 2;
/// Length of a round, besides two round trips.
const ROUND_NS: u64 = 50_000_000;
/// Lengths of IP packets: the largest, jumbo frames, Ethernet, PPPoE, IPv6's minimum.
const USUAL: [u32; 5] = [65_535, 9000, 1500, 1492, 1280];

/// The MTU of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMtu {
    /// The largest UDP payload that passed.
    pub payload_bytes: u32,
    /// The size of that packet, headers of IP and UDP included.
    pub packet_bytes: u32,
    /// Whether this host sends no larger packets, so that the path may take more.
    pub is_hosts_limit: bool,
}

/// The search for the MTU; see the module's text. All sizes are UDP payload.
#[derive(Debug)]
pub(super) struct Search {
    overhead_bytes: u32,
    largest_bytes: u32,
    /// The largest size that passed.
    good: u32,
    /// The smallest size that did not.
    bad: u32,
    trying: Option<Trying>,
    /// After a refusal: earliest time of the next packet.
    not_before_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Trying {
    bytes: u32,
    /// Finished rounds.
    rounds: u32,
    /// Packets sent in the current round.
    sent: u32,
    last_ns: u64,
}

impl Search {
    /// Begins with the size of a request, which has passed already.
    pub(super) fn new(largest_bytes: u32, overhead_bytes: u32) -> Self {
        let good = crate::wire::CONTROL_BYTES as u32;
        let largest_bytes = largest_bytes.min(crate::PAYLOAD_BYTES_MAX);
        let bad = largest_bytes.max(good) + 1;
        let mut search =
            Self { overhead_bytes, largest_bytes, good, bad, trying: None, not_before_ns: 0 };
        search.next_size();
        search
    }

    /// The size of a packet to send now, if one is due.
    pub(super) fn wants(&self, now_ns: u64) -> Option<u32> {
        self.next().filter(|(next_ns, _)| now_ns >= *next_ns).map(|(_, bytes)| bytes)
    }

    /// When the next packet of the round may go, and its size; `None` when all have.
    pub(super) fn next(&self) -> Option<(u64, u32)> {
        let trying = self.trying?;
        (trying.sent < TRIES_AT_ONCE).then_some((self.not_before_ns, trying.bytes))
    }

    pub(super) fn on_sent(&mut self, now_ns: u64) {
        if let Some(trying) = &mut self.trying {
            trying.sent += 1;
            trying.last_ns = now_ns;
        }
    }

    /// When waiting for echoes of this round ends.
    pub(super) fn round_ends_ns(&self, rtt_ns: u64) -> u64 {
        self.trying.map_or(0, |trying| trying.last_ns.saturating_add(2 * rtt_ns + ROUND_NS))
    }

    pub(super) fn on_time(&mut self, now_ns: u64, rtt_ns: u64) {
        if self.next().is_some() || now_ns < self.round_ends_ns(rtt_ns) {
            return;
        }
        let Some(trying) = &mut self.trying else { return };
        (trying.rounds, trying.sent) = (trying.rounds + 1, 0);
        if trying.rounds == ROUNDS {
            self.bad = self.bad.min(trying.bytes);
            self.next_size();
        }
    }

    pub(super) fn on_echo(&mut self, bytes: u32) {
        if bytes > self.good && bytes < self.bad {
            self.good = bytes;
            self.next_size();
        }
    }

    pub(super) fn on_too_large(&mut self, bytes: usize) {
        let Ok(bytes) = u32::try_from(bytes) else { return };
        if bytes > self.good && bytes < self.bad {
            self.bad = bytes;
            self.next_size();
        }
    }

    /// This host refused a packet for another reason than its size: send another in its place.
    pub(super) fn on_refused(&mut self, now_ns: u64) {
        if let Some(trying) = &mut self.trying {
            trying.sent = trying.sent.saturating_sub(1);
        }
        self.not_before_ns = now_ns.saturating_add(REFUSED_RETRY_NS);
    }

    /// The MTU, once no size is left between `good` and `bad`.
    pub(super) fn found(&self) -> Option<PathMtu> {
        (self.trying.is_none()).then_some(PathMtu {
            payload_bytes: self.good,
            packet_bytes: self.good + self.overhead_bytes,
            is_hosts_limit: self.good >= self.largest_bytes,
        })
    }

    fn next_size(&mut self) {
        let is_open = |bytes: &u32| *bytes > self.good && *bytes < self.bad;
        let usual = USUAL
            .iter()
            .flat_map(|packet| [*packet, packet + 1])
            .map(|packet| packet.saturating_sub(self.overhead_bytes))
            .find(is_open);
        let middle = || Some(self.good + (self.bad - self.good) / 2).filter(is_open);
        let largest = Some(self.largest_bytes).filter(is_open);
        self.trying = largest
            .filter(|largest| largest + 1 == self.bad)
            .or(usual)
            .or_else(middle)
            .map(|bytes| Trying { bytes, rounds: 0, sent: 0, last_ns: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a path that takes packets of up to `path` bytes, out of a host that takes `host`.
    /// Returns what was found and how many packets that took.
    fn search(path: u32, host: u32) -> (PathMtu, u32) {
        let mut search = Search::new(host - 28, 28);
        let (mut now_ns, mut sent) = (0, 0);
        loop {
            if let Some(found) = search.found() {
                return (found, sent);
            }
            while let Some(bytes) = search.wants(now_ns) {
                sent += 1;
                search.on_sent(now_ns);
                if bytes + 28 > host {
                    search.on_too_large(bytes as usize);
                } else if bytes + 28 <= path {
                    search.on_echo(bytes);
                }
                assert!(sent < 1000, "it goes on for ever");
            }
            now_ns = now_ns.max(search.round_ends_ns(1000));
            search.on_time(now_ns, 1000);
        }
    }

    #[test]
    fn the_mtu_is_found_to_the_byte() {
        for path in [508, 509, 1279, 1280, 1399, 1492, 1500, 1501, 4000, 8999, 9000, 9216, 65_535] {
            let (found, _) = search(path, 65_535);
            assert_eq!((found.packet_bytes, found.payload_bytes), (path, path - 28));
            assert_eq!(found.is_hosts_limit, path == 65_535);
        }
        assert_eq!(search(9000, 1500).0.packet_bytes, 1500);
        assert!(search(9000, 1500).0.is_hosts_limit);
    }

    #[test]
    fn the_common_path_takes_few_packets() {
        assert_eq!(search(65_535, 65_535).1, 1);
        // The largest, 9000 and 1501 do not come through.
        assert_eq!(search(1500, 65_535).1, 3 * TRIES_AT_ONCE * ROUNDS + 1);
    }

    #[test]
    fn a_path_with_a_smaller_limit_than_a_question_is_as_large_as_that() {
        let (found, _) = search(100, 200);
        assert_eq!(found.payload_bytes, crate::wire::CONTROL_BYTES as u32);
    }
}
