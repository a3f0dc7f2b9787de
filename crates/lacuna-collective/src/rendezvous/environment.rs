//! A meeting by the variables that `torchrun`, Slurm's scripts and others set: `MASTER_ADDR`, `MASTER_PORT`, `RANK`,
//! `WORLD_SIZE`; and `LACUNA_RENDEZVOUS` (`HOST:PORT`) and `LACUNA_JOB` where they are wanted otherwise. With `LACUNA_JOIN`
//! (`HOST:PORT`) the rank joins a group that is there, and needs none of the others.

use super::Meeting;
use std::time::Duration;

/// Ranks of one run start about together.
pub(super) const TIMEOUT: Duration = Duration::from_secs(300);

/// What the variables lack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// One is not there.
    #[error(
        "the variable {name} is not set: torchrun sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE"
    )]
    Missing {
        /// Which.
        name: &'static str,
    },
    /// One is no number.
    #[error("{name}={value} is no number")]
    Number {
        /// Which.
        name: &'static str,
        /// What it holds.
        value: String,
    },
}

impl Meeting {
    /// As the environment says.
    ///
    /// # Errors
    /// When a variable is missing or makes no sense.
    pub fn from_environment() -> Result<Self, EnvironmentError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    pub(super) fn from_variables(
        read: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, EnvironmentError> {
        let get = |name| read(name).ok_or(EnvironmentError::Missing { name });
        let number = |name| {
            let value = get(name)?;
            value.trim().parse().map_err(|_| EnvironmentError::Number { name, value })
        };
        let job = read("LACUNA_JOB")
            .or_else(|| {
                let run = read("TORCHELASTIC_RUN_ID")?;
                // A run that torchrun starts again is another meeting.
                let restart = read("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
                Some(format!("{run}.{restart}"))
            })
            .or_else(|| read("SLURM_JOB_ID"))
            .unwrap_or_default();
        if let Some(host) = read("LACUNA_JOIN") {
            return Ok(Self { job, ..Self::joining(&host) });
        }
        let (rank, ranks) = (number("RANK")?, number("WORLD_SIZE")?);
        let host = match read("LACUNA_RENDEZVOUS") {
            Some(host) => host,
            None => {
                let address = get("MASTER_ADDR")?;
                let port = number("MASTER_PORT")?;
                // torchrun's own store listens at that port.
                let is_taken = read("TORCHELASTIC_USE_AGENT_STORE")
                    .is_some_and(|value| value.eq_ignore_ascii_case("true"));
                let port = port + usize::from(is_taken);
                let is_v6 = address.contains(':') && !address.starts_with('[');
                if is_v6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
            }
        };
        Ok(Self { host, rank, ranks, job, timeout: TIMEOUT })
    }
}
