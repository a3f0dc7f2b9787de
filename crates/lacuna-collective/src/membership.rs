//! Groups that come from another one: without ranks that are gone, with newcomers, or split by colour.
//!
//! Each is a group of its own with a number of its own, which the meeting gives it (`rendezvous/`): connections of another
//! group, and of an earlier form of the same one, are refused by it.

use crate::config::GroupConfig;
use crate::error::GroupError;
use crate::group::{CLOSE_FOR, Ends, Group};
use crate::rendezvous::Newcomers;
use lacuna_schedule::run::RunError;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Group {
    /// Forms a group of the ranks that are left, when one is gone: in the order of their old ranks, by a meeting that the
    /// lowest of them hosts. All that are left have to call it, within `timeout` of each other; who does not is no part of the
    /// new group. Operations that were under way are lost.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn form_again(self, timeout: Duration) -> Result<Self, GroupError> {
        self.formed_again(None, timeout)
    }

    /// The same with `count` newcomers at most, which come behind the old ranks. The lowest of those that are left listens
    /// for them at `at`, as in `[::]:29500`, while the meeting lasts; they wait there with
    /// [`Meeting::joining`](crate::rendezvous::Meeting::joining) and the group's job, before this is called or after it. All
    /// old ranks have to give the same. After `timeout` the group goes on with who came.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn form_with(self, at: &str, count: usize, timeout: Duration) -> Result<Self, GroupError> {
        let job = self.config.meeting.job.clone();
        self.formed_again(Some(Newcomers { at: at.to_owned(), count, job }), timeout)
    }

    fn formed_again(
        mut self,
        newcomers: Option<Newcomers>,
        timeout: Duration,
    ) -> Result<Self, GroupError> {
        let failure = self.driver.failure();
        // What others of a group that has not failed still miss has to arrive.
        self.driver.close(if failure.is_none() { CLOSE_FOR } else { Duration::ZERO });
        let gone = match failure {
            Some(RunError::Gone { rank, .. } | RunError::Aborted { rank, .. }) => Some(rank),
            _ => None,
        };
        let ends = Ends::open(&self.config)?;
        let reserve = self.reserve.try_clone().map_err(GroupError::Reserve)?;
        let gone = gone.into_iter().filter(|rank| *rank != self.roll.rank).collect();
        let newcomers = newcomers.as_ref();
        let roll = self.roll.again(reserve, ends.places, &gone, newcomers, timeout)?;
        let mut config = self.config.clone();
        config.meeting.timeout = timeout;
        Self::connect(config, ends, roll)
    }

    /// Splits the group, as `MPI_Comm_split` does: ranks that give the same colour get a group of their own, in the order of
    /// their keys, and of their old ranks where those are the same; a rank without a colour gets `None`. All ranks call it,
    /// in the same order as other splits of the group, within its [`Meeting::timeout`](crate::rendezvous::Meeting::timeout).
    ///
    /// This group goes on beside the new one, operations of both may be in flight at once, and a rank that leaves one of
    /// them, or a failure of one, does nothing to the other. The new group has sockets of its own, at any port.
    ///
    /// # Errors
    /// See [`GroupError`]. If the ranks did not meet, this group is as it was.
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Self>, GroupError> {
        let number = self.splits.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = self.driver.failure() {
            return Err(GroupError::Failed(error));
        }
        let config = GroupConfig { port: 0, ..self.config.clone() };
        let ends = Ends::open(&config)?;
        let reserve = self.reserve.try_clone().map_err(GroupError::Reserve)?;
        let timeout = config.meeting.timeout;
        let roll = self.roll.split(reserve, ends.places, number, (color, key), timeout)?;
        roll.map(|roll| Self::connect(config, ends, roll)).transpose()
    }
}
