//! The host of a meeting, rank 0: it takes everybody's word, and once all are there tells everybody where all are.
//!
//! Anybody can connect to its port. Who has not said a whole word yet is dropped, oldest first, once too many wait;
//! nothing is allocated by what a word claims.

use super::words::{Answer, JOIN_BYTES_MAX, Join, PROTOCOL, Part, line, read_line};
use super::{Meeting, MeetingError, OF_GROUP, Places, Roll};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Connections that have not said who they are, at most.
const STRANGERS_MAX: usize = 256;
const LISTENER: Token = Token(usize::MAX);
const DOOR: Token = Token(usize::MAX - 1);
/// For the last word to one rank.
const ANSWER_FOR: Duration = Duration::from_secs(5);

struct Stranger {
    stream: TcpStream,
    from: SocketAddr,
    read: Vec<u8>,
}

pub(super) struct Guest {
    pub(super) stream: std::net::TcpStream,
    pub(super) places: Places,
    pub(super) part: Option<Part>,
}

/// Who came to a meeting.
#[derive(Default)]
pub(super) struct Came {
    pub(super) guests: BTreeMap<usize, Guest>,
    /// In the order in which they came.
    pub(super) newcomers: Vec<Guest>,
}

/// Where newcomers come, and how many are waited for.
pub(super) struct Door {
    pub(super) listener: TcpListener,
    pub(super) count: usize,
    pub(super) job: String,
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
    let Came { guests, .. } = gather(meeting, listener, &expected, None).map_err(broken)?;
    let missing: Vec<usize> =
        expected.into_iter().filter(|rank| !guests.contains_key(rank)).collect();
    if !missing.is_empty() {
        return Err(give_up(meeting, guests, missing));
    }
    let came = Came { guests, ..Came::default() };
    call(meeting, came, (places, address.ip()))
}

/// Tells those that came for whom they waited in vain.
pub(super) fn give_up(
    meeting: &Meeting,
    guests: BTreeMap<usize, Guest>,
    missing: Vec<usize>,
) -> MeetingError {
    let waited_s = meeting.timeout.as_secs();
    let error = MeetingError::Missing { waited_s, ranks: meeting.ranks, missing };
    let answer = Answer::Refused { reason: error.to_string() };
    guests.into_values().for_each(|guest| tell(guest.stream, &answer));
    error
}

fn alone(group: u64, places: Places) -> Roll {
    Roll { group, rank: 0, addresses: vec![places.listens], meets: vec![places.meets] }
}

/// A number for a new group.
pub(super) fn number(meeting: &Meeting) -> Result<u64, MeetingError> {
    let mut group = [0; 8];
    getrandom::fill(&mut group).map_err(|error| MeetingError::Listen {
        host: meeting.host.clone(),
        source: io::Error::other(error.to_string()),
    })?;
    Ok(u64::from_le_bytes(group))
}

/// What the host listens at is seen by the others as the meeting's address, if it does not say better.
pub(super) fn seen(places: Places, at: IpAddr) -> Places {
    let seen = |place: SocketAddr| match place.ip().is_unspecified() {
        true => SocketAddr::new(at, place.port()),
        false => place,
    };
    Places { listens: seen(places.listens), meets: seen(places.meets) }
}

/// Tells all that came where all are. Their new ranks are in the order of the old ones, and newcomers come behind.
pub(super) fn call(
    meeting: &Meeting,
    came: Came,
    (places, seen_at): (Places, IpAddr),
) -> Result<Roll, MeetingError> {
    let group = number(meeting)?;
    let Came { guests, newcomers } = came;
    let mut all: BTreeMap<usize, Places> =
        guests.iter().map(|(rank, guest)| (*rank, guest.places)).collect();
    all.insert(meeting.rank, seen(places, seen_at));
    let in_order = || all.values().copied().chain(newcomers.iter().map(|guest| guest.places));
    let addresses: Vec<SocketAddr> = in_order().map(|places| places.listens).collect();
    let meets: Vec<SocketAddr> = in_order().map(|places| places.meets).collect();
    let new_rank = |old: usize| all.keys().take_while(|rank| **rank < old).count();
    let behind = newcomers.into_iter().enumerate().map(|(at, guest)| (all.len() + at, guest));
    for (rank, guest) in guests.into_iter().map(|(old, guest)| (new_rank(old), guest)).chain(behind)
    {
        let (addresses, meets) = (addresses.clone(), meets.clone());
        tell(guest.stream, &Answer::All { group, rank, addresses, meets });
    }
    Ok(Roll { group, rank: new_rank(meeting.rank), addresses, meets })
}

