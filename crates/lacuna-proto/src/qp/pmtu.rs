//! Path MTU discovery during a connection: when full packets no longer pass, finds the size that does
//! and cuts full packets into pieces of that size.
//!
//! The ends agree on a packet size when they connect; records, slots and chunks depend on it for the
//! connection's life. But paths change: a tunnel comes up, a route moves. Three signs start a search:
//!
//! - the peer's counts, which show that no full packet arrives (`lacuna-path/src/black_hole.rs`);
//! - this host's refusal to send a packet because it is too large;
//! - probes of the full size that are not answered (`proof.rs`).
//!
//! The size has two sources. One is the host's route cache, which ICMP messages from routers update
//! and which the owner looks up. Such messages may be lost or forged (RFC 8899 does without them), so
//! the queue pair also sends probes of every possible size of a piece at once, and takes the largest
//! that is answered. A round without an answer is followed by one with smaller sizes. Once a size is
//! taken, the larger ones are tried again, because a probe may have been lost by chance.
//!
//! From then on each full packet is sent in several pieces (`pieces.rs`). Nothing else changes in any
//! mode, and messages in flight complete. If the path MTU rises again, only later connections use it.
//!
//! Invariants: an ICMP message alone does not reduce the size, so a forged one has no effect while
//! full packets pass; a search ends with a size, with a full packet received by the peer, or after
//! some seconds without any answer.

use super::QueuePair;
use lacuna_wire::{ControlWriter, Frame, Probe};

/// Set in the ids of probes of this file and of `proof.rs`. Bits 0 to 7 of an id are the channel,
/// those above them the pieces.
const ID_BIT: u32 = 1 << 31;
const PIECES_SHIFT: u32 = 8;
/// Shortest piece. Every IPv4 host accepts a datagram of 576 bytes (RFC 791), in fragments of a link's
/// size if need be, and real links carry more than half of that.
const PIECE_BYTES_MIN: u32 = 128;
/// Longest packet that may be an answer to a flush: IPv6's smallest link takes it (RFC 8200,
/// section 5).
const ANSWER_BYTES_MAX: u32 = 1280 - 48;
/// Smaller sizes tried in one round, besides the current one.
const SIZES_MAX: usize = 9;
/// A round lasts 1.25 round trips and this much longer, for busy hosts. A judgement.
const ROUND_SLACK_NS: u64 = 15_000_000;
/// Once all sizes were tried without an answer, the rounds begin again, each this many times as long,
/// up to the maximum; then the search ends, so that it does not flood a path with an outage. The next
/// report, or the next packet that the host refuses, may begin a new search.
const ROUND_GROWTH: u64 = 4;
const ROUND_NS_MAX: u64 = 1_000_000_000;
/// Time for larger sizes to be answered after the first answer, since their probes may be
/// overtaken: a part of a round trip, and at least two milliseconds. Judgements.
const OVERTAKEN_RTT_PART: u64 = 8;
const OVERTAKEN_NS_MIN: u64 = 2_000_000;

/// State of path MTU discovery.
#[derive(Debug, Default)]
pub(super) struct PathMtu {
    search: Option<Search>,
    /// The owner should look up the route's MTU.
    asks_host: bool,
    /// A change of the size that the owner has not polled yet.
    pub(super) narrowed: Option<Narrowed>,
}

/// The longest packet has become shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Narrowed {
    /// UDP payload of the longest packet before.
    pub before_bytes: u32,
    /// UDP payload of the longest packet from now on.
    pub packet_bytes: u32,
}

#[derive(Debug)]
struct Search {
    /// Sizes still to be probed in this round, as numbers of pieces; the fewest first.
    to_send: Vec<u32>,
    /// The most pieces that were tried.
    tried: u32,
    /// The fewest pieces of which a probe was answered.
    answered: Option<u32>,
    round_ns: u64,
    round_ends_ns: u64,
    /// A size was taken, and the larger ones are tried again.
    is_second: bool,
}

/// Sizes to try after `from` pieces: one piece more at first, later a quarter more.
fn sizes(from: u32, pieces_max: u32) -> impl Iterator<Item = u32> {
    let next = |pieces: &u32| Some((pieces + 1).max(pieces * 5 / 4));
    std::iter::successors(next(&from), next).take_while(move |pieces| *pieces <= pieces_max)
}

