//! A flow from the path: its decoder, frames that wait, and frames that were recovered.
//!
//! The decoder (`lacuna_lowar`) knows packets, from the BTH to the pad. A frame that waits comes out as it
//! came, with its own headers and ICRC, so whole frames are kept beside the decoder's ring, by their BTH.
//! A packet that was recovered gets the headers of the flow's last frame. Whether the lost one had asked for
//! an acknowledgement is not known; the recovered one asks, since a sender may wait for it.
//!
//! Invariant: a frame is kept only while its packet waits in the ring, which bounds them together.

use crate::frame::{BTH_BYTES, Layout};
use crate::outgoing::Workshop;
use crate::template::Template;
use lacuna_lowar::{Decoder, DecoderConfig, DecoderCounters, How, Shared, Upper};
use lacuna_wire::rc::RepairHeader;
use std::collections::BTreeMap;

/// Repairs in a row that the decoder refused, after which it begins anew: the encoder may have done so, with
/// another count of rounds.
const REFUSED_MAX: u32 = 32;
/// AckReq in the BTH.
const ASKS_ACK: u8 = 0x80;
/// The byte that it is in.
const ASKS_ACK_BYTE: usize = 8;

type Kept = BTreeMap<[u8; BTH_BYTES], Vec<u8>>;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Incoming {
    config: DecoderConfig,
    decoder: Decoder,
    kept: Kept,
    template: Template,
    refused_in_row: u32,
    /// Of decoders that are gone.
    before: DecoderCounters,
    /// The timeout that the gateway knows of.
    pub(crate) deadline_ns: Option<u64>,
}

/// What a decoder works with.
#[derive(Debug)]
pub(crate) struct Tools<'g> {
    pub(crate) now_ns: u64,
    pub(crate) shared: &'g mut Shared,
    pub(crate) workshop: &'g mut Workshop,
}

impl Incoming {
    pub(crate) fn new(config: DecoderConfig, template: Template) -> Self {
        Self {
            config,
            decoder: Decoder::new(config),
            kept: Kept::new(),
            template,
            refused_in_row: 0,
            before: DecoderCounters::default(),
            deadline_ns: None,
        }
    }

    /// A frame with a right ICRC came. `out` gets it, now or later.
    pub(crate) fn on_frame(
        &mut self,
        tools: Tools<'_>,
        frame: &[u8],
        layout: &Layout,
        out: &mut dyn FnMut(&[u8]),
    ) {
        self.template = Template::of(frame, layout);
        let packet = layout.packet(frame);
        let mut above = Above {
            current: Some((frame, packet)),
            kept: &mut self.kept,
            template: &self.template,
            workshop: tools.workshop,
            out,
        };
        self.decoder.on_packet(tools.now_ns, tools.shared, packet, &mut above);
        let is_waiting = above.current.is_some();
        if is_waiting && self.decoder.holds_packets() {
            self.kept.entry(bth_of(packet)).or_insert_with(|| frame.to_vec());
        }
        self.tidy();
    }

    /// A repair or an announcement with a right ICRC came.
    pub(crate) fn on_repair(
        &mut self,
        tools: Tools<'_>,
        header: &RepairHeader,
        sum: &[u8],
        out: &mut dyn FnMut(&[u8]),
    ) {
        let Tools { now_ns, shared, workshop } = tools;
        let mut above =
            Above { current: None, kept: &mut self.kept, template: &self.template, workshop, out };
        match header {
            RepairHeader::Repair { block, index } => {
                let refused = self.decoder.counters().repairs_refused;
                self.decoder.on_repair(now_ns, shared, block, *index, sum, &mut above);
                let is_refused = self.decoder.counters().repairs_refused != refused;
                self.refused_in_row = if is_refused { self.refused_in_row + 1 } else { 0 };
                if self.refused_in_row >= REFUSED_MAX {
                    self.decoder.flush(now_ns, shared, &mut above);
                    self.begin_anew(shared);
                }
            }
            RepairHeader::Announce { first_psn, strength, .. } => {
                self.decoder.on_announce(*first_psn, *strength);
            }
            RepairHeader::Request { .. } => {}
        }
        self.tidy();
    }

