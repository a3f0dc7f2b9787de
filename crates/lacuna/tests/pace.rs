//! Sending rates: the chosen controller, the initial rate, and the memory of a path.

use lacuna::datapath::{Impair, Impairment};
use lacuna::{
    ConnectError, Connection, ConnectionConfig, Context, ContextConfig, ControllerKind, Listener,
    QueuePairError,
};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A context behind an emulated path of 200 Mbit/s and 5 ms.
fn far(path_memory: Option<&Path>) -> Context {
    let impairment = Impairment {
        delay_ns: 5_000_000,
        rate_bits_per_s: Some(200_000_000),
        ..Impairment::default()
    };
    Context::new(ContextConfig {
        bind: Ipv4Addr::LOCALHOST.into(),
        wrap: Some(Arc::new(move |channel, inner| {
            Box::new(Impair::new(inner, impairment.clone(), u64::from(channel)))
        })),
        path_memory: path_memory.map(Path::to_owned),
        ..ContextConfig::default()
    })
    .expect("sockets on loopback")
}

fn connect(context: &Context, config: ConnectionConfig) -> (Connection, Connection) {
    let listening = far(None);
    let listener = Listener::bind(&listening, "127.0.0.1:0".parse().unwrap(), config).unwrap();
    let address = listener.local_addr();
    let accepting = thread::spawn(move || listener.accept().expect("the peer connects"));
    let connected = Connection::connect(context, address, config).expect("it accepts");
    (connected, accepting.join().unwrap())
}

/// Sends until the controller knows the path.
fn fill(from: &Connection, to: &Connection) {
    let receive = to.post_recv(vec![0; 8 << 20]).unwrap();
    from.send(&vec![1; 8 << 20]).unwrap();
    assert!(receive.complete().is_complete);
}

#[test]
fn what_was_found_of_a_path_is_begun_at_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("paths");
    let context = far(Some(&file));
    let (a, b) = connect(&context, ConnectionConfig::default());
    assert_eq!((a.chosen().controller, a.chosen().rate_bits_per_s), ("bbr", None));
    fill(&a, &b);

    // A live queue pair is asked for its record; while it is idle, the rate that it found is
    // nobody's share.
    let (second, _other) = connect(&context, ConnectionConfig::default());
    let rate = second.chosen().rate_bits_per_s.expect("the path is known");
    assert!((20_000_000..400_000_000).contains(&rate), "{rate}");

    // The next process reads the file once the last queue pair has gone.
    drop((a, b, second));
    let (third, _other) = connect(&far(Some(&file)), ConnectionConfig::default());
    assert!(third.chosen().rate_bits_per_s.is_some());
    let (stranger, _other) = connect(&far(None), ConnectionConfig::default());
    assert_eq!(stranger.chosen().rate_bits_per_s, None);
}

#[test]
fn what_one_of_several_found_is_not_taken_for_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("paths");
    let context = far(Some(&file));
    let (long, there) = connect(&context, ConnectionConfig::default());
    fill(&long, &there);
    let (idle, _other) = connect(&context, ConnectionConfig::default());
    let whole = idle.chosen().rate_bits_per_s.expect("the path is known");
    drop(idle);

    // One begins at half the rate while another sends, and ends last.
    let receive = there.post_recv(vec![0; 8 << 20]).unwrap();
    let write = long.start_send(vec![1; 8 << 20], None).unwrap();
    while receive.chunks_done() == 0 {
        thread::yield_now();
    }
    let (short, other) = connect(&context, ConnectionConfig::default());
    let small = other.post_recv(vec![0; 64 << 10]).unwrap();
    short.send(&vec![2; 64 << 10]).unwrap();
    assert!(small.complete().is_complete);
    write.wait().unwrap();
    drop((long, there, receive, write));
    drop((short, other));

    // Checks the record itself: a slow host's round trips may halve the rate that is begun at.
    let text = std::fs::read_to_string(&file).unwrap();
    let record = text.lines().find(|line| line.starts_with("127.0.0.1 ")).expect("it was saved");
    let rate: u64 = record.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(rate >= whole / 10 * 8, "{rate} of {whole}");
}

#[test]
fn the_controller_is_the_one_asked_for() {
    let context = far(None);
    for (controller, rate_bits_per_s, name) in [
        (None, None, "bbr"),
        (None, Some(100_000_000), "fixed"),
        (Some(ControllerKind::Fixed), Some(100_000_000), "fixed"),
        (Some(ControllerKind::Bbr), Some(100_000_000), "bbr"),
        (Some(ControllerKind::Cubic), None, "cubic"),
    ] {
        let config =
            ConnectionConfig { controller, rate_bits_per_s, ..ConnectionConfig::default() };
        let (a, b) = connect(&context, config);
        assert_eq!(a.chosen().controller, name);
        let receive = b.post_recv(vec![0; 1 << 20]).unwrap();
        a.send(&vec![1; 1 << 20]).unwrap();
        assert!(receive.complete().is_complete, "{name}");
    }
}

#[test]
fn a_rate_that_is_not_given_or_nothing_is_refused_before_anything_is_sent() {
    let plain = ConnectionConfig::default();
    let zero_rate = ConnectionConfig { rate_bits_per_s: Some(0), ..plain };
    for (config, text) in [
        (ConnectionConfig { controller: Some(ControllerKind::Fixed), ..plain }, "needs a rate"),
        (zero_rate, "the rate is 0; leave it out"),
        (ConnectionConfig { controller: Some(ControllerKind::Bbr), ..zero_rate }, "the rate is 0"),
        (ConnectionConfig { silence: Duration::ZERO, ..plain }, "the silence allowed"),
    ] {
        let context = far(None);
        // Refused before anything is sent to the peer.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = Connection::connect(&context, silent.local_addr().unwrap(), config);
        let listening = Listener::bind(&context, "127.0.0.1:0".parse().unwrap(), config);
        let queue_pair = context.queue_pair(&config);
        let queue_pair = queue_pair.map(drop).map_err(ConnectError::QueuePair);
        for result in [connected.map(drop), listening.map(drop), queue_pair] {
            let error = result.expect_err(text);
            let is_usage = matches!(
                error,
                ConnectError::QueuePair(QueuePairError::NoRate | QueuePairError::Zero { .. })
            );
            assert!(is_usage && error.to_string().contains(text), "{error}");
        }
    }
}
