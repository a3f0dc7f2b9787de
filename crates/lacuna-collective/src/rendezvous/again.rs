//! A meeting of the ranks that are left, when others are gone: no place is known beforehand but those that all have said.
//!
//! Each rank looks for the lowest one that is there, which is the host; its own socket takes connections from the beginning,
//! so who comes early waits. The host waits until all have come that it does not know to be gone, or for so long, and goes
//! on with who came. The job of the meeting is the group that was, so nobody else belongs to it.

use super::guest::{self, TRY_FOR};
use super::{Meeting, MeetingError, Places, Roll, host};
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

impl Roll {
    /// Meets those that are left. `reserve` is this rank's socket for it, at its place in [`Roll::meets`]; `gone` are
    /// ranks that nobody need wait for.
    ///
    /// # Errors
    /// See [`MeetingError`].
    pub fn again(
        &self,
        reserve: TcpListener,
        places: Places,
        gone: &BTreeSet<usize>,
        timeout: Duration,
    ) -> Result<Roll, MeetingError> {
        let begin = Instant::now();
        let ranks = self.meets.len();
        let meeting = |host: usize| Meeting {
            host: self.meets[host].to_string(),
            rank: self.rank,
            ranks,
            job: format!("{:016x}", self.group),
            timeout: timeout.saturating_sub(begin.elapsed()),
        };
        for candidate in (0..self.rank).filter(|rank| !gone.contains(rank)) {
            let Ok(stream) = TcpStream::connect_timeout(&self.meets[candidate], TRY_FOR) else {
                continue;
            };
            match guest::join(&meeting(candidate), stream, begin, places) {
                // It was there, and is gone as well.
                Err(MeetingError::Broken { .. }) => {}
                met => return met,
            }
        }
        let own = meeting(self.rank);
        let broken = |source| MeetingError::Broken { host: own.host.clone(), source };
        reserve.set_nonblocking(true).map_err(broken)?;
        let reserve = mio::net::TcpListener::from_std(reserve);
        // Lower ones are gone, or they would be the host.
        let expected = (self.rank + 1..ranks).filter(|rank| !gone.contains(rank)).collect();
        let guests = host::gather(&own, reserve, &expected).map_err(broken)?;
        host::call(&own, guests, (places, self.meets[self.rank].ip()))
    }
}
