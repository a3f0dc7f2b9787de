//! `--mode` of every command: the values and their meaning from the protocol's table, and the codes
//! with parameters.

use clap::builder::{NonEmptyStringValueParser, PossibleValue, TypedValueParser};
use lacuna::Mode;
use lacuna::modes::TABLE;
use std::ffi::OsStr;

/// Parses a mode; `--help` explains each.
pub(crate) fn parser() -> impl TypedValueParser<Value = Mode> {
    ModeParser { takes: |_| true }
}

/// Parses a mode that delivers everything.
pub(crate) fn reliable() -> impl TypedValueParser<Value = Mode> {
    ModeParser { takes: Mode::is_reliable }
}

#[derive(Debug, Clone)]
struct ModeParser {
    takes: fn(&Mode) -> bool,
}

impl ModeParser {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        let takes = self.takes;
        TABLE.iter().filter(move |entry| takes(&entry.mode)).map(|entry| entry.name)
    }

    fn read(&self, name: &str) -> Result<Mode, String> {
        let mode: Mode = name.parse().map_err(|error| format!("{error}"))?;
        if (self.takes)(&mode) {
            return Ok(mode);
        }
        let taken: Vec<_> = self.names().collect();
        Err(format!("{mode} does not repair losses: use {}", taken.join(", ")))
    }
}

impl TypedValueParser for ModeParser {
    type Value = Mode;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Mode, clap::Error> {
        let reading = self.clone();
        let parser = NonEmptyStringValueParser::new().try_map(move |name| reading.read(&name));
        parser.parse_ref(command, argument, value)
    }

    /// For the help; codes with other parameters are accepted, too.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let takes = self.takes;
        let taken = TABLE.iter().filter(move |entry| takes(&entry.mode));
        let values = taken.map(|entry| PossibleValue::new(entry.name).help(entry.summary));
        let coded = PossibleValue::new("ec:CODE:K:M")
            .help("erasure code mds or xor: M parity chunks behind each K data chunks");
        let bounded = PossibleValue::new("bounded:N[+ec:CODE:K:M]")
            .help("a receive ends when the N-th after it begins; with parity, but no repairs");
        let bounded = takes(&Mode::BOUNDED).then_some(bounded);
        Some(Box::new(values.chain([coded]).chain(bounded)))
    }
}
