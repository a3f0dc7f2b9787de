//! The trailers that packets end with.

mod crc32c;

pub(crate) use crc32c::split;
pub use crc32c::{TRAILER_BYTES, check_crc32c, crc32c};
