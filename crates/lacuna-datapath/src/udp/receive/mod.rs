//! The receive side of the UDP datapath on Linux.
//!
//! [`Chooser`] decides which socket is read next, how, and whether reading is delayed. There are two
//! ways to read: [`whole`] (several messages with their control messages) and [`plain`] (one packet
//! without them); `small.rs` and `batching.rs` say when and why anything but an immediate whole read
//! pays. [`Receiver`] carries out the decision and reports the result to the chooser.

mod batching;
mod chooser;
mod plain;
mod small;
mod whole;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chooser::{Chooser, How, Next};
use small::Switch;
use whole::Ask;

use super::connected::{Connected, Connector};
use super::syscall::{self, ReceiveArrays};
use super::{ABSORBED_PER_CALL_MAX, UdpConfig};
use crate::{Placer, ends_socket};

/// Most messages of one call. Each uncoalesced packet costs at least one such part of a system call.
const MESSAGES_MAX: usize = 32;

/// Longest wait of a message in the socket that is believed; see [`waited_ns`].
const WAITED_MAX: Duration = Duration::from_millis(200);

/// Addresses that all packets of a socket share, so the kernel is not asked for them.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Source of the packets.
    peer: Option<SocketAddr>,
    /// Their destination.
    local: Option<IpAddr>,
}

/// Reads the sockets of a datapath; see the module's text.
pub(super) struct Receiver {
    arrays: ReceiveArrays,
    chooser: Chooser,
    /// Known addresses of the first socket.
    known: Known,
    /// Messages to request with the next read of the first socket, and of the connected one.
    ask: Ask,
    connected_ask: Ask,
    absorbed_errors: u64,
}

impl Receiver {
    pub(super) fn new(config: &UdpConfig, local: SocketAddr) -> Self {
        Self {
            arrays: ReceiveArrays::new(MESSAGES_MAX),
            chooser: Chooser::default(),
            known: Known { peer: None, local: known_local(config, local) },
            ask: Ask::ONE,
            connected_ask: Ask::ONE,
            absorbed_errors: 0,
        }
    }

    /// The first socket's messages have destinations from now on, if it is bound to any address.
    pub(super) fn tell_local(&mut self, config: &UdpConfig, local: SocketAddr) {
        self.known.local = known_local(config, local);
    }

    pub(super) fn absorbed_errors(&self) -> u64 {
        self.absorbed_errors
    }

    /// A connected socket was made, with a receive buffer of `buffer_bytes`; `None`: it was closed.
    #[cold]
    pub(super) fn on_connected(&mut self, buffer_bytes: Option<usize>) {
        self.chooser.on_connected(buffer_bytes);
        self.connected_ask = Ask::ONE;
    }

    /// Reads one bounded batch from one of the sockets and returns its packets; 0 when the sockets are
    /// empty or reading is delayed.
    pub(super) fn receive(
        &mut self,
        now_ns: u64,
        first: &UdpSocket,
        connector: &mut Connector,
        placer: &mut dyn Placer,
    ) -> io::Result<usize> {
        let mut next = self.choose(now_ns, connector);
        if next == Next::First {
            let packets = self.take_first(first, placer)?;
            if packets > 0 {
                return Ok(packets);
            }
            next = self.choose(now_ns, connector);
        }
        match (next, connector.connected()) {
            (Next::Connected(how), Some(connected)) => {
                let packets = self.take_connected(now_ns, how, connected, placer);
                if packets == Some(0) && connector.close_if_unused() {
                    self.on_connected(None);
                }
                Ok(packets.unwrap_or(0))
            }
            _ => Ok(0),
        }
    }

    fn choose(&mut self, now_ns: u64, connector: &Connector) -> Next {
        let queued_bytes = || connector.socket().and_then(syscall::queued_bytes);
        self.chooser.next(now_ns, queued_bytes)
    }

    /// Reads the first socket.
    fn take_first(&mut self, first: &UdpSocket, placer: &mut dyn Placer) -> io::Result<usize> {
        for _ in 0..ABSORBED_PER_CALL_MAX {
            match whole::take(first, self.known, &mut self.ask, &mut self.arrays, placer) {
                Ok(taken) => {
                    if taken.packets == 0 {
                        self.chooser.on_first_empty();
                    }
                    return Ok(taken.packets);
                }
                Err(error) if ends_socket(&error).is_some() => return Err(error),
                // An error of an earlier packet; the next call may succeed.
                Err(_) => self.absorbed_errors += 1,
            }
        }
        Ok(0)
    }

    /// Reads the connected socket; `None` after an error.
    fn take_connected(
        &mut self,
        now_ns: u64,
        how: How,
        connected: &Connected,
        placer: &mut dyn Placer,
    ) -> Option<usize> {
        let Connected { socket, peer, local, is_fresh, .. } = connected;
        let known = Known { peer: (!is_fresh).then_some(*peer), local: *local };
        // Which peer it is has to be told as long as there may be others.
        let how = if *is_fresh { How::Whole } else { how };
        let arrays = &mut self.arrays;
        let taken = match how {
            How::Whole => whole::take(socket, known, &mut self.connected_ask, arrays, placer),
            How::Marked => whole::take(socket, known, &mut { Ask::ONE }, arrays, placer),
            How::Plain => plain::take(socket, *peer, *local, false, arrays, placer),
            How::Timed => plain::take(socket, *peer, *local, true, arrays, placer),
        };
        let Ok(taken) = taken else {
            // Errors of a connected socket concern earlier packets. The next call reads the packets.
            self.absorbed_errors += 1;
            return None;
        };
        if let Some(switch) = self.chooser.on_taken(now_ns, how, taken) {
            self.switch(connected, switch);
        }
        Some(taken.packets)
    }

    fn switch(&mut self, Connected { socket, granted, .. }: &Connected, switch: Switch) {
        match switch {
            Switch::ToWhole => granted.set_control_messages(socket, true),
            Switch::Marks(are_told) => granted.set_mark_reports(socket, are_told),
            Switch::ToPlain => {
                granted.set_control_messages(socket, false);
                if !syscall::is_empty(socket.as_fd()) {
                    granted.set_control_messages(socket, true);
                    self.chooser.on_switch_failed();
                }
            }
        }
    }
}

/// Destination of all messages, if it is asked for and the socket is bound to one address.
fn known_local(config: &UdpConfig, local: SocketAddr) -> Option<IpAddr> {
    let ip = local.ip().to_canonical();
    (config.tells_local && !ip.is_unspecified()).then_some(ip)
}

/// The system clock's time; the kernel stamps arrivals with the same clock.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How long a message waited in the socket. A wait above [`WAITED_MAX`] counts as 0: no thread stays
/// away that long, so the system's clock was probably set meanwhile.
fn waited_ns(now: Duration, arrival: Option<Duration>) -> u64 {
    let waited = arrival.and_then(|arrival| now.checked_sub(arrival)).unwrap_or_default();
    if waited <= WAITED_MAX { waited.as_nanos() as u64 } else { 0 }
}
