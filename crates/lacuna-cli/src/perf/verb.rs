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
    /// A write to a region of the server, which records what came of it.
    WriteRecord,
    /// A read of a region of the server.
    Read,
}

/// All verbs, with their names on the command line and between the ends, and their meaning.
const TABLE: [(Verb, &str, &str); 5] = [
    (Verb::Send, "send", "send into receives that the server has posted"),
    (Verb::Write, "write", "write to memory of the server, which is not told"),
    (Verb::WriteImm, "write-imm", "write with an immediate: the server is told of each"),
    (Verb::WriteRecord, "write-record", "with --qp ud: write, and the server records what came"),
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

    /// Why queue pairs of this kind do not have it, if so.
    pub(super) fn refused(self, is_datagram: bool) -> Option<String> {
        let name = self.name();
        match (self, is_datagram) {
            (Self::Write | Self::WriteImm, true) => Some(format!(
                "--qp ud has no --verb {name}: take write-record, whose completion says what came"
            )),
            (Self::WriteRecord, false) => Some(format!(
                "--verb {name} is of datagrams: take --qp ud with it, or --verb write"
            )),
            _ => None,
        }
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
    let ud = PossibleValue::new("ud")
        .help("datagrams without connections: nothing is repaired, and what came is counted");
    let rd = PossibleValue::new("rd")
        .help("reliable datagrams: each message comes once and in the order of its peer");
    PossibleValuesParser::new([sdr, rc, ud, rd])
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
        assert_eq!(
            error,
            "this version measures send, write, write-imm, write-record, read, not atomic"
        );
    }
}
