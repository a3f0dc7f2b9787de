//! Where a result comes from: machine, kernel, commit, compiler.

use serde::{Deserialize, Serialize};
use std::process::Command;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) receive_buffer_limit_bytes: Option<u64>,
    pub(crate) compiler: String,
    pub(crate) commit: String,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned());
        Self {
            processor,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            receive_buffer_limit_bytes: read("/proc/sys/net/core/rmem_max").trim().parse().ok(),
            compiler: compiler(),
            // Of this checkout, wherever the program was started.
            commit: first_line(
                "git",
                &[
                    "-C",
                    env!("CARGO_MANIFEST_DIR"),
                    "describe",
                    "--always",
                    "--dirty",
                    "--abbrev=12",
                ],
            ),
        }
    }
}

/// The day, in UTC.
pub(crate) fn today() -> String {
    first_line("date", &["-u", "+%Y-%m-%d"])
}

pub(crate) fn compiler() -> String {
    first_line("rustc", &["--version"])
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or("unknown").to_owned()
}
