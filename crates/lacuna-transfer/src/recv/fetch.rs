//! A receiver that connects: it fetches what a sender that listens has for it, and connects again
//! after a break.
//!
//! The file protocol and all below it is the same as of a receiver that listens. What one transfer
//! brings is one result, over however many connections: after a break the sender offers again what
//! it does not know to be settled, which is counted once (`report.rs`).

use super::folder::Folder;
use super::receiving::{Begun, Brought, Packets, Received, Receiving};
use super::{ReceiveOptions, lock};
use crate::error::{Kept, ReceiveError};
use crate::observer::{Event, Observer};
use crate::report::{Summary, Tally};
use crate::retry::{self, Attempt, Ended, GivenUp, Life, Retry, attempts};
use lacuna::address::show;
use lacuna::{Connection, ConnectionConfig};
use lacuna_service::{Purpose, ReachError, random};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How to fetch.
#[derive(Clone)]
pub struct FetchOptions {
    /// How to receive.
    pub receive: ReceiveOptions,
    /// How long to retry without any progress, as of a sender
    /// ([`SendOptions::retry`](crate::SendOptions::retry)).
    pub retry: Duration,
    /// The transport: mode, packet size. `tag`, `silence` and `connect_timeout` are overridden. How fast to send
    /// is up to the sender.
    pub connection: ConnectionConfig,
    /// How long the first connection may take, at most, and then the sender has to be heard, or nothing is tried
    /// again; `None` leaves that to the receiver.
    pub connect_within: Option<Duration>,
    /// The names of what may come: of files, and of folders with all that is in them. Others are refused.
    /// `None`: any.
    pub only: Option<BTreeSet<Vec<u8>>>,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            receive: ReceiveOptions::default(),
            retry: Duration::from_secs(60),
            connection: ConnectionConfig::default(),
            connect_within: None,
            only: None,
        }
    }
}

/// Fetches files and folders from a [`SendListener`](crate::SendListener).
///
/// ```no_run
/// use lacuna_transfer::{FetchOptions, Fetcher};
///
/// let summary = Fetcher::new(FetchOptions::default()).fetch("sender:7400", "inbox", &())?;
/// println!("{} files, {} bytes moved", summary.files, summary.moved_bytes);
/// # Ok::<(), lacuna_transfer::ReceiveError>(())
/// ```
#[derive(Clone, Default)]
pub struct Fetcher {
    options: FetchOptions,
}

impl Fetcher {
    /// A receiver with these options.
    #[must_use]
    pub fn new(options: FetchOptions) -> Self {
        Self { options }
    }

    /// Fetches all that `sender` (HOST:PORT) has into the folder, which is made once the sender is there.
    /// Blocks until it has everything.
    ///
    /// # Errors
    /// When not everything was received. [`Observer::on_summary`] was given what was.
    pub fn fetch(
        &self,
        sender: &str,
        folder: impl AsRef<Path>,
        observer: &dyn Observer,
    ) -> Result<Summary, ReceiveError> {
        let options = &self.options;
        let hint = "--overwrite replaces it";
        let mut receiving = Receiving::new(options.receive.clone(), hint);
        receiving.only.clone_from(&options.only);
        let transfer = Transfer {
            options,
            receiving,
            sender,
            path: folder.as_ref(),
            folder: None,
            number: random() as u32,
            started: Instant::now(),
            tally: Tally::over_connections(observer),
            brought: Brought::default(),
            packets: Packets::default(),
            kept: None,
            was_heard: false,
            reconnects: 0,
            peer: sender.to_owned(),
            wire: None,
        };
        transfer.run()
    }
}

/// State of a transfer across connections.
struct Transfer<'a> {
    options: &'a FetchOptions,
    receiving: Receiving,
    /// HOST:PORT, as given.
    sender: &'a str,
    path: &'a Path,
    /// Once there was a connection.
    folder: Option<Folder>,
    /// By which the sender knows this end again.
    number: u32,
    started: Instant,
    tally: Tally<'a>,
    brought: Brought,
    packets: Packets,
    /// The file in flight when the last connection ended.
    kept: Option<Kept>,
    was_heard: bool,
    reconnects: u64,
    peer: String,
    wire: Option<&'static str>,
}

