//! A program in a host: what it says on the way, what it used in the end.

use super::end::Line;
use anyhow::{Context, Result};
use lacuna_wan::{Host, Outcome, Program};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a program may take to end once it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// What is kept of what it complains of.
const COMPLAINT_BYTES_MAX: u64 = 4 << 10;

pub(crate) struct Process {
    name: String,
    program: Program,
    /// Lines of an end of ours; of others nothing is expected.
    pub(crate) lines: Receiver<Line>,
    complaint: JoinHandle<String>,
}

impl Process {
    /// Starts it in a host.
    pub(crate) fn start(host: &Host, mut command: Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        host.place(&mut command)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let program = Program::new(&child)?;
        let out = child.stdout.take().context("piped")?;
        let (said, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str(&line) {
                    // The race may have heard enough.
                    let _ = said.send(line);
                }
            }
        });
        let mut errors = child.stderr.take().context("piped")?;
        let complaint = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = (&mut errors).take(COMPLAINT_BYTES_MAX).read_to_end(&mut text);
            // The program must not block on a full pipe.
            let _ = std::io::copy(&mut errors, &mut std::io::sink());
            String::from_utf8_lossy(&text).trim().to_owned()
        });
        Ok(Self { name, program, lines, complaint })
    }

    /// Whether it has ended by itself within this time.
    pub(crate) fn has_ended(&mut self, within: Duration) -> Result<bool> {
        Ok(self.program.wait(within)?.is_some())
    }

    /// Ends it if it still runs; what it used.
    pub(crate) fn end(&mut self) -> Result<Outcome> {
        self.program.terminate();
        let give_up = Instant::now() + GRACE;
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.program.kill();
            }
            if let Some(outcome) = self.program.wait(left.max(Duration::from_millis(50)))? {
                return Ok(outcome);
            }
        }
    }

    /// Why it failed, for people. Everything in its host has ended.
    pub(crate) fn complaint(self) -> String {
        let text = self.complaint.join().unwrap_or_default();
        let last = text.lines().last().unwrap_or("it said nothing").to_owned();
        format!("{}: {last}", self.name.rsplit('/').next().unwrap_or(&self.name))
    }
}
