//! The programs in the hosts: started in order, watched, and ended. Their output goes where it belongs: through,
//! behind the name of the host, or into the result.

use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use lacuna::datapath::limit;
use lacuna_service::thread;
use lacuna_wan::{Outcome, Program, Side, Wan};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most output of a program that is kept for `--json`.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Longest piece of a line that is written at a time behind the name of its host.
const LINE_BYTES_MAX: u64 = 16 << 10;

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
    /// Write what it says behind the name of its host.
    tellers: Vec<JoinHandle<()>>,
}

/// A standard stream of this process.
#[derive(Clone, Copy)]
pub(super) enum Stream {
    Output,
    Error,
}

/// What becomes of a program's standard output.
pub(super) enum Said {
    /// It goes through.
    Through(Stream),
    /// It goes behind this prefix, as does what the program writes to standard error.
    Behind(String, Stream),
    /// It is kept; what the program writes to standard error goes behind this prefix, if there is one.
    Kept(Option<String>),
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
        let mut command = Command::new(name);
        command.args(arguments);
        let host = wan.host(side);
        host.place(&mut command).map_err(|error| unstarted(side.name(), name, &error))?;
        command.env("LACUNA_WAN_PEER_PID", wan.host(side.other()).pid().to_string());
        if side == Side::Server {
            command.stdin(Stdio::null());
        }
        let said = match (output.json, side) {
            (true, _) => Said::Kept(None),
            (false, Side::Server) => Said::Through(Stream::Error),
            (false, Side::Client) => Said::Through(Stream::Output),
        };
        Self::spawn(command, words, side.name(), said)
    }

    /// Starts a program that has been placed in a host. `who` it is, for errors.
    pub(super) fn spawn(
        mut command: Command,
        words: &[String],
        who: &str,
        said: Said,
    ) -> Result<Self, Failure> {
        let failure = |error: io::Error| unstarted(who, &words[0], &error);
        match &said {
            Said::Through(Stream::Output) => {}
            Said::Through(Stream::Error) => {
                let notes = io::stderr().as_fd().try_clone_to_owned().map_err(failure)?;
                command.stdout(notes);
            }
            Said::Behind(..) | Said::Kept(Some(_)) => {
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
            }
            Said::Kept(None) => {
                command.stdout(Stdio::piped());
            }
        }
        let mut child = command.spawn().map_err(failure)?;
        let program = Program::new(&child).map_err(failure)?;
        let mut running = Self { words: words.to_vec(), program, output: None, tellers: vec![] };
        match running.listen(&mut child, said) {
            Ok(()) => Ok(running),
            Err(failure) => {
                running.end()?;
                Err(failure)
            }
        }
    }

    /// Starts the threads that read what it says.
    fn listen(&mut self, child: &mut Child, said: Said) -> Result<(), Failure> {
        let (prefix, stream) = match said {
            Said::Through(_) => return Ok(()),
            Said::Behind(prefix, stream) => (Some(prefix), Some(stream)),
            Said::Kept(prefix) => (prefix, None),
        };
        if let Some(stdout) = child.stdout.take() {
            match (&prefix, stream) {
                (Some(prefix), Some(stream)) => {
                    let prefix = prefix.clone();
                    let tell = move || tell(stdout, &prefix, stream);
                    self.tellers.push(thread::start("lacuna-output", tell)?);
                }
                _ => self.output = Some(thread::start("lacuna-output", move || keep(stdout))?),
            }
        }
        if let (Some(prefix), Some(stderr)) = (prefix, child.stderr.take()) {
            let tell = move || tell(stderr, &prefix, Stream::Error);
            self.tellers.push(thread::start("lacuna-output", tell)?);
        }
        Ok(())
    }

    /// Its name, as it was given.
    pub(super) fn name(&self) -> &str {
        &self.words[0]
    }

    /// Asks the program to end.
    pub(super) fn terminate(&self) {
        self.program.terminate();
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
        for teller in self.tellers {
            // It has nothing to give back.
            let _ = teller.join();
        }
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

/// A program that was not started.
pub(super) fn unstarted(who: &str, name: &str, error: &io::Error) -> Failure {
    Failure::Local(format!("cannot start the {who} {name}: {}", limit::Said(error)))
}

/// Writes each line behind a prefix, until the end.
fn tell(from: impl Read, prefix: &str, stream: Stream) {
    let mut from = BufReader::new(from);
    let mut line = vec![];
    loop {
        line.clear();
        line.extend_from_slice(prefix.as_bytes());
        match (&mut from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(_) => line.push(b'\n'),
        }
        // Where nobody reads, the program is still read, so that it does not block on a full pipe.
        let _ = match stream {
            Stream::Output => io::stdout().lock().write_all(&line),
            Stream::Error => io::stderr().lock().write_all(&line),
        };
    }
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
