//! The prober: before the queue pair exists, it finds the largest packet size that passes, whether
//! every channel passes packets, and the round-trip time.
//!
//! The connecting end sends probes padded to each candidate size, and the peer answers them. This
//! is packetization-layer path MTU discovery (RFC 8899), but with all candidates at once instead of
//! one after the other, because a connection waits for the result. Probes also open address
//! translations: the peer learns a channel's translated address from them.
//!
//! The peer learns this end's channels first, and sends probes of the largest size at once
//! (`qp/proof.rs`). If these arrive on every channel, the search is over: paths with different MTUs
//! in the two directions are rare, and the queue pair goes on to prove its own direction.

use crate::path_frames::PathFrames;
use crate::probe_rounds::ProbeRounds;
use lacuna_path::rtt::RttEstimator;
use lacuna_wire::{ControlBody, ControlHeader, ControlWriter, Frame, Probe, ProbeReply, Qpn, Seal};
use std::collections::VecDeque;

/// Payload sizes tried, largest first: 4 KiB (the paper's, on jumbo frames and
/// loopback), then what fits Ethernet's 1500 bytes over IPv4 and over IPv6,
/// common tunnels, and IPv6's smallest link (1280 bytes).
const MTU_CANDIDATES: [u32; 5] = [4096, 1436, 1412, 1360, 1192];

/// The same for packets with this seal: a longer trailer leaves less room in the packets that just
/// fit.
pub fn mtu_candidates(seal: Seal) -> [u32; 5] {
    let longer = (seal.bytes() - Seal::default().bytes()) as u32;
    MTU_CANDIDATES.map(|mtu_bytes| if mtu_bytes == 4096 { mtu_bytes } else { mtu_bytes - longer })
}

/// The candidates that fit an IP packet of `packet_bytes` with `header_bytes` of IP and UDP
/// headers; the smallest one in any case. All candidates if `packet_bytes` is not known.
pub fn candidates_within(packet_bytes: Option<u32>, header_bytes: u32, seal: Seal) -> Vec<u32> {
    let overhead = header_bytes + seal.overhead_bytes_max() as u32;
    let candidates = mtu_candidates(seal);
    let smallest = candidates[candidates.len() - 1];
    let limit = packet_bytes.map_or(u32::MAX, |bytes| bytes.saturating_sub(overhead)).max(smallest);
    candidates.into_iter().filter(|mtu_bytes| *mtu_bytes <= limit).collect()
}

/// After the first answer, larger sizes have this many round trips to be answered.
const SETTLE_RTTS: u64 = 3;
/// But at least this long: two more quick rounds, so that one probe that is lost or too early does
/// not decide the size for the connection's life.
const SETTLE_NS_MIN: u64 = 60_000_000;
/// Most replies waiting to be sent; a peer that asks for more is flooding.
const REPLIES_MAX: usize = 64;

/// State of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// Still searching.
    Pending,
    /// Packets with this payload pass on every channel.
    Settled {
        /// Payload bytes of a full packet.
        mtu_bytes: u32,
    },
    /// Some channels had no answer within the time limit.
    NoAnswer {
        /// Channels with an answer.
        answered: u32,
    },
}

/// A search for the packet size.
#[derive(Debug)]
pub struct Prober {
    /// This end's queue pair and control key.
    local: (u32, u32),
    /// The peer's queue pair and control key.
    peer: (u32, u32),
    /// The seal of all packets, its own as well as those that are to pass.
    seal: Seal,
    candidates: Vec<u32>,
    /// Rounds of probes; size n is candidate n.
    rounds: ProbeRounds,
    replies: VecDeque<(u8, ProbeReply)>,
    first_answer_ns: Option<u64>,
    /// Per channel: whether a probe of the largest size came from the peer.
    probed_full: Vec<bool>,
    peer_probed_ns: Option<u64>,
    rtt: RttEstimator,
    sequence: u32,
    /// What the control packet that came last says of its path.
    path_frames: PathFrames,
}

impl Prober {
    /// Probes from queue pair and key `local` to queue pair and key `peer`, with each of these
    /// payload sizes, the largest first, in packets with this seal.
    pub fn new(
        now_ns: u64,
        local: (u32, u32),
        peer: (u32, u32),
        channels: u8,
        (seal, candidates): (Seal, Vec<u32>),
        probe_timeout_ns: u64,
    ) -> Self {
        Self {
            local,
            peer,
            seal,
            rounds: ProbeRounds::new(now_ns, channels, candidates.len(), probe_timeout_ns),
            candidates,
            replies: VecDeque::new(),
            first_answer_ns: None,
            probed_full: vec![false; usize::from(channels)],
            peer_probed_ns: None,
            rtt: RttEstimator::default(),
            sequence: 0,
            path_frames: PathFrames::default(),
        }
    }

    /// The largest size that is tried.
    pub fn largest(&self) -> u32 {
        self.candidates.first().copied().unwrap_or(0)
    }

    /// How many channels there are.
    pub fn channels(&self) -> u8 {
        self.rounds.channels()
    }

    /// The key that control packets to this end must carry.
    pub fn qkey(&self) -> u32 {
        self.local.1
    }