    pub(crate) fn on_timeout(&mut self, tools: Tools<'_>, out: &mut dyn FnMut(&[u8])) {
        let Tools { now_ns, shared, workshop } = tools;
        let mut above =
            Above { current: None, kept: &mut self.kept, template: &self.template, workshop, out };
        self.decoder.on_timeout(now_ns, shared, &mut above);
        self.tidy();
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.decoder.poll_timeout()
    }

    /// How late its packets have been lately.
    pub(crate) fn reordering_window_ns(&self) -> u64 {
        self.decoder.reordering_window_ns()
    }

    pub(crate) fn set_hold_ns_max(&mut self, hold_ns_max: u64) {
        self.config.hold_ns_max = hold_ns_max;
        self.decoder.set_hold_ns_max(hold_ns_max);
    }

    pub(crate) fn counters(&self) -> DecoderCounters {
        let mut counters = self.before;
        add(&mut counters, &self.decoder.counters());
        counters
    }

    /// Hands everything out that waits, and gives back what is shared; what it did.
    pub(crate) fn release(
        mut self,
        tools: Tools<'_>,
        out: &mut dyn FnMut(&[u8]),
    ) -> DecoderCounters {
        let Tools { now_ns, shared, workshop } = tools;
        let mut above =
            Above { current: None, kept: &mut self.kept, template: &self.template, workshop, out };
        self.decoder.flush(now_ns, shared, &mut above);
        let counters = self.counters();
        self.decoder.release(shared);
        counters
    }

    /// Bytes of memory outside of itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        let kept = self.kept.values().map(|frame| frame.capacity() + size_of::<Vec<u8>>() + 24);
        self.decoder.memory_bytes() - size_of::<Decoder>() + kept.sum::<usize>()
    }

    fn begin_anew(&mut self, shared: &mut Shared) {
        let old = std::mem::replace(&mut self.decoder, Decoder::new(self.config));
        add(&mut self.before, &old.counters());
        old.release(shared);
        self.refused_in_row = 0;
    }

    fn tidy(&mut self) {
        if !self.kept.is_empty() && !self.decoder.holds_packets() {
            self.kept.clear();
        }
    }
}

/// The local network, as a decoder sees it.
struct Above<'g> {
    /// The frame that came and has not been handed out, with its packet.
    current: Option<(&'g [u8], &'g [u8])>,
    kept: &'g mut Kept,
    template: &'g Template,
    workshop: &'g mut Workshop,
    out: &'g mut dyn FnMut(&[u8]),
}

impl Upper for Above<'_> {
    fn take(&mut self, packet: &[u8], how: How) {
        if how != How::Recovered {
            if let Some((frame, current)) = self.current
                && current == packet
            {
                self.current = None;
                return (self.out)(frame);
            }
            // An intact frame of that BTH: the one that waited, as the decoder keeps one of each.
            if let Some(frame) = self.kept.remove(&bth_of(packet)) {
                return (self.out)(&frame);
            }
        }
        let mut made = packet.to_vec();
        if let Some(byte) = made.get_mut(ASKS_ACK_BYTE) {
            *byte |= ASKS_ACK;
        }
        if let Some(frame) = self.workshop.build(self.template, &made) {
            (self.out)(frame);
        }
    }
}

/// Its BTH; a packet here has one.
fn bth_of(packet: &[u8]) -> [u8; BTH_BYTES] {
    let mut bth = [0; BTH_BYTES];
    let bytes = packet.len().min(BTH_BYTES);
    bth[..bytes].copy_from_slice(&packet[..bytes]);
    bth
}

/// Adds what another decoder did.
pub(crate) fn add(sum: &mut DecoderCounters, other: &DecoderCounters) {
    sum.packets_recovered += other.packets_recovered;
    sum.packets_held += other.packets_held;
    sum.duplicates_dropped += other.duplicates_dropped;
    sum.repairs_received += other.repairs_received;
    sum.repairs_refused += other.repairs_refused;
    sum.announcements_received += other.announcements_received;
    sum.blocks_blind += other.blocks_blind;
    sum.blocks_failed += other.blocks_failed;
    sum.timeouts += other.timeouts;
    sum.ring_full += other.ring_full;
}
