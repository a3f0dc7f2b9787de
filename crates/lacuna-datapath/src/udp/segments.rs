//! Cuts a burst into bundles: messages that the kernel can segment (GSO).
//!
//! `UDP_SEGMENT` cuts a message into packets of one size, of which the last may be shorter. So a
//! bundle is the longest sequence of packets of one size, plus one shorter packet if that comes next,
//! within the kernel's bounds.

use crate::{BUNDLE_PACKETS_MAX, Burst, PACKET_BYTES_MAX};

/// Most iovecs of a message: `UIO_MAXIOV` of Linux. A bundle needs two per packet and one more.
const IOVECS_MAX: usize = 1024;
const _: () = assert!(2 * BUNDLE_PACKETS_MAX < IOVECS_MAX);

/// Packets that go as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bundle {
    pub(super) packets: usize,
    /// The size of every packet but the last, which may be shorter.
    pub(super) segment_bytes: usize,
}

impl Bundle {
    /// The bundle that begins with packet `start` of the burst, of at most `packets_max` packets.
    ///
    /// The byte bound applies from the second packet on: the kernel decides whether the first fits.
    #[inline]
    pub(super) fn starting_at(start: usize, burst: &Burst<'_, '_>, packets_max: usize) -> Self {
        let sizes = (start..burst.len()).map(|i| burst.packet_bytes(i));
        Self::of_sizes(sizes, packets_max.min(BUNDLE_PACKETS_MAX))
    }

    fn of_sizes(mut sizes: impl Iterator<Item = usize>, packets_max: usize) -> Self {
        let segment_bytes = sizes.next().expect("a bundle starts with a packet of the burst");
        let mut bundle = Self { packets: 1, segment_bytes };
        let mut bytes = segment_bytes;
        // An empty packet is always alone: a message of 0 bytes cannot be cut into packets.
        for size in sizes.take(packets_max - 1).take_while(|size| *size > 0) {
            bytes += size;
            if size > segment_bytes || bytes > PACKET_BYTES_MAX {
                break;
            }
            bundle.packets += 1;
            if size < segment_bytes {
                break;
            }
        }
        bundle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundles(sizes: &[usize]) -> Vec<usize> {
        let mut bundles = Vec::new();
        let mut rest = sizes;
        while !rest.is_empty() {
            let bundle = Bundle::of_sizes(rest.iter().copied(), BUNDLE_PACKETS_MAX);
            assert_eq!(bundle.segment_bytes, rest[0]);
            let (taken, after) = rest.split_at(bundle.packets);
            let (last, full) = taken.split_last().unwrap();
            assert!(full.iter().all(|size| *size == bundle.segment_bytes));
            assert!(*last <= bundle.segment_bytes);
            bundles.push(bundle.packets);
            rest = after;
        }
        bundles
    }

    #[test]
    fn a_bundle_ends_with_the_first_packet_of_another_size() {
        assert_eq!(bundles(&[8, 8, 8]), [3]);
        assert_eq!(bundles(&[8, 8, 5, 8]), [3, 1]);
        assert_eq!(bundles(&[8, 8, 9, 9]), [2, 2]);
        assert_eq!(bundles(&[8, 5, 5]), [2, 1]);
        assert_eq!(bundles(&[5, 8]), [1, 1]);
    }

    #[test]
    fn empty_packets_go_alone() {
        assert_eq!(bundles(&[0, 0, 8, 8, 0, 8]), [1, 1, 2, 1, 1]);
    }

    #[test]
    fn a_bundle_keeps_the_bounds_of_the_kernel() {
        assert_eq!(bundles(&[1; 130]), [64, 64, 2]);
        assert_eq!(bundles(&[4096; 16]), [15, 1]);
        assert_eq!(bundles(&[PACKET_BYTES_MAX, 1]), [1, 1]);
        assert_eq!(bundles(&[PACKET_BYTES_MAX - 1, 1, 1]), [2, 1]);
        assert_eq!(bundles(&[PACKET_BYTES_MAX + 1; 2]), [1, 1]);
    }

    #[test]
    fn without_segmentation_every_packet_goes_alone() {
        let bundle = Bundle::of_sizes([8, 8, 8].into_iter(), 1);
        assert_eq!(bundle, Bundle { packets: 1, segment_bytes: 8 });
    }
}
