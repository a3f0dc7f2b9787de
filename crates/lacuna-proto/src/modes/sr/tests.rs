//! The sender against acknowledgements made by hand. The two machines together
//! run in the pair harness (`tests/` of this crate).

use super::{Config, Sender};
use crate::modes::{MessageShape, SentRun};
use lacuna_wire::Ack;
use std::ops::Range;

const RTO: u64 = 1000;

fn shape() -> MessageShape {
    MessageShape {
        chunk_packets: 4,
        data_packets: 38,
        total_packets: 38,
        fragments: 0,
        layout: None,
    }
}

fn sender(nack: bool) -> Sender {
    let mut sender = Sender::new(Config { nack }, shape());
    assert_eq!(sender.poll_transmit(), Some(0..38));
    sender
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

#[test]
fn a_sender_is_no_more_than_two_cache_lines() {
    assert!(size_of::<Sender>() <= 128);
}

#[test]
fn a_gap_that_later_packets_passed_is_repaired_at_once() {
    let mut sender = sender(true);
    sender.on_ack(1, &ack(1, &[0b110]));
    sender.on_passed(1, run(0..16), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..8));
    assert_eq!(sender.poll_transmit(), None);
    assert_eq!(sender.counts().retransmitted_chunks, 1);
}

#[test]
fn without_nack_the_gap_waits_for_its_timeout() {
    let mut sender = sender(false);
    sender.on_ack(1, &ack(1, &[0b110]));
    sender.on_passed(1, run(0..16), RTO);
    assert_eq!(sender.poll_transmit(), None);
    assert_eq!(sender.poll_timeout(), Some(10 + RTO));
    assert_eq!(sender.on_timeout(9 + RTO), 0);
    assert_eq!(sender.poll_transmit(), None);
    assert_eq!(sender.on_timeout(10 + RTO), 1, "one run has expired");
    assert_eq!(sender.poll_transmit(), Some(4..8));
}

#[test]
fn a_chunk_acknowledged_before_its_timeout_is_not_repaired() {
    let mut sender = sender(false);
    sender.on_ack(1, &ack(1, &[0b110]));
    sender.on_passed(1, run(0..16), RTO);
    sender.on_ack(2, &ack(4, &[]));
    assert_eq!(sender.on_timeout(10 + RTO), 0);
    assert_eq!(sender.poll_transmit(), None);
}

#[test]
fn a_run_is_not_judged_before_an_acknowledgement_as_new_as_the_report() {
    let mut sender = sender(true);
    sender.on_passed(2, run(0..16), RTO);
    assert_eq!(sender.poll_transmit(), None);
    sender.on_ack(1, &ack(0, &[]));
    assert_eq!(sender.poll_transmit(), None);
    sender.on_ack(2, &ack(3, &[]));
    assert_eq!(sender.poll_transmit(), Some(12..16));
}

#[test]
fn an_undecided_run_expires_on_its_own() {
    let mut sender = sender(true);
    sender.on_passed(2, run(0..4), RTO);
    assert_eq!(sender.poll_timeout(), Some(10 + RTO));
    assert_eq!(sender.on_timeout(10 + RTO), 1);
    assert_eq!(sender.poll_transmit(), Some(0..4));
}

#[test]
fn a_truncated_bitmap_does_not_condemn_what_it_does_not_describe() {
    let mut sender = sender(true);
    let truncated = Ack { truncated: true, ..ack(1, &[0]) };
    sender.on_ack(1, &truncated);
    sender.on_passed(1, run(0..36), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..36), "nine chunks are described");
    sender.on_passed(1, run(36..38), RTO);
    assert_eq!(sender.poll_transmit(), None, "the tenth is not");
}

#[test]
fn a_chunk_is_judged_by_the_run_that_holds_its_last_packet() {
    let mut sender = sender(true);
    sender.on_ack(1, &ack(0, &[]));
    sender.on_passed(1, run(0..6), RTO);
    assert_eq!(sender.poll_transmit(), Some(0..4));
    sender.on_passed(1, run(6..9), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..8));
    sender.on_passed(1, run(36..38), RTO);
    assert_eq!(sender.poll_transmit(), Some(36..38), "the short last chunk");
}

#[test]
fn neighbouring_repairs_go_out_as_one_run() {
    let mut sender = sender(true);
    sender.on_ack(1, &ack(1, &[0b1000]));
    sender.on_passed(1, run(0..38), RTO);
    assert_eq!(sender.poll_transmit(), Some(4..16));
    assert_eq!(sender.poll_transmit(), Some(20..38));
}

#[test]
fn lost_fragments_of_the_immediate_are_sent_again() {
    let shape = MessageShape {
        chunk_packets: 1,
        data_packets: 2,
        total_packets: 8,
        fragments: 8,
        layout: None,
    };
    let mut sender = Sender::new(Config { nack: true }, shape);
    assert_eq!(sender.poll_transmit(), Some(0..8));
    sender.on_ack(1, &Ack { immediate_fragments: 0b1011_0111, ..ack(2, &[]) });
    sender.on_passed(1, run(0..8), RTO);
    assert_eq!(sender.poll_transmit(), Some(3..4));
    assert_eq!(sender.poll_transmit(), Some(6..7));
    assert_eq!(sender.poll_transmit(), None);
}

#[test]
fn an_acknowledgement_beyond_the_message_is_cut() {
    let mut sender = sender(true);
    sender.on_ack(1, &ack(u32::MAX, &[0xff; 4]));
    assert_eq!(sender.acked_chunks(), 10);
}
