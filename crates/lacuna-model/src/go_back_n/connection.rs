//! A connection that always has something to send: see the folder's text.

use super::protected::Protected;
use crate::error::check;
use crate::gilbert::{Matrix, Step, row_times};
use crate::loss::{ChunkLoss, Loss};
use crate::{Code, CodeKind, ModelError};

/// A path as a connection's packets see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConnectionPath {
    /// Time of a full packet on the link, headers included.
    pub packet_s: f64,
    /// Round-trip time.
    pub rtt_s: f64,
    /// What the path loses.
    pub loss: Loss,
    /// The connection's timeout in round trips, at least 1.
    pub timeout_rtts: f64,
}

impl ConnectionPath {
    /// With a timeout of 1.25 round trips, which is what a measured timeout comes to on a steady long path.
    #[must_use]
    pub fn new(packet_s: f64, rtt_s: f64, loss: Loss) -> Self {
        Self { packet_s, rtt_s, loss, timeout_rtts: 1.25 }
    }
}

/// LoWAR(r, c): the code of a full block has `k = r` and `m = c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shim {
    /// The code.
    pub code: Code,
    /// Short blocks have only their share of repairs, rounded up. The paper's have all of them.
    pub caps_short_blocks: bool,
}

impl Shim {
    /// As in the paper: a short block has as many repairs as a full one, of an XOR code at most one for
    /// each packet.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self { code, caps_short_blocks: false }
    }

    /// The code of a block of so many packets, fewer than `r`.
    fn of_short(&self, packets: u32) -> Code {
        let (r, c, kind) = (self.code.k(), self.code.m(), self.code.kind());
        let share = (u64::from(packets) * u64::from(c)).div_ceil(r.into()) as u32;
        let repairs = match (kind, self.caps_short_blocks) {
            (CodeKind::Mds, false) => c,
            (CodeKind::Mds, true) => share,
            (CodeKind::Xor, false) => c.min(packets),
            // A sum of sums that are there already: the largest divisor of c.
            (CodeKind::Xor, true) => {
                (1..=share).rev().find(|divisor| c.is_multiple_of(*divisor)).unwrap_or(1)
            }
        };
        Code::new(kind, packets.max(1), repairs.clamp(1, c)).unwrap_or(self.code)
    }
}

/// A reliable connection with go-back-N on a path, with or without a shim below it.
#[derive(Debug, Clone, PartialEq)]
pub struct GoBackN {
    pub(super) path: ConnectionPath,
    loss: ChunkLoss,
    pub(super) shim: Option<Shim>,
    pub(super) packet: Protected,
    pub(super) full: Protected,
    /// Of a packet: the share of packets that find the link in each state.
    pub(super) stationary: [f64; 2],
}

impl GoBackN {
    /// The connection without a shim (`None`) or with one.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] for times that are not finite and positive, or a loss that no packet
    /// survives.
    pub fn new(path: &ConnectionPath, shim: Option<Shim>) -> Result<Self, ModelError> {
        let ConnectionPath { packet_s, rtt_s, timeout_rtts, .. } = *path;
        check("packet time", packet_s, packet_s > 0.0 && packet_s.is_finite(), "more than 0 s")?;
        check("rtt", rtt_s, rtt_s >= 0.0 && rtt_s.is_finite(), "at least 0 s")?;
        let holds = (1.0..=1e6).contains(&timeout_rtts);
        check("timeout", timeout_rtts, holds, "at least one round trip")?;
        let loss = path.loss.of_chunk(1)?;
        let packet = Protected::packet(&loss);
        let full = shim.map_or(packet, |shim| Protected::block(&loss, shim.code));
        let stationary = loss.chain().map_or([1.0, 0.0], |chain| chain.stationary);
        Ok(Self { path: *path, loss, shim, packet, full, stationary })
    }

    /// The probability that a full block is not saved by its repairs; of a packet without a shim, that it
    /// is lost.
    #[must_use]
    pub fn block_failure(&self) -> f64 {
        total(self.stationary, &self.full.step.lost)
    }

    /// Packets that the link carries in a round trip: what one loss costs without a shim.
    #[must_use]
    pub fn window_packets(&self) -> f64 {
        self.path.rtt_s / self.path.packet_s
    }

    /// Useful packets as a share of what the link carries, of a connection that sends messages of so many
    /// packets without a pause.
    #[must_use]
    pub fn goodput(&self, message_packets: u64) -> f64 {
        let message = self.blocks_of(message_packets);
        let wire = message.wire();
        let Some([useful, on_link]) = self.before_failure(&message) else {
            return message.data() / wire;
        };
        let cycle = on_link + self.failure_packets() + self.window_packets() * self.again_factor();
        (useful + self.found()) / cycle
    }

