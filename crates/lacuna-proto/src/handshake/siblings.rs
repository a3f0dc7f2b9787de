//! Further queue pairs of the same connection, called siblings: each has its own numbers, so that nothing
//! of one can end or delay a message of another. In one space of numbers a receiver could not tell a lost
//! message that is to be repaired from a lost one that is not.
//!
//! Hello and welcome name them in an optional list. An end that does not know a sibling's role, or is
//! older than the list, leaves it out of its answer, and the other frees what it had reserved.

use super::parameters::Parameters;
use crate::modes::Mode;
use crate::qp::Peer;
use lacuna_wire::{ImmediateSplit, Qpn};
use serde::{Deserialize, Serialize};

/// Most siblings that are read of a message.
const SIBLINGS_MAX: usize = 8;

/// What a sibling is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Writes to regions ([`crate::qp::QueuePair::become_one_sided`]).
    OneSided,
    /// Messages that are repaired and not held up by others.
    Critical,
    /// Messages that are of use only in time, and are not repaired.
    Droppable,
    /// Messages that are repaired, beside a connection that repairs nothing.
    Repaired,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::OneSided, Self::Critical, Self::Droppable, Self::Repaired];

    /// Name: lower case, stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneSided => "one-sided",
            Self::Critical => "critical",
            Self::Droppable => "droppable",
            Self::Repaired => "repaired",
        }
    }
}

/// A queue pair beside that of the connection. Its channels are the connection's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sibling {
    /// What it is for.
    pub role: Role,
    /// How the other end addresses it.
    pub peer: Peer,
}

/// A sibling as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SiblingFields {
    role: String,
    queue_pair: u32,
    rkey: u32,
    qkey: u32,
    first_psn: u32,
    credit_bytes: u32,
}

/// Siblings as they travel.
pub(super) fn to_fields(siblings: &[Sibling]) -> Vec<SiblingFields> {
    let fields = |sibling: &Sibling| SiblingFields {
        role: sibling.role.name().to_owned(),
        queue_pair: sibling.peer.queue_pair,
        rkey: sibling.peer.rkey,
        qkey: sibling.peer.qkey,
        first_psn: sibling.peer.first_psn,
        credit_bytes: sibling.peer.credit_bytes,
    };
    siblings.iter().map(fields).collect()
}

/// The siblings of a message: one of each role that is known here. Those that nothing can be sent to are
/// left out.
pub(super) fn of_fields(fields: &[SiblingFields]) -> Vec<Sibling> {
    let mut siblings: Vec<Sibling> = Vec::new();
    for fields in fields.iter().take(SIBLINGS_MAX) {
        let role = Role::ALL.into_iter().find(|role| role.name() == fields.role);
        let numbers = Qpn::QUEUE_PAIR_MIN..=Qpn::QUEUE_PAIR_MAX;
        let is_sound = numbers.contains(&fields.queue_pair) && fields.first_psn < 1 << 24;
        let Some(role) = role.filter(|_| is_sound) else { continue };
        if siblings.iter().all(|sibling| sibling.role != role) {
            let SiblingFields { queue_pair, rkey, qkey, first_psn, credit_bytes, .. } = *fields;
            siblings.push(Sibling {
                role,
                peer: Peer { queue_pair, rkey, qkey, first_psn, credit_bytes },
            });
        }
    }
    siblings
}

impl Parameters {
    /// The parameters of a sibling. Both ends derive them from those of the connection.
    pub fn of_sibling(&self, role: Role) -> Self {
        match role {
            // Receives of writes cost memory while they are open, so there are few message numbers; a
            // long write takes several. A small write tells of itself with its only packet. No application
            // decides when a write is over, so in mode raw they end in time.
            Role::OneSided => Self {
                mode: if self.mode == Mode::Raw { Mode::BOUNDED } else { self.mode },
                split: ImmediateSplit::COMPACT,
                max_message_bytes: 0,
                ..*self
            },
            Role::Critical | Role::Repaired => {
                let is_reliable = self.mode.is_reliable();
                Self { mode: if is_reliable { self.mode } else { Mode::Auto }, ..*self }
            }
            Role::Droppable => {
                let is_bounded = matches!(self.mode, Mode::Bounded(_));
                Self { mode: if is_bounded { self.mode } else { Mode::BOUNDED }, ..*self }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_a_mode_that_suits_it() {
        let of = |mode, role| {
            let parameters = Parameters { mode, ..crate::handshake::tests::PARAMETERS };
            parameters.of_sibling(role).mode
        };
        for mode in [Mode::Auto, Mode::SR, Mode::EC, Mode::Raw, Mode::BOUNDED] {
            assert!(of(mode, Role::Critical).is_reliable());
            assert!(of(mode, Role::Repaired).is_reliable());
            assert!(matches!(of(mode, Role::Droppable), Mode::Bounded(_)));
            assert!(of(mode, Role::OneSided) != Mode::Raw);
        }
    }

    fn sibling(queue_pair: u32) -> Sibling {
        let peer = Peer { queue_pair, rkey: 1, qkey: 2, first_psn: 3, credit_bytes: 4 };
        Sibling { role: Role::OneSided, peer }
    }

    #[test]
    fn siblings_travel_as_they_are() {
        assert_eq!(of_fields(&to_fields(&[sibling(77)])), [sibling(77)]);
    }

    #[test]
    fn unknown_roles_wrong_numbers_and_repetitions_are_left_out() {
        let mut fields = to_fields(&[sibling(77), sibling(78), sibling(0), sibling(1 << 30)]);
        fields.insert(0, SiblingFields { role: "later".to_owned(), ..fields[0].clone() });
        assert_eq!(of_fields(&fields), [sibling(77)]);
        fields.iter_mut().for_each(|fields| fields.first_psn = 1 << 24);
        assert_eq!(of_fields(&fields), []);
    }
}
