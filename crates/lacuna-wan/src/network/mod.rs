//! Emulated sites: hosts that long paths join, in a star or in a ring.
//!
//! Each host is a network namespace with one TUN device, to which all packets for other hosts go. One thread
//! (`forwarder`) moves them over the links of their route (`routes`), each way of which has a rate, a queue, a delay and
//! faults by random numbers of its own. So flows that share a link share its queue, as those of a router do.
//!
//! Not modelled: a link between a host and its router, which is as fast as this machine; routers that take time or count
//! hops. Broadcasts and groups are for no host, and go nowhere.

mod forwarder;
mod routes;

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use lacuna_datapath::limit::Said;
use rustix::event::{EventfdFlags, eventfd};

use crate::host::{HostConfig, HostError, Member, Neighbourhood};
use crate::way::{Way, WayConfig, WayError};
use forwarder::{Forwarder, Request};
use routes::Routes;

pub use forwarder::{NetworkProgress, WayProgress};
pub use routes::{Node, Topology};

/// The network to emulate.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// How hosts are joined.
    pub topology: Topology,
    /// How many hosts, within [`NetworkConfig::HOSTS`].
    pub hosts: u8,
    /// The ways of each link: from a host to the switch, or to the next host; and back.
    pub ways: [WayConfig; 2],
    /// All hosts.
    pub host: HostConfig,
    /// Seed of all random faults; each way draws from streams of its own.
    pub seed: u64,
}

impl NetworkConfig {
    /// Bounds of [`NetworkConfig::hosts`]: a ring of two would have two links between them, and one process moves all
    /// packets (a judgement).
    pub const HOSTS: RangeInclusive<u8> = 3..=64;
}

/// Why a network could not be made, or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Too few hosts, or too many.
    #[error(
        "{hosts} hosts are out of range: use {} to {}",
        NetworkConfig::HOSTS.start(),
        NetworkConfig::HOSTS.end()
    )]
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
    #[error("cannot run an emulated network: {why}", why = Said(.0))]
    System(#[from] io::Error),
    /// The forwarder has ended by itself.
    #[error("the emulated network has ended")]
    Ended,
}

/// The counters of a network that has ended.
#[derive(Clone, Debug)]
pub struct NetworkReport {
    /// The totals.
    pub total: NetworkProgress,
    /// Frames of each host that its device dropped because the forwarder did not read fast enough. More than a few
    /// mean that this machine is too slow for the network.
    pub device_drops: Vec<u64>,
}

/// Hosts and the links between them. When it is dropped, or this process dies, all programs in the hosts are killed.
#[derive(Debug)]
pub struct Network {
    hosts: Vec<Member>,
    requests: Sender<Request>,
    waker: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<NetworkProgress>>>,
}

impl Network {
    /// Makes the hosts and starts the forwarder.
    ///
    /// # Errors
    ///
    /// For wrong settings, or when the system does not allow a step; the error says what to do.
    pub fn start(config: &NetworkConfig) -> Result<Self, NetworkError> {
        let hosts = config.hosts;
        if !NetworkConfig::HOSTS.contains(&hosts) {
            return Err(NetworkError::Hosts { hosts });
        }
        for way in &config.ways {
            way.validate()?;
        }
        let routes = Routes::new(config.topology, hosts);
        let mut hosts = Member::all(hosts, Neighbourhood::Routed, &config.host)?;
        let devices: Option<Vec<_>> = hosts.iter_mut().map(Member::take_device).collect();
        let devices = devices.ok_or(NetworkError::Ended)?;
        let configs = config.ways.iter().cycle().zip(0..routes.ends().len() as u64);
        let ways = configs.map(|(way, number)| Way::new(way.clone(), config.seed, number));
        let ways = ways.collect();
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let waker = Arc::new(waker.map_err(io::Error::from)?);
        let (requests, receiver) = mpsc::channel();
        let for_thread = Arc::clone(&waker);
        let thread = thread::Builder::new()
            .name("lacuna-network".to_owned())
            .spawn(move || Forwarder::new(devices, ways, routes, receiver, for_thread).run())?;
        Ok(Self { hosts, requests, waker, thread: Some(thread) })
    }

    /// The hosts, in order.
    #[must_use]
    pub fn hosts(&self) -> &[Member] {
        &self.hosts
    }

    /// Changes the ways of all links for packets that enter from now on.
    ///
    /// # Errors
    ///
    /// [`NetworkError::Way`] for impossible settings; the ways stay as they are.
    pub fn change(&self, configs: [WayConfig; 2]) -> Result<(), NetworkError> {
        for config in &configs {
            config.validate()?;
        }
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Change { configs: Box::new(configs), answer });
        receiver.recv().map_err(|_| NetworkError::Ended)?.map_err(NetworkError::Way)
    }

    /// The network's counters so far.
    ///
    /// # Errors
    ///
    /// [`NetworkError::Ended`] when the forwarder has failed; [`Network::stop`] returns its error.
    pub fn progress(&self) -> Result<NetworkProgress, NetworkError> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Read { answer });
        receiver.recv().map_err(|_| NetworkError::Ended)
    }

    /// Ends the network and all programs in the hosts.
    ///
    /// # Errors
    ///
    /// The forwarder's error, if it failed.
    pub fn stop(mut self) -> Result<NetworkReport, NetworkError> {
        self.ask(Request::Stop);
        let thread = self.thread.take().ok_or(NetworkError::Ended)?;
        let total = thread.join().map_err(|_| NetworkError::Ended)??;
        let device_drops = self.hosts.iter().map(Member::device_drops).collect();
        Ok(NetworkReport { total, device_drops })
    }

    fn ask(&self, request: Request) {
        // If the thread has ended, the answer never comes and the caller sees a closed channel.
        let _ = self.requests.send(request);
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.ask(Request::Stop);
            let _ = thread.join();
        }
    }
}