    /// Repairs as a share of all packets, of messages of so many packets.
    #[must_use]
    pub fn repair_share(&self, message_packets: u64) -> f64 {
        let message = self.blocks_of(message_packets);
        1.0 - message.data() / message.wire()
    }

    /// How often the connection goes back for each useful packet.
    #[must_use]
    pub fn failures_per_packet(&self, message_packets: u64) -> f64 {
        let message = self.blocks_of(message_packets);
        self.before_failure(&message).map_or(0.0, |[useful, _]| 1.0 / (useful + self.found()))
    }

    /// Useful packets and packets on the link before a block fails, on average; `None` if none ever does.
    fn before_failure(&self, message: &Blocks) -> Option<[f64; 2]> {
        let mut run = Run::begin();
        message.each(|block, count| run.add(block, count));
        // (I - M) x = v. Rows of M and of what is lost add up to one, so nothing has to be subtracted.
        let Step { ok: m, lost } = run.step;
        let lost = rows(&lost);
        let determinant = m[0][1] * lost[1] + lost[0] * m[1][0] + lost[0] * lost[1];
        if determinant <= 0.0 {
            return None;
        }
        let solve = |v: [f64; 2]| {
            let x = [
                ((m[1][0] + lost[1]) * v[0] + m[0][1] * v[1]) / determinant,
                (m[1][0] * v[0] + (m[0][1] + lost[0]) * v[1]) / determinant,
            ];
            self.stationary[0] * x[0] + self.stationary[1] * x[1]
        };
        Some([solve(run.data), solve(run.wire)])
    }

    /// Packets of a failed block that are before the first missing one.
    pub(super) fn found(&self) -> f64 {
        if self.shim.is_some() { f64::from(self.full.data) / 3.0 } else { 0.0 }
    }

    /// Packets on the link from a failed block's first one until its receiver says so.
    pub(super) fn failure_packets(&self) -> f64 {
        f64::from(self.full.data + self.full.repairs) + self.rest_of_burst()
    }

    /// Losses in a row behind a failed block, on average.
    fn rest_of_burst(&self) -> f64 {
        let failed = row_times(self.stationary, &self.full.step.lost);
        let failure = failed[0] + failed[1];
        let lost = self.packet.step.lost;
        // x = L 1 + L x.
        let one = rows(&lost);
        let determinant = (1.0 - lost[0][0]) * (1.0 - lost[1][1]) - lost[0][1] * lost[1][0];
        if failure <= 0.0 || determinant <= 0.0 {
            return 0.0;
        }
        let x = [
            ((1.0 - lost[1][1]) * one[0] + lost[0][1] * one[1]) / determinant,
            (lost[1][0] * one[0] + (1.0 - lost[0][0]) * one[1]) / determinant,
        ];
        (failed[0] * x[0] + failed[1] * x[1]) / failure
    }

    /// How much longer than a round trip it takes on average until the first packet that is sent again is
    /// there or was lost.
    fn again_factor(&self) -> f64 {
        1.0 + (self.path.timeout_rtts - 1.0) * self.lost_again()
    }

    /// The probability that the packet that is missing is missing again.
    pub(super) fn lost_again(&self) -> f64 {
        let missing = match self.shim {
            None => 1.0,
            // One more than what the code stands.
            Some(shim) if shim.code.kind() == CodeKind::Mds => f64::from(shim.code.m() + 1),
            Some(_) => 2.0,
        };
        self.block_failure() * (missing / f64::from(self.full.data)).min(1.0)
    }

    /// The blocks of a message.
    pub(super) fn blocks_of(&self, packets: u64) -> Blocks {
        let Some(shim) = self.shim else {
            return Blocks { full: self.full, count: packets.max(1), short: None };
        };
        let r = u64::from(shim.code.k());
        let (count, rest) = (packets.max(1) / r, (packets.max(1) % r) as u32);
        let short = (rest > 0).then(|| Protected::block(&self.loss, shim.of_short(rest)));
        Blocks { full: self.full, count, short }
    }
}

/// A message's blocks: full ones, then perhaps a short one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Blocks {
    full: Protected,
    pub(super) count: u64,
    pub(super) short: Option<Protected>,
}

impl Blocks {
    fn each(&self, mut on: impl FnMut(&Protected, u64)) {
        if self.count > 0 {
            on(&self.full, self.count);
        }
        if let Some(short) = &self.short {
            on(short, 1);
        }
    }

