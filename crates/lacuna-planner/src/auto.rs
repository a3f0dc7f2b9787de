//! The mode `auto` in the planner: the transport's own rule for the parity at a message's end, and
//! the model's prediction of its effect.
//!
//! The rule exists once: a plan calls the function that a connection calls, with what a connection
//! knows of a path after using it for a while. A first message over an unknown path gets more
//! parity, as a hedge.

use crate::error::AutoError;
use lacuna::modes::{Mode, auto};
use lacuna::{ConnectionConfig, Layout};
use lacuna_model::{Code, TailMode, TailParity, TailQuestion};

/// Half-life of a connection's evidence on a path's losses, as in `lacuna_path::loss`.
const MEMORY_S: f64 = 30.0;
/// Most packets that count as evidence.
const MEMORY_PACKETS_MAX: f64 = 1e6;

/// The rule reckons with the transmission time of a packet of this length.
const PACKET_BYTES: u64 = 1500;

/// The transport's mode for packets with this payload.
pub(crate) fn mode(packet_bytes: u32) -> Result<TailMode, AutoError> {
    let config = ConnectionConfig { mode: Mode::Auto, ..ConnectionConfig::default() };
    let geometry = config
        .geometry(packet_bytes, 1)
        .map_err(|source| AutoError::PacketBytes { packet_bytes, source })?;
    let (k, m) = (auto::CODE.data_chunks() as u32, auto::CODE.parity_chunks() as u32);
    Ok(TailMode {
        code: Code::mds(k, m)?,
        rows: geometry.layout().map_or(1, Layout::chunk_packets),
        slot_packets: geometry.max_message_bytes().div_ceil(packet_bytes.into()).max(1),
        rule,
    })
}

fn rule(tail: &TailQuestion) -> TailParity {
    let seen = (MEMORY_S / tail.packet_s).min(MEMORY_PACKETS_MAX);
    let rate = PACKET_BYTES as f64 * 8.0 / tail.packet_s;
    let choice = auto::plan(&auto::Question {
        estimate: auto::Estimate::of_known_path(
            tail.loss,
            tail.burst_packets,
            seen,
            (tail.rtt_s * 1e9) as u64,
            rate as u64,
        ),
        message_packets: u32::try_from(tail.message_packets).unwrap_or(u32::MAX),
        tail_packets: u32::try_from(tail.tail_packets).unwrap_or(u32::MAX),
        rows: tail.rows,
        packet_bytes: PACKET_BYTES,
        is_followed: false,
    });
    TailParity { parity: choice.parity.into(), repair_copies: choice.repair_copies.into() }
}

/// The least and the most parity that the messages get.
pub(crate) fn range(
    tails: &[(TailQuestion, TailParity)],
    of: fn(&TailParity) -> u32,
) -> (u32, u32) {
    let all = || tails.iter().map(|(_, choice)| of(choice));
    (all().min().unwrap_or(0), all().max().unwrap_or(0))
}

