//! Receives that end in time, over real sockets: bounded modes with losses, deadlines in other modes,
//! what is zeroed and what is kept, and what the handle and the statistics say.

use lacuna::datapath::impair::{Fraction, Impair, Impairment, Loss};
use lacuna::{
    ConnectionConfig, Context, ContextConfig, Missing, Progress, QueuePair, Reason, RecvError,
    RecvOptions, Wrap,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Ends what would hang; no test asserts a time.
const LONG: Duration = Duration::from_secs(20);

fn config(mode: &str) -> ConnectionConfig {
    ConnectionConfig {
        mode: mode.parse().unwrap(),
        mtu_bytes: Some(1024),
        chunk_bytes: 4096,
        ..ConnectionConfig::default()
    }
}

/// A queue pair whose packets are lost with this probability.
fn queue_pair(config: &ConnectionConfig, loss: f64, progress: Progress) -> QueuePair {
    let wrap: Wrap = Arc::new(move |channel, datapath| {
        let loss = Loss::Independent(Fraction::from_f64(loss));
        let impairment = Impairment { loss, ..Impairment::default() };
        Box::new(Impair::new(datapath, impairment, u64::from(channel) + 1))
    });
    let context = Context::new(ContextConfig {
        bind: LOCALHOST.into(),
        progress,
        wrap: (loss > 0.0).then_some(wrap),
        ..ContextConfig::default()
    });
    context.unwrap().queue_pair(config).unwrap()
}

fn connected(mode: &str, loss: f64) -> (QueuePair, QueuePair) {
    let config = config(mode);
    let [a, b] =
        [loss, 0.0].map(|loss| queue_pair(&config, loss, ContextConfig::default().progress));
    a.connect(&b.info(LOCALHOST)).unwrap();
    b.connect(&a.info(LOCALHOST)).unwrap();
    (a, b)
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i >> 8) as u8 ^ i as u8 ^ seed | 1).collect()
}

#[test]
fn a_bounded_message_ends_with_exactly_what_came_and_zeros() {
    for mode in ["bounded", "bounded:1", "bounded+ec:mds:8:2"] {
        let (a, b) = connected(mode, 0.05);
        let mut gaps = 0;
        for round in 0..20 {
            let message = bytes(100_000, round);
            let receive = b.post_recv(vec![0xAA; 100_000]).unwrap();
            a.send(message.clone(), None).unwrap();
            let reason = receive.wait_over(LONG).expect("it ends without a deadline");
            let done = receive.complete();
            assert_eq!(done.reason, reason);
            assert!(matches!(reason, Reason::Whole | Reason::End | Reason::Accounted), "{reason}");
            assert_eq!(done.is_complete, reason == Reason::Whole);
            let missing: usize = done.packets.gaps().map(|gap| gap.len()).sum();
            assert_eq!(done.bytes as usize + missing, 100_000, "{mode}, {reason}");
            let mut expected = message;
            done.packets.gaps().for_each(|gap| expected[gap].fill(0));
            assert!(done.buffer == expected, "{mode}, {reason}");
            gaps += missing;
            let took =
                done.last_arrival().zip(done.first_arrival()).map(|(last, first)| last - first);
            assert!(took < Some(LONG), "{took:?}");
        }
        let ended = b.stats().ends;
        assert_eq!(ended.receives.iter().sum::<u64>(), 20);
        assert_eq!(ended.missing_bytes as usize, gaps);
        assert!(gaps > 0 || mode.contains("ec"), "the path has lost nothing");
    }
}

#[test]
fn missing_bytes_can_be_kept() {
    let (a, b) = connected("bounded", 0.3);
    let options = RecvOptions { missing: Some(Missing::Keep), ..RecvOptions::within(LONG) };
    let receive = b.post_recv_with(vec![0xAA; 100_000], options).unwrap();
    let message = bytes(100_000, 7);
    a.send(message.clone(), None).unwrap();
    let done = receive.finish();
    let mut expected = message;
    done.packets.gaps().for_each(|gap| expected[gap].fill(0xAA));
    assert!(!done.is_complete && done.buffer == expected);
}

#[test]
fn a_receive_has_a_deadline_in_every_mode_and_says_so() {
    for mode in ["auto", "raw", "sr", "ec", "bounded"] {
        let (_a, b) = connected(mode, 0.0);
        let options = RecvOptions::within(Duration::from_millis(20));
        let receive = b.post_recv_with(vec![0xAA; 5000], options).unwrap();
        let error = receive.wait(LONG).unwrap_err();
        let over = RecvError::Over { reason: Reason::Deadline, bytes: 0 };
        assert_eq!(error, over, "{mode}");
        assert!(error.to_string().contains("deadline"), "{error}");
        let done = receive.complete();
        assert_eq!(done.reason, Reason::Deadline);
        // Only a bounded mode zeroes unless it is asked to.
        let kept = if mode == "bounded" { 0 } else { 0xAA };
        assert!(done.buffer.iter().all(|byte| *byte == kept), "{mode}");
    }
}

#[test]
fn a_deadline_needs_no_thread() {
    let config = config("bounded");
    let b = queue_pair(&config, 0.0, Progress::Manual);
    let a = queue_pair(&config, 0.0, Progress::Manual);
    a.connect(&b.info(LOCALHOST)).unwrap();
    b.connect(&a.info(LOCALHOST)).unwrap();
    let options = RecvOptions::within(Duration::from_millis(10));
    let receive = b.post_recv_with(vec![1; 5000], options).unwrap();
    assert_eq!(receive.finish().reason, Reason::Deadline);
}

#[test]
fn a_receive_that_the_application_closes_was_cancelled() {
    let (_a, b) = connected("bounded", 0.0);
    let done = b.post_recv(vec![5; 3000]).unwrap().complete();
    assert_eq!((done.reason, done.bytes, done.packets.count()), (Reason::Cancelled, 0, 0));
    assert_eq!(done.buffer, [0; 3000]);
    assert_eq!((done.first_arrival(), done.last_arrival()), (None, None));
}

#[test]
fn receives_of_a_queue_pair_that_ends_are_over() {
    let (a, b) = connected("bounded", 0.0);
    let receive = b.post_recv(vec![5; 3000]).unwrap();
    drop(a);
    // Without a control connection only silence would tell; this end closes its own.
    drop(b);
    assert_eq!(receive.complete().reason, Reason::Cancelled);
}

#[test]
fn an_immediate_travels_with_a_bounded_message() {
    let (a, b) = connected("bounded", 0.0);
    let receive = b.post_recv(vec![0; 10]).unwrap();
    a.send(vec![1; 10], Some(77)).unwrap();
    let done = receive.finish();
    assert_eq!((done.reason, done.immediate), (Reason::Whole, Some(77)));
}