impl QueuePair {
    /// The most pieces that full packets are cut into.
    fn pieces_max(&self) -> u32 {
        (self.config.geometry.mtu_bytes() / PIECE_BYTES_MIN).max(1)
    }

    /// UDP payload of each piece of a full packet cut into `pieces`; of the whole packet, with an
    /// address, for 1.
    fn packet_bytes_of(&self, pieces: u32) -> u32 {
        let geometry = &self.config.geometry;
        let payload_bytes = geometry.mtu_bytes().div_ceil(pieces);
        payload_bytes.next_multiple_of(4) + geometry.overhead_bytes(true)
    }

    /// UDP payload of the longest packet.
    pub(super) fn full_packet_bytes(&self) -> u32 {
        self.packet_bytes_of(self.send.pieces())
    }

    /// Payload bytes of a full packet on the wire: less than the geometry's on a path that has
    /// become narrower.
    pub fn payload_bytes_max(&self) -> u32 {
        self.send.payload_bytes_max()
    }

    /// Whether [`QueuePair::take_route_question`] is true.
    #[inline]
    pub fn asks_host(&self) -> bool {
        self.mtu.asks_host
    }

    /// Whether the owner should look up the route's MTU on this host and call
    /// [`QueuePair::on_route_mtu`]; once per search.
    pub fn take_route_question(&mut self) -> bool {
        std::mem::take(&mut self.mtu.asks_host)
    }

    /// The host's MTU of the route to the peer allows packets of at most `packet_bytes` UDP payload.
    pub fn on_route_mtu(&mut self, now_ns: u64, packet_bytes: u32) {
        let has_reason = self.mtu.search.is_some() || self.path.is_narrow();
        if !has_reason || packet_bytes >= self.full_packet_bytes() {
            return;
        }
        let most = self.pieces_max();
        let fits = |pieces: &u32| self.packet_bytes_of(*pieces) <= packet_bytes;
        let pieces = (self.send.pieces() + 1..=most).find(fits).unwrap_or(most);
        self.mtu.search = None;
        self.set_pieces(now_ns, pieces);
    }

    /// This host refused a packet of `packet_bytes` because it is too large.
    pub fn on_too_large(&mut self, now_ns: u64, packet_bytes: u32) {
        if packet_bytes <= ANSWER_BYTES_MAX {
            self.control.on_too_large();
        }
        if packet_bytes <= self.full_packet_bytes() && self.mtu.search.is_none() {
            self.search(now_ns);
        }
    }

    /// Begins a search for the size that passes.
    pub(super) fn search(&mut self, now_ns: u64) {
        let pieces = self.send.pieces();
        if self.failure().is_some() || pieces >= self.pieces_max() {
            return;
        }
        self.mtu.asks_host = true;
        self.mtu.search = Some(Search {
            to_send: Vec::new(),
            tried: pieces,
            answered: None,
            round_ns: self.round_ns(),
            round_ends_ns: 0,
            is_second: false,
        });
        self.begin_round(now_ns);
    }

    /// Begins a round: probes of the current size and of the next smaller ones.
    fn begin_round(&mut self, now_ns: u64) {
        let (pieces, most) = (self.send.pieces(), self.pieces_max());
        let Some(search) = &mut self.mtu.search else { return };
        if search.tried >= most {
            // All probes were lost, or the path has an outage: begin again.
            search.tried = pieces;
            search.round_ns *= ROUND_GROWTH;
            if search.round_ns > ROUND_NS_MAX {
                self.mtu.search = None;
                return;
            }
        }
        let smaller = sizes(search.tried, most).take(SIZES_MAX);
        search.to_send = std::iter::once(pieces).chain(smaller).collect();
        search.tried = search.to_send.last().copied().unwrap_or(most);
        search.round_ends_ns = now_ns + search.round_ns;
    }

    fn round_ns(&self) -> u64 {
        let srtt_ns = self.path.rtt().smoothed_ns().unwrap_or(0);
        srtt_ns + srtt_ns / 4 + ROUND_SLACK_NS
    }

    /// Begins or ends a search after a report: a full packet that came ends it.
    pub(super) fn watch_mtu(&mut self, now_ns: u64) {
        if self.path.take_full_arrived() {
            // A second try probes larger packets than this one, so it goes on.
            self.mtu.search.take_if(|search| !search.is_second);
        }
        if self.path.is_narrow() && self.mtu.search.as_ref().is_none_or(|search| search.is_second) {
            self.search(now_ns);
        }
    }

