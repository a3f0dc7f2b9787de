//! What a measurement found, as a table in `ib_write_bw`'s manner or as JSON.

use super::ClientArgs;
use super::protocol::Counters;
use crate::failure::Failure;
use crate::output::Output;
use lacuna::Connection;
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    mode: String,
    size_bytes: u64,
    iterations: u64,
    seconds: f64,
    inflight: u32,
    channels: u8,
    chunk_bytes: u64,
    mtu_bytes: u32,
    gbit_per_s: f64,
    mpps: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    lost_packets: u64,
    retransmitted_packets: u64,
    duplicate_packets: u64,
    rejected_packets: u64,
    receive_drops: u64,
    missing_chunks: u64,
    sent_packets: u64,
    /// Processor time of both ends per 10^9 bytes of payload.
    cpu_s_per_gbyte: f64,
    client_cpu_s: f64,
    server_cpu_s: f64,
    validated: Option<bool>,
}

impl Report {
    pub(super) fn new(
        args: &ClientArgs,
        measured: &Connection,
        times: &[Duration],
        took: Duration,
        counters: &Counters,
        cpu_s: f64,
    ) -> Self {
        let chosen = measured.chosen();
        let sent = measured.stats().sent;
        let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        let iterations = times.len() as u64;
        let seconds = took.as_secs_f64();
        let payload_bytes = (iterations * args.size) as f64;
        let packets = iterations * args.size.div_ceil(u64::from(chosen.mtu_bytes)).max(1);
        Self {
            mode: chosen.mode.clone(),
            size_bytes: args.size,
            iterations,
            seconds,
            inflight: args.inflight,
            channels: chosen.channels,
            chunk_bytes: chosen.chunk_bytes,
            mtu_bytes: chosen.mtu_bytes,
            gbit_per_s: payload_bytes * 8.0 / seconds / 1e9,
            mpps: packets as f64 / seconds / 1e6,
            mean_us: sorted.iter().sum::<f64>() / iterations.max(1) as f64,
            p50_us: quantile(&sorted, 0.5),
            p99_us: quantile(&sorted, 0.99),
            max_us: sorted.last().copied().unwrap_or(0.0),
            lost_packets: counters.lost_packets,
            retransmitted_packets: sent.retransmitted_packets,
            duplicate_packets: counters.duplicate_packets,
            rejected_packets: counters.rejected_packets,
            receive_drops: counters.receive_drops,
            missing_chunks: counters.missing_chunks,
            sent_packets: sent.packets,
            // Processor time was taken over all messages, warm-up included.
            cpu_s_per_gbyte: (cpu_s + counters.cpu_s) / (sent.bytes.max(1) as f64 / 1e9),
            client_cpu_s: cpu_s,
            server_cpu_s: counters.cpu_s,
            validated: args.validate.then_some(counters.wrong == 0),
        }
    }

    pub(super) fn print(&self, output: Output) -> Result<(), Failure> {
        if output.json {
            return output.object(self);
        }
        output.line(
            " #bytes     #iterations    BW average[Gb/sec]   MsgRate[Mpps]   t_avg[usec]   t_99%[usec]",
        )?;
        output.line(&format!(
            " {:<10} {:<14} {:<20.2} {:<15.4} {:<13.1} {:<.1}",
            self.size_bytes, self.iterations, self.gbit_per_s, self.mpps, self.mean_us, self.p99_us
        ))?;
        output.line(&format!(
            " lost {}, retransmitted {}, duplicate {}, rejected {}, dropped by the receiving socket {}; {:.3} CPU-s per GB",
            self.lost_packets,
            self.retransmitted_packets,
            self.duplicate_packets,
            self.rejected_packets,
            self.receive_drops,
            self.cpu_s_per_gbyte
        ))
    }
}

/// The value below which a share of the sorted values lies (nearest rank).
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_of_nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 50.0);
        assert_eq!(quantile(&values, 0.99), 99.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
