//! MPA (RFC 5044): frames of DDP segments in a TCP stream, with markers and CRC32C.
//!
//! ```text
//! | length 2 | DDP segment | pad 0-3 | CRC32C 4 |      an FPDU
//! | 0 2 | back to the length field 2 |               a marker, at every 512th byte of the stream
//! ```
//!
//! The first byte of the stream is a marker. One that falls between two FPDUs belongs to the later one, and the CRC
//! covers the markers of its FPDU (section 4.3 and 4.4). All lengths are multiples of four, so no marker splits
//! a length or a CRC.
//!
//! Invariants: nothing of an FPDU is handed out before its CRC was checked; a receiver keeps one FPDU at most beside
//! what its last read brought.

use lacuna_wire::crc32c;

/// From marker to marker.
pub(super) const MARKER_SPACING: usize = 512;
const MARKER_BYTES: usize = 4;
/// Content between two markers.
const BETWEEN: usize = MARKER_SPACING - MARKER_BYTES;
const LENGTH_BYTES: usize = 2;
const CRC_BYTES: usize = 4;
/// What a read may bring.
const READ_BYTES: usize = 256 << 10;

/// Why a stream is no MPA stream. The peer's fault, or the path's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MpaError {
    /// The CRC does not match.
    #[error("an FPDU of {bytes} bytes at {position}: CRC {found:#010x}, expected {expected:#010x}")]
    Crc { position: u64, bytes: usize, expected: u32, found: u32 },
    /// A marker does not point to its FPDU.
    #[error("the marker at {position} says {found}, and its FPDU began {expected} bytes before")]
    Marker { position: u64, expected: usize, found: usize },
}

/// The longest DDP segment whose FPDU fits a TCP segment of `mss_bytes` (section 4.5).
pub(super) fn segment_bytes_max(mss_bytes: usize) -> usize {
    let markers = MARKER_BYTES * mss_bytes.div_ceil(MARKER_SPACING);
    let longest = mss_bytes.saturating_sub(LENGTH_BYTES + CRC_BYTES + markers + mss_bytes % 4);
    longest.min(u16::MAX.into())
}

/// Where a byte of an FPDU's content (length, segment, pad, CRC) is in the stream, from where the FPDU begins.
fn place(begin: u64, content: usize) -> usize {
    let to_marker = to_marker(begin);
    let markers = if content < to_marker { 0 } else { 1 + (content - to_marker) / BETWEEN };
    content + MARKER_BYTES * markers
}

/// Bytes to the next marker.
fn to_marker(position: u64) -> usize {
    (MARKER_SPACING - position as usize % MARKER_SPACING) % MARKER_SPACING
}

/// Bytes of an FPDU without its markers.
fn content_bytes(segment: usize) -> usize {
    (LENGTH_BYTES + segment).next_multiple_of(4) + CRC_BYTES
}

/// Makes FPDUs.
#[derive(Debug, Default)]
pub(super) struct Framer {
    /// FPDUs that wait to be written.
    pub(super) staged: Vec<u8>,
    /// Where in the stream the next byte goes.
    position: u64,
    /// Where the length field of the FPDU at hand is.
    length_at: u64,
}

impl Framer {
    /// Appends a DDP segment: its headers and its payload.
    pub(super) fn push(&mut self, header: &[u8], payload: &[u8]) {
        let begin = self.staged.len();
        let segment = header.len() + payload.len();
        let length = u16::try_from(segment).expect("segments fit TCP segments");
        self.length_at = self.position + (self.position.is_multiple_of(512) as u64) * 4;
        self.put(&length.to_be_bytes());
        self.put(header);
        self.put(payload);
        let pad = content_bytes(segment) - CRC_BYTES - LENGTH_BYTES - segment;
        self.put(&[0; 3][..pad]);
        // A marker right before the CRC is covered by it.
        self.mark();
        let crc = crc32c(&[&self.staged[begin..]]);
        self.put(&crc);
    }

    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.mark();
            let room = MARKER_SPACING - self.position as usize % MARKER_SPACING;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.staged.extend_from_slice(now);
            self.position += now.len() as u64;
            bytes = later;
        }
    }

    fn mark(&mut self) {
        if self.position.is_multiple_of(MARKER_SPACING as u64) {
            let back = self.position.saturating_sub(self.length_at) as u16;
            self.staged.extend_from_slice(&[0, 0]);
            self.staged.extend_from_slice(&back.to_be_bytes());
            self.position += MARKER_BYTES as u64;
        }
    }
}

/// Takes FPDUs apart.
#[derive(Debug)]
pub(super) struct Deframer {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Where in the stream `start` is.
    position: u64,
}

/// A DDP segment in its FPDU, which was checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Framed<'b> {
    /// The FPDU with its markers.
    bytes: &'b [u8],
    begin: u64,
    segment: usize,
}

impl Deframer {
    pub(super) fn new() -> Self {
        // An FPDU has at most 64 KiB, its markers, and the rest.
        Self { buffer: vec![0; READ_BYTES + (128 << 10)], start: 0, end: 0, position: 0 }
    }

