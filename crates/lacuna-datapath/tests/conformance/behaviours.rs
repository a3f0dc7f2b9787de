//! The behaviours that every datapath must have.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lacuna_datapath::{
    BindError, Burst, Datapath, PACKET_BYTES_MAX, PortRange, SendError, TrailerOffload, Waiter,
};

use lacuna_link::SplitMix64;
use lacuna_wire::{DataHeader, IcrcFlow, Qpn, Seal};

use crate::world::{Inverting, World};

pub(crate) fn a_datapath_says_what_it_is(world: &World) {
    let end = world.end_with(1 << 16);
    let capabilities = end.datapath.capabilities();
    assert!(!capabilities.name.is_empty());
    assert_eq!(capabilities.packet_bytes_max, PACKET_BYTES_MAX);
    assert!((1..=Burst::PACKETS_MAX).contains(&capabilities.burst_packets_max));
    assert!(capabilities.receive_buffer_bytes >= 1 << 16);
    let knows_headers = cfg!(target_os = "linux") && capabilities.name.starts_with("udp");
    assert_eq!(capabilities.trailer == TrailerOffload::Icrc, knows_headers);
    let alone = !capabilities.segmentation_offload;
    for (packet_bytes, bundle) in [(0, 64), (100, 64), (4132, 15), (8228, 7), (40_000, 1)] {
        let bundle = if alone { 1 } else { bundle };
        assert_eq!(capabilities.bundle_packets(packet_bytes), bundle, "{packet_bytes} bytes");
    }
    assert_ne!(end.addr.port(), 0);
    assert_eq!(end.datapath.local_addr(), end.addr);
    assert_eq!(end.datapath.next_event_ns(), None);
    assert_eq!(end.datapath.receive_drops(), 0);
    assert!(!end.datapath.send_blocked());
}

pub(crate) fn packets_arrive_exactly_as_sent(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    let mut numbers = SplitMix64::new(1);
    for _ in 0..20 {
        let packets: Vec<_> = (0..10).map(|_| numbers.bytes(1400)).collect();
        a.send(b.addr, &packets);
        b.expect(a.addr, &packets);
        b.send(a.addr, &packets[..1]);
        a.expect(b.addr, &packets[..1]);
    }
}

pub(crate) fn packets_of_every_size_arrive(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    let mut numbers = SplitMix64::new(2);
    let sizes = [0, 1, 2, 3, 63, 64, 65, 1399, 1400, 1472, 4096, 8192, 16_384, 40_000, 65_000];
    for size in sizes.into_iter().chain([world.largest - 1, world.largest]) {
        let packets = [numbers.bytes(size), numbers.bytes(size)];
        a.send(b.addr, &packets);
        b.expect(a.addr, &packets);
    }
}

pub(crate) fn parts_of_a_packet_may_be_empty(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    let (header, payload, trailer) = (&b"header"[..], &b"payload"[..], &b"trailer"[..]);
    let mut expected = Vec::new();
    let mut packets = Vec::new();
    for which in 0..8 {
        let part = |bit: u8, bytes| if which & bit == 0 { &[][..] } else { bytes };
        let packet = (part(1, header), part(2, payload), part(4, trailer));
        expected.push([packet.0, packet.1, packet.2].concat());
        packets.push(packet);
    }
    a.send_parts(b.addr, packets);
    a.flush();
    b.expect(a.addr, &expected);
}

pub(crate) fn mixed_sizes_keep_order_and_boundaries(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    let mut numbers = SplitMix64::new(3);
    for _ in 0..50 {
        // Few sizes, so that there are bundles, with shorter and longer packets in between.
        let sizes = [2000, 2000, 300, 1].map(|bound| numbers.below(bound) as usize);
        let packets: Vec<_> = (0..numbers.below(100))
            .map(|_| {
                let size = sizes[numbers.below(20).min(3) as usize];
                numbers.bytes(size)
            })
            .collect();
        a.send(b.addr, &packets);
        b.expect(a.addr, &packets);
    }
}

pub(crate) fn a_full_burst_arrives(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    let mut numbers = SplitMix64::new(4);
    for size in [1, 100, 1400, 4148] {
        let packets: Vec<_> = (0..Burst::PACKETS_MAX).map(|_| numbers.bytes(size)).collect();
        let parts = packets.iter().map(|packet| {
            let (header, rest) = packet.split_at(packet.len() / 3);
            let (payload, trailer) = rest.split_at(rest.len() - rest.len() / 4);
            (header, payload, trailer)
        });
        a.send_parts(b.addr, parts);
        a.flush();
        b.expect(a.addr, &packets);
    }
}

