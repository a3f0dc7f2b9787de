//! A source that sends messages to a target, one behind the other at a rate, over a path that loses, in virtual time:
//! two datagram queue pairs ([`lacuna_datagram::Endpoint`]) and a [`lacuna_link::Pipe`] between them.
//!
//! Unreliable messages are not repaired, so nothing travels back; of reliable ones acknowledgements do, and are lost as
//! often. The rate is of packets with their IP and UDP headers. What came is
//! what the target's completions say.

use lacuna_datagram::{
    Config, Done, Endpoint, Operation, RecvWork, ReliableConfig, Run, SendWork, Target,
};
use lacuna_link::{Faults, Fraction, Loss, Pipe, PipeConfig, Schedule};
use lacuna_path::controller::ControllerConfig;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::{Access, KeyTable, Region, RegionConfig, Rights, Scope, Slices, Stride};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// UDP payload of a packet: Ethernet's 1,500 bytes without the headers of IPv4 and UDP.
const PACKET_BYTES: usize = 1472;
/// Messages that wait to be sent, so that the rate is the only limit.
const WAITING: usize = 4;
/// Bytes of reliable messages that were not acknowledged, at most, and how many messages that may be.
const UNACKNOWLEDGED_BYTES: usize = 4 << 20;
const UNACKNOWLEDGED_MAX: usize = 512;
/// Packets that leave together.
const BURST_PACKETS: usize = 8;
/// Memory of the target, and receives in it at most.
const TARGET_BYTES: u64 = 64 << 20;
const RECEIVES_MAX: u64 = 1024;
/// One way; to unreliable messages, which nobody answers, it changes nothing.
const DELAY_NS: u64 = 1_000_000;
/// How many events are gone through before it is asked again whether to stop.
const ASK_EVERY: u32 = 4096;

/// How messages go to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Into receives: whole, or not at all.
    Send,
    /// Into memory, which records what came.
    WriteRecord,
}

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stream {
    /// How.
    pub verb: Verb,
    /// Whether each message is sent until it has come (RD).
    pub reliable: bool,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Of the source, headers included.
    pub rate_bits_per_s: u64,
    /// Share of packets that are lost, independently.
    pub loss: f64,
    /// How long messages are begun.
    pub duration_ns: u64,
    /// Of the losses.
    pub seed: u64,
}

/// What came of the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Came {
    /// Messages that were sent, and those that came whole and in part.
    pub messages: u64,
    /// See there.
    pub whole: u64,
    /// See there.
    pub partial: u64,
    /// Bytes of all messages.
    pub offered_bytes: u64,
    /// Bytes that the target knows to be there.
    pub placed_bytes: u64,
    /// Packets, and those of them that the path lost.
    pub packets: u64,
    /// See there.
    pub lost_packets: u64,
    /// When the last packet had left, or the last reliable message had come.
    pub sent_ns: u64,
}

impl Came {
    /// Payload that the target has, over the time in which all was sent.
    #[must_use]
    pub fn goodput_bits_per_s(&self) -> f64 {
        self.placed_bytes as f64 * 8.0 * 1e9 / self.sent_ns.max(1) as f64
    }
}

struct World {
    stream: Stream,
    source: Endpoint,
    target: Endpoint,
    region: Arc<Region>,
    key: u32,
    pipe: Pipe,
    in_flight: Schedule<()>,
    /// The way back.
    back: (Pipe, Schedule<()>),
    /// When the last packet that was handed out has left.
    free_ns: u64,
    came: Came,
}

impl Stream {
    /// Runs it to its end; `None` if it was told to stop.
    ///
    /// # Panics
    /// When the loss is no probability, or the rate is 0.
    #[must_use]
    pub fn run(&self, stop: &dyn Fn() -> bool) -> Option<Came> {
        World::new(*self).run(stop)
    }

    /// Messages that may wait.
    fn waiting(&self) -> usize {
        let many = UNACKNOWLEDGED_BYTES / (self.message_bytes as usize).max(1);
        if self.reliable { many.clamp(WAITING, UNACKNOWLEDGED_MAX) } else { WAITING }
    }

    fn loss(&self) -> Loss {
        if self.loss > 0.0 { Loss::Independent(Fraction::from_f64(self.loss)) } else { Loss::None }
    }
}

fn address(host: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 7407))
}

