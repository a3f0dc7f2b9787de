//! One channel by hand: what moves its address, and what it costs.

use super::*;
use core::net::Ipv4Addr;
use lacuna_link::SplitMix64;

const INTERVAL_NS: u64 = 20_000_000;
const PACKET_BYTES: usize = 44;

/// A channel, and what was sent on it.
struct Channel {
    migration: Migration,
    present: Option<SocketAddr>,
    now_ns: u64,
    drawn: u64,
}

fn at(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), port))
}

impl Channel {
    /// Its peer is at `at(1, 1)` and was heard.
    fn new() -> Self {
        let present = Some(at(1, 1));
        let mut channel =
            Self { migration: Migration::default(), present, now_ns: 1_000_000_000, drawn: 100 };
        assert_eq!(channel.hear(at(1, 1)), None);
        channel
    }

    fn hear_with(&mut self, source: SocketAddr, frames: PathFrames) -> Option<Outcome> {
        let Self { migration, present, now_ns, drawn } = self;
        let (now_ns, bytes) = (*now_ns, 100);
        let heard = Heard { now_ns, channel: 0, source, bytes, is_newest: true, frames };
        let mut draw = || {
            *drawn += 1;
            *drawn
        };
        migration.on_heard(&heard, present, Facts { interval_ns: INTERVAL_NS, draw: &mut draw })
    }

    fn hear(&mut self, source: SocketAddr) -> Option<Outcome> {
        self.hear_with(source, PathFrames::default())
    }

    fn hear_response(&mut self, source: SocketAddr, value: u64) -> Option<Outcome> {
        self.hear_with(source, PathFrames { challenge: None, response: Some(value) })
    }

    /// What is sent now: addresses and values of challenges.
    fn challenges(&mut self) -> Vec<(SocketAddr, u64)> {
        let (now_ns, mut sent) = (self.now_ns, Vec::new());
        self.migration.on_timeout(now_ns, |_| true, PACKET_BYTES, INTERVAL_NS);
        while let Some(Outgoing { to, frame, .. }) = self.migration.poll(|_| true) {
            if let Frame::PathChallenge(PathChallenge { value }) = frame {
                sent.push((to, value));
            }
        }
        sent
    }

    fn pass(&mut self, intervals: u64) {
        self.now_ns += intervals * INTERVAL_NS;
    }
}

