//! Links between the hosts of a [`Net`](super::Net): each way between two hosts is a
//! [`lacuna_link::Pipe`] of its own, with a rate and a queue, a delay, losses and the rest.

use super::{Flights, Packet, Sent, Wire};
use lacuna_link::{FaultGenerator, Pipe, PipeConfig};
use std::collections::BTreeMap;

/// The hosts at both ends of a link, sender first.
type Ends = (usize, usize);

/// See the module's text. Hosts without a link of their own are joined by the default one.
#[derive(Debug)]
pub struct Links {
    default: PipeConfig,
    seed: u64,
    /// Those that differ from the default or were used.
    pipes: BTreeMap<Ends, Pipe>,
    lost: u64,
    overflowed: u64,
}

impl Links {
    /// All hosts are joined by such links; `seed` draws what chance does on them.
    pub fn new(default: PipeConfig, seed: u64) -> Self {
        Self { default, seed, pipes: BTreeMap::new(), lost: 0, overflowed: 0 }
    }

    /// Joins one host to another by a link of its own, this way, for all that is sent from now on.
    pub fn set(&mut self, from: usize, to: usize, link: PipeConfig) {
        self.pipe((from, to)).change(link);
    }

    /// Packets that were not delivered, by chance or because a queue was full.
    pub fn dropped(&self) -> u64 {
        self.lost + self.overflowed
    }

    /// Those for which a queue had no room.
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// What waits in front of a link.
    pub fn waiting_bytes(&mut self, now_ns: u64, from: usize, to: usize) -> u64 {
        self.pipe((from, to)).waiting_bytes(now_ns)
    }

    fn pipe(&mut self, ends: Ends) -> &mut Pipe {
        self.pipes.entry(ends).or_insert_with(|| {
            let first_stream = ((ends.0 as u64) << 32 | ends.1 as u64) * FaultGenerator::STREAMS;
            Pipe::new(self.default.clone(), self.seed, first_stream)
        })
    }
}

impl Wire for Links {
    fn carry(&mut self, now_ns: u64, sent: Sent, flights: &mut Flights) {
        let Sent { from, to, takes_marks, mut packet } = sent;
        let packet_bytes = packet.len() as u64;
        let pipe = self.pipe((from.host, to.host));
        let faults = pipe.draw(packet_bytes);
        if faults.is_lost {
            self.lost += 1;
            return;
        }
        let Some(passed) = pipe.pass(now_ns, packet_bytes, &faults) else {
            self.overflowed += 1;
            return;
        };
        let (due_ns, is_marked) = (passed.release_ns, passed.is_marked && takes_marks);
        let copy = faults.is_duplicated.then(|| packet.clone());
        match (&mut packet, faults.flipped_bit) {
            // Its receiver's check would refuse it: that packet is lost.
            (Packet::Header(_), Some(_)) => self.lost += 1,
            (Packet::Bytes(bytes), Some(bit)) => {
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
                flights.fly(due_ns, from, to, packet, is_marked);
            }
            (_, None) => flights.fly(due_ns, from, to, packet, is_marked),
        }
        if let Some(copy) = copy {
            flights.fly(due_ns, from, to, copy, is_marked);
        }
    }
}
