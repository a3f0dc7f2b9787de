//! The round-trip time as the handshake has found it.

/// Delay that hosts may add to a round trip by waking up late. A judgement.
pub(super) const SLACK_NS: u64 = 1_000_000;

/// A round-trip time in nanoseconds, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rtt {
    /// Measured on packets that take the same path as the data.
    Measured(u64),
    /// Lower and upper bound, from TCP alone. Used until there is a sample, or another estimate
    /// agrees.
    Guessed(u64, u64),
}

impl Rtt {
    /// The round-trip time from an exchange that took `took_ns`, which is an upper bound. TCP's own
    /// measurement is larger if TCP's first packet was lost. It is much smaller if a packet of the
    /// exchange was lost, or a proxy answers for the peer.
    pub fn of_exchange(tcp_ns: Option<u64>, took_ns: u64) -> Self {
        let least_ns = tcp_ns.unwrap_or(took_ns).min(took_ns);
        if tcp_ns.is_some() && took_ns <= least_ns + least_ns / 2 + SLACK_NS {
            Self::Measured(least_ns)
        } else {
            Self::Guessed(least_ns, took_ns)
        }
    }

    /// Lower and upper bound.
    pub fn range_ns(self) -> (u64, u64) {
        match self {
            Self::Measured(ns) => (ns, ns),
            Self::Guessed(least_ns, most_ns) => (least_ns, most_ns),
        }
    }

    /// Upper bound.
    pub fn most_ns(self) -> u64 {
        self.range_ns().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_exchange_says_what_a_round_trip_takes_at_most() {
        let of = |tcp_ms: Option<u64>, took_ms: u64| {
            Rtt::of_exchange(tcp_ms.map(|ms| ms * MS), took_ms * MS)
        };
        assert_eq!(of(Some(40), 41), Rtt::Measured(40 * MS));
        // The first packet of TCP was lost, and its time is no round trip.
        assert_eq!(of(Some(927), 41), Rtt::Measured(41 * MS));
        // A packet of the exchange was lost.
        assert_eq!(of(Some(40), 287), Rtt::Guessed(40 * MS, 287 * MS));
        assert_eq!(of(None, 41), Rtt::Guessed(41 * MS, 41 * MS));
    }
}