pub(crate) fn an_empty_burst_is_nothing(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    assert_eq!(a.try_send(b.addr, &[]).unwrap(), 0);
    assert!(!a.datapath.send_blocked());
    assert_eq!(b.receive(), 0);
}

pub(crate) fn a_packet_too_large_is_refused_and_disturbs_no_other(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    let mut numbers = SplitMix64::new(5);
    let small = [numbers.bytes(100), numbers.bytes(100), numbers.bytes(50)];
    for packet_bytes in [PACKET_BYTES_MAX + 1, PACKET_BYTES_MAX + 100, 1 << 20] {
        let large = numbers.bytes(packet_bytes);
        let burst = [&small[..], &[large], &small[..]].concat();
        // The packets before it are taken, perhaps in several calls; then the error is about it
        // alone.
        let mut taken = 0;
        while taken < small.len() {
            taken += a.try_send(b.addr, &burst[taken..]).unwrap();
        }
        assert_eq!(taken, small.len());
        let error = a.try_send(b.addr, &burst[taken..]).unwrap_err();
        assert!(
            matches!(error, SendError::PacketTooLarge { packet_bytes: bytes } if bytes == packet_bytes),
            "{error}"
        );
        assert!(!error.is_transient());
        a.send(b.addr, &burst[taken + 1..]);
        b.expect(a.addr, &small);
        b.expect(a.addr, &small);
    }
    assert_eq!(b.receive(), 0);
}

pub(crate) fn nothing_to_receive_is_nothing(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    assert_eq!(b.receive(), 0);
    let packets = [vec![1; 10]];
    a.send(b.addr, &packets);
    b.expect(a.addr, &packets);
    assert_eq!(b.receive(), 0);
    assert_eq!(a.receive(), 0);
}

pub(crate) fn a_full_receiver_drops_whole_packets_and_no_others_suffer(world: &World) {
    let (mut a, mut b) = (world.end(), world.end_with(1 << 16));
    let mut numbers = SplitMix64::new(6);
    let room = b.datapath.capabilities().receive_buffer_bytes;
    let sizes = [1400, 1400, 1400, 1400, 700];
    let mut sent = Vec::new();
    while sent.iter().map(Vec::len).sum::<usize>() < 4 * room {
        let packets: Vec<_> = sizes.iter().map(|size| numbers.bytes(*size)).collect();
        a.send(b.addr, &packets);
        sent.extend(packets);
    }
    let arrived = b.expect_until(&mut a, b"the end");
    assert!(!arrived.is_empty());
    assert!(arrived.len() < sent.len(), "nothing was dropped");
    if world.counts_drops {
        assert!(b.datapath.receive_drops() > 0);
    }
    // The packets that arrived were sent in this order; some may be missing.
    let mut rest = sent.iter();
    for packet in &arrived {
        assert!(rest.any(|sent| sent == packet), "a packet that was never sent, or out of order");
    }
    let packets = [numbers.bytes(1400)];
    a.send(b.addr, &packets);
    // Repetitions of the last packet may still be under way.
    while b.next().1 != packets[0] {}
}

pub(crate) fn packets_to_nobody_disturb_no_others(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    let nobody = {
        let gone = world.end();
        gone.addr
    };
    let packets = [vec![1; 100], vec![2; 100]];
    for _ in 0..20 {
        a.send(nobody, &packets);
        a.send(b.addr, &packets);
        assert_eq!(a.receive(), 0);
    }
    for _ in 0..20 {
        b.expect(a.addr, &packets);
    }
}

pub(crate) fn one_end_serves_many(world: &World) {
    let mut a = world.end();
    let mut others: Vec<_> = (0..8).map(|_| world.end()).collect();
    for round in 0..5u8 {
        for (i, other) in others.iter().enumerate() {
            a.send(other.addr, &[vec![round; 10 + i], vec![round; 10 + i]]);
        }
    }
    for round in 0..5u8 {
        for (i, other) in others.iter_mut().enumerate() {
            other.expect(a.addr, &[vec![round; 10 + i], vec![round; 10 + i]]);
        }
    }
}

