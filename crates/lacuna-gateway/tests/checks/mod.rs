//! What must hold whatever frames come, from both sides: for the fuzzer, and for its corpus in the tests.

use crate::common::{Look, frame_of};
use lacuna_gateway::{AutoConfig, Config, GATEWAYS, Gateway, Layout, SharedConfig};
use lacuna_wire::Qpn;
use lacuna_wire::rc::{
    BlockHeader, CodeKind, MessageClass, REPAIR_OPCODE, RcHeader, RepairHeader, Strength,
};

/// Frames of one input, at most.
const FRAMES_MAX: usize = 2_000;
/// Flows of the gateway in each direction, so that some are evicted.
const FLOWS_MAX: usize = 3;
/// Tables of fixed size, with what few flows may have.
const MEMORY_BYTES_MAX: usize = 8 << 20;

/// Reads an input as frames, where they come from, and when.
struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// What has passed, in frames that are no repairs.
#[derive(Default)]
struct Passed {
    from_path: u64,
    to_local: u64,
}

/// A gateway takes the frames that the bytes say. A frame from the local network must leave for the path at
/// once, and one from the path must reach the local network in the end, bit by bit, unless it is a repair or a
/// duplicate of one that waited; nothing is due for ever, and memory is bounded.
pub(crate) fn frames(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(kind) = input.byte() else { return };
    let strength = ["4:1", "mds:8:3", "3:3"][usize::from(kind >> 1) % 3].parse().unwrap();
    let config = Config {
        auto: (kind & 1 != 0).then(AutoConfig::default),
        round_trip_ns: (kind & 0x10 != 0).then_some(5_000_000),
        flows_max: FLOWS_MAX,
        shared: SharedConfig {
            encode_units: 8,
            decode_units: 8,
            ring_packets: 32,
            payload_bytes_max: 256,
        },
        seed: kind.into(),
        ..Config::new((kind & 0x20 == 0).then_some(strength))
    };
    let mut gateway = Gateway::new(config).expect("blocks may have it");
    let mut passed = Passed::default();
    let mut now_ns = 1;
    let mut psns = [[0; 4]; 2];
    for identification in 0..FRAMES_MAX {
        if step(&mut gateway, &mut input, &mut now_ns, &mut psns, &mut passed, identification)
            .is_none()
        {
            break;
        }
    }
    assert!(gateway.memory_bytes() < MEMORY_BYTES_MAX, "{}", gateway.memory_bytes());
    gateway.flush(now_ns, &mut |frame| passed.to_local += u64::from(!is_repair(frame)));
    assert_eq!(gateway.poll_timeout(), None);
    let received = gateway.counters().received;
    assert!(
        passed.from_path <= passed.to_local + received.duplicates_dropped,
        "{} came and {} went: {received:?}",
        passed.from_path,
        passed.to_local
    );
}

fn step(
    gateway: &mut Gateway,
    input: &mut Input<'_>,
    now_ns: &mut u64,
    psns: &mut [[u32; 4]; 2],
    passed: &mut Passed,
    identification: usize,
) -> Option<()> {
    let what = input.byte()?;
    *now_ns += [0, 1_000, 100_000, 30_000_000][usize::from(what >> 6)];
    let mut to_local = |frame: &[u8]| passed.to_local += u64::from(!is_repair(frame));
    gateway.on_timeout(*now_ns, &mut to_local);
    assert!(gateway.poll_timeout().is_none_or(|due_ns| due_ns > *now_ns), "due for ever");
    let is_local = what & 1 != 0;
    let frame = match what >> 1 & 7 {
        0 => {
            let count = usize::from(input.byte()?);
            input.bytes(count)?.to_vec()
        }
        kind => {
            let packet = packet(kind, input, &mut psns[usize::from(is_local)])?;
            let look = [Look::V4, Look::V4Tagged, Look::V6, Look::V4][usize::from(what >> 4 & 3)];
            let mut frame = frame_of(look, usize::from(!is_local), &packet, identification as u16);
            if kind == 7 {
                let at = usize::from(input.byte()?) % frame.len();
                frame[at] ^= input.byte()?;
            }
            frame
        }
    };
    if is_local {
        let mut is_out = false;
        gateway.on_local(*now_ns, &frame, &mut |out| is_out |= out == frame);
        assert!(is_out, "a frame for the path was changed or kept");
    } else {
        passed.from_path += u64::from(!is_repair(&frame));
        gateway.on_remote(*now_ns, &frame, &mut to_local);
    }
    Some(())
}

