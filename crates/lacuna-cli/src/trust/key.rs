//! `lacuna key`: this host's key, and tokens for hosts that belong together.

use super::default_key_file;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, Subcommand};
use lacuna::trust::{HostKey, Token, write_secret};
use serde::Serialize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  lacuna key                     this host's public key, made at the first time
  lacuna key >> trusted          a line for the other host's --trust FILE
  lacuna key token cluster.token a secret for all hosts of a cluster, which then run with
                                 --token cluster.token, or LACUNA_TOKEN_FILE=cluster.token";

/// Show this host's key, or make a token.
///
/// A host's key has a secret half, which stays in its file and is for nobody else, and a
/// public half, which this prints: whoever has that in the file of --trust believes this
/// host. A token is simpler and coarser: all who have it believe each other.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    command: Option<Command>,
    /// The file of the secret key [default: lacuna/key in the configuration folder]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token: a secret that hosts share
    Token {
        /// The new file, readable by its owner alone
        file: PathBuf,
    },
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    file: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

pub(crate) fn run(args: &KeyArgs, output: Output) -> Result<(), Failure> {
    match &args.command {
        Some(Command::Token { file }) => make_token(file, output),
        None => show(args, output),
    }
}

fn show(args: &KeyArgs, output: Output) -> Result<(), Failure> {
    let file = args.file.clone().map_or_else(default_key_file, Ok)?;
    let key = HostKey::read_or_make(&file)?.public().to_string();
    if output.json {
        return output.object(&Shown { file: &file, key: Some(key) });
    }
    output.note(&format!("the secret half is in {}", file.display()));
    output.line(&key)
}

fn make_token(file: &Path, output: Output) -> Result<(), Failure> {
    let token = Token::generate().map_err(|error| Failure::Local(error.to_string()))?;
    write_secret(file, &format!("{}\n", *token.to_text())).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            let name = file.display();
            Failure::Usage(format!("{name} is there already: remove it, or name another file"))
        }
        _ => Failure::file("make", file, &error),
    })?;
    if output.json {
        return output.object(&Shown { file, key: None });
    }
    let name = file.display();
    output.note(&format!("{name} is for its owner alone; copy it over a safe way, such as scp -p"));
    Ok(())
}
