//! The sessions of a receiver: admits senders, serves each to its end, and ends the old session of
//! a sender that reconnects.

use super::folder::{Folder, Which};
use super::receiving::{Begun, Brought, Packets, Received, Receiving};
use super::session::Ended;
use super::{ReceiverEvent, Sessions, lock};
use crate::error::ReceiveError;
use crate::observer::{Event, Observer};
use crate::report::{Summary, Tally};
use lacuna::address::show;
use lacuna::{Connection, Incoming};
use lacuna_service::{Acceptor, Purpose, Served, busy};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Senders served at a time: each takes up to 200 MiB.
const SENDERS_MAX: usize = 8;

/// What all sessions share.
pub(super) struct Server<S> {
    receiving: Receiving,
    once: bool,
    sessions: Arc<S>,
    acceptor: Arc<Acceptor>,
    folder: Folder,
    /// Sessions by the sender's id: a sender that reconnects ends its old session.
    replaceable: Mutex<BTreeMap<[u8; 16], ReplaceableSession>>,
    serving: AtomicUsize,
}

/// A session that a reconnecting sender replaces.
struct ReplaceableSession {
    /// Number of its reservation of disk space.
    number: u64,
    replaced: Arc<AtomicBool>,
}

/// Counts one sender that is served, until it is dropped.
struct ServedSender<'a>(&'a AtomicUsize);

impl Drop for ServedSender<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Sessions> Server<S> {
    /// `once`: serves one sender.
    pub(super) fn new(
        receiving: Receiving,
        once: bool,
        sessions: Arc<S>,
        acceptor: Arc<Acceptor>,
        folder: Folder,
    ) -> Self {
        Self {
            receiving,
            once,
            sessions,
            acceptor,
            folder,
            replaceable: Mutex::default(),
            serving: AtomicUsize::new(0),
        }
    }

    /// Serves one control connection to its end.
    pub(super) fn connected(&self, incoming: Incoming) -> Served<ReceiveError> {
        let admit = |tag| match Purpose::of(tag) {
            Some((Purpose::Files, _)) => Ok((self.take_seat()?, self.look_at_folder()?)),
            _ => Err(Purpose::Files.refusal(tag)),
        };
        let (guest, (seat, root)) = self.acceptor.let_in(incoming, admit)?;
        let result = self.observed(&guest.connection, root);
        if self.once && result.is_some() {
            // With `once` nobody follows.
            std::mem::forget(seat);
        }
        result
    }

    fn take_seat(&self) -> Result<ServedSender<'_>, String> {
        let limit = if self.once { 1 } else { SENDERS_MAX };
        let more = |serving| (serving < limit).then_some(serving + 1);
        match self.serving.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(ServedSender(&self.serving)),
            Err(serving) => Err(busy(serving, self.once, "sender")),
        }
    }

    /// The folder for a sender that connects now, or why there is none.
    fn look_at_folder(&self) -> Result<Arc<OwnedFd>, String> {
        let folder = self.folder.named();
        let (root, found) = self.folder.look().map_err(|error| {
            self.sessions.on_event(&ReceiverEvent::FolderUnusable { folder, error: &error });
            format!("the folder that it receives into can neither be opened nor made: {error}")
        })?;
        match found {
            Which::Same => {}
            Which::Another => self.sessions.on_event(&ReceiverEvent::FolderChanged { folder }),
            Which::Made => self.sessions.on_event(&ReceiverEvent::FolderMade { folder }),
        }
        Ok(root)
    }

    /// Serves a session, with an observer.
    fn observed(&self, connection: &Connection, root: Arc<OwnedFd>) -> Served<ReceiveError> {
        let observer = match self.sessions.begin(connection) {
            Ok(observer) => observer,
            Err(error) => return Some(Err(ReceiveError::Observer(error))),
        };
        self.session(connection, root, observer)
    }

    fn session(
        &self,
        connection: &Connection,
        root: Arc<OwnedFd>,
        observer: S::Observer,
    ) -> Served<ReceiveError> {
        let started = Instant::now();
        let tally = Tally::new(&observer);
        let replaced = Arc::new(AtomicBool::new(false));
        let asked = &self.receiving.options.stop;
        let received = self.receiving.session(Begun {
            connection,
            root,
            tally: &tally,
            before: Brought::default(),
            stop: &|| asked.is_requested() || replaced.load(Ordering::Relaxed),
            on_hello: &|id, number| self.replace(id, number, replaced.clone()),
        });
        // The session's space and files are free now; reporting the results may block.
        let Received { ended, hello, number, kept, brought, .. } = match received {
            Ok(received) => received,
            Err(error) => return Some(Err(error.into())),
        };
        if let Some(id) = hello {
            let mut replaceable = lock(&self.replaceable);
            if replaceable.get(&id).is_some_and(|other| other.number == number) {
                replaceable.remove(&id);
            }
        } else if let Some(ended) = ended {
            let reason = no_sender(connection, &ended);
            observer.on_event(&Event::NotASender { reason: &reason });
            return None;
        }
        let error = ended.map(|ended| match asked.is_requested() {
            true => ReceiveError::Interrupted,
            false => ended.into_error(kept.clone()),
        });
        if matches!(error, Some(ReceiveError::Interrupted)) && kept.is_some() {
            observer.on_event(&Event::Interrupted { kept });
        }
        let mut packets = Packets::default();
        packets.add(&connection.stats());
        let measured = Summary {
            is_reached: true,
            elapsed: started.elapsed(),
            moved_bytes: brought.moved_bytes,
            peer: show(connection.peer()).to_string(),
            wire: Some(connection.chosen().wire),
            ..packets.summary()
        };
        let (_, failed) = tally.finish(measured, error.is_some());
        let result = match (error, failed) {
            (Some(error), _) => Err(error),
            (None, Some(failed)) => Err(failed.into()),
            (None, None) => Ok(()),
        };
        drop(tally);
        self.sessions.end(observer, connection.peer(), result.as_ref().copied());
        Some(result)
    }

    /// A sender has said hello: its old session ends.
    fn replace(&self, id: [u8; 16], number: u64, replaced: Arc<AtomicBool>) {
        let mut sessions = lock(&self.replaceable);
        if let Some(old) = sessions.insert(id, ReplaceableSession { number, replaced }) {
            old.replaced.store(true, Ordering::Relaxed);
            self.receiving.promises.end(old.number);
        }
    }
}

/// The report on a peer that never sent a hello of the file protocol.
fn no_sender(connection: &Connection, ended: &Ended) -> String {
    let peer = connection.peer();
    match ended {
        Ended::Lost(reason) => format!("{peer}: {reason}; it had not said anything"),
        Ended::Unable(reason) => format!("{peer}: {reason}"),
        Ended::Protocol(reason) => format!("{peer} is no lacuna send of this version: {reason}"),
    }
}
