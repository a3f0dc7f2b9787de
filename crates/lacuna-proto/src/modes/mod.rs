//! Reliability modes: how lost packets are repaired.
//!
//! Every mode is a folder of the same shape: `send.rs` and `recv.rs` hold the state machines of one
//! message, with the same methods in every mode. Their inputs are the time, acknowledgements, and the
//! path's loss detection for each run of packets (passed, expired). Their outputs are runs to send
//! and the time of the next call. They know neither sockets nor sequence numbers.
//!
//! Adding a mode takes:
//!
//! 1. its folder, with the methods of [`SendMachine`] and [`RecvMachine`];
//! 2. a variant of [`Mode`], and an arm in each of that enum's methods;
//! 3. a variant of the two machine enums and of the macro `each!`, unless it runs another mode's
//!    machines, as `auto` does;
//! 4. an entry of [`TABLE`].
//!
//! Nothing outside of this folder matches on a mode, with two exceptions. `auto` decides by the
//! state of the path, which no machine knows: `qp/send/parity.rs` asks its chooser and gives the
//! answer to [`SendMachine::deferred`]. And `handshake/wishes.rs`, which makes the geometry of a
//! connection, sizes chunks for `auto`.

mod acked;
pub mod auto;
pub mod bounded;
pub mod ec;
pub mod raw;
pub mod sr;

use lacuna_code::{Code, CodeError};
use lacuna_place::parity::Layout;
use lacuna_place::receive::Receive;
use lacuna_wire::Ack;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A mode with its parameters, as both ends agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No repair: the application reads the bitmap and decides.
    Raw,
    /// Selective repeat, SDR-RDMA 4.1.1.
    SelectiveRepeat(sr::Config),
    /// Erasure coding with selective repeat behind it, SDR-RDMA 4.1.2.
    Erasure(ec::Config),
    /// Selective repeat, with parity for the end of each message: as much as the path needs.
    Auto,
    /// No repair; receives end in time with what is there. OptiNIC 3.1, Celeris III.
    Bounded(bounded::Config),
}

/// All modes: name, summary, value.
pub const TABLE: &[ModeEntry] = &[
    ModeEntry {
        name: "auto",
        summary: "selective repeat, and for a message's end the parity that the path calls for",
        mode: Mode::Auto,
    },
    ModeEntry { name: "raw", summary: "no repair; the receiver polls the bitmap", mode: Mode::Raw },
    ModeEntry {
        name: "sr",
        summary: "selective repeat; a gap is repaired one round trip after it shows",
        mode: Mode::SelectiveRepeat(sr::Config { nack: true }),
    },
    ModeEntry {
        name: "sr:rto",
        summary: "selective repeat; a chunk is sent again when its timeout expires",
        mode: Mode::SelectiveRepeat(sr::Config { nack: false }),
    },
    ModeEntry {
        name: "ec",
        summary: "erasure code ec:mds:32:8; parity repairs a loss where it lands",
        mode: Mode::EC,
    },
    ModeEntry {
        name: "bounded",
        summary: "no repair; a receive ends in time with what is there",
        mode: Mode::BOUNDED,
    },
];

/// An entry of [`TABLE`].
#[derive(Debug, Clone, Copy)]
pub struct ModeEntry {
    /// Name on the command line.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The mode.
    pub mode: Mode,
}

impl Mode {
    /// Selective repeat with one-RTT repair.
    pub const SR: Self = Self::SelectiveRepeat(sr::Config { nack: true });

    /// Erasure coding with the code of the paper's evaluation.
    pub const EC: Self = Self::Erasure(ec::Config { code: Code::MDS_32_8 });

    /// No repair, with the usual window.
    pub const BOUNDED: Self =
        Self::Bounded(bounded::Config { window: bounded::WINDOW, code: None });

