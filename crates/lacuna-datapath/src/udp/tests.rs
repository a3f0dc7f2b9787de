//! Tests that are particular to UDP; the conformance suite tests what every datapath does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::*;
use crate::{BurstBuffers, ReceivedBatch, Waiter};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What a test remembers of a batch.
#[derive(Debug)]
struct Batch {
    source: SocketAddr,
    packets: Vec<Vec<u8>>,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux reports marks"))]
    congestion_experienced: bool,
    waited_ns: u64,
}

#[derive(Default)]
struct Batches(Vec<Batch>);

impl Placer for Batches {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        self.0.push(Batch {
            source: batch.source,
            packets: batch.packets().map(<[u8]>::to_vec).collect(),
            congestion_experienced: batch.congestion_experienced,
            waited_ns: batch.waited_ns,
        });
    }
}

fn udp(offload: Offload) -> Udp {
    Udp::bind(UdpConfig { offload, ..UdpConfig::new(LOCALHOST) }).unwrap()
}

fn send(from: &mut Udp, to: SocketAddr, packets: &[Vec<u8>]) {
    let mut buffers = BurstBuffers::new();
    let mut burst = buffers.start(to);
    for packet in packets {
        burst.push(&packet[..1], &packet[1..], &[]);
    }
    assert_eq!(from.send(0, &burst).unwrap(), packets.len());
}

/// Waits for this many packets.
fn receive(udp: &mut Udp, packets: usize) -> Vec<Batch> {
    let (mut waiter, _waker) = Waiter::new().unwrap();
    let mut batches = Batches::default();
    let mut received = 0;
    for _ in 0..1000 {
        received += udp.receive(0, &mut batches).unwrap();
        if received >= packets {
            return batches.0;
        }
        waiter.wait([&*udp as &dyn Datapath], Some(Duration::from_secs(1))).unwrap();
    }
    panic!("{received} of {packets} packets arrived");
}

fn bytes_of(batches: &[Batch]) -> Vec<Vec<u8>> {
    batches.iter().flat_map(|batch| batch.packets.clone()).collect()
}

fn packets(sizes: &[usize]) -> Vec<Vec<u8>> {
    sizes.iter().enumerate().map(|(i, size)| vec![i as u8; *size]).collect()
}

#[test]
fn a_taken_address_is_named_in_the_error() {
    for offload in [Offload::Auto, Offload::Plain] {
        let taken = udp(offload).local_addr();
        let _holder = Udp::bind(UdpConfig::new(taken)).unwrap();
        let error = Udp::bind(UdpConfig { offload, ..UdpConfig::new(taken) }).unwrap_err();
        assert!(matches!(error, BindError::InUse(address) if address == taken));
        assert_eq!(error.to_string(), format!("cannot bind to {taken}: the address is in use"));
    }
}

#[test]
fn an_address_of_nobody_is_named_in_the_error() {
    // A documentation address (RFC 5737): no interface has it.
    let address: SocketAddr = "192.0.2.1:4791".parse().unwrap();
    let error = Udp::bind(UdpConfig::new(address)).unwrap_err();
    assert!(matches!(error, BindError::NotAvailable(_)), "{error}");
    assert!(error.to_string().contains("192.0.2.1:4791"));
}

#[test]
fn the_receive_buffer_is_what_was_asked_for_if_the_system_grants_it() {
    for offload in [Offload::Auto, Offload::Plain] {
        let config =
            UdpConfig { receive_buffer_bytes: 128 << 10, offload, ..UdpConfig::new(LOCALHOST) };
        let udp = Udp::bind(config).unwrap();
        assert!(udp.capabilities().receive_buffer_bytes >= 128 << 10);
    }
}

#[test]
fn a_boxed_socket_is_the_same_kind() {
    for (offload, names) in
        [(Offload::Auto, &["udp", "udp-plain"][..]), (Offload::Plain, &["udp-plain"])]
    {
        let config = UdpConfig { offload, ..UdpConfig::new(LOCALHOST) };
        let boxed = Udp::bind_boxed(config).unwrap();
        assert!(names.contains(&boxed.capabilities().name));
        assert_eq!(boxed.capabilities(), Udp::bind(config).unwrap().capabilities());
    }
}

