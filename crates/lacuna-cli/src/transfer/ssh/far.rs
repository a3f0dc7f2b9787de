//! `lacuna over-ssh`: the far end of a transfer over ssh, which `lacuna send` starts.
//!
//! It receives or sends, as it is told. It believes the one key that comes through ssh, for as long as its standard
//! input is open. If nobody comes for [`IDLE_MAX`], the network may have gone without ssh noticing, and it ends, too.

use super::words::{Outcome, Ready, Reply, Request, Want, read_request};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use crate::pace;
use lacuna::datapath::BindError as SocketError;
use lacuna::trust::{HostKey, PublicKey, Trust};
use lacuna::{Connection, ConnectionConfig, ContextConfig, ContextError, Security};
use lacuna_service::{ListenError, STOP_POLL, Stop, thread};
use lacuna_transfer::{
    BindError, Observer, ReceiveError, ReceiveOptions, Receiver, SendError, SendListener,
    SendOptions, Sessions, Sources,
};
use std::error::Error;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it waits for the near end: longer than that tries to come back.
const IDLE_MAX: Duration = Duration::from_secs(300);
/// How long it stays after a transfer that failed, so that the near end can say why before ssh ends.
const GOODBYE: Duration = Duration::from_secs(3);
/// As many sockets as `--channels` allows.
const CHANNELS_MAX: u8 = 16;

/// What the far end is to do.
enum Task {
    Receive(Receiver),
    Send(SendListener, Sources),
}

pub(crate) fn run(output: Output) -> Result<(), Failure> {
    interrupt::install()?;
    let stop = interrupt::stop();
    let task = match begin(&stop) {
        Ok((task, ready)) => {
            output.line(&Reply::new(Outcome::Ready(ready)).to_line()?)?;
            task
        }
        Err(why) => return output.line(&Reply::new(Outcome::Unable(why)).to_line()?),
    };
    let watched = stop.clone();
    thread::start("lacuna-input", move || {
        // Nothing is said any more: what counts is its end.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        watched.request();
    })?;
    match task {
        Task::Receive(receiver) => receive(receiver, stop),
        Task::Send(listener, sources) => send(listener, sources, &stop),
    }
}

fn receive(receiver: Receiver, stop: Stop) -> Result<(), Failure> {
    let seats = Seats::new();
    let watched = seats.clone();
    thread::start("lacuna-idle", move || {
        while watched.idle_for() < IDLE_MAX {
            std::thread::park_timeout(STOP_POLL);
        }
        stop.request();
    })?;
    match receiver.serve(Arc::new(seats)) {
        Ok(()) | Err(ReceiveError::Interrupted) => Ok(()),
        Err(error) => Err(Failure::of(&error)),
    }
}

/// The near end knows what came and what did not, and ends this one.
fn send(listener: SendListener, sources: Sources, stop: &Stop) -> Result<(), Failure> {
    match listener.send(sources, &()) {
        Ok(_) | Err(SendError::Files(_)) => stop.sleep(IDLE_MAX),
        Err(SendError::Interrupted) => {}
        Err(error @ (SendError::Thread(_) | SendError::Accept(_))) => {
            return Err(Failure::of(&error));
        }
        Err(_) => stop.sleep(GOODBYE),
    }
    Ok(())
}

