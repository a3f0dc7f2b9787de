//! Collective operations in virtual time: through the runner of [`lacuna_schedule`], with messages of the
//! transport's own protocol or packets of a network that is made up.

mod messages;
mod ring;
mod schedules;
mod sizes;

use crate::optinic::NAME;
pub(crate) use ring::ring;
pub(crate) use schedules::schedules;
pub(crate) use sizes::figure_5;
