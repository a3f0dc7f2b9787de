//! The sender against acknowledgements made by hand. Both ends together run in
//! the pair harness (`tests/erasure.rs`).

use super::{Config, Sender};
use crate::modes::{MessageShape, SentRun};
use lacuna_code::Code;
use lacuna_place::parity::Layout;
use lacuna_wire::Ack;
use std::ops::Range;

const RTO: u64 = 1000;
const BASE: u32 = 1000;

/// Ten chunks of four packets, the last of two: two submessages of four, a tail
/// of two, each with two parity chunks, the tail with one.
fn shape() -> MessageShape {
    let layout = Layout::new(Code::mds(4, 2).unwrap(), 4, BASE);
    MessageShape { chunk_packets: 4, data_packets: 38, total_packets: 38, fragments: 0, layout }
}

fn sender_of(shape: MessageShape) -> (Sender, Vec<Range<u32>>) {
    let mut sender = Sender::new(Config { code: Code::mds(4, 2).unwrap() }, shape);
    let sent = std::iter::from_fn(|| sender.poll_transmit()).collect();
    (sender, sent)
}

fn sender() -> Sender {
    sender_of(shape()).0
}

fn ack(cumulative: u32, chunks: &[u8]) -> Ack<'_> {
    Ack {
        message: 0,
        cumulative,
        immediate_fragments: 0,
        truncated: false,
        skipped_bytes: 0,
        chunks,
    }
}

fn run(packets: Range<u32>) -> SentRun {
    SentRun { packets, sent_ns: 10 }
}

/// The parity of a submessage.
fn parity(submessage: u32) -> SentRun {
    let start = BASE + submessage * 8;
    run(start..start + if submessage == 2 { 4 } else { 8 })
}

#[test]
fn parity_follows_its_submessage() {
    let (_, sent) = sender_of(shape());
    assert_eq!(sent, [0..16, 1000..1008, 16..32, 1008..1016, 32..38, 1016..1020]);
}

#[test]
fn a_loss_that_parity_may_repair_is_not_sent_again() {
    let mut sender = sender();
    sender.on_ack(1, &ack(1, &[0b110]));
    sender.on_passed(1, run(0..16), RTO);
    sender.on_expired(run(0..16));
    sender.on_passed(1, run(1000..1006), RTO);
    assert_eq!(sender.poll_transmit(), None, "more parity is on its way");
    assert_eq!(sender.counts().fallbacks, 0);
}

#[test]
fn a_submessage_falls_back_when_all_its_parity_was_passed() {
    let mut sender = sender();
    sender.on_ack(1, &ack(1, &[0b1_0100]));
    sender.on_passed(1, parity(0), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..12), "chunks 1 and 2 of four; 3 is there");
    assert_eq!(sender.poll_transmit(), None, "nothing of other submessages");
    assert_eq!((sender.counts().fallbacks, sender.counts().retransmitted_chunks), (1, 2));
}

#[test]
fn what_was_sent_again_is_judged_as_in_selective_repeat() {
    let mut sender = sender();
    sender.on_ack(1, &ack(1, &[0b100]));
    sender.on_passed(1, parity(0), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..12));
    sender.on_ack(2, &ack(1, &[0b110]));
    sender.on_passed(2, run(4..12), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..8));
    sender.on_expired(run(4..8));
    assert_eq!(sender.poll_transmit(), Some(4..8));
    assert_eq!(sender.counts().fallbacks, 1, "it falls back once");
}

#[test]
fn a_submessage_is_not_judged_before_an_acknowledgement_as_new_as_the_report() {
    let mut sender = sender();
    sender.on_passed(2, parity(0), RTO);
    sender.on_ack(1, &ack(0, &[]));
    assert_eq!(sender.poll_transmit(), None);
    sender.on_ack(2, &ack(3, &[]));
    assert_eq!(sender.poll_transmit(), Some(12..16));
}

#[test]
fn parity_that_nothing_is_heard_of_falls_back_at_its_timeout() {
    let mut sender = sender();
    sender.on_expired(parity(2));
    assert_eq!(sender.poll_transmit(), Some(32..38), "the short last chunk");
    sender.on_passed(2, parity(1), RTO);
    assert_eq!(sender.poll_timeout(), Some(10 + RTO));
    assert_eq!(sender.on_timeout(10 + RTO), 1);
    assert_eq!(sender.poll_transmit(), Some(16..32));
}

#[test]
fn a_truncated_bitmap_does_not_condemn_what_it_does_not_describe() {
    let mut sender = sender();
    sender.on_ack(1, &Ack { truncated: true, ..ack(0, &[0b1111]) });
    sender.on_passed(1, parity(1), RTO);
    assert_eq!(sender.poll_transmit(), Some(16..32), "eight chunks are described");
    sender.on_passed(1, parity(2), RTO);
    assert_eq!(sender.poll_transmit(), None, "the tail is not");
}