    /// When the worker with these channels (a mask) has something to do.
    pub(super) fn mtu_timeout_ns(&self, channels: u32) -> Option<u64> {
        let search = self.mtu.search.as_ref()?;
        // Probes are sent on the first channel, because all channels lead to the same host.
        let sends = channels & 1 == 1 && !search.to_send.is_empty();
        Some(if sends { 0 } else { search.round_ends_ns })
    }

    /// Ends a round whose time is over.
    pub(super) fn on_mtu_timeout(&mut self, now_ns: u64) {
        let pieces = self.send.pieces();
        let Some(search) = self.mtu.search.as_ref().filter(|s| s.round_ends_ns <= now_ns) else {
            return;
        };
        match (search.answered, search.is_second) {
            // Full packets pass.
            (Some(answered), false) if answered == pieces => {
                self.path.on_new_size();
                self.mtu.search = None;
            }
            (Some(answered), false) => self.take_size(now_ns, answered),
            (Some(answered), true) => {
                self.mtu.search = None;
                self.set_pieces(now_ns, answered);
            }
            (None, false) => self.begin_round(now_ns),
            (None, true) => self.mtu.search = None,
        }
    }

    /// Takes a size and tries the larger ones again.
    fn take_size(&mut self, now_ns: u64, answered: u32) {
        let before = self.send.pieces();
        self.set_pieces(now_ns, answered);
        let round_ns = self.round_ns();
        self.mtu.search = Some(Search {
            to_send: sizes(before, answered - 1).collect(),
            tried: answered,
            answered: None,
            round_ns,
            round_ends_ns: now_ns + round_ns,
            is_second: true,
        });
    }

    /// Sends full packets in so many pieces from now on.
    fn set_pieces(&mut self, now_ns: u64, pieces: u32) {
        let before_bytes = self.full_packet_bytes();
        self.send.set_pieces(pieces);
        self.path.on_new_size();
        let packet_bytes = self.full_packet_bytes();
        if before_bytes != packet_bytes {
            self.mtu.narrowed = Some(Narrowed { before_bytes, packet_bytes });
        }
        self.restart_proof(now_ns);
    }

    /// The number of pieces whose size the next probe on this channel has; counts it as sent.
    pub(super) fn take_mtu_probe(&mut self, channel: u8) -> Option<u32> {
        let search = self.mtu.search.as_mut().filter(|_| channel == 0)?;
        (!search.to_send.is_empty()).then(|| search.to_send.remove(0))
    }

    /// Writes a probe as long as a piece of a full packet in so many pieces.
    pub(super) fn write_mtu_probe(
        &self,
        now_ns: u64,
        channel: u8,
        pieces: u32,
        writer: &mut ControlWriter,
    ) {
        let id = ID_BIT | pieces << PIECES_SHIFT | u32::from(channel);
        writer.push(&Frame::Probe(Probe { id, sent_ns: now_ns }));
        writer.pad_to(self.packet_bytes_of(pieces) as usize);
    }

    /// A probe was answered; it had arrived with `packet_bytes`.
    pub(super) fn on_mtu_probe(&mut self, now_ns: u64, id: u32, packet_bytes: u32) {
        if id & ID_BIT == 0 {
            return;
        }
        let pieces = (id & !ID_BIT) >> PIECES_SHIFT;
        if pieces == 0 || packet_bytes != self.packet_bytes_of(pieces) {
            return;
        }
        self.on_proof((id & 0xFF) as usize, pieces);
        let soon_ns = self.path.rtt().smoothed_ns().unwrap_or(0) / OVERTAKEN_RTT_PART;
        let Some(search) = &mut self.mtu.search else { return };
        if pieces > search.tried || search.is_second && pieces >= search.tried {
            return;
        }
        search.answered = Some(search.answered.map_or(pieces, |before| before.min(pieces)));
        let due_ns = now_ns + soon_ns.max(OVERTAKEN_NS_MIN);
        search.round_ends_ns = search.round_ends_ns.min(due_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn sizes_are_tried_closely_at_first_and_to_the_end() {
        let tried: Vec<u32> = sizes(1, 64).collect();
        assert_eq!(tried, [2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 41, 51, 63]);
        assert_eq!(sizes(1, 1).count(), 0);
    }
}
