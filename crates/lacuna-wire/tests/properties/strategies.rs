//! How to make any value that can be written, and bytes that are nearly a packet.

use lacuna_wire::{
    Ack, CHANNELS_MAX, Cancel, CancelReason, ChannelReport, CodeInfo, ControlHeader, DataHeader,
    Flush, FlushMark, Frame, ImmediateSplit, PathChallenge, PathResponse, Probe, ProbeReply,
    QpInfo, Qpn, Read, ReadRefusal, ReadRefused, Receives, ReceivesBefore, Relayed, Report,
    ReportsInfo, Run, RunList, SEALS, Sent, U64List,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const PSN: std::ops::Range<u32> = 0..1 << 24;

/// A [`Frame`] that owns what it holds, for a strategy to make.
// Large like `Frame` itself; there are never more than a few.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub(crate) enum OwnedFrame {
    Inline(Frame<'static>),
    Receives {
        base: u64,
        posted: u64,
        finished: Vec<u8>,
        failed_from: u64,
        failed: Vec<u64>,
        runs: Vec<Run>,
    },
    Ack {
        message: u64,
        cumulative: u32,
        immediate_fragments: u32,
        truncated: bool,
        skipped_bytes: u32,
        chunks: Vec<u8>,
    },
    Relayed {
        queue_pair: u32,
        body: Vec<u8>,
    },
}

impl OwnedFrame {
    pub(crate) fn borrow(&self) -> Frame<'_> {
        match self {
            Self::Inline(frame) => *frame,
            Self::Receives { base, posted, finished, failed_from, failed, runs } => {
                Frame::Receives(Receives {
                    base: *base,
                    posted: *posted,
                    finished,
                    failed_from: *failed_from,
                    failed: U64List::from_values(failed),
                    runs: RunList::from_runs(runs),
                })
            }
            Self::Ack {
                message,
                cumulative,
                immediate_fragments,
                truncated,
                skipped_bytes,
                chunks,
            } => Frame::Ack(Ack {
                message: *message,
                cumulative: *cumulative,
                immediate_fragments: *immediate_fragments,
                truncated: *truncated,
                skipped_bytes: *skipped_bytes,
                chunks,
            }),
            Self::Relayed { queue_pair, body } => {
                Frame::Relayed(Relayed { queue_pair: *queue_pair, body })
            }
        }
    }
}

fn any_qpn() -> impl Strategy<Value = Qpn> {
    any::<u32>().prop_map(Qpn::from_bits)
}

pub(crate) fn any_split() -> impl Strategy<Value = ImmediateSplit> {
    (1..=16u8, prop_oneof![Just(0u8), Just(1), Just(2), Just(4), Just(8)])
        .prop_filter_map("32 bits", |(m, u)| ImmediateSplit::new(m, 32 - m - u, u).ok())
}

pub(crate) fn any_data() -> impl Strategy<Value = (DataHeader, Vec<u8>)> {
    let payload = prop_oneof![vec(any::<u8>(), 0..9), vec(any::<u8>(), 0..1500)];
    let fields = any::<(bool, bool, Option<u64>, u32, u32)>();
    (any_qpn(), PSN, fields, payload).prop_map(|(dest, psn, fields, payload)| {
        let (ends_message, carries_immediate, address, rkey, immediate) = fields;
        let length = payload.len() as u32;
        let header = DataHeader {
            dest,
            psn,
            ends_message,
            carries_immediate,
            address,
            rkey,
            length,
            behind: 0,
            immediate,
        };
        (header, payload)
    })
}

pub(crate) fn any_control() -> impl Strategy<Value = ControlHeader> {
    (any_qpn(), PSN, any::<u32>(), any_qpn()).prop_map(|(dest, psn, qkey, source)| ControlHeader {
        dest,
        psn,
        qkey,
        source,
    })
}

