//! The packets of a measurement, each the payload of a UDP datagram.
//!
//! ```text
//! 0      4         5      6       8     16      20
//! "LPRB" | version | kind | flags | key | trial | body … filler … | CRC32C
//! ```
//!
//! All numbers are big-endian, except for the trailer, which is that of the transport
//! ([`lacuna_wire::crc32c`]): a damaged packet does not count as arrived. The key is the client's nonce
//! until the server has given it a token.
//!
//! ```text
//! client                                  server
//!   Hello(nonce)                ->
//!                               <-        Challenge(cookie)
//!   Open(cookie)                ->                             address validated, session begins
//!                               <-        Accepted(token) or Refused
//!   Probe(trial 0) …            ->                             round trips, and how large a packet
//!                               <-        Echo …               may be
//!   Start(trial)                ->
//!                               <-        Started
//!   Probe … Probe               ->
//!                               <-        Echo, of some
//!   Fetch(trial, sent)          ->
//!                               <-        Report
//!   Close                       ->
//!                               <-        Closed
//! ```
//!
//! A client's requests are as long as the longest answer ([`CONTROL_BYTES`]), and a probe is not shorter
//! than its echo: so no answer is longer than its request.

use crate::client::Packet;
use crate::counted::Counted;

/// First bytes of every packet.
const MAGIC: [u8; 4] = *b"LPRB";
/// Version of the packets below; others are refused.
pub const VERSION: u8 = 1;
/// Length of the header.
pub const HEADER_BYTES: usize = 20;
/// Header of a probe: the header, the probe's number, and its sending time.
pub const PROBE_HEADER_BYTES: usize = HEADER_BYTES + 4 + 8;
/// Length of the trailer.
pub const TRAILER_BYTES: usize = lacuna_wire::Seal::Crc32c.bytes();
/// The answer to a probe: a probe header, and the probe's length.
pub const ECHO_BYTES: usize = PROBE_HEADER_BYTES + 4 + TRAILER_BYTES;
/// Length of all other packets of a client. They must pass any IPv4 path: every host must accept
/// datagrams of 576 bytes (RFC 1122, 3.3.2).
pub const CONTROL_BYTES: usize = 480;

const _: () = assert!(CONTROL_BYTES + 28 <= 576);
const _: () = assert!(HEADER_BYTES + Counted::BYTES + TRAILER_BYTES <= CONTROL_BYTES);

/// Flag of a probe that requests an echo.
const WANTS_ECHO: u16 = 1;

/// Why a server refuses a client or a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It has its most clients.
    Busy,
    /// The measurement would exceed the server's time limit.
    TooLong {
        /// The limit.
        limit_s: u32,
    },
    /// The trial's settings are impossible.
    Impossible,
}

/// The settings of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialPlan {
    /// UDP payload of each packet.
    pub payload_bytes: u32,
    /// Packet `i` belongs to flow `i % flows`.
    pub flows: u16,
    /// How long it is sent.
    pub duration_ns: u64,
}

/// A packet without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Client: I am here.
    Hello,
    /// Server: prove that you receive this.
    Challenge {
        /// To be returned.
        cookie: u64,
    },
    /// Client: I do; serve me.
    Open {
        /// From the challenge.
        cookie: u64,
        /// How long it is going to take at most.
        needed_s: u32,
    },
    /// Server: this is your key from now on.
    Accepted {
        /// The key.
        token: u64,
    },
    /// Server: no.
    Refused(Refusal),
    /// Client: a trial begins.
    Start {
        /// Its number, from 1.
        trial: u32,
        /// What it is.
        plan: TrialPlan,
    },
    /// Server: go.
    Started {
        /// The trial.
        trial: u32,
    },
    /// Client: a packet of a trial, or of none (0).
    Probe {
        /// The trial.
        trial: u32,
        /// Its number within the trial.
        index: u32,
        /// On the client's clock.
        sent_ns: u64,
        /// Whether it is to be answered.
        wants_echo: bool,
        /// Its length.
        bytes: u32,
    },
    /// Server: this probe is here.
    Echo {
        /// As in the probe.
        trial: u32,
        /// As in the probe.
        index: u32,
        /// As in the probe.
        sent_ns: u64,
        /// How long it was.
        bytes: u32,
    },
    /// Client: the trial is over; what came of it?
    Fetch {
        /// The trial.
        trial: u32,
        /// How many packets were sent.
        sent: u32,
    },
    /// Server: this.
    Report {
        /// The trial.
        trial: u32,
        /// What came.
        counted: Box<Counted>,
    },
    /// Client: done.
    Close,
    /// Server: goodbye.
    Closed,
}

