//! The packets of `--wire rdma` to and from an unreliable connection (UC) that is no Lacuna's: WRITE Only with
//! Immediate (`scripts/rxe.sh` runs it against `rdma_rxe`, whose side is `scripts/rxe/uc_peer.c`).
//!
//! ```text
//! roce_writes OWN_ADDRESS THEIR_ADDRESS MINE THEIRS
//! ```
//!
//! Sends 1,000 writes through the transport's datapath, and among them some with a wrong ICRC or key, which
//! must vanish. Then takes 1,000 writes and checks them.

use lacuna::datapath::{
    Burst, BurstBuffers, Datapath, Placer, ReceivedBatch, TrailerOffload, Udp, UdpConfig,
};
use lacuna_wire::{DataHeader, IcrcFlow, Identification, Packet, Qpn, Seal};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

const WRITES: u32 = 1000;
const SLOTS: u32 = 1024;
const SLOT: u32 = 1024;
const PORT: u16 = 4791;
const OWN_QPN: u32 = 0x1234;
const OWN_KEY: u32 = 0x5678;
const END: u32 = u32::MAX;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn bytes_of(n: u32) -> u32 {
    1 + n * 7 % SLOT
}

fn message(n: u32) -> Vec<u8> {
    (0..bytes_of(n)).map(|i| (n * 31 + i) as u8).collect()
}

/// Takes the writes of the other end.
struct Taker {
    own: SocketAddr,
    flow: Option<IcrcFlow>,
    region: Vec<u8>,
    came: u32,
    is_over: bool,
    wrong: Option<String>,
}

impl Taker {
    fn take(&mut self, source: SocketAddr, packet: &[u8]) -> Result<()> {
        if self.flow.as_ref().is_none_or(|flow| !flow.is(source, self.own)) {
            self.flow = IcrcFlow::new(source, self.own);
        }
        let flow = self.flow.as_mut().ok_or("addresses of two families")?;
        flow.check_with(packet, Identification::Any)?;
        let Packet::Data(header, payload) = Seal::Icrc.parse(packet)? else {
            return Err("no write".into());
        };
        if header.immediate == END {
            self.is_over = true;
            return Ok(());
        }
        let n = header.immediate;
        let slot = u64::from(n % SLOTS * SLOT);
        if header.rkey != OWN_KEY || header.address != Some(slot) || payload != message(n) {
            return Err(format!("write {n} is wrong: {header:?}").into());
        }
        self.region[slot as usize..][..payload.len()].copy_from_slice(payload);
        self.came += 1;
        Ok(())
    }
}

impl Placer for Taker {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        let source = batch.source;
        for packet in batch.packets() {
            if let Err(error) = self.take(source, packet) {
                self.wrong.get_or_insert(error.to_string());
            }
        }
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [own, theirs, mine, other] = &arguments[..] else {
        return Err("usage: roce_writes OWN_ADDRESS THEIR_ADDRESS MINE THEIRS".into());
    };
    let (own, theirs): (IpAddr, IpAddr) = (own.parse()?, theirs.parse()?);
    let (own, theirs) = (SocketAddr::new(own, PORT), SocketAddr::new(theirs, PORT));
    let mut datapath = Udp::bind_boxed(UdpConfig::new(own))?;
    datapath.tell_local();
    if datapath.capabilities().trailer != TrailerOffload::Icrc {
        return Err("this datapath makes no ICRCs".into());
    }
    let new = format!("{mine}.new");
    std::fs::write(&new, format!("{OWN_QPN} 5 {OWN_KEY} 0\n"))?;
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
    while std::fs::metadata(format!("{other}.ready")).is_err() {
        std::thread::park_timeout(Duration::from_millis(10));
    }
    let clock = Instant::now();
    let now_ns = |clock: &Instant| clock.elapsed().as_nanos() as u64;
    let mut buffers = BurstBuffers::new();
    let mut psn = first_psn as u32;
    let mut send = |n: u32, key: u32, spoils: bool| -> Result<()> {
        let payload = if n == END { vec![0] } else { message(n) };
        let header = DataHeader {
            dest: Qpn::from_bits(number as u32),
            psn,
            ends_message: false,
            carries_immediate: true,
            address: Some(address + u64::from(n % SLOTS * SLOT)),
            rkey: key,
            length: payload.len() as u32,
            behind: 0,
            immediate: n,
        };
        let mut packet = vec![0; Seal::Icrc.packet_bytes(&header)];
        Seal::Icrc.emit_packet(&header, &mut packet, &payload);
        if spoils {
            packet[0x20] ^= 1;
        } else if key == numbers[2] as u32 {
            psn = (psn + 1) & 0xff_ffff;
        }
        let mut burst: Burst<'_, '_> = buffers.start(theirs);
        burst.offload_trailers(TrailerOffload::Icrc);
        burst.push(&packet, &[], &[]);
        while datapath.send(now_ns(&clock), &burst)? == 0 {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        // There is no flow control.
        std::thread::park_timeout(Duration::from_micros(500));
        Ok(())
    };
    let key = key as u32;
    for n in 0..WRITES {
        send(n, key, false)?;
        if n % 100 == 50 {
            send(n, key, true)?;
            send(n, key ^ 0x55, false)?;
        }
    }
    send(END, key, false)?;
    println!("roce_peer: sent {WRITES} writes, and 20 that must vanish");
    let region = vec![0; (SLOTS * SLOT) as usize];
    let mut taker = Taker { own, flow: None, region, came: 0, is_over: false, wrong: None };
    while !taker.is_over && clock.elapsed() < Duration::from_secs(60) {
        if datapath.receive(now_ns(&clock), &mut taker)? == 0 {
            std::thread::park_timeout(Duration::from_micros(100));
        }
    }
    if let Some(wrong) = taker.wrong {
        return Err(wrong.into());
    }
    if taker.came != WRITES {
        return Err(format!("{} of {WRITES} writes came", taker.came).into());
    }
    println!("roce_peer: {} writes came whole", taker.came);
    Ok(())
}
