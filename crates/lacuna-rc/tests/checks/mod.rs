//! What must hold whatever the work and whatever comes: for the fuzzer, and for its corpus in the tests.

use crate::common::{World, all_of, config, pattern, read, region, send, slice, write};
use lacuna_link::PipeConfig;
use lacuna_rc::{RcConfig, RecvWork, Repair};
use lacuna_wire::rc::{Opcode, RcHeader, RcInfo, RepairHeader, parse_notification};

/// Operations of one input, at most: each may be a packet, and many make a run long.
const OPERATIONS_MAX: usize = 300;
const PAD_BYTES: usize = 4;

/// Reads an input as operations of both ends and of a stranger who knows the numbers.
struct Input<'b>(&'b [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn below(&mut self, bound: u64) -> Option<u64> {
        let word = u64::from(self.byte()?) << 8 | u64::from(self.byte()?);
        Some(word % bound)
    }
}

/// Two queue pairs do what the bytes say. Every request must end once and in order, nothing may be in flight
/// at the end, and no byte beside a receive or a key's range may change.
pub(crate) fn connection(bytes: &[u8]) {
    for trailer_bytes in [0, 4] {
        if let Ok((header, payload)) = RcHeader::parse(bytes, trailer_bytes) {
            let mut again = vec![0; header.header_bytes()];
            header.emit(payload.len(), &mut again);
            let (same, _) = RcHeader::parse(&pad(again, payload), 0).expect("it was read before");
            assert_eq!(same, header);
        }
        let _ = RepairHeader::parse(bytes, trailer_bytes);
        let _ = parse_notification(bytes, trailer_bytes);
    }
    let _ = RcInfo::parse(bytes);

    for repair in [Repair::GoBackN, Repair::SelectiveRepeat] {
        operate_all(bytes, repair);
    }
}

fn operate_all(bytes: &[u8], repair: Repair) {
    // A peer without receives is given up.
    let config = |number| RcConfig { rnr_retry_count: 3, repair, ..config(number, 256) };
    let configs = [3, 5].map(config);
    let pipe = PipeConfig { delay_ns: 2_000_000, ..PipeConfig::default() };
    let mut world = World::new(configs, [pipe.clone(), pipe], 1);
    let guard = [region(4096), region(4096)];
    let mut input = Input(bytes);
    let mut posted = [0u64; 2];
    for _ in 0..OPERATIONS_MAX {
        if operate(&mut world, &mut input, &guard, &mut posted).is_none() {
            break;
        }
    }
    world.run_out();
    for at in 0..2 {
        world.ends[at].qp.close();
        let now_ns = world.now_ns;
        world.ends[at].settle(now_ns);
        let done = world.ends[at].take_done();
        let ids: Vec<u64> = done.iter().filter(|done| done.id < 1000).map(|done| done.id).collect();
        assert!(ids.iter().copied().eq(0..posted[at]), "{ids:?}");
        let mut edges = vec![0; 4096];
        guard[at].read(0, &mut edges).expect("its length");
        let outside = edges[..1024].iter().chain(&edges[3072..]);
        assert!(outside.into_iter().all(|byte| *byte == 0), "bytes beside the receives");
    }
}

fn pad(mut packet: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    packet.extend_from_slice(payload);
    packet.resize(packet.len().next_multiple_of(PAD_BYTES), 0);
    packet
}

fn operate(
    world: &mut World,
    input: &mut Input<'_>,
    guard: &[std::sync::Arc<lacuna_place::region::Region>; 2],
    posted: &mut [u64; 2],
) -> Option<()> {
    let operation = input.byte()?;
    let at = usize::from(operation & 1);
    match operation >> 1 & 7 {
        0 | 1 => {
            let (len, address) = (input.below(3000)?, input.below(4096)?);
            let data = pattern(len as usize, 1);
            let remote = world.ends[1 - at].remote(address);
            let work = match operation >> 4 & 3 {
                0 => send(posted[at], &data),
                1 => read(posted[at], all_of(&region(len as usize)), remote),
                _ => write(posted[at], &data, remote),
            };
            posted[at] += u64::from(world.ends[at].qp.post_send(work).is_ok());
        }
        2 => {
            let len = input.below(2048)?;
            let work = RecvWork { id: 1000, into: slice(&guard[at], 1024, len) };
            let _ = world.ends[at].qp.post_recv(work);
        }
        3 => {
            let time_ns = input.below(1 << 16)? * 1000;
            world.run_until(time_ns, |_| false);
        }
        _ => {
            let config = world.ends[at].qp.config();
            let (own, peer) = (config.first_psn, world.ends[1 - at].qp.config().first_psn);
            let destination = config.number;
            let near = if operation & 0x80 == 0 { own } else { peer };
            let psn = near.wrapping_add(u32::from(input.byte()?)).wrapping_sub(16) & 0xff_ffff;
            let opcode = Opcode::of(input.byte()? % 0x18)?;
            let mut packet = vec![opcode as u8, input.byte()? & 0xb0, 0xff, 0xff];
            packet.extend(destination.bits().to_be_bytes());
            packet.extend((psn | u32::from(operation & 0x40) << 25).to_be_bytes());
            for _ in 0..opcode.extended_bytes() {
                packet.push(input.byte()?);
            }
            let payload = pattern([0, 4, 256, 300][usize::from(operation >> 4 & 3)], 3);
            let packet = pad(packet, &payload);
            let now_ns = world.now_ns;
            world.ends[at].take(now_ns, &packet);
            world.ends[at].settle(now_ns);
        }
    }
    Some(())
}
