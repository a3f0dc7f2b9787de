//! What must hold whatever two datagram queue pairs do and whatever comes from others: for the fuzzer, and for its
//! corpus in the tests.
//!
//! An input is a list of operations of both ends, of the network between them, and of strangers who know keys and
//! numbers, write under any address, and always have the CRC32C right. `world.rs` keeps the books and checks after
//! each packet that memory changed where the packet says, and nowhere else.

mod world;

use lacuna_datagram::{Target, Verb};
use lacuna_wire::ddp::{
    About, ControlFrame, ControlReason, MissingRanges, Operation, ReadRequest, RecordFlags,
    Segment, Space, Tagged, Untagged, emit_control,
};
use std::net::SocketAddr;
use world::{MEMORY_BYTES, World, address, stranger};

/// Operations of one input, at most: each may be many packets.
const OPERATIONS_MAX: usize = 400;

/// Reads an input.
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

    fn some(&mut self, most: u64) -> Option<Vec<u8>> {
        let count = self.below(most)? as usize;
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        Some(first.to_vec())
    }
}

/// Two queue pairs do what the bytes say.
pub(crate) fn endpoints(bytes: &[u8]) {
    run(bytes, false);
}

/// The same, and what happened: the same for the same bytes.
#[allow(dead_code, reason = "the fuzzer does not ask")]
pub(crate) fn story(bytes: &[u8]) -> Vec<String> {
    run(bytes, true)
}

fn run(bytes: &[u8], is_told: bool) -> Vec<String> {
    let mut input = Input(bytes);
    let Some(settings) = input.byte() else { return Vec::new() };
    let mut world = World::new(settings, is_told);
    for _ in 0..OPERATIONS_MAX {
        if operate(&mut world, &mut input).is_none() {
            break;
        }
    }
    world.end()
}

fn operate(world: &mut World, input: &mut Input<'_>) -> Option<()> {
    let operation = input.byte()?;
    let at = usize::from(operation & 1);
    match operation >> 1 & 0xf {
        0 => {
            let data = pattern(input.below(1500)?, input.byte()?);
            world.post(at, Verb::Send { data: data.into() }, operation & 0x80 != 0);
        }
        1 | 2 => {
            let data = pattern(input.below(1500)?, input.byte()?);
            let to = target(world, 1 - at, input)?;
            world.post(at, Verb::WriteRecord { data: data.into(), to }, operation & 0x80 != 0);
        }
        3 => {
            let (start, bytes) = (input.below(MEMORY_BYTES)?, input.below(1500)?);
            let from = target(world, 1 - at, input)?;
            world.post_read(at, start, bytes, from, input.below(200)? * 1_000_000);
        }
        4 => {
            let (start, bytes) = (input.below(MEMORY_BYTES)?, input.below(1500)?);
            world.post_recv(at, start, bytes);
        }
        5 => world.pass(input.below(1 << 16)? * [1, 1_000, 100_000][input.below(3)? as usize]),
        6 | 7 => world.transmit(at, 1 + input.below(8)? as usize),
        8 => {
            let (choice, count) = (input.below(1 << 16)?, 1 + input.below(16)?);
            for step in 0..count {
                world.arrive(choice + step, operation & 0x80 != 0);
            }
        }
        9 => world.lose(input.below(1 << 16)?),
        10 => {
            let from = source(at, input)?;
            let payload = pattern(input.below(200)?, input.byte()?);
            let to = target(world, at, input)?;
            let (place, behind) = (near(input)?, input.below(300)? as u32);
            let flags = input.byte()?;
            let space = if flags & 2 == 0 { Space::Records } else { Space::Reads };
            let tagged = Tagged {
                stag: to.key,
                offset: to.offset.wrapping_add(place.into()),
                number: world.number(at, space).wrapping_add(near(input)?),
                length: place.wrapping_add(payload.len() as u32).wrapping_add(behind),
                place,
                flags: RecordFlags {
                    is_solicited: flags & 1 != 0,
                    is_answer: flags & 2 != 0,
                    is_named: flags & 4 != 0,
                },
            };
            forge(world, at, from, Segment::Tagged(tagged), &payload);
        }
        11 => {
            let from = source(at, input)?;
            let payload = pattern(input.below(200)?, input.byte()?);
            let (place, behind) = (near(input)?, input.below(300)? as u32);
            let solicited = operation & 0x80 != 0;
            let untagged = Untagged {
                operation: if solicited { Operation::SendSolicited } else { Operation::Send },
                number: world.number(at, Space::Sends).wrapping_add(near(input)?),
                length: place.wrapping_add(payload.len() as u32).wrapping_add(behind),
                place,
            };
            forge(world, at, from, Segment::Untagged(untagged), &payload);
        }
        12 => {
            let from = source(at, input)?;
            let mut payload = Vec::new();
            for _ in 0..1 + input.below(4)? {
                emit_control(&frame(world, at, input)?, &mut payload);
            }
            payload.extend(input.some(4)?);
            let length = payload.len() as u32;
            let untagged = Untagged { operation: Operation::Control, number: 0, length, place: 0 };
            forge(world, at, from, Segment::Untagged(untagged), &payload);
        }
        13 => {
            let from = source(at, input)?;
            let source = target(world, at, input)?;
            let request = ReadRequest {
                sink_stag: u32::from(input.byte()?),
                sink_offset: u64::from(input.byte()?),
                length: input.below(1500)? as u32,
                source_stag: source.key,
                source_offset: source.offset,
                time_left_us: input.below(1 << 16)? as u32,
            };
            let number = world.number(at, Space::Reads).wrapping_add(near(input)?);
            let (operation, length) = (Operation::ReadRequest, 32);
            let untagged = Untagged { operation, number, length, place: 0 };
            forge(world, at, from, Segment::Untagged(untagged), &request.emit());
        }
        14 => {
            // Whatever it is, with a trailer that matches.
            let from = source(at, input)?;
            let mut packet = input.some(120)?;
            let trailer = lacuna_wire::crc32c(&[&packet]);
            packet.extend(trailer);
            world.deliver(at, from, &packet);
        }
        _ => match input.byte()? % 4 {
            0 => world.revoke(at, input.below(8)? as usize),
            1 => world.register(at, input.byte()?),
            2 => world.forget(at),
            _ => world.hold(at),
        },
    }
    Some(())
}

