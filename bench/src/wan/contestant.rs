//! Contestants of the race as data: `wan/contestants.toml`. Each says which program moves the bytes
//! with which settings, what these are for, and what has to be installed.

use super::cell::Cell;
use super::end::Program;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// All of `contestants.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    #[serde(rename = "contestant")]
    contestants: Vec<Contestant>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    /// The settings in words: where they are documented, why these.
    pub(crate) about: String,
    pub(crate) program: Program,
    /// Of both hosts.
    #[serde(default)]
    pub(crate) sysctls: Vec<(String, String)>,
    /// Programs that must be there, and where they come from.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    #[serde(default)]
    pub(crate) package: String,
    /// A tunnel between the ends: its two programs. `{host}` and `{port}` are the server's end of
    /// it, `{to}` is where that end goes on to, and the client connects to `{local}`.
    pub(crate) tunnel: Option<Tunnel>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tunnel {
    pub(crate) server: Vec<String>,
    pub(crate) client: Vec<String>,
}

impl Contestant {
    /// What is not installed, in a sentence.
    pub(crate) fn missing(&self) -> Option<String> {
        let missing = self.needs.iter().find(|program| !is_installed(program))?;
        Some(format!("{missing} is not installed (Debian: {})", self.package))
    }
}

pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

impl File {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("contestants of the race")
    }

    /// The flows of a name in a cell: one, or several at a time, joined by `+`.
    pub(crate) fn flows(&self, name: &str) -> Result<Vec<&Contestant>> {
        let found = name.split('+').map(|name| {
            let found = self.contestants.iter().find(|contestant| contestant.name == name);
            found.with_context(|| format!("no contestant is called {name}"))
        });
        found.collect()
    }

    /// Those that any of the cells runs.
    pub(crate) fn of<'a>(
        &'a self,
        cells: &'a [&Cell],
    ) -> impl Iterator<Item = &'a Contestant> + use<'a> {
        self.contestants.iter().filter(|contestant| {
            let mut names = cells.iter().flat_map(|cell| &cell.contestants);
            names.any(|name| name.split('+').any(|name| name == contestant.name))
        })
    }

    /// Whether every cell's contestants are here and can do its task.
    pub(crate) fn check(&self, cells: &[Cell]) -> Result<()> {
        for cell in cells {
            for name in &cell.contestants {
                let flows = self.flows(name).with_context(|| cell.name.clone())?;
                let is_bulk = matches!(cell.task, super::end::Task::Bulk { .. });
                if flows.len() > 1 && !is_bulk {
                    bail!("{}: only bulk transfers run beside each other", cell.name);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell;
    use super::File;

    #[test]
    fn every_contestant_of_a_cell_is_described() {
        let contestants = File::parse(include_str!("../../wan/contestants.toml")).unwrap();
        let cells = cell::File::parse(include_str!("../../wan/cells.toml")).unwrap();
        contestants.check(&cells.cells().unwrap()).unwrap();
    }
}
