//! The operations one by one, and the rules of go-back-N.

mod common;

use common::{World, all_of, bytes_of, config, is, pattern, read, region, send, slice, write};
use lacuna_link::PipeConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_rc::{
    AckTimeout, Done, Failure, Flags, Operation, PostError, QpState, Received, SendWork, Verb,
};
use lacuna_wire::rc::{Nak, Opcode, Syndrome};
use std::cell::Cell;
use std::rc::Rc;

fn ok(id: u64, operation: Operation, bytes: u64) -> Done {
    Done { id, operation, status: Ok(()), bytes, received: None, is_signaled: true }
}

fn received(id: u64, operation: Operation, bytes: u64, immediate: Option<u32>) -> Done {
    let received = Some(Received { immediate, is_solicited: false });
    Done { received, ..ok(id, operation, bytes) }
}

fn failed(id: u64, operation: Operation, failure: Failure) -> Done {
    Done { status: Err(failure), ..ok(id, operation, 0) }
}

/// Counts the packets that the function picks.
fn count(
    world: &mut World,
    mut picks: impl FnMut(usize, &lacuna_wire::rc::RcHeader) -> bool + 'static,
) -> Rc<Cell<u32>> {
    let found = Rc::new(Cell::new(0));
    let counter = found.clone();
    world.lose(move |from, header| {
        counter.set(counter.get() + u32::from(picks(from, header)));
        false
    });
    found
}

#[test]
fn a_send_fills_the_next_receive() {
    for len in [0, 1, 1023, 1024, 1025, 10_000] {
        let mut world = World::simple(1024);
        let (data, target) = (pattern(len, 1), region(20_000));
        world.ends[1].post_recv(7, all_of(&target));
        world.ends[0].post(send(3, &data));
        world.run_out();
        assert_eq!(world.ends[0].take_done(), [ok(3, Operation::Send, len as u64)]);
        let expected = received(7, Operation::Receive, len as u64, None);
        assert_eq!(world.ends[1].take_done(), [expected]);
        assert_eq!(bytes_of(&slice(&target, 0, len as u64)), data);
        assert_eq!(world.ends[0].qp.stats().retransmitted_packets, 0);
    }
}

#[test]
fn marked_packets_are_notified_at_most_every_50_us() {
    let mut world = World::simple(1024);
    let data = pattern(100_000, 1);
    let remote = world.ends[1].remote(0);
    world.ends[0].post(write(1, &data, remote));
    while !world.run_until(10_000, |world| !world.ends[0].done.is_empty()) {
        world.ends[1].lane.on_marked();
    }
    world.run_out();
    let (sent, came) = (world.ends[1].qp.stats(), world.ends[0].qp.stats());
    assert_eq!(came.notifications, sent.notifications_sent);
    // The transfer takes some 10.8 ms, and it is asked every 10 us.
    assert!((150..=220).contains(&came.notifications), "{}", came.notifications);
    assert!(!world.ends[0].qp.takes_marks(), "a fixed rate does not listen to marks");
}

#[test]
fn an_immediate_and_a_wake_up_come_with_the_last_packet() {
    let mut world = World::simple(256);
    let target = region(2000);
    world.ends[1].post_recv(7, all_of(&target));
    let data = SendBuffer::from(pattern(700, 2));
    let verb = Verb::Send { data, immediate: Some(0xfeed) };
    let flags = Flags { is_solicited: true, ..Flags::default() };
    world.ends[0].post(SendWork { id: 1, verb, flags });
    world.run_out();
    let got = world.ends[1].take_done()[0];
    assert_eq!(got.received, Some(Received { immediate: Some(0xfeed), is_solicited: true }));
}

