//! CRC32C by folding with carry-less products, for vectors of any width: Gopal et al., "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009). The last reduction uses
//! the processor's CRC32C instruction.
//!
//! Bytes are a polynomial over GF(2) whose first bit has the highest degree; the checksum is its remainder.
//! A block of 128 bits that lies `d` bits before another can be folded onto it: multiplied by x^d (of which
//! the 32-bit remainder suffices) and added. So four vectors walk over the bytes side by side, each folded
//! onto the one four vectors further on. At the end they are folded onto the last of them, and its 128-bit
//! blocks onto the last block, whose remainder takes two instructions.
//!
//! The CRC32C instruction (64 bits per cycle) does not compete with the products, so it processes a part of the
//! bytes meanwhile: a block of the loop is three streams of words, each with a sum of its own, followed by
//! four vectors. To continue a sum, its register is added to the next four bytes. To continue it behind the
//! later streams, the register is multiplied and added to the first 16 bytes of the vectors. The idea is
//! Peter Cawley's ("Faster CRC32-C on x86", 2023).
//!
//! Bits are reflected: the lowest bit of a block has the highest degree, and its lower half comes before
//! the upper. The product of two reflected halves is reflected except for a shift by one bit: it reads as
//! their product times x. The keys compensate for that.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// CRC32C's polynomial without its highest term, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Multipliers that fold the two halves of 128 bits over some distance.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    /// For the lower half, which comes 64 bits before the upper.
    pub(super) low: i64,
    pub(super) high: i64,
}

impl Keys {
    pub(super) const fn of_bytes(bytes: usize) -> Self {
        let bits = 8 * bytes as u32;
        // One less, because a product reads as multiplied by x.
        Self { low: power(bits + 63), high: power(bits - 1) }
    }
}

/// The multiplier that moves a CRC register over `bytes`: added to the first bytes of 128 bits, the
/// register is 96 bits before their end, and in the lower half 32 bits before its end.
const fn register_key(bytes: usize) -> i64 {
    power(8 * bytes as u32 + 96 - 32 - 1)
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

/// A vector register of one or several 128-bit lanes.
///
/// # Safety
/// All functions need the instructions of the implementing kernel.
pub(super) trait Lanes: Copy {
    /// Bytes of a register.
    const BYTES: usize;
    /// Words of each stream per four registers: they should take as long as the registers' eight products.
    const WORDS: usize;

    /// Reads the bytes at `at`, which are valid for reads.
    unsafe fn load(at: *const u8) -> Self;

    /// Writes the bytes to `at`, where as many are valid for writes.
    unsafe fn store(self, at: *mut u8);

    /// Adds the sum of the bytes before to the first 16 bytes.
    unsafe fn begin(self, before: __m128i) -> Self;

    /// Folds each lane by the keys' distance onto that of `onto`.
    unsafe fn fold(self, keys: Keys, onto: Self) -> Self;

    /// Folds all lanes onto the last.
    unsafe fn narrow(self) -> __m128i;
}

/// Registers in parallel: a product has a latency of four cycles, and one or two start per cycle.
const SIDE_BY_SIDE: usize = 4;
/// Streams of words in parallel: a CRC32C instruction has a latency of three cycles, and one starts per
/// cycle.
const STREAMS: usize = 3;
/// Prefetch distance. The processor's own prefetcher stops at a page boundary. Measured: M-crc-2.
const AHEAD_BYTES: usize = 2048;

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
    let near = const { Keys::of_bytes(L::BYTES) };
    let farther = const { Keys::of_bytes(block_bytes::<L>()) };
    let step = SIDE_BY_SIDE * L::BYTES;
    let block = block_bytes::<L>();
    let len = from.len();
    let bytes = Bytes::<COPIES> { from: from.as_ptr(), to, len };
    let mut at = 0;
    // SAFETY: all that is taken lies in `at..at + n` with `at + n <= len`, or is the last
    // `L::BYTES <= step <= len`; so far `from` and, if it copies, `to` are valid; the instructions
    // are there by contract.
    unsafe {
        if len >= step {
            let mut side: [L; SIDE_BY_SIDE];
            if len >= block {
                bytes.prefetch::<L>(AHEAD_BYTES);
                let before = bytes.streams::<L>(0, register);
                side = std::array::from_fn(|index| bytes.lanes(block - step + index * L::BYTES));
                side[0] = side[0].begin(before);
                at = block;
            } else {
                side = std::array::from_fn(|index| bytes.lanes(index * L::BYTES));
                side[0] = side[0].begin(_mm_cvtsi32_si128(register as i32));
                at = step;
            }
            while at + block <= len {
                bytes.prefetch::<L>(at + AHEAD_BYTES);
                let before = bytes.streams::<L>(at, 0);
                at += block;
                for (index, lanes) in side.iter_mut().enumerate() {
                    *lanes = lanes.fold(farther, bytes.lanes(at - step + index * L::BYTES));
                }
                side[0] = side[0].begin(before);
            }
            bytes.prefetch::<L>(at + AHEAD_BYTES);
            // Less than a block is left. No loop here: the compiler turns such short copying loops into
            // calls and spills all registers, three times or 30 ns per packet of 4,096 bytes.
            const { assert!(block_bytes::<L>() <= 3 * SIDE_BY_SIDE * L::BYTES) };
            bytes.side_if_left::<L>(&mut at, &mut side);
            bytes.side_if_left::<L>(&mut at, &mut side);
            let [first, second, third, fourth] = side;
            let mut last = first.fold(near, second).fold(near, third).fold(near, fourth);
            const { assert!(SIDE_BY_SIDE == 4) };
            bytes.lanes_if_left(&mut at, &mut last);
            bytes.lanes_if_left(&mut at, &mut last);
            bytes.lanes_if_left(&mut at, &mut last);
            let lane = last.narrow();
            let sum = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane) as u64);
            register = _mm_crc32_u64(sum, _mm_extract_epi64::<1>(lane) as u64) as u32;
            // The last bytes are copied as a whole vector that overlaps earlier ones.
            bytes.lanes::<L>(len - L::BYTES);
            return Bytes::<false> { from: bytes.from, to, len }.few(register, at, len);
        }
        bytes.few(register, at, len)
    }
}

