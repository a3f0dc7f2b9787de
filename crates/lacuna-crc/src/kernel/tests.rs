//! Every kernel against the definition, and against known answers.

use super::Kernel;
use proptest::prelude::*;

/// Bit by bit.
fn naive(register: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(register, |register, byte| {
        (0..8).fold(register ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

fn bytes(len: usize) -> Vec<u8> {
    let mut state = len as u32 | 1;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(len)
    .collect()
}

/// RFC 3720, appendix B.4, as numbers; and the check value of the CRC catalogue.
#[test]
fn known_answers() {
    let ascending: Vec<u8> = (0..32).collect();
    let answers: [(&[u8], u32); 5] = [
        (&[], 0),
        (&[0; 32], 0x8a91_36aa),
        (&[0xff; 32], 0x62a8_ab43),
        (&ascending, 0x46dd_794e),
        (b"123456789", 0xe306_9283),
    ];
    for kernel in Kernel::available() {
        for (data, expected) in answers {
            assert_eq!(!kernel.update(u32::MAX, data), expected, "{kernel:?}");
        }
    }
}

/// Bytes on each side of a copy that must stay: the longest register's, twice.
const BESIDE: usize = 128;

#[test]
fn every_length_is_summed_and_copied_by_every_kernel() {
    for len in (0..700).chain([1400, 1416, 4096, 4112, 8973, 65_507]) {
        let data = bytes(len);
        let expected = naive(0x1234_5678, &data);
        for kernel in Kernel::available() {
            assert_eq!(kernel.update(0x1234_5678, &data), expected, "{kernel:?}, {len}");
            // All of it, and what is behind a header.
            for before_bytes in [0, len.min(20)] {
                let mut copy = vec![0xa5; BESIDE + len + BESIDE];
                let (before, from) = data.split_at(before_bytes);
                let end = BESIDE + from.len();
                let after = kernel.copy(0x1234_5678, before, from, &mut copy[BESIDE..end]);
                assert_eq!(after, expected, "{kernel:?}, {len}");
                assert_eq!(&copy[BESIDE..end], from, "{kernel:?}, {len}");
                let mut beside = copy[..BESIDE].iter().chain(&copy[end..]);
                assert!(beside.all(|byte| *byte == 0xa5), "{kernel:?}, {len}: nothing beside it");
            }
        }
    }
}

#[test]
fn the_chosen_kernel_is_the_fastest_available() {
    assert_eq!(Some(Kernel::chosen()), Kernel::available().last());
    assert_eq!(Kernel::chosen(), Kernel::chosen());
}

proptest! {
    #[test]
    fn parts_at_any_address_sum_up_to_the_whole(
        data in prop::collection::vec(any::<u8>(), 0..3000),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        register in any::<u32>(),
        shift in 0..64usize,
    ) {
        let expected = naive(register, &data);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let mut shifted = vec![0; shift];
        shifted.extend(&data);
        for kernel in Kernel::available() {
            let mut sum = register;
            let mut copy = vec![0; data.len()];
            for (index, cut) in cuts.windows(2).enumerate() {
                let lane = &shifted[shift + cut[0]..shift + cut[1]];
                sum = match index % 2 {
                    0 => kernel.update(sum, lane),
                    _ => kernel.copy(sum, &[], lane, &mut copy[cut[0]..cut[1]]),
                };
            }
            prop_assert_eq!(sum, expected, "{:?}", kernel);
            for cut in cuts.windows(2).skip(1).step_by(2) {
                prop_assert_eq!(&copy[cut[0]..cut[1]], &data[cut[0]..cut[1]], "{:?}", kernel);
            }
        }
    }

    #[test]
    fn one_changed_bit_changes_the_sum(len in 1..5000usize, bit in any::<prop::sample::Index>()) {
        let mut data = bytes(len);
        let bit = bit.index(8 * len);
        for kernel in Kernel::available() {
            let before = kernel.update(u32::MAX, &data);
            data[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(kernel.update(u32::MAX, &data), before);
        }
    }
}