#[test]
fn a_write_lands_where_it_says_and_takes_a_receive_only_with_an_immediate() {
    let mut world = World::simple(512);
    let data = pattern(3000, 3);
    let remote = world.ends[1].remote(100);
    world.ends[0].post(write(1, &data, remote));
    let verb = Verb::Write {
        data: SendBuffer::from(data[..10].to_vec()),
        remote: world.ends[1].remote(4000),
        immediate: Some(5),
    };
    world.ends[1].post_recv(9, all_of(&region(1)));
    world.ends[0].post(SendWork { id: 2, verb, flags: Flags::default() });
    world.run_out();
    let expected = [ok(1, Operation::Write, 3000), ok(2, Operation::Write, 10)];
    assert_eq!(world.ends[0].take_done(), expected);
    let expected = received(9, Operation::ReceiveWritten, 10, Some(5));
    assert_eq!(world.ends[1].take_done(), [expected]);
    assert_eq!(bytes_of(&slice(&world.ends[1].region, 100, 3000)), data);
    assert_eq!(bytes_of(&slice(&world.ends[1].region, 4000, 10)), data[..10]);
    let validity = world.ends[1].region.validity().unwrap();
    assert!(validity.is_valid(128..3072) && !validity.is_valid(3584..4096));
}

#[test]
fn a_read_brings_what_is_there() {
    for len in [0usize, 1, 4096, 50_000] {
        let mut world = World::simple(1024);
        let data = pattern(len, 4);
        world.ends[1].region.write(1000, &data).unwrap();
        let into = region(len);
        let remote = world.ends[1].remote(1000);
        world.ends[0].post(read(1, all_of(&into), remote));
        world.ends[0].post(write(2, &[1], world.ends[1].remote(0)));
        world.run_out();
        let expected = [ok(1, Operation::Read, len as u64), ok(2, Operation::Write, 1)];
        assert_eq!(world.ends[0].take_done(), expected);
        assert_eq!(bytes_of(&all_of(&into)), data);
    }
}

#[test]
fn atomic_operations_are_done_once_even_if_their_answers_are_lost() {
    let mut world = World::simple(1024);
    let mut lost = 0;
    world.lose(move |_, header| {
        lost += u32::from(is(header, Opcode::AtomicAcknowledge));
        is(header, Opcode::AtomicAcknowledge) && lost % 2 == 1
    });
    world.ends[1].region.write(64, &100u64.to_ne_bytes()).unwrap();
    let (one, other) = (region(8), region(8));
    let remote = world.ends[1].remote(64);
    let add = Verb::FetchAdd { into: all_of(&one), remote, add: 7 };
    let swap = Verb::CompareSwap { into: all_of(&other), remote, compare: 107, swap: 5 };
    for (id, verb) in [(1, add), (2, swap)] {
        world.ends[0].post(SendWork { id, verb, flags: Flags::default() });
    }
    world.run_out();
    let expected = [ok(1, Operation::Atomic, 8), ok(2, Operation::Atomic, 8)];
    assert_eq!(world.ends[0].take_done(), expected);
    assert_eq!(bytes_of(&all_of(&one)), 100u64.to_ne_bytes());
    assert_eq!(bytes_of(&all_of(&other)), 107u64.to_ne_bytes());
    assert_eq!(bytes_of(&slice(&world.ends[1].region, 64, 8)), 5u64.to_ne_bytes());
    assert!(world.ends[0].qp.stats().timeouts > 0);
}

#[test]
fn a_gap_is_refused_once_and_everything_from_it_on_is_sent_again() {
    let mut world = World::simple(1024);
    let naks = Rc::new(Cell::new(0));
    let (seen, mut sent) = (naks.clone(), 0);
    world.lose(move |from, header| {
        let nak = Syndrome::Nak(Nak::PsnSequence);
        let is_nak = header.fields.aeth().is_some_and(|aeth| aeth.syndrome == nak);
        seen.set(seen.get() + u32::from(is_nak));
        sent += u32::from(from == 0);
        from == 0 && sent == 4
    });
    let data = pattern(20 * 1024, 5);
    world.ends[0].post(write(1, &data, world.ends[1].remote(0)));
    world.run_out();
    assert_eq!(world.ends[0].take_done(), [ok(1, Operation::Write, 20 * 1024)]);
    assert_eq!(bytes_of(&slice(&world.ends[1].region, 0, 20 * 1024)), data);
    let stats = world.ends[0].qp.stats();
    assert_eq!((naks.get(), stats.psn_naks, stats.timeouts), (1, 1, 0));
    assert_eq!((stats.packets, stats.retransmitted_packets), (37, 17));
    assert_eq!(world.ends[1].qp.stats().refusals.out_of_sequence, 16);
}

