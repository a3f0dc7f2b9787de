//! The programs in the hosts: started in order, watched, and ended.

use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use lacuna::datapath::limit::Said;
use lacuna_service::thread;
use lacuna_wan::{Outcome, Program, Side, Wan};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most output of a program that is kept for `--json`.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// How long a program may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);

/// How often a server is checked until it listens.
const LISTEN_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A program in a host.
pub(super) struct Running {
    words: Vec<String>,
    program: Program,
    /// Reads the program's standard output, if it is kept.
    output: Option<JoinHandle<Vec<u8>>>,
}

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) words: Vec<String>,
    pub(super) outcome: Outcome,
    /// Its standard output, if that was kept.
    pub(super) output: Option<String>,
}

impl Running {
    /// Starts a program in a host. With `--json` its output becomes part of the result; else the
    /// client writes to standard output, and the server to standard error.
    pub(super) fn start(
        wan: &Wan,
        side: Side,
        words: &[String],
        output: Output,
    ) -> Result<Self, Failure> {
        let [name, arguments @ ..] = words else {
            return Err(Failure::Usage("a program without a name".to_owned()));
        };
        let failure = |error: io::Error| {
            let why = Said(&error);
            Failure::Local(format!("cannot start the {} {name}: {why}", side.name()))
        };
        let mut command = Command::new(name);
        command.args(arguments);
        let host = wan.host(side);
        host.place(&mut command).map_err(failure)?;
        command.env("LACUNA_WAN_PEER_PID", wan.host(side.other()).pid().to_string());
        if side == Side::Server {
            command.stdin(Stdio::null());
        }
        if output.json {
            command.stdout(Stdio::piped());
        } else if side == Side::Server {
            let notes = io::stderr().as_fd().try_clone_to_owned().map_err(failure)?;
            command.stdout(notes);
        }
        let mut child = command.spawn().map_err(failure)?;
        let program = Program::new(&child).map_err(failure)?;
        let mut running = Self { words: words.to_vec(), program, output: None };
        if let Some(stdout) = child.stdout.take() {
            match thread::start("lacuna-output", move || keep(stdout)) {
                Ok(thread) => running.output = Some(thread),
                Err(error) => {
                    running.end()?;
                    return Err(error.into());
                }
            }
        }
        Ok(running)
    }

    /// The outcome, if it ends within `timeout`.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<Option<Outcome>, Failure> {
        let outcome = self.program.wait(timeout);
        outcome
            .map_err(|error| Failure::Local(format!("cannot wait for {}: {error}", self.words[0])))
    }

    /// Asks the program to end, kills it if needed, and returns the outcome.
    pub(super) fn end(&mut self) -> Result<Outcome, Failure> {
        let give_up = Instant::now() + GRACE;
        self.program.terminate();
        loop {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.program.kill();
            }
            if let Some(outcome) = self.wait(left.max(interrupt::POLL_INTERVAL))? {
                return Ok(outcome);
            }
        }
    }

    /// The result. All programs in the hosts have ended, so nothing is written any more.
    pub(super) fn ended(self, outcome: Outcome) -> Ended {
        let output = self.output.and_then(|output| output.join().ok());
        let output = output.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ended { words: self.words, outcome, output }
    }
}

/// Waits until a program in the server's host listens, at most `timeout`.
pub(super) fn wait_until_ready(
    wan: &Wan,
    server: &mut Running,
    timeout: Duration,
    output: Output,
) -> Result<(), Failure> {
    let give_up = Instant::now() + timeout;
    while !wan.host(Side::Server).is_listening() {
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
        if let Some(outcome) = server.wait(LISTEN_POLL_INTERVAL)? {
            return Err(Failure::Local(format!(
                "the server {} ended before it listened ({})",
                server.words[0],
                show_status(outcome.status)
            )));
        }
        if Instant::now() >= give_up {
            output.note("nothing listens in the server's host yet; starting the client (--ready)");
            return Ok(());
        }
    }
    Ok(())
}

/// Reads to the end and keeps the beginning.
fn keep(mut from: impl Read) -> Vec<u8> {
    let mut bytes = vec![];
    let _ = (&mut from).take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
    // Read on, so that the program does not block on a full pipe.
    let _ = io::copy(&mut from, &mut io::sink());
    bytes
}

/// The exit code as a shell reports it: 128 plus the signal for a killed program.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255)
}

/// A status in words.
pub(super) fn show_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        for (status, code, text) in
            [(0, 0, "exit code 0"), (3 << 8, 3, "exit code 3"), (15, 143, "signal 15")]
        {
            let status = ExitStatus::from_raw(status);
            assert_eq!((exit_code(status), &*show_status(status)), (code, text));
        }
    }

    #[test]
    fn long_output_is_cut_and_still_read() {
        let mut endless = io::repeat(b'x').take(OUTPUT_BYTES_MAX + 12345);
        assert_eq!(keep(&mut endless).len() as u64, OUTPUT_BYTES_MAX);
        assert_eq!(endless.limit(), 0);
    }
}