/// Why bytes are not a packet of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Of another program.
    #[error("not a probe's packet")]
    Foreign,
    /// The other end is of another version.
    #[error("a packet of version {found}, this is version {VERSION}")]
    Version {
        /// Its version.
        found: u8,
    },
    /// Damaged or truncated.
    #[error("a damaged packet")]
    Damaged,
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Challenge { .. } => 2,
            Self::Open { .. } => 3,
            Self::Accepted { .. } => 4,
            Self::Refused(_) => 5,
            Self::Start { .. } => 6,
            Self::Started { .. } => 7,
            Self::Probe { .. } => 8,
            Self::Echo { .. } => 9,
            Self::Fetch { .. } => 10,
            Self::Report { .. } => 11,
            Self::Close => 12,
            Self::Closed => 13,
        }
    }

    /// Header and body.
    fn head(&self, key: u64) -> Vec<u8> {
        let (trial, flags) = match self {
            Self::Probe { trial, wants_echo: true, .. } => (*trial, WANTS_ECHO),
            Self::Start { trial, .. }
            | Self::Started { trial }
            | Self::Probe { trial, .. }
            | Self::Echo { trial, .. }
            | Self::Fetch { trial, .. }
            | Self::Report { trial, .. } => (*trial, 0),
            _ => (0, 0),
        };
        let mut out = Vec::with_capacity(PROBE_HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.kind()]);
        out.extend_from_slice(&flags.to_be_bytes());
        out.extend_from_slice(&key.to_be_bytes());
        out.extend_from_slice(&trial.to_be_bytes());
        match self {
            Self::Hello | Self::Started { .. } | Self::Close | Self::Closed => {}
            Self::Challenge { cookie } => out.extend_from_slice(&cookie.to_be_bytes()),
            Self::Open { cookie, needed_s } => {
                out.extend_from_slice(&cookie.to_be_bytes());
                out.extend_from_slice(&needed_s.to_be_bytes());
            }
            Self::Accepted { token } => out.extend_from_slice(&token.to_be_bytes()),
            Self::Refused(refusal) => {
                let (reason, limit_s) = match refusal {
                    Refusal::Busy => (1, 0),
                    Refusal::TooLong { limit_s } => (2, *limit_s),
                    Refusal::Impossible => (3, 0),
                };
                out.push(reason);
                out.extend_from_slice(&limit_s.to_be_bytes());
            }
            Self::Start { plan, .. } => {
                out.extend_from_slice(&plan.payload_bytes.to_be_bytes());
                out.extend_from_slice(&plan.flows.to_be_bytes());
                out.extend_from_slice(&plan.duration_ns.to_be_bytes());
            }
            Self::Probe { index, sent_ns, .. } => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(&sent_ns.to_be_bytes());
            }
            Self::Echo { index, sent_ns, bytes, .. } => {
                out.extend_from_slice(&index.to_be_bytes());
                out.extend_from_slice(&sent_ns.to_be_bytes());
                out.extend_from_slice(&bytes.to_be_bytes());
            }
            Self::Fetch { sent, .. } => out.extend_from_slice(&sent.to_be_bytes()),
            Self::Report { counted, .. } => counted.write(&mut out),
        }
        out
    }

    /// A client's packet in parts, for a burst; the caller adds the filler.
    #[must_use]
    pub fn packet(&self, key: u64, lane: usize, filler: &[u8]) -> Packet {
        let head = self.head(key);
        let bytes = match self {
            Self::Probe { bytes, .. } => *bytes as usize,
            _ => CONTROL_BYTES,
        };
        let filler_bytes = bytes.saturating_sub(head.len() + TRAILER_BYTES).min(filler.len());
        let trailer = lacuna_wire::crc32c(&[&head, &filler[..filler_bytes]]);
        Packet { lane, head, filler_bytes, trailer }
    }

    /// A server's packet, without filler.
    #[must_use]
    pub fn answer(&self, key: u64) -> Vec<u8> {
        let mut out = self.head(key);
        let trailer = lacuna_wire::crc32c(&[&out]);
        out.extend_from_slice(&trailer);
        out
    }

    /// Parses a packet into key and message.
    ///
    /// # Errors
    ///
    /// [`WireError`] when it is not a packet of a measurement.
    pub fn parse(packet: &[u8]) -> Result<(u64, Self), WireError> {
        let (content, _) = packet.split_last_chunk::<TRAILER_BYTES>().ok_or(WireError::Foreign)?;
        let mut rest = content.strip_prefix(&MAGIC).ok_or(WireError::Foreign)?;
        let [version, kind] = take(&mut rest)?;
        if version != VERSION {
            return Err(WireError::Version { found: version });
        }
        lacuna_wire::check_crc32c(packet).map_err(|_| WireError::Damaged)?;
        let flags = u16::from_be_bytes(take(&mut rest)?);
        let key = u64::from_be_bytes(take(&mut rest)?);
        let trial = u32::from_be_bytes(take(&mut rest)?);
        let bytes = u32::try_from(packet.len()).map_err(|_| WireError::Foreign)?;
        let rest = &mut rest;
        let message = match kind {
            1 => Self::Hello,
            2 => Self::Challenge { cookie: u64::from_be_bytes(take(rest)?) },
            3 => Self::Open {
                cookie: u64::from_be_bytes(take(rest)?),
                needed_s: u32::from_be_bytes(take(rest)?),
            },
            4 => Self::Accepted { token: u64::from_be_bytes(take(rest)?) },
            5 => {
                let [reason] = take(rest)?;
                let limit_s = u32::from_be_bytes(take(rest)?);
                Self::Refused(match reason {
                    1 => Refusal::Busy,
                    2 => Refusal::TooLong { limit_s },
                    _ => Refusal::Impossible,
                })
            }
            6 => {
                let plan = TrialPlan {
                    payload_bytes: u32::from_be_bytes(take(rest)?),
                    flows: u16::from_be_bytes(take(rest)?),
                    duration_ns: u64::from_be_bytes(take(rest)?),
                };
                Self::Start { trial, plan }
            }
            7 => Self::Started { trial },
            // Shorter than its echo: not from our client.
            8 if packet.len() < ECHO_BYTES => return Err(WireError::Damaged),
            8 => Self::Probe {
                trial,
                index: u32::from_be_bytes(take(rest)?),
                sent_ns: u64::from_be_bytes(take(rest)?),
                wants_echo: flags & WANTS_ECHO != 0,
                bytes,
            },
            9 => Self::Echo {
                trial,
                index: u32::from_be_bytes(take(rest)?),
                sent_ns: u64::from_be_bytes(take(rest)?),
                bytes: u32::from_be_bytes(take(rest)?),
            },
            10 => Self::Fetch { trial, sent: u32::from_be_bytes(take(rest)?) },
            11 => {
                let counted = Counted::read(rest).ok_or(WireError::Damaged)?;
                Self::Report { trial, counted: Box::new(counted) }
            }
            12 => Self::Close,
            13 => Self::Closed,
            _ => return Err(WireError::Foreign),
        };
        Ok((key, message))
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], WireError> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(WireError::Damaged)?;
    *bytes = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted::BINS;
    use crate::host::HostDrops;

    fn messages() -> Vec<Message> {
        let plan = TrialPlan { payload_bytes: 1024, flows: 16, duration_ns: 15_000_000_000 };
        let counted = Counted {
            received: 1,
            duplicates: 2,
            bursts: 3,
            flow_bursts: 4,
            reordered: 5,
            extent_sum: 6,
            extent_max: 7,
            late_ns_max: 8,
            jitter_ns: 9,
            span_ns: 10,
            bin_ns: 11,
            bins: std::array::from_fn(|i| i as u32),
            drops: HostDrops { socket: 12, kernel: 13, card: u64::MAX },
        };
        vec![
            Message::Hello,
            Message::Challenge { cookie: 3 },
            Message::Open { cookie: u64::MAX, needed_s: 77 },
            Message::Accepted { token: 5 },
            Message::Refused(Refusal::Busy),
            Message::Refused(Refusal::TooLong { limit_s: 3600 }),
            Message::Refused(Refusal::Impossible),
            Message::Start { trial: 9, plan },
            Message::Started { trial: 9 },
            Message::Echo { trial: 1, index: 2, sent_ns: 3, bytes: 4 },
            Message::Fetch { trial: 2, sent: u32::MAX },
            Message::Report { trial: 3, counted: Box::new(counted) },
            Message::Close,
            Message::Closed,
        ]
    }

    fn probe(bytes: u32) -> Message {
        Message::Probe { trial: 1, index: 2, sent_ns: 3, wants_echo: true, bytes }
    }

    #[test]
    fn what_was_written_is_read_back() {
        for message in messages() {
            assert_eq!(Message::parse(&message.answer(42)), Ok((42, message)));
        }
        let filler = vec![0xa5; 9000];
        for bytes in [ECHO_BYTES as u32, 1024, 8192] {
            let packet = probe(bytes).packet(7, 1, &filler).bytes(&filler);
            assert_eq!(packet.len(), bytes as usize);
            assert_eq!(Message::parse(&packet), Ok((7, probe(bytes))));
        }
    }

    #[test]
    fn every_question_is_as_long_as_the_longest_answer() {
        let filler = vec![0; 9000];
        for message in messages() {
            assert_eq!(message.packet(1, 0, &filler).bytes(&filler).len(), CONTROL_BYTES);
            assert!(message.answer(1).len() <= CONTROL_BYTES, "{message:?}");
        }
        let echo = Message::Echo { trial: 1, index: 2, sent_ns: 3, bytes: 4 };
        assert_eq!(echo.answer(1).len(), ECHO_BYTES);
        assert_eq!(BINS * 4 + 14 * 8, Counted::BYTES);
    }

    #[test]
    fn a_trailer_is_no_part_of_a_body_and_no_probe_shorter_than_its_echo() {
        let cut_short = |message: &Message, bytes: usize| {
            let mut packet = message.head(7)[..bytes].to_vec();
            packet.extend_from_slice(&lacuna_wire::crc32c(&[&packet]));
            Message::parse(&packet)
        };
        for message in messages() {
            let whole = message.head(7).len();
            assert!(cut_short(&message, whole).is_ok(), "{message:?}");
            for bytes in whole.saturating_sub(TRAILER_BYTES)..whole {
                assert!(cut_short(&message, bytes).is_err(), "{message:?}, {bytes} bytes");
            }
        }
        assert!(cut_short(&probe(0), PROBE_HEADER_BYTES).is_err());
    }

    #[test]
    fn damage_anywhere_is_noticed() {
        let filler = vec![0xa5; 100];
        let packet = probe(64).packet(7, 1, &filler).bytes(&filler);
        for at in 0..packet.len() {
            let mut damaged = packet.clone();
            damaged[at] ^= 0x10;
            assert!(Message::parse(&damaged).is_err(), "byte {at}");
        }
        for len in 0..packet.len() {
            assert!(Message::parse(&packet[..len]).is_err(), "{len} bytes");
        }
        let mut other = packet.clone();
        other[4] = 9;
        assert_eq!(Message::parse(&other), Err(WireError::Version { found: 9 }));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(
            kind in 0u8..16,
            body in proptest::collection::vec(proptest::num::u8::ANY, 0..600),
        ) {
            let mut packet = [&MAGIC[..], &[VERSION, kind], &body].concat();
            let trailer = lacuna_wire::crc32c(&[&packet]);
            packet.extend_from_slice(&trailer);
            if let Ok((key, message)) = Message::parse(&packet) {
                let again = Message::parse(&message.answer(key));
                match message {
                    Message::Probe { .. } => {}
                    message => proptest::prop_assert_eq!(again, Ok((key, message))),
                }
            }
            let _ = Message::parse(&body);
        }
    }
}