    /// The block that the message ends with.
    pub(super) fn last(&self) -> &Protected {
        self.short.as_ref().unwrap_or(&self.full)
    }

    fn data(&self) -> f64 {
        self.sum(|block| block.data)
    }

    /// With repairs.
    pub(super) fn wire(&self) -> f64 {
        self.sum(|block| block.data + block.repairs)
    }

    fn sum(&self, of: impl Fn(&Protected) -> u32) -> f64 {
        let mut sum = 0.0;
        self.each(|block, count| sum += count as f64 * f64::from(of(block)));
        sum
    }
}

/// Blocks in a row: the chance that all come, and the expected packets of those before the first that does
/// not, by the state of the link before them.
struct Run {
    step: Step,
    /// Useful packets.
    data: [f64; 2],
    /// With repairs.
    wire: [f64; 2],
}

impl Run {
    fn begin() -> Self {
        Self { step: Step::nothing(), data: [0.0; 2], wire: [0.0; 2] }
    }

    fn add(&mut self, block: &Protected, count: u64) {
        let came = column(&self.step.ok, mean_before_failure(&block.step, count));
        for (from, came) in came.into_iter().enumerate() {
            self.data[from] += f64::from(block.data) * came;
            self.wire[from] += f64::from(block.data + block.repairs) * came;
        }
        self.step = self.step.then(&block.step.repeated(count));
    }
}

/// The expected number of `count` steps that come before the first that does not, by state before them.
/// By doubling: so many steps, then as many again if those came.
fn mean_before_failure(step: &Step, mut count: u64) -> [f64; 2] {
    let (mut sum, mut run) = ([0.0; 2], Step::nothing());
    let (mut doubled, mut of_doubled) = (*step, rows(&step.ok));
    while count > 0 {
        if count & 1 == 1 {
            let more = column(&run.ok, of_doubled);
            sum = [sum[0] + more[0], sum[1] + more[1]];
            run = run.then(&doubled);
        }
        let more = column(&doubled.ok, of_doubled);
        of_doubled = [of_doubled[0] + more[0], of_doubled[1] + more[1]];
        doubled = doubled.then(&doubled);
        count >>= 1;
    }
    sum
}

pub(super) fn rows(matrix: &Matrix) -> [f64; 2] {
    matrix.map(|row| row[0] + row[1])
}

fn column(matrix: &Matrix, vector: [f64; 2]) -> [f64; 2] {
    matrix.map(|row| row[0] * vector[0] + row[1] * vector[1])
}

pub(super) fn total(from: [f64; 2], matrix: &Matrix) -> f64 {
    row_times(from, matrix).iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_blocks_have_the_repairs_of_the_encoder() {
        let xor = |r, c| Code::xor(r, c).unwrap();
        // Of LoWAR's figure 6, (8, 2) on 1, 5 and 61 packets: 1, 2 and 7 x 2 + 2 repairs.
        let path = ConnectionPath::new(1e-6, 0.04, Loss::PerPacket(0.01));
        let connection = GoBackN::new(&path, Some(Shim::new(xor(8, 2)))).unwrap();
        for (packets, repairs) in [(1, 1.0), (5, 2.0), (61, 16.0)] {
            let blocks = connection.blocks_of(packets);
            assert_eq!(blocks.wire() - blocks.data(), repairs, "{packets}");
        }
        let capped = Shim { code: xor(64, 8), caps_short_blocks: true };
        for (packets, repairs) in [(1, 1), (8, 1), (9, 2), (31, 4), (63, 8)] {
            assert_eq!(capped.of_short(packets).m(), repairs, "{packets}");
        }
        let mds = Shim::new(Code::mds(32, 8).unwrap());
        assert_eq!(mds.of_short(3).m(), 8);
        assert_eq!(Shim { caps_short_blocks: true, ..mds }.of_short(3).m(), 1);
    }

    #[test]
    fn blocks_before_a_failure_are_counted_as_one_by_one() {
        let loss = Loss::bursts(0.05, 3.0).unwrap().of_chunk(1).unwrap();
        let step = Protected::packet(&loss).step;
        for count in [1, 2, 7, 64, 100] {
            let (mut expected, mut run) = ([0.0; 2], Step::nothing());
            for _ in 0..count {
                run = run.then(&step);
                let came = rows(&run.ok);
                expected = [expected[0] + came[0], expected[1] + came[1]];
            }
            let counted = mean_before_failure(&step, count);
            for from in 0..2 {
                assert!((counted[from] / expected[from] - 1.0).abs() < 1e-12, "{count}");
            }
        }
    }
}