#[test]
fn a_fragment_that_was_lost_with_repaired_data_is_sent_again() {
    let (mut sender, _) = sender_of(MessageShape { fragments: 8, ..shape() });
    let all = |fragments| Ack { immediate_fragments: fragments, ..ack(10, &[]) };
    sender.on_ack(1, &all(0b1111_0111));
    sender.on_passed(1, parity(0), RTO);
    sender.on_passed(1, parity(1), RTO);
    assert_eq!(sender.poll_transmit(), None, "it may come with later packets");
    sender.on_passed(1, parity(2), RTO);
    assert_eq!(sender.poll_transmit(), Some(3..4));
    assert_eq!(sender.poll_transmit(), None);
    sender.on_passed(1, run(3..4), RTO);
    assert_eq!(sender.poll_transmit(), Some(3..4), "it was lost again");
    sender.on_ack(2, &all(0xff));
    sender.on_passed(2, run(3..4), RTO);
    assert_eq!(sender.poll_transmit(), None);
}

#[test]
fn lost_empty_packets_of_a_short_message_are_sent_again() {
    let shape = MessageShape {
        chunk_packets: 1,
        data_packets: 2,
        total_packets: 8,
        fragments: 8,
        layout: Layout::new(Code::mds(4, 2).unwrap(), 1, BASE),
    };
    let (mut sender, sent) = sender_of(shape);
    assert_eq!(sent, [0..8, 1000..1001]);
    sender.on_ack(1, &Ack { immediate_fragments: 0b1011_0111, ..ack(2, &[]) });
    sender.on_passed(1, run(0..8), RTO);
    assert_eq!(sender.poll_transmit(), Some(3..4));
    assert_eq!(sender.poll_transmit(), Some(6..7));
    sender.on_passed(1, run(1000..1001), RTO);
    assert_eq!(sender.poll_transmit(), None, "they are on their way");
}

// ---- a sender that chooses parity for the tail ----

/// All data are out and judged up to `judged`; then the tail gets this parity.
fn chosen(judged: u32, parity_of: impl Fn(u32) -> u8, copies: u8) -> (Sender, Vec<Range<u32>>) {
    let mut sender = Sender::deferred(Config { code: Code::mds(4, 2).unwrap() }, shape());
    assert_eq!(sender.tail(), None, "the data are not out");
    assert_eq!(sender.poll_transmit(), Some(0..38));
    if judged > 0 {
        sender.on_ack(1, &ack(judged.div_ceil(4), &[]));
        sender.on_passed(1, run(0..judged), RTO);
    }
    sender.choose(parity_of, copies);
    let sent = std::iter::from_fn(|| sender.poll_transmit()).collect();
    (sender, sent)
}

#[test]
fn without_parity_a_deferred_sender_is_selective_repeat() {
    let (mut sender, sent) = chosen(0, |_| 0, 1);
    assert_eq!(sent, []);
    sender.on_ack(1, &ack(1, &[0b1010]));
    sender.on_passed(1, run(0..16), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..8));
    assert_eq!(sender.poll_transmit(), Some(12..16));
    assert_eq!((sender.counts().fallbacks, sender.counts().retransmitted_chunks), (0, 2));
    assert_eq!(sender.tail(), None, "it is chosen once");
}

#[test]
fn a_loss_before_the_choice_is_sent_again_at_once() {
    let mut sender = Sender::deferred(Config { code: Code::mds(4, 2).unwrap() }, shape());
    assert_eq!(sender.poll_transmit(), Some(0..38));
    sender.on_ack(1, &ack(1, &[0b10]));
    sender.on_passed(1, run(0..16), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..8));
    assert_eq!(sender.poll_transmit(), Some(12..16));
    assert_eq!(sender.tail(), Some(16..38), "the rest is not judged");
}

#[test]
fn only_submessages_of_which_nothing_was_judged_get_parity() {
    assert_eq!(chosen(0, |_| 2, 1).1, [1000..1008, 1008..1016, 1016..1020]);
    assert_eq!(chosen(1, |_| 2, 1).1, [1008..1016, 1016..1020]);
    assert_eq!(chosen(16, |_| 1, 1).1, [1008..1012, 1016..1020]);
    assert_eq!(chosen(17, |_| 9, 1).1, vec![1016..1020; 1], "no more than there is");
    assert_eq!(chosen(38, |_| 2, 1).1, []);
}

#[test]
fn each_submessage_may_have_its_own_parity() {
    let (mut sender, sent) = chosen(0, |submessage| [1, 0, 1][submessage as usize], 1);
    assert_eq!(sent, [1000..1004, 1016..1020]);
    sender.on_ack(1, &ack(1, &[0b1010]));
    sender.on_passed(1, run(0..16), RTO);
    assert_eq!(sender.poll_transmit(), None, "parity for it is on its way");
    sender.on_passed(1, run(16..38), RTO);
    assert_eq!(sender.poll_transmit(), Some(20..32), "the second has none");
    sender.on_passed(1, run(1000..1004), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..8), "its last parity that was sent was passed");
    assert_eq!(sender.poll_transmit(), Some(12..16));
    assert_eq!(sender.counts().fallbacks, 1);
}

