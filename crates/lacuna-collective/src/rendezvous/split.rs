//! A meeting that splits a group, as MPI's `MPI_Comm_split`: each rank says a colour and a key, and ranks of one colour are
//! told of each other.
//!
//! Rank 0 hosts it, at the place that it has named for later meetings. The n-th split of a group is a job of its own, so who
//! is behind or ahead is no part of it. All ranks have to come; if one does not, it is named to the others, and the group
//! goes on as before.

use super::guest::{self};
use super::host::{self, Came, Guest};
use super::words::{Answer, Join, Part};
use super::{Meeting, MeetingError, OF_GROUP, Places, Roll};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::Duration;

impl Roll {
    /// Meets all other ranks of this group, for the `number`-th split of it: the roll of the ranks that have named the same
    /// `color`, in the order of their keys, and of their old ranks where those are the same. `None` if `color` is.
    /// `reserve` is this rank's socket for it, at its place in [`Roll::meets`]; `places` are of the new group.
    ///
    /// # Errors
    /// See [`MeetingError`]; this roll stays as it is.
    pub fn split(
        &self,
        reserve: TcpListener,
        places: Places,
        number: u64,
        (color, key): (Option<u64>, i64),
        timeout: Duration,
    ) -> Result<Option<Roll>, MeetingError> {
        let meeting = Meeting {
            host: self.meets[0].to_string(),
            rank: self.rank,
            ranks: self.meets.len(),
            job: format!("{OF_GROUP}{:016x}/split/{number}", self.group),
            timeout,
        };
        let part = Part { color, key };
        if self.rank > 0 {
            let word = Join { part: Some(part), ..guest::word(&meeting, places) };
            return guest::meet(&meeting, &word);
        }
        let broken = |source| MeetingError::Broken { host: meeting.host.clone(), source };
        reserve.set_nonblocking(true).map_err(broken)?;
        let reserve = mio::net::TcpListener::from_std(reserve);
        let expected: BTreeSet<usize> = (1..meeting.ranks).collect();
        let Came { guests, .. } =
            host::gather(&meeting, reserve, &expected, None).map_err(broken)?;
        let is_missing = |rank: &usize| guests.get(rank).is_none_or(|guest| guest.part.is_none());
        let missing: Vec<usize> = expected.into_iter().filter(is_missing).collect();
        if !missing.is_empty() {
            return Err(host::give_up(&meeting, guests, missing));
        }
        divide(&meeting, guests, (host::seen(places, self.meets[0].ip()), part))
    }
}

/// Tells each rank its group; the host's own.
fn divide(
    meeting: &Meeting,
    guests: BTreeMap<usize, Guest>,
    (own, part): (Places, Part),
) -> Result<Option<Roll>, MeetingError> {
    let of_guests = guests.iter().map(|(rank, guest)| (*rank, guest.part, guest.places));
    let mut colors: BTreeMap<u64, Vec<(i64, usize, Places)>> = BTreeMap::new();
    for (rank, part, places) in of_guests.chain([(meeting.rank, Some(part), own)]) {
        if let Some(Part { color: Some(color), key }) = part {
            colors.entry(color).or_default().push((key, rank, places));
        }
    }
    let mut rolls: BTreeMap<usize, Roll> = BTreeMap::new();
    for mut members in colors.into_values() {
        members.sort_unstable_by_key(|(key, rank, _)| (*key, *rank));
        let group = host::number(meeting)?;
        let addresses: Vec<_> = members.iter().map(|(.., places)| places.listens).collect();
        let meets: Vec<_> = members.iter().map(|(.., places)| places.meets).collect();
        for (rank, (_, old, _)) in members.iter().enumerate() {
            let (addresses, meets) = (addresses.clone(), meets.clone());
            rolls.insert(*old, Roll { group, rank, addresses, meets });
        }
    }
    for (rank, guest) in guests {
        let answer = match rolls.remove(&rank) {
            Some(Roll { group, rank, addresses, meets }) => {
                Answer::All { group, rank, addresses, meets }
            }
            None => Answer::Apart,
        };
        host::tell(guest.stream, &answer);
    }
    Ok(rolls.remove(&meeting.rank))
}
