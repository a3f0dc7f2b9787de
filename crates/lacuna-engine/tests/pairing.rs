//! In bounded modes the n-th message belongs to the n-th receive, however late either end is.

mod common;

use common::{MS, SECOND};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::GeometryConfig;
use lacuna_place::reason::Reason;
use lacuna_proto::qp::{PostedReceive, RecvOptions, SendFailure, SendId, SendRequest};

fn pair(mode: &str, loss_ppm: u32) -> Pair {
    let default = PairConfig::default();
    let config = PairConfig {
        geometry: GeometryConfig { max_message_bytes: 128 << 10, ..default.geometry },
        mode: mode.parse().unwrap(),
        controller: ControllerConfig::Fixed { rate_bits_per_s: 1_000_000_000 },
        ..default
    };
    let link = Link {
        delay_ns: 10 * MS,
        rate_bits_per_s: Some(1_000_000_000),
        loss_ppm,
        ..Link::default()
    };
    Pair::new(config, link)
}

/// A message that says its number in each byte.
fn send(pair: &mut Pair, number: u8, bytes: usize, within_ns: Option<u64>) -> SendId {
    let deadline_ns = within_ns.map(|ns| pair.now_ns + ns);
    let data = SendBuffer::from(vec![number; bytes]);
    pair.a.qp().queue_send(SendRequest { data, immediate: None, deadline_ns }).unwrap()
}

fn post(pair: &mut Pair, bytes: usize, within_ns: Option<u64>) -> PostedReceive {
    let deadline_ns = within_ns.map(|ns| pair.now_ns + ns);
    pair.post_with(Side::B, bytes, RecvOptions { deadline_ns, ..RecvOptions::default() })
}

fn outcome(pair: &mut Pair, id: SendId) -> Result<(), SendFailure> {
    let has_ended = |pair: &mut Pair| pair.status(Side::A, id).outcome.is_some();
    assert!(pair.run_until(60 * SECOND, has_ended), "the send never ended");
    pair.status(Side::A, id).outcome.unwrap()
}

fn reason(pair: &mut Pair, posted: &PostedReceive) -> Reason {
    assert!(pair.run_until(60 * SECOND, |_| posted.reason().is_some()), "it never ended");
    posted.reason().unwrap()
}

/// That the receive got nothing but its own message.
fn check(pair: &mut Pair, posted: PostedReceive, number: u8) {
    let bytes = pair.close(Side::B, posted);
    assert!(bytes.iter().all(|byte| *byte == number || *byte == 0), "of another message");
}

#[test]
fn a_send_that_ends_before_it_has_begun_leaves_its_receive_empty_and_shifts_none() {
    let mut pair = pair("bounded", 0);
    let ids = [
        send(&mut pair, 1, 5000, Some(5 * MS)),
        send(&mut pair, 2, 5000, None),
        send(&mut pair, 3, 5000, Some(5 * MS)),
    ];
    assert!(matches!(outcome(&mut pair, ids[0]), Err(SendFailure::Deadline { .. })));
    // Of several slots, so that their numbers say nothing of their order.
    let slot_bytes = pair.b.qp().config().geometry.max_message_bytes() as usize;
    let posted: Vec<_> =
        [2 * slot_bytes, 5000, 5000].map(|bytes| post(&mut pair, bytes, None)).into();
    assert_eq!(outcome(&mut pair, ids[1]), Ok(()));
    assert!(matches!(outcome(&mut pair, ids[2]), Err(SendFailure::Deadline { .. })));
    // The sender's word ends those of which nothing comes, the last one as well.
    let ended: Vec<_> = posted.iter().map(|posted| reason(&mut pair, posted)).collect();
    assert_eq!(ended[1], Reason::Whole);
    assert!([ended[0], ended[2]].iter().all(|reason| *reason == Reason::Accounted), "{ended:?}");
    assert!(posted[0].placed_bytes() == 0 && posted[2].placed_bytes() == 0);
    for (posted, number) in posted.into_iter().zip(1..) {
        check(&mut pair, posted, number);
    }
}

