//! The host of a meeting, rank 0: it takes everybody's word, and once all are there tells everybody where all are.
//!
//! Anybody can connect to its port. Who has not said a whole word yet is dropped, oldest first, once too many wait;
//! nothing is allocated by what a word claims.

use super::words::{Answer, JOIN_BYTES_MAX, Join, PROTOCOL, line, read_line};
use super::{Meeting, MeetingError, Places, Roll};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Connections that have not said who they are, at most.
const STRANGERS_MAX: usize = 256;
const LISTENER: Token = Token(usize::MAX);
/// For the last word to one rank.
const ANSWER_FOR: Duration = Duration::from_secs(5);

struct Stranger {
    stream: TcpStream,
    from: SocketAddr,
    read: Vec<u8>,
}

pub(super) struct Guest {
    stream: std::net::TcpStream,
    places: Places,
}

pub(super) fn meet(meeting: &Meeting, places: Places) -> Result<Roll, MeetingError> {
    let host = || meeting.host.clone();
    let address = meeting
        .host
        .to_socket_addrs()
        .and_then(|mut addresses| addresses.next().ok_or(io::ErrorKind::NotFound.into()))
        .map_err(|source| MeetingError::Address { host: host(), source })?;
    if meeting.ranks == 1 {
        return Ok(alone(number(meeting)?, places));
    }
    let listener = TcpListener::bind(address)
        .map_err(|source| MeetingError::Listen { host: host(), source })?;
    let expected: BTreeSet<usize> = (1..meeting.ranks).collect();
    let broken = |source| MeetingError::Broken { host: host(), source };
    let guests = gather(meeting, listener, &expected).map_err(broken)?;
    let missing: Vec<usize> =
        expected.into_iter().filter(|rank| !guests.contains_key(rank)).collect();
    if !missing.is_empty() {
        let waited_s = meeting.timeout.as_secs();
        let error = MeetingError::Missing { waited_s, ranks: meeting.ranks, missing };
        let answer = Answer::Refused { reason: error.to_string() };
        guests.into_values().for_each(|guest| tell(guest.stream, &answer));
        return Err(error);
    }
    call(meeting, guests, (places, address.ip()))
}

fn alone(group: u64, places: Places) -> Roll {
    Roll { group, rank: 0, addresses: vec![places.listens], meets: vec![places.meets] }
}

/// A number for a new group.
fn number(meeting: &Meeting) -> Result<u64, MeetingError> {
    let mut group = [0; 8];
    getrandom::fill(&mut group).map_err(|error| MeetingError::Listen {
        host: meeting.host.clone(),
        source: io::Error::other(error.to_string()),
    })?;
    Ok(u64::from_le_bytes(group))
}

/// Tells all that came where all are. Their new ranks are in the order of the old ones.
pub(super) fn call(
    meeting: &Meeting,
    guests: BTreeMap<usize, Guest>,
    (places, seen_at): (Places, IpAddr),
) -> Result<Roll, MeetingError> {
    let group = number(meeting)?;
    // What the host listens at is seen by the others as the meeting's address, if it does not say better.
    let seen = |place: SocketAddr| match place.ip().is_unspecified() {
        true => SocketAddr::new(seen_at, place.port()),
        false => place,
    };
    let own = Places { listens: seen(places.listens), meets: seen(places.meets) };
    let mut all: BTreeMap<usize, Places> =
        guests.iter().map(|(rank, guest)| (*rank, guest.places)).collect();
    all.insert(meeting.rank, own);
    let addresses: Vec<SocketAddr> = all.values().map(|places| places.listens).collect();
    let meets: Vec<SocketAddr> = all.values().map(|places| places.meets).collect();
    let new_rank = |old: usize| all.keys().take_while(|rank| **rank < old).count();
    for (old, guest) in guests {
        let (addresses, meets) = (addresses.clone(), meets.clone());
        tell(guest.stream, &Answer::All { group, rank: new_rank(old), addresses, meets });
    }
    Ok(Roll { group, rank: new_rank(meeting.rank), addresses, meets })
}

