//! Heap allocations per short message: few, and none with an alignment that the allocator does not
//! have at hand. With many queue pairs each allocation is a cache miss.

use lacuna::{
    Completed, ConnectionConfig, Context, ContextConfig, DatapathKind, Mode, Progress, QueuePair,
    RecvPlace, Region, RegionOptions, SendBuffer, Stride,
};
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

/// Two ends on this thread.
fn ends(mode: Mode) -> ([Context; 2], [QueuePair; 2]) {
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
    ([here, there], [sender, receiver])
}

/// Allocations for `messages` messages, sent and received one by one.
fn allocations<P: Into<RecvPlace>>(
    mode: Mode,
    message: &SendBuffer,
    mut place: P,
    back: impl Fn(Completed) -> P,
    messages: u64,
) -> [u64; 2] {
    let ([here, there], [sender, receiver]) = ends(mode);
    let mut warm = [0; 2];
    for number in 0..2 * messages {
        if number == messages {
            warm = ALLOCATIONS.get();
        }
        let posted = receiver.post_recv(place).unwrap();
        let sent = sender.send(message.clone(), None).unwrap();
        while !(posted.is_complete() && sent.is_done()) {
            here.progress();
            there.progress();
        }
        place = back(posted.complete());
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
        let message = SendBuffer::new(Arc::new(vec![7; message_bytes]));
        let place = vec![0; message_bytes];
        let [all, aligned] = allocations(mode, &message, place, |done| done.buffer, MESSAGES);
        // Timers may add a few.
        let most = pieces * MESSAGES + MESSAGES / 2;
        assert!(all <= most, "{mode}, {message_bytes} bytes: {all} in {MESSAGES} messages");
        assert_eq!(aligned, 0, "{mode}, {message_bytes} bytes");
    }
}

#[test]
fn a_list_of_a_thousand_parts_takes_no_more_of_the_heap_than_one_buffer() {
    const MESSAGES: u64 = 500;
    const BYTES: usize = 64 << 10;
    let message = SendBuffer::new(Arc::new(vec![7; BYTES]));
    let [plain, _] = allocations(Mode::SR, &message, vec![0; BYTES], |done| done.buffer, MESSAGES);
    let ([here, _there], _) = ends(Mode::SR);
    let region = here.register(vec![7; 1 << 20], RegionOptions::default()).unwrap();
    // A thousand parts, the last of another length, in an order that is not that of memory.
    let part = |number: u64| {
        let bytes = if number == 0 { BYTES as u64 - 999 * 65 } else { 65 };
        (&region, Stride { start: number * 700, bytes, stride: 1, count: 1 })
    };
    let list = Region::list((0..1000).rev().map(part)).unwrap();
    assert_eq!(list.len(), BYTES as u64);
    let message = SendBuffer::from(list.clone());
    let [parts, _] = allocations(Mode::SR, &message, list.clone(), |_| list.clone(), MESSAGES);
    assert!(parts <= plain + MESSAGES / 2, "{parts}, with one buffer {plain}");
}
