//! Tests that are particular to the in-process network; the conformance suite tests what every
//! datapath does.

use super::*;
use crate::BurstBuffers;

#[derive(Default)]
struct Batches(Vec<(Vec<usize>, SocketAddr)>);

impl Placer for Batches {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        self.0.push((batch.packets().map(<[u8]>::len).collect(), batch.source));
    }
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn send(from: &mut Mem, to: SocketAddr, sizes: &[usize]) {
    let payload = vec![7; PACKET_BYTES_MAX];
    let mut buffers = BurstBuffers::new();
    let mut burst = buffers.start(to);
    for size in sizes {
        burst.push(&[], &payload[..*size], &[]);
    }
    assert_eq!(from.send(0, &burst).unwrap(), sizes.len());
}

fn received(mem: &mut Mem) -> Vec<Vec<usize>> {
    let mut batches = Batches::default();
    while mem.receive(0, &mut batches).unwrap() > 0 {}
    batches.0.into_iter().map(|(sizes, _)| sizes).collect()
}

#[test]
fn runs_of_one_size_arrive_as_one_batch() {
    let network = MemNetwork::new();
    let mut a = network.bind(addr(1), 1 << 20).unwrap();
    let mut b = network.bind(addr(2), 1 << 20).unwrap();
    send(&mut a, addr(2), &[10, 10, 10, 4, 10, 10, 12, 0, 0, 3]);
    assert_eq!(
        received(&mut b),
        [vec![10, 10, 10, 4], vec![10, 10], vec![12], vec![0], vec![0], vec![3]]
    );
    send(&mut a, addr(2), &[1; 130]);
    assert_eq!(received(&mut b).iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 2]);
    send(&mut a, addr(2), &[30_000; 3]);
    assert_eq!(received(&mut b).iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn two_sends_are_two_batches() {
    let network = MemNetwork::new();
    let mut a = network.bind(addr(1), 1 << 20).unwrap();
    let mut b = network.bind(addr(2), 1 << 20).unwrap();
    send(&mut a, addr(2), &[10]);
    send(&mut a, addr(2), &[10]);
    assert_eq!(received(&mut b), [vec![10], vec![10]]);
}

#[test]
fn a_full_queue_drops_and_counts() {
    let network = MemNetwork::new();
    let mut a = network.bind(addr(1), 1 << 20).unwrap();
    let mut b = network.bind(addr(2), 100).unwrap();
    send(&mut a, addr(2), &[40, 40, 40, 10, 40]);
    assert_eq!(b.receive_drops(), 2);
    assert_eq!(received(&mut b), [vec![40, 40, 10]]);
    send(&mut a, addr(2), &[100]);
    assert_eq!(received(&mut b), [vec![100]]);
    send(&mut a, addr(2), &[0; 101]);
    assert_eq!(b.receive_drops(), 3);
    assert_eq!(received(&mut b).len(), 100);
}

#[test]
fn packets_to_nobody_vanish() {
    let network = MemNetwork::new();
    let mut a = network.bind(addr(1), 1 << 20).unwrap();
    let b = network.bind(addr(2), 1 << 20).unwrap();
    drop(b);
    send(&mut a, addr(2), &[40]);
    assert_eq!(received(&mut network.bind(addr(2), 100).unwrap()), Vec::<Vec<usize>>::new());
}

#[test]
fn an_address_is_taken_until_its_endpoint_is_gone() {
    let network = MemNetwork::new();
    let a = network.bind(addr(1), 100).unwrap();
    let error = network.bind(addr(1), 100).unwrap_err();
    assert_eq!(error.to_string(), "cannot bind to 10.0.0.1:1: the address is in use");
    drop(a);
    network.bind(addr(1), 100).unwrap();
}

#[test]
fn port_zero_asks_for_any_port() {
    let network = MemNetwork::new();
    let a = network.bind(addr(0), 100).unwrap();
    let b = network.bind(addr(0), 100).unwrap();
    assert_ne!(a.local_addr(), b.local_addr());
    assert_ne!(a.local_addr().port(), 0);
}

#[test]
fn a_placer_may_send_to_the_endpoint_it_places_for() {
    struct Echo<'a>(&'a mut Mem, SocketAddr);
    impl Placer for Echo<'_> {
        fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
            send(self.0, self.1, &vec![batch.segment_bytes; batch.len()]);
        }
    }
    let network = MemNetwork::new();
    let mut a = network.bind(addr(1), 1 << 20).unwrap();
    let mut b = network.bind(addr(2), 1 << 20).unwrap();
    send(&mut a, addr(2), &[5]);
    assert_eq!(b.receive(0, &mut Echo(&mut a, addr(2))).unwrap(), 1);
    assert_eq!(received(&mut b), [vec![5]]);
}