fn is_repair(frame: &[u8]) -> bool {
    Layout::of(frame).is_some_and(|layout| layout.packet(frame)[0] == REPAIR_OPCODE)
}

/// A packet that a host or another gateway may send, of one of four queue pairs.
fn packet(kind: u8, input: &mut Input<'_>, psns: &mut [u32; 4]) -> Option<Vec<u8>> {
    let about = input.byte()?;
    let flow = usize::from(about & 3);
    let psn = &mut psns[flow];
    let header = match kind {
        // A packet of a WRITE, or of a READ's answer; most continue.
        1..=3 | 7 => {
            let skip = if about & 0x80 != 0 { u32::from(input.byte()?) } else { 1 };
            *psn = psn.wrapping_add(skip).wrapping_sub(if skip > 128 { 256 } else { 0 });
            let opcodes = [[0x07, 0x07, 0x06, 0x08], [0x0e, 0x0e, 0x0d, 0x0f]][flow >> 1];
            let opcode = opcodes[usize::from(about >> 2 & 3)];
            let [_, p2, p1, p0] = psn.to_be_bytes();
            let mut packet = vec![opcode, 0, 0xff, 0xff, 0, 0, 0, flow as u8, 0, p2, p1, p0];
            packet.resize(60 + 4 * usize::from(about >> 5 & 3), *psn as u8);
            if RcHeader::parse(&packet, 0).is_err() {
                packet[0] = 0x07;
            }
            return Some(packet);
        }
        // Any packet.
        4 => {
            let count = 12 + 4 * usize::from(about >> 2);
            return input.bytes(count).map(<[u8]>::to_vec);
        }
        5 => {
            let [block_packets, repairs] = [input.byte()?, input.byte()?].map(u16::from);
            let code = if about & 4 == 0 { CodeKind::Xor } else { CodeKind::Mds };
            let strength =
                Strength { block_packets: block_packets + 1, repairs: repairs + 1, code };
            match about >> 3 & 3 {
                0 => {
                    let class = match about >> 5 & 1 {
                        0 => MessageClass::Write,
                        _ => MessageClass::ReadResponse,
                    };
                    RepairHeader::Announce { first_psn: *psn & 0xff_ffff, class, strength }
                }
                _ => RepairHeader::Request { strength: (about & 0x80 == 0).then_some(strength) },
            }
        }
        _ => {
            let [back, packets, flags] = [input.byte()?, input.byte()?, input.byte()?];
            let block_packets = 1 + u16::from(packets >> 4);
            let strength = Strength {
                block_packets,
                repairs: 1 + u16::from(flags & 3),
                code: if flags & 4 == 0 { CodeKind::Xor } else { CodeKind::Mds },
            };
            let block = BlockHeader {
                first_psn: psn.wrapping_sub(back.into()) & 0xff_ffff,
                packets: 1 + u16::from(packets & 15) % block_packets,
                has_first: flags & 8 != 0,
                has_last: flags & 16 != 0,
                class: if flags & 32 == 0 {
                    MessageClass::Write
                } else {
                    MessageClass::ReadResponse
                },
                last_bytes: back.into(),
                round: flags >> 6,
                strength,
            };
            RepairHeader::Repair { block, index: 0 }
        }
    };
    let is_for_gateways = kind == 5 && about & 0x20 != 0;
    let queue_pair = if is_for_gateways { GATEWAYS } else { flow as u32 };
    let mut packet = [0; 16];
    header.emit(Qpn::from_bits(queue_pair), &mut packet);
    let mut packet = packet.to_vec();
    if kind == 6 {
        packet.resize(16 + 4 * usize::from(about >> 2), about);
    }
    Some(packet)
}
