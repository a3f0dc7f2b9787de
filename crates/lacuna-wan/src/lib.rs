//! A WAN emulator: two hosts on one machine, joined by an emulated long and lossy path, for any program; or an
//! emulated LAN of many hosts with broadcast and multicast ([`lan`]); or many sites that long paths join in a star or a
//! ring ([`network`]).
//!
//! The hosts are network namespaces, and all packets between them pass through this process. It forwards
//! IP packets of any protocol. Each direction has a rate with a bounded queue, a delay (fixed, with
//! jitter, or from a trace), losses (independent, in bursts, or from a trace), reordering, duplication,
//! corruption and ECN marks, all from one seed. It needs no root where the system allows user
//! namespaces.
//!
//! ```no_run
//! use lacuna_wan::{Delay, Side, Wan, WanConfig, WayConfig};
//! use std::process::Command;
//!
//! let way = WayConfig {
//!     rate_bits_per_s: Some(1_000_000_000),
//!     queue_bytes: 5_000_000,
//!     delay: Delay::Fixed(20_000_000),
//!     ..WayConfig::default()
//! };
//! let wan = Wan::start(&WanConfig { ways: [way.clone(), way], ..WanConfig::default() })?;
//! let mut server = Command::new("iperf3");
//! wan.host(Side::Server).place(server.args(["-s", "-1"]))?;
//! let mut server = server.spawn()?;
//! while !wan.host(Side::Server).is_listening() {
//!     std::thread::yield_now();
//! }
//! let mut client = Command::new("iperf3");
//! wan.host(Side::Client).place(client.args(["-c", "10.77.0.1"]))?;
//! client.status()?;
//! server.wait()?;
//! println!("{:?}", wan.stop()?.total);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! Each host has a TUN device (in a LAN, a TAP device) with `IFF_VNET_HDR`, so the kernel passes TCP and UDP data to it as to a
//! network card with segmentation offload: in bundles of up to 64 KiB. A bundle stays whole unless the
//! path treats its packets differently; then it is cut around them ([`bundle`]). So 1 Gbit/s takes only
//! a tenth of a core, and 10 Gbit/s half a core.
//!
//! | module | |
//! |---|---|
//! | [`way`] | one direction of the path, a pure state machine: which packets come out, and when |
//! | [`bundle`] | frames of a TUN device, and how a bundle is cut |
//! | [`timeline`] | counters over time |
//! | `arena`, `flight` | the memory of frames in flight, and the order in which they come out |
//! | `emulator` | the thread that reads, delays and writes frames |
//! | [`host`] | namespaces, devices, programs; the process that cleans up |
//! | [`wan`] | the path and its hosts together |
//! | [`lan`] | a LAN: hosts and the switch that joins them |
//! | [`network`] | sites: hosts, and links with routes over them |
//!
//! The losses, the random generator and the link are those of [`lacuna_link`]: the same
//! seed and the same order of packets give the same losses in all its users.
//!
//! Not modelled: reordering and duplication take no capacity of the link; the queue is drop-tail; a
//! change of the path does not affect packets in flight. Emulator and programs share this machine's
//! processors; [`Report::device_drops`] shows when the emulator was too slow.
//!
//! Unsafe code is confined to `host/syscall.rs`. Only the pure parts exist outside of Linux.

#![deny(unsafe_code)]

mod arena;
pub mod bundle;
mod flight;
pub mod timeline;
pub mod way;

#[cfg(target_os = "linux")]
mod emulator;
#[cfg(target_os = "linux")]
pub mod host;
#[cfg(target_os = "linux")]
pub mod lan;
#[cfg(target_os = "linux")]
pub mod network;
#[cfg(target_os = "linux")]
pub mod wan;

#[cfg(target_os = "linux")]
pub use emulator::Progress;
#[cfg(target_os = "linux")]
pub use host::{Host, HostConfig, HostError, Member, Outcome, Program, Side};
pub use lacuna_link::{Background, Fraction, Loss, LossError};
#[cfg(target_os = "linux")]
pub use lan::{Lan, LanConfig, LanError, LanProgress, LanReport, PortCounters};
#[cfg(target_os = "linux")]
pub use network::{
    Network, NetworkConfig, NetworkError, NetworkProgress, NetworkReport, Node, Topology,
    WayProgress,
};
pub use timeline::{Sample, Timeline, WaySample};
#[cfg(target_os = "linux")]
pub use wan::{Direction, Report, Wan, WanConfig, WanError};
pub use way::{Delay, DelayTrace, TraceError, WayConfig, WayCounters, WayError, parse_losses};
