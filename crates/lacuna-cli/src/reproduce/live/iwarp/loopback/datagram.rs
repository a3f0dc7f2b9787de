//! Datagram queue pairs between two threads, each of which makes its own progress.

use super::{End, Ends, Kind, TURN};
use lacuna::datagram::{
    Done, Operation, PeerId, QueuePair, RecvWork, SendWork, Settings, Target, Verb,
};
use lacuna::{Context, ContextConfig, Progress, Region, RegionOptions, Rights, SendBuffer};
use lacuna_reproduce::iwarp::loopback::{Waiting, Way};
use std::fmt::Display;
use std::net::Ipv4Addr;

/// Packets of jumbo frames, as the paper's cards had them: 9,000 bytes without the headers of IPv4 and UDP.
pub(in crate::reproduce::live::iwarp) const PACKET_BYTES: usize = 8972;
/// Memory of an end for messages that come, and places in it.
const MEMORY_BYTES: usize = 32 << 20;
const PLACES_MAX: usize = 1024;
/// Bytes of messages that are posted and not handed to the network.
const AHEAD_BYTES: usize = 1 << 20;

struct DatagramEnd {
    qp: QueuePair,
    peer: PeerId,
    data: SendBuffer,
    /// Where Write-Records go.
    to: Option<Target>,
    region: Region,
    places: usize,
    waiting: Waiting,
    sent: u64,
    /// Messages that were posted and not handed to the network, and how many there may be; `None` if nobody asks.
    ahead: Option<(usize, usize)>,
}

pub(super) fn open(kind: Kind) -> Result<Ends, String> {
    let places = (MEMORY_BYTES / kind.message_bytes).clamp(4, PLACES_MAX);
    let end = || -> Result<(QueuePair, Region), String> {
        let config = ContextConfig { progress: Progress::Manual, ..ContextConfig::default() };
        let context = Context::new(config).map_err(text)?;
        let options = RegionOptions { rights: Rights::REMOTE_WRITE, ..RegionOptions::default() };
        let region =
            context.register(vec![0; kind.message_bytes * places], options).map_err(text)?;
        let settings = Settings {
            bind: Ipv4Addr::LOCALHOST.into(),
            packet_bytes: PACKET_BYTES,
            ..Settings::default()
        };
        Ok((context.datagram_queue_pair(&settings).map_err(text)?, region))
    };
    let (near, far) = (end()?, end()?);
    let [near_key, far_key] = [&near, &far].map(|(_, region)| region.key());
    let [near_address, far_address] = [&near, &far].map(|(qp, _)| qp.local_addr());
    let make = |(qp, region): (QueuePair, Region), other, key| {
        let peer = qp.peer(other).ok_or("a queue pair has no place for its peer")?;
        let is_send = kind.way == Way::Send;
        let end = DatagramEnd {
            qp,
            peer,
            data: SendBuffer::from(vec![0x5a; kind.message_bytes]),
            to: (!is_send).then_some(Target { key, offset: 0 }),
            region,
            places,
            waiting: kind.waiting,
            sent: 0,
            ahead: kind.is_flow.then(|| (0, (AHEAD_BYTES / kind.message_bytes).clamp(2, 256))),
        };
        if is_send {
            (0..places as u64).try_for_each(|id| end.post(id))?;
        }
        Ok::<Box<dyn End>, String>(Box::new(end))
    };
    Ok((make(near, far_address, far_key)?, make(far, near_address, near_key)?))
}

fn text(error: impl Display) -> String {
    error.to_string()
}

impl DatagramEnd {
    fn post(&self, id: u64) -> Result<(), String> {
        let bytes = self.data.len() as u64;
        let into = self.region.slice(id * bytes..(id + 1) * bytes).map_err(text)?;
        self.qp.post_recv(RecvWork { id, into }).map_err(text)
    }

    fn next(&self) -> Option<Done> {
        match self.waiting {
            Waiting::Polling => self.qp.poll(),
            Waiting::Blocking => self.qp.wait(TURN),
        }
    }

    /// Bytes that came with a completion.
    fn on_done(&mut self, done: &Done) -> Result<u64, String> {
        done.status.map_err(text)?;
        match done.operation {
            Operation::Receive => {
                self.post(done.id)?;
                Ok(done.bytes)
            }
            Operation::Record => Ok(done.bytes),
            _ => {
                if let Some((ahead, _)) = &mut self.ahead {
                    *ahead = ahead.saturating_sub(1);
                }
                Ok(0)
            }
        }
    }
}

impl End for DatagramEnd {
    fn send(&mut self) -> Result<(), String> {
        let data = self.data.clone();
        let place = self.sent % self.places as u64;
        let verb = match self.to {
            None => Verb::Send { data },
            Some(to) => {
                let offset = place * self.data.len() as u64;
                Verb::WriteRecord { data, to: Target { offset, ..to } }
            }
        };
        let is_signaled = self.ahead.is_some();
        let work = SendWork { is_signaled, ..SendWork::new(self.sent, self.peer, verb) };
        self.qp.post_send(work).map_err(text)?;
        self.sent += 1;
        match &mut self.ahead {
            None => {
                self.qp.progress();
            }
            Some((ahead, _)) => *ahead += 1,
        }
        while self.ahead.is_some_and(|(ahead, most)| ahead >= most) {
            match self.next() {
                Some(done) => {
                    self.on_done(&done)?;
                }
                // The socket's buffer is full.
                None => std::thread::yield_now(),
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Result<u64, String> {
        match self.next() {
            Some(done) => self.on_done(&done),
            None => Ok(0),
        }
    }
}
