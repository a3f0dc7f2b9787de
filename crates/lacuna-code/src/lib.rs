//! Erasure codes: computes the parity of blocks of chunks, and lost chunks from the others. There is no
//! socket, clock, thread or connection state here. [`hadamard`] has what spreads a loss that is not repaired.
//!
//! A block has k data chunks and m parity chunks (SDR-RDMA 4.1.2 and 5.1.1). [`Code`] chooses the parity:
//! XOR is cheap and repairs one loss per group, MDS repairs any m losses. A [`Codec`] computes the parity
//! of a whole block ([`Codec::encode`]), or incrementally as the data passes ([`Codec::update`]); with a
//! [`Workspace`] it computes lost chunks ([`Codec::reconstruct_data`]). Chunks are used in place
//! ([`Chunked`], or any list of slices): nothing is copied, and nothing is allocated once codec and
//! workspace are made.
//!
//! ```
//! use lacuna_code::{ChunkSet, Chunked, ChunkedMut, Code, Codec, Workspace};
//!
//! let codec = Codec::new(Code::mds(4, 2)?)?;
//! let mut message = *b"any length, in chunks of eight";
//! let mut parity = [0; 16];
//! codec.encode(&Chunked::new(&message, 8)?, &mut ChunkedMut::new(&mut parity, 8)?)?;
//!
//! // Chunks 0 and 3 do not arrive.
//! message[..8].fill(0);
//! message[24..].fill(0);
//! let lost = ChunkSet::from_iter([0, 3]);
//! let mut data = ChunkedMut::new(&mut message, 8)?;
//! let mut workspace = Workspace::new(&codec);
//! codec.reconstruct_data(&mut workspace, &mut data, &Chunked::new(&parity, 8)?, &lost)?;
//! assert_eq!(&message, b"any length, in chunks of eight");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An [`Engine`], a SIMD back end, does the arithmetic: the fastest that the processor can run, unless
//! the environment variable `LACUNA_EC_ENGINE` names another.
//!
//! | module | contents |
//! |---|---|
//! | `code` | the codes, their shapes and coefficients |
//! | `chunks`, `chunk_set`, `shape` | views of chunks, sets of chunks, checks of counts and lengths |
//! | `codec`, `shared` | encode, update, verify; codecs shared in a process |
//! | `reconstruct`, `repair_matrix`, `workspace` | repair, its matrices, and their cache |
//! | `engine` | products and sums of chunks, by instruction set |
//! | [`hadamard`] | the transform that spreads losses in tensors, with engines of its own |
//! | `gf`, `slice_array`, `spread` | GF(2^8); lists on the stack; work on several threads |

#![deny(unsafe_code)]

mod chunk_set;
mod chunks;
mod code;
mod codec;
mod engine;
mod gf;
pub mod hadamard;
mod reconstruct;
mod repair_matrix;
mod shape;
mod shared;
mod slice_array;
mod spread;
mod workspace;

pub use chunk_set::ChunkSet;
pub use chunks::{Chunked, ChunkedMut, Chunks, ChunksMut, StrideError};
pub use code::{CHUNKS_MAX, Code, CodeError, CodeKind};
pub use codec::{Codec, VerifyError};
pub use engine::{ENGINE_VARIABLE, Engine, EngineError, EngineKind};
pub use reconstruct::ReconstructError;
pub use shape::ShapeError;
pub use workspace::Workspace;
