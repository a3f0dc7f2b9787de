//! The emulated path with its two hosts: the interface for benchmarks and the command line.

use lacuna_datapath::limit::Said;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::emulator::{Emulator, Progress, Request};
use crate::host::{Host, HostConfig, HostError, Side};
use crate::timeline::Timeline;
use crate::way::{Way, WayConfig, WayError};

/// One of the two ways of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    /// Both, in the order of all pairs of ways here.
    pub const ALL: [Self; 2] = [Self::ToServer, Self::ToClient];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ToServer => "to_server",
            Self::ToClient => "to_client",
        }
    }
}

/// The path to emulate.
#[derive(Clone, Debug)]
pub struct WanConfig {
    /// To the server, to the client.
    pub ways: [WayConfig; 2],
    /// Both hosts.
    pub hosts: HostConfig,
    /// Seed of all random faults.
    pub seed: u64,
    /// The interval of the time line.
    pub interval: Duration,
}

impl Default for WanConfig {
    fn default() -> Self {
        Self {
            ways: Default::default(),
            hosts: HostConfig::default(),
            seed: 1,
            interval: Duration::from_millis(50),
        }
    }
}

/// Why a path could not be made, or changed.
#[derive(Debug, thiserror::Error)]
pub enum WanError {
    /// A way with impossible settings.
    #[error(transparent)]
    Way(#[from] WayError),
    /// A host that could not be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The interval of the time line is 0.
    #[error("the time line's interval must be more than zero")]
    ZeroInterval,
    /// Another error of the system.
    #[error("cannot run an emulated path: {why}", why = Said(.0))]
    System(#[from] io::Error),
    /// The emulator has ended by itself.
    #[error("the emulated path has ended")]
    Ended,
}

/// The counters of a path, in total and over time.
#[derive(Clone, Debug)]
pub struct Report {
    /// The totals.
    pub total: Progress,
    /// The counters over time.
    pub timeline: Timeline,
    /// Frames that a host's device dropped because the emulator did not read fast enough: on the
    /// way to the server, to the client. More than a few mean that this machine is too slow for
    /// the path.
    pub device_drops: [u64; 2],
}

/// Two hosts and the path between them. When it is dropped, or this process dies, all programs in the
/// hosts are killed.
#[derive(Debug)]
pub struct Wan {
    /// Server, client.
    hosts: [Host; 2],
    requests: Sender<Request>,
    waker: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<(Progress, Timeline)>>>,
}

impl Wan {
    /// Makes the hosts and starts the path.
    ///
    /// # Errors
    ///
    /// For wrong settings, or when the system does not allow a step; the error says what to do.
    pub fn start(config: &WanConfig) -> Result<Self, WanError> {
        for way in &config.ways {
            way.validate()?;
        }
        let interval_ns = u64::try_from(config.interval.as_nanos()).unwrap_or(u64::MAX / 2);
        if interval_ns == 0 {
            return Err(WanError::ZeroInterval);
        }
        let mut hosts = Host::pair(&config.hosts)?;
        let [server, client] = &mut hosts;
        let (Some(server), Some(client)) = (server.take_tun(), client.take_tun()) else {
            return Err(WanError::Ended);
        };
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let waker = Arc::new(waker.map_err(io::Error::from)?);
        let [to_server, to_client] = &config.ways;
        let ways = [
            Way::new(to_server.clone(), config.seed, 0),
            Way::new(to_client.clone(), config.seed, 1),
        ];
        let (requests, receiver): (_, Receiver<Request>) = mpsc::channel();
        let timeline = Timeline::new(interval_ns);
        let devices = [server, client];
        let for_thread = Arc::clone(&waker);
        let thread = thread::Builder::new()
            .name("lacuna-wan".to_owned())
            .spawn(move || Emulator::new(devices, ways, timeline, receiver, for_thread).run())?;
        Ok(Self { hosts, requests, waker, thread: Some(thread) })
    }

    /// One of the hosts.
    #[must_use]
    pub fn host(&self, side: Side) -> &Host {
        match side {
            Side::Server => &self.hosts[0],
            Side::Client => &self.hosts[1],
        }
    }

    /// Changes the settings of one way for packets that enter from now on.
    ///
    /// # Errors
    ///
    /// [`WanError::Way`] for impossible settings; the way stays as it is.
    pub fn change(&self, direction: Direction, config: WayConfig) -> Result<(), WanError> {
        let (answer, receiver) = mpsc::channel();
        let way = match direction {
            Direction::ToServer => 0,
            Direction::ToClient => 1,
        };
        self.ask(Request::Change { way, config: Box::new(config), answer });
        receiver.recv().map_err(|_| WanError::Ended)?.map_err(WanError::Way)
    }

    /// The path's counters so far.
    ///
    /// # Errors
    ///
    /// [`WanError::Ended`] when the emulator has failed; [`Wan::stop`] returns its error.
    pub fn progress(&self) -> Result<Progress, WanError> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Read { answer });
        receiver.recv().map_err(|_| WanError::Ended)
    }

    /// Ends the path and all programs in the hosts.
    ///
    /// # Errors
    ///
    /// The emulator's error, if it failed.
    pub fn stop(mut self) -> Result<Report, WanError> {
        self.ask(Request::Stop);
        let thread = self.thread.take().ok_or(WanError::Ended)?;
        let (total, timeline) = thread.join().map_err(|_| WanError::Ended)??;
        // Frames to the server are sent by the client's device.
        let [server, client] = &self.hosts;
        let device_drops = [client.device_drops(), server.device_drops()];
        Ok(Report { total, timeline, device_drops })
    }

    fn ask(&self, request: Request) {
        // If the thread has ended, the answer never comes and the caller sees a closed channel.
        let _ = self.requests.send(request);
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }
}

impl Drop for Wan {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.ask(Request::Stop);
            let _ = thread.join();
        }
    }
}
