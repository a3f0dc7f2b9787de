//! What a connection uses, told when it begins: in lines that fit a terminal,
//! and with what was asked for and not got.

use super::report::Side;
use crate::units::{show_bytes, show_count, show_rate};
use lacuna::Chosen;
use std::net::SocketAddr;

/// Lines for people; `channels` is what this end asked for.
pub(crate) fn describe(side: Side, peer: SocketAddr, chosen: &Chosen, channels: u8) -> String {
    let way = match side {
        Side::Sender => "sending to",
        Side::Receiver => "sender at",
    };
    let found = if chosen.mtu_probed { "probed" } else { "given" };
    let mut text = format!(
        "{way} {peer}: mode {}, chunk {}, mtu {} B ({found})",
        chosen.mode,
        show_bytes(chosen.chunk_bytes),
        chosen.mtu_bytes,
    );
    text += &format!("\n  {}, {}", chosen.datapath, offloads(chosen));
    text += &format!(", {}", show_count(chosen.channels.into(), "channel"));
    let window = show_bytes(chosen.peer_credit_bytes);
    text += &match chosen.rate_bits_per_s {
        Some(rate) => format!(", rate {} (given)", show_rate(rate as f64)),
        None => format!(", window {} to {window}", chosen.controller),
    };
    if let Some(rtt_us) = chosen.rtt_us {
        text += &format!(", rtt {:.2} ms", rtt_us as f64 / 1e3);
    }
    if chosen.channels < channels {
        let other = match side {
            Side::Sender => "the receiver offers no more: recv --channels",
            Side::Receiver => "the sender uses no more: send --channels",
        };
        text += &format!(
            "\n  {} of {channels} asked for ({other})",
            show_count(chosen.channels.into(), "channel")
        );
    }
    text
}

fn offloads(chosen: &Chosen) -> &'static str {
    match (chosen.segmentation_offload, chosen.receive_coalescing) {
        (true, true) => "offloads on",
        (true, false) => "segmentation on, coalescing off",
        (false, true) => "segmentation off, coalescing on",
        (false, false) => "offloads off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen() -> Chosen {
        Chosen {
            mode: "sr:rto".to_owned(),
            mtu_bytes: 4096,
            mtu_probed: true,
            chunk_bytes: 64 << 10,
            slot_bytes: 1 << 30,
            slots: 1024,
            channels: 16,
            channels_here: 16,
            datapath: "udp",
            segmentation_offload: true,
            receive_coalescing: true,
            peer_credit_bytes: 56 << 20,
            controller: "probing",
            rate_bits_per_s: None,
            rtt_us: Some(120_345),
        }
    }

    #[test]
    fn the_lines_fit_a_terminal() {
        let peer = "203.100.100.100:65535".parse().unwrap();
        let given = Chosen { rate_bits_per_s: Some(2_500_000_000), ..chosen() };
        for chosen in [&chosen(), &given] {
            for side in [Side::Sender, Side::Receiver] {
                for line in describe(side, peer, chosen, 16).lines() {
                    assert!(line.chars().count() <= 80, "{line}");
                }
            }
        }
    }

    #[test]
    fn fewer_channels_than_asked_for_are_said_by_the_end_that_asked() {
        let peer = "127.0.0.1:7400".parse().unwrap();
        let one = Chosen { channels: 1, ..chosen() };
        let text = describe(Side::Sender, peer, &one, 16);
        assert!(text.contains("1 channel of 16 asked for (the receiver"), "{text}");
        assert!(text.contains("recv --channels"), "{text}");
        assert!(!describe(Side::Receiver, peer, &one, 1).contains("asked for"));
        assert!(!describe(Side::Sender, peer, &chosen(), 16).contains("asked for"));
    }
}
