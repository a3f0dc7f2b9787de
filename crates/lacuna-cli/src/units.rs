//! Quantities on the command line: `64MiB`, `1gbit`, `25ms`, `1e-3`.
//!
//! The error for a wrong quantity shows a right one, in one line. `lacuna-units` formats quantities
//! for output.

use lacuna::ConnectionConfig;
pub(crate) use lacuna_units::{show_bytes, show_count, show_rate, show_time};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// For the long help of a command.
pub(crate) const HELP: &str = "\
Units:
  sizes   64MiB, 10MB, 1500: KiB, MiB, GiB, TiB (K, M, G, T for short) or KB, MB, GB, TB
  rates   1gbit, 100mbit, 2.5gbit: bits per second, never bytes
  times   25ms, 1.5s, 300us, 10min, 12h, 7d
  shares  1e-3, 0.001 or 0.1%";

/// Bytes: a number, alone or with `B`, `KB`, `KiB`, `MB`, `MiB`, `GB`, `GiB`,
/// `TB`, `TiB`; `K`, `M`, `G`, `T` alone are binary, as in the tools around.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    size(text, "a size like 64MiB")
}

fn size(text: &str, example: &str) -> Result<u64, String> {
    let (number, unit) = split(text, example)?;
    let factor: f64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => {
            return Err(format!(
                "unknown unit \"{unit}\": use B, KiB, MiB, GiB, TiB, KB, MB, GB or TB"
            ));
        }
    };
    whole(number * factor, "bytes")
}

/// Bytes, at least one.
pub(crate) fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("a size must be more than zero".to_owned()),
        size => Ok(size),
    }
}

/// Bytes within a range.
pub(crate) fn bytes_within(text: &str, range: &RangeInclusive<u64>) -> Result<u64, String> {
    match bytes(text)? {
        size if range.contains(&size) => Ok(size),
        size => {
            let [size, least, most] = [size, *range.start(), *range.end()].map(show_bytes);
            Err(format!("{size} is out of range: use {least} to {most}"))
        }
    }
}

/// Payload bytes of a packet, within the transport's limits.
pub(crate) fn packet_bytes(text: &str) -> Result<u32, String> {
    allowed_packet_bytes(size(text, "a size like 1400")?)
}

/// The same of a number.
pub(crate) fn allowed_packet_bytes(bytes: u64) -> Result<u32, String> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let geometry = ConnectionConfig::default().geometry(bytes, 1);
    geometry.map(|_| bytes).map_err(|error| error.to_string())
}

/// An integer within a range.
pub(crate) fn count<N>(
    range: RangeInclusive<N>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
            let what = if is_number { "out of range" } else { "no number" };
            Err(format!("\"{text}\" is {what}: use {} to {}", range.start(), range.end()))
        }
    }
}

/// Bits per second: `1gbit`, `100mbit`, `2.5gbit/s`, `9600bit`.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text, "a rate like 1gbit")?;
    if unit.is_empty() {
        return Err(format!("\"{text}\" has no unit: use bit, kbit, mbit or gbit"));
    }
    if unit.contains('B') {
        return Err(format!("\"{text}\" is in bytes: write it in bits, 1GB/s is 8gbit"));
    }
    let unit = unit.to_ascii_lowercase();
    let unit = unit.trim_end_matches("/s").trim_end_matches("ps");
    let factor: f64 = match unit {
        "bit" | "b" => 1.0,
        "kbit" | "kb" | "k" => 1e3,
        "mbit" | "mb" | "m" => 1e6,
        "gbit" | "gb" | "g" => 1e9,
        "tbit" | "tb" | "t" => 1e12,
        _ => return Err(format!("unknown unit \"{unit}\": use bit, kbit, mbit or gbit")),
    };
    match whole(number * factor, "bits per second")? {
        0 => Err("a rate must be more than zero".to_owned()),
        rate => Ok(rate),
    }
}

