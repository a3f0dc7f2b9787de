//! Parameters of a queue pair or a connection, and what the two ends agreed on.

use crate::context::Context;
use crate::error::QueuePairError;
use lacuna_datapath::{Capabilities, TrailerOffload};
use lacuna_path::RtoConfig;
use lacuna_path::controller::{ControllerConfig, Kind as ControllerKind, StartRate};
use lacuna_place::geometry::{Geometry, GeometryError};
use lacuna_proto::handshake::{Parameters, Role, Wire};
use lacuna_proto::modes::Mode;
use lacuna_wire::ImmediateSplit;
use std::time::Duration;

/// Default chunk: one packet. A chunk is the unit that is sent again after a loss, so small is
/// good. The paper uses 64 KiB (SDR-RDMA, figures 11, 14, 16), because its hardware counts chunks;
/// here a chunk costs two atomic operations, 1 % of a 1,400-byte packet over loopback. Measured:
/// M-config-1.
pub(crate) const CHUNK_BYTES: u64 = 1;
/// Default time limit of an operation.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Default time that a peer which owes an answer may be silent.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// Parameters of a queue pair or a connection. The defaults fit most paths; fields are independent
/// of each other.
///
/// Mode, chunk, split, generations, longest message, tag and wire of a connection come from the
/// connecting end; a [`crate::Listener`]'s are ignored. The other fields are each end's own, except
/// the MTU: if both ends give one, the smaller holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionConfig {
    /// Reliability mode of all messages in both directions; the connecting end's choice.
    pub mode: Mode,
    /// Bytes per chunk, rounded up to whole packets. The default is one packet.
    pub chunk_bytes: u64,
    /// Payload bytes per packet; `None` finds the largest that the path carries.
    pub mtu_bytes: Option<u32>,
    /// How the 32-bit immediate is divided.
    pub split: ImmediateSplit,
    /// Generations per slot.
    pub generations: u8,
    /// Longest message of one slot, rounded up to whole chunks; 0 means the most that the split
    /// allows. Longer messages take several slots.
    pub max_message_bytes: u64,
    /// Congestion controller; `None` is `Fixed` if a rate is given, else `Bbr`.
    pub controller: Option<ControllerKind>,
    /// The rate to hold with the controller `Fixed`, the rate to begin at with others; more than 0.
    /// `None` has the controller find one.
    pub rate_bits_per_s: Option<u64>,
    /// Retransmission timeout.
    pub rto: RtoConfig,
    /// Time limit of operations without one of their own.
    pub deadline: Duration,
    /// How long a peer that owes an answer may be silent before it counts as gone; more than 0.
    pub silence: Duration,
    /// Time limit of connecting, handshake included. At the accepting end, the time limit of a
    /// peer's part of the handshake.
    pub connect_timeout: Duration,
    /// Whether the ends write to each other's regions ([`crate::Connection::write_to`]): takes a second queue
    /// pair, and some 100 KB, at each end. The connecting end's choice.
    pub one_sided: bool,
    /// Classes of messages beside the usual one, each of which takes a queue pair at each end
    /// ([`crate::Connection::class`]). The connecting end's choice.
    pub classes: Classes,
    /// The form of data packets: short, or as RDMA cards take them. With [`Wire::Rdma`] connecting
    /// fails if either end's datapath or the path between them does not suit it.
    pub wire: Wire,
    /// A word of the application, for the accepting end to read with [`crate::Connection::tag`]:
    /// what this connection is for.
    pub tag: u64,
}

/// Classes of messages, for what shares a connection and not a fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Repaired whatever the connection's mode is, and not held up by messages of other classes: for
    /// what the application has to say beside its bulk.
    Critical,
    /// Not repaired whatever the connection's mode is: receives end in time, as in mode `bounded`.
    Droppable,
    /// Repaired whatever the connection's mode is, as [`Class::Critical`], and does not hold that up: for bulk that
    /// has to be whole, beside bulk that has not.
    Repaired,
}

/// A set of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Classes {
    /// [`Class::Critical`].
    pub critical: bool,
    /// [`Class::Droppable`].
    pub droppable: bool,
    /// [`Class::Repaired`].
    pub repaired: bool,
}

impl Classes {
    /// None but the usual one.
    pub const NONE: Self = Self { critical: false, droppable: false, repaired: false };
    /// All.
    pub const ALL: Self = Self { critical: true, droppable: true, repaired: true };
}

impl Class {
    pub(crate) fn role(self) -> Role {
        match self {
            Self::Critical => Role::Critical,
            Self::Droppable => Role::Droppable,
            Self::Repaired => Role::Repaired,
        }
    }
}

