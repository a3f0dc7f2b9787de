//! Cuts a burst into messages that the kernel can segment (GSO).
//!
//! `UDP_SEGMENT` cuts a message into packets of one size, the last of which may be shorter. So a
//! message takes a maximal run of packets of one size, plus one shorter packet if that comes next,
//! within the kernel's bounds.

use crate::{BUNDLE_PACKETS_MAX, Burst, PACKET_BYTES_MAX};

/// Packets in a message.
pub(super) const RUN_PACKETS_MAX: usize = BUNDLE_PACKETS_MAX;

/// Pieces in a message: `UIO_MAXIOV` of Linux. A run has two pieces a packet and one more.
const PIECES_MAX: usize = 1024;
const _: () = assert!(2 * RUN_PACKETS_MAX < PIECES_MAX);

/// Packets that go as one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) packets: usize,
    /// The size of every packet but the last, which may be shorter.
    pub(super) segment_bytes: usize,
}

impl Run {
    /// The run that begins with packet `start` of the burst, of `packets_max` packets at most.
    ///
    /// The bounds apply from the second packet on: whether the first fits at all is for the kernel
    /// to say.
    pub(super) fn starting_at(start: usize, burst: &Burst<'_, '_>, packets_max: usize) -> Self {
        let sizes = (start..burst.len()).map(|i| burst.packet_bytes(i));
        Self::of_sizes(sizes, packets_max.min(RUN_PACKETS_MAX))
    }

    fn of_sizes(mut sizes: impl Iterator<Item = usize>, packets_max: usize) -> Self {
        let segment_bytes = sizes.next().expect("a run starts with a packet of the burst");
        let mut run = Self { packets: 1, segment_bytes };
        let mut bytes = segment_bytes;
        // An empty packet is always alone: the kernel has no way to say "some packets of no bytes".
        for size in sizes.take(packets_max - 1).take_while(|size| *size > 0) {
            bytes += size;
            if size > segment_bytes || bytes > PACKET_BYTES_MAX {
                break;
            }
            run.packets += 1;
            if size < segment_bytes {
                break;
            }
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(sizes: &[usize]) -> Vec<usize> {
        let mut runs = Vec::new();
        let mut rest = sizes;
        while !rest.is_empty() {
            let run = Run::of_sizes(rest.iter().copied(), RUN_PACKETS_MAX);
            assert_eq!(run.segment_bytes, rest[0]);
            let (taken, after) = rest.split_at(run.packets);
            let (last, full) = taken.split_last().unwrap();
            assert!(full.iter().all(|size| *size == run.segment_bytes));
            assert!(*last <= run.segment_bytes);
            runs.push(run.packets);
            rest = after;
        }
        runs
    }

    #[test]
    fn a_run_ends_with_the_first_packet_of_another_size() {
        assert_eq!(runs(&[8, 8, 8]), [3]);
        assert_eq!(runs(&[8, 8, 5, 8]), [3, 1]);
        assert_eq!(runs(&[8, 8, 9, 9]), [2, 2]);
        assert_eq!(runs(&[8, 5, 5]), [2, 1]);
        assert_eq!(runs(&[5, 8]), [1, 1]);
    }

    #[test]
    fn empty_packets_go_alone() {
        assert_eq!(runs(&[0, 0, 8, 8, 0, 8]), [1, 1, 2, 1, 1]);
    }

    #[test]
    fn a_run_keeps_the_bounds_of_the_kernel() {
        assert_eq!(runs(&[1; 130]), [64, 64, 2]);
        assert_eq!(runs(&[4096; 16]), [15, 1]);
        assert_eq!(runs(&[PACKET_BYTES_MAX, 1]), [1, 1]);
        assert_eq!(runs(&[PACKET_BYTES_MAX - 1, 1, 1]), [2, 1]);
        assert_eq!(runs(&[PACKET_BYTES_MAX + 1; 2]), [1, 1]);
    }

    #[test]
    fn without_segmentation_every_packet_goes_alone() {
        let run = Run::of_sizes([8, 8, 8].into_iter(), 1);
        assert_eq!(run, Run { packets: 1, segment_bytes: 8 });
    }
}
