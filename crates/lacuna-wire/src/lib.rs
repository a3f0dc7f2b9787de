//! Packet formats of Lacuna: encoders and decoders. No socket, clock, thread or state.
//!
//! | module | what it holds |
//! |---|---|
//! | `qpn` | the destination QPN: queue pair, channel, generation |
//! | `immediate` | the 32-bit immediate: message id, packet offset, user fragment |
//! | `bth`, `data` | data packets: UC SEND or UC RDMA WRITE, Only with Immediate |
//! | `control` | control packets: UD SEND Only with frames |
//! | `frame` | the control frames, one file each |
//! | [`ddp`] | packets of datagram queue pairs: DDP and RDMAP over UDP |
//! | [`rc`] | packets of the reliable connection, and LoWAR's repairs |
//! | `packet`, `reject` | the kind of a datagram, and why it is refused |
//! | `psn` | packet sequence numbers: 24 bits on the wire, 64 bits above |
//! | `seal` | trailers: length, checksum, check |
//! | `icrc` | the trailer of RoCE, over headers that only a datapath knows |
//! | `info` | the queue pair's description, exchanged before the first packet |
//!
//! All packets are RoCEv2 bit for bit: captures decode in Wireshark, and the peer of Writes can be
//! a real RDMA NIC. A datagram passes three checks, each with its own cost and errors:
//!
//! 1. [`parse`] checks the layout in a few nanoseconds and borrows the payload;
//! 2. the [`Seal`] checks every byte ([`parse_checked`] does both). Damage to a Send changes the
//!    remote key that the check computes; the caller refuses the wrong key;
//! 3. [`ControlBody`] checks the frames of control packets.
//!
//! The protocol above decides whether values make sense: whether the queue pair and the message
//! exist, whether the sequence number is new. For any input this crate guarantees: no panic, no
//! allocation that grows with the input, no loop longer than the input, and errors with the reason
//! and its numbers. Reserved bits are sent as zero and ignored on receipt, as InfiniBand and the
//! IETF do.
//!
//! Multi-byte fields are big-endian, except the trailers, which are little-endian as in InfiniBand.

#![forbid(unsafe_code)]

mod bth;
mod control;
mod data;
pub mod ddp;
mod frame;
mod icrc;
mod immediate;
mod info;
mod packet;
pub mod psn;
mod qpn;
pub mod rc;
mod reject;
mod seal;

pub use control::{
    CONTROL_HEADER_BYTES, CONTROL_VERSION, ControlBody, ControlHeader, ControlWriter, FrameIter,
};
pub use data::{DATA_HEADER_BYTES, DATA_HEADER_BYTES_MAX, DataHeader, pad_bytes};
pub use frame::{
    Ack, Cancel, CancelReason, ChannelReport, Entry, FRAME_HEADER_BYTES, Flush, FlushMark, Frame,
    FrameError, FrameKind, List, ListIter, PathChallenge, PathResponse, Probe, ProbeReply, Read,
    ReadRefusal, ReadRefused, Receives, ReceivesBefore, Relayed, Report, Run, RunList, Sent,
    U64List,
};
pub use icrc::{ICRC_BYTES, IcrcFlow, Identification, icrc_ipv4, icrc_ipv6};
pub use immediate::{ImmediateFields, ImmediateSplit, SplitError};
pub use info::{CodeInfo, InfoError, InfoField, NONCE_BYTES, QpInfo, ReportsInfo};
pub use lacuna_crc::Crc32c;
pub use packet::{Packet, destination, parse, parse_checked, parse_data};
pub use qpn::{CHANNELS_MAX, GENERATIONS_MAX, Qpn};
pub use reject::{PacketError, RejectKind};
pub use seal::{SEALS, Seal, SealEntry, check_crc32c, crc32c};

/// Sequence numbers of packets are 24 bits wide, as in the BTH.
pub const PSN_MASK: u32 = (1 << psn::BITS) - 1;
