//! Contestants of the race as data: `wan/contestants.toml`. Each says which program moves the bytes
//! with which settings, what these are for, and what has to be installed.

use super::cell::Cell;
use super::end::Program;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    /// A program that has to be built first: C++ beside the data, and its libraries. In the words
    /// of the program it is `{built}`.
    pub(crate) source: Option<String>,
    #[serde(default)]
    pub(crate) libraries: Vec<String>,
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
        if let Some(missing) = self.needs.iter().find(|program| !is_installed(program)) {
            return Some(format!("{missing} is not installed (Debian: {})", self.package));
        }
        let is_there = self.built()?.is_file() || self.build().is_ok();
        (!is_there).then(|| format!("it cannot be built here (Debian: {})", self.package))
    }

    /// What is run: words that name what was built are filled in.
    pub(crate) fn program(&self) -> Program {
        let mut program = self.program.clone();
        if let (Program::Piped { server, client }, Some(built)) = (&mut program, self.built()) {
            for word in server.iter_mut().chain(client) {
                *word = word.replace("{built}", &built.to_string_lossy());
            }
        }
        program
    }

    /// Where a program that is built lies: beside this one.
    fn built(&self) -> Option<PathBuf> {
        let source = Path::new(self.source.as_ref()?);
        let folder = std::env::current_exe().ok()?.parent()?.to_owned();
        Some(folder.join(format!("race-{}", source.file_stem()?.to_string_lossy())))
    }

    fn build(&self) -> Result<()> {
        let (source, built) = self.source.as_ref().zip(self.built()).context("nothing to build")?;
        let status = Command::new("c++")
            .args(["-O2", "-o"])
            .arg(built)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("wan").join(source))
            .args(self.libraries.iter().map(|library| format!("-l{library}")))
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "c++ ended with {status}");
        Ok(())
    }
}

fn is_installed(program: &str) -> bool {
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