pub(crate) fn many_ends_reach_one(world: &World) {
    let mut a = world.end();
    let mut others: Vec<_> = (0..8).map(|_| world.end()).collect();
    for (i, other) in others.iter_mut().enumerate() {
        other.send(a.addr, &[vec![i as u8; 100], vec![i as u8; 100]]);
    }
    let mut seen: Vec<(SocketAddr, u8)> = Vec::new();
    for _ in 0..2 * others.len() {
        let (source, packet) = a.next();
        assert_eq!(packet, vec![packet[0]; 100]);
        seen.push((source, packet[0]));
    }
    for (i, other) in others.iter().enumerate() {
        let from_it: Vec<_> = seen.iter().filter(|(source, _)| *source == other.addr).collect();
        assert_eq!(from_it, [&(other.addr, i as u8); 2]);
    }
}

pub(crate) fn an_arrival_wakes_a_waiter(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    let to = b.addr;
    let from = a.addr;
    let sender = thread::spawn(move || {
        a.send(to, &[vec![7; 10]]);
        a
    });
    // Without a wake-up this lasts until the time limit, and fails.
    b.expect(from, &[vec![7; 10]]);
    drop(sender.join().unwrap());
}

pub(crate) fn the_event_source_goes_quiet_when_all_is_taken(world: &World) {
    if cfg!(not(unix)) {
        return; // There is nothing to poll.
    }
    let (mut a, mut b) = (world.end(), world.end());
    for _ in 0..3 {
        assert!(!is_readable(&*b.datapath));
        a.send(b.addr, &[vec![1; 10], vec![2; 10]]);
        b.wait();
        assert!(is_readable(&*b.datapath));
        b.expect(a.addr, &[vec![1; 10], vec![2; 10]]);
        assert_eq!(b.receive(), 0);
        assert!(!is_readable(&*b.datapath));
    }
}

#[cfg(unix)]
fn is_readable(datapath: &dyn Datapath) -> bool {
    use std::os::fd::AsRawFd;
    let sources = datapath.event_sources();
    let source = sources.iter().next().expect("this datapath can be polled");
    let fd = source.descriptor.as_raw_fd();
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, exclusively borrowed for the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
    assert!(ready >= 0);
    ready == 1
}

#[cfg(not(unix))]
fn is_readable(_: &dyn Datapath) -> bool {
    unimplemented!("there is nothing to poll on this system")
}

pub(crate) fn a_waker_wakes_a_waiter_with_sources(world: &World) {
    let (a, b) = (world.end(), world.end());
    let sources = || [&a.datapath, &b.datapath].map(|datapath| &**datapath);
    let (mut waiter, waker) = Waiter::new().unwrap();
    waker.wake();
    waiter.wait(sources(), None).unwrap();

    let done = Arc::new(AtomicBool::new(false));
    let thread = thread::spawn({
        let (done, waker) = (Arc::clone(&done), waker.clone());
        move || {
            done.store(true, Ordering::Relaxed);
            waker.wake();
        }
    });
    while !done.load(Ordering::Relaxed) {
        waiter.wait(sources(), None).unwrap();
    }
    thread.join().unwrap();
    waiter.wait(sources(), Some(Duration::ZERO)).unwrap();
}

pub(crate) fn a_batch_tells_the_address_that_it_came_to(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    // Before and after a connected socket appears.
    for _ in 0..100 {
        a.send(b.addr, &[vec![1; 10], vec![2; 10]]);
        b.expect(a.addr, &[vec![1; 10], vec![2; 10]]);
        assert_eq!(b.last_local(), Some(b.addr.ip()));
        b.send(a.addr, &[vec![3; 10]]);
        a.expect(b.addr, &[vec![3; 10]]);
        assert_eq!(a.last_local(), Some(a.addr.ip()));
    }
}

pub(crate) fn an_end_for_any_address_tells_which_one_was_meant(world: &World) {
    let Some(learns) = world.any_learns_local else { return };
    let (mut a, mut any) = (world.end(), world.end_for_any());
    let (ip, port) = (a.addr.ip(), any.addr.port());
    for _ in 0..100 {
        a.send((ip, port).into(), &[vec![1; 10], vec![2; 10]]);
        any.expect(a.addr, &[vec![1; 10], vec![2; 10]]);
        assert_eq!(any.last_local(), learns.then_some(ip));
        any.send(a.addr, &[vec![3; 10]]);
        assert_eq!(a.next(), (SocketAddr::from((ip, port)), vec![3; 10]));
    }
}

