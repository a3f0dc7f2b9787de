//! `--mode` of every command: one list of values, with what each means, taken
//! from the protocol's own table.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lacuna::Mode;
use lacuna::modes::TABLE;

/// Reads a mode; `--help` explains each.
pub(crate) fn parser() -> impl TypedValueParser<Value = Mode> {
    parser_of(|_| true)
}

/// Reads a mode that brings everything over.
pub(crate) fn reliable() -> impl TypedValueParser<Value = Mode> {
    parser_of(Mode::is_reliable)
}

fn parser_of(takes: fn(&Mode) -> bool) -> impl TypedValueParser<Value = Mode> {
    let taken = TABLE.iter().filter(|entry| takes(&entry.mode));
    let values = taken.map(|entry| PossibleValue::new(entry.name).help(entry.summary));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Mode>())
}
