//! What must hold whatever datagram queue pairs do and whatever comes from others: for the fuzzer, and for its corpus
//! in the tests.
//!
//! An input is settings (reliable or not, with a congestion controller or not), and a list of operations of the ends,
//! of the network between them, and of strangers who know keys and numbers, write under any address, and always have
//! the CRC32C right. `world.rs` keeps the books and checks after each packet that memory changed where the packet says,
//! and nowhere else.

mod world;

use lacuna_datagram::{Target, Verb};
use lacuna_wire::ddp::{
    About, ControlFrame, ControlReason, Operation, Position, ReadRequest, RecordFlags, Rows,
    Segment, Space, Tagged, Untagged, emit_control,
};
use std::net::SocketAddr;
use world::{Kind, MEMORY_BYTES, NAME, World, address, group, other, stranger};

/// Operations of one input, at most: each may be many packets.
const OPERATIONS_MAX: usize = 400;

/// As far from numbers that are used.
const FAR: u32 = 1 << 28;

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

/// Queue pairs do what the bytes say.
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
    // Two bits are options; both of them are the third end.
    let (mut at, mut options) = (usize::from(operation & 1), operation >> 5 & 3);
    if options == 3 {
        (at, options) = (2, 0);
    }
    let (is_other, has_deadline) = (options == 1, options == 2);
    match operation >> 1 & 0xf {
        0 => {
            let data = pattern(input.below(1500)?, input.byte()?);
            let left_ns = if has_deadline { Some(input.below(200)? * 1_000_000) } else { None };
            let is_unsignaled = operation & 0x80 != 0;
            world.post(at, Verb::Send { data: data.into() }, is_unsignaled, is_other, left_ns);
        }
        1 | 2 => {
            let data = pattern(input.below(1500)?, input.byte()?);
            let to = target(world, other(at), input)?;
            let left_ns = if has_deadline { Some(input.below(200)? * 1_000_000) } else { None };
            let verb = match is_other {
                true => Verb::WriteNamed { data: data.into(), name: NAME, offset: to.offset },
                false => Verb::WriteRecord { data: data.into(), to },
            };
            let is_to_group = is_other && operation & 2 != 0;
            world.post(at, verb, operation & 0x80 != 0, is_to_group, left_ns);
        }
        3 => {
            let (start, bytes) = (input.below(MEMORY_BYTES)?, input.below(1500)?);
            let from = target(world, other(at), input)?;
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
            let is_reliable = flags & 8 != 0;
            let (group, space) = match (is_reliable, has_deadline) {
                (true, _) => (0, Space::Reliable),
                (false, true) => (group(), Space::GroupRecords),
                (false, false) if flags & 2 == 0 => (0, Space::Records),
                (false, false) => (0, Space::Reads),
            };
            let tagged = Tagged {
                stag: if flags & 4 != 0 { NAME } else { to.key },
                offset: to.offset.wrapping_add(place.into()),
                number: number(world, at, space, input)?,
                length: place.wrapping_add(payload.len() as u32).wrapping_add(behind),
                place,
                flags: RecordFlags {
                    is_solicited: flags & 1 != 0,
                    is_answer: flags & 2 != 0,
                    is_named: flags & 4 != 0,
                    is_reliable,
                },
                group,
            };
            forge(world, at, from, Segment::Tagged(tagged), &payload);
        }
        11 => {
            let from = source(at, input)?;
            let payload = pattern(input.below(200)?, input.byte()?);
            let (place, behind) = (near(input)?, input.below(300)? as u32);
            let solicited = operation & 0x80 != 0;
            let (group, space) = match (is_other, has_deadline) {
                (true, _) => (0, Space::Reliable),
                (_, true) => (group(), Space::GroupSends),
                _ => (0, Space::Sends),
            };
            let untagged = Untagged {
                operation: if solicited { Operation::SendSolicited } else { Operation::Send },
                is_reliable: is_other,
                group,
                number: number(world, at, space, input)?,
                length: place.wrapping_add(payload.len() as u32).wrapping_add(behind),
                place,
            };
            forge(world, at, from, Segment::Untagged(untagged), &payload);
        }
        12 => {
            let from = source(at, input)?;
            let mut payload = Vec::new();
            for _ in 0..1 + input.below(4)? {
                frame(world, at, input, &mut payload)?;
            }
            payload.extend(input.some(4)?);
            forge_control(world, at, from, &payload);
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
            let space = if is_other { Space::Reliable } else { Space::Reads };
            let untagged = Untagged {
                operation: Operation::ReadRequest,
                is_reliable: is_other,
                group: 0,
                number: number(world, at, space, input)?,
                length: 32,
                place: 0,
            };
            forge(world, at, from, Segment::Untagged(untagged), &request.emit());
        }
        14 => {
            // Whatever it is, with a trailer that matches. Who knows nothing might guess right in it.
            let mut from = source(at, input)?;
            if world.kind == Kind::ReliableBlind {
                from = stranger(0);
            }
            let mut packet = input.some(120)?;
            let trailer = lacuna_wire::crc32c(&[&packet]);
            packet.extend(trailer);
            world.deliver(at, from, &packet);
        }
        _ => {
            let choice = input.byte()?;
            match choice % 8 {
                0 => world.revoke(at, input.below(8)? as usize),
                1 => world.register(at, input.byte()?),
                2 => world.forget(at),
                3 => world.hold(at),
                4 => world.reset(at),
                5 => world.name(at, choice >> 3),
                6 => world.say_sent(at, choice & 8 != 0),
                _ => begin(world, at, source(at, input)?, input.byte()?),
            }
        }
    }
    Some(())
}

