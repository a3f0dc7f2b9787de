//! How long a message takes over a long, lossy path: exact distributions of completion times,
//! after SDR-RDMA section 4.2, and what follows from them.
//!
//! Pure functions: no input or output, no clock, no thread, no global randomness. Times are
//! seconds, rates bits per second, sizes bytes, losses probabilities.
//!
//! # Selective repeat, 4.2.2
//!
//! `M` chunks, each `T` seconds on the link, lost with probability `p`; a lost one costs
//! `O = RTO + T`; `a_q = 1 - p^q` is the probability that a chunk comes within `q` transmissions.
//!
//! | | |
//! |---|---|
//! | chunk `i` of `M` is done at | `X_i = i T + O (Y_i - 1)`, `Y_i` geometric |
//! | the message, for its sender | `T_SR = max X_i + RTT` |
//! | distribution | `P(max X_i <= M T + u) = prod_q a_q^(N_q - N_{q-1})`, `N_q(u) = clamp(ceil((q O - u) / T), 0, M)` |
//! | mean | `RTT + M T + integral_0^inf (1 - F(u)) du`, in closed form, see [`SelectiveRepeat`] |

#![forbid(unsafe_code)]

mod best_effort;
mod binomial;
mod code;
pub mod collective;
mod completion;
mod ec;
mod error;
mod gilbert;
mod loss;
mod mixture;
pub mod monte_carlo;
mod random;
mod rounds;
mod sr;
mod transfer;

pub use best_effort::BestEffort;
pub use code::{Code, CodeKind};
pub use completion::Completion;
pub use ec::{EcConfig, ErasureCoding};
pub use error::ModelError;
pub use gilbert::Gilbert;
pub use loss::{CHUNK_LOSS_MAX, ChunkLoss, Loss};
pub use mixture::{Mixture, loss_range};
pub use random::Random;
pub use sr::{RepairTiming, SelectiveRepeat};
pub use transfer::{Framing, Path, Transfer};
