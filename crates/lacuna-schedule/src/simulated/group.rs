//! All ranks of a network with their runners, driven until their operations are over.

use super::Network;
use crate::run::{Finished, Job, Runner, Settings};

/// All ranks of a network with their runners.
pub struct Group {
    /// The network.
    pub network: Network,
    runners: Vec<Runner>,
    finished: Vec<Vec<(u64, Finished)>>,
}

impl Group {
    /// A group at time 0.
    #[must_use]
    pub fn new(network: Network, settings: Settings) -> Self {
        let ranks = network.nodes.len();
        let runners = (0..ranks).map(|rank| Runner::new(rank, ranks, settings)).collect();
        Self { network, runners, finished: (0..ranks).map(|_| Vec::new()).collect() }
    }

    /// Starts an operation of a rank.
    pub fn start(&mut self, rank: usize, job: Job) -> u64 {
        self.runners[rank].start(&mut self.network.endpoint(rank), job)
    }

    /// Runs until nothing is in flight, or nothing happens any more, or this time. Returns whether all
    /// operations of ranks that are alive are over.
    pub fn run(&mut self, until_ns: u64) -> bool {
        loop {
            let now_ns = self.network.now_ns;
            for (rank, runner) in self.runners.iter_mut().enumerate() {
                if !self.network.nodes[rank].is_dead {
                    runner.poll(&mut self.network.endpoint(rank));
                    while let Some(finished) = runner.take() {
                        self.finished[rank].push((now_ns, finished));
                    }
                }
            }
            let alive = || {
                let all = self.runners.iter().zip(&self.network.nodes);
                all.filter(|(_, node)| !node.is_dead).map(|(runner, _)| runner)
            };
            if alive().all(|runner| runner.in_flight() == 0) {
                return true;
            }
            let due_ns = alive().filter_map(Runner::poll_timeout);
            let next_ns = due_ns.chain(self.network.next_ns()).min();
            match next_ns.filter(|next_ns| *next_ns <= until_ns) {
                Some(next_ns) => self.network.advance(next_ns),
                None => return false,
            }
        }
    }

    /// The runner of a rank.
    pub fn runner(&mut self, rank: usize) -> &mut Runner {
        &mut self.runners[rank]
    }

    /// Operations of a rank that are over, each with the time.
    pub fn take(&mut self, rank: usize) -> Vec<(u64, Finished)> {
        std::mem::take(&mut self.finished[rank])
    }
}
