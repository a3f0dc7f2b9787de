//! What several test files of this crate need: receives into a given vector, packets taken apart
//! and made again, control packets of a hostile peer, and a queue pair run dry.

// Each user takes what it needs.
#![allow(dead_code)]

use lacuna_engine::testing::{Pair, Rng, Side, data_packet};
use lacuna_place::placement::Placement;
use lacuna_proto::qp::{PostedReceive, QueuePair};
use lacuna_wire::{
    ControlHeader, ControlWriter, DataHeader, Frame, Packet, Qpn, Seal, parse_checked,
};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A posted receive whose buffer comes back as the same vector.
pub(crate) struct Held {
    pub(crate) posted: PostedReceive,
}

/// Posts `buffer` as it is.
pub(crate) fn post(pair: &mut Pair, side: Side, buffer: Vec<u8>) -> Held {
    let now_ns = pair.now_ns;
    let placement = Placement::from_vec(buffer);
    let posted = pair.end(side).qp().post_receive(now_ns, placement).expect("a slot is free");
    Held { posted }
}

/// Closes a receive, whatever came, and takes its vector back.
pub(crate) fn take(pair: &mut Pair, side: Side, held: Held) -> Vec<u8> {
    let now_ns = pair.now_ns;
    let mut qp = pair.end(side).qp();
    for part in &held.posted.parts {
        qp.table().close(part.number());
    }
    qp.on_receive_closed(now_ns, &held.posted);
    held.posted.into_vec().expect("nobody else holds a closed receive")
}

/// Sends one message from A to B, into a receive that has room for `spare_bytes` more, and returns
/// the time until A knew that it had arrived.
pub(crate) fn one_message(
    pair: &mut Pair,
    len: usize,
    spare_bytes: usize,
    immediate: Option<u32>,
) -> u64 {
    let data = Rng::new(len as u64).bytes(len);
    let posted = pair.post(Side::B, len + spare_bytes);
    // The peer's window is open before the first byte.
    pair.run_for(50 * MS);
    let start_ns = pair.now_ns;
    let id = pair.send(Side::A, data.clone(), immediate);
    let done = pair.run_until(60 * SECOND, |pair| pair.status(Side::A, id).outcome.is_some());
    assert!(done, "the message of {len} bytes did not arrive");
    assert_eq!(pair.status(Side::A, id).outcome, Some(Ok(())));
    let took_ns = pair.now_ns - start_ns;
    assert_eq!(posted.immediate(), immediate);
    assert!(pair.close(Side::B, posted) == data, "wrong bytes of {len}");
    took_ns
}

/// Data packets that were put on the link towards `to`, with their channels.
pub(crate) fn data_towards(pair: &Pair, to: Side) -> Vec<(u8, DataHeader, Vec<u8>)> {
    let recorded = pair.recorded.as_ref().expect("recording is on");
    let to_it = recorded.iter().filter(|(from, ..)| from.peer() == to);
    to_it
        .filter_map(|(_, channel, bytes)| match parse_checked(bytes) {
            Ok(Packet::Data(header, payload)) => Some((*channel, header, payload.to_vec())),
            _ => None,
        })
        .collect()
}

/// Puts a data packet on the link as if the peer had made it, with a right trailer.
pub(crate) fn inject(pair: &mut Pair, to: Side, channel: u8, header: &DataHeader, payload: &[u8]) {
    let header = DataHeader { length: payload.len() as u32, ..*header };
    pair.inject(to, channel, data_packet(&header, payload));
}

/// The body of a control packet with these frames.
pub(crate) fn control_body(sequence: u32, frames: &[Frame<'_>]) -> Vec<u8> {
    let mut writer = ControlWriter::new(9000);
    let at = Qpn::new(1, 0, 0);
    writer.start(
        &ControlHeader { dest: at, psn: 0, qkey: 0, source: at },
        sequence,
        Seal::default(),
    );
    for frame in frames {
        assert!(writer.push(frame), "the frames fit one packet");
    }
    let Ok(Packet::Control(_, body)) = parse_checked(writer.finish()) else { unreachable!() };
    body.to_vec()
}

/// Runs all due actions of a queue pair without delivering its packets. Returns the numbers of
/// control and data packets.
///
/// # Panics
/// If it does not end, or a timer does not move forward.
pub(crate) fn run_dry(qp: &mut QueuePair, now_ns: u64) -> (u32, u32) {
    run_dry_with(qp, now_ns, |_| {})
}

/// The same, with a look at each payload that is sent.
///
/// # Panics
/// As `run_dry`.
pub(crate) fn run_dry_with(
    qp: &mut QueuePair,
    now_ns: u64,
    mut look: impl FnMut(&[u8]),
) -> (u32, u32) {
    let mut writer = ControlWriter::new(1200);
    let (mut control_packets, mut data_packets) = (0, 0);
    // Sending may make a question to the peer due, so it takes more than one turn.
    for _ in 0..4 {
        if qp.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
            qp.on_timeout(now_ns);
        }
        for channel in 0..qp.config().geometry.channels() {
            while qp.poll_control(now_ns, channel, &mut writer).is_some() {
                control_packets += 1;
                assert!(control_packets < 1000, "control packets without end");
            }
            while let Some(run) = qp.poll_transmit(now_ns, channel, 64) {
                data_packets += run.len() as u32;
                assert!(data_packets < 1_000_000, "data packets without end");
                for index in 0..run.len() {
                    let (header, payload) = run.packet(index);
                    assert_eq!(header.length as usize, payload.len());
                    look(payload);
                }
            }
        }
        if qp.poll_timeout().is_none_or(|due_ns| due_ns > now_ns) {
            return (control_packets, data_packets);
        }
    }
    panic!("{:?} stays due at {now_ns}", qp.poll_timeout());
}