#[test]
fn a_socket_for_any_address_speaks_both_protocols() {
    for offload in [Offload::Auto, Offload::Plain] {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let Ok(mut both) = Udp::bind(UdpConfig { offload, ..UdpConfig::new(any) }) else {
            eprintln!("not tested: this machine has no IPv6");
            return;
        };
        let port = both.local_addr().port();
        let mut v4 = udp(Offload::Auto);
        send(&mut v4, SocketAddr::from((Ipv4Addr::LOCALHOST, port)), &packets(&[100, 100, 40]));
        let received = receive(&mut both, 3);
        assert_eq!(bytes_of(&received), packets(&[100, 100, 40]));
        // The peer appears by its IPv4 address, and can be answered by it.
        assert_eq!(received[0].source, v4.local_addr());
        send(&mut both, received[0].source, &packets(&[200, 200, 10]));
        assert_eq!(bytes_of(&receive(&mut v4, 3)), packets(&[200, 200, 10]));
    }
}

#[test]
fn offloads_and_plain_sockets_understand_each_other() {
    let sizes = [1400, 1400, 1400, 700, 1400, 1500, 3, 3, 3];
    for (from, to) in [(Offload::Auto, Offload::Plain), (Offload::Plain, Offload::Auto)] {
        let (mut from, mut to) = (udp(from), udp(to));
        send(&mut from, to.local_addr(), &packets(&sizes));
        assert_eq!(bytes_of(&receive(&mut to, sizes.len())), packets(&sizes));
    }
}

