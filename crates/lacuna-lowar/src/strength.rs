//! Checks of a strength (r, c), and how many repairs a block has.

use lacuna_code::{CHUNKS_MAX, Code, Codec};
use lacuna_wire::rc::{CodeKind, Strength};
use std::sync::Arc;

use crate::units::engine;

/// Most packets of a block, and most repairs: one byte of the repair header each.
pub const BLOCK_PACKETS_MAX: u16 = 256;

/// A strength that no flow can have. The caller's fault, or the peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StrengthError {
    /// Not 1 to 256 of each.
    #[error("a block has 1 to 256 packets and repairs: r = {block_packets}, c = {repairs}")]
    Range {
        /// r.
        block_packets: u16,
        /// c.
        repairs: u16,
    },
    /// More than the code can number.
    #[error(
        "an MDS block has at most {CHUNKS_MAX} packets and repairs: {block_packets} + {repairs}"
    )]
    TooLarge {
        /// r.
        block_packets: u16,
        /// c.
        repairs: u16,
    },
}

/// The codec of a strength; XOR needs none.
pub(crate) fn codec(strength: Strength) -> Result<Option<Arc<Codec>>, StrengthError> {
    let Strength { block_packets, repairs, code } = strength;
    let range = 1..=BLOCK_PACKETS_MAX;
    if !range.contains(&block_packets) || !range.contains(&repairs) {
        return Err(StrengthError::Range { block_packets, repairs });
    }
    match code {
        CodeKind::Xor => Ok(None),
        CodeKind::Mds => Code::mds(block_packets.into(), repairs.into())
            .map(|code| Some(Codec::shared(code, engine())))
            .map_err(|_| StrengthError::TooLarge { block_packets, repairs }),
    }
}

/// Repairs of a block of `packets` packets: with XOR none that would cover no packet.
pub(crate) fn repairs_of(strength: Strength, packets: u16) -> u16 {
    match strength.code {
        CodeKind::Xor => strength.repairs.min(packets),
        CodeKind::Mds => strength.repairs,
    }
}

/// The strength of a short block whose repairs are capped to its share of a full block's,
/// ceil(packets c / r).
///
/// XOR has its sums already when the block's end is known: sum j of c' is that of the sums j, j + c', …
/// of c, so c' is the largest divisor of c that the cap allows.
pub(crate) fn capped(strength: Strength, packets: u16) -> Strength {
    let Strength { block_packets, repairs, code } = strength;
    let share = (u32::from(packets) * u32::from(repairs)).div_ceil(u32::from(block_packets));
    let cap = (share as u16).clamp(1, repairs);
    let repairs = match code {
        CodeKind::Mds => cap,
        CodeKind::Xor => {
            (1..=cap).rev().find(|divisor| repairs.is_multiple_of(*divisor)).unwrap_or(1)
        }
    };
    Strength { repairs, ..strength }
}

/// Whether repairs of strength `used` fit sums that were computed with strength `assumed`.
pub(crate) fn fits(used: Strength, assumed: Strength, packets: u16) -> bool {
    if (used.block_packets, used.code) != (assumed.block_packets, assumed.code) {
        return false;
    }
    let is_capped = packets < assumed.block_packets
        && used.repairs < assumed.repairs
        && (used.code == CodeKind::Mds || assumed.repairs.is_multiple_of(used.repairs));
    used.repairs == assumed.repairs || is_capped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xor(block_packets: u16, repairs: u16) -> Strength {
        Strength { block_packets, repairs, code: CodeKind::Xor }
    }

    #[test]
    fn capped_repairs_divide_the_others() {
        for (r, c, packets, expected) in [
            (64, 8, 1, 1),
            (64, 8, 8, 1),
            (64, 8, 9, 2),
            (64, 8, 31, 4),
            (64, 8, 63, 8),
            (8, 7, 4, 1),
        ] {
            let used = capped(xor(r, c), packets);
            assert_eq!(used.repairs, expected, "({r},{c}) of {packets}");
            assert!(fits(used, xor(r, c), packets));
        }
        let mds = Strength { code: CodeKind::Mds, ..xor(8, 7) };
        assert_eq!(capped(mds, 4).repairs, 4);
        assert!(!fits(xor(64, 3), xor(64, 8), 5));
        assert!(!fits(xor(64, 4), xor(64, 8), 64), "a full block has all of its repairs");
    }

    #[test]
    fn strengths_that_cannot_be_are_refused() {
        assert!(codec(xor(256, 256)).is_ok_and(|codec| codec.is_none()));
        assert_eq!(
            codec(xor(0, 1)).unwrap_err(),
            StrengthError::Range { block_packets: 0, repairs: 1 }
        );
        let mds = |r, c| codec(Strength { code: CodeKind::Mds, ..xor(r, c) });
        assert!(mds(247, 8).is_ok_and(|codec| codec.is_some()));
        assert_eq!(
            mds(248, 8).unwrap_err(),
            StrengthError::TooLarge { block_packets: 248, repairs: 8 }
        );
    }
}
