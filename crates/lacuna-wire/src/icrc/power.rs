//! Powers of x modulo the polynomial of CRC-32, to shift a checksum past bytes that follow it.
//!
//! A CRC register is a polynomial over GF(2), lowest power in the highest bit (the reflected form).
//! A byte that follows multiplies it by x^8 and adds the byte. So the effect of some bits on the
//! checksum of a packet is those bits times a power of x, and can be added or removed without
//! reading the packet; dividing by that power recovers the bits.

/// The polynomial of CRC-32 (IEEE 802.3), reflected, without x^32.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;
/// Lengths have this many bits: no packet has 128 KiB.
const LENGTH_BITS: usize = 17;

/// x^(8 * 2^k) and x^(-8 * 2^k) for each `k`.
const UP: [u32; LENGTH_BITS] = squares(ONE >> 8);
const DOWN: [u32; LENGTH_BITS] = squares(INVERSE_BYTE);

/// x^-8: eight times, the step that a register makes for a zero bit is undone.
const INVERSE_BYTE: u32 = {
    let (mut power, mut bit) = (ONE, 0);
    while bit < 8 {
        power = if power & ONE != 0 { (power ^ POLYNOMIAL) << 1 | 1 } else { power << 1 };
        bit += 1;
    }
    power
};

const fn squares(first: u32) -> [u32; LENGTH_BITS] {
    let mut powers = [first; LENGTH_BITS];
    let mut k = 1;
    while k < LENGTH_BITS {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
}

/// The product of two polynomials.
pub(super) const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, 0);
    while bit < 32 {
        // Masks instead of branches, which would be mispredicted half of the time.
        product ^= b & 0u32.wrapping_sub(a >> (31 - bit) & 1);
        b = b >> 1 ^ POLYNOMIAL & 0u32.wrapping_sub(b & 1);
        bit += 1;
    }
    product
}

/// x^(8 * bytes).
pub(super) const fn past(bytes: usize) -> u32 {
    power(&UP, bytes)
}

/// x^(-8 * bytes).
pub(super) const fn back(bytes: usize) -> u32 {
    power(&DOWN, bytes)
}

const fn power(squares: &[u32; LENGTH_BITS], bytes: usize) -> u32 {
    let (mut power, mut k) = (ONE, 0);
    while k < LENGTH_BITS {
        if bytes >> k & 1 != 0 {
            power = multiply(power, squares[k]);
        }
        k += 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_undoes_past() {
        for bytes in [0, 1, 2, 5, 32, 36, 1464, 4128, 65_507, 131_071] {
            assert_eq!(multiply(past(bytes), back(bytes)), ONE, "{bytes}");
        }
    }

    #[test]
    fn past_is_what_zero_bytes_do_to_a_register() {
        let step = |register: u32| {
            (0..8).fold(register, |crc, _| crc >> 1 ^ POLYNOMIAL & 0u32.wrapping_sub(crc & 1))
        };
        let mut register = 0x1234_5678;
        for bytes in 0..300 {
            assert_eq!(multiply(past(bytes), 0x1234_5678), register, "{bytes}");
            register = step(register);
        }
    }
}
