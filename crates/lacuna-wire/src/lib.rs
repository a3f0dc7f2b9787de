//! Packet formats of Lacuna: bytes in, values out, and back. No socket, clock, thread or state.
//!
//! | module | what it holds |
//! |---|---|
//! | `qpn` | the destination QPN: queue pair, channel, generation |
//! | `immediate` | the 32-bit immediate: message id, packet offset, user fragment |
//! | `bth`, `data` | a data packet: BTH, ImmDt (UC SEND Only with Immediate), or with a RETH between (UC RDMA WRITE) |
//! | `control` | a control packet: BTH, DETH, then frames (UD SEND Only) |
//! | `frame` | the control frames, one file each |
//! | `packet`, `reject` | which of the two a datagram is, and why it is neither |
//! | `psn` | packet sequence numbers: 24 bits here, 64 bits above |
//! | `seal` | the trailer: what its length is, how it is made and judged |
//! | `icrc` | the trailer of RoCE, over headers that only a datapath knows |
//! | `info` | the queue pair's description that is exchanged before the first packet |
//!
//! All packets are RoCEv2 bit for bit, so captures decode in Wireshark, and a real RDMA NIC can be
//! the other end of Writes. A datagram passes three checks, each with its own cost and its own
//! error:
//!
//! 1. [`parse`] checks the layout in a few nanoseconds and borrows the payload;
//! 2. the [`Seal`] checks every byte ([`parse_checked`] does both). For a Send it yields the remote
//!    key; a damaged packet has a wrong key, which the crates above refuse;
//! 3. [`ControlBody`] checks the frames, of control packets only.
//!
//! The protocol above decides what the values *mean* (is this queue pair known, does this message
//! exist, is this sequence new). For any bytes whatever this crate promises: no panic, no
//! allocation that the input can make grow, no loop longer than the input, and an error that names
//! its reason and its numbers. Reserved bits are sent as zero and ignored on receipt, the
//! convention of the InfiniBand specification and of the IETF alike.
//!
//! Multi-byte fields are big-endian, except the trailers, which are little-endian as in
//! InfiniBand.

#![forbid(unsafe_code)]

mod bth;
mod control;
mod data;
mod frame;
mod icrc;
mod immediate;
mod info;
mod packet;
pub mod psn;
mod qpn;
mod reject;
mod seal;

pub use control::{
    CONTROL_HEADER_BYTES, CONTROL_VERSION, ControlBody, ControlHeader, ControlWriter, FrameIter,
};
pub use data::{DATA_HEADER_BYTES, DATA_HEADER_BYTES_MAX, DataHeader, pad_bytes};
pub use frame::{
    Ack, Cancel, CancelReason, ChannelReport, Entry, FRAME_HEADER_BYTES, Flush, FlushMark, Frame,
    FrameError, FrameKind, List, ListIter, Probe, ProbeReply, Receives, Report, Run, RunList,
    U64List,
};
pub use icrc::{ICRC_BYTES, icrc_ipv4, icrc_ipv6};
pub use immediate::{ImmediateFields, ImmediateSplit, SplitError};
pub use info::{CodeInfo, InfoError, InfoField, QpInfo, ReportsInfo};
pub use lacuna_crc::Crc32c;
pub use packet::{Packet, destination, parse, parse_checked, parse_data};
pub use qpn::{CHANNELS_MAX, GENERATIONS_MAX, Qpn};
pub use reject::{PacketError, RejectKind};
pub use seal::{SEALS, Seal, SealEntry, check_crc32c, crc32c};

/// Sequence numbers of packets are 24 bits wide, as in the BTH.
pub(crate) const PSN_MASK: u32 = (1 << psn::BITS) - 1;