impl ConnectionConfig {
    /// The further queue pairs that it asks for.
    pub(crate) fn roles(&self) -> impl Iterator<Item = Role> + use<> {
        let Classes { critical, droppable, repaired } = self.classes;
        let roles = [
            (Role::OneSided, self.one_sided),
            (Role::Critical, critical),
            (Role::Droppable, droppable),
            (Role::Repaired, repaired),
        ];
        roles.into_iter().filter_map(|(role, is_wanted)| is_wanted.then_some(role))
    }
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            chunk_bytes: CHUNK_BYTES,
            mtu_bytes: None,
            split: ImmediateSplit::DEFAULT,
            generations: 4,
            max_message_bytes: 0,
            controller: None,
            rate_bits_per_s: None,
            rto: RtoConfig::default(),
            deadline: DEADLINE,
            silence: SILENCE,
            connect_timeout: Duration::from_secs(10),
            one_sided: false,
            classes: Classes::NONE,
            wire: Wire::default(),
            tag: 0,
        }
    }
}

impl ConnectionConfig {
    /// The geometry for a packet size and a number of channels.
    pub fn geometry(&self, mtu_bytes: u32, channels: u8) -> Result<Geometry, GeometryError> {
        self.parameters().geometry(mtu_bytes, channels)
    }

    /// The fields that the connecting end chooses for both.
    pub(crate) fn parameters(&self) -> Parameters {
        Parameters {
            mode: self.mode,
            chunk_bytes: self.chunk_bytes,
            mtu_bytes: self.mtu_bytes,
            split: self.split,
            generations: self.generations,
            max_message_bytes: self.max_message_bytes,
            tag: self.tag,
            wire: self.wire,
        }
    }

    /// This end's own fields, with `parameters` for those that the connecting end chooses.
    pub(crate) fn with(&self, parameters: &Parameters) -> Self {
        let Parameters {
            mode,
            chunk_bytes,
            mtu_bytes,
            split,
            generations,
            max_message_bytes,
            tag,
            wire,
        } = *parameters;
        Self {
            mode,
            chunk_bytes,
            mtu_bytes,
            split,
            generations,
            max_message_bytes,
            tag,
            wire,
            ..*self
        }
    }

    /// Refuses a form of packets that this end's datapath cannot send.
    pub(crate) fn check_wire(&self, datapath: &Capabilities) -> Result<(), QueuePairError> {
        match self.wire {
            Wire::Rdma if datapath.trailer != TrailerOffload::Icrc => {
                Err(QueuePairError::Wire { wire: self.wire, datapath: datapath.name })
            }
            Wire::Short | Wire::Rdma | Wire::Sealed => Ok(()),
        }
    }

    /// The same for a context that trusts by keys, or one that does not: its packets are encrypted, or not.
    pub(crate) fn secured(self, is_secure: bool) -> Result<Self, QueuePairError> {
        match (self.wire, is_secure) {
            (Wire::Short | Wire::Sealed, true) => Ok(Self { wire: Wire::Sealed, ..self }),
            (Wire::Rdma, true) => Err(QueuePairError::ClearWire { wire: self.wire }),
            (Wire::Sealed, false) => Err(QueuePairError::NoTrust),
            (Wire::Short | Wire::Rdma, false) => Ok(self),
        }
    }

    /// Refuses settings that can only fail later: `Fixed` without a rate, a rate of 0, a silence of
    /// 0.
    pub(crate) fn check(&self) -> Result<(), QueuePairError> {
        if self.controller == Some(ControllerKind::Fixed) && self.rate_bits_per_s.is_none() {
            return Err(QueuePairError::NoRate);
        }
        if self.rate_bits_per_s == Some(0) {
            let instead = "leave it out, and one is found";
            return Err(QueuePairError::Zero { what: "the rate", instead });
        }
        if self.silence.is_zero() {
            let instead = "give the time after which a peer that is not heard counts as gone";
            return Err(QueuePairError::Zero { what: "the silence allowed to a peer", instead });
        }
        Ok(())
    }

    pub(crate) fn controller(&self) -> ControllerConfig {
        // `check` refuses `Fixed` without a rate.
        ControllerConfig::of(self.controller, self.rate_bits_per_s).unwrap_or_default()
    }

    /// The rate to begin at; `None` for `Fixed`.
    pub(crate) fn start_rate(&self) -> Option<StartRate> {
        let begins = !matches!(self.controller(), ControllerConfig::Fixed { .. });
        self.rate_bits_per_s.filter(|_| begins).map(|rate_bits_per_s| StartRate { rate_bits_per_s })
    }
}

