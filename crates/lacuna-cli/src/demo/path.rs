//! The demo's path: two contexts on loopback, each one's sending side wrapped
//! in a link with rate, delay and loss.

use crate::failure::Failure;
use lacuna::datapath::{Impair, ImpairCountersHandle, Impairment, Loss};
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Shortest queue in front of the link: some bundles of segmentation offload,
/// which arrive at once however well the sender paces.
const QUEUE_BYTES_MIN: u64 = 512 << 10;

/// What the link does, each way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ways {
    pub(super) rate_bits_per_s: u64,
    pub(super) rtt: Duration,
    pub(super) loss: f64,
    pub(super) burst: f64,
}

/// Both ends of an open path.
pub(super) struct Path {
    pub(super) sender: Connection,
    pub(super) receiver: Connection,
    towards_receiver: Arc<Mutex<Vec<ImpairCountersHandle>>>,
}

impl Path {
    /// Opens a path and a connection over it, configured by `configure`.
    pub(super) fn open(
        ways: &Ways,
        seed: u64,
        configure: impl FnOnce(ConnectionConfig) -> ConnectionConfig,
    ) -> Result<Self, Failure> {
        let impairment = ways.impairment()?;
        let (sending, towards_receiver) = context(&impairment, seed)?;
        let (receiving, _) = context(&impairment, seed ^ 0x5bd1_e995)?;
        let config = configure(ConnectionConfig::default());
        let any_port = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = Listener::bind(&receiving, any_port, config)?;
        let address = listener.local_addr();
        let accepting = thread::spawn(move || listener.accept());
        let sender = Connection::connect(&sending, address, config)?;
        let receiver = accepting
            .join()
            .map_err(|_| Failure::Local("the receiving end panicked".to_owned()))??;
        Ok(Self { sender, receiver, towards_receiver })
    }

    /// Packets that the link lost on the way to the receiver.
    pub(super) fn lost_to_receiver(&self) -> u64 {
        let handles = self.towards_receiver.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().map(|handle| handle.read().lost).sum()
    }
}

impl Ways {
    fn impairment(&self) -> Result<Impairment, Failure> {
        let usage = |error: &dyn std::fmt::Display| Failure::Usage(error.to_string());
        let loss = if self.loss == 0.0 {
            Loss::None
        } else {
            Loss::bursts(self.loss, self.burst).map_err(|error| usage(&error))?
        };
        let delay_ns = (self.rtt / 2).as_nanos() as u64;
        let product = u128::from(self.rate_bits_per_s) * self.rtt.as_nanos() / 8_000_000_000;
        let impairment = Impairment {
            loss,
            delay_ns,
            rate_bits_per_s: Some(self.rate_bits_per_s),
            queue_bytes: (product as u64).max(QUEUE_BYTES_MIN),
            ..Impairment::default()
        };
        impairment.validate().map_err(|error| usage(&error))?;
        Ok(impairment)
    }
}

type Counters = Arc<Mutex<Vec<ImpairCountersHandle>>>;

fn context(impairment: &Impairment, seed: u64) -> Result<(Context, Counters), Failure> {
    let counters: Counters = Arc::default();
    let (kept, impairment) = (counters.clone(), impairment.clone());
    let context = Context::new(ContextConfig {
        bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
        wrap: Some(Arc::new(move |channel, inner| {
            let seed = seed.wrapping_add(u64::from(channel) << 32);
            let impaired = Impair::new(inner, impairment.clone(), seed);
            let handle = impaired.counters_handle();
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
            Box::new(impaired)
        })),
        ..ContextConfig::default()
    })?;
    Ok((context, counters))
}
