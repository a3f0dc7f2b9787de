//! Parity as the receiver of a message sees it: where its packets stand, which of them are kept, and
//! what is repaired with them.

mod held;
mod layout;
mod repair;

pub(crate) use held::Held;
pub use held::Taken;
pub(crate) use layout::data_packets_limit;
pub use layout::{Layout, ParityPacket, Row};
pub(crate) use repair::{Repairer, RowAt};

use lacuna_code::{Code, Codec};

/// A codec for a tail of the XOR code: it has no tables, so it costs nothing.
pub(crate) fn codec_like(codec: &Codec, code: Code) -> Codec {
    Codec::with_engine(code, codec.engine())
}
