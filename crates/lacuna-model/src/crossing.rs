//! Bisection: finds where a condition changes along an axis. It works in logarithms, because the axes of
//! this crate (sizes, losses, times, distances) are positive and span decades.

/// Finds where `holds` changes between `near`, where it is true, and `far`, where it is false, to a
/// relative precision of `precision`. `near` and `far` are positive and in any order. If it changes several
/// times between them, the result is one of these places.
///
/// # Errors
///
/// The first error of `holds`.
pub fn crossing<E>(
    mut near: f64,
    mut far: f64,
    precision: f64,
    holds: impl Fn(f64) -> Result<bool, E>,
) -> Result<f64, E> {
    debug_assert!(near > 0.0 && far > 0.0, "{near} {far}");
    while (far / near).ln().abs() > precision {
        let middle = (near * far).sqrt();
        // Neighbouring numbers have none between them.
        if middle <= near.min(far) || middle >= near.max(far) {
            break;
        }
        if holds(middle)? {
            near = middle;
        } else {
            far = middle;
        }
    }
    Ok((near * far).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(near: f64, far: f64, precision: f64, holds: impl Fn(f64) -> bool) -> f64 {
        crossing(near, far, precision, |value| Ok::<_, ()>(holds(value))).expect("no error")
    }

    #[test]
    fn a_place_is_found_from_either_side_as_nearly_as_asked() {
        assert!((found(1.0, 1e9, 1e-9, |x| x < 2556.25) / 2556.25 - 1.0).abs() < 1e-9);
        assert!((found(1.0, 1e-9, 1e-9, |x| x > 3e-4) / 3e-4 - 1.0).abs() < 1e-9);
        let rough = found(1.0, 1e9, 0.05, |x| x < 2556.25);
        assert!((rough / 2556.25 - 1.0).abs() < 0.05);
    }

    #[test]
    fn it_ends_where_numbers_are_neighbours_and_with_the_first_error() {
        assert!((found(1.0, 2.0, 0.0, |x| x < 1.5) - 1.5).abs() < 1e-12);
        assert_eq!(crossing(1.0, 4.0, 0.1, |_| Err("out of range")), Err("out of range"));
    }
}
