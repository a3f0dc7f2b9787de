//! Codes and structs of `sdr.h`. The API fixes order and types of the fields.

use std::ffi::c_uint;

/// What a call answers. The text of an error is to be had by
/// lacuna_last_error() of lacuna.h.
#[repr(C)]
pub enum sdr_errcode {
    /// Done.
    SDR_SUCCESS = 0,
    /// The call makes no sense, or the operation has failed for good.
    SDR_ERROR = 1,
    /// Not possible now for lack of resources, or not complete yet: call again.
    SDR_RETRY = 2,
}

/// Payload bytes of a packet.
#[repr(C)]
pub enum sdr_mtu {
    /// 64 bytes.
    SDR_MTU_64,
    /// 128 bytes.
    SDR_MTU_128,
    /// 256 bytes.
    SDR_MTU_256,
    /// 512 bytes.
    SDR_MTU_512,
    /// 1024 bytes: fits every path that carries IPv6.
    SDR_MTU_1024,
    /// 2048 bytes: needs an interface MTU of 2112.
    SDR_MTU_2048,
    /// 4096 bytes: needs an interface MTU of 4160, jumbo frames or loopback.
    SDR_MTU_4096,
}

/// What a send does at the peer.
#[repr(C)]
pub enum sdr_wr_opcode {
    /// Writes.
    SDR_WR_WRITE,
    /// Writes, and hands over 32 bits.
    SDR_WR_WRITE_WITH_IMM,
}

/// An enumerator of `sdr_mtu` as C hands it over: any number.
pub type sdr_mtu_value = c_uint;
/// An enumerator of `sdr_wr_opcode` as C hands it over: any number.
pub type sdr_wr_opcode_value = c_uint;

/// What a context is made with.
#[repr(C)]
pub struct sdr_dev_attr {
    /// Sockets, each with its own 4-tuple towards a peer: 1 to 16, 0 means 1,
    /// and more than 16 mean 16. Both ends need the same number. How many
    /// threads serve them follows from the machine.
    pub num_channels: u32,
    /// Ignored: any number of queue pairs shares a context.
    pub log_max_qps: u32,
}

/// What a queue pair is made with. All but the enables and the rate must be the
/// same at both ends.
#[repr(C)]
pub struct sdr_qp_attr {
    /// Bytes per bit of the bitmap, as a power of two: the MTU at least.
    pub bitmap_chunk_size_log_bytes: u32,
    /// Bytes of all messages in flight together, as a power of two. A message
    /// may be as long. Sends that would lend out more are told SDR_RETRY.
    pub max_in_flight_log_bytes: usize,
    /// Messages in flight, as a power of two, 16 at most: so many receives can
    /// be posted, or some more.
    pub max_log_num_msgs: u32,
    /// Payload bytes of a packet.
    pub mtu: sdr_mtu_value,
    /// Whether it sends.
    pub send_enable: u8,
    /// Whether it receives.
    pub recv_enable: u8,
    /// Megabits per second that it sends with; 0 finds the path's rate.
    pub rate_limit: u32,
}

/// A one-shot send.
#[repr(C)]
pub struct sdr_send_wr {
    /// Whether it carries imm_value.
    pub opcode: sdr_wr_opcode_value,
    /// Handed to the peer with SDR_WR_WRITE_WITH_IMM.
    pub imm_value: u32,
    /// Bytes.
    pub length: u32,
    /// Key of the region that the bytes lie in.
    pub lkey: u32,
    /// Where the bytes lie.
    pub local_addr: u64,
    /// Where in the peer's buffer they go, in chunks of the bitmap.
    pub remote_offset: u64,
}

/// The beginning of a streaming send.
#[repr(C)]
pub struct sdr_send_start_wr {
    /// Whether it carries imm_value.
    pub opcode: sdr_wr_opcode_value,
    /// Handed to the peer with SDR_WR_WRITE_WITH_IMM.
    pub imm_value: u32,
}

/// A part of a streaming send.
#[repr(C)]
pub struct sdr_send_continue_wr {
    /// Bytes: a multiple of the MTU, but for the part that ends the message.
    pub length: u32,
    /// Where the bytes lie.
    pub local_addr: u64,
    /// Key of the region that the bytes lie in.
    pub lkey: u32,
    /// Where in the peer's buffer they go, in chunks of the bitmap.
    pub remote_offset: u64,
}

/// A receive.
#[repr(C)]
pub struct sdr_recv_wr {
    /// Bytes of the buffer: messages that land in it may be shorter.
    pub max_length: u32,
    /// Key of the region that the buffer lies in.
    pub lkey: u32,
    /// Where the buffer lies.
    pub address: u64,
}

/// Unused.
#[repr(C)]
pub struct sdr_send_status {
    /// 0.
    pub flags: u32,
}
