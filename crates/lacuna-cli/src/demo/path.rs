//! The demo's path: two contexts on loopback, each one's sending side wrapped
//! in a link with rate, delay and loss.

use crate::capture::Capture;
use crate::failure::Failure;
use crate::units::{show_bytes, show_rate, show_time};
use lacuna::datapath::{Impair, ImpairCountersHandle, Impairment, Loss};
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener, Wrap};
use lacuna_service::thread;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Least queue of the link: several segmentation-offload bundles, which arrive at once however well
/// the sender paces.
const QUEUE_BYTES_MIN: u64 = 512 << 10;
/// Slowest link, given as the transmission time of a packet. Connecting takes a few dozen packets.
const PACKET_TIME_MAX: Duration = Duration::from_secs(1);

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
    towards_receiver: Counters,
}

/// Packets that did not reach the receiver.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Missing {
    /// Lost by the link.
    pub(super) lost: u64,
    /// Dropped because the link's queue was full.
    pub(super) queue_dropped: u64,
}

impl Path {
    /// Opens a path and a connection over it, configured by `configure`. Only the sender's end is
    /// captured: both would show each packet twice.
    pub(super) fn open(
        ways: &Ways,
        seed: u64,
        capture: &Capture,
        configure: impl FnOnce(ConnectionConfig) -> ConnectionConfig,
    ) -> Result<Self, Failure> {
        let impairment = ways.impairment()?;
        let (sending, towards_receiver) = context(&impairment, seed, capture)?;
        let (receiving, _) = context(&impairment, seed ^ 0x5bd1_e995, &Capture::default())?;
        let plain = ConnectionConfig::default();
        let config = configure(ConnectionConfig {
            // Time for probes and their answers, and for repeating both.
            connect_timeout: plain.connect_timeout + ways.rtt * 8 + PACKET_TIME_MAX * 20,
            silence: plain.silence + ways.rtt * 4,
            ..plain
        });
        let any_port = (Ipv4Addr::LOCALHOST, 0).into();
        let listener = Listener::bind(&receiving, any_port, config)?;
        let address = listener.local_addr();
        let accepting = thread::start("accept", move || listener.accept())?;
        let sender = Connection::connect(&sending, address, config)?;
        let receiver = accepting
            .join()
            .map_err(|_| Failure::Local("the receiving end panicked".to_owned()))??;
        Ok(Self { sender, receiver, towards_receiver })
    }

    /// Packets lost on the way to the receiver so far.
    pub(super) fn missing(&self) -> Missing {
        let handles = self.towards_receiver.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().map(ImpairCountersHandle::read).fold(Missing::default(), |sum, link| {
            Missing {
                lost: sum.lost + link.lost,
                queue_dropped: sum.queue_dropped + link.queue_dropped,
            }
        })
    }
}

impl Ways {
    /// Whether packets of `packet_bytes` can be sent over such a path in this
    /// process.
    pub(super) fn check(&self, packet_bytes: u32) -> Result<(), Failure> {
        self.impairment()?;
        let packet_s = f64::from(packet_bytes) * 8.0 / self.rate_bits_per_s as f64;
        if packet_s > PACKET_TIME_MAX.as_secs_f64() {
            return Err(Failure::Usage(format!(
                "at {} a packet of {packet_bytes} B takes {}: choose a higher --rate or a smaller --mtu",
                show_rate(self.rate_bits_per_s as f64),
                show_time(packet_s),
            )));
        }
        Ok(())
    }

    /// Queue of the link: rate times round-trip time.
    pub(super) fn queue_bytes(&self) -> u64 {
        let product = u128::from(self.rate_bits_per_s) * self.rtt.as_nanos() / 8_000_000_000;
        u64::try_from(product).unwrap_or(u64::MAX).max(QUEUE_BYTES_MIN)
    }

    fn impairment(&self) -> Result<Impairment, Failure> {
        let loss = if self.loss == 0.0 {
            Loss::None
        } else {
            Loss::bursts(self.loss, self.burst).map_err(|error| {
                Failure::Usage(format!("{error}: choose less --loss or a longer --burst"))
            })?
        };
        let impairment = Impairment {
            loss,
            delay_ns: (self.rtt / 2).as_nanos() as u64,
            rate_bits_per_s: Some(self.rate_bits_per_s),
            queue_bytes: self.queue_bytes(),
            ..Impairment::default()
        };
        impairment.validate().map_err(|_| {
            Failure::Usage(format!(
                "a path of {} and {} RTT holds more than the {} that this demo keeps in memory: \
                 choose a lower --rate or a shorter --rtt",
                show_rate(self.rate_bits_per_s as f64),
                show_time(self.rtt.as_secs_f64()),
                show_bytes(Impairment::HELD_BYTES_MAX),
            ))
        })?;
        Ok(impairment)
    }
}

/// For people: `1 Gbit/s, 25 ms RTT, loss 0.001 in bursts of 8`.
impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = show_rate(self.rate_bits_per_s as f64);
        let rtt = show_time(self.rtt.as_secs_f64());
        write!(f, "{rate}, {rtt} RTT, loss {}", self.loss)?;
        if self.burst > 1.0 && self.loss > 0.0 {
            write!(f, " in bursts of {}", self.burst)?;
        }
        Ok(())
    }
}

type Counters = Arc<Mutex<Vec<ImpairCountersHandle>>>;

fn context(
    impairment: &Impairment,
    seed: u64,
    capture: &Capture,
) -> Result<(Context, Counters), Failure> {
    let counters: Counters = Arc::default();
    let (kept, impairment) = (counters.clone(), impairment.clone());
    let impair: Wrap = Arc::new(move |channel, inner| {
        let seed = seed.wrapping_add(u64::from(channel) << 32);
        let impaired = Impair::new(inner, impairment.clone(), seed);
        let handle = impaired.counters_handle();
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        Box::new(impaired)
    });
    let context = Context::new(ContextConfig {
        bind: Ipv4Addr::LOCALHOST.into(),
        wrap: capture.around(Some(impair)),
        ..ContextConfig::default()
    })?;
    Ok((context, counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(rate_bits_per_s: u64, rtt: Duration) -> Ways {
        Ways { rate_bits_per_s, rtt, loss: 1e-3, burst: 1.0 }
    }

    #[test]
    fn paths_that_cannot_be_emulated_are_a_matter_of_usage() {
        let far = Duration::from_secs(10);
        for (ways, part) in [
            (ways(1 << 60, far), "choose a lower --rate or a shorter --rtt"),
            (ways(1, Duration::ZERO), "choose a higher --rate"),
            (Ways { loss: 0.9, ..ways(1 << 30, Duration::ZERO) }, "no link loses 0.9"),
        ] {
            match ways.check(4096) {
                Err(Failure::Usage(text)) => assert!(text.contains(part), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        ways(1 << 60, Duration::ZERO).check(4096).expect("no delay holds nothing");
        ways(1_000_000_000, Duration::from_millis(25)).check(4096).expect("the default");
    }

    #[test]
    fn a_path_is_described_with_its_losses() {
        let ways = Ways { burst: 8.0, ..ways(1_000_000_000, Duration::from_millis(25)) };
        assert_eq!(ways.to_string(), "1 Gbit/s, 25 ms RTT, loss 0.001 in bursts of 8");
        let clean = Ways { loss: 0.0, ..ways };
        assert_eq!(clean.to_string(), "1 Gbit/s, 25 ms RTT, loss 0");
    }
}
