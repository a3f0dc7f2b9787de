//! A process without spare descriptors: the error names this host's limit, and a listener recovers
//! later. One test, since the limit is the process's.
#![cfg(target_os = "linux")]

use lacuna::{ConnectError, Connection, ConnectionConfig, Context, ContextConfig, Listener};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::thread;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Leaves `count` spare descriptors. The limit applies to descriptor numbers.
fn spare(count: usize) {
    let limit = getrlimit(Resource::Nofile);
    let set = |current| setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    // Listing descriptors takes one.
    set(limit.maximum.unwrap_or(1 << 10)).unwrap();
    let open: BTreeSet<u64> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let is_open = |number: &u64| std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok();
    let open: BTreeSet<u64> = open.into_iter().filter(is_open).collect();
    set((0..).filter(|number| !open.contains(number)).nth(count).unwrap()).unwrap();
}

fn is_limit(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Context(_)) && error.to_string().contains("ulimit -n")
}

#[test]
fn what_this_process_lacks_is_no_fault_of_the_peer() {
    let config = ContextConfig { bind: LOCALHOST.into(), ..ContextConfig::default() };
    let context = Context::new(config.clone()).unwrap();
    let listener = Listener::bind(&context, (LOCALHOST, 0).into(), ConnectionConfig::default());
    let listener = listener.unwrap();
    let address = listener.local_addr();
    for count in 0..8 {
        spare(count);
        match Context::new(config.clone()) {
            Ok(_) => assert!(count > 3, "sockets, an event queue and wake-ups with {count}"),
            Err(error) => assert!(error.to_string().contains("ulimit -n"), "{error}"),
        }
    }
    for peer in [address.to_string(), format!("localhost:{}", address.port())] {
        spare(0);
        let error = Connection::connect(&context, &*peer, ConnectionConfig::default()).unwrap_err();
        assert!(is_limit(&error), "{peer}: {error}");
    }
    spare(1);
    let waiting = TcpStream::connect(address).unwrap();
    for _ in 0..3 {
        let error = listener.accept().unwrap_err();
        assert!(matches!(error, ConnectError::Accept { .. }), "{error}");
        assert!(error.is_retryable() && error.to_string().contains("ulimit -n"), "{error}");
    }
    spare(20);
    let connecting = thread::spawn(move || {
        Connection::connect(&context, address, ConnectionConfig::default()).unwrap()
    });
    let accepted = listener.accept().unwrap();
    let connected = connecting.join().unwrap();
    let receive = accepted.post_recv(vec![0; 7]).unwrap();
    connected.send(b"at last").unwrap();
    assert_eq!(receive.complete().buffer, b"at last");
    drop(waiting);
}
