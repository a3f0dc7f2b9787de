//! A reliable connection to a peer that is no Lacuna's: a card, or a kernel's RoCE (`scripts/rxe.sh` runs it
//! against `rdma_rxe`, whose side is `scripts/rxe/peer.c`).
//!
//! ```text
//! roce_peer OWN_ADDRESS THEIR_ADDRESS MTU MINE THEIRS [SHIM]
//! ```
//!
//! Writes how its queue pair is reached to the file MINE, waits for THEIRS, and then does all operations to
//! the other end, then takes all of them. A line of the files: QPN PSN RKEY ADDRESS, in decimal.

use lacuna::controller::ControllerConfig;
use lacuna::rc::{
    Done, Flags, Qpn, ROCE_PORT, RcInfo, RecvWork, Remote, SendWork, Settings, ShimSettings, Verb,
};
use lacuna::{Context, ContextConfig, Region, RegionOptions, Rights, Security, SendBuffer, Wire};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

const SIZES: [usize; 6] = [1, 8, 1000, 1024, 5000, 100_000];
const SLOT: u64 = 1 << 17;
const RECEIVES: u64 = 32;
const ROUNDS: usize = 20;
const WAIT: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Message number `n`.
fn message(n: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (n * 31 + i) as u8).collect()
}

fn read(region: &Region, at: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut there = vec![0; bytes];
    region.read(at, &mut there)?;
    Ok(there)
}

fn next(qp: &lacuna::rc::QueuePair) -> Result<Done> {
    let done = qp.wait(WAIT).ok_or_else(|| format!("nothing ends: {:?}", qp.stats()))?;
    done.status.map_err(|failure| format!("{done:?}: {failure}: {:?}", qp.stats()))?;
    Ok(done)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [own, theirs, mtu_bytes, mine, other, shim @ ..] = &arguments[..] else {
        return Err("usage: roce_peer OWN_ADDRESS THEIR_ADDRESS MTU MINE THEIRS [SHIM]".into());
    };
    let (own, theirs): (IpAddr, IpAddr) = (own.parse()?, theirs.parse()?);
    let port = Some(ROCE_PORT);
    // Cards speak in clear.
    let security = Security::Insecure;
    let context = Context::new(ContextConfig {
        bind: own.into(),
        port,
        security,
        ..ContextConfig::default()
    })?;
    let mtu_bytes = mtu_bytes.parse()?;
    let shim: ShimSettings = shim.first().map_or(Ok(ShimSettings::Off), |shim| shim.parse())?;
    let controller = ControllerConfig::Fixed { rate_bits_per_s: 200_000_000 };
    let settings =
        Settings { mtu_bytes, wire: Wire::Rdma, controller, shim, ..Settings::default() };
    let qp = context.rc_queue_pair(&settings)?;
    let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
    let options = || RegionOptions { rights, ..RegionOptions::default() };
    let region = context.register(vec![0; 16 * SLOT as usize], options())?;
    let inbox = context.register(vec![0; (RECEIVES * SLOT) as usize], options())?;
    let into = context.register(vec![0; SLOT as usize], options())?;
    let post_receive = |slot: u64| -> Result<()> {
        let into = inbox.slice(slot * SLOT..(slot + 1) * SLOT)?;
        Ok(qp.post_recv(RecvWork { id: slot, into })?)
    };
    (0..RECEIVES).try_for_each(post_receive)?;

    let described = qp.describe(own);
    let line = format!("{} {} {} 0\n", described.number.bits(), described.first_psn, region.key());
    let new = format!("{mine}.new");
    std::fs::write(&new, line)?;
    std::fs::rename(&new, mine)?;
    let text = loop {
        match std::fs::read_to_string(other) {
            Ok(text) => break text,
            Err(_) => std::thread::park_timeout(Duration::from_millis(10)),
        }
    };
    let numbers: Vec<u64> =
        text.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?;
    let [number, first_psn, key, address] = numbers[..] else {
        return Err(format!("{other} has not four numbers: {text}").into());
    };
    qp.connect_foreign(RcInfo {
        number: Qpn::from_bits(number as u32),
        first_psn: first_psn as u32,
        mtu_bytes,
        answers_max: 16,
        address: SocketAddr::new(theirs, ROCE_PORT),
        nonce: None,
    })?;

    // All operations to the other end.
    let key = key as u32;
    let post = |id: usize, verb: Verb| -> Result<()> {
        qp.post_send(SendWork { id: 1000 + id as u64, verb, flags: Flags::default() })?;
        let done = next(&qp)?;
        if done.id != 1000 + id as u64 {
            return Err(format!("another completion than {id}: {done:?}").into());
        }
        Ok(())
    };
    for _ in 0..ROUNDS {
        for (n, bytes) in SIZES.into_iter().enumerate() {
            let data = || SendBuffer::from(message(n, bytes));
            let remote = |slot: usize| Remote { address: address + slot as u64 * SLOT, key };
            let immediate = Some(n as u32);
            post(n, Verb::Write { data: data(), remote: remote(n), immediate: None })?;
            post(n, Verb::Write { data: data(), remote: remote(n), immediate })?;
            post(n, Verb::Send { data: data(), immediate: None })?;
            let into_slice = into.slice(0..bytes as u64)?;
            post(n, Verb::Read { into: into_slice, remote: remote(8 + n) })?;
            if read(&into, 0, bytes)? != message(50 + n, bytes) {
                return Err(format!("{bytes} bytes were read wrong").into());
            }
        }
    }
    post(0, Verb::Send { data: SendBuffer::from(b"done".to_vec()), immediate: None })?;
    println!("roce_peer: did {} of each operation", ROUNDS * SIZES.len());

    // And of the other end.
    let (mut messages, mut with_immediate) = (0, 0);
    loop {
        let done = next(&qp)?;
        let received = done.received.ok_or("a completion of nothing posted")?;
        let at = done.id * SLOT;
        if let Some(n) = received.immediate {
            let (n, bytes) = (n as usize, done.bytes as usize);
            if bytes != SIZES[n] || read(&region, n as u64 * SLOT, bytes)? != message(n, bytes) {
                return Err(format!("write {n} with immediate is wrong: {done:?}").into());
            }
            with_immediate += 1;
        } else if done.bytes == 4 && read(&inbox, at, 4)? == b"done" {
            break;
        } else {
            let n = messages % SIZES.len();
            let bytes = done.bytes as usize;
            if bytes != SIZES[n] || read(&inbox, at, bytes)? != message(n, bytes) {
                return Err(format!("message {messages} is wrong: {done:?}").into());
            }
            messages += 1;
        }
        post_receive(done.id)?;
    }
    if messages != ROUNDS * SIZES.len() || with_immediate != messages {
        return Err(format!("took {messages} messages, {with_immediate} writes").into());
    }
    println!("roce_peer: took {messages} messages, {with_immediate} writes with immediate");
    println!("roce_peer: {:?}", qp.stats());
    // The last answer is on its way.
    std::thread::park_timeout(Duration::from_millis(500));
    Ok(())
}
