//! A meeting of the ranks that are left, when others are gone: no place is known beforehand but those that all have said.
//!
//! Each rank looks for the lowest one that is there, which is the host; its own socket takes connections from the beginning,
//! so who comes early waits. The host waits until all have come that it does not know to be gone, or for so long, and goes
//! on with who came. The job of the meeting is the group that was, so nobody else belongs to it.
//!
//! Newcomers know none of these places. They come to an address that is agreed on outside of this, where the host listens as
//! long as the meeting lasts, and say the job that the group was formed with.

use super::guest::{self, Met, TRY_EVERY, TRY_FOR};
use super::host::{self, Door};
use super::{Meeting, MeetingError, OF_GROUP, Places, Roll};
use std::collections::BTreeSet;
use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Ranks that may come to a group which is formed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Newcomers {
    /// Where the lowest rank listens for them, as in `[::]:29500`: which host that is depends on who is left, so it is
    /// an address that each of them has.
    pub at: String,
    /// How many are waited for; no more are taken in.
    pub count: usize,
    /// The job that they have to name.
    pub job: String,
}

impl Newcomers {
    fn door(&self) -> Result<Door, MeetingError> {
        let host = || self.at.clone();
        let address = self
            .at
            .to_socket_addrs()
            .and_then(|mut addresses| addresses.next().ok_or(io::ErrorKind::NotFound.into()))
            .map_err(|source| MeetingError::Address { host: host(), source })?;
        let listener = mio::net::TcpListener::bind(address)
            .map_err(|source| MeetingError::Listen { host: host(), source })?;
        Ok(Door { listener, count: self.count, job: self.job.clone() })
    }
}

impl Roll {
    /// Meets those that are left, and newcomers if there are to be some. `reserve` is this rank's socket for it, at its
    /// place in [`Roll::meets`]; `gone` are ranks that nobody need wait for. After `timeout` it goes on with who came.
    ///
    /// # Errors
    /// See [`MeetingError`].
    pub fn again(
        &self,
        reserve: TcpListener,
        places: Places,
        gone: &BTreeSet<usize>,
        newcomers: Option<&Newcomers>,
        timeout: Duration,
    ) -> Result<Roll, MeetingError> {
        let begin = Instant::now();
        let ranks = self.meets.len();
        let meeting = |host: usize| Meeting {
            host: self.meets[host].to_string(),
            rank: self.rank,
            ranks,
            job: format!("{OF_GROUP}{:016x}", self.group),
            timeout: timeout.saturating_sub(begin.elapsed()),
        };
        for candidate in (0..self.rank).filter(|rank| !gone.contains(rank)) {
            // It may be at another meeting of the group still, or have gone as well.
            while let Ok(stream) = TcpStream::connect_timeout(&self.meets[candidate], TRY_FOR) {
                let meeting = meeting(candidate);
                match guest::ask(&meeting, &guest::word(&meeting, places), stream, begin) {
                    Ok(Met::In(roll)) => return Ok(roll),
                    Ok(Met::Later(_)) if begin.elapsed() < timeout => {
                        std::thread::sleep(TRY_EVERY);
                    }
                    Ok(Met::Apart | Met::Later(_)) | Err(MeetingError::Broken { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        let own = meeting(self.rank);
        let broken = |source| MeetingError::Broken { host: own.host.clone(), source };
        reserve.set_nonblocking(true).map_err(broken)?;
        let reserve = mio::net::TcpListener::from_std(reserve);
        let door = newcomers.map(Newcomers::door).transpose()?;
        // Lower ones are gone, or they would be the host.
        let expected = (self.rank + 1..ranks).filter(|rank| !gone.contains(rank)).collect();
        let came = host::gather(&own, reserve, &expected, door).map_err(broken)?;
        host::call(&own, came, (places, self.meets[self.rank].ip()))
    }
}
