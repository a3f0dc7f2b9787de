//! TCP, one stream, written and read 1 MiB at a time from and to as much memory
//! as Lacuna's messages have.

use super::{Outcome, Place, Sample};
use crate::cell::Cell;
use crate::meter::Meter;
use crate::pin;
use anyhow::Result;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

const WRITE_BYTES: usize = 1 << 20;

pub(super) fn run(cell: &Cell, place: &Place, congestion: &str) -> Result<Outcome> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let out = TcpStream::connect(listener.local_addr()?)?;
    let (into, _) = listener.accept()?;
    if let Err(error) = rustix::net::sockopt::set_tcp_congestion(&out, congestion) {
        return Ok(Outcome::Skipped(format!("no congestion control {congestion} here: {error}")));
    }
    let buffer_bytes = (cell.size as usize * cell.inflight as usize).max(WRITE_BYTES);
    let received = AtomicU64::new(0);
    let cpu_before = pin::process_time();
    let rate = std::thread::scope(|scope| -> Result<f64> {
        let receiving = scope.spawn(|| -> Result<()> {
            pin::this_thread(place.receive_core)?;
            let mut into = into;
            let mut buffer = vec![0u8; buffer_bytes];
            let mut at = 0;
            loop {
                let end = (at + WRITE_BYTES).min(buffer_bytes);
                match into.read(&mut buffer[at..end])? {
                    0 => return Ok(()),
                    bytes => {
                        at = if at + bytes == buffer_bytes { 0 } else { at + bytes };
                        received.fetch_add(bytes as u64, Ordering::Relaxed);
                    }
                }
            }
        });
        let sending = scope.spawn(|| -> Result<f64> {
            pin::this_thread(place.send_core)?;
            let mut out = out;
            let buffer = vec![0x5Au8; buffer_bytes];
            let mut meter = Meter::start(place.duration);
            for bytes in buffer.chunks(WRITE_BYTES).cycle() {
                if !meter.goes_on(received.load(Ordering::Relaxed)) {
                    break;
                }
                out.write_all(bytes)?;
            }
            let rate = meter.gbit_per_s(received.load(Ordering::Relaxed));
            out.shutdown(Shutdown::Write)?;
            Ok(rate)
        });
        let rate = sending.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?;
        receiving.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
        rate
    })?;
    let cpu = (pin::process_time() - cpu_before).as_secs_f64();
    let moved = received.load(Ordering::Relaxed) as f64;
    Ok(Outcome::Sample(Sample {
        value: rate,
        cpu_s_per_gbyte: Some(cpu / (moved / 1e9)),
        ..Sample::default()
    }))
}
