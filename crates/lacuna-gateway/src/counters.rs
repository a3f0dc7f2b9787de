//! What a gateway did, in numbers.

use lacuna_lowar::{AutoCounters, DecoderCounters, EncoderCounters, Reason};

/// What a gateway did.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Frames from the local network.
    pub local_frames: u64,
    /// Frames from the path.
    pub remote_frames: u64,
    /// Frames that are no packets of a reliable connection.
    pub other_frames: u64,
    /// Packets of flows with state whose ICRC was wrong; they passed.
    pub bad_icrc: u64,
    /// Packets that went through an encoder.
    pub packets_coded: u64,
    /// Repairs and announcements that came for no flow, and were dropped.
    pub repairs_without_flow: u64,
    /// Frames that would have been longer than the path's MTU, and were not made.
    pub frames_too_long: u64,
    /// Flows to the path, and from it, that have state.
    pub flows: (u64, u64),
    /// Flows that had to go for others.
    pub flows_evicted: u64,
    /// What encoders did.
    pub repairs_sent: u64,
    /// Bytes of repairs, header and sum.
    pub repair_bytes: u64,
    /// Announcements to the path.
    pub announcements_sent: u64,
    /// Retransmissions that encoders saw.
    pub restarts: u64,
    /// What decoders did.
    pub received: DecoderCounters,
    /// Strengths that the far gateway was asked for.
    pub requests_sent: u64,
    /// Strengths that the far gateway asked for.
    pub requests_received: u64,
    /// Those of them that were granted.
    pub requests_granted: u64,
    /// Of the choice of strengths, if it is on.
    pub auto: AutoCounters,
    /// The strength that was chosen for the pair of addresses whose packets came last from the path, and why.
    pub chosen: Option<Reason>,
    /// The last round trip that was measured or given; zero if none was.
    pub round_trip_ns: u64,
}

/// Adds what another encoder did.
pub(crate) fn add_sent(sum: &mut EncoderCounters, other: &EncoderCounters) {
    sum.repairs_sent += other.repairs_sent;
    sum.repair_bytes += other.repair_bytes;
    sum.announcements_sent += other.announcements_sent;
    sum.blocks_coded += other.blocks_coded;
    sum.blocks_uncoded += other.blocks_uncoded;
    sum.blocks_cut += other.blocks_cut;
    sum.restarts += other.restarts;
}
