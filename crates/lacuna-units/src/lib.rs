//! Quantities as text for people: sizes, rates, times and counts.
//!
//! Messages, errors and chart titles of several crates contain quantities; this crate holds the one way to
//! write them. A number has at most two decimals and no trailing zeros; [`show_time_fixed`] has three
//! decimals, for columns of a table. Reading quantities is left to the command line.

#![forbid(unsafe_code)]

/// A size in binary units: `64 MiB`.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        // What rounds to 1024 is one of the next.
        if value < 1023.995 {
            return format!("{} {unit}", trimmed(value));
        }
        value /= 1024.0;
    }
    format!("{} TiB", trimmed(value))
}

/// A time: `25 ms`.
#[must_use]
pub fn show_time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s >= 100.0 * 3600.0 => (s / (24.0 * 3600.0), "days"),
        s if s >= 100.0 * 60.0 => (s / 3600.0, "h"),
        s if s >= 100.0 => (s / 60.0, "min"),
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s => (s * 1e6, "us"),
    };
    format!("{} {unit}", trimmed(value))
}

/// A number of things: `1 run`, `5 runs`.
#[must_use]
pub fn show_count(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A rate in bits: `1 Gbit/s`.
#[must_use]
pub fn show_rate(bits_per_s: f64) -> String {
    let (value, unit) = match bits_per_s {
        rate if rate >= 1e12 => (rate / 1e12, "Tbit/s"),
        rate if rate >= 1e9 => (rate / 1e9, "Gbit/s"),
        rate if rate >= 1e6 => (rate / 1e6, "Mbit/s"),
        rate if rate >= 1e3 || rate == 0.0 => (rate / 1e3, "kbit/s"),
        rate => (rate, "bit/s"),
    };
    format!("{} {unit}", trimmed(value))
}

/// A time with three decimals, for a column: `25.000 ms`.
#[must_use]
pub fn show_time_fixed(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shown_shortly() {
        assert_eq!(show_bytes(64 << 20), "64 MiB");
        assert_eq!(show_bytes(1500), "1.46 KiB");
        assert_eq!(show_bytes((1 << 20) - 1), "1 MiB");
        assert_eq!(show_bytes((1 << 20) - 1000), "1023.02 KiB");
        assert_eq!(show_rate(1e9), "1 Gbit/s");
        assert_eq!(show_rate(5.0), "5 bit/s");
        assert_eq!(show_rate(0.0), "0 kbit/s");
        assert_eq!(show_rate(2e15), "2000 Tbit/s");
        for (seconds, text) in [
            (0.025, "25 ms"),
            (3e-6, "3 us"),
            (7.5, "7.5 s"),
            (600.0, "10 min"),
            (7200.0, "2 h"),
            (864_000.0, "10 days"),
        ] {
            assert_eq!(show_time(seconds), text);
        }
        assert_eq!(show_count(1, "run"), "1 run");
        assert_eq!(show_count(0, "run"), "0 runs");
    }
}