pub(crate) fn trailers_become_icrcs_where_a_datapath_says_so(world: &World) {
    let mut a = world.end();
    if a.datapath.capabilities().trailer != TrailerOffload::Icrc {
        return;
    }
    let mut numbers = SplitMix64::new(9);
    for mut b in [world.end(), world.end_for_any()] {
        b.datapath.tell_local();
        let to = SocketAddr::new(a.addr.ip(), b.addr.port());
        // Often enough that a datapath may have a socket for this peer alone by now.
        for round in 0..30 {
            let mut packets = Vec::new();
            // Whole bundles, the end of a message, and packets of other lengths.
            let sizes = [vec![1400; 50], vec![1399, 4, 0, 1, 1400, 64], vec![4096; 20]].concat();
            for (psn, size) in (0..).zip(sizes) {
                let payload = numbers.bytes(size);
                let header = DataHeader {
                    dest: Qpn::new(1, 0, 0),
                    psn,
                    ends_message: psn % 3 == 0,
                    carries_immediate: false,
                    address: Some(u64::from(psn)),
                    rkey: round,
                    length: size as u32,
                    behind: 0,
                    immediate: 5,
                };
                let mut packet = vec![0; Seal::Icrc.packet_bytes(&header)];
                Seal::Icrc.emit_packet(&header, &mut packet, &payload);
                packets.push(packet);
            }
            // The trailer in any part.
            let parts = packets.iter().enumerate().map(|(index, packet)| {
                let (head, tail) = packet.split_at(32);
                match index % 3 {
                    0 => (&packet[..], &[][..], &[][..]),
                    1 => (head, tail, &[][..]),
                    _ => (head, &tail[..tail.len() - 4], &tail[tail.len() - 4..]),
                }
            });
            a.send_completed(to, TrailerOffload::Icrc, parts);
            a.flush();
            let mut flow = IcrcFlow::new(a.addr, to).unwrap();
            for sent in &packets {
                let (source, packet) = b.next();
                assert_eq!((source, b.last_local()), (a.addr, Some(to.ip())));
                let end = packet.len() - 4;
                assert!(packet[..end] == sent[..end], "only the trailer changes");
                assert_eq!(flow.check(&packet), Ok(()), "{} bytes", packet.len());
            }
            // The other packets go as they are. They may take another socket than those before, and
            // the receiver may just be making one for this peer, so their order is not promised.
            a.send(to, &packets[..2]);
            let mut came = [(); 2].map(|()| b.next());
            let mut sent = [0, 1].map(|at| (a.addr, packets[at].clone()));
            came.sort();
            sent.sort();
            assert!(came == sent, "bytes or source of packets without offload");
        }
    }
}

pub(crate) fn the_bytes_of_a_batch_may_be_written_to(world: &World) {
    let (mut a, mut b) = (world.end(), world.end());
    let packets = vec![vec![0x0f; 1400]; 20];
    for _ in 0..5 {
        a.send(b.addr, &packets);
        let mut inverting = Inverting::default();
        while inverting.packets.len() < packets.len() {
            if b.datapath.receive(b.now_ns(), &mut inverting).expect("receiving works") == 0 {
                b.wait();
            }
        }
        assert_eq!(inverting.packets, vec![vec![0xf0; 1400]; 20]);
    }
}

pub(crate) fn the_first_free_port_of_a_range_is_taken(world: &World) {
    // Two ports that are free, or nearly so: others bind to them at the same time.
    let range = |first: u16| PortRange::new(first, first + 1).expect("a range");
    let mut tried = (0..100).map(|n| range(20_000 + (std::process::id() as u16 % 500 + n) * 20));
    let (first, ports) = tried
        .find_map(|ports| {
            let (end, taken) = world.end_in(ports).ok()?;
            taken.is_empty().then_some((end, ports))
        })
        .expect("two free ports");
    let low = ports.iter().next();
    assert_eq!(Some(first.addr.port()), low);
    let Ok((mut second, taken)) = world.end_in(ports) else {
        return; // Somebody else has the other port.
    };
    assert_eq!(taken, [first.addr.port()]);
    let error = world.end_in(ports).err().expect("none is free");
    assert!(matches!(error, BindError::AllInUse { ports: all, .. } if all == ports), "{error}");
    let mut first = first;
    first.send(second.addr, &[vec![7; 10]]);
    second.expect(first.addr, &[vec![7; 10]]);
}
