//! Environment variables: those of programs written for the SDR SDK, and one of Lacuna's.
//!
//! Variables for hardware that is not here are accepted and ignored; the manual lists them. A value
//! that is not a number is an error of the call that reads it, so that a typing mistake is noticed.

use crate::outcome::Failure;

/// Least number of generations: they cost nothing in software, and keep late packets of a message
/// out of the next one in its slot.
const GENERATIONS_MIN: u64 = 4;
/// Most generations: three bits of the queue pair number.
const GENERATIONS_MAX: u64 = 8;
/// One per channel.
const WORKERS_MAX: u64 = 16;

/// The values of the environment variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Environment {
    /// `SDR_QP_NUM_GENERATIONS`, at least [`GENERATIONS_MIN`].
    pub(crate) generations: u8,
    /// Worker threads, which send and receive; 0 for progress in the calls. From `LACUNA_SDR_WORKERS`, or
    /// else from `SDR_DPA_TX_NUM_WORKERS`, where 0 says nothing: the SDK's default.
    pub(crate) workers: Option<usize>,
    /// `SDR_DPA_TX_PROFILE_STATS_REPORT`: print what was sent at the end.
    pub(crate) reports_sent: bool,
    /// `SDR_DPA_RX_PROFILE_STATS_REPORT`: print what was received at the end.
    pub(crate) reports_received: bool,
}

impl Environment {
    /// Reads the variables of this process.
    pub(crate) fn read() -> Result<Self, Failure> {
        Self::from(|name| std::env::var(name).ok())
    }

    fn from(value: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let number = |name: &str, most: u64| match value(name) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<u64>() {
                Ok(number) if number <= most => Ok(Some(number)),
                _ => Err(Failure::usage(format!(
                    "environment variable {name} is \"{text}\": set it to a number from 0 to {most}, or unset it"
                ))),
            },
        };
        let flag = |name: &str| Ok::<_, Failure>(number(name, u64::MAX)?.unwrap_or(0) != 0);
        let generations = number("SDR_QP_NUM_GENERATIONS", GENERATIONS_MAX)?.unwrap_or(1);
        // Read also where the other decides, so that a typing mistake is noticed. A card has more workers
        // than a context has channels.
        let senders = number("SDR_DPA_TX_NUM_WORKERS", u64::MAX)?;
        let senders =
            senders.map(|senders| senders.min(WORKERS_MAX)).filter(|senders| *senders > 0);
        let workers = number("LACUNA_SDR_WORKERS", WORKERS_MAX)?.or(senders);
        Ok(Self {
            generations: generations.max(GENERATIONS_MIN) as u8,
            workers: workers.map(|workers| workers as usize),
            reports_sent: flag("SDR_DPA_TX_PROFILE_STATS_REPORT")?,
            reports_received: flag("SDR_DPA_RX_PROFILE_STATS_REPORT")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Environment, Failure> {
        Environment::from(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn generations_are_four_at_least_and_eight_at_most() {
        for (value, generations) in [("0", 4), ("1", 4), ("4", 4), ("6", 6), (" 8 ", 8)] {
            assert_eq!(with("SDR_QP_NUM_GENERATIONS", value).unwrap().generations, generations);
        }
        let error = with("SDR_QP_NUM_GENERATIONS", "9").unwrap_err();
        assert!(format!("{error:?}").contains("0 to 8"), "{error:?}");
    }

    #[test]
    fn what_is_no_number_is_refused_by_name() {
        let error = with("LACUNA_SDR_WORKERS", "many").unwrap_err();
        assert!(format!("{error:?}").contains("LACUNA_SDR_WORKERS"), "{error:?}");
        assert_eq!(with("LACUNA_SDR_WORKERS", "0").unwrap().workers, Some(0));
        assert_eq!(with("SDR_USE_UC_QP", "nonsense").unwrap().workers, None);
    }

    #[test]
    fn sender_threads_are_as_many_as_the_program_says_and_ours_decides() {
        for (value, workers) in [("0", None), ("3", Some(3)), ("256", Some(16))] {
            assert_eq!(with("SDR_DPA_TX_NUM_WORKERS", value).unwrap().workers, workers, "{value}");
        }
        let error = with("SDR_DPA_TX_NUM_WORKERS", "some").unwrap_err();
        assert!(format!("{error:?}").contains("SDR_DPA_TX_NUM_WORKERS"), "{error:?}");
        let both = |name: &str| match name {
            "SDR_DPA_TX_NUM_WORKERS" => Some("3".to_owned()),
            "LACUNA_SDR_WORKERS" => Some("0".to_owned()),
            _ => None,
        };
        assert_eq!(Environment::from(both).unwrap().workers, Some(0));
    }

    #[test]
    fn reports_are_off_until_asked_for() {
        let none = Environment::from(|_| None).unwrap();
        assert!(!none.reports_sent && !none.reports_received);
        let sent = with("SDR_DPA_TX_PROFILE_STATS_REPORT", "1").unwrap();
        assert!(sent.reports_sent && !sent.reports_received);
    }
}
