//! Repeated questions: each gets a whole answer, and the questions of one packet count as one.

mod common;

use common::{Held, MS, control_body, post};
use lacuna_engine::testing::{Link, Pair, PairConfig, Side};
use lacuna_wire::{ControlBody, ControlWriter, Flush, FlushMark, Frame, Packet, parse};

/// B has `count` open messages, each without its last packets.
fn with_open_messages(count: usize) -> (Pair, Vec<Held>) {
    let mut pair = Pair::new(PairConfig::default(), Link { delay_ns: 20 * MS, ..Link::default() });
    let len = 20_000;
    let held: Vec<_> = (0..count).map(|_| post(&mut pair, Side::B, vec![0; len])).collect();
    pair.run_for(100 * MS);
    pair.drop_data = Some(Box::new(|packet| packet >= 3));
    for _ in 0..count {
        pair.send(Side::A, vec![7; len], None);
    }
    pair.run_for(60 * MS);
    assert!(held.iter().all(|held| !held.posted.is_complete()));
    (pair, held)
}

fn flush(psn: u32) -> Frame<'static> {
    let mut flush = Flush::new(1);
    flush.push(FlushMark { channel: 0, next_psn: psn });
    Frame::Flush(flush)
}

/// The messages that each of B's packets acknowledges.
fn answers(pair: &mut Pair) -> Vec<Vec<u64>> {
    let mut writer = ControlWriter::new(1400);
    let mut all = Vec::new();
    let now_ns = pair.now_ns;
    while let Some(packet) = pair.b.qp().poll_control(now_ns, 0, &mut writer) {
        let Ok(Packet::Control(_, body)) = parse(packet) else { unreachable!() };
        let body = ControlBody::parse(body).unwrap();
        let acks = body.frames().filter_map(|frame| match frame.unwrap() {
            Frame::Ack(ack) => Some(ack.message),
            _ => None,
        });
        all.push(acks.collect());
    }
    all
}

/// Asks B with packets of this many questions each; returns the answers.
fn ask(pair: &mut Pair, first_sequence: u32, packets: &[usize]) -> Vec<Vec<u64>> {
    for (sequence, questions) in (first_sequence..).zip(packets) {
        let body = control_body(sequence, &vec![flush(0); *questions]);
        pair.b.qp().on_control(pair.now_ns, 0, &body, 100).unwrap();
    }
    answers(pair)
}

#[test]
fn every_open_message_is_answered_as_often_as_was_asked() {
    let (mut pair, _held) = with_open_messages(150);
    answers(&mut pair);
    let once = ask(&mut pair, 1_000_000, &[1]);
    assert!(once.len() > 1, "a packet is too short for {} messages", once.concat().len());
    let eight = ask(&mut pair, 1_000_001, &[1; 8]);
    assert_eq!(eight, vec![once; 8].concat());
}

#[test]
fn one_packet_is_answered_by_one_report_whatever_it_asks() {
    let (mut pair, _held) = with_open_messages(40);
    answers(&mut pair);
    let once = ask(&mut pair, 1_000_000, &[1]);
    assert_eq!(ask(&mut pair, 1_000_001, &[8]), once);
}
