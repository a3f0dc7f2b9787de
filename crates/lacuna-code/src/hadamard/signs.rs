//! Random signs from a seed that all ranks share.
//!
//! Without them a tensor whose mean is not zero has most of its energy in one coefficient, and losing that one
//! costs the block. Each block has signs of its own, a function of seed and block number (SplitMix64).

use super::engine::SIGN_WORDS;

/// SplitMix64's increment: 2^64 over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Writes the signs of a block: bit e negates element e. Bits from the block's length on are anything.
pub(super) fn write(seed: u64, block: usize, elements: usize, signs: &mut [u64; SIGN_WORDS]) {
    let first =
        mix(seed).wrapping_add((block as u64).wrapping_mul(STEP.wrapping_mul(SIGN_WORDS as u64)));
    for (word, signs) in signs[..elements.div_ceil(64)].iter_mut().enumerate() {
        *signs = mix(first.wrapping_add((word as u64).wrapping_mul(STEP)));
    }
}

/// SplitMix64's output function.
pub(super) fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