    /// Room for what a read brings; [`Deframer::filled`] says how much that was.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < READ_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    pub(super) fn filled(&mut self, bytes: usize) {
        self.end += bytes;
    }

    /// The next segment, if it is here.
    pub(super) fn next(&mut self) -> Result<Option<Framed<'_>>, MpaError> {
        let (begin, here) = (self.position, &self.buffer[self.start..self.end]);
        let length_at = place(begin, 0);
        let Some(length) = here.get(length_at..length_at + LENGTH_BYTES) else { return Ok(None) };
        let segment = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let content = content_bytes(segment);
        let bytes = place(begin, content - 1) + 1;
        let Some(fpdu) = here.get(..bytes) else { return Ok(None) };
        let (covered, crc) = fpdu.split_at(bytes - CRC_BYTES);
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let (expected, found) = (word(&crc32c(&[covered])), word(crc));
        if expected != found {
            return Err(MpaError::Crc { position: begin, bytes, expected, found });
        }
        for marker_at in (to_marker(begin)..bytes).step_by(MARKER_SPACING) {
            let back = [fpdu[marker_at + 2], fpdu[marker_at + 3]];
            let (expected, found) =
                (marker_at.saturating_sub(length_at), usize::from(u16::from_be_bytes(back)));
            if expected != found {
                let position = begin + marker_at as u64;
                return Err(MpaError::Marker { position, expected, found });
            }
        }
        let at = self.start;
        self.start += bytes;
        self.position += bytes as u64;
        Ok(Some(Framed { bytes: &self.buffer[at..at + bytes], begin, segment }))
    }
}

impl Framed<'_> {
    /// Bytes of the segment.
    pub(super) fn len(&self) -> usize {
        self.segment
    }

    /// Copies from `from` of the segment to all of `out`.
    ///
    /// # Panics
    /// If it has fewer bytes.
    pub(super) fn copy_to(&self, from: usize, out: &mut [u8]) {
        assert!(from + out.len() <= self.segment, "{from} + {} of {}", out.len(), self.segment);
        let mut done = 0;
        while done < out.len() {
            let at = place(self.begin, LENGTH_BYTES + from + done);
            let room = match to_marker(self.begin + at as u64) {
                0 => MARKER_SPACING,
                room => room,
            };
            let now = room.min(out.len() - done);
            out[done..done + now].copy_from_slice(&self.bytes[at..at + now]);
            done += now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_link::SplitMix64;

    /// Segments of random lengths, and their stream.
    fn stream(seed: u64, count: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut random = SplitMix64::new(seed);
        let mut framer = Framer::default();
        let segments: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let longest = if random.chance(100_000) { 60_000 } else { 1500 };
                let length = 18 + random.next_u64() as usize % longest;
                (0..length).map(|_| random.next_u64() as u8).collect()
            })
            .collect();
        for segment in &segments {
            framer.push(&segment[..18], &segment[18..]);
        }
        (segments, framer.staged)
    }

    fn whole(framed: Framed<'_>) -> Vec<u8> {
        let mut out = vec![0; framed.len()];
        framed.copy_to(0, &mut out);
        out
    }

    #[test]
    fn segments_come_out_as_they_went_in_however_the_stream_is_cut() {
        for seed in 0..20 {
            let (segments, stream) = stream(seed, 50);
            let mut random = SplitMix64::new(seed);
            let (mut deframer, mut found, mut left) = (Deframer::new(), Vec::new(), &stream[..]);
            while !left.is_empty() {
                let now = (1 + random.next_u64() as usize % 5000).min(left.len());
                deframer.room()[..now].copy_from_slice(&left[..now]);
                deframer.filled(now);
                left = &left[now..];
                while let Some(framed) = deframer.next().unwrap() {
                    found.push(whole(framed));
                }
            }
            assert!(found == segments, "seed {seed}");
        }
    }

    #[test]
    fn every_512th_byte_begins_a_marker_that_points_to_the_length_of_its_frame() {
        let (segments, stream) = stream(7, 200);
        // The stream without markers, byte by byte: a second way to read it.
        let (mut lengths_at, mut next, mut in_stream) = (Vec::new(), 0, Vec::new());
        let is_content = |at: &usize| at % 512 >= 4;
        in_stream.extend((0..stream.len()).filter(is_content));
        for segment in &segments {
            lengths_at.push(in_stream[next]);
            let length = [stream[in_stream[next]], stream[in_stream[next + 1]]];
            assert_eq!(usize::from(u16::from_be_bytes(length)), segment.len());
            assert_eq!(stream[in_stream[next + 2]], segment[0]);
            next += (segment.len() + 2).next_multiple_of(4) + 4;
        }
        assert_eq!(next, in_stream.len());
        for marker_at in (0..stream.len()).step_by(512) {
            assert_eq!(stream[marker_at..marker_at + 2], [0, 0], "reserved");
            let back =
                usize::from(u16::from_be_bytes([stream[marker_at + 2], stream[marker_at + 3]]));
            let points_to = match back {
                // Between two frames: the later one's length follows.
                0 => marker_at + 4,
                back => marker_at - back,
            };
            assert!(lengths_at.binary_search(&points_to).is_ok(), "{marker_at} {back}");
        }
    }

    #[test]
    fn a_damaged_bit_is_found_by_the_crc() {
        let (_, stream) = stream(3, 1);
        // All but the length field, without which nobody knows where the frame ends.
        for at in (6..stream.len()).chain(0..4) {
            let mut deframer = Deframer::new();
            deframer.room()[..stream.len()].copy_from_slice(&stream);
            deframer.room()[at] ^= 1 << (at % 8);
            deframer.filled(stream.len());
            let error = deframer.next().unwrap_err();
            assert!(matches!(error, MpaError::Crc { position: 0, .. }), "{at}: {error}");
        }
    }

    #[test]
    fn a_frame_of_the_longest_segment_fills_a_tcp_segment_and_no_more() {
        for mss in [536, 1448, 8948, 65_483] {
            let longest = segment_bytes_max(mss);
            // Wherever its markers fall.
            for begin in (0..512).step_by(4) {
                let bytes = place(begin, content_bytes(longest) - 1) + 1;
                assert!(bytes <= mss && bytes + 16 > mss, "{mss} {begin}: {bytes}");
            }
        }
    }
}
