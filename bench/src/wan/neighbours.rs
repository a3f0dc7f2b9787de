//! What else ran on the machine meanwhile, in cores: a race on a shared machine has to say so.

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
    fn idle_time_is_not_busy() {
        let text = "cpu  100 10 50 9999 7 1 2 3 0 0\ncpu0 1 1 1\n";
        assert!((super::parse(text) - 1.66).abs() < 1e-9);
        assert!(super::parse("") == 0.0);
    }
}
