//! The kinds of queue pairs: which protocol handles the packets for a number.
//!
//! A kind has three parts. Its **lane** lets one engine place the packets of one channel without a
//! lock. Its **machine** is the protocol's state, under the queue pair's lock. Its **run** is a
//! range of packets that the machine has released for sending; their bytes are made outside the
//! lock. The enums are closed: the engine's loops match on them, so the first arm is inlined. A
//! kind is not a reliability mode: modes decide about gaps, within the kind SDR
//! (`lacuna_proto::modes`).
//!
//! Adding a kind touches its file here, an arm of each enum, and the functions in which the engine
//! takes its packets (`intake.rs`: `placer`, `tell_placed`), gives it turns (`serve.rs`) and settles
//! it (`settle.rs`). Their matches name every kind, so the compiler finds them. If its packets have
//! another layout, `lacuna_wire::Packet` gets a variant, which `Intake::on_packets` handles.
//!
//! | kind | what it is | protocol |
//! |---|---|---|
//! | [`Machine::Reserved`], [`Machine::Probing`] | a number whose queue pair is not made yet | `lacuna_proto::probe` |
//! | [`Machine::Sdr`] | slots, records and reliability modes (SDR-RDMA) | `lacuna_proto::qp` |
//! | [`Machine::Rc`] | requests in order, go-back-N (InfiniBand) | `lacuna_rc` |

mod copying;
mod early;
mod rc;
pub(crate) mod sdr;
mod sealed;

pub use early::Early;
pub use rc::RcLane;
pub(crate) use rc::{LockedAnswers, RcPackets, RcRun};
pub(crate) use sealed::seal;

use lacuna_burst::{Burst, TrailerOffload};
use lacuna_place::writer::ChannelWriter;
use lacuna_proto::path_frames::PathFrames;
use lacuna_proto::probe::Prober;
use lacuna_proto::qp::{Failure, QueuePair, Transmit};
use lacuna_secure::association::Sealer;
use lacuna_wire::{ControlWriter, DataHeader, Frame, Seal};

/// An engine's exclusive access to the packets of one channel of a queue pair, without a lock.
#[allow(
    clippy::large_enum_variant,
    reason = "the larger one is what nearly all are, and its packets are placed without a detour"
)]
#[derive(Debug)]
pub enum Lane {
    /// Packets that are placed in slots.
    Sdr(ChannelWriter),
    /// Requests that are done in order. In a box, so that the others are no larger for it.
    Rc(Box<RcLane>),
}

impl Lane {
    /// Its channel.
    pub fn channel(&self) -> u8 {
        match self {
            Self::Sdr(writer) => writer.channel(),
            Self::Rc(lane) => lane.channel(),
        }
    }

    /// Whether its packets can only be checked with their destination.
    pub(crate) fn needs_local(&self) -> bool {
        match self {
            Self::Sdr(writer) => writer.seal() == Seal::Icrc,
            // Costs little, and its books, not the lane, know the seal.
            Self::Rc(_) => true,
        }
    }
}

/// The protocol state of a queue pair, under its lock.
#[allow(
    clippy::large_enum_variant,
    reason = "the largest is what they all become, and best lies beside its lock"
)]
#[derive(Debug)]
pub enum Machine {
    /// A reserved number whose peer is not known.
    Reserved(Early),
    /// Probing the path before the queue pair is made.
    Probing(Box<Prober>, Early),
    /// An SDR queue pair, connected or about to be.
    Sdr(QueuePair),
    /// A reliable connection.
    Rc(Box<lacuna_rc::QueuePair>),
}

impl Machine {
    /// Begins to probe: the peer of a reserved number is known.
    pub fn probe(&mut self, mut prober: Prober) {
        let early = self.take_early();
        early.copy_to(&mut prober);
        *self = Self::Probing(Box::new(prober), early);
    }

    /// The queue pair is connected: gives it the packets that arrived early.
    pub fn connect(&mut self, mut qp: QueuePair) {
        self.take_early().move_to(&mut qp);
        *self = Self::Sdr(qp);
    }

    fn take_early(&mut self) -> Early {
        match self {
            Self::Reserved(early) | Self::Probing(_, early) => std::mem::take(early),
            Self::Sdr(_) | Self::Rc(_) => Early::default(),
        }
    }

    /// Handles a control packet that arrived on `channel` at `came_ns`.
    #[inline]
    pub(crate) fn on_control(
        &mut self,
        came_ns: u64,
        channel: u8,
        body: &[u8],
        packet_bytes: usize,
    ) -> ControlEffects {
        match self {
            Self::Sdr(qp) => sdr::on_control(qp, came_ns, channel, body, packet_bytes),
            // A reliable connection has no control packets.
            Self::Rc(_) => ControlEffects::default(),
            Self::Reserved(early) => {
                early.keep(came_ns, channel, body, packet_bytes);
                ControlEffects::default()
            }
            Self::Probing(prober, early) => {
                prober.on_control(came_ns, channel, body, packet_bytes);
                early.keep(came_ns, channel, body, packet_bytes);
                let path_frames = prober.path_frames();
                ControlEffects { is_newest: true, has_queued: false, path_frames }
            }
        }
    }

