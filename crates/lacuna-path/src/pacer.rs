//! The pacer: a virtual clock that advances by each burst's time on the wire.
//!
//! A burst may be sent when the clock is not ahead of now. After a late wake-up the pacer catches up,
//! so that the mean rate holds: by up to [`QUANTUM_NS`], or on a long path, if data was waiting, by up
//! to a quarter of the round trip. A busy host takes a thread's core away for some milliseconds;
//! catching up fills the path again, and the short queue that this leaves covers the next such delay.
//! The pacer returns the lateness that it does not make up for: the path was idle in that time, which
//! must not be part of a rate sample.

/// Lateness that is made up for (a judgement): the granularity at which the rate should be exact, and
/// far more than a wake-up takes.
pub const QUANTUM_NS: u64 = 1_000_000;
/// Most lateness that is made up for on a long path: some time slices of a host.
const LATE_NS_MAX: u64 = 20_000_000;

/// Paces one queue pair.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pacer {
    /// When a wire of this rate would be free again.
    free_ns: u64,
    /// Data has been waiting for the pacer, so lateness is the host's doing.
    is_awaited: bool,
    /// Lateness that is made up for if `is_awaited`.
    late_ns: u64,
}

impl Pacer {
    /// Sets the smallest round trip of the path.
    pub fn set_rtt(&mut self, min_rtt_ns: u64) {
        self.late_ns = (min_rtt_ns / 4).clamp(QUANTUM_NS, LATE_NS_MAX);
    }

    /// Something other than the pace holds data back: there are none, or the congestion window is
    /// full.
    #[inline]
    pub fn on_other_limit(&mut self) {
        self.is_awaited = false;
    }

    fn quantum_ns(&self) -> u64 {
        if self.is_awaited { self.late_ns.max(QUANTUM_NS) } else { QUANTUM_NS }
    }

    /// Bytes that may leave now at `rate_bits_per_s`, in bursts of `burst_bytes`;
    /// 0 means wait until [`Pacer::ready_ns`].
    #[inline]
    pub fn allowance(&mut self, now_ns: u64, rate_bits_per_s: u64, burst_bytes: u64) -> u64 {
        if self.free_ns > now_ns {
            self.is_awaited = true;
            return 0;
        }
        let idle_ns = (now_ns - self.free_ns).min(self.quantum_ns());
        bytes_in(idle_ns, rate_bits_per_s).saturating_add(burst_bytes).max(1)
    }

    /// Counts a burst that was sent. Returns the lateness that is not made up for, without
    /// `queued_ns`, the length of the path's queue, which kept the path busy.
    pub fn on_sent(
        &mut self,
        now_ns: u64,
        bytes: u64,
        rate_bits_per_s: u64,
        queued_ns: u64,
    ) -> u64 {
        let late_ns = now_ns.saturating_sub(self.free_ns);
        let made_up_ns = late_ns.min(self.quantum_ns());
        self.free_ns = self.free_ns.max(now_ns - made_up_ns) + time_of(bytes, rate_bits_per_s);
        if self.is_awaited { late_ns.saturating_sub(self.quantum_ns().max(queued_ns)) } else { 0 }
    }

    /// When the next burst may leave.
    #[inline]
    pub fn ready_ns(&self) -> u64 {
        self.free_ns
    }
}

/// Time that `bytes` take at a rate.
#[inline]
pub fn time_of(bytes: u64, rate_bits_per_s: u64) -> u64 {
    let rate_bits_per_s = rate_bits_per_s.max(1);
    match bytes.checked_mul(8_000_000_000) {
        Some(bits) => bits / rate_bits_per_s,
        None => (u128::from(bytes) * 8_000_000_000 / u128::from(rate_bits_per_s)) as u64,
    }
}

/// Bytes that fit into a time at a rate.
#[inline]
pub fn bytes_in(time_ns: u64, rate_bits_per_s: u64) -> u64 {
    // The product almost always fits 64 bits: a second at 18 Gbit/s does.
    match time_ns.checked_mul(rate_bits_per_s) {
        Some(bits) => bits / 8_000_000_000,
        None => (u128::from(time_ns) * u128::from(rate_bits_per_s) / 8_000_000_000) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_although_the_caller_comes_late() {
        let (mut pacer, rate) = (Pacer::default(), 1_000_000_000);
        let (mut now_ns, mut sent) = (0u64, 0u64);
        // Wake-ups at uneven times, all within the quantum.
        for step in [100_000u64, 900_000, 10_000, 500_000].into_iter().cycle().take(4000) {
            now_ns += step;
            while pacer.allowance(now_ns, rate, 1500) >= 1500 {
                pacer.on_sent(now_ns, 1500, rate, 0);
                sent += 1500;
            }
        }
        let due = bytes_in(now_ns, rate);
        assert!(sent.abs_diff(due) <= bytes_in(2 * QUANTUM_NS, rate), "{sent} of {due}");
    }

    #[test]
    fn a_long_pause_is_not_made_up_for() {
        let mut pacer = Pacer::default();
        pacer.on_sent(0, 1500, 1_000_000_000, 0);
        let burst = pacer.allowance(10_000_000_000, 1_000_000_000, 4000);
        assert_eq!(burst, bytes_in(QUANTUM_NS, 1_000_000_000) + 4000);
    }

    #[test]
    fn the_time_that_the_host_took_and_the_queue_did_not_cover_is_told() {
        let rate = 1_000_000_000;
        let late_by = |queued_ns: u64, waited: bool| {
            let mut pacer = Pacer::default();
            pacer.set_rtt(40_000_000);
            pacer.on_sent(0, 125_000, rate, 0);
            if waited {
                assert_eq!(pacer.allowance(1000, rate, 1500), 0);
            }
            pacer.on_sent(31_000_000, 1500, rate, queued_ns)
        };
        // 30 ms late, of which a quarter of the round trip is made up for.
        assert_eq!(late_by(0, true), 20_000_000);
        assert_eq!(late_by(25_000_000, true), 5_000_000);
        assert_eq!(late_by(0, false), 0, "a pause is not the host's doing");
    }

    #[test]
    fn on_a_long_path_a_late_host_is_made_up_for_and_a_pause_is_not() {
        let rate = 1_000_000_000;
        let mut pacer = Pacer::default();
        pacer.set_rtt(40_000_000);
        pacer.on_sent(0, 15_000, rate, 0);
        assert_eq!(pacer.allowance(1000, rate, 1500), 0);
        // Ten milliseconds are a quarter of the path.
        let late = pacer.allowance(20_000_000, rate, 1500);
        assert_eq!(late, bytes_in(10_000_000, rate) + 1500);
        pacer.on_other_limit();
        assert_eq!(pacer.allowance(20_000_000, rate, 1500), bytes_in(QUANTUM_NS, rate) + 1500);
    }
}
