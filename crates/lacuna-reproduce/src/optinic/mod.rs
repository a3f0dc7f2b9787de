//! OptiNIC: "domain-specific RDMA transport", section 5.3.3: what the Hadamard transform does to losses.
//!
//! Figure 7 counts losses of packets of `lacuna_code::hadamard`, without a network. Table 3 takes the time of
//! this machine's processor; the paper's is a GPU.

mod error;
mod runtime;

use crate::cells::{Lab, Stopped};
use crate::outcome::{Item, Outcome};

/// The paper's name on command lines.
pub const NAME: &str = "optinic";

/// What can be done again, with what it shows.
pub const EXPERIMENTS: [(Item, &str); 2] = [
    (Item::Figure(7), "error by encoding and stride"),
    (Item::Table(3), "runtime of the Hadamard transform of 128 MiB by splits"),
];

/// Does an experiment again. `None` if there is no such one.
///
/// # Errors
/// When it was told to stop.
pub fn run(item: Item, lab: &Lab<'_>) -> Option<Result<Outcome, Stopped>> {
    Some(match item {
        Item::Figure(7) => error::figure_7(lab),
        Item::Table(3) => runtime::table_3(lab),
        _ => return None,
    })
}

/// What an experiment shows.
fn title(item: Item) -> String {
    let known = EXPERIMENTS.iter().find(|(known, _)| *known == item);
    known.map_or(String::new(), |(_, title)| (*title).to_owned())
}
