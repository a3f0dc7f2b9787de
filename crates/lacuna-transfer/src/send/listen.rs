//! A sender that listens: a receiver connects and fetches what this end has for it.
//!
//! For a receiver that nobody can connect to, as one behind a NAT.

use super::route::{Arrived, Route};
use super::{SendOptions, Sources, Transfer};
use crate::error::SendError;
use crate::observer::Observer;
use crate::report::Summary;
use crate::retry;
use lacuna::{ConnectionConfig, Context, Incoming};
use lacuna_service::thread::{self, Over};
use lacuna_service::{AcceptEvent, Acceptor, ListenError, sockets};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sends files and folders to one receiver that connects: a [`Fetcher`](crate::Fetcher).
///
/// ```no_run
/// use lacuna_transfer::{SendListener, SendOptions, Sources};
///
/// let listener = SendListener::bind("[::]:7400".parse()?, SendOptions::default())?;
/// let summary = listener.send(Sources::check(&["photos"])?, &())?;
/// println!("{} files, {} bytes moved", summary.files, summary.moved_bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SendListener {
    options: SendOptions,
    // Declared before the context, so dropped before it.
    acceptor: Arc<Acceptor>,
    _context: Context,
}

impl SendListener {
    /// Listens at `address`. Of the options, `connect_within` and the parameters that the connecting end
    /// chooses ([`ConnectionConfig`]) are not used; `retry` is how long to wait for the receiver, at first
    /// and after a break.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind(address: SocketAddr, options: SendOptions) -> Result<Self, ListenError> {
        let context = sockets(address, options.sockets.clone())?;
        let silence = retry::silence(options.retry);
        let config = ConnectionConfig { silence, ..options.connection };
        // Who was refused is told why.
        let on_event = |_: &AcceptEvent<'_>| {};
        let acceptor = Acceptor::open(&context, address, config, Arc::new(on_event))?;
        let options = SendOptions { connect_within: None, ..options };
        Ok(Self { options, acceptor, _context: context })
    }

    /// The address it listens at, with its actual port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.acceptor.local_addr()
    }

    /// Sends everything to the first receiver that connects. Blocks until that has it.
    ///
    /// # Errors
    /// When anything is not at the receiver. [`Observer::on_summary`] was given what is.
    pub fn send(self, sources: Sources, observer: &dyn Observer) -> Result<Summary, SendError> {
        let Self { options, acceptor, _context: context } = self;
        let arrived = Arc::new(Arrived::default());
        let over = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let ends = Over(&over);
            let accept = || {
                let (accepting, arriving) = (acceptor.clone(), arrived.clone());
                let serve = move |incoming: Incoming| {
                    let (guest, ()) = accepting.let_in(incoming, |tag| arriving.admit(tag))?;
                    arriving.add(guest.connection.clone());
                    None
                };
                let is_over = || over.load(Ordering::Relaxed);
                if let Err(error) = acceptor.run(false, &is_over, Duration::MAX, serve) {
                    arrived.end(error);
                }
            };
            thread::start_in(scope, "lacuna-listen", accept)?;
            let transfer = Transfer::new(&options, sources, Route::Accept(&arrived), observer);
            let sent = transfer.run();
            drop(ends);
            sent
        });
        drop((arrived, acceptor, context));
        sent
    }
}

impl fmt::Debug for SendListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendListener").field("address", &self.local_addr()).finish_non_exhaustive()
    }
}
