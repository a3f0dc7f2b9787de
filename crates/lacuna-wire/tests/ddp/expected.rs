//! What a line of the fixtures says, as the values that the crate should read from its packet.

use crate::fixtures::{self, Fixture};
use lacuna_wire::ddp::{
    About, ControlFrame, ControlReason, MissingRanges, Operation, ReadRequest, RecordFlags,
    Segment, Space, Tagged, Untagged,
};

pub(crate) const REFUSED: &str = "refused";
const SPACES: [Space; 3] = [Space::Sends, Space::Reads, Space::Records];

/// All packets, good and bad.
pub(crate) fn all() -> impl Iterator<Item = Fixture> {
    fixtures::read(include_str!("../fixtures/ddp.txt"))
}

/// Those that are to be taken.
pub(crate) fn good() -> impl Iterator<Item = Fixture> {
    all().filter(|fixture| fixture.kind != REFUSED)
}

/// A frame without its ranges, which it borrows.
pub(crate) struct Expected {
    kind: u32,
    about: About,
    fields: [u64; 4],
    pub(crate) ranges: Vec<(u32, u32)>,
}

impl Expected {
    pub(crate) fn frame(&self) -> ControlFrame<'_> {
        let Self { about, fields: [end, bytes, waited, reason], .. } = *self;
        let small = |value: u64| u32::try_from(value).unwrap();
        let reason = ControlReason::from_code(reason as u8);
        match self.kind {
            1 => ControlFrame::Report { about, end: small(end), bytes, waited_us: small(waited) },
            2 => ControlFrame::Error { about, reason },
            3 => ControlFrame::Cancel { about, reason },
            4 => ControlFrame::Sent { about },
            5 => ControlFrame::Missing { about, ranges: MissingRanges::new(&self.ranges) },
            6 => ControlFrame::Done { about },
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

    pub(crate) fn segment(&self) -> Segment {
        let operation = self.operation();
        let [number, length, place] = ["number", "message", "place"].map(|name| self.field(name));
        if operation != Operation::WriteRecord {
            return Segment::Untagged(Untagged { operation, number, length, place });
        }
        let flags = self.field("flags");
        let flags = RecordFlags {
            is_solicited: flags & 0x01 != 0,
            is_answer: flags & 0x02 != 0,
            is_named: flags & 0x04 != 0,
        };
        let (stag, offset) = (self.field("stag"), self.fields["offset"]);
        Segment::Tagged(Tagged { stag, offset, number, length, place, flags })
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
        let value = |name: String| self.fields.get(&*name).copied();
        let frame = |at: u64| {
            let field = |name: &str| value(format!("f{at}.{name}"));
            let range = |range: u64| {
                let edge = |name: &str| field(&format!("{range}.{name}")).unwrap() as u32;
                (edge("begin"), edge("end"))
            };
            let space = SPACES[field("space").unwrap() as usize];
            Expected {
                kind: field("kind").unwrap() as u32,
                about: About { space, number: field("number").unwrap() as u32 },
                fields: ["end", "total", "waited", "reason"].map(|name| field(name).unwrap_or(0)),
                ranges: (0..field("ranges").unwrap_or(0)).map(range).collect(),
            }
        };
        Some((0..count).map(frame).collect())
    }
}
