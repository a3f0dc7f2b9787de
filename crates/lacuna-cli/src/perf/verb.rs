//! `--verb` and `--qp`: which operation is measured, and on which kind of queue pair.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// The operation that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// A send into a posted receive.
    Send,
    /// A write to a region of the server.
    Write,
    /// A write that tells the server's program of itself.
    WriteImm,
    /// A read of a region of the server.
    Read,
}

/// All verbs, with their names on the command line and between the ends, and their meaning.
const TABLE: [(Verb, &str, &str); 4] = [
    (Verb::Send, "send", "send into receives that the server has posted"),
    (Verb::Write, "write", "write to memory of the server, which is not told"),
    (Verb::WriteImm, "write-imm", "write with an immediate: the server is told of each"),
    (Verb::Read, "read", "read memory of the server: bytes travel from it to the client"),
];

impl Verb {
    pub(super) fn name(self) -> &'static str {
        TABLE.iter().find(|(verb, ..)| *verb == self).map_or("", |(_, name, _)| name)
    }

    /// The verb that the other end names, or all that there are.
    pub(super) fn of_name(name: &str) -> Result<Self, String> {
        let found = TABLE.iter().find(|(_, known, _)| *known == name).map(|(verb, ..)| *verb);
        found.ok_or_else(|| {
            let names: Vec<_> = TABLE.iter().map(|(_, name, _)| *name).collect();
            format!("this version measures {}, not {name}", names.join(", "))
        })
    }

    /// Whether no receive is posted for it.
    pub(super) fn is_one_sided(self) -> bool {
        self != Self::Send
    }
}

/// Parses a verb; `--help` explains each.
pub(super) fn parser() -> impl TypedValueParser<Value = Verb> {
    let values = TABLE.map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).try_map(|name| Verb::of_name(&name))
}

/// Parses a kind of queue pair.
pub(super) fn qp_parser() -> impl TypedValueParser<Value = String> {
    let sdr = PossibleValue::new("sdr").help("packets in any order, repaired as --mode says");
    let rc = PossibleValue::new("rc")
        .help("in order, as RDMA cards do it: everything from a lost packet on is sent again");
    PossibleValuesParser::new([sdr, rc])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_is_known_by_its_name() {
        for (verb, name, _) in TABLE {
            assert_eq!((verb.name(), Verb::of_name(name)), (name, Ok(verb)));
        }
        let error = Verb::of_name("atomic").expect_err("there is none");
        assert_eq!(error, "this version measures send, write, write-imm, read, not atomic");
    }
}
