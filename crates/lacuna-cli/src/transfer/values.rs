//! Values of options, read with what would be right in the answer.

use crate::units::{self, show_bytes};
use lacuna::{ConnectionConfig, Mode};
use std::time::Duration;

/// Blocks that data on its way may take: one comes while the other is written;
/// and a bound against slips of the finger.
pub(super) const BLOCKS: std::ops::RangeInclusive<u64> = 2..=512;

/// Bytes of a block.
const BLOCK_BYTES: u64 = 4 << 20;
#[cfg(unix)]
const _: () = assert!(BLOCK_BYTES == super::wire::BLOCK_BYTES as u64);

/// A reliability that brings everything over.
pub(super) fn mode(text: &str) -> Result<Mode, String> {
    match text.parse::<Mode>() {
        Ok(mode) if mode.is_reliable() => Ok(mode),
        Ok(mode) => Err(format!("{mode} does not repair losses: use sr or sr:rto")),
        Err(_) => Err(format!("there is no mode \"{text}\": use sr or sr:rto")),
    }
}

/// Payload bytes of a packet.
pub(super) fn mtu(text: &str) -> Result<u32, String> {
    let bytes = units::bytes(text).map_err(|_| format!("\"{text}\" is not a size like 1400"))?;
    let mtu = u32::try_from(bytes).unwrap_or(u32::MAX);
    let geometry = ConnectionConfig::default().geometry(mtu, 1);
    geometry.map(|_| mtu).map_err(|error| error.to_string())
}

/// Bytes of a chunk.
pub(super) fn chunk(text: &str) -> Result<u64, String> {
    match units::bytes(text)? {
        0 => Err("a chunk of nothing: use a size like 4KiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Sockets.
pub(super) fn channels(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(channels @ 1..=16) => Ok(channels),
        _ => Err(format!("\"{text}\" is no number of channels: use 1 to 16")),
    }
}

/// Memory for data on its way.
pub(super) fn buffers(text: &str) -> Result<u64, String> {
    let bytes = units::bytes(text)?;
    let [least, most] = [BLOCKS.start(), BLOCKS.end()].map(|blocks| blocks * BLOCK_BYTES);
    if (least..=most).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!(
        "{} is out of range: use {} to {}",
        show_bytes(bytes),
        show_bytes(least),
        show_bytes(most)
    ))
}

/// A time that may be in days.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let Some(days) = text.strip_suffix('d') else {
        return units::duration(text).map_err(|error| format!("{error}; days are written 7d"));
    };
    match days.trim_end().parse::<u32>() {
        Ok(days) => Ok(Duration::from_secs(u64::from(days) * 24 * 3600)),
        Err(_) => Err(format!("\"{text}\" is not a time like 7d or 12h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!(mode("sr"), Ok(Mode::SR));
        assert_eq!(mtu("1400"), Ok(1400));
        assert_eq!(mtu("8KiB"), Ok(8192));
        assert_eq!(chunk("64KiB"), Ok(64 << 10));
        assert_eq!(channels("16"), Ok(16));
        assert_eq!(buffers("8MiB"), Ok(8 << 20));
        assert_eq!(age("7d"), Ok(Duration::from_secs(7 * 24 * 3600)));
        assert_eq!(age("12h"), Ok(Duration::from_secs(12 * 3600)));
    }

    #[test]
    fn nonsense_is_answered_with_what_would_be_right() {
        for (error, part) in [
            (mode("raw").unwrap_err(), "use sr"),
            (mode("magic").unwrap_err(), "use sr"),
            (mtu("abc").unwrap_err(), "1400"),
            (mtu("0").unwrap_err(), "multiple of 4 between 64"),
            (mtu("1401").unwrap_err(), "multiple of 4 between 64"),
            (mtu("9GB").unwrap_err(), "multiple of 4 between 64"),
            (chunk("0").unwrap_err(), "4KiB"),
            (channels("0").unwrap_err(), "1 to 16"),
            (channels("17").unwrap_err(), "1 to 16"),
            (channels("many").unwrap_err(), "1 to 16"),
            (buffers("1KiB").unwrap_err(), "8 MiB to 2 GiB"),
            (buffers("1TiB").unwrap_err(), "8 MiB to 2 GiB"),
            (age("7").unwrap_err(), "7d"),
            (age("d").unwrap_err(), "7d"),
            (age("-1d").unwrap_err(), "7d"),
            (age("99999999999d").unwrap_err(), "7d"),
        ] {
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