#[test]
fn of_the_copies_of_a_repair_the_last_decides() {
    for copies in 2..=4 {
        let (mut sender, _) = chosen(0, |_| 0, copies);
        sender.on_ack(1, &ack(1, &[0b1111_1010, 1]));
        sender.on_passed(1, run(0..38), RTO);
        let sent: Vec<_> = std::iter::from_fn(|| sender.poll_transmit()).collect();
        let rounds = (0..copies).flat_map(|_| [4..8, 12..16]);
        assert!(sent.iter().cloned().eq(rounds), "one behind the other: {sent:?}");
        for _ in 1..copies {
            sender.on_passed(1, run(4..8), RTO);
            assert_eq!(sender.poll_transmit(), None, "another copy is on its way");
        }
        sender.on_passed(1, run(4..8), RTO);
        let sent: Vec<_> = std::iter::from_fn(|| sender.poll_transmit()).collect();
        assert_eq!(sent, vec![4..8; usize::from(copies)]);
    }
}

#[test]
fn a_repair_on_its_way_when_the_data_are_out_goes_out_again_behind_the_parity() {
    for copies in 1..=3 {
        let mut sender = Sender::deferred(Config { code: Code::mds(4, 2).unwrap() }, shape());
        assert_eq!(sender.poll_transmit(), Some(0..38));
        sender.on_ack(1, &ack(1, &[0b1010]));
        sender.on_passed(1, run(0..16), RTO);
        assert_eq!(sender.poll_transmit(), Some(4..8));
        assert_eq!(sender.poll_transmit(), Some(12..16));
        // The first repair has arrived and was judged; of the other nothing is known.
        sender.on_ack(2, &ack(3, &[]));
        sender.on_passed(2, run(4..8), RTO);
        sender.choose(|_| 1, copies);
        let sent: Vec<_> = std::iter::from_fn(|| sender.poll_transmit()).collect();
        let mut expected = vec![1008..1012, 1016..1020];
        expected.extend((1..copies).map(|_| 12..16));
        assert_eq!(sent, expected);
        sender.on_ack(3, &ack(3, &[]));
        for _ in 1..copies {
            sender.on_passed(3, run(12..16), RTO);
            assert_eq!(sender.poll_transmit(), None, "another copy is on its way");
        }
        sender.on_passed(3, run(12..16), RTO);
        assert_eq!(sender.poll_transmit(), Some(12..16));
    }
}

#[test]
fn fragments_that_a_repaired_tail_lost_are_sent_again() {
    let shape = MessageShape { fragments: 8, ..shape() };
    let mut sender = Sender::deferred(Config { code: Code::mds(4, 2).unwrap() }, shape);
    assert_eq!(sender.poll_transmit(), Some(0..38));
    sender.choose(|_| 1, 1);
    let parity: Vec<_> = std::iter::from_fn(|| sender.poll_transmit()).collect();
    sender.on_ack(1, &Ack { immediate_fragments: 0b1111_0111, ..ack(10, &[]) });
    for packets in parity {
        assert_eq!(sender.poll_transmit(), None);
        sender.on_passed(1, run(packets), RTO);
    }
    assert_eq!(sender.poll_transmit(), Some(3..4));
}

#[test]
fn what_trailing_parity_cannot_repair_is_not_left_waiting_for_it() {
    // One packet per chunk: one parity repairs one of four.
    let layout = Layout::new(Code::mds(4, 2).unwrap(), 1, BASE);
    let shape =
        MessageShape { chunk_packets: 1, data_packets: 8, total_packets: 8, fragments: 0, layout };
    let mut sender = Sender::deferred(Config { code: Code::mds(4, 2).unwrap() }, shape);
    assert_eq!(sender.poll_transmit(), Some(0..8));
    sender.choose(|_| 1, 1);
    while sender.poll_transmit().is_some() {}
    sender.on_ack(1, &ack(1, &[0b11_0010]));
    sender.on_passed(1, run(0..3), RTO);
    assert_eq!(sender.poll_transmit(), None, "its data were not all passed");
    sender.on_passed(2, run(3..8), RTO);
    assert_eq!(sender.poll_transmit(), None, "no word as new as the report");
    sender.on_ack(2, &ack(1, &[0b11_1010]));
    assert_eq!(sender.poll_transmit(), Some(1..2), "two of the first four are missing");
    assert_eq!(sender.poll_transmit(), Some(3..4));
    assert_eq!(sender.poll_transmit(), None, "the second misses one, for which there is parity");
    sender.on_passed(2, run(BASE..BASE + 1), RTO);
    assert_eq!(sender.poll_transmit(), None, "it has fallen back already");
    assert_eq!(sender.counts().fallbacks, 1);
}
