//! The sum by carry-less products, for vectors of any width: Gopal et al., "Fast CRC Computation for
//! Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), with the end left to the
//! processor's own CRC32C instruction.
//!
//! Bytes are a polynomial over GF(2), the first bit of highest degree; the sum is its remainder. A
//! piece of 128 bits that lies `d` bits before another may be moved onto it if it is multiplied by
//! x^d, of which the remainder suffices: 32 bits. So four vectors walk the bytes side by side, each
//! moved onto what lies four vectors further on, are moved onto the last of them, and that is cut
//! into pieces of 128 bits that are moved onto the last. Its remainder takes two instructions.
//!
//! Bits are reflected: the lowest bit of a piece has the highest degree, its lower half stands
//! before the upper. The product of two reflected halves is reflected, too, but for one bit: it reads
//! as their product times x. The keys take that into account.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// CRC32C's polynomial without its highest term, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What the two halves of 128 bits are multiplied by to be moved by so many bytes.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    /// Of the lower half, which stands 64 bits before the upper.
    pub(super) low: i64,
    pub(super) high: i64,
}

impl Keys {
    pub(super) const fn of_bytes(bytes: usize) -> Self {
        let bits = 8 * bytes as u32;
        // One less: a product reads as that much more.
        Self { low: power(bits + 63), high: power(bits - 1) }
    }
}

/// The remainder of x^n, reflected in 64 bits.
const fn power(n: u32) -> i64 {
    // x^0.
    let mut remainder = 1u32 << 31;
    let mut degree = 0;
    while degree < n {
        let carry = remainder & 1;
        remainder >>= 1;
        if carry == 1 {
            remainder ^= POLYNOMIAL;
        }
        degree += 1;
    }
    ((remainder as u64) << 32) as i64
}

/// A register of some times 128 bits.
///
/// # Safety
/// All functions need the instructions that the implementing engine has proven.
pub(super) trait Lanes: Copy {
    /// Bytes of a register.
    const BYTES: usize;

    /// The bytes at `at`, which are valid for reads.
    unsafe fn load(at: *const u8) -> Self;

    /// Writes them to `at`, where as many are valid for writes.
    unsafe fn store(self, at: *mut u8);

    /// Lays a sum's register over the first four bytes.
    unsafe fn begin(self, register: u32) -> Self;

    /// Moves each piece by the keys' distance, onto those of `onto`.
    unsafe fn fold(self, keys: Keys, onto: Self) -> Self;

    /// All pieces moved onto the last.
    unsafe fn narrow(self) -> __m128i;
}

/// Registers that go side by side: a product takes four cycles, and one or two begin in each.
const SIDE_BY_SIDE: usize = 4;

/// The register after `from`; copies the bytes to `to` if it `COPIES`.
///
/// # Safety
/// The processor has what `L` needs, and SSE4.2. If it `COPIES`: as for `Crc32c::copy_to`.
#[inline(always)]
pub(super) unsafe fn run<L: Lanes, const COPIES: bool>(
    mut register: u32,
    from: &[u8],
    to: *mut u8,
) -> u32 {
    let far = const { Keys::of_bytes(SIDE_BY_SIDE * L::BYTES) };
    let near = const { Keys::of_bytes(L::BYTES) };
    let step = SIDE_BY_SIDE * L::BYTES;
    let mut at = 0;
    // SAFETY: every access is to `at..at + n` with `at + n <= from.len()`, of `from` and, if it
    // copies, of `to`, which are valid so far; the instructions are there by contract.
    unsafe {
        let take = |at: usize| {
            let lanes = L::load(from.as_ptr().add(at));
            if COPIES {
                lanes.store(to.add(at));
            }
            lanes
        };
        if from.len() >= step {
            let mut side: [L; SIDE_BY_SIDE] = std::array::from_fn(|index| take(index * L::BYTES));
            side[0] = side[0].begin(register);
            at = step;
            while at + step <= from.len() {
                for (index, lanes) in side.iter_mut().enumerate() {
                    *lanes = lanes.fold(far, take(at + index * L::BYTES));
                }
                at += step;
            }
            let [first, second, third, fourth] = side;
            let mut last = first.fold(near, second).fold(near, third).fold(near, fourth);
            while at + L::BYTES <= from.len() {
                last = last.fold(near, take(at));
                at += L::BYTES;
            }
            let piece = last.narrow();
            let sum = _mm_crc32_u64(0, _mm_cvtsi128_si64(piece) as u64);
            register = _mm_crc32_u64(sum, _mm_extract_epi64::<1>(piece) as u64) as u32;
        }
        while at + 8 <= from.len() {
            let word = from.as_ptr().add(at).cast::<u64>().read_unaligned();
            register = _mm_crc32_u64(register.into(), word) as u32;
            if COPIES {
                to.add(at).cast::<u64>().write_unaligned(word);
            }
            at += 8;
        }
        while at < from.len() {
            let byte = *from.as_ptr().add(at);
            register = _mm_crc32_u8(register, byte);
            if COPIES {
                *to.add(at) = byte;
            }
            at += 1;
        }
    }
    register
}

/// Moves a piece of 128 bits by the keys' distance, onto another.
///
/// # Safety
/// The processor has PCLMULQDQ.
#[inline(always)]
pub(super) unsafe fn fold_piece(piece: __m128i, keys: Keys, onto: __m128i) -> __m128i {
    // SAFETY: this function's own contract.
    unsafe {
        let keys = _mm_set_epi64x(keys.high, keys.low);
        let low = _mm_clmulepi64_si128::<0x00>(piece, keys);
        let high = _mm_clmulepi64_si128::<0x11>(piece, keys);
        _mm_xor_si128(_mm_xor_si128(low, high), onto)
    }
}
