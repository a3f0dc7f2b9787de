//! Many workloads at once, on all cores.

use crate::connections::{Measured, Workload};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effort {
    /// A coarse grid, a minute or a few.
    Quick,
    /// The paper's grid, five seeds.
    Full,
}

impl Effort {
    /// One value for each effort.
    pub(crate) fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// How an experiment is run.
pub struct Lab<'l> {
    /// How much is run.
    pub effort: Effort,
    /// Everything ends soon once this is true.
    pub stop: &'l (dyn Fn() -> bool + Sync),
    /// Told of what is done, of how much.
    pub progress: &'l (dyn Fn(usize, usize) + Sync),
}

impl std::fmt::Debug for Lab<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab").field("effort", &self.effort).finish_non_exhaustive()
    }
}

/// It was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Stopped;

impl Lab<'_> {
    /// Runs all workloads, each with so many seeds from its own on, and pools the seeds' runs.
    ///
    /// # Errors
    /// When it was told to stop.
    pub fn run(&self, workloads: &[Workload], seeds: u64) -> Result<Vec<Measured>, Stopped> {
        let runs: Vec<Workload> = workloads
            .iter()
            .flat_map(|workload| {
                (0..seeds).map(|seed| Workload { seed: workload.seed + seed, ..workload.clone() })
            })
            .collect();
        let measured = self.each(&runs, |workload| workload.run(self.stop))?;
        let seeds = seeds.max(1) as usize;
        Ok(measured.chunks(seeds).map(|runs| Measured::pooled(runs.to_vec())).collect())
    }

    /// Does each of these, on all cores; `one` is `None` if it was told to stop.
    ///
    /// # Errors
    /// When it was told to stop.
    pub fn each<W: Sync, M: Send>(
        &self,
        runs: &[W],
        one: impl Fn(&W) -> Option<M> + Sync,
    ) -> Result<Vec<M>, Stopped> {
        let done = AtomicUsize::new(0);
        (self.progress)(0, runs.len());
        let measured: Option<Vec<M>> = runs
            .par_iter()
            .with_max_len(1)
            .map(|run| {
                let measured = one(run)?;
                (self.progress)(done.fetch_add(1, Ordering::Relaxed) + 1, runs.len());
                Some(measured)
            })
            .collect();
        measured.ok_or(Stopped)
    }
}
