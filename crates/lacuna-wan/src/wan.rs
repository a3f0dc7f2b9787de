//! Both hosts and the path between them: what a benchmark or the command line starts.

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
    /// Both, in the order of everything that comes in pairs of ways.
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

/// What to emulate.
#[derive(Clone, Debug)]
pub struct WanConfig {
    /// To the server, to the client.
    pub ways: [WayConfig; 2],
    /// Both hosts.
    pub hosts: HostConfig,
    /// Decides which packets are lost, marked, …
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
    /// A way that cannot be.
    #[error(transparent)]
    Way(#[from] WayError),
    /// A host that could not be made.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An interval of no time.
    #[error("the time line's interval must be more than zero")]
    ZeroInterval,
    /// Something the system did not do.
    #[error("cannot run an emulated path: {why}", why = Said(.0))]
    System(#[from] io::Error),
    /// The emulator has ended before it was asked to.
    #[error("the emulated path has ended")]
    Ended,
}

/// What a path did, and when.
#[derive(Clone, Debug)]
pub struct Report {
    /// The sums.
    pub total: Progress,
    /// The same over time.
    pub timeline: Timeline,
    /// Frames that a host's device dropped because the emulator did not read fast enough: on the
    /// way to the server, to the client. More than a few mean that this machine is too slow for
    /// the path.
    pub device_drops: [u64; 2],
}

/// Two hosts and the path between them. When it is dropped, everything that runs in the hosts is
/// ended; the same happens when this process dies.
#[derive(Debug)]
pub struct Wan {
    /// Server, client.
    hosts: [Host; 2],
    requests: Sender<Request>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<(Progress, Timeline)>>>,
}

impl Wan {
    /// Makes the hosts and lets the path run.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration, or what the system does not allow and what to do about
    /// it.
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
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(io::Error::from)?);
        let [to_server, to_client] = &config.ways;
        let ways = [
            Way::new(to_server.clone(), config.seed, 0),
            Way::new(to_client.clone(), config.seed, 1),
        ];
        let (requests, receiver): (_, Receiver<Request>) = mpsc::channel();
        let timeline = Timeline::new(interval_ns);
        let devices = [server, client];
        let for_thread = Arc::clone(&bell);
        let thread = thread::Builder::new()
            .name("lacuna-wan".to_owned())
            .spawn(move || Emulator::new(devices, ways, timeline, receiver, for_thread).run())?;
        Ok(Self { hosts, requests, bell, thread: Some(thread) })
    }

    /// A host.
    #[must_use]
    pub fn host(&self, side: Side) -> &Host {
        match side {
            Side::Server => &self.hosts[0],
            Side::Client => &self.hosts[1],
        }
    }

    /// Makes one way another one, for all that enters it from now on.
    ///
    /// # Errors
    ///
    /// [`WanError::Way`] when there is no such way; it stays as it is.
    pub fn change(&self, direction: Direction, config: WayConfig) -> Result<(), WanError> {
        let (answer, receiver) = mpsc::channel();
        let way = match direction {
            Direction::ToServer => 0,
            Direction::ToClient => 1,
        };
        self.ask(Request::Change { way, config: Box::new(config), answer });
        receiver.recv().map_err(|_| WanError::Ended)?.map_err(WanError::Way)
    }

    /// What the path has done so far.
    ///
    /// # Errors
    ///
    /// [`WanError::Ended`] when the emulator has failed; [`Wan::stop`] tells why.
    pub fn progress(&self) -> Result<Progress, WanError> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Read { answer });
        receiver.recv().map_err(|_| WanError::Ended)
    }

    /// Ends the path and everything that runs in the hosts.
    ///
    /// # Errors
    ///
    /// Why the emulator failed, if it did.
    pub fn stop(mut self) -> Result<Report, WanError> {
        self.ask(Request::Stop);
        let thread = self.thread.take().ok_or(WanError::Ended)?;
        let (total, timeline) = thread.join().map_err(|_| WanError::Ended)??;
        // A frame for the server is one that the client's device took.
        let [server, client] = &self.hosts;
        let device_drops = [client.device_drops(), server.device_drops()];
        Ok(Report { total, timeline, device_drops })
    }

    fn ask(&self, request: Request) {
        // If the thread has ended nobody listens, and the answer never comes.
        let _ = self.requests.send(request);
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
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
