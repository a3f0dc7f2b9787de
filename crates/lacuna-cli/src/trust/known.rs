//! Hosts that files are sent to, known by their keys as ssh knows them: a file remembers the key of each at the first
//! time, and one that shows another key later is not believed.
//!
//! That is for a host that lists this one's key (`lacuna recv --trust FILE`) and shows its own. The key is judged before
//! anything is said to the host, and only once it has said that it believes this end; so nobody is asked about the key
//! of a host that wants a code.

use super::{code, default_key_file, is_somebody_there};
use crate::failure::Failure;
use crate::output::{Output, complain};
use clap::Args;
use lacuna::Security;
use lacuna::trust::{FileError, Known, KnownHosts, PublicKey, Trust};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Beside this host's key.
const FILE: &str = "known_hosts";

/// What to do with a host that nothing is known of.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct KnownArgs {
    /// Believe a receiver that is met for the first time, and remember its key: a later one with
    /// another key is refused. Otherwise a terminal is asked
    #[arg(long, conflicts_with_all = ["token", "trust", "insecure"])]
    pub(crate) accept_new: bool,
}

/// A host that is to be sent to, and what was found of it.
pub(crate) struct Meeting {
    file: KnownHosts,
    /// HOST:PORT, as it was given.
    host: String,
    accepts_new: bool,
    found: Found,
}

/// The key that the host showed, and what is known of the host.
type Found = Arc<Mutex<Option<(PublicKey, Result<Known, FileError>)>>>;

impl Meeting {
    /// `None` if there is no folder for the file, and nothing needs one.
    ///
    /// # Errors
    /// If there is none, and the host shall be remembered.
    pub(crate) fn new(host: &str, args: &KnownArgs) -> Result<Option<Self>, Failure> {
        let file = match default_key_file() {
            Ok(key) => KnownHosts::at(key.with_file_name(FILE)),
            Err(error) if args.accept_new => return Err(error),
            Err(_) => return Ok(None),
        };
        let (host, accepts_new) = (host.to_owned(), args.accept_new);
        Ok(Some(Self { file, host, accepts_new, found: Found::default() }))
    }

    /// Whether the host is spoken to encrypted, wherever it is: its key is known, or shall be.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub(crate) fn is_expected(&self) -> Result<bool, Failure> {
        Ok(self.accepts_new || self.file.has(&self.host)?)
    }

    /// Judges the host by its key.
    ///
    /// # Errors
    /// If the file cannot be used, or this host has no key.
    pub(crate) fn security(&self, output: Output) -> Result<Security, Failure> {
        let (file, host) = (self.file.clone(), self.host.clone());
        let (found, accepts_new) = (self.found.clone(), self.accepts_new);
        // A host that comes back after a break is the same one, whatever became of the file.
        let first = OnceLock::new();
        let judge = move |key: &PublicKey| {
            let known = match accepts_new {
                true => file.remember(&host, key),
                false => file.look(&host, key),
            };
            let is_good = match &known {
                Ok(Known::Same) => true,
                Ok(Known::Unknown) if accepts_new => {
                    let file = file.path().display();
                    output.note(&format!("{host} is new: its key \"{key}\" is now in {file}"));
                    true
                }
                Ok(Known::Unknown) => false,
                Ok(Known::Changed { .. }) | Err(_) => false,
            };
            *lock(&found) = Some((*key, known));
            is_good && first.get_or_init(|| *key) == key
        };
        let own = code::own_key()?;
        Ok(Security::Keys(match self.file.has(&self.host)? {
            true => Trust::judged(&own, judge),
            false => Trust::asking(&own, judge),
        }))
    }

    /// What to do when the host was not believed: `true` to try again, as somebody has said that its key is the right one;
    /// `false` if its key was not why.
    ///
    /// # Errors
    /// If it is not to be believed.
    pub(crate) fn decide(&self, output: Output) -> Result<bool, Failure> {
        let Some((key, known)) = lock(&self.found).take() else { return Ok(false) };
        let (host, file) = (&self.host, self.file.path().display());
        match known? {
            Known::Same => Ok(false),
            Known::Unknown if self.accepts_new => Ok(false),
            Known::Unknown => {
                if !is_somebody_there(output) {
                    return Err(Failure::Usage(format!(
                        "{host} is met for the first time and shows the key \"{key}\": --accept-new believes and remembers it, or put it into a file for --trust"
                    )));
                }
                if !is_believed(host, &key) {
                    return Err(Failure::Usage(format!(
                        "{host} is not believed: nothing was sent"
                    )));
                }
                self.file.remember(host, &key)?;
                Ok(true)
            }
            Known::Changed { line } => {
                complain(format_args!(
                    "WARNING: {host} SHOWS ANOTHER KEY THAN BEFORE. Somebody may sit between, or it has a new one."
                ));
                complain(format_args!("it shows: {key}"));
                Err(Failure::Network(format!(
                    "{host} has another key than {file}, line {line}, says, so nothing was sent: if it was made anew, remove that line"
                )))
            }
        }
    }
}

/// Asks whoever started this.
fn is_believed(host: &str, key: &PublicKey) -> bool {
    let mut error = std::io::stderr().lock();
    // If it cannot be shown, nobody answers.
    let _ = write!(
        error,
        "{host} is met for the first time. It shows this key, as lacuna key does there:\n  {key}\nIs it the right one, to be remembered (yes/no)? "
    );
    let _ = error.flush();
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.is_ok() && line.trim().eq_ignore_ascii_case("yes")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