impl World {
    fn new(stream: Stream) -> Self {
        let keys = Arc::new(KeyTable::new(stream.seed));
        let size = u64::from(stream.message_bytes.max(1));
        let receives = (TARGET_BYTES / size).clamp(8, RECEIVES_MAX);
        let memory = vec![0; (size * receives) as usize];
        let config = RegionConfig { has_validity: false, is_exclusive: false };
        let region = Region::new(memory, config);
        let access = Access { rights: Rights::REMOTE_WRITE, scope: Scope::Any };
        let key =
            keys.register(&region, 0..region.len(), access, || 1).expect("an empty table has room");
        let config = Config {
            packet_bytes_max: PACKET_BYTES,
            rate_bits_per_s: Some(stream.rate_bits_per_s),
            reliable: stream.reliable.then(|| ReliableConfig {
                controller: ControllerConfig::Fixed { rate_bits_per_s: stream.rate_bits_per_s },
                ..ReliableConfig::default()
            }),
            ..Config::default()
        };
        let mut target = Endpoint::new(config, keys, stream.seed);
        if stream.verb == Verb::Send {
            for id in 0..receives {
                post(&mut target, &region, size, id);
            }
        }
        let source = Endpoint::new(config, Arc::new(KeyTable::new(0)), stream.seed + 1);
        let path = PipeConfig { delay_ns: DELAY_NS, loss: stream.loss(), ..PipeConfig::default() };
        Self {
            back: (Pipe::new(path.clone(), stream.seed, 1), Schedule::default()),
            pipe: Pipe::new(path, stream.seed, 0),
            stream,
            source,
            target,
            region,
            key,
            in_flight: Schedule::default(),
            free_ns: 0,
            came: Came::default(),
        }
    }

    fn run(mut self, stop: &dyn Fn() -> bool) -> Option<Came> {
        let peer = self.source.peer(address(2))?;
        let data = SendBuffer::from(vec![0x5a; self.stream.message_bytes as usize]);
        let places = self.region.len() / u64::from(self.stream.message_bytes.max(1));
        let (mut now_ns, mut events) = (0, 0u32);
        let mut runs = Vec::new();
        loop {
            events = events.wrapping_add(1);
            if events.is_multiple_of(ASK_EVERY) && stop() {
                return None;
            }
            while now_ns < self.stream.duration_ns
                && self.source.stats().messages_waiting < self.stream.waiting()
            {
                let id = self.came.messages;
                let offset = id % places.max(1) * u64::from(self.stream.message_bytes);
                let data = data.clone();
                let verb = match self.stream.verb {
                    Verb::Send => lacuna_datagram::Verb::Send { data },
                    Verb::WriteRecord => lacuna_datagram::Verb::WriteRecord {
                        data,
                        to: Target { key: self.key, offset },
                    },
                };
                let work = SendWork { is_signaled: false, ..SendWork::new(id, peer, verb) };
                self.source.post_send(now_ns, work).ok()?;
                self.came.messages += 1;
                self.came.offered_bytes += u64::from(self.stream.message_bytes);
            }
            if self.source.poll_transmit(now_ns, BURST_PACKETS, &mut runs).is_some() {
                for run in runs.drain(..) {
                    for at in 0..run.len() {
                        let bytes = run.packet_bytes(at);
                        self.pass(now_ns, bytes, |packet| {
                            packet.resize(bytes, 0);
                            let written = run.emit(at, packet);
                            packet.truncate(written);
                        });
                    }
                }
                continue;
            }
            if self.target.poll_transmit(now_ns, BURST_PACKETS, &mut runs).is_some() {
                for run in runs.drain(..) {
                    (0..run.len()).for_each(|at| self.answer(now_ns, &run, at));
                }
                continue;
            }
            let times = [
                self.source.poll_timeout(),
                self.target.poll_timeout(),
                self.in_flight.next_ns(),
                self.back.1.next_ns(),
            ];
            let Some(next_ns) = times.into_iter().flatten().min() else { break };
            now_ns = now_ns.max(next_ns);
            while let Some(index) = self.in_flight.pop_due(now_ns) {
                let packet = &self.in_flight.packet(index).bytes;
                self.target.on_datagram(now_ns, address(1), packet);
                self.in_flight.remove(index);
            }
            while let Some(index) = self.back.1.pop_due(now_ns) {
                let packet = &self.back.1.packet(index).bytes;
                self.source.on_datagram(now_ns, address(2), packet);
                self.back.1.remove(index);
            }
            self.source.on_timeout(now_ns);
            self.target.on_timeout(now_ns);
            while let Some(done) = self.target.poll_done() {
                self.count(&done);
                self.came.sent_ns = now_ns;
            }
        }
        if !self.stream.reliable {
            self.came.sent_ns = self.free_ns;
        }
        Some(self.came)
    }

