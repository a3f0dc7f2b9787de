//! What a line of the fixtures says, as the values that the crate should read from its packet.

use crate::fixtures::{self, Fixture};
use lacuna_wire::ddp::{
    About, ControlFrame, ControlReason, Operation, Position, ReadRequest, RecordFlags, Rows,
    Segment, Space, Tagged, Untagged,
};
use std::collections::BTreeMap;

pub(crate) const REFUSED: &str = "refused";
const GROUP_NUMBER: &str = "group_number";
pub(crate) const SPACES: [Space; 6] = [
    Space::Sends,
    Space::Reads,
    Space::Records,
    Space::Reliable,
    Space::GroupSends,
    Space::GroupRecords,
];

fn lines() -> impl Iterator<Item = Fixture> {
    fixtures::read(include_str!("../fixtures/ddp.txt"))
}

/// All packets, good and bad.
pub(crate) fn all() -> impl Iterator<Item = Fixture> {
    lines().filter(|fixture| fixture.kind != GROUP_NUMBER)
}

/// What the numbers of groups are made of.
pub(crate) fn group_numbers() -> impl Iterator<Item = Fixture> {
    lines().filter(|fixture| fixture.kind == GROUP_NUMBER)
}

/// Those that are to be taken.
pub(crate) fn good() -> impl Iterator<Item = Fixture> {
    all().filter(|fixture| fixture.kind != REFUSED)
}

/// A frame without its rows, which it borrows.
pub(crate) struct Expected {
    pub(crate) kind: u64,
    about: About,
    fields: BTreeMap<&'static str, u64>,
    pub(crate) ranges: Vec<[u32; 2]>,
    pub(crate) stretches: Vec<[u32; 4]>,
}

impl Expected {
    fn small(&self, name: &str) -> u32 {
        u32::try_from(self.fields[name]).unwrap()
    }

    pub(crate) fn frame(&self) -> ControlFrame<'_> {
        let (about, field) = (self.about, |name: &str| self.small(name));
        let reason = || ControlReason::from_code(field("reason") as u8);
        let position = |of: &str| Position {
            number: field(&format!("{of}_number")),
            place: field(&format!("{of}_place")),
        };
        match self.kind {
            1 => ControlFrame::Report {
                about,
                bytes: self.fields["total"],
                waited_us: field("waited"),
            },
            2 => ControlFrame::Error { about, reason: reason() },
            3 => ControlFrame::Cancel { about, reason: reason(), key: field("key") },
            4 => ControlFrame::Sent { about, group: field("group") },
            5 => ControlFrame::Missing { about, ranges: Rows::new(&self.ranges) },
            6 | 7 => {
                let (instance, token) = (field("instance"), self.fields["token"]);
                match self.kind {
                    6 => ControlFrame::Begin { about, instance, token },
                    _ => ControlFrame::Ask { about, instance, token },
                }
            }
            8 => ControlFrame::Acknowledge {
                about,
                instance: field("instance"),
                record: field("record"),
                horizon: position("horizon"),
                latest: position("latest"),
                bytes: self.fields["total"],
                waited_us: field("waited"),
                missing: Rows::new(&self.stretches),
            },
            9 => {
                ControlFrame::Probe { about, bytes: self.fields["total"], unused: field("unused") }
            }
            other => panic!("no frame of kind {other}"),
        }
    }
}

impl Fixture {
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }

    pub(crate) fn is(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|value| *value == 1)
    }

    pub(crate) fn operation(&self) -> Operation {
        match self.kind {
            "read_request" => Operation::ReadRequest,
            "send" => Operation::Send,
            "send_solicited" => Operation::SendSolicited,
            "write_record" => Operation::WriteRecord,
            "control" => Operation::Control,
            other => panic!("no operation {other}"),
        }
    }

    /// The group that it is for; 0 if there is none.
    fn group(&self) -> u32 {
        self.fields.get("group").map_or(0, |group| u32::try_from(*group).unwrap())
    }

    pub(crate) fn segment(&self) -> Segment {
        let (operation, group) = (self.operation(), self.group());
        let [number, length, place] = ["number", "message", "place"].map(|name| self.field(name));
        if operation != Operation::WriteRecord {
            let is_reliable = self.is("reliable");
            let untagged = Untagged { operation, is_reliable, group, number, length, place };
            return Segment::Untagged(untagged);
        }
        let flags = self.field("flags");
        let flags = RecordFlags {
            is_solicited: flags & 0x01 != 0,
            is_answer: flags & 0x02 != 0,
            is_named: flags & 0x04 != 0,
            is_reliable: flags & 0x08 != 0,
        };
        let (stag, offset) = (self.field("stag"), self.fields["offset"]);
        Segment::Tagged(Tagged { stag, offset, number, length, place, flags, group })
    }

    /// The queue of an untagged one.
    pub(crate) fn queue(&self) -> Option<u64> {
        let queue = self.operation().queue(self.is("reliable"))?.number();
        Some(match self.group() {
            0 => queue.into(),
            group => 1 << 31 | u64::from(group),
        })
    }

    /// What the packet asks for, if it is a whole request.
    pub(crate) fn request(&self) -> Option<ReadRequest> {
        self.fields.contains_key("sink_stag").then(|| ReadRequest {
            sink_stag: self.field("sink_stag"),
            sink_offset: self.fields["sink_offset"],
            length: self.field("asked"),
            source_stag: self.field("source_stag"),
            source_offset: self.fields["source_offset"],
            time_left_us: self.field("time_left"),
        })
    }

    /// The frames of the packet, if it has any.
    pub(crate) fn frames(&self) -> Option<Vec<Expected>> {
        let count = *self.fields.get("frames")?;
        let frame = |at: u64| {
            let prefix = format!("f{at}.");
            let of_frame =
                |(name, value): (&&'static str, &u64)| Some((name.strip_prefix(&*prefix)?, *value));
            let fields: BTreeMap<_, _> = self.fields.iter().filter_map(of_frame).collect();
            let rows = |count: &str| 0..fields.get(count).copied().unwrap_or(0);
            let row = |at: u64, name: &str| fields[&*format!("{at}.{name}")] as u32;
            let stretch = ["from_number", "from_place", "to_number", "to_place"];
            Expected {
                kind: fields["kind"],
                about: About {
                    space: SPACES[fields["space"] as usize],
                    number: fields["number"] as u32,
                },
                ranges: rows("ranges").map(|at| ["begin", "end"].map(|e| row(at, e))).collect(),
                stretches: rows("stretches").map(|at| stretch.map(|e| row(at, e))).collect(),
                fields,
            }
        };
        Some((0..count).map(frame).collect())
    }
}
