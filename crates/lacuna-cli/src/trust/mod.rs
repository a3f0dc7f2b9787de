//! Whom a command trusts: `--token`, `--trust`, `--key`, `--sealed`, `--insecure`, and `lacuna key`.
//!
//! Whoever gives nothing is safe: connections off this host are refused until both ends have something to know each
//! other by.

pub(crate) mod code;
mod key;
pub(crate) mod known;

pub(crate) use key::{KeyArgs, run};

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use lacuna::datapath::limit::Said;
use lacuna::trust::{FileError, HostKey, Token, Trust, read_public_keys};
use lacuna::{CERT_FILE_VARIABLE, ContextConfig, INSECURE_VARIABLE, Security, TOKEN_FILE_VARIABLE};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// For the help of commands that take [`TrustArgs`].
pub(crate) const HELP: &str = "\
Encryption:
  With a peer on another host everything is encrypted, and both ends prove who
  they are. lacuna recv shows a code for that, good for one sender, which
  lacuna send takes (CODE@HOST, or LACUNA_CODE). Other commands, and hosts that
  belong together, need the same token (lacuna key token FILE makes one, which the
  other host gets over a safe way, such as scp; then --token FILE, or its name in
  LACUNA_TOKEN_FILE), or each other's public key (lacuna key shows it; then
  --trust FILE with one key a line), or certificates of a CA (LACUNA_CERT_FILE,
  LACUNA_CERT_KEY_FILE, LACUNA_CA_FILE, LACUNA_CRL_FILE). lacuna send needs no key of a receiver that
  has its own: it asks at the first time and remembers it, as ssh does
  (--accept-new does not ask). Whoever has none of these is refused. Between
  processes of this host nothing is encrypted unless one of these is given, or
  --sealed: then what holds for other hosts holds for this one.
  --insecure (or LACUNA_INSECURE=1) is for networks that nobody else can reach.";

/// Whom to trust.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encryption")]
pub(crate) struct TrustArgs {
    /// Trust those who have the token in this file, and encrypt [default: the file that
    /// LACUNA_TOKEN_FILE names]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trust", "insecure"])]
    token: Option<PathBuf>,
    /// Trust those whose public keys are in this file, one a line, and encrypt
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    trust: Option<PathBuf>,
    /// This host's secret key, with --trust; made if there is none [default: as lacuna key]
    #[arg(long, value_name = "FILE", requires = "trust")]
    key: Option<PathBuf>,
    /// Encrypt with peers on this host, too
    #[arg(long, conflicts_with = "insecure")]
    sealed: bool,
    /// Encrypt nothing and believe anybody: where nobody else is on the network
    #[arg(long)]
    insecure: bool,
}

impl TrustArgs {
    /// With what the command said.
    ///
    /// # Errors
    /// As [`TrustArgs::security`].
    pub(crate) fn context(
        &self,
        config: ContextConfig,
        output: Output,
    ) -> Result<ContextConfig, Failure> {
        Ok(ContextConfig { security: self.security(output)?, ..config })
    }

    /// What the command said. Says at the start if nothing is encrypted.
    ///
    /// # Errors
    /// If a file cannot be used, or the environment makes no sense.
    pub(crate) fn security(&self, output: Output) -> Result<Security, Failure> {
        let security = self.chosen()?;
        if self.sealed && !security.encrypts_all()? {
            return Err(Failure::Usage(format!(
                "--sealed, and nothing to know a peer by: give --token or --trust, or name a file in {TOKEN_FILE_VARIABLE}"
            )));
        }
        if security.is_insecure()? {
            output
                .note("insecure: nothing is encrypted, and whoever reaches this port is believed");
        }
        Ok(security)
    }

    /// Whether the command line says something of whom to believe.
    pub(crate) fn is_set(&self) -> bool {
        self.insecure || self.token.is_some() || self.trust.is_some()
    }

    /// Whether peers on this host are treated as all others.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Whether the command line or the environment say something of whom to believe.
    pub(crate) fn says_something(&self) -> bool {
        let is_set =
            |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let variables = [TOKEN_FILE_VARIABLE, CERT_FILE_VARIABLE, INSECURE_VARIABLE];
        self.is_set() || variables.into_iter().any(is_set)
    }

    fn chosen(&self) -> Result<Security, Failure> {
        if self.insecure {
            return Ok(Security::Insecure);
        }
        if let Some(file) = &self.token {
            return Ok(Security::Keys(Trust::of_token(&Token::read(file)?)));
        }
        let Some(file) = &self.trust else { return Ok(Security::FromEnvironment) };
        let peers = read_public_keys(file)?;
        if peers.is_empty() {
            return Err(Failure::Usage(format!(
                "{} has no key: nobody would be trusted; lacuna key shows a host's",
                file.display()
            )));
        }
        let own = HostKey::read_or_make(&self.key_file()?)?;
        Ok(Security::Keys(Trust::of_keys(&own, peers)))
    }

    fn key_file(&self) -> Result<PathBuf, Failure> {
        self.key.clone().map_or_else(default_key_file, Ok)
    }
}

/// Whether there is somebody to ask.
fn is_somebody_there(output: Output) -> bool {
    let is_heard = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    is_heard && !output.json && !output.quiet
}

/// Where this host's key is unless told otherwise.
fn default_key_file() -> Result<PathBuf, Failure> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(absolute);
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    match folder {
        Some(folder) => Ok(folder.join(Path::new("lacuna/key"))),
        None => Err(Failure::Usage(
            "there is no home folder for this host's key: name a file with --key".to_owned(),
        )),
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        // With the limit that was reached, if that is why.
        Self::Local(match &error {
            FileError::Read { path, source } => {
                format!("cannot read {}: {}", path.display(), Said(source))
            }
            FileError::Write { path, source } => {
                format!("cannot write {}: {}", path.display(), Said(source))
            }
            error => error.to_string(),
        })
    }
}
