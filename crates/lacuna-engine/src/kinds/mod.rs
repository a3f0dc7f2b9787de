//! The kinds of queue pairs: who understands the packets that go to one number.
//!
//! A kind has three parts. Its **lane** is an engine's own right to take the packets of a channel,
//! without a lock. Its **machine** is the books, under the queue pair's lock. Its **run** is packets that
//! the machine has given leave to send, which become bytes outside of the lock. The enums are closed:
//! the engine's loops match on them, so the first arm is inlined. A kind is no reliability mode: modes
//! say what is done about gaps, and are inside the kind SDR (`lacuna_proto::modes`).
//!
//! Adding a kind touches its folder here, an arm of each enum, and, if its packets look otherwise,
//! `lacuna_wire::Packet`.
//!
//! | kind | what it is | protocol |
//! |---|---|---|
//! | [`Machine::Reserved`], [`Machine::Probing`] | a number whose queue pair is not made yet | `lacuna_proto::probe` |
//! | [`Machine::Sdr`] | slots, records and reliability modes (SDR-RDMA) | `lacuna_proto::qp` |

mod early;
pub(crate) mod sdr;

pub use early::Early;

use lacuna_burst::Burst;
use lacuna_place::writer::ChannelWriter;
use lacuna_proto::probe::Prober;
use lacuna_proto::qp::{QueuePair, Transmit};
use lacuna_wire::DataHeader;

/// The right to take the packets of one channel of a queue pair, an engine's own.
#[derive(Debug)]
pub enum Lane {
    /// Packets that place themselves in slots.
    Sdr(ChannelWriter),
}

impl Lane {
    /// The channel whose packets it takes.
    pub fn channel(&self) -> u8 {
        match self {
            Self::Sdr(writer) => writer.channel(),
        }
    }
}

/// Who reacts to packets for a number, under its lock.
#[allow(
    clippy::large_enum_variant,
    reason = "the largest is what they all become, and best lies beside its lock"
)]
#[derive(Debug)]
pub enum Machine {
    /// Nobody yet: the number is taken, the peer's is not known.
    Reserved(Early),
    /// Finding the path before the queue pair is made.
    Probing(Box<Prober>, Early),
    /// A queue pair of slots; connected, or about to be.
    Sdr(QueuePair),
}

impl Machine {
    /// A reserved number's peer is known now.
    pub fn probe(&mut self, mut prober: Prober) {
        let early = self.take_early();
        early.show(&mut prober);
        *self = Self::Probing(Box::new(prober), early);
    }

    /// The queue pair is connected: it gets what came before.
    pub fn connect(&mut self, mut qp: QueuePair) {
        self.take_early().hand_to(&mut qp);
        *self = Self::Sdr(qp);
    }

    fn take_early(&mut self) -> Early {
        match self {
            Self::Reserved(early) | Self::Probing(_, early) => std::mem::take(early),
            Self::Sdr(_) => Early::default(),
        }
    }

    /// Takes a control packet that came to `channel` at `came_ns`.
    #[inline]
    pub(crate) fn on_control(
        &mut self,
        came_ns: u64,
        channel: u8,
        body: &[u8],
        packet_bytes: usize,
    ) -> Told {
        match self {
            Self::Sdr(qp) => sdr::on_control(qp, came_ns, channel, body, packet_bytes),
            Self::Reserved(early) => {
                early.keep(came_ns, channel, body, packet_bytes);
                Told::default()
            }
            Self::Probing(prober, early) => {
                prober.on_control(came_ns, channel, body, packet_bytes);
                early.keep(came_ns, channel, body, packet_bytes);
                Told { is_newest: true, has_queued: false }
            }
        }
    }
}

/// What a control packet did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// It is the peer's newest, so it came from where the peer is now.
    pub(crate) is_newest: bool,
    /// Data waits to be sent.
    pub(crate) has_queued: bool,
}

/// Packets that a queue pair may send, in order, on one channel.
#[derive(Debug)]
pub(crate) enum Run {
    Sdr(Transmit),
}

impl Run {
    /// Packets.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Sdr(run) => run.len(),
        }
    }

    /// Whether its packets may say that their sender answers to congestion marks.
    #[inline]
    pub(crate) fn takes_marks(&self) -> bool {
        match self {
            Self::Sdr(run) => run.takes_marks(),
        }
    }

    /// Whether its packets take time to be worked out ([`Run::prepare`]).
    #[inline]
    pub(crate) fn is_parity(&self) -> bool {
        match self {
            Self::Sdr(run) => run.is_parity(),
        }
    }

    /// Works its packets out.
    pub(crate) fn prepare(&self) {
        match self {
            Self::Sdr(run) => run.prepare(),
        }
    }

    /// Its channel, and one past the sequence number of its last packet.
    #[inline]
    pub(crate) fn end(&self) -> (u8, u64) {
        match self {
            Self::Sdr(run) => (run.channel(), run.psn_end()),
        }
    }

    /// Tells the headers of its packets from `next` on.
    pub(crate) fn headers_from(&self, next: usize, each: impl FnMut(DataHeader)) {
        match self {
            Self::Sdr(run) => run.headers_from(next).for_each(each),
        }
    }

    /// Puts its packets from `next` on into the burst, of `waiting` in the queue. Returns `false` if
    /// the burst has no room for more.
    #[inline]
    pub(crate) fn fill<'p>(
        &'p self,
        next: usize,
        burst: &mut Burst<'_, 'p>,
        waiting: usize,
    ) -> bool {
        match self {
            Self::Sdr(run) => sdr::fill(run, next, burst, waiting),
        }
    }
}