    /// Round-trip time of the answered probes.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// When a channel last received its first probe of the largest size from the peer.
    pub fn peer_probed_ns(&self) -> Option<u64> {
        self.peer_probed_ns
    }

    /// State of the search.
    pub fn outcome(&self, now_ns: u64) -> ProbeOutcome {
        let passed = self.rounds.answered();
        let is_whole = |(heard, passed): (&bool, &Option<usize>)| *heard || *passed == Some(0);
        if let Some(mtu_bytes) = self.candidates.first().copied()
            && self.probed_full.iter().zip(passed).all(is_whole)
        {
            return ProbeOutcome::Settled { mtu_bytes };
        }
        let all = passed.iter().copied().collect::<Option<Vec<usize>>>();
        if let (Some(all), Some(first_ns)) = (all, self.first_answer_ns) {
            // The last of the candidates is the smallest.
            let smallest = all.into_iter().max().and_then(|index| self.candidates.get(index));
            let rtt_ns = self.rtt.smoothed_ns().unwrap_or(0);
            let settled_ns = first_ns + (SETTLE_RTTS * rtt_ns).max(SETTLE_NS_MIN);
            if now_ns >= settled_ns {
                return ProbeOutcome::Settled { mtu_bytes: smallest.copied().unwrap_or(0) };
            }
        }
        if self.rounds.is_over(now_ns) {
            return ProbeOutcome::NoAnswer { answered: self.rounds.answered_channels() };
        }
        ProbeOutcome::Pending
    }

    /// Takes in the body of a control packet of `packet_bytes` on `channel`.
    pub fn on_control(&mut self, now_ns: u64, channel: u8, body: &[u8], packet_bytes: usize) {
        self.path_frames = PathFrames::default();
        let Ok(body) = ControlBody::parse(body) else { return };
        for frame in body.frames() {
            match frame {
                Ok(Frame::Probe(probe)) => {
                    let largest = self.largest() as usize;
                    let is_whole = packet_bytes == largest + self.seal.overhead_bytes_max();
                    let heard = self.probed_full.get_mut(usize::from(channel));
                    if let Some(heard) = heard.filter(|heard| is_whole && !**heard) {
                        *heard = true;
                        self.peer_probed_ns = self.peer_probed_ns.max(Some(now_ns));
                    }
                    if self.replies.len() < REPLIES_MAX {
                        let (id, echo_ns) = (probe.id, probe.sent_ns);
                        let packet_bytes = packet_bytes as u32;
                        self.replies.push_back((channel, ProbeReply { id, echo_ns, packet_bytes }));
                    }
                }
                Ok(Frame::ProbeReply(reply)) => self.on_reply(now_ns, &reply),
                Ok(frame) => self.path_frames.take_in(&frame),
                Err(_) => return,
            }
        }
    }

    fn on_reply(&mut self, now_ns: u64, reply: &ProbeReply) {
        // The id tells which probe this answers. The probe must have arrived with its full length.
        let (channel, index) = ((reply.id >> 8) as usize, (reply.id & 0xFF) as usize);
        let Some(candidate) = self.candidates.get(index).copied() else { return };
        let whole =
            reply.packet_bytes as usize == candidate as usize + self.seal.overhead_bytes_max();
        if !whole || !self.rounds.on_answer(channel, index) {
            return;
        }
        self.first_answer_ns.get_or_insert(now_ns);
        self.rtt.on_sample(now_ns, now_ns.saturating_sub(reply.echo_ns));
    }

