//! Values of the path's options: one for both directions, or one for each.

use crate::units;
use lacuna_wan::{Fraction, Loss};
use std::str::FromStr;
use std::time::Duration;

/// A value per direction: written `A` for both, or `A,B` for to the server and to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair<T> {
    pub(super) to_server: T,
    pub(super) to_client: T,
}

impl<T> Pair<T> {
    pub(super) fn by_way(&self) -> [&T; 2] {
        [&self.to_server, &self.to_client]
    }
}

/// Reads one value or two.
fn pair<T: Clone>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Pair<T>, String> {
    let mut values = text.split(',').map(&read);
    match (values.next(), values.next(), values.next()) {
        (Some(both), None, _) => both.map(|both| Pair { to_server: both.clone(), to_client: both }),
        (Some(first), Some(second), None) => Ok(Pair { to_server: first?, to_client: second? }),
        _ => Err(format!(
            "\"{text}\" has too many values: one for both ways, or TO_SERVER,TO_CLIENT"
        )),
    }
}

pub(super) fn rates(text: &str) -> Result<Pair<u64>, String> {
    pair(text, units::rate)
}

pub(super) fn times(text: &str) -> Result<Pair<Duration>, String> {
    pair(text, units::duration)
}

/// Shares of packets, from 0 to 1.
pub(super) fn shares(text: &str) -> Result<Pair<f64>, String> {
    pair(text, one_share)
}

fn one_share(text: &str) -> Result<f64, String> {
    match text.trim() {
        // A dark path loses everything; elsewhere a probability of 1 is refused.
        "1" | "1.0" | "100%" => Ok(1.0),
        text => units::fraction(text),
    }
}

/// Mean lengths of bursts, in packets.
pub(super) fn bursts(text: &str) -> Result<Pair<f64>, String> {
    pair(text, |text| match f64::from_str(text.trim()) {
        Ok(burst) if (1.0..=1e6).contains(&burst) => Ok(burst),
        _ => Err(format!("\"{text}\" is no length of a burst: use packets, 1 to 1000000")),
    })
}

/// The chain of two states by its four probabilities: for both ways, or one for each with a slash between.
pub(super) fn chains(text: &str) -> Result<Pair<Loss>, String> {
    let chain = |text: &str| {
        let read: Result<Vec<f64>, _> = text.split(',').map(one_share).collect();
        let fraction = |share: f64| Fraction::checked_from_f64(share);
        match read?[..] {
            [low, high, up, down] => {
                let chain = || {
                    Some(Loss::Gilbert {
                        low: fraction(low)?,
                        high: fraction(high)?,
                        low_to_high: fraction(up)?,
                        high_to_low: fraction(down)?,
                    })
                };
                chain().ok_or_else(|| format!("\"{text}\" has no probabilities: use 0 to 1"))
            }
            _ => Err(format!(
                "\"{text}\" is no chain: use LOW,HIGH,UP,DOWN, such as 0,0.3,1e-4,0.125"
            )),
        }
    };
    let mut ways = text.split('/').map(chain);
    match (ways.next(), ways.next(), ways.next()) {
        (Some(both), None, _) => both.map(|both| Pair { to_server: both.clone(), to_client: both }),
        (Some(first), Some(second), None) => Ok(Pair { to_server: first?, to_client: second? }),
        _ => Err(format!(
            "\"{text}\" has too many chains: one for both ways, or TO_SERVER/TO_CLIENT"
        )),
    }
}

/// Files.
pub(super) fn files(text: &str) -> Result<Pair<String>, String> {
    pair(text, |text| Ok(text.to_owned()))
}

/// Size of a queue: in bytes, or as the time that the link needs to send them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    Bytes(u64),
    Time(Duration),
}

impl Depth {
    /// In bytes on a link of this rate; `None` for a time without a rate.
    pub(super) fn bytes(self, rate_bits_per_s: Option<u64>) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Time(time) => rate_bits_per_s.map(|rate| bytes_in(rate, time)),
        }
    }
}

/// Bytes that a link carries in `time`.
pub(super) fn bytes_in(rate_bits_per_s: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate_bits_per_s) * time.as_nanos() / 8 / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Depths of queues.
pub(super) fn depths(text: &str) -> Result<Pair<Depth>, String> {
    pair(text, |text| {
        units::duration(text)
            .map(Depth::Time)
            .or_else(|_| units::bytes(text).map(Depth::Bytes))
            .map_err(|_| format!("\"{text}\" is no depth of a queue: use 5MB or 20ms"))
    })
}

/// `NAME=VALUE`.
pub(super) fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!("\"{text}\" is no setting: use NAME=VALUE")),
    }
}

/// Bytes that a link adds per packet.
pub(super) fn overhead(text: &str) -> Result<u32, String> {
    match units::bytes(text) {
        Ok(bytes @ 0..=1000) => Ok(bytes as u32),
        _ => Err(format!("\"{text}\" is out of range: 0 to 1000 bytes for each packet")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_for_both_ways_and_two_are_for_one_each() {
        let both = rates("1gbit").unwrap();
        assert_eq!(both.by_way(), [&1_000_000_000, &1_000_000_000]);
        let each = times("20ms,5ms").unwrap();
        assert_eq!(each.by_way().map(Duration::as_millis), [20, 5]);
        assert_eq!(shares("1e-3,0").unwrap(), Pair { to_server: 0.001, to_client: 0.0 });
        assert_eq!(shares("100%").unwrap().to_server, 1.0);
        assert_eq!(bursts("8").unwrap().to_client, 8.0);
        assert_eq!(files("a,b").unwrap().to_client, "b");
        assert!(times("1ms,2ms,3ms").unwrap_err().contains("TO_SERVER,TO_CLIENT"));
    }

    #[test]
    fn a_queue_is_as_deep_as_its_bytes_or_the_time_they_take() {
        assert_eq!(depths("5MB").unwrap().to_server, Depth::Bytes(5_000_000));
        let time = depths("20ms").unwrap().to_server;
        assert_eq!(time.bytes(Some(1_000_000_000)), Some(2_500_000));
        assert_eq!(time.bytes(None), None);
        assert_eq!(Depth::Bytes(7).bytes(None), Some(7));
        // 5m is five minutes, as everywhere.
        assert_eq!(depths("5m").unwrap().to_server, Depth::Time(Duration::from_secs(300)));
    }

    #[test]
    fn nonsense_is_answered_with_what_would_be_right() {
        for (error, part) in [
            (shares("1.5").unwrap_err(), "less than 1"),
            (bursts("0").unwrap_err(), "1 to 1000000"),
            (chains("0,1").unwrap_err(), "LOW,HIGH,UP,DOWN"),
            (chains("0,1,2,0.5").unwrap_err(), "2"),
            (chains("0,1,0,1/0,1,0,1/0,1,0,1").unwrap_err(), "too many"),
            (depths("deep").unwrap_err(), "20ms"),
            (setting("net.x").unwrap_err(), "NAME=VALUE"),
            (setting("=1").unwrap_err(), "NAME=VALUE"),
            (overhead("4KiB").unwrap_err(), "0 to 1000"),
        ] {
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
        assert_eq!(setting("a.b = 1 2").unwrap(), ("a.b".to_owned(), "1 2".to_owned()));
    }
}
