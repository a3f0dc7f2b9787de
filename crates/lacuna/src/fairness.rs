//! Shares of a crowded listener, by the addresses that peers come from.
//!
//! A peer has shown that it receives at its address, since TCP's handshake was completed. So who floods a listener does it from
//! addresses that are few beside those of everybody else, and cannot take more than a share for each of them.
//!
//! Invariants: a source with fewer peers than another is never asked to make room; each source has a turn before
//! any has a second one.

use std::collections::HashMap;
use std::net::IpAddr;

/// Where peers come from: an address of IPv4, or the network of one of IPv6, of which a host has as many as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(peer: IpAddr) -> Self {
        Self(match peer.to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
            ip => ip,
        })
    }
}

/// Which peers make room for others, `surplus` in all: the oldest of the sources that have the most. `sources` are those of the
/// peers, oldest first.
pub(crate) fn who_makes_room(sources: &[Source], mut surplus: usize) -> Vec<bool> {
    let mut counts = HashMap::new();
    for source in sources {
        *counts.entry(*source).or_insert(0) += 1;
    }
    let share = share(counts.values().copied().collect(), sources.len().saturating_sub(surplus));
    let mut goes = vec![false; sources.len()];
    // Where places do not divide evenly, some sources have one more than others.
    for most in [share.saturating_add(1), share] {
        for (goes, source) in goes.iter_mut().zip(sources) {
            if let Some(count) = counts.get_mut(source).filter(|count| **count > most)
                && surplus > 0
                && !*goes
            {
                (*count, *goes) = (*count - 1, true);
                surplus -= 1;
            }
        }
    }
    goes
}

/// The most that each source may have, so that all together have at most `room`.
fn share(mut counts: Vec<usize>, mut room: usize) -> usize {
    counts.sort_unstable();
    for (at, count) in counts.iter().enumerate() {
        let share = room / (counts.len() - at);
        if share < *count {
            return share;
        }
        room -= count;
    }
    usize::MAX
}

/// Which of the peers have a turn, `most` at a time: first one of each source, then another one. `ready` has the source of each
/// that has something to do, oldest first.
pub(crate) fn whose_turn(
    ready: impl IntoIterator<Item = Option<Source>>,
    most: usize,
) -> Vec<bool> {
    let mut counts = HashMap::new();
    // Which turn of its source each would have.
    let turns: Vec<Option<usize>> = ready
        .into_iter()
        .map(|source| {
            let count = counts.entry(source?).or_insert(0);
            *count += 1;
            Some(*count)
        })
        .collect();
    let mut order: Vec<_> = (0..turns.len()).filter(|at| turns[*at].is_some()).collect();
    let mut has_turn = vec![false; turns.len()];
    if order.len() > most {
        order.sort_by_key(|at| turns[*at]);
    }
    order.into_iter().take(most).for_each(|at| has_turn[at] = true);
    has_turn
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(number: u8) -> Source {
        Source::of([10, 0, 0, number].into())
    }

    #[test]
    fn a_network_of_ipv6_and_an_address_of_ipv4_are_sources() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn the_oldest_of_the_source_with_the_most_make_room() {
        let peers = [1, 2, 2, 3, 2, 2].map(source);
        let goes = who_makes_room(&peers, 2);
        assert_eq!(goes, [false, true, true, false, false, false]);
    }

    #[test]
    fn each_source_has_a_turn_before_any_has_a_second_one() {
        let [one, two] = [Some(source(1)), Some(source(2))];
        let turns = whose_turn([one, one, one, None, two], 2);
        assert_eq!(turns, [true, false, false, false, true]);
        assert_eq!(whose_turn([one, None], 2), [true, false]);
    }

    proptest! {
        #[test]
        fn as_many_go_as_must_and_nobody_while_another_source_has_more(
            numbers in proptest::collection::vec(0_u8..6, 0..60), surplus in 0_usize..60,
        ) {
            let sources: Vec<_> = numbers.iter().map(|number| source(*number)).collect();
            let surplus = surplus.min(sources.len());
            let goes = who_makes_room(&sources, surplus);
            prop_assert_eq!(goes.iter().filter(|goes| **goes).count(), surplus);
            let kept = |number: u8| numbers.iter().zip(&goes).filter(|(of, goes)| **of == number && !**goes).count();
            for number in 0..6 {
                let was = numbers.iter().filter(|of| **of == number).count();
                if kept(number) < was {
                    let most = (0..6).map(kept).max().unwrap_or(0);
                    prop_assert!(kept(number) + 1 >= most, "{} of {} are left beside {}", kept(number), was, most);
                }
            }
        }

        #[test]
        fn turns_are_as_even_as_can_be(
            numbers in proptest::collection::vec(proptest::option::of(0_u8..6), 0..60), most in 0_usize..60,
        ) {
            let turns = whose_turn(numbers.iter().map(|number| number.map(source)), most);
            let ready = numbers.iter().flatten().count();
            prop_assert_eq!(turns.iter().filter(|turn| **turn).count(), ready.min(most));
            let of = |number: u8, has_turn: bool| {
                numbers.iter().zip(&turns).filter(|(of, turn)| **of == Some(number) && **turn == has_turn).count()
            };
            for (one, other) in (0..6).flat_map(|one| (0..6).map(move |other| (one, other))) {
                prop_assert!(of(one, false) == 0 || of(other, true) <= of(one, true) + 1);
            }
        }
    }
}
