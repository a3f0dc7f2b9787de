//! `--mode` of every command: one list of values, with what each means, taken
//! from the protocol's own table.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lacuna::Mode;
use lacuna::modes::TABLE;

/// Reads a mode; `--help` explains each.
pub(crate) fn parser() -> impl TypedValueParser<Value = Mode> {
    let values = TABLE.iter().map(|entry| PossibleValue::new(entry.name).help(entry.summary));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Mode>())
}
