//! What is done about lost packets, by name: a mode of Lacuna, with a fixed budget or the transform if it is to be, or
//! go-back-N over reliable connections, the baseline of OptiNIC's figures.

use lacuna::Mode;
use lacuna::rc::Repair;
use lacuna_collective::{Budget, Transport};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The end of a name that asks for the transform.
const TRANSFORM: &str = "+transform";
/// Go-back-N over reliable connections.
const GO_BACK_N: &str = "gbn";
/// What names can be.
const NAMES: &str = "use gbn, sr, auto, ec:CODE, bounded, bounded@MS or bounded+transform, where MS are milliseconds";

/// What is done about lost packets.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    transport: Transport,
    mode: Mode,
    has_transform: bool,
    budget: Budget,
}

/// A name that says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// No mode is called so.
    #[error("{name:?}: {why}; {NAMES}")]
    Mode {
        /// What was given.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The mode neither repairs losses nor ends in time.
    #[error("mode {0} repairs nothing and ends nothing; {NAMES}")]
    Endless(String),
    /// Time for operations that end when they are complete, or time that is none.
    #[error("{0:?}: a time is for bounded, in milliseconds above 0, as in bounded@150")]
    Time(String),
}

impl Default for Delivery {
    /// Complete, as the path calls for.
    fn default() -> Self {
        Self {
            transport: Transport::Sdr,
            mode: Mode::Auto,
            has_transform: false,
            budget: Budget::Unlimited,
        }
    }
}

impl Delivery {
    /// What carries long messages of the group.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The mode of the group.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether what is summed are transforms.
    #[must_use]
    pub fn has_transform(&self) -> bool {
        self.has_transform
    }

    /// The time of an operation.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Whether operations end with what is there.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.budget != Budget::Unlimited
    }

    /// The same with a fixed budget, if it would learn one.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        let is_learned = self.budget == Budget::Adaptive;
        Self { budget: if is_learned { Budget::Fixed(time) } else { self.budget }, ..self }
    }
}

impl FromStr for Delivery {
    type Err = DeliveryError;

    fn from_str(name: &str) -> Result<Self, DeliveryError> {
        let (rest, has_transform) =
            name.strip_suffix(TRANSFORM).map_or((name, false), |rest| (rest, true));
        let (rest, time) =
            rest.split_once('@').map_or((rest, None), |(rest, time)| (rest, Some(time)));
        let (transport, mode) = match rest {
            GO_BACK_N => (Transport::Rc(Repair::GoBackN), "auto"),
            mode => (Transport::Sdr, mode),
        };
        let mode: Mode = mode.parse().map_err(|why: lacuna::modes::ModeError| {
            DeliveryError::Mode { name: name.to_owned(), why: why.to_string() }
        })?;
        let budget = match (mode, time) {
            (Mode::Bounded(_), None) => Budget::Adaptive,
            (Mode::Bounded(_), Some(ms)) => {
                let time =
                    ms.parse().ok().and_then(|ms: f64| Duration::try_from_secs_f64(ms / 1e3).ok());
                let time = time.filter(|time| !time.is_zero());
                Budget::Fixed(time.ok_or_else(|| DeliveryError::Time(name.to_owned()))?)
            }
            (mode, None) if mode.is_reliable() => Budget::Unlimited,
            (mode, Some(_)) if mode.is_reliable() => {
                return Err(DeliveryError::Time(name.to_owned()));
            }
            _ => return Err(DeliveryError::Endless(name.to_owned())),
        };
        Ok(Self { transport, mode, has_transform, budget })
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport {
            Transport::Rc(_) => f.write_str(GO_BACK_N)?,
            Transport::Sdr => write!(f, "{}", self.mode)?,
        }
        if let Budget::Fixed(time) = self.budget {
            write!(f, "@{}", time.as_secs_f64() * 1e3)?;
        }
        f.write_str(if self.has_transform { TRANSFORM } else { "" })
    }
}

impl serde::Serialize for Delivery {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() -> Result<(), DeliveryError> {
        let names = ["gbn", "auto", "sr", "bounded", "bounded@2.5", "bounded@150+transform"];
        for name in names.into_iter().chain(["bounded+transform", "auto+transform"]) {
            let delivery: Delivery = name.parse()?;
            assert_eq!(delivery.to_string(), name);
            assert_eq!(delivery.transport() == Transport::Sdr, name != "gbn");
            assert_eq!(delivery.is_bounded(), name.starts_with("bounded"));
            assert_eq!(delivery.has_transform(), name.ends_with("transform"));
        }
        assert!(matches!("raw".parse::<Delivery>(), Err(DeliveryError::Endless(_))));
        assert!(matches!("gone".parse::<Delivery>(), Err(DeliveryError::Mode { .. })));
        for name in ["sr@5", "gbn@5", "bounded@0", "bounded@-1", "bounded@x", "bounded@1e300"] {
            assert_eq!(name.parse::<Delivery>(), Err(DeliveryError::Time(name.to_owned())));
        }
        Ok(())
    }

    #[test]
    fn a_budget_for_all_is_for_those_that_name_none() -> Result<(), DeliveryError> {
        let within = |name: &str| -> Result<Budget, DeliveryError> {
            Ok(name.parse::<Delivery>()?.within(Duration::from_millis(7)).budget())
        };
        assert_eq!(within("bounded")?, Budget::Fixed(Duration::from_millis(7)));
        assert_eq!(within("bounded@3")?, Budget::Fixed(Duration::from_millis(3)));
        assert_eq!(within("gbn")?, Budget::Unlimited);
        Ok(())
    }
}
