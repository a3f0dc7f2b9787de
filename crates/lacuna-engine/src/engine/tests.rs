//! An engine that is stepped by hand.

use super::*;
use lacuna_datapath::{BurstBuffers, MemNetwork};
use std::net::{Ipv4Addr, SocketAddr};

const SOCKET_BYTES: usize = 1 << 20;

/// No time passes.
struct Stopped;

impl Time for Stopped {
    fn now_ns(&self) -> u64 {
        0
    }
}

#[test]
fn an_engine_leaves_no_socket_alone_that_it_has_not_emptied() {
    let network = MemNetwork::new();
    let bind = |bytes| network.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), bytes).unwrap();
    let (own, mut sender) = (bind(SOCKET_BYTES), bind(0));
    let to = own.local_addr();
    let mut engine = Engine::new(Stopped, vec![(0, Box::new(own))], Duration::ZERO);
    let mut buffers = BurstBuffers::new();
    const BURSTS: usize = 500;
    let mut send = || {
        let mut burst = buffers.start(to);
        (0..FEW_PACKETS).for_each(|_| burst.push(&[], &[0; 20], &[]));
        sender.send(0, &burst).unwrap();
    };
    (0..BURSTS).for_each(|_| send());
    let receive = |engine: &mut Engine<Stopped>| {
        engine.receive(0, 0, &mut |event| panic!("nothing to tell, not {event:?}"))
    };
    // Nobody's packets, but counted.
    let taken = |engine: &Engine<Stopped>| {
        engine.counters.rejected.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>()
    };
    let mut steps = 0;
    loop {
        assert!(receive(&mut engine));
        let wait_ns = engine.idle.moderation.take(0, SOCKET_BYTES as u64);
        if taken(&engine) == (BURSTS * FEW_PACKETS) as u64 {
            break;
        }
        assert_eq!(wait_ns, None);
        steps += 1;
    }
    assert!(steps > 1);
    // The last step may have read as much as it may. This one does not.
    send();
    assert!(receive(&mut engine));
    assert!(engine.idle.moderation.take(0, SOCKET_BYTES as u64).is_some());
}
