//! An emulated local network: hosts that a switch joins, with broadcast and multicast.
//!
//! Each host is a network namespace with a TAP device. Frames go to whom their destination says: to one host, or
//! to all others (`table`). On the way to each host the path's rate, queue, delay and faults apply, by random
//! numbers of its own: what one host loses of a broadcast says nothing of the others. ARP, neighbour discovery
//! and group membership are spoken by the hosts' kernels as on any LAN, and their packets are subject to the same.
//!
//! Not modelled: a host's own link into the switch, which is as fast as this machine; a bridge that knows who has
//! joined a group (snooping): groups are delivered to all, whose kernels drop what they did not join.

mod switch;
mod table;

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use lacuna_datapath::limit::Said;
use rustix::event::{EventfdFlags, eventfd};

use crate::host::{HostConfig, HostError, Member, Neighbourhood, member_mac};
use crate::way::{Way, WayConfig, WayError};
use switch::{Request, Switch};
use table::Table;

pub use switch::{LanProgress, PortCounters};

/// The LAN to emulate.
#[derive(Clone, Debug)]
pub struct LanConfig {
    /// How many hosts, within [`LanConfig::HOSTS`].
    pub hosts: u8,
    /// The way from the switch to each host.
    pub way: WayConfig,
    /// All hosts.
    pub host: HostConfig,
    /// Seed of all random faults; each host draws from streams of its own.
    pub seed: u64,
}

impl LanConfig {
    /// Bounds of [`LanConfig::hosts`]: each takes four descriptors and a process (a judgement).
    pub const HOSTS: RangeInclusive<u8> = 2..=100;
}

impl Default for LanConfig {
    fn default() -> Self {
        Self { hosts: 2, way: WayConfig::default(), host: HostConfig::default(), seed: 1 }
    }
}

/// Why a LAN could not be made, or changed.
#[derive(Debug, thiserror::Error)]
pub enum LanError {
    /// Too few hosts, or too many.
    #[error("{hosts} hosts are out of range: use {} to {}", LanConfig::HOSTS.start(), LanConfig::HOSTS.end())]
    Hosts {
        /// As given.
        hosts: u8,
    },
    /// A way with impossible settings.
    #[error(transparent)]
    Way(#[from] WayError),
    /// A host that could not be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Another error of the system.
    #[error("cannot run an emulated LAN: {why}", why = Said(.0))]
    System(#[from] io::Error),
    /// The switch has ended by itself.
    #[error("the emulated LAN has ended")]
    Ended,
}

/// The counters of a LAN that has ended.
#[derive(Clone, Debug)]
pub struct LanReport {
    /// The totals.
    pub total: LanProgress,
    /// Frames of each host that its device dropped because the switch did not read fast enough. More than a few
    /// mean that this machine is too slow for the LAN.
    pub device_drops: Vec<u64>,
}

/// Hosts and the switch that joins them. When it is dropped, or this process dies, all programs in the hosts are
/// killed.
#[derive(Debug)]
pub struct Lan {
    hosts: Vec<Member>,
    requests: Sender<Request>,
    waker: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<LanProgress>>>,
}

impl Lan {
    /// Makes the hosts and starts the switch.
    ///
    /// # Errors
    ///
    /// For wrong settings, or when the system does not allow a step; the error says what to do.
    pub fn start(config: &LanConfig) -> Result<Self, LanError> {
        let hosts = config.hosts;
        if !LanConfig::HOSTS.contains(&hosts) {
            return Err(LanError::Hosts { hosts });
        }
        config.way.validate()?;
        let mut hosts = Member::all(hosts, Neighbourhood::Switched, &config.host)?;
        let devices: Option<Vec<_>> = hosts.iter_mut().map(Member::take_device).collect();
        let devices = devices.ok_or(LanError::Ended)?;
        let table = Table::new(hosts.iter().map(|host| member_mac(host.number())));
        let numbers = 0..hosts.len() as u64;
        let ways =
            numbers.map(|number| Way::new(config.way.clone(), config.seed, number)).collect();
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let waker = Arc::new(waker.map_err(io::Error::from)?);
        let (requests, receiver) = mpsc::channel();
        let for_thread = Arc::clone(&waker);
        let thread = thread::Builder::new()
            .name("lacuna-lan".to_owned())
            .spawn(move || Switch::new(devices, ways, table, receiver, for_thread).run())?;
        Ok(Self { hosts, requests, waker, thread: Some(thread) })
    }

    /// The hosts, in order.
    #[must_use]
    pub fn hosts(&self) -> &[Member] {
        &self.hosts
    }

    /// Changes the ways to all hosts for packets that enter from now on.
    ///
    /// # Errors
    ///
    /// [`LanError::Way`] for impossible settings; the ways stay as they are.
    pub fn change(&self, config: WayConfig) -> Result<(), LanError> {
        config.validate()?;
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Change { config: Box::new(config), answer });
        receiver.recv().map_err(|_| LanError::Ended)?.map_err(LanError::Way)
    }

    /// The LAN's counters so far.
    ///
    /// # Errors
    ///
    /// [`LanError::Ended`] when the switch has failed; [`Lan::stop`] returns its error.
    pub fn progress(&self) -> Result<LanProgress, LanError> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Read { answer });
        receiver.recv().map_err(|_| LanError::Ended)
    }

    /// Ends the LAN and all programs in the hosts.
    ///
    /// # Errors
    ///
    /// The switch's error, if it failed.
    pub fn stop(mut self) -> Result<LanReport, LanError> {
        self.ask(Request::Stop);
        let thread = self.thread.take().ok_or(LanError::Ended)?;
        let total = thread.join().map_err(|_| LanError::Ended)??;
        let device_drops = self.hosts.iter().map(Member::device_drops).collect();
        Ok(LanReport { total, device_drops })
    }

    fn ask(&self, request: Request) {
        // If the thread has ended, the answer never comes and the caller sees a closed channel.
        let _ = self.requests.send(request);
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.ask(Request::Stop);
            let _ = thread.join();
        }
    }
}