    /// The code whose parity messages carry, if any.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Erasure(config) => Some(config.code),
            Self::Auto => Some(auto::CODE),
            Self::Bounded(config) => config.code,
            Self::Raw | Self::SelectiveRepeat(_) => None,
        }
    }

    /// Sending machine of one message.
    pub fn sender(&self, shape: MessageShape) -> SendMachine {
        match self {
            Self::Raw | Self::Bounded(bounded::Config { code: None, .. }) => {
                SendMachine::Raw(raw::Sender::new(shape))
            }
            Self::Bounded(_) => SendMachine::Bounded(Box::new(bounded::Sender::new(shape))),
            Self::SelectiveRepeat(config) => {
                SendMachine::SelectiveRepeat(sr::Sender::new(*config, shape))
            }
            Self::Erasure(config) => {
                SendMachine::Erasure(Box::new(ec::Sender::new(*config, shape)))
            }
            Self::Auto => {
                let config = ec::Config { code: auto::CODE };
                SendMachine::Erasure(Box::new(ec::Sender::deferred(config, shape)))
            }
        }
    }

    /// The receiving machine of one message.
    pub fn receiver(&self) -> RecvMachine {
        match self {
            Self::Raw | Self::Bounded(_) => RecvMachine::Raw(raw::Receiver),
            Self::SelectiveRepeat(_) => RecvMachine::SelectiveRepeat(sr::Receiver::default()),
            Self::Erasure(_) | Self::Auto => RecvMachine::Erasure(ec::Receiver::default()),
        }
    }

    /// The chooser of a message's parity, in the mode where that is not fixed.
    pub(crate) fn chooser(&self, policy: auto::Policy) -> Option<auto::Chooser> {
        (*self == Self::Auto).then(|| auto::Chooser::new(policy))
    }

    /// Whether the sender keeps a message until the peer has all of it.
    pub fn is_reliable(&self) -> bool {
        !matches!(self, Self::Raw | Self::Bounded(_))
    }

    /// What the receiver hears of messages that end in time, in the mode where they do.
    pub(crate) fn watch(&self, channels: u8) -> Option<bounded::Watch> {
        match self {
            Self::Bounded(config) => Some(bounded::Watch::new(config.window, channels)),
            Self::Raw | Self::SelectiveRepeat(_) | Self::Erasure(_) | Self::Auto => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Erasure(ec::Config { code }) => return write!(f, "ec:{code}"),
            Self::Bounded(bounded::Config { window, code }) => {
                f.write_str("bounded")?;
                if *window != bounded::WINDOW {
                    write!(f, ":{window}")?;
                }
                return code.map_or(Ok(()), |code| write!(f, "+ec:{code}"));
            }
            Self::Raw | Self::SelectiveRepeat(_) | Self::Auto => {}
        }
        let entry = TABLE.iter().find(|entry| entry.mode == *self);
        f.write_str(entry.map_or("?", |entry| entry.name))
    }
}

/// A text is not the name of a mode. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// The name is not in [`TABLE`].
    #[error("unknown mode \"{name}\": one of {}, ec:CODE:K:M, bounded:WINDOW", TABLE.iter().map(|e| e.name).collect::<Vec<_>>().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The parameters are not those of an erasure code.
    #[error("mode \"{name}\": {source}")]
    Code {
        /// What was asked for.
        name: String,
        /// Why.
        source: CodeError,
    },
    /// The window of a bounded mode is no number, or out of range.
    #[error(
        "mode \"{name}\": the window is a number of receives from 1 to {}, as in bounded:8",
        bounded::WINDOW_MAX
    )]
    Window {
        /// What was asked for.
        name: String,
    },
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(name: &str) -> Result<Self, ModeError> {
        let code_of = |code: &str| {
            code.parse().map_err(|source| ModeError::Code { name: name.to_owned(), source })
        };
        if let Some(code) = name.strip_prefix("ec:") {
            return Ok(Self::Erasure(ec::Config { code: code_of(code)? }));
        }
        let (bounds, code) = match name.split_once("+ec:") {
            Some((bounds, code)) => (bounds, Some(code)),
            None => (name, None),
        };
        let (kind, window) = match bounds.split_once(':') {
            Some((kind, window)) => (kind, Some(window)),
            None => (bounds, None),
        };
        if kind == "bounded" || kind == "best-effort" {
            let window = window.map_or(Some(bounded::WINDOW), |window| window.parse().ok());
            let window = window.filter(|window| (1..=bounded::WINDOW_MAX).contains(window));
            let window = window.ok_or_else(|| ModeError::Window { name: name.to_owned() })?;
            let code = code.map(code_of).transpose()?;
            return Ok(Self::Bounded(bounded::Config { window, code }));
        }
        let name = if name == "sr:nack" { "sr" } else { name };
        TABLE
            .iter()
            .find(|entry| entry.name == name)
            .map(|entry| entry.mode)
            .ok_or_else(|| ModeError::Unknown { name: name.to_owned() })
    }
}