    /// Writes a control packet with nothing but this frame, if the protocol has control packets and
    /// the peer is known.
    pub(crate) fn write_alone<'w>(
        &mut self,
        channel: u8,
        frame: &Frame<'_>,
        writer: &'w mut ControlWriter,
    ) -> Option<&'w [u8]> {
        match self {
            Self::Sdr(qp) => qp.write_alone(channel, frame, writer),
            Self::Probing(prober, _) => Some(prober.write_alone(channel, frame, writer)),
            Self::Reserved(_) | Self::Rc(_) => None,
        }
    }

    /// The round-trip time, as far as known.
    pub(crate) fn rtt_ns(&self) -> Option<u64> {
        match self {
            Self::Sdr(qp) => qp.rtt().smoothed_ns(),
            Self::Probing(prober, _) => prober.rtt().smoothed_ns(),
            Self::Rc(qp) => qp.rtt_ns(),
            Self::Reserved(_) => None,
        }
    }

    /// The key of its packets is used up. Nothing happens if it has failed before.
    pub(crate) fn on_key_spent(&mut self, packets: u64) {
        match self {
            Self::Sdr(qp) => qp.fail(Failure::KeySpent { packets }),
            Self::Rc(qp) => qp.fail(lacuna_rc::Failure::KeySpent { packets }),
            // What they become has the same keys, and fails then.
            Self::Reserved(_) | Self::Probing(..) => {}
        }
    }

    /// The packets of a channel go to another address from now on, of the same host or another one.
    pub(crate) fn on_path_moved(&mut self, now_ns: u64, channel: u8, is_other_host: bool) {
        if let Self::Sdr(qp) = self {
            qp.on_path_moved(now_ns, channel, is_other_host);
        }
    }
}

/// Effects of a control packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ControlEffects {
    /// It is newer than all before it, so the peer sends from its source now.
    pub(crate) is_newest: bool,
    /// Data wait to be sent.
    pub(crate) has_queued: bool,
    /// What it says of its path.
    pub(crate) path_frames: PathFrames,
}

/// Packets that a queue pair may send on one channel, in order.
#[derive(Debug)]
pub(crate) enum Run {
    Sdr(Transmit),
    /// In a box, so that the others are no larger for it.
    Rc(Box<RcRun>),
}

impl Run {
    /// Number of packets.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Sdr(run) => run.len(),
            Self::Rc(rc) => rc.len(),
        }
    }

    /// Whether its packets are marked as ECN-capable.
    #[inline]
    pub(crate) fn takes_marks(&self) -> bool {
        match self {
            Self::Sdr(run) => run.takes_marks(),
            Self::Rc(rc) => rc.takes_marks,
        }
    }

    /// What the datapath does to the trailers of its packets.
    #[inline]
    pub(crate) fn trailer(&self) -> TrailerOffload {
        match self {
            Self::Sdr(run) => trailer_of(run.seal()),
            Self::Rc(rc) => trailer_of(rc.seal),
        }
    }

    /// Whether its packets have to be computed first ([`Run::prepare`]).
    #[inline]
    pub(crate) fn is_parity(&self) -> bool {
        match self {
            Self::Sdr(run) => run.is_parity(),
            Self::Rc(_) => false,
        }
    }

    /// Computes its packets (parity).
    pub(crate) fn prepare(&self) {
        match self {
            Self::Sdr(run) => run.prepare(),
            Self::Rc(_) => {}
        }
    }

    /// Its channel, and the sequence number after its last packet.
    #[inline]
    pub(crate) fn end(&self) -> (u8, u64) {
        match self {
            Self::Sdr(run) => (run.channel(), run.psn_end()),
            Self::Rc(rc) => (rc.channel, 0),
        }
    }

    /// Calls `each` with the headers of its packets from `next` on.
    pub(crate) fn headers_from(&self, next: usize, each: impl FnMut(DataHeader)) {
        match self {
            Self::Sdr(run) => run.headers_from(next).for_each(each),
            Self::Rc(_) => {}
        }
    }

    /// Adds its packets from `next` on to the burst; `waiting` packets are in the queue. `false`
    /// once the burst has no room. The `sealer` is that of a queue pair whose packets are encrypted.
    #[inline]
    pub(crate) fn fill<'p>(
        &'p self,
        next: usize,
        burst: &mut Burst<'_, 'p>,
        waiting: usize,
        sealer: Option<Sealer<'_>>,
    ) -> bool {
        if let Some(mut sealer) = sealer {
            return match self {
                Self::Sdr(run) => sealed::fill_sdr(run, next, burst, waiting, &mut sealer),
                Self::Rc(rc) => sealed::fill_rc(rc, next, burst, waiting, &mut sealer),
            };
        }
        match self {
            Self::Sdr(run) => sdr::fill(run, next, burst, waiting),
            Self::Rc(rc) => rc::fill(rc, next, burst, waiting),
        }
    }

    /// Whether its packets can be handed out as headers, for a simulation without bytes.
    pub(crate) fn has_headers(&self) -> bool {
        matches!(self, Self::Sdr(_))
    }
}

fn trailer_of(seal: Seal) -> TrailerOffload {
    match seal {
        Seal::Crc32c | Seal::Aead => TrailerOffload::None,
        Seal::Icrc => TrailerOffload::Icrc,
    }
}
