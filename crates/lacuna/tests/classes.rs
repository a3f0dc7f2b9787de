//! Classes of messages: what shares a connection, and neither fate nor order.

use lacuna::datapath::impair::{Fraction, Impair, Impairment, Loss};
use lacuna::{
    Class, Classes, Connection, ConnectionConfig, Context, ContextConfig, ControllerKind, Listener,
    PostSendError, Reason, SendError, Wrap,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Ends what would hang; no test asserts a time.
const LONG: Duration = Duration::from_secs(20);

/// A connection, and the contexts that it is over.
fn connected(loss: f64, config: ConnectionConfig) -> (Connection, Connection) {
    let [here, there] = [loss, 0.0].map(|loss| {
        let wrap: Wrap = Arc::new(move |channel, datapath| {
            let loss = Loss::Independent(Fraction::from_f64(loss));
            let impairment = Impairment { loss, ..Impairment::default() };
            Box::new(Impair::new(datapath, impairment, u64::from(channel) + 1))
        });
        let wrap = (loss > 0.0).then_some(wrap);
        Context::new(ContextConfig { bind: LOCALHOST.into(), wrap, ..ContextConfig::default() })
            .unwrap()
    });
    let plain = ConnectionConfig::default();
    let listener = Listener::bind(&there, (LOCALHOST, 0).into(), plain).unwrap();
    let address = listener.local_addr();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(move || listener.accept().unwrap());
        let connected = Connection::connect(&here, address, config).unwrap();
        (connected, accepting.join().unwrap())
    })
}

fn config(mode: &str) -> ConnectionConfig {
    ConnectionConfig {
        mode: mode.parse().unwrap(),
        classes: Classes::ALL,
        deadline: LONG,
        ..ConnectionConfig::default()
    }
}

#[test]
fn critical_messages_are_repaired_beside_bounded_bulk() {
    let (a, b) = connected(0.2, config("bounded"));
    let [here, there] = [&a, &b].map(|end| end.class(Class::Critical).unwrap());
    let mut lossy = 0;
    for number in 0..20u8 {
        let bulk = b.post_recv(vec![0; 200_000]).unwrap();
        let critical = there.post_recv(vec![0; 20_000]).unwrap();
        a.start_send(vec![1; 200_000], None).unwrap();
        let send = here.send(vec![number; 20_000], Some(number.into())).unwrap();
        send.wait().unwrap();
        critical.wait(LONG).unwrap();
        let done = critical.complete();
        assert_eq!((done.immediate, done.reason), (Some(number.into()), Reason::Whole));
        assert!(done.buffer.iter().all(|byte| *byte == number));
        lossy += u32::from(bulk.finish().reason != Reason::Whole);
    }
    assert!(lossy > 10, "{lossy} of 20 have gaps");
}

#[test]
fn droppable_messages_end_in_time_beside_repaired_ones() {
    let (a, b) = connected(0.2, config("auto"));
    let [here, there] = [&a, &b].map(|end| end.class(Class::Droppable).unwrap());
    let mut lossy = 0;
    for _ in 0..20 {
        let droppable = there.post_recv(vec![9; 100_000]).unwrap();
        let usual = b.post_recv(vec![0; 50_000]).unwrap();
        here.send(vec![1; 100_000], None).unwrap();
        a.send(&[2; 50_000]).unwrap();
        assert!(usual.complete().is_complete);
        let done = droppable.finish();
        lossy += u32::from(!done.is_complete);
        assert!(done.packets.gaps().all(|gap| done.buffer[gap].iter().all(|byte| *byte == 0)));
    }
    assert!(lossy > 10, "{lossy} of 20 have gaps");
}

#[test]
fn a_critical_message_does_not_wait_for_the_bulk_before_it() {
    let config = ConnectionConfig {
        controller: Some(ControllerKind::Fixed),
        rate_bits_per_s: Some(50_000_000),
        ..config("auto")
    };
    let (a, b) = connected(0.0, config);
    let bulk = b.post_recv(vec![0; 8 << 20]).unwrap();
    let critical = b.class(Class::Critical).unwrap().post_recv(vec![0; 64]).unwrap();
    let send = a.start_send(vec![1; 8 << 20], None).unwrap();
    while bulk.chunks_done() == 0 {
        std::thread::yield_now();
    }
    a.class(Class::Critical).unwrap().send(vec![2; 64], None).unwrap().wait().unwrap();
    assert!(critical.is_complete() && !send.is_done(), "more than a second of bulk is left");
    send.wait().unwrap();
}

#[test]
fn a_class_waits_for_its_own_receives_and_sends() {
    let (a, b) = connected(0.0, config("bounded"));
    let [here, there] = [&a, &b].map(|end| end.class(Class::Critical).unwrap());
    let other = b.post_recv(vec![0; 10]).unwrap();
    let unposted = here.wait_clear_to_send(Duration::ZERO).unwrap_err();
    assert!(matches!(unposted, SendError::Post(PostSendError::Unposted { .. })), "{unposted}");
    let receive = there.post_recv(vec![0; 1000]).unwrap();
    here.wait_clear_to_send(LONG).unwrap();
    here.send_and_wait(&[7; 1000], Some(3), LONG).unwrap();
    let done = receive.complete();
    assert_eq!((done.immediate, done.buffer), (Some(3), vec![7; 1000]));
    assert_eq!(other.placed_bytes(), 0);
}

#[test]
fn classes_end_with_their_connection() {
    let (a, b) = connected(0.0, config("auto"));
    let receive = a.class(Class::Critical).unwrap().post_recv(vec![0; 10]).unwrap();
    drop(b);
    assert_eq!(receive.finish().reason, Reason::Failed);
}

#[test]
fn a_connection_has_the_classes_that_were_asked_for() {
    for classes in [Classes::NONE, Classes { critical: true, ..Classes::NONE }, Classes::ALL] {
        let (a, b) = connected(0.0, ConnectionConfig { classes, ..config("auto") });
        for end in [&a, &b] {
            assert_eq!(end.class(Class::Critical).is_some(), classes.critical);
            assert_eq!(end.class(Class::Droppable).is_some(), classes.droppable);
            assert_eq!(end.class(Class::Repaired).is_some(), classes.repaired);
            assert!(!end.has_one_sided());
        }
    }
}
