//! The bounded set of connections whose hello has not arrived.
//!
//! A few silent connections must not block a server for everybody. So a new connection always gets
//! a place: when all are taken, the peer that has been silent longest is refused and told to try
//! again. A peer whose hello has arrived gives its place back; the server bounds how many of those
//! it serves.

use lacuna::AcceptedStream;
use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections without a hello.
#[derive(Debug)]
pub(crate) struct Arrivals {
    most: usize,
    /// Oldest first.
    silent: Mutex<VecDeque<Arc<Silent>>>,
    is_crowded: AtomicBool,
}

/// A peer whose hello has not arrived.
#[derive(Debug)]
struct Silent {
    /// A clone of the stream, to refuse the peer while another thread reads from the original.
    stream: TcpStream,
    was_turned_away: AtomicBool,
}

/// An accepted control connection and its place among those without a hello.
#[derive(Debug)]
pub struct Arrival {
    pub(crate) stream: AcceptedStream,
    pub(crate) place: Place,
}

/// A place, held until this is dropped or the peer is refused.
#[derive(Debug)]
pub(crate) struct Place {
    arrivals: Arc<Arrivals>,
    /// `None` if there was no descriptor for the clone: then the peer cannot be refused early.
    silent: Option<Arc<Silent>>,
}

impl Arrivals {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let is_crowded = AtomicBool::new(false);
        Arc::new(Self { most, silent: Mutex::default(), is_crowded })
    }

    /// Gives a peer a place. `turn_away` refuses the peer that loses its place, with a reason.
    pub(crate) fn take_in(
        self: &Arc<Self>,
        stream: AcceptedStream,
        turn_away: impl FnOnce(&TcpStream, &str),
    ) -> Arrival {
        let again = stream.try_clone().ok();
        let silent = again
            .map(|stream| Arc::new(Silent { stream, was_turned_away: AtomicBool::new(false) }));
        let surplus = {
            let mut all = self.lock();
            all.extend(silent.clone());
            if all.len() > self.most { all.pop_front() } else { None }
        };
        if let Some(surplus) = surplus {
            surplus.was_turned_away.store(true, Ordering::Relaxed);
            let reason = format!("{} peers are connecting at once; try again", self.most);
            turn_away(&surplus.stream, &reason);
            if !self.is_crowded.swap(true, Ordering::Relaxed) {
                let most = self.most;
                tracing::warn!("more than {most} peers say nothing: the first are turned away");
            }
        }
        Arrival { stream, place: Place { arrivals: self.clone(), silent } }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Silent>>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether the peer lost its place and was refused.
    pub(crate) fn was_lost(&self) -> bool {
        self.silent.as_ref().is_some_and(|silent| silent.was_turned_away.load(Ordering::Relaxed))
    }

    /// The hello has arrived, or the peer is gone.
    pub(crate) fn give_back(&self) {
        let Some(silent) = &self.silent else { return };
        let mut all = self.arrivals.lock();
        all.retain(|other| !Arc::ptr_eq(other, silent));
        if all.is_empty() {
            self.arrivals.is_crowded.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn who_is_silent_longest_makes_room_and_who_has_spoken_does_not_count() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let arrivals = Arrivals::new(2);
        let turned_away = Mutex::new(Vec::new());
        let mut clients = Vec::new();
        let mut arrive = || {
            let address = listener.local_addr().expect("bound");
            clients.push(TcpStream::connect(address).expect("it listens"));
            let (stream, peer) = listener.accept().expect("it has come");
            let arrival = arrivals.take_in(stream.into(), |stream, reason| {
                assert_eq!(reason, "2 peers are connecting at once; try again");
                turned_away.lock().unwrap().push(stream.peer_addr().expect("connected"));
            });
            (arrival, peer)
        };
        let (first, first_peer) = arrive();
        let (second, second_peer) = arrive();
        assert!(turned_away.lock().unwrap().is_empty());
        let third = arrive();
        assert_eq!(*turned_away.lock().unwrap(), [first_peer]);
        assert!(first.place.was_lost() && !second.place.was_lost());
        third.0.place.give_back();
        let fourth = arrive();
        assert_eq!(turned_away.lock().unwrap().len(), 1, "the third has spoken");
        let _fifth = arrive();
        assert_eq!(*turned_away.lock().unwrap(), [first_peer, second_peer]);
        drop((first, second, fourth));
        let _sixth = arrive();
        assert_eq!(turned_away.lock().unwrap().len(), 2, "those before are gone");
    }
}