/// A time: `25ms`, `1.5s`, `300us`, `10min`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text, "a time like 25ms")?;
    let factor: f64 = match unit.to_ascii_lowercase().as_str() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 24.0 * 3600.0,
        "" => return Err(format!("\"{text}\" has no unit: use us, ms, s, min, h or d")),
        _ => return Err(format!("unknown unit \"{unit}\": use us, ms, s, min, h or d")),
    };
    let seconds = number * factor;
    if seconds > 1e9 {
        return Err(format!("\"{text}\" is out of range: use thirty years at most"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A time greater than zero.
pub(crate) fn some_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("a time must be more than zero".to_owned()),
        duration => Ok(duration),
    }
}

/// A probability below 1: `1e-3`, `0.01`, `1%`.
pub(crate) fn fraction(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix('%') {
        Some(digits) => (digits, 0.01),
        None => (text, 1.0),
    };
    let number: f64 = digits
        .trim()
        .parse()
        .map_err(|_| format!("\"{text}\" is no probability: use a number like 1e-3 or 0.1%"))?;
    let value = number * factor;
    if (0.0..1.0).contains(&value) {
        Ok(value)
    } else {
        Err(format!("{text} is out of range: use 0 or more and less than 1"))
    }
}

/// Number and unit of a quantity.
fn split<'t>(text: &'t str, example: &str) -> Result<(f64, &'t str), String> {
    let text = text.trim();
    // "1e9" is a number, "1e" is not: cut where the longest number ends.
    let end = (1..=text.len())
        .rev()
        .filter(|end| text.is_char_boundary(*end))
        .find(|end| text[..*end].parse::<f64>().is_ok())
        .ok_or_else(|| format!("\"{text}\" is not {example}"))?;
    let number: f64 = text[..end].parse().map_err(|_| format!("\"{text}\" is not {example}"))?;
    if !number.is_finite() || number < 0.0 {
        return Err(format!("\"{text}\" is not {example}"));
    }
    Ok((number, text[end..].trim()))
}

fn whole(value: f64, what: &str) -> Result<u64, String> {
    if value > 2f64.powi(60) {
        return Err(format!("more {what} than any machine has"));
    }
    Ok(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!(bytes("64MiB"), Ok(64 << 20));
        assert_eq!(bytes("64 k"), Ok(65_536));
        assert_eq!(bytes("1e6"), Ok(1_000_000));
        assert_eq!(bytes("1.5GB"), Ok(1_500_000_000));
        assert_eq!(some_bytes("1"), Ok(1));
        assert_eq!(bytes_within("8MiB", &(1..=8 << 20)), Ok(8 << 20));
        assert_eq!(packet_bytes("1400"), Ok(1400));
        assert_eq!(packet_bytes("9kB"), Ok(9000));
        assert_eq!(count(1..=16u8)("16"), Ok(16));
        assert_eq!(rate("1gbit"), Ok(1_000_000_000));
        assert_eq!(rate("2.5Gbit/s"), Ok(2_500_000_000));
        assert_eq!(rate("100Mbps"), Ok(100_000_000));
        assert_eq!(duration("25ms"), Ok(Duration::from_millis(25)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("12h"), Ok(Duration::from_secs(12 * 3600)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(7 * 24 * 3600)));
        assert_eq!(fraction("1e-3"), Ok(0.001));
        assert_eq!(fraction("0.5%"), Ok(0.005));
    }

    #[test]
    fn nonsense_is_answered_with_what_would_be_right() {
        for (error, part) in [
            (bytes("many").unwrap_err(), "64MiB"),
            (bytes("5 parsecs").unwrap_err(), "KiB"),
            (bytes("-1").unwrap_err(), "64MiB"),
            (some_bytes("0").unwrap_err(), "more than zero"),
            (bytes_within("1KiB", &(2048..=4096)).unwrap_err(), "1 KiB is out of range: use 2 KiB"),
            (packet_bytes("abc").unwrap_err(), "1400"),
            (packet_bytes("0").unwrap_err(), "multiple of 4 between 64"),
            (packet_bytes("1401").unwrap_err(), "multiple of 4 between 64"),
            (packet_bytes("5GiB").unwrap_err(), "multiple of 4 between 64"),
            (count(1..=16u8)("0").unwrap_err(), "out of range: use 1 to 16"),
            (count(1..=16u8)("999").unwrap_err(), "out of range: use 1 to 16"),
            (count(1..=16u8)("many").unwrap_err(), "no number: use 1 to 16"),
            (some_duration("0s").unwrap_err(), "more than zero"),
            (rate("0gbit").unwrap_err(), "more than zero"),
            (rate("1").unwrap_err(), "no unit"),
            (rate("1GB/s").unwrap_err(), "8gbit"),
            (rate("1MiB").unwrap_err(), "in bytes"),
            (duration("25").unwrap_err(), "no unit"),
            (duration("d").unwrap_err(), "25ms"),
            (duration("-1d").unwrap_err(), "25ms"),
            (duration("99999999999d").unwrap_err(), "thirty years"),
            (fraction("1.5").unwrap_err(), "less than 1"),
            (fraction("often").unwrap_err(), "1e-3"),
        ] {
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
