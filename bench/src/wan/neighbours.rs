//! What else went on on the machine: how many cores others used, and whether it stood still, as a
//! virtual machine does when its host takes it away. A race on a shared machine has to say so.

use std::time::Instant;

/// The unit of `/proc/stat` for every program, whatever the kernel's own is.
const TICKS_PER_S: f64 = 100.0;

pub(crate) struct Neighbours {
    began: Instant,
    busy_s: f64,
}

impl Neighbours {
    pub(crate) fn watch() -> Self {
        Self { began: Instant::now(), busy_s: busy_s() }
    }

    /// Cores in use by others, when so many seconds of processor time since the beginning were ours.
    pub(crate) fn cores(&self, ours_s: f64) -> f64 {
        let busy_s = busy_s() - self.busy_s - ours_s;
        (busy_s / self.began.elapsed().as_secs_f64()).max(0.0)
    }
}

/// The longest time between two looks of a loop that looks every few milliseconds.
pub(crate) struct Pulse {
    last_ns: u64,
    longest_ns: u64,
}

impl Pulse {
    pub(crate) fn start(now_ns: u64) -> Self {
        Self { last_ns: now_ns, longest_ns: 0 }
    }

    pub(crate) fn beat(&mut self, now_ns: u64) {
        self.longest_ns = self.longest_ns.max(now_ns.saturating_sub(self.last_ns));
        self.last_ns = now_ns;
    }

    pub(crate) fn longest_ns(&self) -> u64 {
        self.longest_ns
    }
}

fn busy_s() -> f64 {
    parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Seconds in which a processor had something to do, or the host had taken it away.
fn parse(text: &str) -> f64 {
    let line = text.lines().next().unwrap_or_default();
    let fields: Vec<f64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
    // user nice system idle iowait irq softirq steal
    [0, 1, 2, 5, 6, 7].iter().filter_map(|field| fields.get(*field)).sum::<f64>() / TICKS_PER_S
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pulse_tells_the_longest_standstill() {
        let mut pulse = super::Pulse::start(100);
        for now_ns in [105, 110, 900, 905] {
            pulse.beat(now_ns);
        }
        assert_eq!(pulse.longest_ns(), 790);
    }

    #[test]
    fn idle_time_is_not_busy() {
        let text = "cpu  100 10 50 9999 7 1 2 3 0 0\ncpu0 1 1 1\n";
        assert!((super::parse(text) - 1.66).abs() < 1e-9);
        assert!(super::parse("") == 0.0);
    }
}