/// Takes in ranks until all that are expected are there or the time is over.
pub(super) fn gather(
    meeting: &Meeting,
    mut listener: TcpListener,
    expected: &BTreeSet<usize>,
) -> io::Result<BTreeMap<usize, Guest>> {
    let begin = Instant::now();
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut strangers: BTreeMap<usize, Stranger> = BTreeMap::new();
    let mut guests: BTreeMap<usize, Guest> = BTreeMap::new();
    let mut next = 0;
    let mut events = Events::with_capacity(64);
    while !expected.iter().all(|rank| guests.contains_key(rank)) {
        let left = meeting.timeout.saturating_sub(begin.elapsed());
        if left.is_zero() {
            break;
        }
        match poll.poll(&mut events, Some(left)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, from)) = listener.accept() {
                    poll.registry().register(&mut stream, Token(next), Interest::READABLE)?;
                    strangers.insert(next, Stranger { stream, from, read: Vec::new() });
                    next += 1;
                    if strangers.len() > STRANGERS_MAX {
                        strangers.pop_first();
                    }
                }
                continue;
            }
            let Some(mut stranger) = strangers.remove(&event.token().0) else { continue };
            match read_line(&mut stranger.stream, &mut stranger.read, JOIN_BYTES_MAX) {
                Ok(None) => {
                    strangers.insert(event.token().0, stranger);
                }
                Ok(Some(line)) => welcome(meeting, stranger, &line, &mut guests),
                Err(error) => tracing::debug!(%error, from = %stranger.from, "no rank"),
            }
        }
    }
    Ok(guests)
}

/// Takes in one rank, or says why not.
fn welcome(
    meeting: &Meeting,
    stranger: Stranger,
    line: &[u8],
    guests: &mut BTreeMap<usize, Guest>,
) {
    let Stranger { stream, from, .. } = stranger;
    let stream: std::net::TcpStream = stream.into();
    match why_not(meeting, line, guests) {
        Ok(join) => {
            let seen = |place: SocketAddr| match place.ip().is_unspecified() {
                true => SocketAddr::new(from.ip().to_canonical(), place.port()),
                false => place,
            };
            let places = Places { listens: seen(join.listens), meets: seen(join.meets) };
            tracing::debug!(rank = join.rank, %from, listens = %places.listens, "a rank came");
            guests.insert(join.rank, Guest { stream, places });
        }
        Err(reason) => {
            tracing::warn!(%from, reason, "refused");
            tell(stream, &Answer::Refused { reason });
        }
    }
}

fn why_not(
    meeting: &Meeting,
    line: &[u8],
    guests: &BTreeMap<usize, Guest>,
) -> Result<Join, String> {
    let join: Join = serde_json::from_slice(line)
        .map_err(|error| format!("that is no word of a rank: {error}"))?;
    if join.protocol != PROTOCOL {
        return Err(format!("this is {PROTOCOL}, not {}", join.protocol));
    }
    if join.job != meeting.job {
        return Err(format!(
            "this is a meeting of job {:?}, not of {:?}: an earlier run that has not ended, or another port",
            meeting.job, join.job
        ));
    }
    if join.ranks != meeting.ranks {
        return Err(format!("there are {} ranks here, not {}", meeting.ranks, join.ranks));
    }
    if join.rank == meeting.rank || join.rank >= meeting.ranks {
        return Err(format!("rank {} of {} cannot join", join.rank, meeting.ranks));
    }
    if let Some(guest) = guests.get(&join.rank) {
        return Err(format!("rank {} is there already, at {}", join.rank, guest.places.listens));
    }
    Ok(join)
}

/// The last word to a rank. If it does not hear it, it will say so itself.
fn tell(mut stream: std::net::TcpStream, answer: &Answer) {
    let told = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_write_timeout(Some(ANSWER_FOR)))
        .and_then(|()| stream.write_all(&line(answer)));
    if let Err(error) = told {
        tracing::debug!(%error, "a rank does not listen");
    }
}
