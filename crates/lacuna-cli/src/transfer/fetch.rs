//! `lacuna send [USER@]HOST:PATH... FOLDER`: a receiver here, and a sender that ssh starts there.
//!
//! Nothing comes but what was asked for: the names at the other end are those of the paths, and where a path has none
//! (`~`, a folder above), it is the one that the other end says at the beginning, and no hidden one.

use super::progress::Progress;
use super::report::{Reporter, Side};
use super::send::RESUME;
use super::ssh::{self, Login, Want};
use super::{SendArgs, recv};
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use lacuna::ContextConfig;
use lacuna::controller::TABLE;
use lacuna_service::Purpose;
use lacuna_transfer::{Blames, FetchOptions, Fetcher, ReceiveError, ReceiveOptions, shown};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

pub(super) fn run(
    args: &SendArgs,
    from: Login,
    paths: Vec<Vec<u8>>,
    folder: &Path,
    output: Output,
) -> Result<(), Failure> {
    if args.pace.path_memory.is_some() {
        return Err(Failure::Usage(
            "--path-memory is for the end that sends, which is the other one: leave it".to_owned(),
        ));
    }
    interrupt::install()?;
    let capture = Capture::open(&args.capture, Captures::Transport, output)?;
    let names: Vec<_> = paths.iter().map(|path| name_of(path).map(<[u8]>::to_vec)).collect();
    let name = |kind| TABLE.iter().find(|entry| entry.kind == kind).map(|entry| entry.name);
    let want = Want::Send {
        paths,
        quick: args.quick,
        controller: args.pace.cc.and_then(name).map(str::to_owned),
        rate_bits_per_s: args.pace.rate,
    };
    // ssh may ask for a password: before anything is drawn.
    let far = args.far(from, want, output)?;
    let only = agreed(names, &far.names)?;
    let progress = Arc::new(Progress::new(output, Side::Fetcher));
    let reporter = Reporter::new(output, progress, capture.clone())?.below(recv::below(folder));
    let options = FetchOptions {
        receive: ReceiveOptions {
            overwrite: args.ssh.overwrite,
            sync: false,
            buffers_bytes: args.buffers,
            sockets: ContextConfig {
                channels: args.channels,
                wrap: capture.around(None),
                security: far.security.clone(),
                ..ContextConfig::default()
            },
            stop: far.stop.clone(),
        },
        retry: args.retry,
        connection: args.connection(),
        connect_within: Some(ssh::CONNECT_WITHIN),
        only: Some(only),
    };
    let fetcher = Fetcher::new(options);
    let fetched = far.at_an_address(
        |address| fetcher.fetch(address, folder, &reporter),
        |error| matches!(error, ReceiveError::Connect(error) if error.is_retryable()),
    );
    let ended = match fetched {
        Ok(_) => reporter.finish(None, None),
        Err(ReceiveError::Files(files)) => reporter.finish(None, Some(files)),
        Err(error) => {
            let by_ssh = far.ended().filter(|_| matches!(error, ReceiveError::Interrupted));
            let failure = match by_ssh {
                Some(ended) => Failure::Network(format!("{ended}; {RESUME}")),
                None => failure(&error),
            };
            reporter.finish(Some(failure), None)
        }
    };
    capture.conclude(ended, output)
}

/// The last name of a path at the other host; `None` if it has none.
fn name_of(path: &[u8]) -> Option<&[u8]> {
    let below = path.strip_prefix(b"~/").unwrap_or(path);
    match path {
        b"~" => None,
        _ => Path::new(OsStr::from_bytes(below)).file_name().map(OsStr::as_bytes),
    }
}

/// The names that may come: those of the paths, and what the other end says of paths without one.
fn agreed(names: Vec<Option<Vec<u8>>>, said: &[Vec<u8>]) -> Result<BTreeSet<Vec<u8>>, Failure> {
    let other = |name: &[u8]| {
        Failure::Network(format!(
            "the other end would send {}, which was not asked for by that name",
            shown(name)
        ))
    };
    if names.len() != said.len() {
        return Err(Failure::Network("the other end would send something else".to_owned()));
    }
    let agree = |(name, said): (Option<Vec<u8>>, &Vec<u8>)| match name {
        Some(name) if name == *said => Ok(name),
        None if !said.starts_with(b".") => Ok(said.clone()),
        _ => Err(other(said)),
    };
    names.into_iter().zip(said).map(agree).collect()
}

fn failure(error: &ReceiveError) -> Failure {
    match error {
        ReceiveError::Connect(error) => Failure::unreached(error, Purpose::Fetch),
        ReceiveError::Lost { .. } | ReceiveError::Unable { .. } => {
            Failure::by(error.fault(), format!("{error}; {RESUME}"))
        }
        error => Failure::of(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_may_come() {
        for (path, name) in [
            ("a", Some("a")),
            ("/srv/it's *", Some("it's *")),
            ("~/x/", Some("x")),
            ("a/.", Some("a")),
            (".hidden", Some(".hidden")),
            ("", None),
            ("~", None),
            ("~/", None),
            ("..", None),
            ("a/..", None),
            ("/", None),
        ] {
            assert_eq!(name_of(path.as_bytes()), name.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn no_other_name_is_taken_than_one_that_was_meant() {
        let bytes = |text: &str| text.as_bytes().to_vec();
        let agree = |named: Option<&str>, said: &[&str]| {
            let said: Vec<_> = said.iter().map(|name| bytes(name)).collect();
            agreed(vec![named.map(bytes)], &said)
        };
        assert_eq!(agree(Some(".a"), &[".a"]).unwrap(), BTreeSet::from([bytes(".a")]));
        assert_eq!(agree(None, &["home"]).unwrap(), BTreeSet::from([bytes("home")]));
        for (named, said) in [(Some("a"), &[".profile"][..]), (None, &[".ssh"]), (Some("a"), &[])] {
            assert!(agree(named, said).is_err(), "{named:?}: {said:?}");
        }
    }
}