fn pattern(bytes: u64, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(7) ^ seed).collect()
}

/// A small number, seldom a large one.
fn near(input: &mut Input<'_>) -> Option<u32> {
    let byte = input.byte()?;
    Some(match byte {
        0..=199 => u32::from(byte >> 2),
        200..=229 => u32::from(byte - 200).wrapping_neg(),
        230..=250 => u32::from(byte) << 8,
        _ => 0x7fff_fff0 + u32::from(byte),
    })
}

/// Memory of an end: mostly under a key of it.
fn target(world: &World, of: usize, input: &mut Input<'_>) -> Option<Target> {
    let choice = input.byte()?;
    let key = world.key(of, choice);
    let offset = match choice {
        0..=249 => input.below(MEMORY_BYTES)?,
        _ => u64::MAX - input.below(MEMORY_BYTES)?,
    };
    Some(Target { key, offset })
}

/// Who seems to send: the other end, or a stranger.
fn source(at: usize, input: &mut Input<'_>) -> Option<SocketAddr> {
    let choice = input.byte()?;
    Some(if choice & 1 == 0 { address(1 - at) } else { stranger(choice >> 1 & 7) })
}

fn frame(world: &World, at: usize, input: &mut Input<'_>) -> Option<ControlFrame<'static>> {
    let kind = input.byte()?;
    let space = [Space::Sends, Space::Reads, Space::Records][usize::from(kind >> 4) % 3];
    let about = About { space, number: world.number(at, space).wrapping_add(near(input)?) };
    let reason = ControlReason::from_code(kind >> 5);
    Some(match kind & 7 {
        0 => ControlFrame::Report { about, end: 100, bytes: 1000, waited_us: 5 },
        1 | 2 => ControlFrame::Error { about, reason },
        3 | 4 => ControlFrame::Cancel { about, reason },
        5 => ControlFrame::Sent { about },
        6 => ControlFrame::Missing { about, ranges: MissingRanges::new(&[(0, 100), (50, 7)]) },
        _ => ControlFrame::Done { about },
    })
}

fn forge(world: &mut World, to: usize, from: SocketAddr, segment: Segment, payload: &[u8]) {
    let mut packet = vec![0; segment.packet_bytes(payload.len())];
    segment.emit_packet(payload, &mut packet);
    world.deliver(to, from, &packet);
}
