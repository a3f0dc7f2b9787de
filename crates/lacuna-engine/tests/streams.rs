//! Streaming sends: any chunk in any order, again if wanted; errors with their numbers; the end,
//! on a chunk's boundary or not; and what the receiver sees of a raw message closed early.

mod common;

use common::{MS, SECOND, post, take};
use lacuna_engine::testing::{Link, Pair, PairConfig, Rng, Side};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::GeometryConfig;
use lacuna_proto::qp::{Changes, Event, PostSendError, ReceiveFailure, SendId};
use lacuna_wire::{CancelReason, ImmediateSplit};

const CHUNK: usize = 4 * 1024;

fn pair(mode: &str) -> Pair {
    let config = PairConfig { mode: mode.parse().unwrap(), ..PairConfig::default() };
    Pair::new(config, Link::default())
}

fn push(
    pair: &mut Pair,
    id: SendId,
    offset: usize,
    data: &[u8],
    ends: bool,
) -> Result<(), PostSendError> {
    pair.a.qp().push_stream(id, offset as u64, SendBuffer::from(data.to_vec()), ends)
}

#[test]
fn chunks_go_in_any_order_and_again() {
    for mode in ["raw", "sr"] {
        let mut pair = pair(mode);
        let data = Rng::new(1).bytes(10 * CHUNK - 100);
        let held = post(&mut pair, Side::B, vec![0; 20 * CHUNK]);
        pair.run_for(50 * MS);
        let id = pair.a.qp().open_stream(Some(0xABCD_1234)).unwrap();
        for chunk in [7usize, 2, 3, 2, 0, 5, 4, 9, 1, 1, 6, 8] {
            let start = chunk * CHUNK;
            let end = (start + CHUNK).min(data.len());
            push(&mut pair, id, start, &data[start..end], end == data.len()).unwrap();
            pair.run_for(20 * MS);
            assert!(held.posted.parts[0].has_chunk(chunk as u32));
        }
        assert!(held.posted.is_complete());
        assert_eq!(held.posted.immediate(), Some(0xABCD_1234));
        assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())), "the peer has it all");
        // A scheme that repeats chunks without knowing that makes no error.
        let sent = pair.a.qp().stats().send.packets;
        push(&mut pair, id, 0, &data[..CHUNK], false).unwrap();
        pair.a.qp().end_stream(id).unwrap();
        pair.run_for(20 * MS);
        assert_eq!(pair.a.qp().stats().send.packets, sent);
        assert_eq!(take(&mut pair, Side::B, held)[..data.len()], data);
    }
}

#[test]
fn a_stream_that_nothing_is_put_into_ends_when_it_is_ended() {
    let mut pair = pair("sr");
    let held = post(&mut pair, Side::B, vec![0; CHUNK]);
    pair.run_for(50 * MS);
    let id = pair.a.qp().open_stream(None).unwrap();
    pair.run_for(SECOND);
    assert_eq!(pair.status(Side::A, id).outcome, None);
    while pair.a.qp().poll_event().is_some() {}
    pair.a.qp().end_stream(id).unwrap();
    assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())));
    let event = pair.a.qp().poll_event();
    assert_eq!(
        event,
        Some(Event::Changed(Changes::SEND_ENDED)),
        "whoever waits for the stream must look"
    );
    take(&mut pair, Side::B, held);
}

#[test]
fn what_does_not_fit_is_refused_with_its_numbers() {
    let mut pair = pair("raw");
    let held = post(&mut pair, Side::B, vec![0; 3 * CHUNK + 10]);
    pair.run_for(50 * MS);
    let id = pair.a.qp().open_stream(None).unwrap();
    let chunk_bytes = CHUNK as u64;
    for (offset, len, ends) in [(1024, 1024, false), (1, 10, true), (0, 1000, false)] {
        assert_eq!(
            push(&mut pair, id, offset, &vec![0; len], ends),
            Err(PostSendError::Misaligned {
                offset_bytes: offset as u64,
                len_bytes: len as u64,
                chunk_bytes
            })
        );
    }
    let capacity_bytes = 3 * chunk_bytes + 10;
    for (offset, len) in [(0, 4 * CHUNK), (4 * CHUNK, 0), (3 * CHUNK, 11), (100 * CHUNK, CHUNK)] {
        let len_bytes = (offset + len) as u64;
        assert_eq!(
            push(&mut pair, id, offset, &vec![0; len], true),
            Err(PostSendError::TooLong { len_bytes, capacity_bytes })
        );
    }
    let far = u64::MAX / chunk_bytes * chunk_bytes;
    let pushed = pair.a.qp().push_stream(id, far, vec![0; CHUNK].into(), true);
    assert!(matches!(pushed, Err(PostSendError::TooLong { .. })), "{pushed:?}");
    push(&mut pair, id, 3 * CHUNK, &[1; 10], true).unwrap();
    pair.a.qp().end_stream(id).unwrap();
    assert_eq!(push(&mut pair, id, 0, &[0; CHUNK], false), Err(PostSendError::NoSuchSend));
    assert_eq!(pair.a.qp().end_stream(id), Err(PostSendError::NoSuchSend));
    take(&mut pair, Side::B, held);
}