#[test]
fn a_receive_that_is_over_ends_the_send_that_it_was_for() {
    let mut pair = pair("bounded", 0);
    let early: Vec<_> = (0..3).map(|_| post(&mut pair, 5000, Some(30 * MS))).collect();
    for posted in early {
        assert_eq!(reason(&mut pair, &posted), Reason::Deadline);
        check(&mut pair, posted, 0);
    }
    let posted = post(&mut pair, 5000, None);
    // Until then the sender does not know, and sends what nobody takes.
    pair.run_for(50 * MS);
    for number in 1..4 {
        let id = send(&mut pair, number, 5000, None);
        assert_eq!(outcome(&mut pair, id), Err(SendFailure::ClosedByPeer));
    }
    let id = send(&mut pair, 4, 5000, None);
    assert_eq!(outcome(&mut pair, id), Ok(()));
    assert_eq!(reason(&mut pair, &posted), Reason::Whole);
    check(&mut pair, posted, 4);
}

#[test]
fn in_modes_that_repair_a_late_message_takes_the_next_receive() {
    let mut pair = pair("sr", 0);
    let early = post(&mut pair, 5000, Some(30 * MS));
    assert_eq!(reason(&mut pair, &early), Reason::Deadline);
    check(&mut pair, early, 0);
    pair.run_for(50 * MS);
    let late = send(&mut pair, 1, 5000, None);
    let posted = post(&mut pair, 5000, None);
    assert_eq!(outcome(&mut pair, late), Ok(()));
    check(&mut pair, posted, 1);
}

#[test]
fn whatever_is_late_or_lost_no_receive_gets_the_message_of_another() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let mut pair = pair(if seed % 2 == 0 { "bounded" } else { "bounded:1" }, 30_000);
        let slot_bytes = pair.b.qp().config().geometry.max_message_bytes();
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        let mut whole = 0;
        while sends.len() < 120 || receives.len() < 120 {
            let within = |rng: &mut Rng| match rng.below(4) {
                0 => None,
                _ => Some(rng.below(60) * MS),
            };
            match rng.below(4) {
                0 if sends.len() < 120 => {
                    let within_ns = within(&mut rng).or(Some(SECOND));
                    let bytes = 1 + rng.below(100_000) as usize;
                    let number = sends.len() as u8 + 1;
                    sends.push(send(&mut pair, number, bytes, within_ns));
                }
                1 if receives.len() < 120 => {
                    let within_ns = within(&mut rng).or(Some(SECOND));
                    let more = if rng.below(5) == 0 { slot_bytes } else { 0 };
                    let bytes = 100_000 + more as usize;
                    receives.push(Some(post(&mut pair, bytes, within_ns)));
                }
                2 if !sends.is_empty() && rng.below(4) == 0 => {
                    let id = sends[rng.below(sends.len() as u64) as usize];
                    let now_ns = pair.now_ns;
                    pair.a.qp().cancel_send(now_ns, id);
                }
                _ => pair.run_for(rng.below(20) * MS),
            }
            for (slot, number) in receives.iter_mut().zip(1..) {
                if let Some(posted) = slot.take_if(|posted| posted.reason().is_some()) {
                    whole += u32::from(posted.reason() == Some(Reason::Whole));
                    check(&mut pair, posted, number);
                }
            }
        }
        pair.run_for(3 * SECOND);
        for (posted, number) in receives.into_iter().zip(1..) {
            if let Some(posted) = posted {
                assert!(posted.reason().is_some(), "seed {seed}: receive {number} goes on");
                check(&mut pair, posted, number);
            }
        }
        for id in sends {
            assert!(pair.status(Side::A, id).outcome.is_some(), "seed {seed}");
        }
        assert!(whole > 0, "seed {seed}");
    }
}