/// Takes in ranks until all that are expected are there, newcomers included, or the time is over.
pub(super) fn gather(
    meeting: &Meeting,
    mut listener: TcpListener,
    expected: &BTreeSet<usize>,
    mut door: Option<Door>,
) -> io::Result<Came> {
    let begin = Instant::now();
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    if let Some(door) = &mut door {
        poll.registry().register(&mut door.listener, DOOR, Interest::READABLE)?;
    }
    let mut strangers: BTreeMap<usize, Stranger> = BTreeMap::new();
    let mut came = Came::default();
    let mut next = 0;
    let mut events = Events::with_capacity(64);
    let is_whole = |came: &Came, door: &Option<Door>| {
        expected.iter().all(|rank| came.guests.contains_key(rank))
            && door.as_ref().is_none_or(|door| came.newcomers.len() >= door.count)
    };
    loop {
        if is_whole(&came, &door) {
            // Some may have gone while they waited for the others.
            came.newcomers.retain(|guest| is_there(&guest.stream));
            if is_whole(&came, &door) {
                break;
            }
        }
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
            let at = match (event.token(), &door) {
                (LISTENER, _) => Some(&listener),
                (DOOR, Some(door)) => Some(&door.listener),
                _ => None,
            };
            if let Some(listener) = at {
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
                Ok(Some(line)) => welcome(meeting, stranger, &line, (&mut came, door.as_ref())),
                Err(error) => tracing::debug!(%error, from = %stranger.from, "no rank"),
            }
        }
    }
    came.newcomers.retain(|guest| is_there(&guest.stream));
    Ok(came)
}

/// Whether a rank that waits for its answer has not gone.
fn is_there(stream: &std::net::TcpStream) -> bool {
    match stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0])) {
        Ok(bytes) => bytes > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Takes in one rank, or says why not.
fn welcome(
    meeting: &Meeting,
    stranger: Stranger,
    line: &[u8],
    (came, door): (&mut Came, Option<&Door>),
) {
    let Stranger { stream, from, .. } = stranger;
    let stream: std::net::TcpStream = stream.into();
    match why_not(meeting, line, (came, door)) {
        Ok(join) => {
            let given = Places { listens: join.listens, meets: join.meets };
            let places = seen(given, from.ip().to_canonical());
            tracing::debug!(rank = join.rank, %from, listens = %places.listens, "a rank came");
            let guest = Guest { stream, places, part: join.part };
            match join.is_newcomer {
                true => came.newcomers.push(guest),
                false => drop(came.guests.insert(join.rank, guest)),
            }
        }
        Err(answer) => {
            tracing::warn!(%from, ?answer, "not taken in");
            tell(stream, &answer);
        }
    }
}

/// What a rank is told that is not taken in.
fn why_not(
    meeting: &Meeting,
    line: &[u8],
    (came, door): (&Came, Option<&Door>),
) -> Result<Join, Answer> {
    let refused = |reason| Err(Answer::Refused { reason });
    let join: Join = match serde_json::from_slice(line) {
        Ok(join) => join,
        Err(error) => return refused(format!("that is no word of a rank: {error}")),
    };
    if join.protocol != PROTOCOL {
        return refused(format!("this is {PROTOCOL}, not {}", join.protocol));
    }
    let job = match door.filter(|_| join.is_newcomer) {
        Some(door) => &door.job,
        None if join.is_newcomer => {
            let reason = "this group takes nobody in now".to_owned();
            return Err(Answer::Later { reason });
        }
        None => &meeting.job,
    };
    if join.job != *job {
        let group = |job: &str| {
            let number = job.strip_prefix(OF_GROUP)?.split('/').next()?;
            Some(number.to_owned())
        };
        if meeting.is_of_group() && group(&join.job) == group(job) {
            let reason = format!("the host is at another meeting of the group, {job:?}");
            return Err(Answer::Later { reason });
        }
        return refused(format!(
            "this is a meeting of job {job:?}, not of {:?}: an earlier run that has not ended, or another port",
            join.job
        ));
    }
    if let Some(door) = door.filter(|_| join.is_newcomer) {
        let ranks = came.guests.len() + came.newcomers.len() + 1;
        if came.newcomers.len() >= door.count || ranks >= super::RANKS_MAX {
            let reason = format!("{} newcomers are there already", came.newcomers.len());
            return Err(Answer::Later { reason });
        }
        return Ok(join);
    }
    if join.ranks != meeting.ranks {
        return refused(format!("there are {} ranks here, not {}", meeting.ranks, join.ranks));
    }
    if join.rank == meeting.rank || join.rank >= meeting.ranks {
        return refused(format!("rank {} of {} cannot join", join.rank, meeting.ranks));
    }
    if let Some(guest) = came.guests.get(&join.rank) {
        let at = guest.places.listens;
        return refused(format!("rank {} is there already, at {at}", join.rank));
    }
    Ok(join)
}

/// The last word to a rank. If it does not hear it, it will say so itself.
pub(super) fn tell(mut stream: std::net::TcpStream, answer: &Answer) {
    let told = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_write_timeout(Some(ANSWER_FOR)))
        .and_then(|()| stream.write_all(&line(answer)));
    if let Err(error) = told {
        tracing::debug!(%error, "a rank does not listen");
    }
}
