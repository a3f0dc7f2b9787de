//! Values that several of these commands take, read as people write them.

use crate::units;

/// A round-trip time in seconds.
pub(super) fn rtt_s(text: &str) -> Result<f64, String> {
    if text.trim_start().starts_with('-') {
        return Err(format!("{text} is out of range: at least 0, a time like 25ms"));
    }
    units::duration(text).map(|time| time.as_secs_f64())
}

/// A rate in bits per second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    if text.trim_start().starts_with('-') {
        return Err(format!("{text} is out of range: more than 0, a rate like 400gbit"));
    }
    units::rate(text).map(|rate| rate as f64)
}

/// A size of at least a byte.
pub(super) fn size(text: &str) -> Result<u64, String> {
    match units::bytes(text)? {
        0 => Err("0 is out of range: at least 1 byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A number that is not negative.
pub(super) fn factor(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        _ => Err(format!("{text} is out of range: a number of at least 0")),
    }
}

/// One loss, or a range of them: `1e-3` or `1e-5..1e-2`.
pub(super) fn losses(text: &str) -> Result<(f64, f64), String> {
    let Some((low, high)) = text.split_once("..") else {
        return units::fraction(text).map(|loss| (loss, loss));
    };
    let (low, high) = (units::fraction(low)?, units::fraction(high)?);
    if 0.0 < low && low <= high {
        Ok((low, high))
    } else {
        Err(format!("{text} is no range: the lower loss is more than 0 and comes first"))
    }
}

/// A distance in kilometres.
pub(super) fn kilometres(text: &str) -> Result<f64, String> {
    let digits = text.trim().strip_suffix("km").map(str::trim_end);
    match digits.map(str::parse::<f64>) {
        Some(Ok(km)) if km >= 0.0 && km.is_finite() => Ok(km),
        _ => Err(format!("\"{text}\" is not a distance of at least 0km, like 3750km")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_one_or_a_range() {
        assert_eq!(losses("1e-3"), Ok((1e-3, 1e-3)));
        assert_eq!(losses("1e-5..0.1%"), Ok((1e-5, 1e-3)));
        assert!(losses("1e-2..1e-3").is_err());
        assert!(losses("0..1e-3").is_err());
        assert!(losses("1..2").unwrap_err().contains("less than 1"));
    }

    #[test]
    fn negative_quantities_are_told_their_range() {
        for error in [
            rtt_s("-25ms").unwrap_err(),
            rate("-1gbit").unwrap_err(),
            size("0").unwrap_err(),
            factor("-1").unwrap_err(),
            kilometres("-3km").unwrap_err(),
        ] {
            assert!(
                error.contains("at least 0")
                    || error.contains("than 0")
                    || error.contains("1 byte"),
                "{error}"
            );
        }
    }

    #[test]
    fn distances_are_kilometres() {
        assert_eq!(kilometres("3750km"), Ok(3750.0));
        assert_eq!(kilometres("3750 km"), Ok(3750.0));
        assert!(kilometres("3750").is_err());
        assert!(kilometres("5 miles").is_err());
    }
}
