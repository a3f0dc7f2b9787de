//! Datapaths of the Lacuna transport: UDP sockets, an in-process network, and wrappers around them.
//!
//! A [`Datapath`] sends and receives bursts of packets; its [`Capabilities`] list its limits and
//! offloads. It knows nothing of messages, bitmaps or reliability: it may lose, repeat and reorder
//! packets, and the layers above repair that.
//!
//! | datapath | what it is |
//! |---|---|
//! | [`udp`] | sockets: segmentation offload and coalescing on Linux, one packet a call elsewhere |
//! | [`mem`] | endpoints joined inside one process, for tests and simulation |
//! | [`impair`] | a wrapper that emulates a bad link: loss, delay, rate, reordering and more |
//! | [`pcap`] | a wrapper that writes all packets to a capture file that Wireshark decodes |
//!
//! All of them pass the same conformance suite (`tests/conformance.rs`). Adding one means a folder
//! of the same shape and a line in that suite.
//!
//! Rules that hold throughout:
//!
//! * Time is an argument: `now_ns`, nanoseconds on a clock of the caller's choice that does not run
//!   backwards. Nothing here reads a clock, so everything runs on a fake one too. (A [`Waiter`]
//!   sleeps in real time; a test on a fake clock does not use one.)
//! * Randomness comes from a seed: the same seed and the same calls give the same packets.
//! * Nothing blocks except [`Waiter::wait`]. After the first bursts nothing allocates per packet.
//! * Unsafe code is confined to `process/per_process.rs`, `process/descriptors.rs` and to the
//!   files named after system calls, `limit/syscall.rs`, `process/syscall.rs`, `tcp/syscall.rs`,
//!   `thread/syscall.rs`, `udp/syscall.rs`, `wait/syscall.rs` and `wait/syscall_poll.rs`.

#![deny(unsafe_code)]

mod error;
pub mod impair;
pub mod limit;
pub mod mem;
pub mod pcap;
pub mod ports;
pub mod process;
mod tcp;
pub mod testing;
pub mod thread;
pub mod udp;
pub mod wait;
mod wildcard;

pub use error::BindError;
pub use impair::{
    Fraction, Impair, ImpairCounters, ImpairCountersHandle, Impairment, ImpairmentError, Loss,
    LossError,
};
pub use lacuna_burst::{
    BUNDLE_PACKETS_MAX, Burst, BurstBuffers, Capabilities, Datapath, PACKET_BYTES_MAX, Packets,
    PacketsMut, Placer, ReceivedBatch, SendError, TrailerOffload, TxPacket, burst, ends_listener,
    ends_socket,
};
#[cfg(unix)]
pub use lacuna_burst::{EventSource, EventSources};
pub use mem::{Mem, MemNetwork};
pub use pcap::{Pcap, PcapOptions, PcapSummary, PcapTime, PcapWriter};
pub use ports::PortRange;
pub use process::Process;
pub use tcp::{TcpPath, listen, set_tcp_rto_min, tcp_path};
pub use udp::{Dscp, Groups, Offload, Udp, UdpConfig};
pub use wait::{Waiter, Waker};
pub use wildcard::families;