/// Describes the parity of messages of several sizes or losses, from the least to the most.
pub(crate) fn describe(tails: &[(TailQuestion, TailParity)]) -> String {
    let show = |(least, most)| match least == most {
        true => format!("{least}"),
        false => format!("{least} to {most}"),
    };
    let parity = range(tails, |choice| choice.parity);
    let copies = range(tails, |choice| choice.repair_copies);
    let mut text = match parity.1 {
        0 => "selective repeat".to_owned(),
        _ => format!("{} parity per 32 chunks for the end of a message", show(parity)),
    };
    if copies.1 > 1 {
        text += &format!(", its repairs sent {} times", show(copies));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OVERHEAD_BYTES;
    use lacuna::controller::ControllerConfig;
    use lacuna_engine::testing::{Link, Pair, PairConfig, Side};
    use lacuna_model::{Completion, Framing, Loss, Path, TailCoding, Transfer};
    use lacuna_units as units;

    fn tail(loss: f64, rtt_s: f64) -> TailQuestion {
        TailQuestion {
            message_packets: 4000,
            tail_packets: 700,
            rows: 1,
            loss,
            burst_packets: 1.0,
            rtt_s,
            packet_s: 3.3e-5,
        }
    }

    #[test]
    fn the_rule_is_the_transports() {
        let choice = |loss, rtt_s| {
            let TailParity { parity, repair_copies } = rule(&tail(loss, rtt_s));
            (parity, repair_copies)
        };
        // The table in lacuna-proto has 3 parity and one copy at 25 ms and a loss of 1 %, and none on a
        // short path.
        assert_eq!(choice(1e-2, 1e-4), (0, 1));
        let (parity, copies) = choice(1e-2, 0.025);
        assert!((3..=5).contains(&parity) && copies >= 2, "{parity} {copies}");
        assert!(choice(0.1, 0.025).0 > parity);
        assert_eq!(choice(0.0, 0.025).0, 0);
    }

    #[test]
    fn rows_and_slots_are_those_of_a_connection() {
        let long = mode(4096).expect("a mode");
        assert_eq!((long.rows, long.code.k(), long.code.m()), (1, 32, 16));
        let short = mode(1400).expect("a mode");
        assert_eq!(short.rows, 3);
        assert!(short.slot_packets > 100_000, "{}", short.slot_packets);
    }

    #[test]
    fn what_messages_get_is_told_as_a_range() {
        let with = |parity, repair_copies| (tail(0.0, 0.1), TailParity { parity, repair_copies });
        assert_eq!(describe(&[with(0, 1)]), "selective repeat");
        assert_eq!(
            describe(&[with(1, 2), with(3, 2)]),
            "1 to 3 parity per 32 chunks for the end of a message, its repairs sent 2 times"
        );
    }

    /// A path and a message.
    #[derive(Debug, Clone, Copy)]
    struct Cell {
        rate_bits_per_s: u64,
        rtt_ms: u64,
        loss_ppm: u32,
        burst_packets: u32,
        bytes: usize,
    }

    const MTU_BYTES: u32 = 1024;

    impl Cell {
        /// Mean time of messages over the transport in simulated time, on a path that it knows.
        fn measured_s(&self, count: u32) -> f64 {
            let config = ConnectionConfig::default().geometry(MTU_BYTES, 1).expect("a geometry");
            let config = PairConfig {
                geometry: *config.config(),
                mode: Mode::Auto,
                controller: ControllerConfig::Fixed { rate_bits_per_s: self.rate_bits_per_s },
                credit_bytes: 64 << 20,
                ..PairConfig::default()
            };
            let link = Link {
                delay_ns: self.rtt_ms * 500_000,
                rate_bits_per_s: Some(self.rate_bits_per_s),
                loss_ppm: self.loss_ppm / self.burst_packets,
                burst_packets: self.burst_packets,
                ..Link::default()
            };
            let mut pair = Pair::new(config, link);
            let now_ns = pair.now_ns;
            pair.a.qp().on_rtt_sample(now_ns, self.rtt_ms * 1_000_000);
            for _ in 0..3 {
                message(&mut pair, 2 << 20);
            }
            let sum_ns: u64 = (0..count).map(|_| message(&mut pair, self.bytes)).sum();
            sum_ns as f64 / 1e9 / f64::from(count)
        }

        fn modelled_s(&self) -> f64 {
            let loss = f64::from(self.loss_ppm) / 1e6;
            let loss = match self.burst_packets {
                1 => Loss::PerPacket(loss),
                burst => Loss::bursts(loss, burst.into()).expect("such a chain"),
            };
            let path = Path {
                rate_bits_per_s: self.rate_bits_per_s as f64,
                rtt_s: self.rtt_ms as f64 / 1e3,
                loss,
            };
            let mtu = u64::from(MTU_BYTES);
            let framing =
                Framing { chunk_bytes: mtu, packet_bytes: mtu, overhead_bytes: OVERHEAD_BYTES };
            let transfer = Transfer::new(&path, &framing, self.bytes as u64).expect("a transfer");
            let mode = mode(MTU_BYTES).expect("a mode");
            TailCoding::new(&transfer, &mode).expect("a model").mean_s()
        }
    }

    fn message(pair: &mut Pair, len: usize) -> u64 {
        let posted = pair.post(Side::B, len);
        pair.run_for(200_000_000);
        let start_ns = pair.now_ns;
        let id = pair.send(Side::A, vec![7; len], None);
        let is_done = |pair: &mut Pair| pair.status(Side::A, id).outcome.is_some();
        assert!(pair.run_until(60_000_000_000, is_done));
        let took_ns = pair.now_ns - start_ns;
        pair.close(Side::B, posted);
        took_ns
    }

    #[test]
    fn what_is_said_of_it_is_what_the_transport_takes_in_simulated_time() {
        let mut off = Vec::new();
        for (rate_bits_per_s, rtt_ms) in [(200_000_000, 40), (100_000_000, 10)] {
            for (loss_ppm, burst_packets) in
                [(0, 1), (1000, 1), (10_000, 1), (50_000, 1), (1000, 8), (10_000, 8)]
            {
                for bytes in [100 << 10, 1 << 20, 4 << 20] {
                    let cell = Cell { rate_bits_per_s, rtt_ms, loss_ppm, burst_packets, bytes };
                    let (measured_s, modelled_s) =
                        (cell.measured_s(if bytes > 1 << 20 { 30 } else { 60 }), cell.modelled_s());
                    let deviation = measured_s / modelled_s - 1.0;
                    // A row of docs/model-against-transport.md.
                    println!(
                        "| {} | {rtt_ms} ms | {} | {} | {:.2} ms | {:.2} ms | {:+.1} % |",
                        units::show_rate(rate_bits_per_s as f64),
                        match burst_packets {
                            1 if loss_ppm == 0 => "0".to_owned(),
                            1 => format!("{:e}", f64::from(loss_ppm) / 1e6),
                            burst =>
                                format!("{:e} in bursts of {burst}", f64::from(loss_ppm) / 1e6),
                        },
                        units::show_bytes(bytes as u64),
                        measured_s * 1e3,
                        modelled_s * 1e3,
                        deviation * 100.0,
                    );
                    // The peer's reports are lost, too, which the model does not count.
                    let allowed = if loss_ppm < 50_000 { 0.05 } else { 0.15 };
                    if deviation.abs() > allowed {
                        off.push(format!("{:+.1} %: {cell:?}", deviation * 100.0));
                    }
                }
            }
        }
        assert!(off.is_empty(), "{off:#?}");
    }
}
