//! How many reliable connections one process holds, and what each takes.
//!
//! ```text
//! many_connections [COUNT [SHIM]]
//! ```
//!
//! Connects COUNT queue pairs (100,000) of one context to as many of another over loopback, does a WRITE on each,
//! and says what memory that took, by the rows of LoWAR's table I. All shims of a worker share one pool of
//! coding units.

use lacuna::rc::{Flags, QueuePair, Remote, SendWork, Settings, ShimSettings, Verb};
use lacuna::{Context, ContextConfig, RegionOptions, Rights, SendBuffer};
use std::error::Error;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Memory of this process that is in use, in bytes.
fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kib << 10)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let shim: ShimSettings = arguments.next().map_or(Ok(ShimSettings::Off), |text| text.parse())?;
    let context = || {
        let bind = Ipv4Addr::LOCALHOST.into();
        Context::new(ContextConfig { bind, ..ContextConfig::default() })
    };
    let (near, far) = (context()?, context()?);
    let options = RegionOptions { rights: Rights::REMOTE_WRITE, ..RegionOptions::default() };
    let region = far.register(vec![0; 1 << 16], options)?;
    let settings = Settings { shim, ..Settings::default() };
    let empty_bytes = resident_bytes()?;
    let start = Instant::now();
    let pair = |_| -> Result<[QueuePair; 2]> {
        let ends = [near.rc_queue_pair(&settings)?, far.rc_queue_pair(&settings)?];
        let infos = ends.each_ref().map(|end| end.info(Ipv4Addr::LOCALHOST.into()));
        ends[0].connect(&infos[1])?;
        ends[1].connect(&infos[0])?;
        Ok(ends)
    };
    let pairs: Vec<_> = (0..count).map(pair).collect::<Result<_>>()?;
    let connected = start.elapsed();
    let connected_bytes = resident_bytes()?;
    // A few at a time: there is one path for all of them.
    let data = SendBuffer::from(vec![7; 8 * 1024]);
    let remote = Remote { address: 0, key: region.key() };
    let start = Instant::now();
    for some in pairs.chunks(32) {
        for [near, _] in some {
            let verb = Verb::Write { data: data.clone(), remote, immediate: None };
            near.post_send(SendWork { id: 1, verb, flags: Flags::default() })?;
        }
        for [near, _] in some {
            let done = near.wait(Duration::from_secs(60)).ok_or("a write never ends")?;
            done.status?;
        }
    }
    let written = start.elapsed();
    let written_bytes = resident_bytes()?;
    let each = |bytes: u64| bytes.saturating_sub(empty_bytes) as f64 / (2 * count) as f64;
    println!("{count} connections, both ends in this process, shim {shim}");
    println!(
        "connected in {:.1} s, a write of 8 KiB on each in {:.1} s",
        connected.as_secs_f64(),
        written.as_secs_f64()
    );
    println!(
        "bytes of a queue pair: {:.0} connected, {:.0} after its write",
        each(connected_bytes),
        each(written_bytes)
    );
    println!("all of the process: {:.1} MB", written_bytes as f64 / 1e6);
    Ok(())
}
