//! The Walsh-Hadamard transform of tensors whose packets may be lost (OptiNIC 3.2).
//!
//! A packet that is lost zeroes what it carries. If that is a piece of the tensor, one block of it is gone; if
//! it is a few coefficients of each of many blocks, each element of these is off by a little. The mean squared
//! error is the loss either way, as the transform is orthonormal; what falls is the error of the worst block.
//!
//! - [`Layout`] describes blocks of p elements and packets with p/S elements of each of S blocks.
//! - [`Transform`] encodes tensors of f32, f16 or bf16 (these in f32 arithmetic) and decodes what came.
//! - [`RawBlocks`] lists the blocks that are sent as they are, because they hold a NaN or an infinity.
//! - [`Engine`] is the arithmetic by instruction set: the fastest that the processor can run, unless the
//!   environment variable `LACUNA_HADAMARD_ENGINE` names another. All give the same bits.
//!
//! The encoded form has the tensors' length and type. It is linear: encoded tensors, of the same layout and
//! seed, can be summed element by element, and the sum decoded. A sum of 16-bit coefficients may overflow
//! where that of the elements does not; it then is infinite, and so is the block's every element or NaN.
//!
//! ```
//! use lacuna_code::hadamard::{Arrived, Element, Layout, Scale, Transform, bytes_of, bytes_of_mut};
//!
//! // Two tensors, in blocks of 64 elements of which 16 share packets.
//! let layout = Layout::new(64, 16, &[4000, 200])?;
//! let mut transform = Transform::new(Element::F32, 42)?;
//! let gradients = vec![1.0; layout.elements()];
//! let mut wire = vec![0; 4 * layout.elements()];
//! let raw = transform.encode(&layout, bytes_of(&gradients), &mut wire)?;
//!
//! // The first of 66 packets does not arrive.
//! let came = [!1, u64::MAX];
//! let mut decoded = vec![0.0; layout.elements()];
//! let to = bytes_of_mut(&mut decoded);
//! transform.decode(&layout, &mut wire, Arrived::Bits(&came), &raw, Scale::Kept, to)?;
//! assert!(decoded.iter().all(|value| (0.3..1.7).contains(value)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `layout` | blocks, units, packets |
//! | `transform`, `raw` | encode and decode; blocks that are sent as they are |
//! | `engine` | the transform of a block, by instruction set |
//! | `signs`, `element`, `bytes` | random signs; types of elements; tensors as bytes |

mod bytes;
mod element;
mod engine;
mod layout;
mod raw;
mod signs;
#[cfg(test)]
mod tests;
mod transform;

pub use bytes::{bytes_of, bytes_of_mut};
pub use element::{Element, bf16_of_f32, f16_of_f32, f32_of_bf16, f32_of_f16};
pub use engine::{ENGINE_VARIABLE, Engine, EngineError, EngineKind};
pub use layout::{BLOCK_MAX, BLOCK_MIN, Block, Layout, LayoutError, Run, STRIDE_DEFAULT, Unit};
pub use raw::{BlockState, RawBlocks, RawBlocksError};
pub use transform::{Arrived, Scale, Transform, TransformError};