/// The register after a few bytes.
///
/// # Safety
/// The processor has SSE4.2.
#[inline(always)]
pub(super) unsafe fn words(register: u32, bytes: &[u8]) -> u32 {
    let all = Bytes::<false> { from: bytes.as_ptr(), to: std::ptr::null_mut(), len: bytes.len() };
    // SAFETY: the instructions are there by contract; `bytes` is valid.
    unsafe { all.few(register, 0, bytes.len()) }
}

/// The bytes to sum and, if it `COPIES`, their destination.
///
/// # Safety
/// All functions need the processor to have SSE4.2 and, of `L`, what it needs; what they take lies
/// in `from` and, if it `COPIES`, in `to`, each `len` bytes, and is valid there for reads and for writes.
#[derive(Clone, Copy)]
struct Bytes<const COPIES: bool> {
    from: *const u8,
    to: *mut u8,
    len: usize,
}

// Always inlined: generic code is compiled without the vector instructions, so each would become a call.
// There are no closures here, because they cannot be marked so.
impl<const COPIES: bool> Bytes<COPIES> {
    #[inline(always)]
    unsafe fn lanes<L: Lanes>(self, at: usize) -> L {
        // SAFETY: by contract.
        unsafe {
            let lanes = L::load(self.from.add(at));
            if COPIES {
                lanes.store(self.to.add(at));
            }
            lanes
        }
    }

    /// Folds four registers onto the next four, if there are as many bytes left.
    #[inline(always)]
    unsafe fn side_if_left<L: Lanes>(self, at: &mut usize, side: &mut [L; SIDE_BY_SIDE]) {
        let far = const { Keys::of_bytes(SIDE_BY_SIDE * L::BYTES) };
        if *at + SIDE_BY_SIDE * L::BYTES <= self.len {
            for (index, lanes) in side.iter_mut().enumerate() {
                // SAFETY: by contract, and in bounds by the line above.
                *lanes = unsafe { lanes.fold(far, self.lanes(*at + index * L::BYTES)) };
            }
            *at += SIDE_BY_SIDE * L::BYTES;
        }
    }

