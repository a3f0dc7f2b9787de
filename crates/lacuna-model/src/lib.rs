//! Completion-time models of messages over long, lossy paths: exact distributions after SDR-RDMA section
//! 4.2, simulations to check them, and a planner that chooses a reliability scheme.
//!
//! All functions are pure: no I/O, no clock, no thread, no global randomness. Times are in seconds, rates
//! in bits per second, sizes in bytes, losses are probabilities. An evaluation costs microseconds, or a
//! fraction of a millisecond where thousands of submessages may fail, whatever the message's size; so it
//! is cheap enough for a running connection.
//!
//! ```
//! use lacuna_model::*;
//!
//! let path = Path { rate_bits_per_s: 400e9, rtt_s: 0.025, loss: Loss::PerChunk(1e-5) };
//! let message = Transfer::new(&path, &Framing::PAPER, 128 << 20)?;
//! let repeat = SelectiveRepeat::new(&message, RepairTiming::TIMEOUT)?;
//! let code = ErasureCoding::new(&message, EcConfig::paper(Code::mds(32, 8)?))?;
//! assert!(repeat.quantile_s(0.999) > 3.0 * code.quantile_s(0.999));
//! # Ok::<(), ModelError>(())
//! ```
//!
//! # Notation
//!
//! | | | unit |
//! |---|---|---|
//! | `M` | chunks of the message, `ceil(size / chunk)` | |
//! | `T` | time of a chunk on the link, `8 (chunk + packets * overhead) / rate` | s |
//! | `p` | loss of a chunk, see [`Loss`] | |
//! | `O` | cost of a loss, `RTO + T`, `RTO` a number of RTT | s |
//! | `a_q` | probability that a chunk comes within `q` transmissions, `1 - p^q` | |
//! | `k`, `m`, `L` | data and parity chunks of a submessage, number of submessages | |
//! | `P_EC` | probability that a submessage can be repaired | |
//!
//! # Selective repeat, 4.2.2: [`SelectiveRepeat`]
//!
//! | | |
//! |---|---|
//! | chunk `i` of `M` is done at | `X_i = i T + O (Y_i - 1)`, `Y_i` geometric |
//! | the message, for its sender | `T_SR = max X_i + RTT` |
//! | distribution | `P(max X_i <= M T + u) = F(u) = prod_q a_q^(N_q - N_{q-1})`, `N_q(u) = clamp(ceil((q O - u) / T), 0, M)` |
//! | mean | `RTT + M T + integral_0^inf (1 - F(u)) du`, in closed form |
//! | ... if `(M-1) T <= O` | `RTT + M T + sum_q (O - (M-1) T)(1 - a_q^M) + T ((M-1) - sum_{n=1}^{M-1} a_q^(M-n) a_{q+1}^n)` |
//!
//! # Erasure coding, 4.2.3: [`ErasureCoding`]
//!
//! | | |
//! |---|---|
//! | MDS | `P_EC = P(Bin(k+m, p) <= m)` |
//! | XOR | `P_EC = prod over groups of d data chunks: (1-p)^d (1 + d p)` |
//! | fallback | `P_fb = 1 - P_EC^L` |
//! | the message | `T_EC = B + RTT` without failures, `B + (1 + beta) RTT + T_SR(f k)` with `f`, `B = (M + ceil(M m / k)) T` |
//! | the paper's mean | `B + P_fb (1 + beta) RTT + E[T_SR(L (1 - P_EC) k)]` |
//!
//! # Erasure coding repaired by submessage, as the transport does: [`StreamedCoding`]
//!
//! | | |
//! |---|---|
//! | submessage `l` is done at | `X_l = l U + O (Y_l - 1)`, `U = (k + m) T` |
//! | its chances | `a_1 = P_EC`, `1 - a_q = sum_n P(n chunks missing for good) (1 - (1 - p^(q-1))^n)` |
//! | the message | `max X_l + RTT`: selective repeat with submessages for chunks |
//!
//! # Parity for the end of a message, as the transport's mode `auto` does: [`TailCoding`]
//!
//! | | |
//! |---|---|
//! | the tail | what is not judged when the last data leave, at `D`: about a round trip of chunks |
//! | its parity | behind all data, as much as a [rule](TailRule) says; repairs `c` times from then on |
//! | the message | the last of: submessages of the tail, chunks before it whose repair is on its way |
//!
//! # Reliable connections with go-back-N, and LoWAR's shim below them: [`GoBackN`]
//!
//! | | |
//! |---|---|
//! | `W` | packets of a round trip, `RTT / T` |
//! | goodput | `1 / (1 + p W)`; in bursts of `L` packets about `1 / (1 + p W / L)` |
//! | ... with LoWAR(r, c) | about `r / (r + c) / (1 + f W)`, `f` the chance that a block fails, over `r` |
//! | a message alone | `B + K1 (RTT + e) + K2 tau RTT`: how often it goes back, told or by timeout ([`ConnectionMessage`]) |
//!
//! # Beyond the paper
//!
//! | | |
//! |---|---|
//! | bursts, correlated packets of a chunk | [`Loss`], [`Gilbert`] |
//! | submessages that a burst takes together | [`ErasureCoding`], [`StreamedCoding`] |
//! | headers and repairs take link time | [`Framing`], [`RepairTiming::wire_time`] |
//! | an answer as soon as the code allows | [`EcConfig::early_ack`] |
//! | loss known as a range, mixed sizes | [`loss_range`], [`Mixture`] |
//! | best effort with a deadline | [`BestEffort`] |
//! | ring and tree over several sites | [`collective`] |
//! | which scheme, and where that flips | [`plan`] |
//!
//! Every distribution implements [`Completion`]; [`monte_carlo`] draws the same times.

#![forbid(unsafe_code)]

mod best_effort;
mod binomial;
mod block;
mod code;
pub mod collective;
mod completion;
mod crossing;
mod ec;
mod error;
mod fate;
mod gilbert;
mod go_back_n;
mod loss;
mod missing;
mod mixture;
pub mod monte_carlo;
pub mod plan;
mod random;
mod rounds;
mod sr;
mod tail;
mod transfer;

pub use best_effort::BestEffort;
pub use code::{Code, CodeKind};
pub use completion::Completion;
pub use crossing::crossing;
pub use ec::{EcConfig, ErasureCoding, StreamedCoding};
pub use error::ModelError;
pub use gilbert::Gilbert;
pub use go_back_n::{ConnectionMessage, ConnectionPath, GoBackN, Shim};
pub use loss::{CHUNK_LOSS_MAX, ChunkLoss, Loss};
pub use mixture::{Mixture, loss_range};
pub use random::Random;
pub use sr::{RepairTiming, SelectiveRepeat};
pub use tail::{TailCoding, TailMode, TailParity, TailQuestion, TailRule};
pub use transfer::{Framing, Path, Transfer};