/// The parameters that a connection uses: agreed with the peer, found on the path, or given by the
/// system.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Chosen {
    /// Reliability mode.
    pub mode: String,
    /// Payload bytes of a packet.
    pub mtu_bytes: u32,
    /// Form of data packets.
    pub wire: &'static str,
    /// The cipher of encrypted packets; `None` where they are in clear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cipher: Option<&'static str>,
    /// Whether `mtu_bytes` was found by probing.
    pub mtu_probed: bool,
    /// Bytes per chunk.
    pub chunk_bytes: u64,
    /// Longest message of one slot, in bytes.
    pub slot_bytes: u64,
    /// Number of slots.
    pub slots: u32,
    /// Channels: sockets in use at each end.
    pub channels: u8,
    /// Sockets of this end: more than `channels` if the peer has fewer.
    pub channels_here: u8,
    /// Datapath.
    pub datapath: &'static str,
    /// Whether the kernel segments sends.
    pub segmentation_offload: bool,
    /// Whether the kernel coalesces receives.
    pub receive_coalescing: bool,
    /// Credit at the peer: what its sockets hold for this end, as its kernel counts.
    pub peer_credit_bytes: u64,
    /// Congestion controller.
    pub controller: &'static str,
    /// Rate that was given or remembered of the path: held by the controller `fixed`, begun at by
    /// others.
    pub rate_bits_per_s: Option<u64>,
    /// Round-trip time when it was connected.
    pub rtt_us: Option<u64>,
}

impl Chosen {
    pub(crate) fn new(
        config: &ConnectionConfig,
        geometry: &Geometry,
        context: &Context,
        peer_credit_bytes: u32,
        rtt_ns: Option<u64>,
        start: Option<StartRate>,
    ) -> Self {
        let capabilities = context.capabilities();
        Self {
            mode: config.mode.to_string(),
            mtu_bytes: geometry.mtu_bytes(),
            wire: Wire::of_seal(geometry.seal()).name(),
            cipher: None,
            mtu_probed: config.mtu_bytes.is_none(),
            chunk_bytes: geometry.chunk_bytes(),
            slot_bytes: geometry.max_message_bytes(),
            slots: geometry.slots(),
            channels: geometry.channels(),
            channels_here: context.config().channels,
            datapath: capabilities.name,
            segmentation_offload: capabilities.segmentation_offload,
            receive_coalescing: capabilities.receive_coalescing,
            peer_credit_bytes: u64::from(peer_credit_bytes) * u64::from(geometry.channels()),
            controller: config.controller().name(),
            rate_bits_per_s: config.rate_bits_per_s.or(start.map(|start| start.rate_bits_per_s)),
            rtt_us: rtt_ns.map(|ns| ns / 1000),
        }
    }
}