fn any_channel_report() -> impl Strategy<Value = ChannelReport> {
    let psns = (0..CHANNELS_MAX as u8, PSN, PSN);
    (psns, any::<[u64; 3]>(), any::<[u32; 3]>()).prop_map(
        |((channel, next_psn, flushed_psn), counts, [reorder_packets, delay_ns, credit_bytes])| {
            ChannelReport {
                channel,
                next_psn,
                flushed_psn,
                received_packets: counts[0],
                duplicate_packets: counts[1],
                marked_packets: counts[2],
                reorder_packets,
                delay_ns,
                credit_bytes,
            }
        },
    )
}

fn any_report() -> impl Strategy<Value = Report> {
    vec(any_channel_report(), 0..=CHANNELS_MAX).prop_map(|channels| {
        let mut report = Report::new();
        channels.into_iter().for_each(|channel| report.push(channel));
        report
    })
}

fn any_flush() -> impl Strategy<Value = Flush> {
    let marks = vec((0..CHANNELS_MAX as u8, PSN), 0..=CHANNELS_MAX);
    (any::<u64>(), marks).prop_map(|(started, marks)| {
        let mut flush = Flush::new(started);
        marks
            .into_iter()
            .for_each(|(channel, next_psn)| flush.push(FlushMark { channel, next_psn }));
        flush
    })
}

fn any_run() -> impl Strategy<Value = Run> {
    any::<(u32, u64, bool)>().prop_map(|(count, capacity_bytes, continues)| Run {
        count,
        capacity_bytes,
        continues,
    })
}

pub(crate) fn any_frame() -> impl Strategy<Value = OwnedFrame> {
    use OwnedFrame::Inline;
    prop_oneof![
        (0..300u16).prop_map(|bytes| Inline(Frame::Padding(bytes))),
        any::<(u32, u64)>().prop_map(|(id, sent_ns)| Inline(Frame::Probe(Probe { id, sent_ns }))),
        any::<(u32, u64, u32)>().prop_map(|(id, echo_ns, packet_bytes)| {
            Inline(Frame::ProbeReply(ProbeReply { id, echo_ns, packet_bytes }))
        }),
        any_report().prop_map(|report| Inline(Frame::Report(report))),
        any_flush().prop_map(|flush| Inline(Frame::Flush(flush))),
        any::<(u64, u8)>().prop_map(|(message, code)| {
            Inline(Frame::Cancel(Cancel { message, reason: CancelReason::from_code(code) }))
        }),
        (0..CHANNELS_MAX as u8, PSN, any::<u64>()).prop_map(|(channel, next_psn, before)| {
            Inline(Frame::Sent(Sent { channel, next_psn, before }))
        }),
        any::<(u64, u32, u64, u64, u32, u64, u32)>().prop_map(
            |(id, key, address, length, sink_key, sink_address, left_us)| {
                let from = Read { id, key, address, length, sink_key, sink_address, left_us };
                Inline(Frame::Read(from))
            }
        ),
        any::<(u64, u8)>().prop_map(|(id, code)| {
            Inline(Frame::ReadRefused(ReadRefused { id, why: ReadRefusal::from_code(code) }))
        }),
        (any::<u32>(), vec(any::<u8>(), 0..100))
            .prop_map(|(queue_pair, body)| OwnedFrame::Relayed { queue_pair, body }),
        any::<u64>().prop_map(|value| Inline(Frame::PathChallenge(PathChallenge { value }))),
        any::<u64>().prop_map(|value| Inline(Frame::PathResponse(PathResponse { value }))),
        any::<(u64, u64)>().prop_map(|(base, receives)| {
            Inline(Frame::ReceivesBefore(ReceivesBefore { base, receives }))
        }),
        (any::<(u64, u32, u32, bool)>(), 0..1u32 << 24, vec(any::<u8>(), 0..200)).prop_map(
            |((message, cumulative, immediate_fragments, truncated), skipped_bytes, chunks)| {
                OwnedFrame::Ack {
                    message,
                    cumulative,
                    immediate_fragments,
                    truncated,
                    skipped_bytes,
                    chunks,
                }
            }
        ),
        (
            any::<(u64, u64, u64)>(),
            vec(any::<u8>(), 0..130),
            vec(any::<u64>(), 0..20),
            vec(any_run(), 0..20),
        )
            .prop_map(|((base, posted, failed_from), finished, failed, runs)| {
                OwnedFrame::Receives { base, posted, finished, failed_from, failed, runs }
            }),
    ]
}

