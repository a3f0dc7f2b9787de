//! Control packets of the peer of `endpoint.rs`: any frame with any values, and those of an honest peer.

use super::{MTU, SLOT_PACKETS, World};
use crate::checks::Choices;
use crate::common::control_body;
use lacuna_wire::{
    Ack, Cancel, CancelReason, ChannelReport, Flush, FlushMark, Frame, PathChallenge, PathResponse,
    Probe, ProbeReply, Read, ReadRefusal, ReadRefused, Receives, ReceivesBefore, Report, Run,
    RunList, Sent, U64List,
};

impl World {
    /// A control packet: frames, then raw bytes behind them.
    pub(super) fn control<'f>(
        &mut self,
        operation: u8,
        frames: impl FnOnce(&Self) -> Vec<Frame<'f>>,
        raw: &[u8],
    ) {
        // Mostly newer than the last, sometimes the same or far away.
        match operation >> 4 {
            0 => {}
            15 => self.sequence = self.sequence.wrapping_add(1 << 30),
            _ => self.sequence = self.sequence.wrapping_add(1),
        }
        let mut body = control_body(self.sequence, &frames(self));
        body.extend_from_slice(raw);
        let _ = self.qp.on_control(self.now_ns, 0, &body, body.len());
    }

    pub(super) fn number(&self, choices: &mut Choices<'_>) -> u64 {
        match choices.byte() {
            255 => u64::MAX,
            254 => u64::MAX - 1,
            253 => 1 << 62,
            252 => (1 << 62) - 2,
            251 => u64::from(u32::MAX),
            250 => self.now_ns,
            near => u64::from(near) / 4,
        }
    }

    fn short(&self, choices: &mut Choices<'_>) -> u32 {
        match choices.byte() {
            255 => u32::MAX,
            254 => u32::MAX - 1,
            253 => 1 << 30,
            252 => 0xFF_FFF8 + u32::from(choices.byte()),
            near => u32::from(near),
        }
    }

    pub(super) fn frames(&mut self, operation: u8, choices: &mut Choices<'_>) {
        let kind = choices.byte();
        let (n0, n1, n2) = (self.number(choices), self.number(choices), self.number(choices));
        let (s0, s1, s2) = (self.short(choices), self.short(choices), self.short(choices));
        let options = choices.byte();
        let bits = choices.slice(usize::from(options & 31));
        let failed = [n2, n0, n2.wrapping_sub(1)];
        let runs = [
            Run { count: s0, capacity_bytes: n2, continues: options & 32 != 0 },
            Run { count: s1, capacity_bytes: u64::from(s2), continues: options & 64 != 0 },
            Run { count: 1, capacity_bytes: n1, continues: options & 128 != 0 },
        ];
        let channel = options >> 5 & 3;
        let kinds = if self.is_new { 12 } else { 8 };
        let frame = match kind % kinds {
            0 => Frame::Receives(Receives {
                base: n0,
                posted: n1,
                finished: bits,
                failed_from: n2,
                failed: U64List::from_values(&failed),
                runs: RunList::from_runs(&runs),
            }),
            1 => Frame::Ack(Ack {
                message: n0,
                cumulative: s0,
                immediate_fragments: s1,
                truncated: options & 32 != 0,
                skipped_bytes: s1 >> 8,
                chunks: bits,
            }),
            2 => {
                let mut report = Report::new();
                report.push(ChannelReport {
                    channel,
                    next_psn: s0 & 0xFF_FFFF,
                    flushed_psn: s1 & 0xFF_FFFF,
                    received_packets: n0,
                    duplicate_packets: n1,
                    marked_packets: n2,
                    reorder_packets: s2,
                    delay_ns: s1,
                    credit_bytes: s2,
                });
                Frame::Report(report)
            }
            3 => {
                let mut flush = Flush::new(n0);
                flush.push(FlushMark { channel, next_psn: s0 & 0xFF_FFFF });
                Frame::Flush(flush)
            }
            4 => Frame::Cancel(Cancel { message: n0, reason: CancelReason::from_code(options) }),
            5 => Frame::Probe(Probe { id: s0, sent_ns: n0 }),
            6 => Frame::ProbeReply(ProbeReply { id: s0, echo_ns: n0, packet_bytes: s1 }),
            7 => Frame::Sent(Sent { channel, next_psn: s0 & 0xFF_FFFF, before: n0 }),
            8 => {
                let key = |choice: u32| {
                    self.targets.as_ref().map_or(choice, |targets| targets.key(choice as u8))
                };
                Frame::Read(Read {
                    id: n0,
                    key: key(s0),
                    address: n1,
                    length: u64::from(s2),
                    sink_key: key(s1),
                    sink_address: n2,
                    left_us: s2,
                })
            }
            9 => {
                let why = ReadRefusal::from_code(options >> 4);
                Frame::ReadRefused(ReadRefused { id: n0 % 64, why })
            }
            10 => Frame::ReceivesBefore(ReceivesBefore { base: n0, receives: n1 }),
            _ if options & 128 != 0 => Frame::PathChallenge(PathChallenge { value: n0 }),
            _ if options & 64 != 0 => Frame::PathResponse(PathResponse { value: n0 }),
            _ => Frame::Padding(u16::from(options)),
        };
        // The frame counts for the one behind it.
        let then = (kind % kinds == 10).then(|| {
            Frame::Receives(Receives {
                base: n0,
                posted: n2,
                finished: bits,
                failed_from: 0,
                failed: U64List::default(),
                runs: RunList::from_runs(&runs),
            })
        });
        self.control(operation, |_| [frame].into_iter().chain(then).collect(), &[]);
    }

    /// Frames of an honest peer: it has posted some receives and received all packets.
    pub(super) fn honest_answer(&mut self, choices: &mut Choices<'_>) {
        let (control, finished) = (choices.byte(), choices.byte());
        self.peer_posted += u64::from(control & 3);
        let mut report = Report::new();
        for channel in 0..self.writers.len() {
            // All packets sent so far, according to the queue pair itself.
            while let Some(run) = self.qp.poll_transmit(self.now_ns, channel as u8, 64) {
                for index in 0..run.len() {
                    let (header, payload) = run.packet(index);
                    self.sent_psn[channel] = (header.psn + 1) & 0xFF_FFFF;
                    if let Some(targets) = &self.targets {
                        self.answers += u64::from(targets.on_sent(payload));
                    }
                }
            }
            report.push(ChannelReport {
                channel: channel as u8,
                next_psn: self.sent_psn[channel],
                flushed_psn: self.sent_psn[channel],
                credit_bytes: 1 << 20,
                ..ChannelReport::default()
            });
        }
        let base = self.peer_posted.saturating_sub(u64::from(finished & 15));
        let runs = [Run {
            count: (self.peer_posted - base) as u32,
            capacity_bytes: SLOT_PACKETS * MTU as u64,
            continues: false,
        }];
        let acked = [finished; 4];
        // Each of its receives has one slot.
        let before = Frame::ReceivesBefore(ReceivesBefore { base, receives: base });
        let mut frames = if self.is_new { vec![before] } else { Vec::new() };
        frames.extend([
            Frame::Report(report),
            Frame::Receives(Receives {
                base,
                posted: self.peer_posted,
                finished: &[],
                failed_from: 0,
                failed: U64List::default(),
                runs: RunList::from_runs(&runs),
            }),
            Frame::Ack(Ack {
                message: base,
                cumulative: u32::from(control >> 4),
                immediate_fragments: u32::from(finished),
                truncated: false,
                skipped_bytes: 0,
                chunks: &acked,
            }),
        ]);
        self.control(0x10, |_| frames, &[]);
    }
}
