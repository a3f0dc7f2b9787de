//! A warm datapath allocates nothing: not in a send, a receive or a wait.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lacuna_datapath::{
    BurstBuffers, Datapath, Impair, Impairment, MemNetwork, Offload, Placer, ReceivedBatch, Udp,
    UdpConfig, Waiter,
};

/// Counts the allocations of each thread, so that tests may run side by side.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn allocations() -> u64 {
    ALLOCATIONS.get()
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a
// thread-local without a destructor, which neither allocates nor can be gone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about the layout are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Count(usize);

impl Placer for Count {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        self.0 += batch.packets().filter(|packet| packet.len() > 100).count();
    }
}

/// Sends bursts from one end to the other, waits for them and receives them.
fn run(a: &mut dyn Datapath, b: &mut dyn Datapath) {
    const WARM_UP: u64 = 20;
    const ROUNDS: u64 = 200;
    const PACKETS: usize = 100;
    let (mut waiter, waker) = Waiter::new().unwrap();
    let mut buffers = BurstBuffers::new();
    let payload = vec![1; 1400];
    let to = b.local_addr();
    let mut warm = 0;
    for round in 0..WARM_UP + ROUNDS {
        if round == WARM_UP {
            warm = allocations();
        }
        let mut burst = buffers.start(to);
        for i in 0..PACKETS {
            burst.push_with(52, &payload[i % 3..], 8, |header, _| header[0] = i as u8);
        }
        while !burst.is_empty() {
            let taken = a.send(round, &burst).unwrap();
            burst.advance(taken);
        }
        a.receive(round + 1, &mut Count(0)).unwrap();
        let mut count = Count(0);
        while count.0 < PACKETS {
            waiter.wait([&*a, &*b], Some(Duration::from_secs(1))).unwrap();
            b.receive(round + 1, &mut count).unwrap();
        }
        waker.wake();
        waiter.wait([&*a, &*b], None).unwrap();
    }
    assert_eq!(allocations() - warm, 0);
}

fn udp(offload: Offload) -> Udp {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Udp::bind(UdpConfig { offload, ..UdpConfig::new(local) }).unwrap()
}

#[test]
fn udp_allocates_nothing() {
    run(&mut udp(Offload::Auto), &mut udp(Offload::Auto));
}

#[test]
fn plain_udp_allocates_nothing() {
    run(&mut udp(Offload::Plain), &mut udp(Offload::Plain));
}

#[test]
fn the_in_process_network_allocates_nothing() {
    let network = MemNetwork::new();
    let [mut a, mut b] =
        [1, 2].map(|port| network.bind(([10, 0, 0, 1], port).into(), 1 << 20).unwrap());
    run(&mut a, &mut b);
}

#[test]
fn an_impaired_link_allocates_nothing() {
    let impairment = Impairment { delay_ns: 1, ..Impairment::default() };
    run(&mut Impair::new(udp(Offload::Auto), impairment, 1), &mut udp(Offload::Auto));
}