#[test]
fn a_path_moves_when_the_candidate_has_answered_from_where_it_is() {
    let mut channel = Channel::new();
    channel.hear(at(1, 2));
    let sent = channel.challenges();
    let [(old, _), (new, value)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((old, new), (at(1, 1), at(1, 2)));
    assert_eq!(channel.hear_response(at(1, 2), value ^ 1 << 20), None, "another value");
    assert_eq!(channel.hear_response(at(1, 1), value), None, "from elsewhere");
    assert_eq!(channel.present, Some(at(1, 1)));
    assert_eq!(channel.hear_response(at(1, 2), value), Some(Outcome::Moved));
    assert_eq!(channel.present, Some(at(1, 2)));
}

#[test]
fn of_the_addresses_that_answer_the_oldest_wins_wherever_its_response_comes_from() {
    let mut channel = Channel::new();
    channel.hear(at(2, 2));
    let first = channel.challenges();
    assert_eq!(channel.hear_response(at(2, 2), first[1].1), Some(Outcome::Moved));
    channel.pass(1);
    channel.hear(at(3, 3));
    let second = channel.challenges();
    assert_eq!(
        second.iter().map(|(to, _)| *to).collect::<Vec<_>>(),
        [at(1, 1), at(2, 2), at(3, 3)]
    );
    assert_eq!(channel.hear_response(at(3, 3), second[2].1), Some(Outcome::Moved));
    assert_eq!(channel.present, Some(at(3, 3)));
    assert_eq!(channel.hear_response(at(3, 3), first[0].1), Some(Outcome::Kept));
    assert_eq!(channel.present, Some(at(1, 1)));
    // Nothing of the others is left.
    assert_eq!(channel.hear_response(at(3, 3), second[2].1), None);
    assert_eq!(channel.hear_response(at(2, 2), second[1].1), None);
}

#[test]
fn after_the_old_address_has_answered_there_is_a_pause_before_the_next_candidate() {
    let mut channel = Channel::new();
    channel.hear(at(2, 2));
    let sent = channel.challenges();
    assert_eq!(channel.hear_response(at(1, 1), sent[0].1), Some(Outcome::Kept));
    for _ in 0..PAUSE_INTERVALS {
        channel.hear(at(2, 2));
        assert_eq!(channel.challenges(), []);
        channel.pass(1);
    }
    channel.hear(at(2, 2));
    assert_eq!(channel.challenges().len(), 2);
}

#[test]
fn a_response_to_an_earlier_challenge_says_nothing_of_now() {
    let mut channel = Channel::new();
    channel.hear(at(1, 2));
    let first = channel.challenges();
    assert_eq!(channel.hear_response(at(1, 2), first[1].1), Some(Outcome::Moved));
    // The NAT forgets it again, and then a repeated response comes.
    channel.hear(at(1, 3));
    assert_eq!(channel.hear_response(at(1, 2), first[1].1), None);
    channel.pass(1);
    let second = channel.challenges();
    let (to, value) = second[2];
    assert_eq!(channel.hear_response(to, value), Some(Outcome::Moved));
    assert_eq!(channel.present, Some(at(1, 3)));
}

#[test]
fn challenges_are_repeated_ever_more_rarely_and_given_up_with_all_that_was_kept() {
    let mut channel = Channel::new();
    channel.hear(at(2, 2));
    let (start_ns, mut times) = (channel.now_ns, Vec::new());
    let mut given_up = 0;
    while let Some(due_ns) = channel.migration.poll_timeout(|_| true) {
        channel.now_ns = due_ns.max(start_ns);
        given_up +=
            channel.migration.on_timeout(channel.now_ns, |_| true, PACKET_BYTES, INTERVAL_NS);
        while channel.migration.poll(|_| true).is_some() {}
        times.push((channel.now_ns - start_ns) / INTERVAL_NS);
        // It goes on to send.
        if let Some(one) = channel.migration.validation(0) {
            one.on_bytes(at(2, 2), 100);
        }
    }
    assert_eq!((times, given_up), (vec![0, 1, 3, 7, 15, 31], 1));
    assert!(channel.migration.is_settled(0), "no memory is held");
    assert_eq!(channel.present, Some(at(1, 1)));
}

#[test]
fn the_first_packet_may_come_from_another_port_of_the_host_but_not_from_another_host() {
    for (source, is_taken) in [(at(1, 9), true), (at(2, 1), false)] {
        let mut channel = Channel::new();
        channel.migration = Migration::default();
        channel.hear(source);
        assert_eq!(channel.present == Some(source), is_taken);
        assert_eq!(channel.challenges().is_empty(), is_taken);
    }
}

#[test]
fn whatever_comes_little_is_kept_and_no_address_without_proof_gets_much() {
    for seed in 0..300 {
        let mut rng = SplitMix64::new(seed);
        let mut channel = Channel::new();
        let mut values = Vec::new();
        for _ in 0..500 {
            channel.now_ns += rng.below(2 * INTERVAL_NS);
            let source = at(1 + rng.below(3) as u8, 1 + rng.below(5) as u16);
            let response = match rng.below(4) {
                0 if !values.is_empty() => Some(values[rng.below(values.len() as u64) as usize]),
                _ => None,
            };
            let challenge = (rng.below(5) == 0).then(|| rng.next_u64());
            channel.hear_with(source, PathFrames { challenge, response });
            if rng.below(3) == 0 {
                values.extend(channel.challenges().iter().map(|(_, value)| *value));
                values.truncate(20);
            }
            channel.migration.copy_to(0, 30 + rng.below(100) as usize);
            let Some(active) = &channel.migration.active else { continue };
            assert!(active.validations.len() <= 1);
            assert!(
                active.outgoing.len() <= RESPONSES_MAX + CLAIMS_MAX,
                "{}",
                active.outgoing.len()
            );
            for one in &active.validations {
                assert!(one.claims.len() <= CLAIMS_MAX && one.claims.len() <= one.present + 2);
                for claim in one.claims.iter().skip(one.present + 1) {
                    assert!(claim.sent_bytes <= AMPLIFICATION * claim.received_bytes);
                }
                assert!(one.present_address().is_none_or(|it| Some(it) == channel.present));
            }
        }
    }
}