    /// Folds a register onto the next one, if there are as many bytes left.
    #[inline(always)]
    unsafe fn lanes_if_left<L: Lanes>(self, at: &mut usize, last: &mut L) {
        let near = const { Keys::of_bytes(L::BYTES) };
        if *at + L::BYTES <= self.len {
            // SAFETY: by contract, and in bounds by the line above.
            *last = unsafe { last.fold(near, self.lanes(*at)) };
            *at += L::BYTES;
        }
    }

    #[inline(always)]
    unsafe fn word(self, at: usize) -> u64 {
        // SAFETY: by contract.
        unsafe {
            let word = self.from.add(at).cast::<u64>().read_unaligned();
            if COPIES {
                self.to.add(at).cast::<u64>().write_unaligned(word);
            }
            word
        }
    }

    #[inline(always)]
    unsafe fn byte(self, at: usize) -> u8 {
        // SAFETY: by contract.
        unsafe {
            let byte = *self.from.add(at);
            if COPIES {
                *self.to.add(at) = byte;
            }
            byte
        }
    }

    /// The CRC register after the few bytes from `at` to `end`.
    #[inline(always)]
    unsafe fn few(self, mut register: u32, mut at: usize, end: usize) -> u32 {
        // SAFETY: by contract.
        unsafe {
            while at + 8 <= end {
                register = _mm_crc32_u64(register.into(), self.word(at)) as u32;
                at += 8;
            }
            while at < end {
                register = _mm_crc32_u8(register, self.byte(at));
                at += 1;
            }
        }
        register
    }

    /// The sum of the streams at `at`, to be added to the first bytes after them.
    #[inline(always)]
    unsafe fn streams<L: Lanes>(self, at: usize, register: u32) -> __m128i {
        let far = const { register_key(2 * 8 * L::WORDS) };
        let near = const { register_key(8 * L::WORDS) };
        let mut sums = [register.into(), 0, 0];
        // SAFETY: by contract.
        unsafe {
            for word in 0..L::WORDS {
                for (stream, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm_crc32_u64(*sum, self.word(at + (stream * L::WORDS + word) * 8));
                }
            }
            let [first, second, third] = sums;
            let first = move_register(first, far);
            let second = move_register(second, near);
            _mm_xor_si128(_mm_xor_si128(first, second), _mm_cvtsi64_si128(third as i64))
        }
    }

    /// Prefetches a block at `at`, which may be out of bounds.
    #[inline(always)]
    unsafe fn prefetch<L: Lanes>(self, at: usize) {
        for line in (0..block_bytes::<L>()).step_by(64) {
            // SAFETY: nothing is read, and nothing happens where nothing is.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.from.wrapping_add(at + line).cast()) }
        }
    }
}

/// Bytes of a block of the loop: the streams, and the vectors after them.
const fn block_bytes<L: Lanes>() -> usize {
    STREAMS * L::WORDS * 8 + SIDE_BY_SIDE * L::BYTES
}

/// Folds a lane of 128 bits by the keys' distance onto another.
///
/// # Safety
/// The processor has PCLMULQDQ.
#[inline(always)]
pub(super) unsafe fn fold_lane(lane: __m128i, keys: Keys, onto: __m128i) -> __m128i {
    // SAFETY: this function's own contract.
    unsafe {
        let keys = _mm_set_epi64x(keys.high, keys.low);
        let low = _mm_clmulepi64_si128::<0x00>(lane, keys);
        let high = _mm_clmulepi64_si128::<0x11>(lane, keys);
        _mm_xor_si128(_mm_xor_si128(low, high), onto)
    }
}

/// Moves a CRC register by the key's distance.
///
/// # Safety
/// The processor has PCLMULQDQ.
#[inline(always)]
unsafe fn move_register(register: u64, key: i64) -> __m128i {
    // SAFETY: this function's own contract.
    unsafe {
        let register = _mm_cvtsi64_si128(register as i64);
        _mm_clmulepi64_si128::<0x00>(register, _mm_cvtsi64_si128(key))
    }
}
