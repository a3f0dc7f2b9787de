//! `lacuna over-ssh`: the far end of a transfer over ssh, which `lacuna send` starts.
//!
//! It believes the one key that comes through ssh, for as long as its standard input is open. If nobody sends for
//! [`IDLE_MAX`], the network may have gone without ssh noticing, and it ends, too.

use super::words::{Outcome, Ready, Reply, Request, read_request};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Output;
use lacuna::datapath::BindError as SocketError;
use lacuna::trust::{HostKey, PublicKey, Trust};
use lacuna::{Connection, ContextConfig, ContextError, Security};
use lacuna_service::{ListenError, STOP_POLL, Stop, thread};
use lacuna_transfer::{BindError, Observer, ReceiveError, ReceiveOptions, Receiver, Sessions};
use std::error::Error;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it waits for the sender: longer than that tries to come back.
const IDLE_MAX: Duration = Duration::from_secs(300);

pub(crate) fn run(output: Output) -> Result<(), Failure> {
    interrupt::install()?;
    let stop = interrupt::stop();
    let receiver = match begin(&stop) {
        Ok((receiver, ready)) => {
            output.line(&Reply::new(Outcome::Ready(ready)).to_line()?)?;
            receiver
        }
        Err(why) => return output.line(&Reply::new(Outcome::Unable(why)).to_line()?),
    };
    let watched = stop.clone();
    thread::start("lacuna-input", move || {
        // Nothing is said any more: what counts is its end.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        watched.request();
    })?;
    let seats = Seats::new();
    let (watched, idle) = (seats.clone(), stop);
    thread::start("lacuna-idle", move || {
        while watched.idle_for() < IDLE_MAX {
            std::thread::park_timeout(STOP_POLL);
        }
        idle.request();
    })?;
    match receiver.serve(Arc::new(seats)) {
        Ok(()) | Err(ReceiveError::Interrupted) => Ok(()),
        Err(error) => Err(Failure::of(&error)),
    }
}

/// Listens as the near end wants it.
fn begin(stop: &Stop) -> Result<(Receiver, Ready), String> {
    let request = read_request(&mut std::io::stdin().lock())?;
    let peer: PublicKey = request.key.parse().map_err(|error| format!("{error}"))?;
    let own = HostKey::generate().map_err(|error| error.to_string())?;
    let security = Security::Keys(Trust::of_keys(&own, [peer]));
    let folder = folder(&request.folder);
    let receiver = listen(&request, &folder, &security, stop).map_err(|error| error.to_string())?;
    let (key, port) = (own.public().to_string(), receiver.local_addr().port());
    Ok((receiver, Ready { key, port, address: address() }))
}

/// Listens at the first port that is free, TCP for the control connection and UDP for packets.
fn listen(
    request: &Request,
    folder: &Path,
    security: &Security,
    stop: &Stop,
) -> Result<Receiver, BindError> {
    let at = |port: Option<u16>| {
        let options = ReceiveOptions {
            overwrite: request.overwrite,
            sockets: ContextConfig { port, security: security.clone(), ..ContextConfig::default() },
            stop: stop.clone(),
            ..ReceiveOptions::default()
        };
        let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port.unwrap_or(0));
        Receiver::bind(address, folder, options)
    };
    let Some((low, high)) = request.ports else { return at(None) };
    let mut tried = at(Some(low));
    for port in low..high {
        match &tried {
            Err(BindError::Listen(error)) if is_taken(error) => tried = at(Some(port + 1)),
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

/// The folder that was meant. Relative to where ssh starts programs, the home folder; `~` is that, too.
fn folder(bytes: &[u8]) -> PathBuf {
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

    #[test]
    fn folders_are_those_of_the_far_end() {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        assert_eq!(folder(b""), Path::new("."));
        assert_eq!(folder(b"~"), home);
        assert_eq!(folder(b"~/in box"), home.join("in box"));
        assert_eq!(folder(b"in/~"), Path::new("in/~"));
        assert_eq!(folder(b"/srv/$(id)"), Path::new("/srv/$(id)"));
    }
}