    /// The next control packet to send, and its channel, among the channels for which `owns` is
    /// true.
    pub fn poll_control<'w>(
        &mut self,
        now_ns: u64,
        owns: impl Fn(u8) -> bool,
        writer: &'w mut ControlWriter,
    ) -> Option<(u8, &'w [u8])> {
        let reply = self.replies.iter().position(|(channel, _)| owns(*channel));
        if let Some((channel, reply)) = reply.and_then(|index| self.replies.remove(index)) {
            self.start(channel, writer);
            writer.push(&Frame::ProbeReply(reply));
            return Some((channel, writer.finish()));
        }
        if self.rounds.is_round_due(now_ns) {
            self.rounds.begin_round(now_ns, self.rtt.smoothed_ns().unwrap_or(0), 1);
        }
        let (channel, index) = self.rounds.take(owns)?;
        self.start(channel, writer);
        let id = u32::from(channel) << 8 | index as u32;
        writer.push(&Frame::Probe(Probe { id, sent_ns: now_ns }));
        writer.pad_to(self.candidates[index] as usize + self.seal.overhead_bytes_max());
        Some((channel, writer.finish()))
    }

    /// What the control packet that [`Prober::on_control`] took in last says of its path.
    pub fn path_frames(&self) -> PathFrames {
        self.path_frames
    }

    /// Writes a control packet with nothing but this frame.
    pub fn write_alone<'w>(
        &mut self,
        channel: u8,
        frame: &Frame<'_>,
        writer: &'w mut ControlWriter,
    ) -> &'w [u8] {
        self.start(channel, writer);
        writer.push(frame);
        writer.finish()
    }

    fn start(&mut self, channel: u8, writer: &mut ControlWriter) {
        self.sequence += 1;
        let header = ControlHeader {
            dest: Qpn::new(self.peer.0, channel, 0),
            psn: self.sequence & 0xFF_FFFF,
            qkey: self.peer.1,
            source: Qpn::new(self.local.0, channel, 0),
        };
        writer.start(&header, self.sequence, self.seal);
    }

    /// When to poll again.
    pub fn poll_timeout(&self) -> Option<u64> {
        if !self.replies.is_empty() {
            return Some(0);
        }
        Some(self.rounds.poll_timeout(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAL: Seal = Seal::Crc32c;
    use lacuna_wire::{Packet, parse};

    /// Lets two probers talk over a path that passes packets of up to
    /// `path_bytes`, with a round trip of 10 ms.
    fn talk(path_bytes: usize, fixed: Option<u32>) -> (ProbeOutcome, Prober) {
        let mut writer = ControlWriter::new(1200);
        let patience = 1_000_000_000;
        let candidates = || fixed.map_or_else(|| MTU_CANDIDATES.to_vec(), |mtu| vec![mtu]);
        let mut a = Prober::new(0, (1, 11), (2, 22), 2, (SEAL, candidates()), patience);
        let mut b = Prober::new(0, (2, 22), (1, 11), 2, (SEAL, candidates()), patience);
        for step in 0..1000u64 {
            let now_ns = step * 5_000_000;
            for turn in 0..2 {
                let (from, to) = if turn == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
                let mut packets = Vec::new();
                while let Some((channel, packet)) = from.poll_control(now_ns, |_| true, &mut writer)
                {
                    packets.push((channel, packet.to_vec()));
                }
                for (channel, packet) in packets {
                    if packet.len() > path_bytes {
                        continue;
                    }
                    let Ok(Packet::Control(header, body)) = parse(&packet) else { panic!() };
                    assert_eq!(header.qkey, to.qkey());
                    to.on_control(now_ns + 5_000_000, channel, body, packet.len());
                }
            }
            let outcome = a.outcome(now_ns + 5_000_000);
            if outcome != ProbeOutcome::Pending {
                return (outcome, a);
            }
        }
        panic!("never settles");
    }

    #[test]
    fn the_largest_size_that_passes_is_found() {
        for (path_bytes, mtu_bytes) in [(9000, 4096), (1472, 1436), (1471, 1412), (1240, 1192)] {
            let (outcome, prober) = talk(path_bytes, None);
            assert_eq!(outcome, ProbeOutcome::Settled { mtu_bytes }, "{path_bytes}");
            assert!(path_bytes > 4200 || prober.rtt().smoothed_ns().is_some());
        }
    }

    #[test]
    fn the_peers_own_probes_of_the_largest_size_settle_it_at_once() {
        let mut writer = ControlWriter::new(1200);
        let mut prober =
            Prober::new(0, (1, 11), (2, 22), 2, (SEAL, vec![1436, 1192]), 1_000_000_000);
        let mut peer = Prober::new(0, (2, 22), (1, 11), 2, (SEAL, vec![1436, 1192]), 1_000_000_000);
        while let Some((channel, packet)) = peer.poll_control(0, |_| true, &mut writer) {
            assert_eq!(prober.outcome(0), ProbeOutcome::Pending, "not all channels were heard");
            let Ok(Packet::Control(_, body)) = parse(packet) else { panic!() };
            // On the second channel the smaller one comes first.
            let (body, packet_bytes) = (body.to_vec(), packet.len());
            prober.on_control(0, channel, &body, packet_bytes);
            if channel == 1 && packet_bytes > 1400 {
                break;
            }
        }
        assert_eq!(prober.outcome(0), ProbeOutcome::Settled { mtu_bytes: 1436 });
    }

    #[test]
    fn candidates_fit_the_packet_that_carries_them() {
        assert_eq!(candidates_within(None, 28, SEAL), MTU_CANDIDATES);
        assert_eq!(candidates_within(Some(65_535), 28, SEAL), MTU_CANDIDATES);
        assert_eq!(candidates_within(Some(1500), 28, SEAL), MTU_CANDIDATES[1..]);
        assert_eq!(candidates_within(Some(1499), 28, SEAL), MTU_CANDIDATES[2..]);
        assert_eq!(candidates_within(Some(1500), 48, SEAL), MTU_CANDIDATES[2..]);
        assert_eq!(candidates_within(Some(100), 48, SEAL), [1192]);
    }

    #[test]
    fn a_given_size_that_does_not_pass_is_no_answer() {
        let (outcome, _) = talk(1472, Some(4096));
        assert_eq!(outcome, ProbeOutcome::NoAnswer { answered: 0 });
    }

    #[test]
    fn rubbish_is_ignored() {
        let mut prober =
            Prober::new(0, (1, 11), (2, 22), 1, (SEAL, MTU_CANDIDATES.to_vec()), 1_000);
        prober.on_control(0, 0, &[1, 2, 3], 3);
        prober.on_control(0, 0, &[0xFF; 200], 200);
        assert_eq!(prober.outcome(0), ProbeOutcome::Pending);
    }
}
