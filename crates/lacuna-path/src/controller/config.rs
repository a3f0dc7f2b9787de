//! Configuration of the congestion controller: the kinds, their table, and their text form.

use super::{AnyController, Bbr, Cubic, Fixed};
use crate::report_policy::ReportPolicy;
use std::str::FromStr;

/// Parameters of a new controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Bytes of a full packet.
    pub packet_bytes: u64,
    /// Seed of its random numbers: flows that probe at the same times disturb each other.
    pub seed: u64,
}

/// The kinds of controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// See [`Bbr`].
    Bbr,
    /// See [`Cubic`].
    Cubic,
    /// See [`Fixed`].
    Fixed,
}

/// One entry per controller, in the order of the enum.
pub const TABLE: &[KindEntry] = &[
    KindEntry {
        kind: Kind::Bbr,
        name: "bbr",
        summary: "BBR version 3: finds the path's rate; loss alone does not slow it down",
        alone: Some(ControllerConfig::Bbr),
        reports: ReportPolicy::DEFAULT,
    },
    KindEntry {
        kind: Kind::Cubic,
        name: "cubic",
        summary: "as most TCP: slows down at every loss; to compare with",
        alone: Some(ControllerConfig::Cubic),
        reports: ReportPolicy::DEFAULT,
    },
    KindEntry {
        kind: Kind::Fixed,
        name: "fixed",
        summary: "the rate that is given, whatever happens: for a link that is yours",
        alone: None,
        reports: ReportPolicy::DEFAULT,
    },
];

/// An entry of [`TABLE`].
#[derive(Debug, Clone, Copy)]
pub struct KindEntry {
    /// The kind.
    pub kind: Kind,
    /// As on the command line.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The configuration for its name alone; `None` if it needs a rate.
    pub alone: Option<ControllerConfig>,
    /// The report policy that it wants of the peer.
    pub reports: ReportPolicy,
}

const _: () = {
    let mut index = 0;
    while index < TABLE.len() {
        assert!(TABLE[index].kind as usize == index, "the table is in the enum's order");
        index += 1;
    }
};

impl Kind {
    /// Its line of the table.
    fn entry(self) -> &'static KindEntry {
        &TABLE[self as usize]
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        self.entry().name
    }
}

impl FromStr for Kind {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let entry = TABLE.iter().find(|entry| entry.name == text);
        entry.map(|entry| entry.kind).ok_or_else(|| ConfigError::Unknown { name: text.to_owned() })
    }
}

/// Which controller to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ControllerConfig {
    /// A model of the path from delivery rate and round-trip time.
    #[default]
    Bbr,
    /// A window that is reduced at every loss, as TCP's.
    Cubic,
    /// Send at this rate: for a link that is yours.
    Fixed {
        /// UDP payload and 28 bytes of IP and UDP headers a packet, per second.
        rate_bits_per_s: u64,
    },
}

/// A text names no controller. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No controller has this name.
    #[error("no controller is called {name:?}")]
    Unknown {
        /// As it was given.
        name: String,
    },
    /// `fixed` without a rate.
    #[error("the controller fixed needs a rate")]
    NoRate,
    /// The rate is not a number, or is 0.
    #[error("{text:?} is no rate in bits per second")]
    Rate {
        /// As it was given.
        text: String,
    },
}

/// As [`Kind`] is written, and for `fixed` the rate in bits per second behind a colon:
/// `bbr`, `cubic`, `fixed:10000000000`.
impl FromStr for ControllerConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (name, rate) = match text.split_once(':') {
            Some((name, rate)) => (name, Some(rate)),
            None => (text, None),
        };
        let no_rate = |text: &str| ConfigError::Rate { text: text.to_owned() };
        let kind = name.parse()?;
        match (kind, rate) {
            (kind, None) => Self::of(Some(kind), None),
            (Kind::Fixed, Some(rate)) => {
                let bits_per_s = rate.parse().ok().filter(|rate| *rate > 0);
                Self::of(Some(kind), Some(bits_per_s.ok_or_else(|| no_rate(rate))?))
            }
            (_, Some(rate)) => Err(no_rate(rate)),
        }
    }
}

impl ControllerConfig {
    /// The configuration for a kind and a rate. A rate alone means `fixed`; with another kind it is
    /// only the rate to start at ([`super::Signal::Start`]).
    pub fn of(kind: Option<Kind>, rate_bits_per_s: Option<u64>) -> Result<Self, ConfigError> {
        match (kind, rate_bits_per_s) {
            (Some(Kind::Fixed) | None, Some(rate_bits_per_s)) => {
                Ok(Self::Fixed { rate_bits_per_s })
            }
            (None, None) => Ok(Self::default()),
            (Some(kind), _) => kind.entry().alone.ok_or(ConfigError::NoRate),
        }
    }

    /// The kind of controller.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Bbr => Kind::Bbr,
            Self::Cubic => Kind::Cubic,
            Self::Fixed { .. } => Kind::Fixed,
        }
    }

    /// The report policy that this controller wants of the peer.
    pub fn report_policy(&self) -> ReportPolicy {
        self.kind().entry().reports
    }

    /// Name in statistics and start-up lines.
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Makes the controller.
    pub fn build(&self, setup: Setup) -> AnyController {
        match *self {
            Self::Bbr => AnyController::Bbr(Bbr::new(setup)),
            Self::Cubic => AnyController::Cubic(Cubic::new(setup)),
            Self::Fixed { rate_bits_per_s } => AnyController::Fixed(Fixed::new(rate_bits_per_s)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_by_its_name() {
        for entry in TABLE {
            assert_eq!(entry.name.parse(), Ok(entry.kind));
            let with_rate = ControllerConfig::of(Some(entry.kind), Some(9)).unwrap();
            assert_eq!(with_rate.kind(), entry.kind);
            assert_eq!(entry.alone, ControllerConfig::of(Some(entry.kind), None).ok());
        }
        assert_eq!("reno".parse::<Kind>(), Err(ConfigError::Unknown { name: "reno".into() }));
    }

    #[test]
    fn a_controller_is_read_with_its_rate() {
        let read = |text: &str| text.parse::<ControllerConfig>();
        assert_eq!(read("bbr"), Ok(ControllerConfig::Bbr));
        assert_eq!(read("cubic"), Ok(ControllerConfig::Cubic));
        assert_eq!(read("fixed:5000"), Ok(ControllerConfig::Fixed { rate_bits_per_s: 5000 }));
        assert_eq!(read("fixed"), Err(ConfigError::NoRate));
        for rate in ["", "0", "-1", "5 Gbit/s"] {
            let expected = Err(ConfigError::Rate { text: rate.into() });
            assert_eq!(read(&format!("fixed:{rate}")), expected);
        }
        assert_eq!(read("bbr:5"), Err(ConfigError::Rate { text: "5".into() }));
    }

    #[test]
    fn a_rate_alone_is_kept_to() {
        let of = ControllerConfig::of;
        assert_eq!(of(None, None), Ok(ControllerConfig::Bbr));
        assert_eq!(of(None, Some(9)), Ok(ControllerConfig::Fixed { rate_bits_per_s: 9 }));
        assert_eq!(of(Some(Kind::Bbr), Some(9)), Ok(ControllerConfig::Bbr));
        assert_eq!(of(Some(Kind::Cubic), Some(9)), Ok(ControllerConfig::Cubic));
    }
}