#[test]
fn a_stream_needs_a_posted_receive() {
    let pair = pair("sr");
    let unposted = PostSendError::Unposted { number: 0, posted: 0 };
    assert_eq!(pair.a.qp().open_stream(None), Err(unposted));
    assert!(unposted.is_retryable());
}

#[test]
fn the_end_may_come_later_than_the_data_it_ends() {
    // Three of a chunk's four packets, then the same again with the message's end: only then is the
    // chunk complete.
    let mut pair = pair("raw");
    let held = post(&mut pair, Side::B, vec![0; 4 * CHUNK]);
    pair.run_for(50 * MS);
    let data = Rng::new(2).bytes(CHUNK + 3 * 1024);
    let id = pair.a.qp().open_stream(None).unwrap();
    push(&mut pair, id, 0, &data, false).unwrap();
    pair.run_for(20 * MS);
    assert_eq!(held.posted.parts[0].chunks_done(), 1);
    push(&mut pair, id, CHUNK, &data[CHUNK..], true).unwrap();
    pair.run_for(20 * MS);
    assert!(held.posted.is_complete());
    assert_eq!(held.posted.length_bytes(), Some(data.len() as u64));
    assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())));
    assert_eq!(take(&mut pair, Side::B, held)[..data.len()], data);
}

#[test]
fn an_empty_push_ends_a_message_on_a_chunk_boundary() {
    for chunks in [0usize, 1, 2, 4] {
        let geometry = GeometryConfig {
            max_message_bytes: 4 * CHUNK as u64,
            // 8 + 4: the slot has as many packets as the immediate can tell apart.
            split: ImmediateSplit::new(12, 16, 4).unwrap(),
            ..PairConfig::default().geometry
        };
        let mut pair = Pair::new(PairConfig { geometry, ..PairConfig::default() }, Link::default());
        let held = post(&mut pair, Side::B, vec![0; 4 * CHUNK]);
        pair.run_for(50 * MS);
        let id = pair.a.qp().open_stream(None).unwrap();
        push(&mut pair, id, 0, &vec![6; chunks * CHUNK], chunks == 0).unwrap();
        if chunks > 0 {
            push(&mut pair, id, chunks * CHUNK, &[], true).unwrap();
        }
        pair.run_for(50 * MS);
        assert!(held.posted.is_complete(), "{chunks}");
        assert_eq!(held.posted.length_bytes(), Some((chunks * CHUNK) as u64));
        assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())));
        take(&mut pair, Side::B, held);
    }
}

#[test]
fn an_empty_push_behind_the_last_packet_that_can_be_numbered_is_no_packet() {
    let geometry = GeometryConfig {
        split: ImmediateSplit::new(16, 8, 8).unwrap(),
        ..PairConfig::default().geometry
    };
    let mut pair = Pair::new(PairConfig { geometry, ..PairConfig::default() }, Link::default());
    let len = 256 * 1024;
    let held = post(&mut pair, Side::B, vec![0; len]);
    pair.run_for(50 * MS);
    let id = pair.a.qp().open_stream(None).unwrap();
    push(&mut pair, id, 0, &vec![6; len], false).unwrap();
    push(&mut pair, id, len, &[], true).unwrap();
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome == Some(Ok(()))));
    assert_eq!(pair.b.qp().stats().channels[0].discarded.iter().sum::<u64>(), 0);
    assert_eq!(take(&mut pair, Side::B, held), vec![6; len]);
}

#[test]
fn an_immediate_comes_whole_with_a_short_stream() {
    for len in [0usize, 1, 1024, 5000] {
        let mut pair = pair("raw");
        let held = post(&mut pair, Side::B, vec![0; 2 * CHUNK]);
        pair.run_for(50 * MS);
        let id = pair.a.qp().open_stream(Some(0x1234_5678)).unwrap();
        push(&mut pair, id, 0, &vec![1; len], true).unwrap();
        pair.run_for(20 * MS);
        assert_eq!(held.posted.immediate(), Some(0x1234_5678), "{len}");
        assert!(held.posted.is_complete(), "{len}");
        assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())));
        take(&mut pair, Side::B, held);
    }
}

