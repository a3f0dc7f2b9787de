//! How the gradients of all ranks become one.
//!
//! | module | exchange |
//! |---|---|
//! | `exact` | the average, as a reliable all-reduce gives it |
//! | `lossy` | a ring that loses packets, as an all-reduce in bounded mode does |
//! | `encoded` | any of them over the Hadamard transform of the gradients |

mod encoded;
mod exact;
mod lossy;

pub use encoded::{Encoded, EncodedError};
pub use exact::Exact;
pub use lossy::{Divisor, Lossy, PACKET_ELEMENTS};

/// An average over ranks.
pub trait Exchange {
    /// Averages one vector per rank, into one result that all ranks have, or into one per rank.
    ///
    /// With one result for all, reduced pieces reach every rank, as when they are sent reliably; with one
    /// per rank, each has what came to it, and zero elsewhere.
    ///
    /// # Errors
    /// When the network fails.
    ///
    /// # Panics
    /// If lengths differ, or there is neither one result nor one per rank.
    fn average(
        &mut self,
        vectors: &[Vec<f32>],
        results: &mut [Vec<f32>],
    ) -> anyhow::Result<Missing>;
}

/// What an exchange lacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Missing {
    /// Packets that were sent, over all hops.
    pub packets: u64,
    /// Those that were lost.
    pub lost_packets: u64,
    /// Fraction of the contributions, one per rank and element, that are not in the averages.
    pub contributions: f64,
    /// Fraction of the averages that did not come to a rank.
    pub results: f64,
}

impl Missing {
    /// Adds packets, and the fractions times a weight.
    pub fn add(&mut self, other: &Self, weight: f64) {
        self.packets += other.packets;
        self.lost_packets += other.lost_packets;
        self.contributions += weight * other.contributions;
        self.results += weight * other.results;
    }
}

/// Checks what [`Exchange::average`] demands, and returns how many elements there are.
fn check(vectors: &[Vec<f32>], results: &[Vec<f32>]) -> usize {
    let elements = vectors.first().map_or(0, Vec::len);
    let is_equal = |vector: &Vec<f32>| vector.len() == elements;
    assert!(vectors.iter().chain(results).all(is_equal), "vectors of one length");
    let (ranks, count) = (vectors.len(), results.len());
    assert!(count == 1 || count == ranks, "{count} results for {ranks} ranks");
    elements
}
