//! What UDP's checksum costs: plain sockets that send packets one by one, with it and without (`SO_NO_CHECK`), and in
//! bundles that the kernel segments (`UDP_SEGMENT`), which it refuses without the checksum.
//!
//! Lacuna leaves it on: routers and cards look at it, the kernel gives no bundles without it, and DDP's CRC32C, which
//! is always there, does not cover the addresses.

use super::Effort;
use super::line::{Printer, Samples};
use super::turn::Sides;
use crate::bare::{use_checksum, use_segmentation};
use anyhow::{Context as _, Result};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Of a bundle, at most: what UDP over IPv4 has.
const BUNDLE_BYTES: usize = 65_000;
const PACKETS_MAX: usize = 64;
/// Of one packet where the path takes longer ones, so that there are bundles.
const PACKET_BYTES: usize = 1472;
/// The receiver ends once nothing came for so long.
const QUIET: Duration = Duration::from_millis(50);

const ON: &str = "with";
const OFF: &str = "without";
const BUNDLES: &str = "with, in bundles";

/// Measures over a path.
pub(super) fn run(sides: Sides<'_>, effort: Effort, out: &mut Printer) -> Result<()> {
    let bytes = sides.path.udp_bytes().min(PACKET_BYTES);
    let packets = (effort.bytes / bytes / 4).max(PACKETS_MAX);
    let mut samples = Samples::default();
    for round in 0..=effort.rounds {
        for (name, is_on, in_bundle) in [
            (ON, true, 1),
            (OFF, false, 1),
            (BUNDLES, true, (BUNDLE_BYTES / bytes).min(PACKETS_MAX)),
        ] {
            let gbit = turn(sides, (is_on, in_bundle), bytes, packets)?;
            if round > 0 {
                samples.add(name, gbit);
            }
        }
    }
    out.figures("UDP checksum, sent", "Gbit/s", bytes, &samples)?;
    let refused = turn(sides, (false, 2), bytes, 2).is_err();
    out.say(&format!(
        "{:<9} bundles without the checksum: {}",
        out.path,
        if refused { "refused by the kernel" } else { "taken" }
    ));
    let ratio = format!("UDP checksum, {OFF} / {ON}");
    out.judge(&ratio, samples.ratios(OFF, ON), None)?;
    let ratio = format!("UDP checksum, {BUNDLES} / {OFF}");
    out.judge(&ratio, samples.ratios(BUNDLES, OFF), None)?;
    Ok(())
}

/// Sends packets; how fast they left.
fn turn(
    sides: Sides<'_>,
    (is_on, in_bundle): (bool, usize),
    bytes: usize,
    packets: usize,
) -> Result<f64> {
    let path = sides.path;
    let far = path.inside(1, || Ok(UdpSocket::bind((path.address(1), 0))?))?;
    let near = path.inside(0, || Ok(UdpSocket::bind((path.address(0), 0))?))?;
    near.connect(far.local_addr()?)?;
    far.set_read_timeout(Some(QUIET))?;
    if !is_on {
        use_checksum(&near, false)?;
    }
    if in_bundle > 1 {
        use_segmentation(&near, bytes)?;
    }
    sides.both(
        || {
            let data = vec![0x5A; bytes * in_bundle];
            let begin = Instant::now();
            for _ in 0..packets.div_ceil(in_bundle) {
                near.send(&data).context("a packet")?;
            }
            let sent = packets.div_ceil(in_bundle) * in_bundle * bytes;
            Ok(sent as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9)
        },
        || {
            let mut room = vec![0; bytes];
            while far.recv(&mut room).is_ok() {}
            Ok(())
        },
    )
}
