//! All ranks but the first: they look for the host until it is there, say who they are, and wait for the roll.

use super::words::{ANSWER_BYTES_MAX, Answer, Join, PROTOCOL, line, read_line};
use super::{Meeting, MeetingError, Places, Roll};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Between two tries to reach a host that is not there yet.
pub(super) const TRY_EVERY: Duration = Duration::from_millis(100);
/// For one try.
pub(super) const TRY_FOR: Duration = Duration::from_secs(3);

/// What the host made of a rank's word.
pub(super) enum Met {
    In(Roll),
    Apart,
    /// Another meeting is on.
    Later(String),
}

/// The word of a rank.
pub(super) fn word(meeting: &Meeting, places: Places) -> Join {
    Join {
        protocol: PROTOCOL.to_owned(),
        job: meeting.job.clone(),
        rank: meeting.rank,
        ranks: meeting.ranks,
        listens: places.listens,
        meets: places.meets,
        part: None,
        is_newcomer: false,
    }
}

/// Looks for the host until it is there and takes this rank in; `None` for a rank without a group.
pub(super) fn meet(meeting: &Meeting, word: &Join) -> Result<Option<Roll>, MeetingError> {
    let begin = Instant::now();
    loop {
        let stream = reach(meeting, begin)?;
        let last = match ask(meeting, word, stream, begin) {
            Ok(Met::In(roll)) => return Ok(Some(roll)),
            Ok(Met::Apart) => return Ok(None),
            Ok(Met::Later(reason)) => reason,
            // A group that others wait to join may be formed again while they wait.
            Err(MeetingError::Broken { source, .. }) if word.is_newcomer => source.to_string(),
            Err(error) => return Err(error),
        };
        if begin.elapsed() >= meeting.timeout {
            let (host, waited_s) = (meeting.host.clone(), begin.elapsed().as_secs());
            return Err(MeetingError::NoHost { host, waited_s, last });
        }
        std::thread::sleep(TRY_EVERY);
    }
}

/// Says who this rank is, and waits for the roll.
pub(super) fn ask(
    meeting: &Meeting,
    word: &Join,
    mut stream: TcpStream,
    begin: Instant,
) -> Result<Met, MeetingError> {
    let host = meeting.host.clone();
    let broken = |source| MeetingError::Broken { host: host.clone(), source };
    stream.write_all(&line(word)).map_err(broken)?;
    // The host gives up by itself, and says for whom it waited; this end only outlasts it.
    let left = meeting.timeout.saturating_sub(begin.elapsed()) + TRY_FOR;
    let answer = receive(&mut stream, left).map_err(broken)?;
    match answer {
        Answer::All { group, rank, addresses, meets }
            if rank < addresses.len() && meets.len() == addresses.len() =>
        {
            Ok(Met::In(Roll { group, rank, addresses, meets }))
        }
        Answer::All { .. } => {
            Err(MeetingError::Refused { host, reason: "its roll makes no sense".to_owned() })
        }
        Answer::Refused { reason } => Err(MeetingError::Refused { host, reason }),
        Answer::Apart => Ok(Met::Apart),
        Answer::Later { reason } => Ok(Met::Later(reason)),
    }
}

/// A connection to the host, which may begin later than this rank.
fn reach(meeting: &Meeting, begin: Instant) -> Result<TcpStream, MeetingError> {
    let host = &meeting.host;
    let mut last = String::new();
    loop {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for host in host.split(',').map(str::trim) {
            match host.to_socket_addrs() {
                Ok(found) => addresses.extend(found),
                Err(source) if source.kind() == io::ErrorKind::InvalidInput => {
                    return Err(MeetingError::Address { host: host.to_owned(), source });
                }
                // A name may be known later, too.
                Err(source) => last = source.to_string(),
            }
        }
        for address in addresses {
            match TcpStream::connect_timeout(&address, TRY_FOR) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.to_string(),
            }
        }
        if begin.elapsed() >= meeting.timeout {
            let waited_s = begin.elapsed().as_secs();
            return Err(MeetingError::NoHost { host: host.clone(), waited_s, last });
        }
        std::thread::sleep(TRY_EVERY);
    }
}

fn receive(stream: &mut TcpStream, within: Duration) -> io::Result<Answer> {
    let begin = Instant::now();
    let mut read = Vec::new();
    loop {
        let left = within.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        if let Some(line) = read_line(stream, &mut read, ANSWER_BYTES_MAX)? {
            return Ok(serde_json::from_slice(&line)?);
        }
    }
}
