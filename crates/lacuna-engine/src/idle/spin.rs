//! Spinning: a worker without work polls for a while before it sleeps.
//!
//! A wake-up costs tens of microseconds on a virtual machine. Spinning avoids it where packets
//! arrive closer together than a spin lasts; elsewhere it only wastes processor time. So a worker
//! stops spinning after [`FRUITLESS_MAX`] spins in vain, until a sleep turns out to be shorter than
//! a spin. It spins only while a peer is near: on a path whose round-trip time is much longer than
//! a wake-up, the wake-up does not matter.

use core::time::Duration;

/// Spins in vain in a row after which a worker sleeps at once.
const FRUITLESS_MAX: u32 = 8;

/// The state of spinning in one engine.
#[derive(Debug)]
pub(crate) struct Spin {
    spin_ns: u64,
    idle_since_ns: Option<u64>,
    fruitless: u32,
    /// Queue pairs with a near peer.
    near: usize,
}

impl Spin {
    pub(crate) fn new(spin: Duration) -> Self {
        let spin_ns = u64::try_from(spin.as_nanos()).unwrap_or(u64::MAX);
        Self { spin_ns, idle_since_ns: None, fruitless: 0, near: 0 }
    }

    /// Whether a queue pair's peer is near has changed.
    pub(crate) fn change(&mut self, was_near: bool, is_near: bool) {
        self.near = self.near + usize::from(is_near) - usize::from(was_near);
    }

    /// The last step did something.
    pub(crate) fn on_work(&mut self) {
        self.idle_since_ns = None;
    }

    /// The last step had nothing to do: whether to step again at once.
    pub(crate) fn should_spin(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        let is_worth_it = self.near > 0 && self.fruitless < FRUITLESS_MAX;
        is_worth_it && now_ns.saturating_sub(since_ns) < self.spin_ns
    }

    /// The worker slept instead.
    pub(crate) fn on_slept(&mut self, slept_ns: u64) {
        // A spin would have met the event that ended a shorter sleep.
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
        assert!(!spin.should_spin(1000));
        spin.change(false, true);
        spin.on_work();
        assert!(spin.should_spin(2000));
        spin.change(true, false);
        assert!(!spin.should_spin(2001));
    }

    #[test]
    fn it_spins_for_its_time_and_then_sleeps() {
        let mut spin = spin();
        assert!(spin.should_spin(1000));
        assert!(spin.should_spin(1099));
        assert!(!spin.should_spin(1100));
        spin.on_work();
        assert!(spin.should_spin(1150), "after work it begins anew");
    }

    #[test]
    fn spins_that_meet_nothing_are_given_up_until_a_sleep_is_short() {
        let mut spin = spin();
        for round in 0..u64::from(FRUITLESS_MAX) {
            assert!(spin.should_spin(round * 1000));
            spin.on_slept(500);
        }
        assert!(!spin.should_spin(20_000));
        spin.on_slept(99);
        assert!(spin.should_spin(30_000));
    }
}
