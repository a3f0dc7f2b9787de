//! Reading what has come: one door for all the ways in which that is done.
//!
//! [`Chooser`] decides which socket is read next, how, and whether to leave what is there for a while.
//! The ways are [`whole`] (messages with all that the kernel tells) and [`plain`] (one packet, nothing
//! beside it); the reasons for anything but the first are in `small.rs` and `batching.rs`. What is
//! here carries out what was decided, and tells the chooser what came of it.

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

/// The most messages of one call. Uncoalesced packets cost a system call divided by this.
const MESSAGES_MAX: usize = 32;

/// Longest time that a message is believed to have waited.
const WAITED_MAX: Duration = Duration::from_millis(200);

/// What is known of all packets of a socket, without asking the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Who sent them.
    peer: Option<SocketAddr>,
    /// The address that they came to.
    local: Option<IpAddr>,
}

/// Reads the sockets of a datapath; see the module's text.
pub(super) struct Receiver {
    arrays: ReceiveArrays,
    chooser: Chooser,
    /// Of the first socket.
    known: Known,
    /// How many messages to ask for next, of the first socket and of the connected one.
    ask: Ask,
    connected_ask: Ask,
    absorbed_errors: u64,
}

impl Receiver {
    pub(super) fn new(config: &UdpConfig, local: SocketAddr) -> Self {
        let ip = local.ip().to_canonical();
        let is_known = config.tells_local && !ip.is_unspecified();
        Self {
            arrays: ReceiveArrays::new(MESSAGES_MAX),
            chooser: Chooser::default(),
            known: Known { peer: None, local: is_known.then_some(ip) },
            ask: Ask::ONE,
            connected_ask: Ask::ONE,
            absorbed_errors: 0,
        }
    }

    pub(super) fn absorbed_errors(&self) -> u64 {
        self.absorbed_errors
    }

    /// There is a connected socket from now on, with such a buffer; with `None`, none any more.
    #[cold]
    pub(super) fn on_connected(&mut self, buffer_bytes: Option<usize>) {
        self.chooser.on_connected(buffer_bytes);
        self.connected_ask = Ask::ONE;
    }

    /// Takes one bounded batch from one of the sockets; 0 when nothing was found or all is left where
    /// it is.
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
        match (next, connector.made()) {
            (Next::Connected(how), Some(connected)) => {
                let packets = self.take_connected(now_ns, how, connected, placer);
                if packets == Some(0) && connector.drop_if_over() {
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
                // It passes, and says nothing of what waits here.
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
        let Connected { socket, peer, local, .. } = connected;
        let known = Known { peer: Some(*peer), local: *local };
        let arrays = &mut self.arrays;
        let taken = match how {
            How::Whole => whole::take(socket, known, &mut self.connected_ask, arrays, placer),
            How::Marked => whole::take(socket, known, &mut { Ask::ONE }, arrays, placer),
            How::Plain => plain::take(socket, *peer, *local, false, arrays, placer),
            How::Timed => plain::take(socket, *peer, *local, true, arrays, placer),
        };
        let Ok(taken) = taken else {
            // A connected socket tells of earlier packets only. What is there is found next time.
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
            Switch::ToWhole => granted.tell(socket, true),
            Switch::Marks(are_told) => granted.tell_marks(socket, are_told),
            Switch::ToPlain => {
                granted.tell(socket, false);
                if !syscall::is_empty(socket.as_fd()) {
                    granted.tell(socket, true);
                    self.chooser.on_switch_failed();
                }
            }
        }
    }
}

/// The time by the system's clock, by which the kernel notes arrivals.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How long a message had waited. The system's clock may have been set meanwhile: what is more than
/// any thread stays away is no waiting.
fn waited_ns(now: Duration, came: Option<Duration>) -> u64 {
    let waited = came.and_then(|came| now.checked_sub(came)).unwrap_or_default();
    if waited <= WAITED_MAX { waited.as_nanos() as u64 } else { 0 }
}
