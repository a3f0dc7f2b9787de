//! Encoder of control packets, frame by frame, into one reused buffer.
//!
//! A frame is added whole or not at all, so the caller can offer frames in order of importance and
//! send when one does not fit. The buffer holds headers, body header and frames.
//! [`finish`](ControlWriter::finish) appends pad and trailer, and the next call cuts them off
//! again, so finishing twice does no harm.

use super::{CONTROL_HEADER_BYTES, CONTROL_VERSION, ControlHeader, FRAMES_AT, field};
use crate::{FRAME_HEADER_BYTES, Frame, Seal, bth, pad_bytes};

/// The largest payload length of 16 bits.
const PAYLOAD_MAX: usize = u16::MAX as usize;

/// Builds one control packet at a time.
#[derive(Clone, Debug)]
pub struct ControlWriter {
    /// Up to `end`: headers, body header, frames. After it: pad and trailer, once finished.
    packet: Vec<u8>,
    /// Offset of the next frame; 0 until the first packet is started.
    end: usize,
    /// Longest packet of [`ControlWriter::push`], trailer included; a multiple of 4.
    max_packet_bytes: usize,
    /// The same for the current packet.
    limit_bytes: usize,
    /// The seal of the current packet.
    seal: Seal,
}

impl ControlWriter {
    /// A writer of packets of at most `max_packet_bytes`, from BTH to trailer.
    ///
    /// # Panics
    /// When a packet without frames does not fit, with any seal.
    #[must_use]
    pub fn new(max_packet_bytes: usize) -> Self {
        let least = FRAMES_AT + Seal::BYTES_MAX;
        assert!(
            max_packet_bytes >= least,
            "control packets of {max_packet_bytes} bytes cannot hold {least}",
        );
        let max_packet_bytes = max_packet_bytes & !3;
        Self {
            packet: Vec::new(),
            end: 0,
            max_packet_bytes,
            limit_bytes: max_packet_bytes,
            seal: Seal::default(),
        }
    }

    /// Drops the current packet and starts one without frames.
    pub fn start(&mut self, header: &ControlHeader, sequence: u32, seal: Seal) {
        self.packet.clear();
        self.packet.resize(FRAMES_AT, 0);
        let (headers, body) = self.packet.split_at_mut(CONTROL_HEADER_BYTES);
        header.emit(headers.try_into().expect("the headers have their size"));
        body[field::VERSION] = CONTROL_VERSION;
        body[field::SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
        self.end = FRAMES_AT;
        self.limit_bytes = self.max_packet_bytes;
        self.seal = seal;
    }

    /// Limits the current packet to `packet_bytes`, if that is below the limit of all packets.
    pub fn keep_within(&mut self, packet_bytes: usize) {
        self.limit_bytes = self.max_packet_bytes.min(packet_bytes & !3);
    }

    /// Adds a frame if it fits; else returns `false` and changes nothing.
    pub fn push(&mut self, frame: &Frame<'_>) -> bool {
        let bytes = FRAME_HEADER_BYTES + frame.payload_bytes();
        if bytes > self.space() || frame.payload_bytes() > PAYLOAD_MAX {
            return false;
        }
        self.append(frame, bytes);
        true
    }

    /// Adds [`Frame::Padding`] so that the finished packet has exactly `packet_bytes`, a multiple
    /// of 4. May exceed the limit of [`new`](Self::new), as probes of larger sizes do. Does nothing
    /// if the packet is that long already.
    pub fn pad_to(&mut self, packet_bytes: usize) {
        debug_assert!(self.end >= FRAMES_AT, "no packet was started");
        debug_assert!(packet_bytes.is_multiple_of(4), "packets are whole words");
        // Fewer than four bytes cannot be a frame, but the pad after the body fills them.
        let target = packet_bytes.saturating_sub(self.seal.bytes());
        while let Some(gap) = target.saturating_sub(self.end).checked_sub(FRAME_HEADER_BYTES) {
            let payload = gap.min(PAYLOAD_MAX);
            self.append(&Frame::Padding(payload as u16), FRAME_HEADER_BYTES + payload);
        }
    }

    /// Payload bytes that the next frame may have; 0 also if no frame fits.
    #[must_use]
    pub fn room(&self) -> usize {
        self.space().saturating_sub(FRAME_HEADER_BYTES).min(PAYLOAD_MAX)
    }

    /// Whether the packet has no frame yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end <= FRAMES_AT
    }

    /// Adds pad and trailer, and returns the whole packet.
    pub fn finish(&mut self) -> &[u8] {
        assert!(self.end >= FRAMES_AT, "no packet was started");
        let pad = pad_bytes(self.end);
        let bth = self.packet.first_chunk_mut().expect("a BTH opens the packet");
        bth::set_pad(bth, pad);
        let covered_bytes = self.end + pad;
        self.packet.truncate(self.end);
        self.packet.resize(covered_bytes + self.seal.bytes(), 0);
        let (covered, trailer) = self.packet.split_at_mut(covered_bytes);
        self.seal.emit_control_trailer(covered, trailer);
        &self.packet
    }

    /// Bytes left for frames with their headers. The limit is whole words, so the pad always fits.
    fn space(&self) -> usize {
        if self.end < FRAMES_AT {
            return 0;
        }
        self.limit_bytes.saturating_sub(self.seal.bytes() + self.end)
    }

