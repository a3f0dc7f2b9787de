//! When a worker without work looks again at once, and when it sleeps.
//!
//! A wake-up costs tens of microseconds on a virtual machine, so a worker looks
//! for work for a while first. That pays only where packets come closer together
//! than a spin lasts; a path where they do not would only turn it into heat. So
//! spinning stops after some spins that met nothing, until a sleep turns out
//! shorter than a spin. And it pays only where a peer is near: on a path whose round
//! trip is much longer than a wake-up nobody feels the one behind the other.

use core::time::Duration;

/// Spins in a row that met nothing, after which a worker sleeps at once.
const FRUITLESS_MAX: u32 = 8;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Spin {
    spin_ns: u64,
    idle_since_ns: Option<u64>,
    fruitless: u32,
    /// Queue pairs whose peers are near.
    near: usize,
}

impl Spin {
    pub(crate) fn new(spin: Duration) -> Self {
        let spin_ns = u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX);
        Self { spin_ns, idle_since_ns: None, fruitless: 0, near: 0 }
    }

    /// A queue pair's peer is near now, and was before.
    pub(crate) fn change(&mut self, was_near: bool, is_near: bool) {
        self.near = self.near + usize::from(is_near) - usize::from(was_near);
    }

    /// There was something to do.
    pub(crate) fn on_work(&mut self) {
        self.idle_since_ns = None;
    }

    /// There was nothing to do at `now_ns`: whether to look again at once.
    pub(crate) fn looks_again(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        let is_worth_it = self.near > 0 && self.fruitless < FRUITLESS_MAX;
        is_worth_it && now_ns.saturating_sub(since_ns) < self.spin_ns
    }

    /// It slept for so long instead.
    pub(crate) fn on_slept(&mut self, slept_ns: u64) {
        // A spin of this length would have met what ended the sleep.
        self.fruitless =
            if slept_ns < self.spin_ns { 0 } else { FRUITLESS_MAX.min(self.fruitless + 1) };
        self.idle_since_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin() -> Spin {
        let mut spin = Spin::new(Duration::from_nanos(100));
        spin.change(false, true);
        spin
    }

    #[test]
    fn it_spins_only_while_a_peer_is_near() {
        let mut spin = Spin::new(Duration::from_nanos(100));
        assert!(!spin.looks_again(1000));
        spin.change(false, true);
        spin.on_work();
        assert!(spin.looks_again(2000));
        spin.change(true, false);
        assert!(!spin.looks_again(2001));
    }

    #[test]
    fn it_spins_for_its_time_and_then_sleeps() {
        let mut spin = spin();
        assert!(spin.looks_again(1000));
        assert!(spin.looks_again(1099));
        assert!(!spin.looks_again(1100));
        spin.on_work();
        assert!(spin.looks_again(1150), "after work it begins anew");
    }

    #[test]
    fn spins_that_meet_nothing_are_given_up_until_a_sleep_is_short() {
        let mut spin = spin();
        for round in 0..u64::from(FRUITLESS_MAX) {
            assert!(spin.looks_again(round * 1000));
            spin.on_slept(500);
        }
        assert!(!spin.looks_again(20_000));
        spin.on_slept(99);
        assert!(spin.looks_again(30_000));
    }
}
