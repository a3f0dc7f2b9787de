//! `lacuna send FILE [USER@]HOST:FOLDER` and `lacuna send [USER@]HOST:PATH FOLDER`: over ssh, as rsync and mosh do it.
//!
//! ssh starts `lacuna over-ssh` at the other host, and the ends exchange keys through it, made for this transfer alone.
//! Files go over UDP, encrypted between these keys. So ssh says who may, and nothing listens there before or after: the
//! far end goes when ssh's connection does.
//!
//! Whichever way the files go, this end connects, as it may be one that nobody can connect to. The address for UDP is
//! the one at which ssh has reached the other host, as that sees it; so aliases in ssh's configuration and hosts behind
//! others work. If nothing comes there, the name as it was given is tried.

mod far;
mod login;
mod words;

pub(super) use far::run as far_end;
pub(super) use login::{Login, Place};
pub(super) use words::Want;

use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use clap::Args;
use lacuna::Security;
use lacuna::trust::{HostKey, PublicKey, Trust};
use lacuna_service::{STOP_POLL, Stop, thread};
use std::io::{self, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use words::{Outcome, PROTOCOL, Ready, Reply, Request};

/// How long UDP has to get through to the far end.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long ssh may take to end once the far end has nothing more to do.
const GOODBYE: Duration = Duration::from_secs(3);
/// Exit codes of ssh: its own trouble; the remote shell found no such program; the program does not know its arguments.
const SSH_FAILED: i32 = 255;
const NOT_FOUND: i32 = 127;
const BAD_USAGE: i32 = 2;

/// How ssh is started, and the far end by it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Over ssh, to or from [USER@]HOST:PATH")]
pub(crate) struct SshArgs {
    /// The command to use instead of ssh, with its options: "ssh -p 2222"
    #[arg(long, short = 'e', value_name = "COMMAND", default_value = "ssh")]
    rsh: String,
    /// Where lacuna is at the other host
    #[arg(long, value_name = "PATH", default_value = "lacuna")]
    remote_lacuna: String,
    /// Ports that the other host may use, TCP and UDP, as its firewall lets them through
    #[arg(long, value_name = "LOW-HIGH", value_parser = ports)]
    ports: Option<(u16, u16)>,
    /// Replace files whose content differs, at the end that receives
    #[arg(long)]
    pub(super) overwrite: bool,
}

/// The far end, and the ssh that it hangs on.
pub(super) struct Far {
    login: Login,
    ssh: Arc<Mutex<Child>>,
    /// The far end ends when this is closed.
    input: Option<ChildStdin>,
    is_over: Arc<AtomicBool>,
    has_ssh_ended: Arc<AtomicBool>,
    /// Ends the transfer, on a signal or when ssh ends.
    pub(super) stop: Stop,
    pub(super) security: Security,
    /// HOST:PORT: where ssh has reached it, or else its name.
    address: String,
    /// Its name, if that is another one.
    other_address: Option<String>,
    /// The names under which it sends, one for each path that it was asked for.
    pub(super) names: Vec<Vec<u8>>,
}

fn ports(text: &str) -> Result<(u16, u16), String> {
    let bounds = text.split_once('-').unwrap_or((text, text));
    match (bounds.0.parse(), bounds.1.parse()) {
        (Ok(low @ 1..), Ok(high)) if low <= high => Ok((low, high)),
        _ => Err("use two ports and a dash, as in 60000-60010".to_owned()),
    }
}

impl Far {
    /// Starts ssh and the far end, and exchanges keys.
    ///
    /// # Errors
    /// When ssh cannot be started or fails, or lacuna there is missing, of another version, or cannot do what is wanted.
    pub(super) fn start(
        login: Login,
        want: Want,
        channels: u8,
        args: &SshArgs,
        output: Output,
    ) -> Result<Self, Failure> {
        let own = HostKey::generate().map_err(|error| Failure::Local(error.to_string()))?;
        let verb = want.verb();
        let request = Request {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            key: own.public().to_string(),
            want,
            channels,
            ports: args.ports,
        };
        let line = format!("{}\n", words::json(&request)?);
        if line.len() as u64 > words::REQUEST_BYTES_MAX {
            return Err(Failure::Usage("too many paths at once".to_owned()));
        }
        let mut child = spawn(&login, args)?;
        let mut input = child.stdin.take();
        let reader = child.stdout.take().map(BufReader::new);
        let ssh = Arc::new(Mutex::new(child));
        // If ssh has ended already, its exit code says more.
        let _ = input.as_mut().map(|input| input.write_all(line.as_bytes()));
        let reply = thread::unless(&interrupt::requested, "lacuna-ssh", move || {
            reader.and_then(words::read_reply)
        });
        let ready = match reply.map_err(Failure::from) {
            Ok(Some(reply)) => ready(&login, verb, reply),
            Ok(None) => Err(no_reply(&login, wait(&ssh), args)),
            Err(failure) => Err(failure),
        };
        let ready = ready.inspect_err(|_| kill(&ssh))?;
        let key: PublicKey = ready.key.parse().map_err(|_| nonsense(&login))?;
        let (address, other_address) = login.addresses(ready.address, ready.port);
        output.note(&format!("lacuna at {login} {verb}s, at {address}"));
        let far = Self {
            login,
            ssh,
            input,
            is_over: Arc::default(),
            has_ssh_ended: Arc::default(),
            stop: Stop::new(),
            security: Security::Keys(Trust::of_keys(&own, [key])),
            address,
            other_address,
            names: ready.names,
        };
        far.watch()?;
        Ok(far)
    }

    /// Ends the transfer on a signal, and when ssh ends.
    fn watch(&self) -> Result<(), Failure> {
        let (ssh, stop) = (self.ssh.clone(), self.stop.clone());
        let (is_over, has_ended) = (self.is_over.clone(), self.has_ssh_ended.clone());
        thread::start("lacuna-ssh", move || {
            while !is_over.load(Ordering::Relaxed) {
                if !matches!(lock(&ssh).try_wait(), Ok(None)) {
                    has_ended.store(true, Ordering::Relaxed);
                    return stop.request();
                }
                if interrupt::requested() {
                    return stop.request();
                }
                std::thread::park_timeout(STOP_POLL);
            }
        })?;
        Ok(())
    }

    /// Moves files by the first address of the far end that can be reached; `is_unreached` says whether another one
    /// might be.
    pub(super) fn at_an_address<T, E: std::fmt::Display>(
        &self,
        transfer: impl Fn(&str) -> Result<T, E>,
        is_unreached: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        match (transfer(&self.address), &self.other_address) {
            (Err(error), Some(other)) if is_unreached(&error) => {
                tracing::debug!(%error, "the other address");
                transfer(other)
            }
            (moved, _) => moved,
        }
    }

    /// Why the transfer was stopped, if it was by ssh's end.
    pub(super) fn ended(&self) -> Option<Failure> {
        let has_ended = self.has_ssh_ended.load(Ordering::Relaxed) && !interrupt::requested();
        has_ended.then(|| Failure::Network(format!("the ssh connection with {} ended", self.login)))
    }
}

impl Drop for Far {
    /// The far end goes when its input ends, and ssh with it.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.input.take());
        let since = Instant::now();
        while since.elapsed() < GOODBYE {
            if !matches!(lock(&self.ssh).try_wait(), Ok(None)) {
                return;
            }
            std::thread::park_timeout(STOP_POLL);
        }
        kill(&self.ssh);
    }
}

