//! The info that the ends exchange about their queue pairs, and the check that both have the same
//! parameters.

use super::wire::Wire;
use crate::qp::{Peer, QpConfig};
use core::net::SocketAddr;
use lacuna_code::CodeKind;
use lacuna_place::geometry::{Geometry, GeometryConfig};
use lacuna_wire::{CodeInfo, ImmediateSplit, QpInfo};

/// The two ends were made with different parameters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// A number differs.
    #[error("the ends do not agree on {what}: {here} here, {there} at the peer")]
    Number {
        /// Which parameter.
        what: &'static str,
        /// This end's value.
        here: u64,
        /// The peer's.
        there: u64,
    },
    /// The form of data packets differs.
    #[error(
        "the ends do not agree on the form of packets: {here} here, {there} at the peer; give both the same wire"
    )]
    Wire {
        /// This end's.
        here: Wire,
        /// The peer's.
        there: Wire,
    },
    /// The erasure code differs.
    #[error(
        "the ends do not agree on the erasure code: {here} here, {there} at the peer; give both the same mode"
    )]
    Code {
        /// This end's, or "none".
        here: String,
        /// The peer's, or "none".
        there: String,
    },
}

/// The info of a queue pair whose channels are at these addresses.
pub fn info_of(config: &QpConfig, channels: Vec<SocketAddr>) -> QpInfo {
    let geometry = config.geometry.config();
    QpInfo {
        queue_pair: config.queue_pair,
        rkey: config.rkey,
        qkey: config.qkey,
        mtu_bytes: geometry.mtu_bytes,
        chunk_packets: geometry.chunk_packets,
        split: geometry.split,
        generations: geometry.generations,
        stripe_packets: geometry.stripe_packets,
        max_message_bytes: geometry.max_message_bytes,
        first_psn: config.first_psn,
        credit_bytes: config.credit_bytes,
        channels,
        code: code_info(geometry),
        seal: geometry.seal,
        nonce: None,
        reports: config.controller.report_policy().to_peer(),
    }
}

/// The peer's end, from its info.
pub fn peer_of(info: &QpInfo) -> Peer {
    Peer {
        queue_pair: info.queue_pair,
        rkey: info.rkey,
        qkey: info.qkey,
        first_psn: info.first_psn,
        credit_bytes: info.credit_bytes,
    }
}

/// The code as it travels in the info.
fn code_info(geometry: &GeometryConfig) -> Option<CodeInfo> {
    let code = geometry.code?;
    let kind = match code.kind() {
        CodeKind::Xor => 1,
        CodeKind::Mds => 2,
    };
    // k + m is at most 255.
    let (data_chunks, parity_chunks) = (code.data_chunks() as u8, code.parity_chunks() as u8);
    Some(CodeInfo { kind, data_chunks, parity_chunks, interleave: geometry.interleave.max(1) })
}

/// The code as text, without its interleaving.
fn show_code(code: CodeInfo) -> String {
    let CodeInfo { kind, data_chunks: k, parity_chunks: m, interleave: _ } = code;
    let kind = match kind {
        1 => "xor".to_owned(),
        2 => "mds".to_owned(),
        unknown => format!("code {unknown}"),
    };
    format!("{kind}:{k}:{m}")
}

/// Compares the parameters that both ends must have in common.
///
/// # Errors
/// The first thing that differs.
pub fn check_agreement(here: &Geometry, there: &QpInfo) -> Result<(), Disagreement> {
    let here = here.config();
    let split = |split: ImmediateSplit| {
        u64::from(split.message_bits()) * 10_000
            + u64::from(split.packet_bits()) * 100
            + u64::from(split.user_bits())
    };
    if here.seal != there.seal {
        let [here, there] = [here.seal, there.seal].map(Wire::of_seal);
        return Err(Disagreement::Wire { here, there });
    }
    let interleave = |code: Option<CodeInfo>| code.map_or(1, |code| code.interleave.into());
    let values = [
        ("the MTU in bytes", here.mtu_bytes.into(), there.mtu_bytes.into()),
        ("packets per chunk", here.chunk_packets.into(), there.chunk_packets.into()),
        ("packets per stripe", here.stripe_packets.into(), there.stripe_packets.into()),
        ("the number of channels", here.channels.into(), there.channels.len() as u64),
        ("the number of generations", here.generations.into(), there.generations.into()),
        ("the immediate's split", split(here.split), split(there.split)),
        ("the longest message", here.max_message_bytes, there.max_message_bytes),
        ("chunks in a chunk of the code", interleave(code_info(here)), interleave(there.code)),
    ];
    let [code, their_code] =
        [code_info(here), there.code].map(|code| code.map_or_else(|| "none".to_owned(), show_code));
    if code != their_code {
        return Err(Disagreement::Code { here: code, there: their_code });
    }
    match values.into_iter().find(|(_, here, there)| here != there) {
        Some((what, here, there)) => Err(Disagreement::Number { what, here, there }),
        None => Ok(()),
    }
}