    fn append(&mut self, frame: &Frame<'_>, bytes: usize) {
        // Every frame writes all its bytes, so remains of an earlier `finish` do not show.
        self.packet.resize(self.end + bytes, 0);
        frame.emit(&mut self.packet[self.end..]);
        self.end += bytes;
    }
}

// The pad is the same whether counted from the packet's or the body's start.
const _: () = assert!(CONTROL_HEADER_BYTES.is_multiple_of(4));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ack, ControlBody, Packet, Probe, Qpn, parse_checked};

    const SEAL: Seal = Seal::Crc32c;

    const HEADER: ControlHeader = ControlHeader {
        dest: Qpn::from_bits(0x80),
        psn: 3,
        qkey: 0x1111_2222,
        source: Qpn::from_bits(0x100),
    };

    const PROBE: Frame<'_> = Frame::Probe(Probe { id: 1, sent_ns: 2 });

    fn started(max_packet_bytes: usize) -> ControlWriter {
        let mut writer = ControlWriter::new(max_packet_bytes);
        writer.start(&HEADER, 9, SEAL);
        writer
    }

    fn ack(chunks: &[u8]) -> Frame<'_> {
        Frame::Ack(Ack {
            message: 1,
            cumulative: 2,
            immediate_fragments: 3,
            truncated: false,
            skipped_bytes: 0,
            chunks,
        })
    }

    /// Decodes a finished packet.
    fn frames(packet: &[u8]) -> Vec<Frame<'_>> {
        let Ok(Packet::Control(HEADER, body)) = parse_checked(packet) else {
            panic!("not our packet")
        };
        let body = ControlBody::parse(body).unwrap();
        assert_eq!(body.sequence, 9);
        body.frames().map(Result::unwrap).collect()
    }

    #[test]
    fn what_is_pushed_is_read_back() {
        let mut writer = started(1000);
        assert!(writer.is_empty());
        assert!(writer.push(&PROBE) && writer.push(&ack(&[1, 2, 3])));
        assert!(!writer.is_empty());
        assert_eq!(frames(writer.finish()), [PROBE, ack(&[1, 2, 3])]);
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let least = FRAMES_AT + Seal::BYTES_MAX;
        for max in least..least + 60 {
            let mut writer = started(max);
            let room = writer.room();
            let before = writer.finish().to_vec();
            let fits = vec![7; room.saturating_sub(Ack::FIXED_BYTES)];
            let exceeds = vec![7; fits.len() + 1];
            if room >= Ack::FIXED_BYTES {
                assert!(!writer.push(&ack(&exceeds)));
                assert_eq!(writer.finish(), before);
                assert!(writer.push(&ack(&fits)));
                assert_eq!(writer.finish().len(), max & !3);
            } else {
                assert!(!writer.push(&ack(&fits)));
                assert_eq!(writer.finish(), before);
            }
        }
    }

    #[test]
    fn one_packet_may_be_kept_shorter_than_the_next() {
        let mut writer = started(1000);
        writer.keep_within(203);
        assert!(!writer.push(&ack(&[7; 200])));
        assert!(writer.push(&ack(&vec![7; writer.room() - Ack::FIXED_BYTES])));
        assert_eq!(writer.finish().len(), 200);
        writer.start(&HEADER, 9, SEAL);
        assert!(writer.push(&ack(&[7; 200])));
    }

    #[test]
    fn finishing_twice_and_going_on_are_harmless() {
        let mut writer = started(1000);
        writer.push(&ack(&[1]));
        let once = writer.finish().to_vec();
        assert_eq!(writer.finish(), once);
        writer.push(&PROBE);
        assert_eq!(frames(writer.finish()), [ack(&[1]), PROBE]);
        writer.start(&HEADER, 9, SEAL);
        assert_eq!(frames(writer.finish()), []);
    }

    #[test]
    fn padding_gives_exactly_the_size_asked_for() {
        let sizes = (32..200).step_by(4).chain([1500, 9000, 65_504, 65_572, 131_108, 200_000]);
        for size in sizes {
            for odd in 0..4 {
                let mut writer = started(100);
                writer.push(&ack(&[0xff; 4][..odd]));
                let unpadded = writer.finish().len();
                writer.pad_to(size);
                let packet = writer.finish();
                assert_eq!(packet.len(), size.max(unpadded));
                let frames = frames(packet);
                assert_eq!(frames[0], ack(&[0xff; 4][..odd]));
                assert!(frames[1..].iter().all(|frame| matches!(frame, Frame::Padding(_))));
            }
        }
    }

    #[test]
    fn a_payload_beyond_its_length_field_does_not_fit() {
        let mut writer = started(1 << 20);
        assert_eq!(writer.room(), 65_535);
        assert!(!writer.push(&ack(&vec![0; 65_536 - Ack::FIXED_BYTES])));
        assert!(writer.push(&ack(&vec![0; 65_535 - Ack::FIXED_BYTES])));
    }

    #[test]
    fn before_the_first_packet_nothing_fits() {
        let mut writer = ControlWriter::new(1000);
        assert!(writer.is_empty());
        assert_eq!(writer.room(), 0);
        assert!(!writer.push(&PROBE));
    }
}