fn ready(login: &Login, verb: &str, reply: Reply) -> Result<Ready, Failure> {
    let Reply { protocol, version, outcome } = reply;
    match outcome {
        Outcome::Unable(why) if protocol == PROTOCOL => {
            Err(Failure::Network(format!("lacuna at {login} cannot {verb}: {why}")))
        }
        Outcome::Ready(ready) if protocol == PROTOCOL => Ok(ready),
        _ => Err(Failure::Network(format!(
            "lacuna at {login} is of version {version}, and this one of {}: they do not understand each other over ssh",
            env!("CARGO_PKG_VERSION")
        ))),
    }
}

/// What it means that ssh ended without a word of the far end.
fn no_reply(login: &Login, status: Option<ExitStatus>, args: &SshArgs) -> Failure {
    let program = &args.remote_lacuna;
    Failure::Network(match status.and_then(|status| status.code()) {
        Some(NOT_FOUND) => format!(
            "there is no {program} at {login}: install it there, or say with --remote-lacuna where it is"
        ),
        Some(SSH_FAILED) => format!("ssh did not get to {login}: what it said is above"),
        Some(BAD_USAGE) => {
            format!("{program} at {login} cannot be started over ssh: it is too old")
        }
        _ => nonsense(login).to_string(),
    })
}

fn nonsense(login: &Login) -> Failure {
    Failure::Network(format!("what answers at {login} is not lacuna: try `ssh {login} lacuna -V`"))
}

fn spawn(login: &Login, args: &SshArgs) -> Result<Child, Failure> {
    let mut words = args.rsh.split_whitespace();
    let program = words.next().ok_or_else(|| Failure::Usage("-e names no command".to_owned()))?;
    let mut command = Command::new(program);
    command.args(words).arg(login.ssh_word());
    command.arg(format!("{} over-ssh", quoted(&args.remote_lacuna)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::Local(format!(
            "there is no {program} here: install it, or name another command with -e"
        )),
        _ => Failure::Local(format!("cannot start {program}: {error}")),
    })
}

/// For the shell at the other host. A path of the usual characters stays as it is, so that `~` means what it does there.
fn quoted(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+~".contains(&byte);
    match !path.is_empty() && path.bytes().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

/// Waits for a child whose output has ended; not for long.
fn wait(ssh: &Mutex<Child>) -> Option<ExitStatus> {
    let since = Instant::now();
    while since.elapsed() < GOODBYE {
        if let Ok(Some(status)) = lock(ssh).try_wait() {
            return Some(status);
        }
        std::thread::park_timeout(STOP_POLL);
    }
    None
}

fn kill(ssh: &Mutex<Child>) {
    let mut ssh = lock(ssh);
    // It may have ended.
    let _ = ssh.kill();
    let _ = ssh.wait();
}

fn lock(ssh: &Mutex<Child>) -> MutexGuard<'_, Child> {
    ssh.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_one_word_of_the_shell_there() {
        assert_eq!(quoted("~/bin/lacuna"), "~/bin/lacuna");
        assert_eq!(quoted("/opt/my tools/it's"), "'/opt/my tools/it'\\''s'");
    }

    #[test]
    fn ports_are_two_and_in_order() {
        assert_eq!(ports("60000-60010"), Ok((60_000, 60_010)));
        assert_eq!(ports("7400"), Ok((7400, 7400)));
        for bad in ["", "0-3", "9-3", "a-b", "1-99999"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
