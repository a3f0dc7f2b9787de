//! Which ways a packet takes from a host to another.
//!
//! Every link is two ways. In a star each host has a link to a switch in the middle. In a ring it has one to the next
//! host and one to the host before it; packets for others pass through the hosts' sites, over as few links as possible,
//! and clockwise (by rising numbers) where both directions have as many.
//!
//! Invariants: a route exists between any two hosts, uses no way twice and ends at its host.

use std::fmt;

/// How hosts are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Each host has a link to a switch in the middle.
    Star,
    /// Each host has a link to the next one, and the last to the first.
    Ring,
}

impl Topology {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Star => "star",
            Self::Ring => "ring",
        }
    }
}

/// Where a way begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A host, by its number, 1 is the first.
    Host(u8),
    /// The switch in the middle of a star.
    Switch,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(number) => write!(f, "host {number}"),
            Self::Switch => f.write_str("switch"),
        }
    }
}

/// What follows when a packet has come to the end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another step.
    Step(usize),
    /// It is there: the host's index.
    Arrived(usize),
}

/// A way of a route, and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) way: usize,
    pub(super) next: Next,
}

/// Ways, and routes over them; hosts are indices from 0 on.
#[derive(Debug)]
pub(super) struct Routes {
    hosts: usize,
    /// The ends of each way. Those with even indices lead to the switch, or clockwise.
    ends: Vec<(Node, Node)>,
    steps: Vec<Step>,
    /// The first step from each host to each host; `None` to itself.
    first: Vec<Option<usize>>,
}

impl Routes {
    pub(super) fn new(topology: Topology, hosts: u8) -> Self {
        let count = usize::from(hosts);
        let number = |host: usize| Node::Host((host % count) as u8 + 1);
        let both = |host: usize| match topology {
            Topology::Star => [(number(host), Node::Switch), (Node::Switch, number(host))],
            Topology::Ring => [(number(host), number(host + 1)), (number(host + 1), number(host))],
        };
        let ends = (0..count).flat_map(both).collect();
        let (mut steps, mut first) = (vec![], vec![]);
        for from in 0..count {
            for to in 0..count {
                let ways = route(topology, count, from, to);
                first.push((!ways.is_empty()).then_some(steps.len()));
                for (at, way) in ways.iter().enumerate() {
                    let is_last = at + 1 == ways.len();
                    let next =
                        if is_last { Next::Arrived(to) } else { Next::Step(steps.len() + 1) };
                    steps.push(Step { way: *way, next });
                }
            }
        }
        Self { hosts: count, ends, steps, first }
    }

    /// The ends of each way.
    pub(super) fn ends(&self) -> &[(Node, Node)] {
        &self.ends
    }

    /// The first step of the route to a host, `None` if it is the host itself or there is no such host.
    pub(super) fn first(&self, from: usize, to: usize) -> Option<usize> {
        if to >= self.hosts {
            return None;
        }
        *self.first.get(from * self.hosts + to)?
    }

    pub(super) fn step(&self, step: usize) -> Step {
        self.steps[step]
    }
}

/// The ways between two hosts: way 2 i leads from host i to the switch or to the next host, way 2 i + 1 back.
fn route(topology: Topology, hosts: usize, from: usize, to: usize) -> Vec<usize> {
    if from == to {
        return vec![];
    }
    if topology == Topology::Star {
        return vec![2 * from, 2 * to + 1];
    }
    let clockwise = (to + hosts - from) % hosts;
    let counterclockwise = hosts - clockwise;
    match clockwise <= counterclockwise {
        true => (0..clockwise).map(|at| 2 * ((from + at) % hosts)).collect(),
        false => (1..=counterclockwise).map(|at| 2 * ((from + hosts - at) % hosts) + 1).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes that a packet comes through, and the host where it ends.
    fn nodes(routes: &Routes, from: usize, to: usize) -> (Vec<Node>, usize) {
        let mut at = routes.first(from, to).expect("a route");
        let mut passed = vec![];
        loop {
            let Step { way, next } = routes.step(at);
            let (begin, end) = routes.ends()[way];
            assert_eq!(*passed.last().unwrap_or(&Node::Host(from as u8 + 1)), begin);
            passed.push(end);
            match next {
                Next::Step(next) => at = next,
                Next::Arrived(host) => return (passed, host),
            }
        }
    }

    #[test]
    fn in_a_star_every_packet_passes_the_switch() {
        let routes = Routes::new(Topology::Star, 4);
        assert_eq!(routes.ends().len(), 8);
        assert_eq!(nodes(&routes, 0, 3), (vec![Node::Switch, Node::Host(4)], 3));
        assert_eq!(nodes(&routes, 2, 1), (vec![Node::Switch, Node::Host(2)], 1));
        assert_eq!((routes.first(1, 1), routes.first(0, 4)), (None, None));
    }

    #[test]
    fn in_a_ring_packets_take_the_shorter_way_around() {
        let hosts = |numbers: &[u8]| numbers.iter().map(|number| Node::Host(*number)).collect();
        let routes = Routes::new(Topology::Ring, 5);
        assert_eq!(nodes(&routes, 0, 1), (hosts(&[2]), 1));
        assert_eq!(nodes(&routes, 4, 1), (hosts(&[1, 2]), 1));
        assert_eq!(nodes(&routes, 0, 3), (hosts(&[5, 4]), 3));
        // As long both ways.
        let routes = Routes::new(Topology::Ring, 4);
        assert_eq!(nodes(&routes, 3, 1), (hosts(&[1, 2]), 1));
    }

    #[test]
    fn every_route_ends_at_its_host_and_uses_no_way_twice() {
        for topology in [Topology::Star, Topology::Ring] {
            for hosts in 3..=12 {
                let routes = Routes::new(topology, hosts);
                let hosts = usize::from(hosts);
                for (from, to) in (0..hosts * hosts).map(|pair| (pair / hosts, pair % hosts)) {
                    let ways = route(topology, hosts, from, to);
                    let mut different = ways.clone();
                    different.sort_unstable();
                    different.dedup();
                    assert_eq!(ways.len(), different.len());
                    assert!(ways.len() <= (hosts / 2).max(2), "{from} to {to} of {hosts}");
                    if from != to {
                        assert_eq!(nodes(&routes, from, to).1, to);
                    }
                }
            }
        }
    }

    #[test]
    fn two_hosts_of_a_ring_have_two_links() {
        let routes = Routes::new(Topology::Ring, 2);
        assert_eq!(nodes(&routes, 0, 1).1, 1);
        assert_eq!(routes.step(routes.first(0, 1).unwrap()).way, 0);
        // Clockwise goes on around.
        assert_eq!(routes.step(routes.first(1, 0).unwrap()).way, 2);
    }
}