/// For people: one line, or with `{:#}` two lines of about 80 characters.
impl std::fmt::Display for Chosen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "mode {}, chunk {} B, mtu {} B ({}), ",
            self.mode,
            self.chunk_bytes,
            self.mtu_bytes,
            if self.mtu_probed { "probed" } else { "given" },
        )?;
        if self.wire != Wire::default().name() {
            write!(f, "wire {}", self.wire)?;
            if let Some(cipher) = self.cipher {
                write!(f, " by {cipher}")?;
            }
            f.write_str(", ")?;
        }
        match (self.channels, self.channels_here) {
            (1, 1) => write!(f, "1 channel")?,
            (channels, here) if channels == here => write!(f, "{channels} channels")?,
            (channels, here) => {
                write!(f, "{channels} of {here} channels (the peer has no more)")?;
            }
        }
        f.write_str(if f.alternate() { ",\n    " } else { ", " })?;
        let offloads = match (self.segmentation_offload, self.receive_coalescing) {
            (true, true) => "with offloads",
            (true, false) => "without receive offload",
            (false, true) => "without send offload",
            (false, false) => "without offloads",
        };
        write!(f, "{} {offloads}, ", self.datapath)?;
        let rate = self.rate_bits_per_s.map(|rate| match rate as f64 / 1e6 {
            mbit if mbit < 100.0 => format!("{mbit:.3} Mbit/s"),
            mbit => format!("{:.3} Gbit/s", mbit / 1e3),
        });
        match rate {
            Some(rate) if self.controller == ControllerKind::Fixed.name() => {
                write!(f, "rate {rate}")?;
            }
            Some(rate) => write!(f, "{} from {rate}", self.controller)?,
            None => write!(f, "{} window", self.controller)?,
        }
        write!(f, " (up to {} KiB in flight)", self.peer_credit_bytes / 1024)?;
        if let Some(rtt_us) = self.rtt_us {
            write!(f, ", rtt {:.3} ms", rtt_us as f64 / 1e3)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Chosen, ConnectionConfig, ImmediateSplit, Mode};

    #[test]
    fn by_default_every_chunk_makes_a_geometry() {
        for chunk_bytes in [1, 4096, 64 << 10, 64 << 20, 1 << 40] {
            for max_message_bytes in [0, 1, 5000, 1 << 20] {
                let config =
                    ConnectionConfig { chunk_bytes, max_message_bytes, ..Default::default() };
                assert_eq!(config.mode, Mode::Auto);
                for (mtu_bytes, channels) in [(1400, 1), (4096, 4), (8948, 16)] {
                    let geometry = config.geometry(mtu_bytes, channels);
                    let geometry = geometry.unwrap_or_else(|error| panic!("{config:?}: {error}"));
                    assert!(geometry.chunk_bytes() < chunk_bytes + u64::from(mtu_bytes));
                }
            }
        }
    }

    #[test]
    fn a_code_that_was_asked_for_keeps_its_chunk_or_is_refused() {
        let mode = Mode::EC;
        let config = ConnectionConfig { mode, chunk_bytes: 1 << 30, ..Default::default() };
        assert!(config.geometry(4096, 1).is_err());
    }

    #[test]
    fn without_a_code_nothing_is_taken_in_turn() {
        let config = ConnectionConfig { mode: Mode::SR, chunk_bytes: 1, ..Default::default() };
        assert_eq!(config.geometry(1436, 1).unwrap().config().interleave, 1);
    }

    #[test]
    fn a_code_takes_short_chunks_in_turn() {
        for (chunk_bytes, mtu_bytes, chunk_packets, code_packets) in [
            (1, 1436, 1, 3),
            (1, 4096, 1, 1),
            (1, 8948, 1, 1),
            (2048, 1436, 2, 4),
            (65_536, 1436, 46, 46),
            // 252 numbers for the 48 chunks of a submessage.
            (1, 64, 1, 5),
        ] {
            let split = match mtu_bytes {
                64 => ImmediateSplit::new(16, 8, 8).unwrap(),
                _ => ImmediateSplit::DEFAULT,
            };
            let config = ConnectionConfig { chunk_bytes, split, ..Default::default() };
            let geometry = config.geometry(mtu_bytes, 1).unwrap();
            assert_eq!(geometry.chunk_packets(), chunk_packets);
            assert_eq!(geometry.layout().unwrap().chunk_packets(), code_packets, "{mtu_bytes}");
        }
    }

    fn chosen() -> Chosen {
        Chosen {
            mode: "sr".to_owned(),
            mtu_bytes: 4096,
            wire: "short",
            cipher: None,
            mtu_probed: true,
            chunk_bytes: 4096,
            slot_bytes: 1 << 30,
            slots: 1024,
            channels: 1,
            channels_here: 1,
            datapath: "udp",
            segmentation_offload: true,
            receive_coalescing: true,
            peer_credit_bytes: 3640 << 10,
            controller: "bbr",
            rate_bits_per_s: None,
            rtt_us: Some(25_104),
        }
    }

    #[test]
    fn what_was_chosen_fits_one_line_or_two_short_ones() {
        assert_eq!(
            chosen().to_string(),
            "mode sr, chunk 4096 B, mtu 4096 B (probed), 1 channel, udp with offloads, \
             bbr window (up to 3640 KiB in flight), rtt 25.104 ms"
        );
        let begun = Chosen { rate_bits_per_s: Some(900_000_000), ..chosen() };
        assert!(begun.to_string().contains("bbr from 0.900 Gbit/s (up to"), "{begun}");
        let slow = Chosen { rate_bits_per_s: Some(250_000), ..begun };
        assert!(slow.to_string().contains("bbr from 0.250 Mbit/s (up to"), "{slow}");
        let given = Chosen {
            rate_bits_per_s: Some(2_500_000_000),
            controller: "fixed",
            mtu_probed: false,
            ..chosen()
        };
        assert_eq!(
            format!("{given:#}"),
            "mode sr, chunk 4096 B, mtu 4096 B (given), 1 channel,\n    \
             udp with offloads, rate 2.500 Gbit/s (up to 3640 KiB in flight), rtt 25.104 ms"
        );
    }

    #[test]
    fn a_form_of_packets_that_is_not_the_usual_one_is_said() {
        let rdma = Chosen { wire: "rdma", ..chosen() };
        assert!(rdma.to_string().contains("mtu 4096 B (probed), wire rdma, 1 channel"), "{rdma}");
    }

    #[test]
    fn less_than_was_asked_for_is_said() {
        let fewer = Chosen { channels: 2, channels_here: 4, ..chosen() };
        let text = fewer.to_string();
        assert!(text.contains("2 of 4 channels (the peer has no more)"), "{text}");
        let plain = Chosen { segmentation_offload: false, receive_coalescing: false, ..chosen() };
        assert!(plain.to_string().contains("udp without offloads"));
    }
}
