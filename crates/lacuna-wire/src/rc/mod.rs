//! Packets of the reliable connection (RC), as RoCEv2 cards and kernels send them, and the repair packets
//! of LoWAR beside them.
//!
//! ```text
//! BTH 12 | RETH 16 | ImmDt 4 | payload | pad 0-3 | trailer 4     first byte 0x00-0x17
//! repair header 16           | sum of a unit     | trailer 4     first byte 0x1f
//! BTH 12 | reserved 16                           | trailer 4     first byte 0x81
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `opcode` | the table of operations: name, part of the message, headers |
//! | `aeth` | acknowledgements and refusals: syndromes and their timers |
//! | `packet` | the layout: headers to bytes and back |
//! | `info` | the description of an end, exchanged before the first packet |
//! | `repair` | repair headers: a block's repairs, announcements, requests (LoWAR IV-C) |
//! | `notification` | congestion notification packets (RoCEv2 annex A17.9.3) |
//!
//! InfiniBand Architecture Specification, volume 1, chapter 9. A queue pair number is the 24 bits of its
//! owner, here of either end; the trailer is checked by the seal of the queue pair.

mod aeth;
mod info;
mod notification;
mod opcode;
mod packet;
mod repair;

pub use aeth::{Aeth, CREDITS_UNLIMITED, Nak, RNR_TIMERS, Syndrome, rnr_timer_ns, rnr_timer_of};
pub use info::{RcInfo, RcInfoError};
pub use notification::{
    NOTIFICATION_BYTES, NOTIFICATION_OPCODE, emit_notification, parse_notification,
};
pub use opcode::{Opcode, Operation, Part, is_rc, rc_destination};
pub use packet::{AtomicHeader, Fields, RC_HEADER_BYTES_MAX, RcHeader, Reth};
pub use repair::{
    BlockHeader, CodeKind, MessageClass, ParseStrengthError, REPAIR_HEADER_BYTES, REPAIR_OPCODE,
    RepairHeader, Strength,
};