impl Transfer<'_> {
    fn run(mut self) -> Result<Summary, ReceiveError> {
        let (limit, stop) = (self.options.retry, self.options.receive.stop.clone());
        let observer = self.tally.observer();
        let ended = attempts(limit, &stop, observer, |retry, again| self.attempt(retry, again));
        let error = ended.err().map(|given_up| match given_up {
            GivenUp::Interrupted => ReceiveError::Interrupted,
            GivenUp::Lost(reason) => {
                let reason =
                    format!("{reason}; gave up after {} s without progress", limit.as_secs_f64());
                ReceiveError::Lost { reason, kept: self.kept.clone() }
            }
            GivenUp::Failed(error) => error,
        });
        if matches!(error, Some(ReceiveError::Interrupted)) && self.was_heard {
            observer.on_event(&Event::Interrupted { kept: self.kept.clone() });
        }
        let measured = Summary {
            is_reached: self.was_heard,
            elapsed: self.started.elapsed(),
            moved_bytes: self.brought.moved_bytes,
            reconnects: self.reconnects,
            peer: self.peer.clone(),
            wire: self.wire,
            ..self.packets.summary()
        };
        let (summary, failed) = self.tally.finish(measured, error.is_some());
        match (error, failed) {
            (Some(error), _) => Err(error),
            (None, Some(failed)) => Err(failed.into()),
            (None, None) => Ok(summary),
        }
    }

    /// One connection; `again` if there was one before.
    fn attempt(&mut self, retry: &Retry, again: bool) -> Result<(), Attempt<ReceiveError>> {
        let connection = self.connect(retry, again);
        let connection = connection.map_err(|why| Attempt { why, life: None })?;
        self.reconnects += u64::from(again);
        self.peer = show(connection.peer()).to_string();
        self.wire = Some(connection.chosen().wire);
        self.tally.observer().on_event(&Event::Connected { connection: &connection });
        let began = Instant::now();
        let before = (self.brought.moved_bytes, self.tally.ended());
        let (ended, heard) = match self.receive(&connection) {
            Ok(received) => received,
            Err(error) => {
                let life = Some(Life { began, heard: Instant::now(), has_progressed: false });
                return Err(Attempt { why: Ended::Failed(error), life });
            }
        };
        self.packets.add(&connection.stats());
        let Some(ended) = ended else { return Ok(()) };
        let has_progressed = (self.brought.moved_bytes, self.tally.ended()) != before;
        let life = Some(Life { began, heard, has_progressed });
        let is_unheard = self.options.connect_within.is_some() && !self.was_heard;
        let why = match ended.into_error(self.kept.clone()) {
            ReceiveError::Lost { reason, .. } if !is_unheard => Ended::Lost(reason),
            error => Ended::Failed(error),
        };
        Err(Attempt { why, life })
    }

    /// Receives over a connection; returns why it ended early, if it did, and when the sender was last heard.
    fn receive(
        &mut self,
        connection: &Connection,
    ) -> Result<(Option<super::session::Ended>, Instant), ReceiveError> {
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => Folder::open(self.path)?,
        };
        let root = folder.look().map_err(|error| ReceiveError::Unable {
            reason: format!(
                "the folder {} can neither be opened nor made: {error}",
                self.path.display()
            ),
            kept: None,
        });
        let (root, _) = root?;
        self.folder = Some(folder);
        let stop = &self.options.receive.stop;
        let was_heard = Mutex::new(false);
        let received = self.receiving.session(Begun {
            connection,
            root,
            tally: &self.tally,
            before: self.brought,
            stop: &|| stop.is_requested(),
            on_hello: &|_, _| *lock(&was_heard) = true,
        })?;
        let Received { ended, hello, kept, brought, heard, .. } = received;
        self.was_heard |= hello.is_some();
        (self.brought, self.kept) = (brought, kept);
        Ok((ended, heard))
    }

    fn connect(&self, retry: &Retry, again: bool) -> Result<Connection, Ended<ReceiveError>> {
        let options = self.options;
        let within = retry.connect_within(Instant::now());
        let first_within = options.connect_within.filter(|_| !again);
        let config = ConnectionConfig {
            silence: retry::silence(options.retry),
            connect_timeout: first_within.map_or(within, |first| within.min(first)),
            tag: Purpose::Fetch.tag(self.number),
            ..options.connection
        };
        let stop = &|| options.receive.stop.is_requested();
        let connected =
            lacuna_service::connect(self.sender, &options.receive.sockets, config, stop);
        connected.map(|(_, connection)| connection).map_err(|error| match error {
            // The sender was there before, so it may come back.
            ReachError::Connect(error) if again && error.is_retryable() => {
                Ended::Lost(error.to_string())
            }
            ReachError::Connect(error) => Ended::Failed(error.into()),
            ReachError::Thread(error) => Ended::Failed(error.into()),
        })
    }
}
