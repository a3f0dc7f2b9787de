//! One-time codes, as magic-wormhole has them: a receiver shows one, and whoever starts the sender types it. So two hosts
//! that share nothing come to know each other.
//!
//! A code is good for one sender and for [`LIFETIME`]. Then the receiver shows another one, unless it serves one sender
//! only. The sender that used it may come again with it until it has sent everything, so that it can resume after a
//! break. A code that was tried wrongly as often as it may be is not replaced before its time is over: so nobody gets
//! more than these few guesses at 2^30 codes in that time, however long the receiver runs.
//!
//! Command lines are for all to see on a host. So `lacuna send FILE CODE@HOST` starts itself again, with the code in its
//! environment, which only its user can see.

use super::{TrustArgs, is_somebody_there};
use crate::failure::Failure;
use crate::output::Output;
use lacuna::Security;
use lacuna::trust::{Code, CodeEnd, CodeOffer, HostKey, Trust};
use lacuna_service::thread;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a code is good.
const LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Between two looks at what became of it.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Has the code of `lacuna send`.
const VARIABLE: &str = "LACUNA_CODE";

/// A code that a receiver has.
pub(crate) struct Offered {
    offer: CodeOffer,
    code: Code,
}

/// Says that the sender which used the code has sent everything.
#[derive(Clone, Default)]
pub(crate) struct CodeServed(Arc<AtomicBool>);

impl CodeServed {
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is printed of it with `--json`.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    code: &'a str,
    expires_s: u64,
}

impl TrustArgs {
    /// What the receiver's command said; and if it said nothing, a code by which peers are let in that are
    /// not on this host, or not to be in clear there.
    ///
    /// # Errors
    /// As [`TrustArgs::security`].
    pub(crate) fn offering(&self, output: Output) -> Result<(Security, Option<Offered>), Failure> {
        let is_shown = output.json || !output.quiet;
        if !is_shown || self.says_something() {
            return Ok((self.security(output)?, None));
        }
        let code = new_code()?;
        let (trust, offer) = Trust::offering(&own_key()?, code.clone());
        let security = match self.is_sealed() {
            true => Security::Keys(trust),
            false => Security::KeysOffHost(trust),
        };
        Ok((security, Some(Offered { offer, code })))
    }

    /// By the code that the peer shows.
    ///
    /// # Errors
    /// If the command said something else, too.
    pub(crate) fn by_code(&self, code: Code) -> Result<Security, Failure> {
        if self.is_set() {
            return Err(Failure::Usage(
                "a code, and --token, --trust or --insecure: give one of them".to_owned(),
            ));
        }
        Ok(Security::Keys(Trust::by_code(&own_key()?, code)))
    }
}

impl Offered {
    /// Shows the code, and others after it, until the process ends.
    ///
    /// # Errors
    /// If there is no thread for it, or it cannot be printed.
    pub(crate) fn show(
        self,
        is_for_one: bool,
        served: CodeServed,
        output: Output,
    ) -> Result<(), Failure> {
        show(&self.code, output)?;
        let offer = self.offer;
        thread::start("lacuna-code", move || {
            let mut since = Instant::now();
            loop {
                std::thread::park_timeout(LOOK_EVERY);
                let is_old = since.elapsed() >= LIFETIME;
                match offer.end() {
                    Some(CodeEnd::Used) if is_for_one => return,
                    Some(CodeEnd::Used) if is_old || served.0.swap(false, Ordering::Relaxed) => {}
                    Some(CodeEnd::Used) => continue,
                    _ if is_old => offer.expire(),
                    _ => continue,
                }
                let Ok(code) = new_code() else { return };
                offer.replace(code.clone());
                since = Instant::now();
                if show(&code, output).is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }
}

fn show(code: &Code, output: Output) -> Result<(), Failure> {
    let code = code.to_text();
    let (code, expires_s) = (code.as_str(), LIFETIME.as_secs());
    if output.json {
        return output.object(&Shown { code, expires_s });
    }
    let minutes = expires_s / 60;
    output.note(&format!(
        "from another host, once and within {minutes} minutes: lacuna send FILE {code}@THIS-HOST"
    ));
    Ok(())
}

/// The code of the sender: from its environment, or from its command line, which is cleared of it by starting again.
///
/// # Errors
/// If it is no code, or the command cannot start again.
pub(crate) fn of_sender(word: Option<(&str, &str)>) -> Result<Option<Code>, Failure> {
    let parse = |text: &str| text.parse().map_err(|error| Failure::Usage(format!("{error}")));
    if let Some((code, host)) = word {
        parse(code)?;
        return Err(start_again(code, host));
    }
    match std::env::var(VARIABLE) {
        Ok(text) => parse(&text).map(Some),
        Err(_) => Ok(None),
    }
}

/// Starts this command again as the same process, with the last word `host` and the code in the environment.
#[cfg(unix)]
fn start_again(code: &str, host: &str) -> Failure {
    use std::os::unix::process::CommandExt;
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut words = words.iter().map(|word| match word.to_str() {
        Some(text) if text.ends_with(host) && text.split_once('@') == Some((code, host)) => {
            OsString::from(host)
        }
        _ => word.clone(),
    });
    let name = words.next().unwrap_or_default();
    let error = match std::env::current_exe() {
        Ok(program) => {
            let mut again = std::process::Command::new(program);
            again.arg0(name).args(words).env(VARIABLE, code).exec()
        }
        Err(error) => error,
    };
    Failure::Local(format!(
        "cannot hide the code from other users of this host ({error}): give it in {VARIABLE}, and HOST alone"
    ))
}

#[cfg(not(unix))]
fn start_again(_code: &str, _host: &str) -> Failure {
    Failure::Usage(format!("give the code in {VARIABLE}, and HOST alone"))
}

/// Asks whoever started the sender, if there is somebody.
///
/// # Errors
/// If what was typed is no code.
pub(crate) fn ask(output: Output) -> Result<Option<Code>, Failure> {
    if !is_somebody_there(output) {
        return Ok(None);
    }
    let (input, error) = (std::io::stdin(), std::io::stderr());
    // If it cannot be shown, nobody answers.
    let _ = write!(error.lock(), "the code that lacuna recv shows there: ");
    let _ = error.lock().flush();
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(1..) if !line.trim().is_empty() => {
            line.parse().map(Some).map_err(|error| Failure::Usage(format!("{error}")))
        }
        _ => Ok(None),
    }
}

fn new_code() -> Result<Code, Failure> {
    Code::generate().map_err(|error| Failure::Local(error.to_string()))
}

/// This host's, so that one who used a code is known when it comes again; or one for this process, if that cannot be
/// kept.
pub(super) fn own_key() -> Result<HostKey, Failure> {
    let kept = super::default_key_file().and_then(|file| Ok(HostKey::read_or_make(&file)?));
    kept.or_else(|error| {
        tracing::debug!(%error, "a key for this process alone");
        HostKey::generate().map_err(|error| Failure::Local(error.to_string()))
    })
}