#[test]
fn a_stream_is_opened_behind_sends_whose_turn_has_not_come() {
    let mut pair = pair("sr");
    let held = [0; 4].map(|_| post(&mut pair, Side::B, vec![0; 4 * CHUNK]));
    pair.run_for(50 * MS);
    let mut ids = [0; 3].map(|_| pair.send(Side::A, vec![1; 4 * CHUNK], None)).to_vec();
    let id = pair.a.qp().open_stream(None).unwrap();
    push(&mut pair, id, 0, &[1; 4 * CHUNK], true).unwrap();
    pair.a.qp().end_stream(id).unwrap();
    ids.push(id);
    for (id, held) in ids.into_iter().zip(held) {
        assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome == Some(Ok(()))));
        assert_eq!(take(&mut pair, Side::B, held), [1; 4 * CHUNK]);
    }
}

#[test]
fn a_cancelled_stream_takes_no_more_and_tells_the_receiver() {
    let mut pair = pair("sr");
    let held = post(&mut pair, Side::B, vec![0; 4 * CHUNK]);
    pair.run_for(50 * MS);
    let id = pair.a.qp().open_stream(None).unwrap();
    push(&mut pair, id, 0, &[1; CHUNK], false).unwrap();
    let now_ns = pair.now_ns;
    pair.a.qp().cancel_send(now_ns, id);
    assert_eq!(push(&mut pair, id, 0, &[1; CHUNK], false), Err(PostSendError::NoSuchSend));
    assert_eq!(pair.a.qp().end_stream(id), Err(PostSendError::NoSuchSend));
    pair.run_for(50 * MS);
    assert_eq!(pair.a.data_packets, 0);
    let failure = ReceiveFailure::Cancelled(CancelReason::Cancelled);
    assert_eq!(pair.b.qp().receive_failure(&held.posted), Some(failure));
    take(&mut pair, Side::B, held);
    // The slot is free again at both ends: the next message goes through.
    let held = post(&mut pair, Side::B, vec![0; 10]);
    let id = pair.send(Side::A, vec![2; 10], None);
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).outcome == Some(Ok(()))));
    assert_eq!(take(&mut pair, Side::B, held), [2; 10]);
}

#[test]
fn a_stream_whose_receive_was_closed_takes_no_more() {
    let mut pair = pair("sr");
    let held = post(&mut pair, Side::B, vec![0; 4 * CHUNK]);
    pair.run_for(50 * MS);
    let id = pair.a.qp().open_stream(None).unwrap();
    push(&mut pair, id, 0, &[1; CHUNK], false).unwrap();
    pair.run_for(50 * MS);
    let bytes = take(&mut pair, Side::B, held);
    assert_eq!(bytes[..CHUNK], [1; CHUNK]);
    pair.run_for(50 * MS);
    assert!(pair.status(Side::A, id).finished);
    assert_eq!(push(&mut pair, id, 0, &[1; CHUNK], false), Err(PostSendError::NoSuchSend));
}

#[test]
fn a_raw_message_closed_early_has_what_came() {
    let mut pair = Pair::new(
        PairConfig { mode: "raw".parse().unwrap(), ..PairConfig::default() },
        Link { loss_ppm: 200_000, ..Link::default() },
    );
    let data = Rng::new(3).bytes(100 * CHUNK);
    let held = post(&mut pair, Side::B, vec![0xEE; data.len()]);
    pair.run_for(50 * MS);
    let id = pair.send(Side::A, data.clone(), None);
    pair.run_for(100 * MS);
    assert!(pair.status(Side::A, id).injected);
    assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())), "nothing more is done for it");
    let part = held.posted.parts[0].clone();
    assert!((10..90).contains(&part.chunks_done()), "{}", part.chunks_done());
    let has: Vec<bool> = (0..100).map(|chunk| part.has_chunk(chunk)).collect();
    drop(part);
    let bytes = take(&mut pair, Side::B, held);
    for (chunk, has) in has.into_iter().enumerate().filter(|(_, has)| *has) {
        let range = chunk * CHUNK..(chunk + 1) * CHUNK;
        assert_eq!(bytes[range.clone()], data[range], "{chunk} {has}");
    }
    // The sender learns that the receive is finished and has no more questions.
    pair.link.loss_ppm = 0;
    assert!(pair.run_until(SECOND, |pair| pair.status(Side::A, id).finished));
}
