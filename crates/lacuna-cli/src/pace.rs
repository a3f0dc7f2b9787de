//! `--cc`, `--rate` and `--path-memory` of the commands that send.

use crate::failure::Failure;
use crate::units;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lacuna::controller::TABLE;
use lacuna::{ConnectionConfig, ContextConfig, ControllerKind};
use std::path::PathBuf;

/// How fast to send.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PaceArgs {
    /// Congestion control; fixed if a --rate is given, else bbr
    #[arg(long, value_parser = parser(), value_name = "NAME")]
    pub(crate) cc: Option<ControllerKind>,
    /// Send at this rate, in bits, headers included, instead of finding one: for a link that is
    /// yours. With another --cc than fixed, only begin at it
    #[arg(long, value_parser = units::rate)]
    pub(crate) rate: Option<u64>,
    /// Begin at the rate that this file remembers of the path, and remember what is found
    #[arg(long, value_name = "FILE")]
    pub(crate) path_memory: Option<PathBuf>,
}

impl PaceArgs {
    /// Refuses contradictory options.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.cc == Some(ControllerKind::Fixed) && self.rate.is_none() {
            return Err(Failure::Usage(
                "--cc fixed needs a --rate; or leave it, and bbr finds one".to_owned(),
            ));
        }
        Ok(())
    }

    pub(crate) fn connection(&self, config: ConnectionConfig) -> ConnectionConfig {
        ConnectionConfig { controller: self.cc, rate_bits_per_s: self.rate, ..config }
    }

    pub(crate) fn context(&self, config: ContextConfig) -> ContextConfig {
        ContextConfig { path_memory: self.path_memory.clone(), ..config }
    }
}

/// The controller of this name.
pub(crate) fn controller(name: &str) -> Result<ControllerKind, String> {
    let entry = TABLE.iter().find(|entry| entry.name == name);
    entry.map(|entry| entry.kind).ok_or_else(|| format!("it has no congestion control {name}"))
}

pub(crate) fn parser() -> impl TypedValueParser<Value = ControllerKind> {
    let values = TABLE.iter().map(|entry| PossibleValue::new(entry.name).help(entry.summary));
    PossibleValuesParser::new(values).try_map(|name| controller(&name))
}
