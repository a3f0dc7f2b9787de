//! Packets of datagram queue pairs: DDP segments with RDMAP operations, one in each datagram.
//!
//! Grant et al., "Scalable connectionless RDMA over unreliable datagrams" (datagram-iWARP), put iWARP's upper
//! layers on UDP: DDP (RFC 5041) says where bytes go, RDMAP (RFC 5040) what for. A datagram is whole or not there,
//! so MPA with its markers (RFC 5044) falls away, and a CRC32C is always there, never negotiated (2.1.3).
//!
//! ```text
//! | DDP header | RDMAP part | record, if tagged | payload | CRC32C 4 |
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `opcode` | RDMAP opcodes, and the queues of untagged segments |
//! | `segment` | headers: tagged with its record, untagged |
//! | `read` | what a READ asks for |
//! | `control` | what ends say about messages: reports, errors, what is missing |
//! | `error` | why a datagram is refused |
//!
//! **What is ours.** The paper leaves the packet of a Write-Record open, and DDP has no field for what it needs.
//! So it has an RDMAP opcode of its own, 0xc, which RFC 5040 and RFC 7306 leave unused, and behind the tagged header
//! a *record*: the message's number and length, and the segment's place in it. A Send has its message's
//! length where a Send with Invalidate has its STag. So each segment tells how long its message is, and the loss
//! of the last one costs no timeout. Control is untagged, opcode 0xe, on a queue of its own, 3. What is sent
//! reliably has a queue, 4, and a flag in the record; all such messages to a peer are numbered together.
//!
//! For any input: no panic, no allocation that grows with it, no loop longer than it.

mod control;
mod error;
mod opcode;
mod read;
mod segment;

pub use control::{
    About, CONTROL_BYTES_MAX, ControlFrame, ControlFrames, ControlReason, MissingRanges,
    MissingStretches, Position, Rows, Space, emit_control,
};
pub use error::{DdpError, DdpErrorKind};
pub use opcode::{Operation, Queue};
pub use read::{READ_REQUEST_BYTES, ReadRequest};
pub use segment::{
    RecordFlags, Segment, TAGGED_HEADER_BYTES, Tagged, UNTAGGED_HEADER_BYTES, Untagged, check,
    group_number, parse,
};

/// Bytes of the trailer.
pub const TRAILER_BYTES: usize = 4;
