//! `lacuna send` and `lacuna recv`: the command lines of `lacuna-transfer`, and its results as
//! bars, lines and JSON.
//!
//! `report` turns results into lines and the exit code, `progress` draws, `printer` prints results
//! on a thread of its own.

mod args;
#[cfg(unix)]
mod clean;
#[cfg(unix)]
mod fetch;
#[cfg(unix)]
mod printer;
#[cfg(unix)]
mod progress;
#[cfg(unix)]
mod recv;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod send;
#[cfg(unix)]
mod ssh;
#[cfg(unix)]
mod target;

use crate::failure::Failure;
use crate::output::Output;
pub(crate) use args::{RecvArgs, SendArgs};

/// Runs `lacuna send`.
#[cfg(unix)]
pub(crate) fn send(args: &SendArgs, output: Output) -> Result<(), Failure> {
    send::run(args, output)
}

/// Runs `lacuna recv`.
#[cfg(unix)]
pub(crate) fn recv(args: &RecvArgs, output: Output) -> Result<(), Failure> {
    recv::run(args, output)
}

/// Runs `lacuna over-ssh`, the far end of `lacuna send` over ssh.
#[cfg(unix)]
pub(crate) fn over_ssh(output: Output) -> Result<(), Failure> {
    ssh::far_end(output)
}

/// Not supported: folders are opened component by component, as only Unix does.
#[cfg(not(unix))]
pub(crate) fn send(_: &SendArgs, _: Output) -> Result<(), Failure> {
    Err(Failure::Local("send and recv need a Unix system".to_owned()))
}

/// See [`send`].
#[cfg(not(unix))]
pub(crate) fn recv(_: &RecvArgs, _: Output) -> Result<(), Failure> {
    Err(Failure::Local("send and recv need a Unix system".to_owned()))
}
