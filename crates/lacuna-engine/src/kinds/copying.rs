//! Which payloads are copied into a burst, and how many packets of them a burst takes.
//!
//! Packets whose payloads are copied behind their headers are contiguous, so a bundle of them is one
//! element of the kernel's gather list, still in the cache when the kernel copies it again. The
//! payload is read once, for copy and checksum together.

use lacuna_burst::{BUNDLE_PACKETS_MAX, Burst, PACKET_BYTES_MAX};

/// Longest payload that is copied; longer ones are gathered. An element of a gather list costs the
/// kernel about 20 ns. Measured: M-engine-1.
pub(crate) const COPIED_PAYLOAD_BYTES_MAX: usize = 2 << 10;

/// Whether a packet with a copied payload fits the burst. The burst ends after whole bundles,
/// before they fall out of the caches (two bundles per call are better than one, four no better
/// than two). If less than a bundle of the `waiting` packets would be left, they go along, to spare
/// a call.
#[inline]
pub(crate) fn has_room(burst: &Burst<'_, '_>, packet_bytes: usize, waiting: usize) -> bool {
    if burst.arena_bytes() <= PACKET_BYTES_MAX {
        return true;
    }
    let bundle = (PACKET_BYTES_MAX / packet_bytes).min(BUNDLE_PACKETS_MAX);
    !burst.len().is_multiple_of(bundle) || waiting < burst.len() + bundle
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_burst::BurstBuffers;

    /// Number of packets copied for one call when `waiting` packets wait.
    fn copied(buffers: &mut BurstBuffers, packet_bytes: usize, waiting: usize) -> (usize, usize) {
        let mut burst = buffers.start(([127, 0, 0, 1], 4791).into());
        while burst.len() < waiting.min(Burst::PACKETS_MAX)
            && has_room(&burst, packet_bytes, waiting)
        {
            burst.push_whole(packet_bytes, |_| {});
        }
        (burst.len(), burst.arena_bytes())
    }

    #[test]
    fn packets_that_are_copied_fill_whole_bundles_that_stay_in_the_cache() {
        let mut buffers = BurstBuffers::new();
        for packet_bytes in (20..COPIED_PAYLOAD_BYTES_MAX).step_by(4) {
            let (packets, arena_bytes) = copied(&mut buffers, packet_bytes, 1 << 20);
            let bundle = (PACKET_BYTES_MAX / packet_bytes).min(BUNDLE_PACKETS_MAX);
            assert!(packets >= bundle, "{packet_bytes} bytes");
            assert!(packets.is_multiple_of(bundle), "{packet_bytes} bytes");
            assert!(arena_bytes <= 2 * PACKET_BYTES_MAX, "{packet_bytes} bytes");
        }
    }

    #[test]
    fn less_than_a_bundle_that_would_be_left_over_goes_along() {
        let mut buffers = BurstBuffers::new();
        let bundle = PACKET_BYTES_MAX / 4100;
        for (waiting, taken) in [
            (2 * bundle, 2 * bundle),
            (2 * bundle + 1, 2 * bundle + 1),
            (3 * bundle - 1, 3 * bundle - 1),
            (3 * bundle, 2 * bundle),
            (4 * bundle + 1, 2 * bundle),
        ] {
            assert_eq!(copied(&mut buffers, 4100, waiting).0, taken, "{waiting} packets");
        }
    }
}
