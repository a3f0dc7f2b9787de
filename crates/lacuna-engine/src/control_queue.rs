//! Control packets that wait to be sent on a channel.
//!
//! One step may produce many, one for each queue pair that it served. Those to one peer leave in
//! one system call, as a bundle where their sizes are equal.

use crate::packetize::Refused;
use core::net::SocketAddr;
use lacuna_burst::{Burst, BurstBuffers, Datapath, SendError};

/// Packets that may wait.
const PACKETS_MAX: usize = 64;

/// The control packets of one channel, all to one destination.
#[derive(Debug)]
pub(crate) struct ControlQueue {
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
    /// End of each packet in `bytes`, and the number of the queue pair that sends it.
    ends: Vec<(usize, u32)>,
    buffers: BurstBuffers,
    refused: Refused,
}

impl ControlQueue {
    pub(crate) fn new() -> Self {
        const { assert!(PACKETS_MAX <= Burst::PACKETS_MAX) };
        Self {
            to: None,
            bytes: Vec::new(),
            ends: Vec::new(),
            buffers: BurstBuffers::new(),
            refused: Refused::default(),
        }
    }

    /// Packets that the datapath refused.
    pub(crate) fn refused(&mut self) -> &mut Refused {
        &mut self.refused
    }

    /// Adds a packet of a queue pair. Sends those before it first if they have another destination or
    /// are too many. Returns the bytes that will leave, which may still be changed.
    pub(crate) fn push(
        &mut self,
        now_ns: u64,
        datapath: &mut dyn Datapath,
        to: SocketAddr,
        (number, packet): (u32, &[u8]),
    ) -> &mut [u8] {
        if self.to != Some(to) || self.ends.len() == PACKETS_MAX {
            self.flush(now_ns, datapath);
            self.to = Some(to);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        self.ends.push((self.bytes.len(), number));
        &mut self.bytes[start..]
    }

    /// Sends all. Control packets carry state and are repeated, so those that the datapath cannot
    /// take now are dropped.
    pub(crate) fn flush(&mut self, now_ns: u64, datapath: &mut dyn Datapath) {
        let Some(to) = self.to.take() else { return };
        let mut burst = self.buffers.start(to);
        // Not ECN-capable, so that a path which loses ECN-capable packets shows: control packets
        // pass and data do not.
        burst.refuse_marks();
        let mut start = 0;
        let mut left = self.ends.len();
        for (end, _) in &self.ends {
            burst.push(&[], &self.bytes[start..*end], &[]);
            start = *end;
        }
        while !burst.is_empty() {
            match datapath.send(now_ns, &burst) {
                Ok(0) => break,
                Ok(sent) => {
                    burst.advance(sent);
                    left -= sent;
                }
                Err(error) => {
                    tracing::debug!(%to, %error, "control packet refused");
                    self.refused.packets += 1;
                    let (_, number) = self.ends[self.ends.len() - left];
                    if let SendError::PacketTooLarge { packet_bytes } = error {
                        self.refused.too_large.push((number, packet_bytes));
                    }
                    burst.advance(1);
                    left -= 1;
                }
            }
        }
        self.bytes.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_burst::{Placer, ReceivedBatch};
    use lacuna_datapath::{Mem, MemNetwork};

    #[derive(Default)]
    struct Seen(Vec<Vec<u8>>);

    impl Placer for Seen {
        fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
            self.0.extend(batch.packets().map(<[u8]>::to_vec));
        }
    }

    fn bind(network: &MemNetwork, port: u16) -> Mem {
        network.bind(SocketAddr::from(([127, 0, 0, 1], port)), 1 << 20).unwrap()
    }

    fn received(datapath: &mut dyn Datapath) -> Vec<Vec<u8>> {
        let mut seen = Seen::default();
        while datapath.receive(0, &mut seen).unwrap() > 0 {}
        seen.0
    }

    #[test]
    fn packets_to_one_peer_wait_for_each_other_and_keep_their_order() {
        let network = MemNetwork::new();
        let mut here = bind(&network, 1);
        let (mut one, mut other) = (bind(&network, 2), bind(&network, 3));
        let mut queue = ControlQueue::new();
        queue.push(0, &mut here, one.local_addr(), (1, &[1; 8]));
        queue.push(0, &mut here, one.local_addr(), (1, &[2; 12]));
        assert!(received(&mut one).is_empty());
        queue.push(0, &mut here, other.local_addr(), (1, &[3; 8]));
        assert_eq!(received(&mut one), [vec![1; 8], vec![2; 12]]);
        queue.flush(0, &mut here);
        queue.flush(0, &mut here);
        assert_eq!(received(&mut other), [vec![3; 8]]);
        assert!(received(&mut one).is_empty());
    }

    #[test]
    fn what_the_datapath_refuses_is_counted() {
        use lacuna_datapath::testing::Hooked;
        let network = MemNetwork::new();
        let (here, mut there) = (bind(&network, 1), bind(&network, 2));
        let mut is_refused = false;
        let mut here = Hooked::new(Box::new(here), move |inner, now_ns, burst| {
            // Refuses every other packet, as a firewall may.
            is_refused = !is_refused;
            match is_refused {
                true => Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied).into()),
                false => inner.send(now_ns, burst).map(|_| 1),
            }
        });
        let mut queue = ControlQueue::new();
        for _ in 0..2 {
            queue.push(0, &mut here, there.local_addr(), (1, &[1; 8]));
        }
        queue.flush(0, &mut here);
        assert_eq!((queue.refused().packets, received(&mut there).len()), (1, 1));
    }

    #[test]
    fn no_more_wait_than_a_burst_holds() {
        let network = MemNetwork::new();
        let (mut here, mut there) = (bind(&network, 1), bind(&network, 2));
        let mut queue = ControlQueue::new();
        for _ in 0..=PACKETS_MAX {
            queue.push(0, &mut here, there.local_addr(), (1, &[1; 8]));
        }
        assert_eq!(received(&mut there).len(), PACKETS_MAX);
    }
}