#[test]
fn a_lost_tail_is_sent_again_after_a_timeout_of_the_measured_round_trip() {
    let mut world = World::simple(1024);
    // Until the spread of the round trips is known.
    for _ in 0..20 {
        world.ends[0].post(write(1, &pattern(50_000, 6), world.ends[1].remote(0)));
        world.run_out();
    }
    world.ends[0].take_done();
    let mut lost = 0;
    world.lose(move |from, _| {
        lost += u32::from(from == 0);
        from == 0 && lost == 3
    });
    let started_ns = world.now_ns;
    world.ends[0].post(write(2, &pattern(3000, 7), world.ends[1].remote(0)));
    world.run_out();
    assert_eq!(world.ends[0].take_done().len(), 1);
    let stats = world.ends[0].qp.stats();
    assert_eq!((stats.timeouts, stats.psn_naks), (1, 0));
    assert!((1..=3).contains(&stats.retransmitted_packets), "what is not acknowledged");
    let took_ns = world.now_ns - started_ns;
    assert!(took_ns < 35_000_000, "two round trips of 10 ms and 10 ms more, not {took_ns}");
}

#[test]
fn a_lost_acknowledgement_makes_duplicates_which_are_delivered_once() {
    let mut world = World::simple(1024);
    let mut acks = 0;
    world.lose(move |_, header| {
        acks += u32::from(is(header, Opcode::Acknowledge));
        is(header, Opcode::Acknowledge) && acks <= 2
    });
    let target = region(100);
    for id in 0..3 {
        world.ends[1].post_recv(id, slice(&target, 10 * id, 10));
    }
    world.ends[0].post(send(1, &[1; 10]));
    world.ends[0].post(send(2, &[2; 10]));
    world.run_out();
    assert_eq!(world.ends[0].take_done().len(), 2);
    assert_eq!(world.ends[1].take_done().len(), 2, "the third receive is not taken");
    assert_eq!(world.ends[1].receives.len(), 1);
    assert!(world.ends[1].qp.stats().refusals.duplicates >= 2);
}

#[test]
fn what_is_missing_of_a_read_is_asked_for_again() {
    let mut world = World::simple(1024);
    let mut answers = 0;
    world.lose(move |_, header| {
        let is_answer = is(header, Opcode::ReadResponseMiddle);
        answers += u32::from(is_answer);
        is_answer && answers == 10
    });
    let data = pattern(40 * 1024, 8);
    world.ends[1].region.write(0, &data).unwrap();
    let into = region(data.len());
    world.ends[0].post(read(1, all_of(&into), world.ends[1].remote(0)));
    world.run_out();
    assert_eq!(world.ends[0].take_done(), [ok(1, Operation::Read, 40 * 1024)]);
    assert_eq!(bytes_of(&all_of(&into)), data);
    let stats = world.ends[0].qp.stats();
    assert_eq!((stats.reads_again, stats.timeouts), (1, 0));
    // Everything from the lost answer on came again: 40, and 30 from the eleventh on.
    assert_eq!(world.ends[1].qp.stats().answer_packets, 40 + 30);
}

#[test]
fn a_message_without_a_receive_waits_as_long_as_it_is_told() {
    let mut world = World::simple(1024);
    world.ends[0].post(send(1, &pattern(5000, 9)));
    assert!(world.run_until(1_000_000_000, |world| world.ends[0].qp.stats().rnr_naks == 3));
    let target = region(5000);
    world.ends[1].post_recv(4, all_of(&target));
    world.run_out();
    assert_eq!(world.ends[0].take_done(), [ok(1, Operation::Send, 5000)]);
    assert_eq!(bytes_of(&all_of(&target)), pattern(5000, 9));
    assert_eq!(world.ends[0].qp.stats().timeouts, 0);
}

