//! Ranks that meet over emulated paths: a thread of this process each, with real groups of
//! `lacuna_collective` over loopback sockets that lose and delay.
//!
//! | module | contents |
//! |---|---|
//! | `delivery` | what is done about lost packets, by name |
//! | `link` | operations between the ranks |
//!
//! Each rank has two groups. *Data* carries gradients and activations as the delivery says, *exact* carries what
//! has to be complete whatever the delivery is: parameters and chosen tokens (OptiNIC 3.2 and Celeris III-A keep
//! these reliable, too). Both have a path of their own with the same properties; they are not used at the same time.

mod delivery;
mod link;

pub use delivery::{Delivery, DeliveryError};
pub use link::{Link, Pending, Received};

use lacuna::Wrap;
use lacuna::datapath::{Impair, Impairment, Loss};
use lacuna_collective::rendezvous::{HeldPort, Meeting};
use lacuna_collective::{Group, GroupConfig};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// How long ranks wait for each other at the start.
const MEET_WITHIN: Duration = Duration::from_secs(60);

/// All-reduces of at most so many bytes go by doubling.
const SMALL_BYTES: usize = 64 << 10;

/// What lies between a rank and all others: what it sends goes through one link of this kind.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Path {
    /// The rate at which a rank can send, over all of its peers.
    pub rate_bits_per_s: Option<u64>,
    /// Round trip between two ranks in milliseconds.
    pub rtt_ms: f64,
    /// Fraction of the packets that are lost.
    pub loss: f64,
    /// Mean length of a burst of losses in packets; 1 is independent losses.
    pub burst_packets: f64,
}

impl Path {
    /// The same without losses.
    #[must_use]
    pub fn lossless(self) -> Self {
        Self { loss: 0.0, ..self }
    }

    /// Milliseconds of an all-reduce of so many bytes, if nothing is lost and nothing else takes time: as groups choose it, each
    /// with each other by doubling if it is small, in a ring if it is not.
    #[must_use]
    pub fn all_reduce_ms(&self, ranks: usize, bytes: usize) -> f64 {
        let hop_ms = |bytes: f64| {
            let on_wire_ms = self.rate_bits_per_s.map_or(0.0, |rate| 8e3 * bytes / rate as f64);
            on_wire_ms + self.rtt_ms / 2.0
        };
        let is_small = bytes <= SMALL_BYTES || ranks == 2 && bytes < 4 * SMALL_BYTES;
        match is_small {
            true => f64::from(ranks.next_power_of_two().ilog2()) * hop_ms(bytes as f64),
            false => 2.0 * (ranks as f64 - 1.0) * hop_ms(bytes as f64 / ranks as f64),
        }
    }

    fn impairment(&self) -> anyhow::Result<Impairment> {
        let loss = match self.loss {
            0.0 => Loss::None,
            loss => Loss::bursts(loss, self.burst_packets)?,
        };
        let impairment = Impairment {
            loss,
            delay_ns: (self.rtt_ms * 1e6 / 2.0) as u64,
            rate_bits_per_s: self.rate_bits_per_s,
            ..Impairment::default()
        };
        impairment.validate()?;
        Ok(impairment)
    }
}

/// How the ranks of a run are connected.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// How many there are.
    pub ranks: usize,
    /// Between them.
    pub path: Path,
    /// What is done about losses in the data group.
    pub delivery: Delivery,
    /// Decides which packets are lost, by their order on the wire; what is on the wire when depends on the
    /// machine, so a run does not repeat to the packet.
    pub seed: u64,
}

/// The ends of one rank.
#[derive(Debug)]
pub struct Ends {
    /// Gradients and activations.
    pub data: Link,
    /// Parameters and tokens.
    pub exact: Link,
}

impl Ends {
    fn form(network: &Network, rank: usize, ports: [u16; 2]) -> anyhow::Result<Self> {
        let group = |name: &str, number: usize, delivery: &Delivery| -> anyhow::Result<Group> {
            let meeting = Meeting {
                host: format!("127.0.0.1:{}", ports[number]),
                rank,
                ranks: network.ranks,
                job: format!("{}.{name}", std::process::id()),
                timeout: MEET_WITHIN,
            };
            let seed = network.seed << 16 | (rank as u64) << 4 | (number as u64) << 3;
            let config = GroupConfig {
                bind: Ipv4Addr::LOCALHOST.into(),
                mode: delivery.mode(),
                transport: delivery.transport(),
                wrap: Some(wrap(network.path.impairment()?, seed)),
                ..GroupConfig::new(meeting)
            };
            Ok(Group::form(&config)?)
        };
        let exact = Delivery::default();
        Ok(Self {
            data: Link::new(group("data", 0, &network.delivery)?, network.delivery.clone()),
            exact: Link::new(group("exact", 1, &exact)?, exact),
        })
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.data.rank()
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.data.ranks()
    }
}

fn wrap(impairment: Impairment, seed: u64) -> Wrap {
    Arc::new(move |channel, inner| {
        Box::new(Impair::new(inner, impairment.clone(), seed << 8 | u64::from(channel)))
    })
}

/// Runs the same on a thread per rank; what each rank found, in their order.
///
/// A rank that fails leaves its groups, so that the others end with an error, too.
///
/// # Errors
/// The first rank's that failed by itself, or could not be connected.
pub fn on_all_ranks<R: Send>(
    network: &Network,
    run: impl Fn(Ends) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let any = || HeldPort::any(Ipv4Addr::LOCALHOST.into());
    let held = [any()?, any()?];
    let ports = held.each_ref().map(|held| held.address().port());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..network.ranks)
            .map(|rank| {
                let run = &run;
                let thread = std::thread::Builder::new().name(format!("rank {rank}"));
                thread.spawn_scoped(scope, move || run(Ends::form(network, rank, ports)?))
            })
            .collect::<Result<_, _>>()?;
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let (found, failed): (Vec<_>, Vec<_>) = joined.partition(Result::is_ok);
        // Those that only heard of another's end are of less interest than why it ended.
        let rank_of_error = |error: &anyhow::Error| {
            let run = error.downcast_ref::<lacuna_collective::OperationError>();
            usize::from(matches!(run, Some(lacuna_collective::OperationError::Run(_))))
        };
        match failed.into_iter().filter_map(Result::err).min_by_key(rank_of_error) {
            Some(error) => Err(error),
            None => found.into_iter().collect(),
        }
    })
}
