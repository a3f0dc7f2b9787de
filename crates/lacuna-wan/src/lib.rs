//! Two hosts on one machine, joined by an emulated long and lossy path, for any program.
//!
//! The hosts are network namespaces; all that leads from one to the other passes this process. It
//! forwards IP packets of any protocol, and each way by itself has a rate with a bounded queue, a
//! delay (fixed, with jitter, or recorded), losses (independent, in bursts, or recorded),
//! reordering, duplication, corruption and ECN marks, all from one seed. Root is not needed where
//! the system gives users a namespace of their own.
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
//! Each host has a TUN device with `IFF_VNET_HDR`, so that the kernel hands over TCP and UDP data
//! as it would to a network card that segments: in bundles of up to 64 KiB. A bundle stays whole
//! unless the path treats its packets differently; then it is cut around them ([`bundle`]). That is
//! what makes it cheap: 1 Gbit/s takes a tenth of a core, 10 Gbit/s half a core.
//!
//! | module | |
//! |---|---|
//! | [`way`] | one direction of the path, a pure state machine: what comes out, and when |
//! | [`bundle`] | frames of a TUN device, and how a bundle is cut |
//! | [`timeline`] | counters over time |
//! | `arena`, `flight` | where frames lie on their way, and in which order they come out |
//! | `emulator` | the thread that reads, asks, waits and writes |
//! | [`host`] | namespaces, devices, programs; the process that cleans up |
//! | [`wan`] | all of it together |
//!
//! The losses, the random generator and the link are those of [`lacuna_link`]: the same
//! seed and the same order of packets give the same losses there and here.
//!
//! What is not modelled: reordering and duplication cost the link no capacity; the queue is
//! drop-tail; a change of the path does not touch what is under way. A host's processor is this
//! machine's: emulator and programs compete for it, and [`Report::device_drops`] tells when the
//! emulator came too late.
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
pub mod wan;

#[cfg(target_os = "linux")]
pub use emulator::Progress;
#[cfg(target_os = "linux")]
pub use host::{Host, HostConfig, HostError, Outcome, Program, Side};
pub use lacuna_link::{Fraction, Loss, LossError};
pub use timeline::{Sample, Timeline, WaySample};
#[cfg(target_os = "linux")]
pub use wan::{Direction, Report, Wan, WanConfig, WanError};
pub use way::{Delay, DelayTrace, TraceError, WayConfig, WayCounters, WayError, parse_losses};