/// Packets and chunks of a message, as its mode sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageShape {
    /// Packets per chunk.
    pub chunk_packets: u32,
    /// Packets that carry data (one for an empty message).
    pub data_packets: u32,
    /// All packets. A message with fewer packets than its immediate has fragments is followed by
    /// empty ones.
    pub total_packets: u32,
    /// Fragments of the immediate that the peer must have; 0 without one.
    pub fragments: u32,
    /// Numbering of parity packets, if the message may carry parity.
    pub layout: Option<Layout>,
}

impl MessageShape {
    /// Chunks of data.
    pub fn chunks(&self) -> u32 {
        self.data_packets.div_ceil(self.chunk_packets)
    }

    /// Packets of a chunk.
    pub fn packets_of(&self, chunk: u32) -> Range<u32> {
        let first = chunk * self.chunk_packets;
        first..(first + self.chunk_packets).min(self.data_packets)
    }

    /// Chunks that are judged with this run: those whose last packet is in it.
    pub fn judged_chunks(&self, packets: &Range<u32>) -> Range<u32> {
        let data = packets.start.min(self.data_packets)..packets.end;
        let end = if data.end >= self.data_packets {
            self.chunks()
        } else {
            data.end / self.chunk_packets
        };
        let start = data.start / self.chunk_packets;
        let start = if data.start >= self.data_packets { end } else { start };
        start.min(end)..end
    }

    /// Empty packets of a run that carry only a fragment of the immediate.
    pub fn immediate_packets(&self, packets: &Range<u32>) -> Range<u32> {
        packets.start.max(self.data_packets)..packets.end
    }
}

/// A run of packets that was sent, as the path reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRun {
    /// Packets of the message.
    pub packets: Range<u32>,
    /// When it was sent.
    pub sent_ns: u64,
}

/// Counters of a sending machine. A mode sets those that it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Chunks put on the wire again.
    pub retransmitted_chunks: u64,
    /// Submessages whose parity did not suffice.
    pub fallbacks: u64,
}

/// Sending machines. They are stored inline in their messages, which lie in one array, except for
/// the large one.
#[derive(Debug)]
pub enum SendMachine {
    /// See [`raw::Sender`].
    Raw(raw::Sender),
    /// See [`sr::Sender`].
    SelectiveRepeat(sr::Sender),
    /// See [`ec::Sender`].
    Erasure(Box<ec::Sender>),
    /// See [`bounded::Sender`].
    Bounded(Box<bounded::Sender>),
}

/// Calls a method on the sending machine of any mode.
macro_rules! each {
    ($self:expr, $machine:ident => $call:expr) => {
        match $self {
            Self::Raw($machine) => $call,
            Self::SelectiveRepeat($machine) => $call,
            Self::Erasure($machine) => $call,
            Self::Bounded($machine) => $call,
        }
    };
}

impl SendMachine {
    /// The next run of packets to put on the wire.
    pub fn poll_transmit(&mut self) -> Option<Range<u32>> {
        each!(self, machine => machine.poll_transmit())
    }

    /// Takes in an acknowledgement that came with control packet `sequence`.
    pub fn on_ack(&mut self, sequence: u64, ack: &Ack<'_>) {
        each!(self, machine => machine.on_ack(sequence, ack));
    }

    /// Control packet `sequence` reports packets sent after this run, so what the peer lacks of the
    /// run is lost. `rto_ns` is the current retransmission timeout.
    pub fn on_passed(&mut self, sequence: u64, run: SentRun, rto_ns: u64) {
        each!(self, machine => machine.on_passed(sequence, run, rto_ns));
    }

