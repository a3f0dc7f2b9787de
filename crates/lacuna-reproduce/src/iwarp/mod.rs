//! Datagram-iWARP: Grant et al., "Scalable connectionless RDMA over unreliable datagrams", section 3.2.
//!
//! The paper's verbs run over UDP datagrams of up to 64 KiB, which IP cuts into fragments; here each packet says where
//! it belongs, so none is a fragment. Its drawings have no numbers in the text: what stands beside ours is what the
//! paper says in words, and the closed form of its segments.

pub mod broadcast;
mod fragments;
pub mod loopback;
pub mod loss;
mod stream;

pub use fragments::{CameInDatagrams, Datagrams, Reassembly, SEGMENT_BYTES};
pub use stream::{Came, Stream, Verb};

use crate::cells::{Lab, Stopped};
use crate::outcome::{Item, Outcome};

/// The paper's name on command lines.
pub const NAME: &str = "iwarp";

/// What can be done again in virtual time, with what it shows.
pub const EXPERIMENTS: [(Item, &str); 2] = [
    (Item::Figure(8), "send/recv under packet loss"),
    (Item::Figure(9), "Write-Record under packet loss"),
];

/// What is measured live, with what it shows.
pub const LIVE: [(Item, &str); 5] = [
    (Item::Figure(5), "latency over loopback, beside TCP"),
    (Item::Figure(6), "bandwidth one way over loopback, beside TCP"),
    (Item::Figure(7), "a broadcast Send to one to three receivers, on an emulated LAN"),
    (Item::Figure(8), "send/recv under packet loss, over an emulated link"),
    (Item::Figure(9), "Write-Record under packet loss, over an emulated link"),
];

/// Does an experiment again. `None` if there is no such one.
///
/// # Errors
/// When it was told to stop.
pub fn run(item: Item, lab: &Lab<'_>) -> Option<Result<Outcome, Stopped>> {
    loss::figure(item, lab)
}

/// What an experiment shows.
fn title(experiments: &[(Item, &str)], item: Item) -> String {
    let known = experiments.iter().find(|(known, _)| *known == item);
    known.map_or(String::new(), |(_, title)| (*title).to_owned())
}
