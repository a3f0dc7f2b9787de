//! `lacuna wan run --json` as a process: started, waited for, and its result read.
//!
//! It starts the server and the client in their hosts and prints both of their results and processor times in
//! one object. If it prints none, this machine gives no hosts, and no further run can work; if it prints one
//! without a client's result, only this run has failed.

use crate::failure::Failure;
use crate::interrupt;
use lacuna::INSECURE_VARIABLE;
use lacuna::datapath::limit::Said;
use lacuna_service::thread;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The server's address, in its host.
pub(super) const SERVER: &str = "10.77.0.1";
/// A run is given up after its time and this: go-back-N may take long to finish what is in flight.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// How long a run may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// What a run prints, as far as it is used.
#[derive(Debug, Deserialize)]
pub(super) struct WanResult {
    pub(super) to_server: Way,
    pub(super) to_client: Way,
    pub(super) server: Option<Program>,
    pub(super) client: Program,
}

#[derive(Debug, Deserialize)]
pub(super) struct Way {
    pub(super) queue_dropped: u64,
    pub(super) device_dropped_frames: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Program {
    pub(super) exit_code: Option<i32>,
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    pub(super) stdout: Option<String>,
}

/// What a run has printed to both of its outputs.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) result: String,
    pub(super) said: String,
}

/// Runs `program` with these arguments to its end; `None` if it was given up after `limit`.
///
/// # Errors
/// When no further run can work, or it was interrupted.
pub(super) fn run(
    program: &Path,
    words: &[String],
    limit: Duration,
) -> Result<Option<Printed>, Failure> {
    let mut command = Command::new(program);
    // Its hosts are alone on their network.
    command.args(words).env(INSECURE_VARIABLE, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failure =
        |error: io::Error| Failure::Local(format!("cannot start a run: {}", Said(&error)));
    let mut child = command.spawn().map_err(failure)?;
    let stdout = child.stdout.take().map(read_all).transpose()?;
    let stderr = child.stderr.take().map(read_all).transpose()?;
    let text = |reader: Option<JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let is_late = wait(&mut child, limit)?;
    let (result, said) = (text(stdout), text(stderr));
    if interrupt::requested() {
        return Err(Failure::Interrupted);
    }
    Ok((!is_late).then_some(Printed { result, said }))
}

/// Reads to the end on a thread, so that the process never waits for its reader.
fn read_all(mut from: impl Read + Send + 'static) -> Result<JoinHandle<String>, Failure> {
    let read = move || {
        let mut text = Vec::new();
        let _ = from.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    Ok(thread::start("lacuna-live", read)?)
}

/// Waits for the end of a run; true if it was given up. After a signal, the run is ended first, with its hosts.
fn wait(child: &mut Child, limit: Duration) -> Result<bool, Failure> {
    let failure =
        |error: io::Error| Failure::Local(format!("cannot wait for a run: {}", Said(&error)));
    let give_up = Instant::now() + limit;
    let mut asked: Option<Instant> = None;
    loop {
        if child.try_wait().map_err(failure)?.is_some() {
            return Ok(asked.is_some());
        }
        let now = Instant::now();
        match asked {
            None if interrupt::requested() || now >= give_up => {
                let _ = kill_process(Pid::from_child(child), Signal::TERM);
                asked = Some(now);
            }
            // The hosts end with the process, also when it is killed.
            Some(since) if now >= since + GRACE => child.kill().map_err(failure)?,
            _ => {}
        }
        std::thread::sleep(interrupt::POLL_INTERVAL);
    }
}

impl Printed {
    /// The run's result.
    ///
    /// # Errors
    /// When there is none: nothing is measured on this machine.
    pub(super) fn parse(&self) -> Result<WanResult, Failure> {
        self.object()
    }

    /// The same of a run whose result has another shape.
    ///
    /// # Errors
    /// When there is none: nothing is measured on this machine.
    pub(super) fn object<T: for<'d> Deserialize<'d>>(&self) -> Result<T, Failure> {
        let result = self.result.lines().last().map(serde_json::from_str::<T>);
        let Some(Ok(result)) = result else {
            return Err(Failure::Local(format!("nothing is measured live: {}", self.complaint())));
        };
        Ok(result)
    }

    /// The first complaint of the programs: what follows is often that the others were ended.
    pub(super) fn complaint(&self) -> String {
        let first = self.said.lines().find_map(|line| line.strip_prefix("lacuna: "));
        first.or(self.said.lines().last()).unwrap_or("it said nothing").to_owned()
    }
}

impl WanResult {
    /// Packets that found the link's queue full, and frames that the machine lost by itself.
    pub(super) fn dropped(&self) -> (u64, u64) {
        let ways = [&self.to_server, &self.to_client];
        let queue = ways.iter().map(|way| way.queue_dropped).sum();
        (queue, ways.iter().map(|way| way.device_dropped_frames).sum())
    }
}

impl Program {
    /// The last object that it printed.
    pub(super) fn last_object<T: for<'d> Deserialize<'d>>(&self) -> Option<T> {
        serde_json::from_str(self.stdout.as_ref()?.lines().last()?).ok()
    }
}
