//! Contexts of `sdr.h`: the sockets, and how they make progress.

use super::qp::sdr_qp;
use super::region::sdr_mr;
use super::types::sdr_dev_attr;
use crate::environment::Environment;
use crate::memory::Regions;
use crate::outcome::{self, Failure, object, sdr_code};
use crate::pointer;
use crate::pool::ObjectPool;
use crate::progress::Driver;
use lacuna::datapath::limit::{Limit, Said};
use lacuna::datapath::process::PerProcess;
use lacuna::datapath::{MemNetwork, Process};
use lacuna::{Context, ContextConfig, DatapathKind, Progress, ScopedIp};
use std::ffi::{c_char, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Most channels: 4 bits of the queue pair number.
const CHANNELS_MAX: u32 = 16;
/// With this many cores or fewer, a polling program and a worker thread would compete for a core.
const FEW_CORES: usize = 2;
/// How long a worker thread polls before it sleeps; the default of `lacuna`.
const SPIN: Duration = Duration::from_micros(20);
/// Addresses reserved for documentation (RFC 5737, RFC 3849): used to ask the system which local
/// address leads out. Nothing is sent there.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// A context: sockets that queue pairs share.
pub struct sdr_context {
    process: Process,
    // Declared before the driver, so that queue pairs end while there is progress.
    pub(super) queue_pairs: ObjectPool<sdr_qp>,
    pub(super) registered: ObjectPool<sdr_mr>,
    pub(super) regions: Arc<Regions>,
    pub(super) driver: Arc<Driver>,
    /// This host's address, to be told to peers.
    pub(super) advertise: IpAddr,
}

impl pointer::Object for sdr_context {
    fn process(&self) -> Process {
        self.process
    }
}

/// Makes a context.
///
/// dev_name says what carries the packets: "udp" (or NULL), "udp:ADDRESS" for
/// sockets that are bound to an address of this host, or "mem" for a network
/// inside of this process. A link-local address of IPv6 names its interface, as in
/// "udp:fe80::1%eth0"; peers are on that link then. With "udp", sockets take IPv4 and
/// IPv6, and peers are told the address of this host that its default route of IPv4
/// uses, or without one that of IPv6, or 127.0.0.1 if it has neither.
///
/// Returns NULL on failure; lacuna_last_error() of lacuna.h says why. May be
/// called from any thread.
///
/// # Safety
/// dev_name is NULL or a terminated string; dev_attr points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_context_create(
    dev_name: *const c_char,
    dev_attr: *mut sdr_dev_attr,
) -> *mut sdr_context {
    object(|| {
        outcome::silence_panics();
        // SAFETY: the caller's promise.
        let attr = unsafe { pointer::shared(dev_attr, "dev_attr") }?;
        let name = match dev_name.is_null() {
            true => "udp",
            // SAFETY: the caller's promise.
            false => unsafe { pointer::text(dev_name, "dev_name") }?,
        };
        let environment = Environment::read()?;
        let channels = attr.num_channels.clamp(1, CHANNELS_MAX) as u8;
        let (datapath, bind) = datapath(name)?;
        let workers = workers(usize::from(channels), environment.workers);
        let advertise = if bind.ip().is_unspecified() { own_address()? } else { bind.ip() };
        let context = Context::new(ContextConfig {
            bind,
            channels,
            datapath,
            progress: match workers {
                0 => Progress::Manual,
                workers => Progress::Threads { workers, spin: SPIN },
            },
            ..ContextConfig::default()
        });
        let context = context.map_err(|error| Failure::new(outcome::SYSTEM, error.to_string()))?;
        let driver = match workers {
            0 => Driver::in_calls(context)?,
            _ => Driver::threaded(context),
        };
        Ok(Box::into_raw(Box::new(sdr_context {
            process: Process::current(),
            queue_pairs: ObjectPool::new(usize::MAX),
            registered: ObjectPool::new(usize::MAX),
            regions: Arc::default(),
            driver: Arc::new(driver),
            advertise,
        })))
    })
}

