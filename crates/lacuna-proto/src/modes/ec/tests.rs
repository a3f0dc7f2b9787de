//! The sender against acknowledgements made by hand. Both ends together run in
//! the pair harness (`tests/erasure.rs`).

use super::{Config, Layout, Sender};
use crate::modes::{MessageShape, Run};
use lacuna_code::Code;
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
    Ack { message: 0, cumulative, immediate_fragments: 0, truncated: false, chunks }
}

fn run(packets: Range<u32>) -> Run {
    Run { packets, sent_ns: 10 }
}

/// The parity of a submessage.
fn parity(submessage: u32) -> Run {
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
    assert_eq!(sender.fallbacks(), 0);
}

#[test]
fn a_submessage_falls_back_when_all_its_parity_was_passed() {
    let mut sender = sender();
    sender.on_ack(1, &ack(1, &[0b1_0100]));
    sender.on_passed(1, parity(0), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..12), "chunks 1 and 2 of four; 3 is there");
    assert_eq!(sender.poll_transmit(), None, "nothing of other submessages");
    assert_eq!((sender.fallbacks(), sender.retransmitted_chunks()), (1, 2));
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
    assert_eq!(sender.fallbacks(), 1, "it falls back once");
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