#[test]
fn packets_of_one_size_travel_together() {
    let (mut a, mut b) = (udp(Offload::Auto), udp(Offload::Auto));
    let capabilities = a.capabilities();
    if !(capabilities.segmentation_offload && capabilities.receive_coalescing) {
        eprintln!("not tested: this system has no offloads");
        return;
    }
    send(&mut a, b.local_addr(), &packets(&[1400; 30]));
    let batches = receive(&mut b, 30);
    assert_eq!(bytes_of(&batches), packets(&[1400; 30]));
    assert_eq!(batches.len(), 1);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn segmentation_refused_by_the_device_is_done_without() {
        let (mut a, mut b) = (udp(Offload::Auto), udp(Offload::Auto));
        // The kernel refuses segmentation without checksums with the same error as for a device that
        // cannot compute them.
        let fd = a.event_sources().iter().next().unwrap().descriptor;
        syscall::set_option(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        // A bundle of one packet needs no segmentation; larger ones do.
        send(&mut a, b.local_addr(), &packets(&[7]));
        assert!(a.capabilities().segmentation_offload);
        for burst in 1..=4 {
            send(&mut a, b.local_addr(), &packets(&[5, 1400, 1400, 1400, 700]));
            assert_eq!(a.capabilities().segmentation_offload, burst < 3);
        }
        assert_eq!(bytes_of(&receive(&mut b, 21)).len(), 21);
    }

    /// A route that is a black hole for a moment causes the same error as a device without
    /// segmentation.
    #[test]
    fn a_refusal_that_passes_does_not_cost_the_offload() {
        let (mut a, mut b) = (udp(Offload::Auto), udp(Offload::Auto));
        let refuse = |a: &Udp, is_on| {
            let fd = a.event_sources().iter().next().unwrap().descriptor;
            syscall::set_option(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, is_on).unwrap();
        };
        for _ in 0..4 {
            refuse(&a, 1);
            send(&mut a, b.local_addr(), &packets(&[1400, 1400]));
            refuse(&a, 0);
            send(&mut a, b.local_addr(), &packets(&[1400, 1400]));
            assert!(a.capabilities().segmentation_offload);
        }
        assert_eq!(bytes_of(&receive(&mut b, 16)).len(), 16);
    }

    #[test]
    fn a_packet_too_large_for_the_path_does_not_cost_the_offload() {
        // 65,507 bytes are fine for IPv4, but with the headers of IPv6 more than the loopback's
        // MTU.
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let (Ok(mut a), Ok(b)) = (Udp::bind(UdpConfig::new(v6)), Udp::bind(UdpConfig::new(v6)))
        else {
            eprintln!("not tested: this machine has no IPv6");
            return;
        };
        let mut buffers = BurstBuffers::new();
        let mut burst = buffers.start(b.local_addr());
        let payload = vec![0; crate::PACKET_BYTES_MAX];
        burst.push(&[], &payload, &[]);
        burst.push(&[], &payload, &[]);
        let error = a.send(0, &burst).unwrap_err();
        assert!(matches!(error, SendError::PacketTooLarge { packet_bytes: 65_507 }), "{error}");
        assert!(a.capabilities().segmentation_offload);
    }

    #[test]
    fn congestion_marks_are_reported() {
        const CONGESTION_EXPERIENCED: i32 = 3;
        const CAPABLE: i32 = 2;
        let localhosts = [LOCALHOST, SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
        for localhost in localhosts {
            let (Ok(sender), Ok(mut receiver)) =
                (UdpSocket::bind(localhost), Udp::bind(UdpConfig::new(localhost)))
            else {
                eprintln!("not tested: this machine has no IPv6");
                continue;
            };
            assert!(receiver.capabilities().congestion_marks);
            let (level, name) = match localhost {
                SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            for mark in [CONGESTION_EXPERIENCED, CAPABLE] {
                syscall::set_option(sender.as_fd(), level, name, mark).unwrap();
                sender.send_to(b"marked", receiver.local_addr()).unwrap();
                let batches = receive(&mut receiver, 1);
                assert_eq!(batches[0].congestion_experienced, mark == CONGESTION_EXPERIENCED);
            }
        }
    }

    #[test]
    fn packets_are_ecn_capable_unless_refused() {
        for (ecn, refuses) in [(true, false), (true, true), (false, false), (false, true)] {
            let mut sender = Udp::bind(UdpConfig { ecn, ..UdpConfig::new(LOCALHOST) }).unwrap();
            let receiver = UdpSocket::bind(LOCALHOST).unwrap();
            syscall::set_option(receiver.as_fd(), libc::IPPROTO_IP, libc::IP_RECVTOS, 1).unwrap();
            // A lone packet and a bundle set the mark in different ways.
            for sizes in [&[100][..], &[100, 100]] {
                let mut buffers = BurstBuffers::new();
                let all = packets(sizes);
                let mut burst = buffers.start(receiver.local_addr().unwrap());
                all.iter().for_each(|packet| burst.push(&[], packet, &[]));
                if refuses {
                    burst.refuse_marks();
                }
                assert_eq!(sender.send(0, &burst).unwrap(), sizes.len());
                let mut arrays = syscall::ReceiveArrays::new(1);
                while arrays.receive(receiver.as_fd(), false, 1).is_err() {
                    std::thread::yield_now();
                }
                let class = arrays.messages().next().unwrap().control.traffic_class;
                assert_eq!(class & 0b11, if ecn && !refuses { 0b10 } else { 0 });
                while arrays.receive(receiver.as_fd(), false, 1).is_ok() {}
            }
        }
    }

    #[test]
    fn a_socket_can_do_without_reports_of_arrivals() {
        for tells_arrival in [true, false] {
            let config = UdpConfig { tells_arrival, ..UdpConfig::new(LOCALHOST) };
            let Capabilities { timestamps, congestion_marks, receive_coalescing, .. } =
                Udp::bind(config).unwrap().capabilities();
            assert_eq!((timestamps, congestion_marks), (tells_arrival, tells_arrival));
            assert!(receive_coalescing, "it stays");
        }
    }

    #[test]
    fn packets_have_the_class_of_service_asked_for_with_and_without_ecn() {
        assert_eq!((Dscp::new(63), Dscp::new(64)), (Some(Dscp(63)), None));
        for (offload, refuses, class) in [
            (Offload::Auto, false, 46 << 2 | 0b10),
            (Offload::Auto, true, 46 << 2),
            (Offload::Plain, false, 46 << 2),
        ] {
            let dscp = Dscp::new(46).unwrap();
            let config = UdpConfig { dscp, offload, ..UdpConfig::new(LOCALHOST) };
            let mut sender = Udp::bind(config).unwrap();
            let receiver = UdpSocket::bind(LOCALHOST).unwrap();
            syscall::set_option(receiver.as_fd(), libc::IPPROTO_IP, libc::IP_RECVTOS, 1).unwrap();
            let mut buffers = BurstBuffers::new();
            let mut burst = buffers.start(receiver.local_addr().unwrap());
            burst.push(&[], b"classified", &[]);
            if refuses {
                burst.refuse_marks();
            }
            assert_eq!(sender.send(0, &burst).unwrap(), 1);
            let mut arrays = syscall::ReceiveArrays::new(1);
            while arrays.receive(receiver.as_fd(), false, 1).is_err() {
                std::thread::yield_now();
            }
            assert_eq!(arrays.messages().next().unwrap().control.traffic_class, class);
        }
    }

    #[test]
    fn the_first_free_port_of_a_range_is_bound_to() {
        let taken = udp(Offload::Auto).local_addr().port();
        let Some(ports) = PortRange::new(taken, taken.saturating_add(20)) else { return };
        let Ok(_holder) = Udp::bind(UdpConfig::new((Ipv4Addr::LOCALHOST, taken).into())) else {
            return; // Somebody else was quicker.
        };
        let (udp, before) = Udp::bind_in(UdpConfig::new(LOCALHOST), ports).unwrap();
        assert_eq!(before[0], taken);
        assert_eq!(usize::from(udp.local_addr().port() - taken), before.len());
    }

    #[test]
    fn how_long_a_packet_waited_is_known() {
        let (mut a, mut b) = (udp(Offload::Auto), udp(Offload::Auto));
        let before = std::time::Instant::now();
        send(&mut a, b.local_addr(), &packets(&[100]));
        // However long it takes until somebody looks.
        std::thread::yield_now();
        let batches = receive(&mut b, 1);
        let at_most_ns = before.elapsed().as_nanos() as u64;
        assert!((1..=at_most_ns).contains(&batches[0].waited_ns), "{}", batches[0].waited_ns);
    }

    #[test]
    fn what_the_receive_queue_drops_is_counted() {
        const PACKETS: u64 = 20;
        let mut a = udp(Offload::Auto);
        let small = UdpConfig { receive_buffer_bytes: 64 << 10, ..UdpConfig::new(LOCALHOST) };
        let mut b = Udp::bind(small).unwrap();
        let mut sent = 0;
        // Drops are known while nobody receives. A dropped bundle may count once or by its packets.
        while b.receive_drops() < 10 {
            send(&mut a, b.local_addr(), &packets(&[1400; PACKETS as usize]));
            sent += PACKETS;
        }
        let mut received = 0;
        let mut batches = Batches::default();
        loop {
            match b.receive(0, &mut batches).unwrap() as u64 {
                0 => break,
                packets => received += packets,
            }
        }
        let missing = sent - received;
        let drops = b.receive_drops();
        assert!((missing.div_ceil(PACKETS)..=missing).contains(&drops), "{drops} of {missing}");
    }

    /// More bursts than a connected socket needs.
    const MANY: usize = 100;

    fn send_many(from: &mut Udp, to: SocketAddr) {
        for _ in 0..MANY {
            send(from, to, &packets(&[100]));
        }
    }

    fn has_second_socket(udp: &Udp) -> bool {
        udp.event_sources().iter().count() == 2
    }

    #[test]
    fn the_peer_that_receives_all_packets_has_a_connected_socket_and_nobody_notices() {
        let [mut a, mut b, mut c] = [(); 3].map(|()| udp(Offload::Auto));
        let (to_a, to_b, to_c) = (a.local_addr(), b.local_addr(), c.local_addr());
        for (peer, other) in [(to_b, to_c), (to_c, to_b)] {
            // Packets of both arrive before, while and after the connected socket appears.
            for _ in 0..MANY {
                send(&mut a, peer, &packets(&[100]));
                send(&mut b, to_a, &packets(&[200]));
                send(&mut c, to_a, &packets(&[300]));
            }
            assert!(has_second_socket(&a));
            let batches = receive(&mut a, 2 * MANY);
            for (from, size) in [(to_b, 200), (to_c, 300)] {
                let of_one = batches.iter().filter(|batch| batch.source == from);
                let packets: Vec<_> = of_one.flat_map(|batch| &batch.packets).collect();
                assert_eq!(packets.len(), MANY);
                assert!(packets.iter().all(|packet| packet.len() == size));
            }
            // No other socket can take the port.
            assert!(matches!(Udp::bind(UdpConfig::new(to_a)), Err(BindError::InUse(_))));
            // The connected socket is closed when most packets go elsewhere and it is empty.
            send_many(&mut a, other);
            assert!(has_second_socket(&a));
            let mut none = Batches::default();
            while has_second_socket(&a) {
                assert_eq!(a.receive(0, &mut none).unwrap(), 0);
            }
        }
        for udp in [&mut b, &mut c] {
            let batches = receive(udp, 2 * MANY);
            assert!(batches.iter().all(|batch| batch.source == to_a));
        }
    }

    #[test]
    fn packets_that_came_before_the_connected_socket_are_read_first() {
        let (mut a, mut b) = (udp(Offload::Auto), udp(Offload::Auto));
        // More than one receive takes, so that there are several to get out of order.
        let sizes: Vec<_> = (1..=2 * MANY).collect();
        let (before, after) = sizes.split_at(MANY);
        let send_all = |b: &mut Udp, to, sizes: &[usize]| {
            sizes.iter().for_each(|size| send(b, to, &packets(&[*size])));
        };
        send_all(&mut b, a.local_addr(), before);
        send_many(&mut a, b.local_addr());
        assert!(has_second_socket(&a));
        send_all(&mut b, a.local_addr(), after);
        let came = bytes_of(&receive(&mut a, sizes.len()));
        assert_eq!(came.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
    }

    /// Between binding and connecting, that is.
    #[test]
    fn what_others_send_to_a_socket_before_it_is_connected_is_theirs() {
        let config = UdpConfig::new(([0, 0, 0, 0], 0).into());
        let first = setup::bind(&config).unwrap();
        let port = first.local_addr().unwrap().port();
        let [peer, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = peer.local_addr().unwrap();
        let second = setup::bind_beside(&first, to, &config).unwrap();
        assert_eq!(second.local_addr().unwrap().ip(), IpAddr::from([127, 0, 0, 1]));
        // What goes to another address of this host never comes to it.
        peer.send_to(b"nine", ("127.0.0.9", port)).unwrap();
        let mut bytes = [0; 9];
        assert_eq!(first.recv_from(&mut bytes).unwrap(), (4, to));
        other.send_to(b"other", ("127.0.0.1", port)).unwrap();
        second.connect(to).unwrap();
        assert_eq!(second.recv_from(&mut bytes).unwrap(), (5, other.local_addr().unwrap()));
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_by_either_socket() {
        let [mut a, mut b, mut c] = [(); 3].map(|()| udp(Offload::Auto));
        send_many(&mut a, b.local_addr());
        assert!(has_second_socket(&a));
        for _ in 0..MANY {
            for from in [&mut b, &mut c] {
                send(from, a.local_addr(), &packets(&[10]));
                assert_eq!(receive(&mut a, 1)[0].source, from.local_addr());
            }
        }
    }

    #[test]
    fn a_peer_that_has_gone_is_no_error() {
        let (mut a, b) = (udp(Offload::Auto), udp(Offload::Auto));
        let to_b = b.local_addr();
        send_many(&mut a, to_b);
        assert!(has_second_socket(&a));
        drop(b);
        let mut none = Batches::default();
        for _ in 0..MANY {
            send(&mut a, to_b, &packets(&[100]));
            assert_eq!(a.receive(0, &mut none).unwrap(), 0);
        }
        assert!(a.absorbed_errors() > 0);
        // A new owner of the port is reached.
        let mut b = Udp::bind(UdpConfig::new(to_b)).unwrap();
        send(&mut a, to_b, &packets(&[7]));
        assert_eq!(bytes_of(&receive(&mut b, 1)), packets(&[7]));
    }

    /// Interval between two reads of a polling receiver.
    const READ_NS: u64 = 300;

    /// A socket that is polled, and its peer.
    struct Polling {
        udp: Udp,
        peer: Udp,
        now_ns: u64,
    }

    impl Polling {
        /// Both have a connected socket for each other.
        fn new() -> Self {
            let (mut udp, mut peer) = (udp(Offload::Auto), udp(Offload::Auto));
            send_many(&mut udp, peer.local_addr());
            send_many(&mut peer, udp.local_addr());
            let mut polling = Self { udp, peer, now_ns: 0 };
            assert!(has_second_socket(&polling.udp) && has_second_socket(&polling.peer));
            assert_eq!(bytes_of(&polling.until_empty()).len(), MANY);
            polling
        }

        /// Receives until both sockets are empty.
        fn until_empty(&mut self) -> Vec<Batch> {
            let mut batches = Batches::default();
            // One read may go to the first socket.
            let mut empty = 0;
            while empty < 2 {
                self.now_ns += READ_NS;
                let packets = self.udp.receive(self.now_ns, &mut batches).unwrap();
                empty = if packets == 0 { empty + 1 } else { 0 };
            }
            batches.0
        }

        /// Packets arrive one by one, each after reads that returned nothing.
        fn lone(&mut self, count: usize) -> Vec<Batch> {
            let to = self.udp.local_addr();
            let mut batches = Vec::new();
            for _ in 0..count {
                assert!(self.until_empty().is_empty());
                send(&mut self.peer, to, &packets(&[100]));
                batches.extend(self.until_empty());
            }
            assert_eq!(batches.len(), count);
            assert!(batches.iter().all(|batch| batch.source == self.peer.local_addr()));
            batches
        }

        /// Packets arrive that left as one bundle.
        fn bulk(&mut self) -> Vec<Batch> {
            send(&mut self.peer, self.udp.local_addr(), &packets(&[1400; 30]));
            self.until_empty()
        }
    }

    #[test]
    fn bulk_behind_lone_packets_is_separated_and_coalesced_again() {
        let mut polling = Polling::new();
        if !polling.udp.capabilities().receive_coalescing {
            eprintln!("not tested: this system has no offloads");
            return;
        }
        for _ in 0..3 {
            assert_eq!(polling.bulk().len(), 1, "coalesced");
            polling.lone(MANY);
            let batches = polling.bulk();
            assert_eq!(bytes_of(&batches), packets(&[1400; 30]));
            assert_eq!(batches.len(), 30, "not coalesced among lone ones");
        }
    }

    #[test]
    fn one_in_five_that_comes_with_another_leaves_the_others_lone() {
        let mut polling = Polling::new();
        let to = polling.udp.local_addr();
        for _ in 0..MANY {
            polling.lone(3);
            // A report and its message.
            send(&mut polling.peer, to, &packets(&[80]));
            send(&mut polling.peer, to, &packets(&[100]));
            assert_eq!(bytes_of(&polling.until_empty()).len(), 2);
        }
        assert_eq!(polling.bulk().len(), 30, "not coalesced among lone ones");
    }

    #[test]
    fn small_packets_that_follow_each_other_at_once_are_no_lone_ones() {
        let mut polling = Polling::new();
        polling.lone(MANY);
        for _ in 0..2 {
            send(&mut polling.peer, polling.udp.local_addr(), &packets(&[100; 30]));
            assert_eq!(bytes_of(&polling.until_empty()), packets(&[100; 30]));
        }
        send(&mut polling.peer, polling.udp.local_addr(), &packets(&[100; 30]));
        assert_eq!(polling.until_empty().len(), 1, "coalesced");
    }

    #[test]
    fn one_lone_packet_in_sixteen_and_all_bulk_is_read_with_its_mark() {
        const CONGESTION_EXPERIENCED: i32 = 3;
        let mut polling = Polling::new();
        let socket = polling.peer.event_sources().iter().nth(1).unwrap().descriptor;
        syscall::set_option(socket, libc::IPPROTO_IP, libc::IP_TOS, CONGESTION_EXPERIENCED)
            .unwrap();
        let marked =
            |batches: &[Batch]| batches.iter().filter(|b| b.congestion_experienced).count();
        assert_eq!(marked(&polling.bulk()), 1);
        polling.lone(MANY);
        assert_eq!(marked(&polling.lone(4 * 16)), 4);
        polling.bulk();
        assert_eq!(marked(&polling.bulk()), 1);
    }

    #[test]
    fn the_arrival_of_a_lone_packet_that_nobody_polled_for_is_known() {
        let mut polling = Polling::new();
        let lone = polling.lone(2 * MANY);
        assert_eq!(lone[MANY].waited_ns, 0, "just now");
        let before = std::time::Instant::now();
        send(&mut polling.peer, polling.udp.local_addr(), &packets(&[100]));
        polling.now_ns += 1_000_000;
        let batches = polling.until_empty();
        let at_most_ns = before.elapsed().as_nanos() as u64;
        assert!((1..=at_most_ns).contains(&batches[0].waited_ns), "{}", batches[0].waited_ns);
    }

    #[test]
    fn a_receiver_that_polls_for_lone_packets_reads_the_first_socket_within_microseconds() {
        let mut polling = Polling::new();
        polling.lone(MANY);
        let mut other = udp(Offload::Auto);
        send(&mut other, polling.udp.local_addr(), &packets(&[7]));
        let (mut batches, start_ns) = (Batches::default(), polling.now_ns);
        while polling.udp.receive(polling.now_ns, &mut batches).unwrap() == 0 {
            polling.now_ns += READ_NS;
        }
        assert_eq!(batches.0[0].source, other.local_addr());
        assert!(polling.now_ns - start_ns <= 20_000 + READ_NS);
    }

    #[test]
    fn a_socket_for_any_address_has_one_for_its_peer_whichever_protocol_that_speaks() {
        for any in [Ipv4Addr::UNSPECIFIED.into(), IpAddr::from(Ipv6Addr::UNSPECIFIED)] {
            let Ok(mut a) = Udp::bind(UdpConfig::new(SocketAddr::from((any, 0)))) else {
                eprintln!("not tested: this machine has no IPv6");
                continue;
            };
            let mut b = udp(Offload::Auto);
            send_many(&mut a, b.local_addr());
            assert!(has_second_socket(&a));
            // The peer sees the same address as before, and can answer.
            let batches = receive(&mut b, MANY);
            let to_a = SocketAddr::from((Ipv4Addr::LOCALHOST, a.local_addr().port()));
            assert!(batches.iter().all(|batch| batch.source == to_a));
            send(&mut b, to_a, &packets(&[200]));
            assert_eq!(receive(&mut a, 1)[0].source, b.local_addr());
        }
    }
}

/// Has the kernel refuse a system call to the thread that runs `test`, as in a sandbox or on a system
/// without the call.
#[cfg(target_os = "linux")]
fn where_refused(call: libc::c_long, errno: libc::c_int, test: impl FnOnce() + Send) {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
    let rules = [(call, Vec::new())].into();
    let refused = SeccompAction::Errno(errno as u32);
    let arch = std::env::consts::ARCH.try_into().expect("a known one");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
    std::thread::scope(|scope| {
        let test = scope.spawn(move || match apply_filter(&program) {
            Ok(()) => test(),
            Err(error) => println!("skipped: {error}"),
        });
        test.join().expect("no panic");
    });
}

#[cfg(target_os = "linux")]
#[test]
fn packets_pass_where_there_is_no_call_for_several_messages() {
    for call in [libc::SYS_recvmmsg, libc::SYS_sendmmsg] {
        for errno in [libc::ENOSYS, libc::EPERM] {
            where_refused(call, errno, || {
                let (mut from, mut to) = (udp(Offload::Auto), udp(Offload::Auto));
                for _ in 0..3 {
                    // No two of these packets can share a message.
                    let sent = packets(&[10, 700, 20, 1300, 30, 900, 40]);
                    send(&mut from, to.local_addr(), &sent);
                    assert_eq!(bytes_of(&receive(&mut to, sent.len())), sent);
                }
            });
        }
    }
}

/// Packets of the protocol whose trailers `from` completes, and what arrives of them.
#[cfg(target_os = "linux")]
fn with_icrcs(from: &mut Udp, to: &mut Udp, lengths: &[u32]) -> Vec<Batch> {
    use lacuna_wire::{DataHeader, Qpn, Seal};

    let mut buffers = BurstBuffers::new();
    let mut destination = to.local_addr();
    if destination.ip().is_unspecified() {
        destination.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let payloads: Vec<Vec<u8>> =
        lengths.iter().map(|length| vec![*length as u8; *length as usize]).collect();
    let mut burst = buffers.start(destination);
    burst.offload_trailers(crate::TrailerOffload::Icrc);
    for (psn, payload) in (0..).zip(&payloads) {
        let header = DataHeader {
            dest: Qpn::new(1, 0, 0),
            psn,
            ends_message: false,
            carries_immediate: false,
            address: Some(7),
            rkey: 9,
            length: payload.len() as u32,
            behind: 0,
            immediate: 5,
        };
        let packet_bytes = Seal::Icrc.packet_bytes(&header);
        // Copied or gathered, as the engine does.
        if psn % 2 == 0 {
            burst.push_whole(packet_bytes, |out| Seal::Icrc.emit_packet(&header, out, payload));
        } else {
            let pad = packet_bytes - 36 - payload.len();
            burst.push_with(32, payload, pad + 4, |head, tail| {
                header.emit(head);
                let (pad, trailer) = tail.split_at_mut(pad);
                pad.fill(0);
                Seal::Icrc.emit_trailer(&header, &[head, payload, pad], trailer);
            });
        }
    }
    assert_eq!(from.send(0, &burst).unwrap(), lengths.len());
    receive(to, lengths.len())
}

#[test]
#[cfg(target_os = "linux")]
fn trailers_become_icrcs_that_cover_the_headers_as_they_arrive() {
    use lacuna_wire::IcrcFlow;

    let v6 = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0);
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
    for local in [LOCALHOST, v6, any] {
        for (sending, receiving) in [
            (Offload::Auto, Offload::Auto),
            (Offload::Auto, Offload::Plain),
            (Offload::Plain, Offload::Auto),
            (Offload::Plain, Offload::Plain),
        ] {
            let bind = |offload| Udp::bind(UdpConfig { offload, ..UdpConfig::new(local) }).unwrap();
            let (mut a, mut b) = (bind(sending), bind(receiving));
            b.tell_local();
            // Of the connected socket, which would give other identifications.
            for _ in 0..100 {
                let to = SocketAddr::new(
                    match local.ip() {
                        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                        ip => ip,
                    },
                    b.local_addr().port(),
                );
                send(&mut a, to, &[vec![1; 10]]);
                receive(&mut b, 1);
            }
            let lengths = [vec![1400; 50], vec![1399, 4, 0, 1400], vec![4096; 20]].concat();
            let batches = with_icrcs(&mut a, &mut b, &lengths);
            let destination = SocketAddr::new(
                match local.ip() {
                    ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                    ip => ip,
                },
                b.local_addr().port(),
            );
            let mut packets = 0;
            for batch in &batches {
                let mut flow = IcrcFlow::new(batch.source, destination).unwrap();
                for packet in &batch.packets {
                    flow.check(packet).unwrap();
                    packets += 1;
                }
            }
            assert_eq!(packets, lengths.len(), "{local} {sending:?} {receiving:?}");
        }
    }
}
