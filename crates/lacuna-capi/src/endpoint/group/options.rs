//! How one operation is carried out.

use super::names::{lacuna_budget, lacuna_divisor};
use crate::outcome::Failure;
use crate::pointer;
use lacuna_collective::{Algorithm, Budget, Divisor, Options};
use std::ffi::c_char;
use std::time::Duration;

/// How one operation of a group is carried out. All zeros are the defaults; what is added
/// later takes of the reserved bytes, where 0 is as before. All ranks have to give the same.
#[repr(C)]
pub struct lacuna_group_options {
    /// By which schedule: "ring", "halving", "doubling", "transpose", "cube:RADIX", "tree",
    /// "direct", or "hierarchical:SITES" with the number of each rank's site, as in
    /// "hierarchical:0,0,1,1". NULL chooses one by the size and the round trips.
    pub algorithm: *const c_char,
    /// Microseconds, for a budget that has some.
    pub budget_us: u64,
    /// Of enum lacuna_budget.
    pub budget: u8,
    /// Of enum lacuna_divisor.
    pub divisor: u8,
    /// Must be 0.
    pub reserved: [u8; 6],
    /// Must be 0.
    pub more: [u64; 5],
}

const UNLIMITED: u8 = lacuna_budget::LACUNA_BUDGET_UNLIMITED as u8;
const WITHIN: u8 = lacuna_budget::LACUNA_BUDGET_WITHIN as u8;
const FIXED: u8 = lacuna_budget::LACUNA_BUDGET_FIXED as u8;
const ADAPTIVE: u8 = lacuna_budget::LACUNA_BUDGET_ADAPTIVE as u8;
const CONTRIBUTORS: u8 = lacuna_divisor::LACUNA_DIVISOR_CONTRIBUTORS as u8;
const RANKS: u8 = lacuna_divisor::LACUNA_DIVISOR_RANKS as u8;

/// The options that a program gives; NULL is the defaults.
///
/// # Safety
/// If not NULL, `options` points to its struct, and the string in it is there.
pub(super) unsafe fn given(options: *const lacuna_group_options) -> Result<Options, Failure> {
    if options.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: the caller's promise.
    let given = unsafe { pointer::shared(options, "options") }?;
    if given.reserved != [0; 6] || given.more != [0; 5] {
        return Err(Failure::usage("options has reserved bytes that are not 0: clear it first"));
    }
    let time = || match given.budget_us {
        0 => Err(Failure::usage("budget_us is 0: say how long the operation may take")),
        time => Ok(Duration::from_micros(time)),
    };
    let budget = match given.budget {
        UNLIMITED => Budget::Unlimited,
        WITHIN => Budget::Within(time()?),
        FIXED => Budget::Fixed(time()?),
        ADAPTIVE => Budget::Adaptive,
        other => {
            let text = format!("budget {other}: must be one of enum lacuna_budget");
            return Err(Failure::usage(text));
        }
    };
    let divisor = match given.divisor {
        CONTRIBUTORS => Divisor::Contributors,
        RANKS => Divisor::Ranks,
        other => {
            let text = format!("divisor {other}: must be one of enum lacuna_divisor");
            return Err(Failure::usage(text));
        }
    };
    let algorithm = if given.algorithm.is_null() {
        None
    } else {
        // SAFETY: the caller's promise.
        Some(algorithm(unsafe { pointer::text(given.algorithm, "algorithm") }?)?)
    };
    #[allow(clippy::needless_update, reason = "what C cannot set yet has its default")]
    Ok(Options { algorithm, budget, divisor, ..Options::default() })
}

fn algorithm(text: &str) -> Result<Algorithm, Failure> {
    let unknown = || {
        Failure::usage(format!(
            "algorithm = \"{text}\": must be ring, halving, doubling, transpose, cube:RADIX, tree, direct or hierarchical:SITES, as in hierarchical:0,0,1,1"
        ))
    };
    Ok(match text.split_once(':').unwrap_or((text, "")) {
        ("ring", "") => Algorithm::Ring,
        ("halving", "") => Algorithm::Halving,
        ("doubling", "") => Algorithm::Doubling,
        ("transpose", "") => Algorithm::Transpose,
        ("tree", "") => Algorithm::Tree,
        ("direct", "") => Algorithm::Direct,
        ("cube", radix) => {
            let radix = radix.parse().ok().filter(|radix| *radix >= 2);
            Algorithm::Cube { radix: radix.ok_or_else(unknown)? }
        }
        ("hierarchical", sites) => {
            let sites = sites.split(',').map(|site| site.trim().parse().ok());
            Algorithm::Hierarchical { sites: sites.collect::<Option<_>>().ok_or_else(unknown)? }
        }
        _ => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_have_names() {
        let sites = vec![0, 0, 1];
        for (text, expected) in [
            ("ring", Algorithm::Ring),
            ("cube:3", Algorithm::Cube { radix: 3 }),
            ("hierarchical:0,0,1", Algorithm::Hierarchical { sites }),
        ] {
            assert_eq!(algorithm(text).unwrap(), expected);
        }
        for text in ["", "Ring", "ring:2", "cube", "cube:1", "hierarchical", "hierarchical:0,,1"] {
            assert!(format!("{:?}", algorithm(text).unwrap_err()).contains("cube:RADIX"), "{text}");
        }
    }

    #[test]
    fn zeros_are_the_defaults_and_odd_numbers_are_refused() {
        let zeros = || lacuna_group_options {
            algorithm: std::ptr::null(),
            budget_us: 0,
            budget: 0,
            divisor: 0,
            reserved: [0; 6],
            more: [0; 5],
        };
        // SAFETY: local variables.
        let read = |options: &lacuna_group_options| unsafe { given(options) };
        assert_eq!(read(&zeros()).unwrap(), Options::default());
        let timed = lacuna_group_options { budget: FIXED, budget_us: 7, divisor: RANKS, ..zeros() };
        let expected = Budget::Fixed(Duration::from_micros(7));
        let found = read(&timed).unwrap();
        assert_eq!((found.budget, found.divisor), (expected, Divisor::Ranks));
        assert!(read(&lacuna_group_options { budget: WITHIN, ..zeros() }).is_err());
        assert!(read(&lacuna_group_options { budget: 4, ..zeros() }).is_err());
        assert!(read(&lacuna_group_options { divisor: 2, ..zeros() }).is_err());
        assert!(read(&lacuna_group_options { more: [0, 0, 0, 0, 1], ..zeros() }).is_err());
    }
}
