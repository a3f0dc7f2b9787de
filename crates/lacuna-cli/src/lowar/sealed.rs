//! What makes a tunnel's datagrams of frames, and the other way round, where they are encrypted: keys that the two
//! gateways agree on by themselves (`lacuna_secure::peering`), from a token that both have.

use lacuna_secure::peering::{Counters, FRAME_AT, MAGIC_BYTES, OVERHEAD_BYTES, Peering};
use lacuna_secure::{Limits, SECRET_BYTES, Secret};

/// With which all datagrams begin: version 2 of the tunnel's header.
const MAGIC: [u8; MAGIC_BYTES] = *b"LG\x02";
/// Bytes that a datagram has more than its frame.
pub(super) const MORE_BYTES: usize = OVERHEAD_BYTES;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Sealed {
    peering: Peering,
    /// Datagrams of a batch, and where each ends.
    packets: Vec<u8>,
    ends: Vec<usize>,
    /// Where a datagram is opened.
    opened: Vec<u8>,
    /// Frames that were dropped because there are no keys yet, or no more.
    pub(super) unsealed: u64,
}

impl Sealed {
    /// With a secret that is for tunnels alone.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub(super) fn new(secret: Secret, datagram_bytes_max: usize) -> Result<Self, getrandom::Error> {
        let mut seed = [0; SECRET_BYTES];
        getrandom::fill(&mut seed)?;
        Ok(Self {
            peering: Peering::new(MAGIC, secret, Secret::new(seed), Limits::default(), 0),
            packets: Vec::new(),
            ends: Vec::new(),
            opened: vec![0; datagram_bytes_max],
            unsealed: 0,
        })
    }

    /// What became of datagrams.
    pub(super) fn counters(&self) -> Counters {
        self.peering.counters()
    }

    /// The frame of a datagram, if it is the peer's and has one.
    pub(super) fn open(&mut self, now_ns: u64, datagram: &[u8]) -> Option<&[u8]> {
        self.peering.on_packet(now_ns, datagram, &mut self.opened).map(|frame| &*frame)
    }

    /// The datagrams for these frames, in parts as they are sent.
    pub(super) fn seal<'f>(
        &mut self,
        now_ns: u64,
        frames: impl Iterator<Item = &'f [u8]>,
    ) -> Vec<(&[u8], &[u8])> {
        let Self { peering, packets, ends, unsealed, .. } = self;
        packets.clear();
        ends.clear();
        let Some(mut sealer) = peering.sealer(now_ns) else {
            *unsealed += frames.count() as u64;
            return Vec::new();
        };
        for frame in frames {
            let start = packets.len();
            packets.resize(start + FRAME_AT, 0);
            packets.extend_from_slice(frame);
            packets.resize(start + OVERHEAD_BYTES + frame.len(), 0);
            match sealer.seal(&mut packets[start..]) {
                Ok(()) => ends.push(packets.len()),
                Err(_) => {
                    packets.truncate(start);
                    *unsealed += 1;
                }
            }
        }
        let starts = [0].into_iter().chain(ends.iter().copied());
        starts
            .zip(ends.iter())
            .map(|(start, end)| packets[start..*end].split_at(FRAME_AT))
            .collect()
    }

    /// Does what is due, and gives what is to be sent to `send`.
    pub(super) fn tend(&mut self, now_ns: u64, mut send: impl FnMut(&[u8])) {
        self.peering.on_timeout(now_ns);
        while let Some(datagram) = self.peering.poll_transmit() {
            send(&datagram);
        }
    }

    /// When that is due.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        self.peering.poll_timeout()
    }
}
