//! Placeholder while this is written.
use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
#[derive(Debug, Args)]
pub(crate) struct SendArgs {}
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {}
pub(crate) fn send(_: &SendArgs, _: Output) -> Result<(), Failure> { Err(Failure::Interrupted) }
pub(crate) fn recv(_: &RecvArgs, _: Output) -> Result<(), Failure> { Err(Failure::Interrupted) }
