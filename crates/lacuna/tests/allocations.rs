//! Heap allocations per short message: few, and none with an alignment that the allocator does not
//! have at hand. With many queue pairs each allocation is a cache miss.

use lacuna::{ConnectionConfig, Context, ContextConfig, DatapathKind, Mode, Progress, SendBuffer};
use lacuna_datapath::MemNetwork;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Counts the allocations of each thread, and those that are aligned beyond 16 bytes.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a
// thread-local without a destructor, which neither allocates nor can be gone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let [all, aligned] = ALLOCATIONS.get();
        ALLOCATIONS.set([all + 1, aligned + u64::from(layout.align() > 16)]);
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

/// Allocations for `messages` messages, sent and received one by one on this thread.
fn allocations(mode: Mode, message_bytes: usize, messages: u64) -> [u64; 2] {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let network = MemNetwork::new();
    let [here, there] = [(); 2].map(|()| {
        let config = ContextConfig {
            bind: local.into(),
            datapath: DatapathKind::Mem(network.clone()),
            progress: Progress::Manual,
            ..ContextConfig::default()
        };
        Context::new(config).unwrap()
    });
    let config = ConnectionConfig { mode, mtu_bytes: Some(4096), ..ConnectionConfig::default() };
    let (sender, receiver) =
        (here.queue_pair(&config).unwrap(), there.queue_pair(&config).unwrap());
    sender.connect(&receiver.info(local)).unwrap();
    receiver.connect(&sender.info(local)).unwrap();
    let message = SendBuffer::new(Arc::new(vec![7; message_bytes]));
    let mut buffer = vec![0; message_bytes];
    let mut warm = [0; 2];
    for number in 0..2 * messages {
        if number == messages {
            warm = ALLOCATIONS.get();
        }
        let posted = receiver.post_recv(buffer).unwrap();
        let sent = sender.send(message.clone(), None).unwrap();
        while !(posted.is_complete() && sent.is_done()) {
            here.progress();
            there.progress();
        }
        buffer = posted.complete().buffer;
    }
    let after = ALLOCATIONS.get();
    [after[0] - warm[0], after[1] - warm[1]]
}

#[test]
fn a_short_message_takes_few_pieces_of_the_heap() {
    const MESSAGES: u64 = 1000;
    // The record of the receive, that of the send, the application's bitmap; and in a reliable mode
    // the message's state.
    for (mode, message_bytes, pieces) in
        [(Mode::Raw, 64, 3), (Mode::SR, 64, 4), (Mode::SR, 64 << 10, 4)]
    {
        let [all, aligned] = allocations(mode, message_bytes, MESSAGES);
        // Timers may add a few.
        let most = pieces * MESSAGES + MESSAGES / 2;
        assert!(all <= most, "{mode}, {message_bytes} bytes: {all} in {MESSAGES} messages");
        assert_eq!(aligned, 0, "{mode}, {message_bytes} bytes");
    }
}
