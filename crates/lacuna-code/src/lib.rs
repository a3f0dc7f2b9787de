//! Erasure codes of Lacuna: parity for blocks of chunks, and lost chunks from
//! the others. No socket, clock, thread or state of a connection.
//!
//! A block is k data chunks and m parity chunks (SDR-RDMA 4.1.2 and 5.1.1);
//! [`Code`] says which parity: XOR, cheap, one loss per group, or MDS, any m
//! losses. A [`Codec`] computes it, whole ([`Codec::encode`]) or folded in as
//! the data passes ([`Codec::update`]); with a [`Workspace`] it computes what was
//! lost ([`Codec::reconstruct_data`]). Chunks are named where they lie
//! ([`Chunked`], or any list of slices); nothing is copied, and nothing is
//! allocated once codec and workspace are made.
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
//! The arithmetic is done by an [`Engine`], the fastest that the processor can
//! run; the environment variable `LACUNA_EC_ENGINE` forces one.
//!
//! | module | what it holds |
//! |---|---|
//! | `code` | which code, its shape, its coefficients |
//! | `chunks`, `chunk_set`, `shape` | where chunks lie, sets of them, what fits |
//! | `codec`, `shared` | encode, update, verify; one codec for all who use a code |
//! | `reconstruct`, `repair_matrix`, `workspace` | repair, its matrices, those kept |
//! | `engine` | products and sums of chunks on a ladder of engines |
//! | `gf`, `slice_array`, `spread` | the field; lists on the stack; threads |

#![deny(unsafe_code)]

mod chunk_set;
mod chunks;
mod code;
mod codec;
mod engine;
mod gf;
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
