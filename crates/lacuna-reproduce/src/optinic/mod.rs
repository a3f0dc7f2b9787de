//! OptiNIC: "domain-specific RDMA transport".
//!
//! Figures 2 to 4 are read from the records of the package `training`. Figure 5 and the studies are collective operations in
//! virtual time. Figure 7 counts losses of packets of `lacuna_code::hadamard`, without a network. Table 3 takes the time of
//! this machine's processor; the paper's is a GPU.

mod error;
mod runtime;

use crate::cells::{Lab, Stopped};
use crate::collectives;
use crate::outcome::{Item, Outcome, Study};
use crate::training;

/// The paper's name on command lines.
pub const NAME: &str = "optinic";

/// What can be done again, with what it shows.
pub const EXPERIMENTS: [(Item, &str); 8] = [
    (Item::Figure(2), "accuracy against loss, from the record of a training"),
    (Item::Figure(3), "time to accuracy over an emulated path, from the record of a training"),
    (Item::Figure(4), "split decoding over an emulated path, from its record"),
    (Item::Figure(5), "collective time by size, go-back-N and in time"),
    (Item::Figure(7), "error by encoding and stride"),
    (Item::Table(3), "runtime of the Hadamard transform of 128 MiB by splits"),
    (Item::Study(Study::Ring), "a ring of four sites: erasure coding and selective repeat"),
    (Item::Study(Study::Schedules), "each schedule's time beside the model's"),
];

/// Does an experiment again. `None` if there is no such one.
///
/// # Errors
/// When it was told to stop.
pub fn run(item: Item, lab: &Lab<'_>) -> Option<Result<Outcome, Stopped>> {
    Some(match item {
        Item::Figure(2) => Ok(training::accuracy((NAME, item, "2.2, figure 2"), title(item))),
        Item::Figure(3) => Ok(training::time_to_accuracy((NAME, item), title(item))),
        Item::Figure(4) => Ok(training::decoding((NAME, item), title(item))),
        Item::Figure(5) => collectives::figure_5(lab),
        Item::Figure(7) => error::figure_7(lab),
        Item::Table(3) => runtime::table_3(lab),
        Item::Study(Study::Ring) => collectives::ring(lab),
        Item::Study(Study::Schedules) => collectives::schedules(lab),
        _ => return None,
    })
}

/// What an experiment shows.
fn title(item: Item) -> String {
    let known = EXPERIMENTS.iter().find(|(known, _)| *known == item);
    known.map_or(String::new(), |(_, title)| (*title).to_owned())
}
