//! Credit: divides the receive buffers of this context's sockets among its queue pairs.
//!
//! Credit counts bytes as the receiving kernel does ([`lacuna_path::ledger::charge`]). A sender
//! that stays within its credit overflows no socket, however late the receiver reads, so on a path
//! without loss no packet is lost in the receiving host.

/// Part of a socket's buffer that is given out as credit, in eighths. Linux returns freed space to
/// a socket only in steps of a quarter of the buffer, unless the queue is empty
/// (`udp_rmem_release`, `forward_threshold`), so two eighths may count as used when they are free.
/// The last eighth is for control packets.
const GIVEN_OUT_EIGHTHS: u64 = 5;

/// Credit of one queue pair: one of `shares` equal parts of a socket's receive buffer.
pub(crate) fn part(receive_buffer_bytes: usize, shares: u32) -> u32 {
    let held = receive_buffer_bytes as u64 * GIVEN_OUT_EIGHTHS / 8;
    (held / u64::from(shares)).min(u64::from(u32::MAX)) as u32
}

/// Number of parts for `count` queue pairs: `count` up to 16, then the next power of two, so that
/// not every one of thousands of new queue pairs changes the credit of all others.
pub(crate) fn shares(count: usize) -> u32 {
    const EXACT_MAX: usize = 16;
    let shares = if count <= EXACT_MAX { count.max(1) } else { count.next_power_of_two() };
    u32::try_from(shares).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_datapath::{
        BurstBuffers, Datapath, Offload, Placer, ReceivedBatch, Udp, UdpConfig, Waiter,
    };
    use lacuna_path::ledger::charge;
    use std::net::{Ipv4Addr, SocketAddr};

    struct Ignored;

    impl Placer for Ignored {
        fn on_packets(&mut self, _batch: ReceivedBatch<'_>) {}
    }

    fn send(from: &mut Udp, to: SocketAddr, packets: usize, bytes: usize) {
        let payload = vec![0; bytes];
        let mut buffers = BurstBuffers::new();
        for _ in 0..packets {
            let mut burst = buffers.start(to);
            burst.push(&[0], &payload[1..], &[]);
            while from.send(0, &burst).unwrap() == 0 {}
        }
    }

    #[test]
    fn a_socket_that_is_never_empty_holds_all_that_was_given_out() {
        for offload in [Offload::Auto, Offload::Plain] {
            for bytes in [100, 1_436, 4_136, 8_232, 60_000] {
                let config = UdpConfig {
                    receive_buffer_bytes: 1 << 20,
                    offload,
                    ..UdpConfig::new((Ipv4Addr::LOCALHOST, 0).into())
                };
                let (mut from, mut to) = (Udp::bind(config).unwrap(), Udp::bind(config).unwrap());
                let credit = part(to.capabilities().receive_buffer_bytes, 1);
                let window = (u64::from(credit) / charge(1, bytes as u64)) as usize;
                let rounds = 4 * window;
                let addr = to.local_addr();
                send(&mut from, addr, window, bytes);
                let (mut received, mut sent) = (0, window);
                let (mut waiter, _waker) = Waiter::new().unwrap();
                while received < rounds {
                    let some = to.receive(0, &mut Ignored).unwrap();
                    if some == 0 {
                        assert_eq!(to.receive_drops(), 0, "{offload:?}, {bytes} bytes");
                        waiter.wait([&to as &dyn Datapath], None).unwrap();
                    }
                    received += some;
                    let more = some.min(rounds - sent);
                    send(&mut from, addr, more, bytes);
                    sent += more;
                }
                assert_eq!(to.receive_drops(), 0, "{offload:?}, {bytes} bytes");
            }
        }
    }

    #[test]
    fn parts_do_not_change_with_each_of_thousands() {
        assert_eq!((0..4).map(shares).collect::<Vec<_>>(), [1, 1, 2, 3]);
        assert_eq!((shares(16), shares(17), shares(1000), shares(1024)), (16, 32, 1024, 1024));
        assert_eq!((part(800, 1), part(800, 5)), (500, 100));
    }
}
