//! `--wire` of the commands that connect. The accepting end takes what the connecting end asks for,
//! so servers have no such option.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lacuna::Wire;

/// Parses a form of packets; `--help` explains each.
pub(crate) fn parser() -> impl TypedValueParser<Value = Wire> {
    let values = Wire::ALL.map(|wire| PossibleValue::new(wire.name()).help(wire.summary()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Wire>())
}