#[test]
fn a_peer_that_never_has_a_receive_fails_the_queue_pair_after_the_retries() {
    let mut configs = [config(3, 1024), config(5, 1024)];
    configs[0].rnr_retry_count = 2;
    let mut world = World::new(configs, [PipeConfig::default(), PipeConfig::default()], 1);
    world.ends[0].post(send(1, &[1]));
    world.ends[0].post(send(2, &[2]));
    world.run_out();
    let failure = Failure::RnrRetryExceeded { retries: 2 };
    let expected =
        [failed(1, Operation::Send, failure), failed(2, Operation::Send, Failure::Flushed)];
    assert_eq!(world.ends[0].take_done(), expected);
    assert_eq!(world.ends[0].qp.state(), QpState::Error);
}

#[test]
fn a_path_that_went_dark_ends_everything_that_was_posted() {
    let mut configs = [config(3, 1024), config(5, 1024)];
    configs[0].ack_timeout = AckTimeout::Code(14);
    configs[0].retry_count = 3;
    let mut world = World::new(configs, [PipeConfig::default(), PipeConfig::default()], 1);
    world.lose(|_, _| true);
    let (started_ns, target) = (world.now_ns, region(10));
    world.ends[0].post_recv(8, all_of(&target));
    world.ends[0].post(send(1, &[1]));
    world.ends[0].post(read(2, all_of(&target), world.ends[1].remote(0)));
    world.run_out();
    let expected = [
        failed(1, Operation::Send, Failure::RetryExceeded { retries: 3 }),
        failed(2, Operation::Read, Failure::Flushed),
        failed(8, Operation::Receive, Failure::Flushed),
    ];
    assert_eq!(world.ends[0].take_done(), expected);
    // 4.096 us * 2^14, four times.
    assert_eq!(world.now_ns - started_ns, 4 * (4_096 << 14));
    let state = QpState::Error;
    assert_eq!(world.ends[0].qp.post_send(send(3, &[])), Err(PostError::State { state }));
}

#[test]
fn memory_that_may_not_be_accessed_is_refused_and_unchanged() {
    for wrong in 0..4 {
        let mut world = World::simple(1024);
        let mut remote = world.ends[1].remote(0);
        let data = pattern(3000, 10);
        match wrong {
            0 => remote.key ^= 0x10,
            1 => remote.address = (1 << 20) - 2999,
            2 => remote.address = u64::MAX - 5,
            _ => assert!(world.ends[1].keys.revoke(remote.key)),
        }
        world.ends[0].post(write(1, &data, remote));
        world.ends[0].post(send(2, &data));
        let target = region(100);
        world.ends[1].post_recv(6, all_of(&target));
        world.run_out();
        let failure = Failure::Remote(Nak::RemoteAccess);
        let expected =
            [failed(1, Operation::Write, failure), failed(2, Operation::Send, Failure::Flushed)];
        assert_eq!(world.ends[0].take_done(), expected);
        let expected = [failed(6, Operation::Receive, Failure::Flushed)];
        assert_eq!(world.ends[1].take_done(), expected);
        assert!(bytes_of(&all_of(&world.ends[1].region)).iter().all(|byte| *byte == 0));
        assert_eq!(world.ends[1].qp.state(), QpState::Error);
    }
}

#[test]
fn a_read_without_the_right_is_refused() {
    let mut world = World::simple(1024);
    let mut remote = world.ends[1].remote(0);
    remote.key ^= 0x20;
    let into = region(5000);
    world.ends[0].post(read(1, all_of(&into), remote));
    world.run_out();
    let failure = Failure::Remote(Nak::RemoteAccess);
    assert_eq!(world.ends[0].take_done(), [failed(1, Operation::Read, failure)]);
}

#[test]
fn a_message_longer_than_its_receive_fails_both_ends() {
    let mut world = World::simple(256);
    let target = region(1000);
    world.ends[1].post_recv(5, slice(&target, 0, 500));
    world.ends[0].post(send(1, &pattern(600, 11)));
    world.run_out();
    let failure = Failure::Remote(Nak::InvalidRequest);
    assert_eq!(world.ends[0].take_done(), [failed(1, Operation::Send, failure)]);
    let got = world.ends[1].take_done();
    assert_eq!(got[0].status, Err(Failure::Length { capacity_bytes: 500 }));
    assert!(bytes_of(&slice(&target, 500, 500)).iter().all(|byte| *byte == 0));
}

