//! What else went on on the machine: how many cores others used, how long the race's own cores were
//! not idle, whoever used them, and whether it stood still, as a virtual machine does when its host
//! takes it away. A race on a shared machine has to say so.

use std::time::Instant;

/// The unit of `/proc/stat` for every program, whatever the kernel's own is.
const TICKS_PER_S: f64 = 100.0;

pub(crate) struct Neighbours {
    began: Instant,
    busy_s: f64,
    /// The cores that the race may use.
    cores: Vec<usize>,
    idle_s: f64,
}

impl Neighbours {
    pub(crate) fn watch(cores: Vec<usize>) -> Self {
        let text = stat();
        let (busy_s, idle_s) = (busy_s(&text), idle_s(&text, &cores));
        Self { began: Instant::now(), busy_s, cores, idle_s }
    }

    /// Core seconds in which the race's cores were not idle: with what the kernel does in nobody's
    /// name, as TCP's timers and the interrupts that wake a thread.
    pub(crate) fn core_s(&self) -> f64 {
        let idle_s = idle_s(&stat(), &self.cores) - self.idle_s;
        (self.began.elapsed().as_secs_f64() * self.cores.len() as f64 - idle_s).max(0.0)
    }

    /// Cores in use by others, when so many seconds of processor time since the beginning were ours.
    pub(crate) fn cores(&self, ours_s: f64) -> f64 {
        let busy_s = busy_s(&stat()) - self.busy_s - ours_s;
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

fn stat() -> String {
    std::fs::read_to_string("/proc/stat").unwrap_or_default()
}

/// Seconds since the start of the kernel in a line's columns: user nice system idle iowait irq
/// softirq steal.
fn seconds(line: &str, columns: &[usize]) -> f64 {
    let fields: Vec<f64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
    columns.iter().filter_map(|column| fields.get(*column)).sum::<f64>() / TICKS_PER_S
}

/// In which a processor had something to do, or the host had taken it away.
fn busy_s(text: &str) -> f64 {
    seconds(text.lines().next().unwrap_or_default(), &[0, 1, 2, 5, 6, 7])
}

/// In which one of these cores had nothing to do.
fn idle_s(text: &str, cores: &[usize]) -> f64 {
    let is_wanted = |line: &&str| {
        let name = line.split_whitespace().next().and_then(|name| name.strip_prefix("cpu"));
        name.and_then(|number| number.parse().ok()).is_some_and(|core| cores.contains(&core))
    };
    text.lines().filter(is_wanted).map(|line| seconds(line, &[3, 4])).sum()
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
        assert!((super::busy_s(text) - 1.66).abs() < 1e-9);
        assert!(super::busy_s("") == 0.0);
    }

    #[test]
    fn idle_time_is_of_the_cores_asked_for() {
        let text =
            "cpu  9 9 9 900 9\ncpu0 1 1 1 100 5 7\ncpu1 1 1 1 200 5 7\ncpu10 1 1 1 400 5 7\n";
        assert!((super::idle_s(text, &[0, 10]) - 5.10).abs() < 1e-9);
        assert!(super::idle_s(text, &[]) == 0.0);
    }
}
