//! A flow to the path: its encoder, and its repairs as frames.
//!
//! Data frames go on as they came. A repair has the headers of the frame that it follows, so it takes the
//! same way through the network. A host that sends repairs of its own is left to do so.

use crate::frame::Layout;
use crate::template::Template;
use lacuna_lowar::{Encoder, EncoderCounters, StrengthError, UnitPool};
use lacuna_wire::rc::Strength;

/// What frames are made with.
#[derive(Debug)]
pub(crate) struct Workshop {
    /// Of the next frame over IPv4.
    pub(crate) identification: u16,
    /// No frame that is made is longer.
    pub(crate) frame_bytes_max: usize,
    /// Packets that would have been.
    pub(crate) too_long: u64,
    scratch: Vec<u8>,
}

impl Workshop {
    pub(crate) fn new(frame_bytes_max: usize, identification: u16) -> Self {
        Self { identification, frame_bytes_max, too_long: 0, scratch: Vec::new() }
    }

    /// Makes a frame of a packet; `None` if it would be too long.
    pub(crate) fn build(&mut self, template: &Template, packet: &[u8]) -> Option<&[u8]> {
        self.identification = self.identification.wrapping_add(1);
        let is_built = template.build(packet, self.identification, &mut self.scratch);
        if !is_built || self.scratch.len() > self.frame_bytes_max {
            self.too_long += 1;
            return None;
        }
        Some(&self.scratch)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Outgoing {
    encoder: Encoder,
    /// Its host sends repairs of its own.
    is_hosts: bool,
    /// Of the grants by which its strength was looked up.
    pub(crate) version: u64,
}

impl Outgoing {
    pub(crate) fn new(
        strength: Option<Strength>,
        caps_short_blocks: bool,
    ) -> Result<Self, StrengthError> {
        let mut encoder = Encoder::new();
        encoder.set_strength(strength)?;
        encoder.set_caps_short_blocks(caps_short_blocks);
        Ok(Self { encoder, is_hosts: false, version: 0 })
    }

    /// A data frame with a right ICRC leaves. `out` gets it, and what is added.
    pub(crate) fn on_frame(
        &mut self,
        units: &mut UnitPool,
        workshop: &mut Workshop,
        (frame, layout): (&[u8], &Layout),
        out: &mut dyn FnMut(&[u8]),
    ) {
        let packet = layout.packet(frame);
        if self.encoder.announces()
            && let Some(announcement) = self.encoder.announcement(packet)
            && let Some(made) = workshop.build(&Template::of(frame, layout), &announcement)
        {
            out(made);
        }
        out(frame);
        self.encoder.on_packet(units, packet, &mut |repair| {
            if let Some(made) = workshop.build(&Template::of(frame, layout), repair) {
                out(made);
            }
        });
    }

    /// Its host sends repairs of its own.
    pub(crate) fn leave_to_host(&mut self, units: &mut UnitPool) {
        self.set_strength(units, None);
        self.is_hosts = true;
    }

    /// Protects its packets so from the next block on; without a strength no frame is to be given to it. A
    /// strength that no block can have changes nothing.
    pub(crate) fn set_strength(&mut self, units: &mut UnitPool, strength: Option<Strength>) {
        if self.is_hosts || strength == self.encoder.next_strength() {
            return;
        }
        if self.encoder.set_strength(strength).is_ok() && strength.is_none() {
            self.encoder.release(units);
        }
    }

    /// Whether its packets are protected.
    pub(crate) fn is_protected(&self) -> bool {
        self.encoder.next_strength().is_some()
    }

    pub(crate) fn counters(&self) -> EncoderCounters {
        self.encoder.counters()
    }

    /// Bytes of memory outside of itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.encoder.memory_bytes() - size_of::<Encoder>()
    }

    /// Gives units back; what it did.
    pub(crate) fn release(mut self, units: &mut UnitPool) -> EncoderCounters {
        self.encoder.release(units);
        self.encoder.counters()
    }
}