/// Ends a context with all that was made of it: queue pairs, their handles, and
/// registrations. Nothing touches the program's memory after it returns.
///
/// Must be the last call with this context and with anything made of it. In a child
/// process (fork) that has inherited the context it closes all inherited descriptors
/// of the library, and nothing else.
///
/// # Safety
/// As the text says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_context_destroy(context: *mut sdr_context) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let Some(live) = unsafe { pointer::to_free(context, "context") }? else { return Ok(()) };
        live.queue_pairs.for_each(|queue_pair| {
            queue_pair.close();
        });
        // SAFETY: made by `sdr_context_create`, and this is the last call with it.
        drop(unsafe { Box::from_raw(context) });
        Ok(())
    })
}

/// Datapath and bind address of a device name.
fn datapath(name: &str) -> Result<(DatapathKind, ScopedIp), Failure> {
    /// Shared by the contexts of this process that use the datapath `mem`.
    static NETWORK: PerProcess<MemNetwork> = PerProcess::new();
    match name.split_once(':') {
        None if name == "udp" => Ok((DatapathKind::Udp, ScopedIp::ANY)),
        None if name == "mem" => {
            let network = NETWORK.get_or_make(MemNetwork::new).clone();
            Ok((DatapathKind::Mem(network), Ipv4Addr::LOCALHOST.into()))
        }
        Some(("udp", address)) => match address.parse() {
            Ok(address) => Ok((DatapathKind::Udp, address)),
            Err(error) => Err(Failure::usage(format!(
                "device \"{name}\": {error}; write udp:ADDRESS with an address of this host"
            ))),
        },
        _ => Err(Failure::usage(format!(
            "device \"{name}\" is unknown: give \"udp\", \"udp:ADDRESS\" or \"mem\""
        ))),
    }
}

/// Number of worker threads; 0 for progress in the calls.
fn workers(channels: usize, requested: Option<usize>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match requested {
        Some(requested) => requested.min(channels),
        None if cores <= FEW_CORES => 0,
        // One core remains for the polling program.
        None => channels.min(cores - 1),
    }
}

/// The local address of the default route; loopback if there is none.
fn own_address() -> Result<IpAddr, Failure> {
    for elsewhere in ELSEWHERE {
        let any = match elsewhere {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let asked = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect((elsewhere, 9))?;
            socket.local_addr()
        });
        match asked {
            Ok(address) => return Ok(address.ip()),
            // A lack of resources says nothing about the route.
            Err(error) if Limit::of(&error).is_some() => {
                let text = format!("the system refused a socket: {}", Said(&error));
                return Err(Failure::new(outcome::SYSTEM, text));
            }
            Err(_) => {}
        }
    }
    Ok(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_pick_the_datapath() {
        let bind = |name| match datapath(name) {
            Ok((DatapathKind::Udp, bind)) => bind,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(bind("udp"), ScopedIp::ANY);
        assert_eq!(bind("udp:127.0.0.1"), Ipv4Addr::LOCALHOST.into());
        assert_eq!(bind("udp:::1"), Ipv6Addr::LOCALHOST.into());
        let linked = bind("udp:fe80::1%lo");
        assert!(linked.ip().is_ipv6() && linked.scope_id() > 0, "{linked}");
        assert!(matches!(datapath("mem"), Ok((DatapathKind::Mem(_), _))));
        for bad in [
            "",
            "mlx5_0",
            "udp:",
            "udp:eth0",
            "udp:fe80::1",
            "udp:fe80::1%nothere0",
            "mem:1",
            "xdp:eth0",
        ] {
            let error = format!("{:?}", datapath(bad).unwrap_err());
            assert!(error.contains("udp:ADDRESS"), "{error}");
        }
    }

    #[test]
    fn worker_threads_are_no_more_than_channels() {
        assert_eq!(workers(4, Some(9)), 4);
        assert_eq!(workers(4, Some(0)), 0);
        assert!(workers(16, None) <= 16);
    }
}