    /// A packet leaves; `fill` writes it if the path does not lose it.
    fn pass(&mut self, now_ns: u64, bytes: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        let charge = self.pipe.charge_bytes(bytes as u64);
        let takes_ns = charge * 8_000_000_000 / self.stream.rate_bits_per_s;
        self.free_ns = self.free_ns.max(now_ns) + takes_ns;
        self.came.packets += 1;
        let faults: Faults = self.pipe.draw(bytes as u64);
        if faults.is_lost {
            self.came.lost_packets += 1;
        } else if let Some(passed) = self.pipe.pass(now_ns, bytes as u64, &faults) {
            self.in_flight.insert(passed.release_ns, (), fill);
        }
    }

    /// A packet of the target leaves.
    fn answer(&mut self, now_ns: u64, run: &Run, at: usize) {
        let bytes = run.packet_bytes(at);
        let (pipe, in_flight) = &mut self.back;
        let faults = pipe.draw(bytes as u64);
        let passed = if faults.is_lost { None } else { pipe.pass(now_ns, bytes as u64, &faults) };
        if let Some(passed) = passed {
            in_flight.insert(passed.release_ns, (), |packet| {
                packet.resize(bytes, 0);
                let written = run.emit(at, packet);
                packet.truncate(written);
            });
        }
    }

    fn count(&mut self, done: &Done) {
        let Some(arrived) = &done.arrived else { return };
        self.came.placed_bytes += done.bytes;
        match done.bytes == u64::from(arrived.length) {
            true => self.came.whole += 1,
            false => self.came.partial += 1,
        }
        if done.operation == Operation::Receive {
            post(&mut self.target, &self.region, self.stream.message_bytes.into(), done.id);
        }
    }
}

/// Posts the receive of a place.
fn post(target: &mut Endpoint, region: &Arc<Region>, size: u64, id: u64) {
    let range = id * size..(id + 1) * size;
    let into = Slices::new([(region.clone(), Stride::of_range(range))]).expect("in the region");
    target.post_recv(0, RecvWork { id, into }).expect("it is open");
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream {
        verb: Verb::WriteRecord,
        reliable: false,
        message_bytes: 100_000,
        rate_bits_per_s: 500_000_000,
        loss: 0.0,
        duration_ns: 100_000_000,
        seed: 7,
    };

    #[test]
    fn without_loss_all_comes_at_the_rate_with_both_verbs() {
        for verb in [Verb::Send, Verb::WriteRecord] {
            let came = Stream { verb, ..STREAM }.run(&|| false).expect("not stopped");
            assert!(came.messages > 50 && came.partial == 0, "{came:?}");
            assert_eq!((came.whole, came.placed_bytes), (came.messages, came.offered_bytes));
            // Headers take 62 of 1,500 bytes, or 50.
            let share = came.goodput_bits_per_s() / 500e6;
            assert!((0.94..0.97).contains(&share), "{verb:?}: {share}");
        }
    }

    #[test]
    fn a_write_record_keeps_what_was_not_lost_and_a_send_only_what_is_whole() {
        let lossy = Stream { loss: 0.01, ..STREAM };
        let came = lossy.run(&|| false).expect("not stopped");
        let kept = came.placed_bytes as f64 / came.offered_bytes as f64;
        let lost = came.lost_packets as f64 / came.packets as f64;
        assert!((kept - (1.0 - lost)).abs() < 0.002, "{kept} of 1 - {lost}");
        assert!(came.partial > 0 && came.whole < came.messages);
        let sent = Stream { verb: Verb::Send, ..lossy }.run(&|| false).expect("not stopped");
        assert_eq!(sent.placed_bytes, sent.whole * 100_000);
        assert!(sent.placed_bytes * 10 < came.placed_bytes * 9, "{sent:?}");
        assert_eq!(lossy.run(&|| false), Some(came), "the same seed");
        assert_eq!(lossy.run(&|| true), None);
    }

    #[test]
    fn a_reliable_message_comes_whole_and_costs_what_was_lost() {
        let rate = |loss| {
            let reliable = Stream { verb: Verb::Send, reliable: true, loss, ..STREAM };
            let came = reliable.run(&|| false).expect("not stopped");
            assert_eq!((came.whole, came.partial), (came.messages, 0), "{came:?}");
            came.goodput_bits_per_s()
        };
        let (lossless, lossy) = (rate(0.0), rate(0.02));
        assert!(lossless > 0.85 * 500e6, "{lossless}");
        assert!((0.85 * lossless..lossless).contains(&lossy), "{lossy} of {lossless}");
    }
}
