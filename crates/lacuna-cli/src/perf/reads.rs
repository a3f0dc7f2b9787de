//! Reads of a region of the server, into one here. The bytes travel from the server to this end, so this end
//! counts what it received, and the server what it has sent.

use super::protocol::Request;
use super::sending::{Operations, Tally};
use super::{ClientArgs, pattern};
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::units::show_bytes;
use lacuna::{
    Connection, READ_PART_BYTES, READ_PARTS_MAX, READS_OPEN_MAX, ReadError, ReadFailure,
    ReadHandle, Reason, Region, Target,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Why so many reads cannot be in flight, if so.
pub(super) fn too_many(size_bytes: u64, inflight: u32) -> Option<String> {
    let parts = size_bytes.div_ceil(READ_PART_BYTES).clamp(1, READ_PARTS_MAX as u64);
    let most = READS_OPEN_MAX as u64 / parts;
    (u64::from(inflight) > most).then(|| {
        let size = show_bytes(size_bytes);
        format!(
            "{inflight} reads of {size} in flight are too many: choose --inflight {most} or less"
        )
    })
}

/// Reads in flight, each with its number.
pub(super) struct Reads<'a> {
    args: &'a ClientArgs,
    measured: &'a Connection,
    request: Request,
    /// Key of the server's region.
    key: u32,
    into: &'a Region,
    in_flight: VecDeque<(ReadHandle<'a>, u64)>,
    /// Reads that ended with gaps, by reason.
    lossy: BTreeMap<Reason, u64>,
    /// For one message, if it is checked.
    checked: Vec<u8>,
}

impl<'a> Reads<'a> {
    /// Reads of the region with this key into `into`, which has as many places.
    pub(super) fn new(
        args: &'a ClientArgs,
        measured: &'a Connection,
        key: u32,
        request: Request,
        into: &'a Region,
    ) -> Self {
        let checked = vec![0; if args.validate { args.size as usize } else { 0 }];
        let (in_flight, lossy) = (VecDeque::new(), BTreeMap::new());
        Self { args, measured, request, key, into, in_flight, lossy, checked }
    }

    /// Why a read has ended with gaps: the transport counts its parts by reason. Of several reasons at once
    /// the first that no other read was counted for.
    fn lossy_reason(&mut self) -> Reason {
        let parts = self.measured.one_sided_stats().map(|stats| stats.ended.receives);
        let parts = parts.unwrap_or_default();
        let is_more = |reason: &&Reason| {
            let counted = self.lossy.get(*reason).copied().unwrap_or(0);
            parts.get(reason.name()).copied().unwrap_or(0) > counted
        };
        let lossy = Reason::ALL.iter().filter(|reason| **reason != Reason::Whole).find(is_more);
        let reason = lossy.copied().unwrap_or(Reason::Accounted);
        *self.lossy.entry(reason).or_default() += 1;
        reason
    }

    /// Checks what a read has brought. Bytes that did not come are zeros: [`Reads::clear`] has seen to it.
    fn check(&mut self, number: u64, is_whole: bool, tally: &mut Tally) -> Result<(), Failure> {
        let (len, place) = (self.checked.len(), number % u64::from(self.request.inflight));
        self.into.read(self.request.place(number), &mut self.checked).map_err(outside)?;
        let wrong = if is_whole {
            pattern::first_wrong(&self.checked, 0..len, place)
        } else {
            let is_right = |message, word| message == Some(place) || word == 0;
            pattern::first_foreign(&self.checked, 0..len, is_right)
        };
        if let Some(at) = wrong {
            tally.wrong(number, at as u64);
        }
        Ok(())
    }

    fn clear(&mut self, number: u64) -> Result<(), Failure> {
        self.checked.fill(0);
        self.into.write(self.request.place(number), &self.checked).map_err(outside)
    }
}

fn outside(error: lacuna::OutOfBounds) -> Failure {
    Failure::Local(error.to_string())
}

impl Operations for Reads<'_> {
    fn post(&mut self, number: u64) -> Result<Instant, Failure> {
        if self.args.validate {
            self.clear(number)?;
        }
        let address = self.request.place(number);
        let from = Target { key: self.key, address };
        let deadline = self.args.deadline.unwrap_or(Duration::MAX);
        let posted = Instant::now();
        let read =
            self.measured.start_read_into(from, self.args.size, self.into, address, deadline);
        self.in_flight.push_back((read.map_err(failed)?, number));
        Ok(posted)
    }

    fn wait_oldest(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        let Some((read, number)) = self.in_flight.front_mut() else { return Ok(true) };
        let number = *number;
        let reason = match read.wait(POLL_INTERVAL) {
            Ok(false) => return Ok(false),
            Ok(true) if read.placed_bytes() == read.len() => Some(Reason::Whole),
            Ok(true) => None,
            Err(ReadError::Failed(ReadFailure::Deadline { .. })) => Some(Reason::Deadline),
            // The server's end of the same deadline was first.
            Err(ReadError::Failed(ReadFailure::GivenUp)) if self.args.deadline.is_some() => {
                Some(Reason::Deadline)
            }
            Err(error) => return Err(failed(error)),
        };
        let lost_bytes = read.len() - read.placed_bytes().min(read.len());
        // Before its bytes are looked at: nothing comes any more.
        self.in_flight.pop_front();
        let reason = reason.unwrap_or_else(|| self.lossy_reason());
        tally.count(reason, lost_bytes);
        if self.args.validate {
            self.check(number, reason == Reason::Whole, tally)?;
        }
        Ok(true)
    }

    fn are_awaited(&self) -> bool {
        true
    }

    fn give_up(&mut self) {
        self.in_flight.clear();
    }
}

fn failed(error: ReadError) -> Failure {
    Failure::Network(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_reads_are_answered_with_how_many_may_be() {
        assert_eq!(too_many(8 << 20, 64), None);
        assert_eq!(too_many(1, 512), None);
        let refused = too_many(8 << 20, 65).expect("eight parts each");
        assert_eq!(
            refused,
            "65 reads of 8 MiB in flight are too many: choose --inflight 64 or less"
        );
        assert!(too_many(1 << 40, 17).expect("long").contains("--inflight 16 or less"));
    }
}
