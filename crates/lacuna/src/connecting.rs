//! Reaching a listener: one of a name's addresses (`reach.rs`), again if it has no
//! room just now, all within the time that connecting may take.

use crate::address;
use crate::config::ConnectionConfig;
use crate::context::Context;
use crate::error::ConnectError;
use crate::handshake::{self, Agreed, Connected, Line};
use crate::reach;
use lacuna_datapath::limit::Limit;
use std::fmt::Display;
use std::io;
use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

/// First and longest pause before another try; it doubles. Drawn from its upper
/// half, so that a crowd that was turned away does not come back at once.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// A port that nobody listens on is tried again for so long: a listener may be
/// about to start, but most often the address is wrong.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Descriptors that looking up a name takes at a time: files and sockets, and some to spare.
const RESOLVER_DESCRIPTORS: usize = 4;

pub(crate) fn connect(
    context: &Context,
    peer: &(impl ToSocketAddrs + Display),
    mut config: ConnectionConfig,
) -> Result<Box<Agreed>, ConnectError> {
    config.check()?;
    let began = Instant::now();
    let deadline = handshake::deadline_of(&config);
    let mut pause = PAUSE.0;
    loop {
        let connected = reach(context, peer, deadline)
            .and_then(|line| handshake::connect(context, line, config, deadline));
        let error = match connected {
            Ok(Connected::Agreed(agreed)) => return Ok(agreed),
            Ok(Connected::Smaller(mtu_bytes)) => {
                config.mtu_bytes = Some(mtu_bytes);
                continue;
            }
            Ok(Connected::Stale(error)) => {
                tracing::debug!(%peer, %error, "a kept control connection is dead");
                continue;
            }
            Err(error) => error,
        };
        let until = match may_pass(&error) {
            None => return Err(error),
            Some(Passing::Soon) => deadline,
            Some(Passing::Perhaps) => deadline.min(began + REFUSED_FOR),
        };
        let drawn = pause / 2 + pause.mul_f64(f64::from(fraction()) / 512.0);
        if Instant::now() + drawn >= until {
            return Err(error);
        }
        tracing::debug!(%peer, %error, "trying again");
        std::thread::sleep(drawn);
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// How likely it is that trying again helps.
enum Passing {
    Soon,
    Perhaps,
}

/// Whether an error is that of a host or a listener with too much to do.
fn may_pass(error: &ConnectError) -> Option<Passing> {
    match error {
        ConnectError::Busy { .. } => Some(Passing::Soon),
        ConnectError::Unreachable { source, .. } | ConnectError::Exchange { source, .. } => {
            match source.kind() {
                io::ErrorKind::ConnectionRefused => Some(Passing::Perhaps),
                io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe => Some(Passing::Soon),
                _ => None,
            }
        }
        _ => None,
    }
}

/// 0 to 255; the same every time where the system has no randomness.
fn fraction() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).map_or(0, |()| byte[0])
}

/// A control connection to one of the peer's addresses, if possible one that has served
/// before. Addresses that this context's sockets cannot send to are left out.
fn reach(
    context: &Context,
    peer: &(impl ToSocketAddrs + Display),
    deadline: Instant,
) -> Result<Line, ConnectError> {
    let unreachable = |source| ConnectError::unreachable(peer, source);
    let (mut addresses, mut unusable) = (Vec::new(), None);
    let found = address::look_up(peer).map_err(|error| {
        // The system's resolver does not say it.
        unreachable(Limit::check_descriptors(RESOLVER_DESCRIPTORS).err().unwrap_or(error))
    });
    for address in found? {
        match handshake::host_of(address, context) {
            Ok(_) => addresses.push(address),
            Err(why) => unusable = Some(io::Error::new(io::ErrorKind::Unsupported, why)),
        }
    }
    if let Some(kept) = addresses.iter().find_map(|address| context.idle().take(*address)) {
        return Ok(Line::Kept(kept));
    }
    match (reach::first_of(&addresses, deadline), unusable) {
        (Ok(stream), _) => Ok(Line::New(stream)),
        (Err(_), Some(unusable)) if addresses.is_empty() => Err(unreachable(unusable)),
        (Err(error), _) => Err(unreachable(error)),
    }
}