pub(crate) fn any_info() -> impl Strategy<Value = QpInfo> {
    let address = any::<(bool, [u8; 4], [u8; 16], u16)>().prop_map(|(v4, ip4, ip6, port)| {
        let ip = if v4 { std::net::IpAddr::from(ip4) } else { std::net::IpAddr::from(ip6) };
        std::net::SocketAddr::new(ip, port)
    });
    let code = any::<([u8; 3], std::num::NonZeroU32)>().prop_map(|([kind, k, m], interleave)| {
        let interleave = interleave.get();
        CodeInfo { kind, data_chunks: k, parity_chunks: m, interleave }
    });
    let reports = any::<([u32; 5], bool)>().prop_map(|(words, on_mark)| {
        let [bytes_max, delay_ns_min, delay_ns_max, gap_delay_ns_min, per_rtt] = words;
        ReportsInfo { bytes_max, delay_ns_min, delay_ns_max, gap_delay_ns_min, per_rtt, on_mark }
    });
    (
        (Qpn::QUEUE_PAIR_MIN..=Qpn::QUEUE_PAIR_MAX, any::<u32>(), any::<u32>()),
        (1..=65_468u32, 1..=u32::MAX, any_split(), 1..=8u8, 1..=u32::MAX),
        (1..=u64::MAX, PSN, any::<u32>(), vec(address, 1..=CHANNELS_MAX), option::of(code)),
        (option::of(reports), option::of(any::<[u8; 16]>()), 0..SEALS.len()),
    )
        .prop_map(|((queue_pair, rkey, qkey), sizes, last, (reports, nonce, seal))| QpInfo {
            queue_pair,
            rkey,
            qkey,
            mtu_bytes: sizes.0,
            chunk_packets: sizes.1,
            split: sizes.2,
            generations: sizes.3,
            stripe_packets: sizes.4,
            max_message_bytes: last.0,
            first_psn: last.1,
            credit_bytes: last.2,
            channels: last.3,
            code: last.4,
            seal: SEALS[seal].seal,
            nonce,
            reports,
        })
}

/// Bytes that often get past the first checks: a likely beginning, then anything.
pub(crate) fn nearly_packet() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![Just(0x25), Just(0x2b), Just(0x64), any::<u8>()];
    let flags = prop_oneof![(0..16u8).prop_map(|flags| flags << 4), any::<u8>()];
    (opcode, flags, vec(any::<u8>(), 0..120), any::<bool>()).prop_map(
        |(opcode, flags, rest, fitting)| {
            let mut packet = [&[opcode, flags, 0xff, 0xff][..], &rest].concat();
            let pad = usize::from(flags >> 4) & 3;
            if let (true, Some(length)) = (fitting, packet.len().checked_sub(36 + pad)) {
                packet[24..28].copy_from_slice(&(length as u32).to_be_bytes());
            }
            packet
        },
    )
}

pub(crate) fn nearly_body() -> impl Strategy<Value = Vec<u8>> {
    let frame = (prop_oneof![0..9u8, 0x80..0x82u8, any::<u8>()], vec(any::<u8>(), 0..60))
        .prop_map(|(code, payload)| [&[code, 0, 0, payload.len() as u8][..], &payload].concat());
    let tail = vec(any::<u8>(), 0..5);
    (vec(frame, 0..8), tail, any::<u32>()).prop_map(|(frames, tail, sequence)| {
        [&[1, 0, 0, 0][..], &sequence.to_be_bytes(), &frames.concat(), &tail].concat()
    })
}