/// Listens as the near end wants it.
fn begin(stop: &Stop) -> Result<(Task, Ready), String> {
    let request = read_request(&mut std::io::stdin().lock())?;
    let peer: PublicKey = request.key.parse().map_err(|error| format!("{error}"))?;
    let own = HostKey::generate().map_err(|error| error.to_string())?;
    let security = Security::Keys(Trust::of_keys(&own, [peer]));
    let sockets = ContextConfig { security, ..ContextConfig::default() };
    let (task, port, names) = match &request.want {
        Want::Receive { folder, overwrite } => {
            let folder = path(folder);
            let receiver = at_a_port(&request, sockets, |address, sockets| {
                let (overwrite, stop) = (*overwrite, stop.clone());
                let options =
                    ReceiveOptions { overwrite, sockets, stop, ..ReceiveOptions::default() };
                Receiver::bind(address, &folder, options)
            });
            let receiver = receiver.map_err(|error| error.to_string())?;
            let port = receiver.local_addr().port();
            (Task::Receive(receiver), port, Vec::new())
        }
        Want::Send { paths, quick, controller, rate_bits_per_s } => {
            let paths: Vec<_> = paths.iter().map(|bytes| path(bytes)).collect();
            let sources = Sources::check(&paths).map_err(|error| error.to_string())?;
            let connection = ConnectionConfig {
                controller: controller.as_deref().map(pace::controller).transpose()?,
                rate_bits_per_s: *rate_bits_per_s,
                ..ConnectionConfig::default()
            };
            let listener = at_a_port(&request, sockets, |address, sockets| {
                let options = SendOptions {
                    retry: IDLE_MAX,
                    quick: *quick,
                    connection,
                    sockets,
                    stop: stop.clone(),
                    ..SendOptions::default()
                };
                SendListener::bind(address, options).map_err(BindError::from)
            });
            let listener = listener.map_err(|error| error.to_string())?;
            let (port, names) = (listener.local_addr().port(), sources.names());
            (Task::Send(listener, sources), port, names)
        }
    };
    Ok((task, Ready { key: own.public().to_string(), port, address: address(), names }))
}

/// Listens at the first port that is free, TCP for the control connection and UDP for packets.
fn at_a_port<T>(
    request: &Request,
    sockets: ContextConfig,
    bind: impl Fn(SocketAddr, ContextConfig) -> Result<T, BindError>,
) -> Result<T, BindError> {
    let at = |port: Option<u16>, channels: u8| {
        let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port.unwrap_or(0));
        bind(address, ContextConfig { port, channels, ..sockets.clone() })
    };
    let channels = request.channels.clamp(1, CHANNELS_MAX);
    let Some((low, high)) = request.ports else { return at(None, channels) };
    // Each channel has a port of its own, and they follow each other.
    let channels = channels.min((high - low).saturating_add(1).try_into().unwrap_or(u8::MAX));
    let mut tried = at(Some(low), channels);
    for port in low..high - u16::from(channels - 1) {
        match &tried {
            Err(BindError::Listen(error)) if is_taken(error) => {
                tried = at(Some(port + 1), channels);
            }
            _ => break,
        }
    }
    tried
}

/// Whether another port may be free.
fn is_taken(error: &ListenError) -> bool {
    let in_use = |error: &_| matches!(error, ContextError::Bind(SocketError::InUse(_)));
    error.is_of_address() || matches!(error, ListenError::Sockets(error) if in_use(error))
}

/// The path that was meant. Relative to where ssh starts programs, the home folder; `~` is that, too. Nothing else in it
/// has a meaning: it is no word of a shell.
fn path(bytes: &[u8]) -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    match bytes {
        b"" => PathBuf::from("."),
        b"~" => home(),
        _ => match bytes.strip_prefix(b"~/") {
            Some(below) => home().join(OsStr::from_bytes(below)),
            None => PathBuf::from(OsStr::from_bytes(bytes)),
        },
    }
}

/// The address at which ssh reached this host: the third word of `SSH_CONNECTION`.
fn address() -> Option<IpAddr> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    connection.split_whitespace().nth(2)?.parse().ok()
}

/// Knows when a sender was last there.
#[derive(Debug, Clone)]
struct Seats(Arc<Mutex<(usize, Instant)>>);

/// A sender that is there; until this is dropped.
#[derive(Debug)]
struct Seat(Seats);

impl Seats {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((0, Instant::now()))))
    }

    fn change(&self, by: isize) {
        let mut seats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *seats = (seats.0.saturating_add_signed(by), Instant::now());
    }

    fn idle_for(&self) -> Duration {
        let (taken, since) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken == 0 { since.elapsed() } else { Duration::ZERO }
    }
}

impl Sessions for Seats {
    type Observer = Seat;

    fn begin(&self, _: &Connection) -> Result<Seat, Box<dyn Error + Send + Sync>> {
        self.change(1);
        Ok(Seat(self.clone()))
    }
}

impl Observer for Seat {}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.change(-1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn paths_are_those_of_the_far_end() {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        assert_eq!(path(b""), Path::new("."));
        assert_eq!(path(b"~"), home);
        assert_eq!(path(b"~/in box"), home.join("in box"));
        assert_eq!(path(b"in/~"), Path::new("in/~"));
        assert_eq!(path(b"/srv/$(id)"), Path::new("/srv/$(id)"));
    }
}