#[test]
fn a_fenced_request_begins_when_the_reads_before_it_are_done() {
    let mut world = World::simple(1024);
    let into = region(10_000);
    world.ends[1].region.write(0, &[9; 10_000]).unwrap();
    let remote = world.ends[1].remote(0);
    world.ends[0].post(read(1, all_of(&into), remote));
    let mut fenced = write(2, &[1; 10_000], remote);
    fenced.flags.is_fenced = true;
    world.ends[0].post(fenced);
    let begun = Rc::new(Cell::new(0));
    let (writes, mut answers) = (begun.clone(), 0);
    world.lose(move |from, header| {
        answers += u32::from(from == 1 && header.opcode.part().ends());
        if from == 0 && is(header, Opcode::WriteFirst) {
            writes.set(answers);
        }
        false
    });
    world.run_out();
    assert_eq!(begun.get(), 1, "the read's last answer had left before the write began");
    assert_eq!(bytes_of(&all_of(&into)), [9; 10_000]);
}

#[test]
fn only_so_many_reads_are_open_at_a_time() {
    let mut configs = [config(3, 1024), config(5, 1024)];
    configs[0].reads_max = 3;
    configs[1].answers_max = 2;
    let pipe = PipeConfig { delay_ns: 5_000_000, ..PipeConfig::default() };
    let mut world = World::new(configs, [pipe.clone(), pipe], 1);
    let most = Rc::new(Cell::new(0));
    let (seen, mut open) = (most.clone(), 0i32);
    world.lose(move |_, header| {
        open += i32::from(is(header, Opcode::ReadRequest));
        open -= i32::from(is(header, Opcode::ReadResponseLast));
        seen.set(seen.get().max(open));
        false
    });
    let into = region(5000);
    for id in 0..10 {
        world.ends[0].post(read(id, all_of(&into), world.ends[1].remote(0)));
    }
    world.run_out();
    assert_eq!(world.ends[0].take_done().len(), 10);
    assert_eq!(most.get(), 2);
}

#[test]
fn a_draining_queue_pair_finishes_what_has_begun_and_begins_nothing() {
    let mut world = World::simple(1024);
    let data = pattern(400 * 1024, 12);
    world.ends[0].post(write(1, &data, world.ends[1].remote(0)));
    world.ends[0].post(write(2, &[1], world.ends[1].remote(0)));
    assert!(world.run_until(1_000_000, |world| world.packets > 10));
    world.ends[0].qp.drain();
    world.run_out();
    assert!(world.ends[0].qp.is_drained());
    assert_eq!(world.ends[0].take_done(), [ok(1, Operation::Write, 400 * 1024)]);
    world.ends[0].qp.resume();
    world.run_out();
    assert_eq!(world.ends[0].take_done(), [ok(2, Operation::Write, 1)]);
}

#[test]
fn unsignaled_requests_complete_without_an_entry() {
    let mut world = World::simple(1024);
    for id in 0..10 {
        let mut work = write(id, &[1; 100], world.ends[1].remote(0));
        work.flags.is_signaled = id == 9;
        world.ends[0].post(work);
    }
    world.run_out();
    assert_eq!(world.ends[0].take_done(), [ok(9, Operation::Write, 100)]);
    assert_eq!(world.ends[0].qp.open_sends(), 0);
}

#[test]
fn acknowledgements_in_a_row_are_one() {
    let mut world = World::simple(1024);
    let acks = count(&mut world, |_, header| is(header, Opcode::Acknowledge));
    for id in 0..64 {
        world.ends[0].post(write(id, &[1; 10], world.ends[1].remote(0)));
    }
    world.run_out();
    assert_eq!(world.ends[0].take_done().len(), 64);
    assert!(acks.get() < 32, "{} acknowledgements", acks.get());
}