/// A number of a message to an end, or near to it; far from all that are used if strangers know nothing.
fn number(world: &World, at: usize, space: Space, input: &mut Input<'_>) -> Option<u32> {
    let near = near(input)?;
    let known = world.number(at, space);
    Some(match world.kind == Kind::ReliableBlind && space == Space::Reliable {
        true => known.wrapping_add(FAR).wrapping_add(near % FAR),
        false => known.wrapping_add(near),
    })
}

/// A stranger says where its reliable messages begin, or those of the one under whose address it writes, and goes on
/// with the first of them.
fn begin(world: &mut World, at: usize, from: SocketAddr, choice: u8) {
    let number = world.number(at, Space::Reliable).wrapping_add(FAR);
    let about = About { space: Space::Reliable, number };
    let (_, _, token) = world.secrets(at);
    let token = if world.kind == Kind::ReliableBlind { 1 } else { token };
    let mut payload = Vec::new();
    emit_control(&ControlFrame::Begin { about, instance: choice.into(), token }, &mut payload);
    forge_control(world, at, from, &payload);
    for count in 0..u32::from(choice >> 5) {
        let untagged = Untagged {
            operation: Operation::Send,
            is_reliable: true,
            group: 0,
            number: number.wrapping_add(count * u32::from(choice & 7)),
            length: 100,
            place: if choice & 8 == 0 { 0 } else { 50 },
        };
        forge(world, at, from, Segment::Untagged(untagged), &[choice; 50]);
    }
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
    Some(if choice & 1 == 0 { address(other(at)) } else { stranger(choice >> 1 & 7) })
}

/// A frame of a stranger's.
fn frame(world: &World, at: usize, input: &mut Input<'_>, out: &mut Vec<u8>) -> Option<()> {
    const SPACES: [Space; 6] = [
        Space::Reliable,
        Space::Sends,
        Space::Reads,
        Space::Records,
        Space::GroupSends,
        Space::GroupRecords,
    ];
    let (kind, choice) = (input.byte()?, input.byte()?);
    let space = SPACES[usize::from(choice) % 6];
    let about = About { space, number: number(world, at, space, input)? };
    let reason = ControlReason::from_code(kind >> 5);
    let ((first, instance), record, token) = world.secrets(at);
    // What is acknowledged goes the other way.
    let ((out_first, out_instance), ..) = world.secrets(other(at));
    let is_blind = world.kind == Kind::ReliableBlind;
    let known = |known: u32| known ^ u32::from(is_blind || choice & 0x40 != 0);
    let token = if is_blind { u64::from(choice) } else { token };
    let rows;
    let frame = match kind % 10 {
        0 => ControlFrame::Report { about, bytes: u64::from(choice) << 8, waited_us: 5 },
        1 => ControlFrame::Error { about, reason },
        2 => ControlFrame::Cancel { about, reason, key: world.key(other(at), choice) },
        3 => ControlFrame::Sent { about, group: if choice & 0x80 != 0 { group() } else { 0 } },
        4 => ControlFrame::Missing { about, ranges: Rows::new(&[[0, 100], [50, 7]]) },
        5 => {
            let number = if is_blind { about.number } else { first };
            let about = About { number, ..about };
            ControlFrame::Begin { about, instance: known(instance), token }
        }
        6 => ControlFrame::Ask { about, instance: known(out_instance), token },
        7 | 8 => {
            let number = out_first.wrapping_add(u32::from(choice & 15));
            let [horizon, latest] = [near(input)?, near(input)?]
                .map(|ahead| Position { number: number.wrapping_add(ahead), place: ahead });
            rows = [[number, 0, number.wrapping_add(near(input)?), 9]; 2];
            ControlFrame::Acknowledge {
                about: About { number, ..about },
                instance: known(out_instance),
                record: record ^ u32::from(choice >> 7),
                horizon,
                latest,
                bytes: 7,
                waited_us: u32::from(choice),
                missing: Rows::new(&rows[..usize::from(choice >> 4 & 3) % 3]),
            }
        }
        _ => ControlFrame::Probe { about, bytes: 5, unused: 0 },
    };
    emit_control(&frame, out);
    Some(())
}

fn forge(world: &mut World, to: usize, from: SocketAddr, segment: Segment, payload: &[u8]) {
    let mut packet = vec![0; segment.packet_bytes(payload.len())];
    segment.emit_packet(payload, &mut packet);
    world.deliver(to, from, &packet);
}

fn forge_control(world: &mut World, to: usize, from: SocketAddr, frames: &[u8]) {
    let untagged = Untagged {
        operation: Operation::Control,
        is_reliable: false,
        group: 0,
        number: 0,
        length: frames.len() as u32,
        place: 0,
    };
    forge(world, to, from, Segment::Untagged(untagged), frames);
}