    /// The retransmission timeout of this run has expired without a report of it.
    pub fn on_expired(&mut self, run: SentRun) {
        each!(self, machine => machine.on_expired(run));
    }

    /// The first run among these packets, which wait to be sent again, that the peer is not known to
    /// have; empty if it has all. Packets that no acknowledgement covers count as missing.
    pub fn missing(&self, packets: Range<u32>) -> Range<u32> {
        each!(self, machine => machine.missing(packets))
    }

    /// When [`SendMachine::on_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<u64> {
        each!(self, machine => machine.poll_timeout())
    }

    /// Handles expired timeouts. Returns how many runs are sent again because of them.
    pub fn on_timeout(&mut self, now_ns: u64) -> u64 {
        each!(self, machine => machine.on_timeout(now_ns))
    }

    /// Counters of what was done beyond sending each packet once.
    pub fn counts(&self) -> Counts {
        each!(self, machine => machine.counts())
    }

    /// The machine whose parity [`Mode::Auto`] chooses once all data were sent.
    pub fn deferred(&mut self) -> Option<&mut ec::Sender> {
        match self {
            Self::Erasure(machine) => Some(machine),
            Self::Raw(_) | Self::SelectiveRepeat(_) | Self::Bounded(_) => None,
        }
    }

    /// Whether the message ends only when the peer says that it has everything.
    pub fn awaits_peer(&self) -> bool {
        each!(self, machine => machine.awaits_peer())
    }

    /// Chunks that the peer is known to have.
    pub fn acked_chunks(&self) -> u32 {
        each!(self, machine => machine.acked_chunks())
    }
}

/// Receiving machines.
#[derive(Debug)]
pub enum RecvMachine {
    /// See [`raw::Receiver`].
    Raw(raw::Receiver),
    /// See [`sr::Receiver`].
    SelectiveRepeat(sr::Receiver),
    /// See [`ec::Receiver`].
    Erasure(ec::Receiver),
}

impl RecvMachine {
    /// The acknowledgement that the sender needs now; its bitmap is written to `scratch`.
    pub fn poll_ack<'s>(&mut self, receive: &Receive, scratch: &'s mut [u8]) -> Option<Ack<'s>> {
        match self {
            Self::Raw(machine) => machine.poll_ack(receive, scratch),
            Self::SelectiveRepeat(machine) => machine.poll_ack(receive, scratch),
            Self::Erasure(machine) => machine.poll_ack(receive, scratch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_parsed_as_it_is_written() {
        for entry in TABLE {
            assert_eq!(entry.name.parse(), Ok(entry.mode));
            assert_eq!(entry.mode.to_string().parse(), Ok(entry.mode));
        }
        for name in [
            "auto",
            "raw",
            "sr",
            "sr:rto",
            "ec:mds:32:8",
            "ec:xor:32:8",
            "ec:mds:1:254",
            "bounded",
            "bounded:1",
            "bounded:1024",
            "bounded+ec:mds:32:2",
            "bounded:4+ec:xor:32:8",
        ] {
            assert_eq!(name.parse::<Mode>().map(|mode| mode.to_string()), Ok(name.to_owned()));
        }
        assert_eq!("ec".parse::<Mode>(), "ec:mds:32:8".parse());
        assert_eq!("best-effort:8".parse::<Mode>(), "bounded".parse());
    }

    #[test]
    fn what_is_no_mode_is_refused_with_its_numbers() {
        for (name, text) in [
            ("ec:mds:0:8", "k = 0"),
            ("ec:mds:200:56", "200 + 56"),
            ("ec:xor:4:8", "m = 8 is more than k = 4"),
            ("ec:mds:32", "KIND:K:M"),
            ("ec:", "KIND:K:M"),
            ("ecc", "one of auto, raw, sr, sr:rto, ec, bounded, ec:CODE:K:M, bounded:WINDOW"),
            ("bounded:0", "a number of receives from 1 to 1024"),
            ("bounded:x", "a number of receives from 1 to 1024"),
            ("bounded+ec:mds:32", "KIND:K:M"),
            ("sr+ec:mds:32:2", "unknown mode"),
        ] {
            let error = name.parse::<Mode>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
