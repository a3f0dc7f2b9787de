//! Workers stepped by hand, so that one can lag behind another.

use super::*;
use crate::config::ConnectionConfig;
use crate::context::{Context, ContextConfig, DatapathKind, Progress};
use crate::queue_pair::{Keys, new_qp};
use crate::roster::Roster;
use lacuna_datapath::MemNetwork;
use lacuna_engine::{Lane, Machine};
use lacuna_place::placement::Placement;
use lacuna_proto::handshake::info_of;
use lacuna_proto::modes::Mode;
use lacuna_proto::qp::Peer;
use lacuna_secure::SECRET_BYTES;
use lacuna_wire::{QpInfo, Seal};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

const CHANNELS: u8 = 2;
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SOCKET_BYTES: usize = 1 << 20;
/// Enough rounds for everything that can happen without another step.
const ROUNDS: usize = 100;

/// A host with a worker per channel.
struct Host {
    clock: Clock,
    workers: Vec<Worker>,
    roster: Roster,
    addresses: Vec<SocketAddr>,
}

impl Host {
    fn new(network: &MemNetwork) -> Self {
        let clock = Clock::new();
        let (mut workers, mut inboxes, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for channel in 0..CHANNELS {
            let datapath = network.bind(SocketAddr::new(LOCAL, 0), SOCKET_BYTES).unwrap();
            addresses.push(datapath.local_addr());
            let (waiter, waker) = Waiter::new().unwrap();
            let inbox = Arc::new(Inbox::new(waker));
            inboxes.push(inbox.clone());
            let own: Vec<(u8, Box<dyn Datapath>)> = vec![(channel, Box::new(datapath))];
            let index = usize::from(channel);
            let secret = Secret::new([channel; SECRET_BYTES]);
            workers.push(Worker::new(index, clock, own, inbox, waiter, Duration::ZERO, secret));
        }
        let roster = Roster::new(clock, CHANNELS, SOCKET_BYTES, inboxes.into());
        Self { clock, workers, roster, addresses }
    }

    fn open(&self, config: &ConnectionConfig) -> Arc<Shared> {
        let mtu_bytes = config.mtu_bytes.unwrap();
        let geometry = config.geometry(mtu_bytes, CHANNELS).unwrap();
        let keys = Keys::random().unwrap();
        let qkey = keys.qkey;
        let machine = |number| Machine::Sdr(new_qp(number, config, geometry, &keys, 1 << 18));
        self.roster.open_sealed(qkey, Seal::default(), machine).unwrap()
    }

    fn connect(&self, shared: &Shared, info: &[u8]) {
        let info = QpInfo::parse(info).unwrap();
        let peer = Peer {
            queue_pair: info.queue_pair,
            rkey: info.rkey,
            qkey: info.qkey,
            first_psn: info.first_psn,
            credit_bytes: info.credit_bytes,
        };
        shared.lock().addresses = info.channels.into_iter().map(Some).collect();
        let writers = shared.with_qp(|qp| {
            qp.connect(self.clock.now_ns(), peer);
            qp.take_writers()
        });
        self.roster.hand_out(shared.number(), writers.into_iter().map(Lane::Sdr));
    }
}

#[test]
fn the_peer_hears_of_no_receive_before_every_worker_can_place_what_it_sends() {
    let network = MemNetwork::new();
    let mut host = Host::new(&network);
    let peer = Context::new(ContextConfig {
        bind: LOCAL.into(),
        channels: CHANNELS,
        datapath: DatapathKind::Mem(network),
        progress: Progress::Manual,
        ..ContextConfig::default()
    })
    .unwrap();
    let config = ConnectionConfig {
        mode: Mode::Raw,
        mtu_bytes: Some(1024),
        chunk_bytes: 1024,
        ..ConnectionConfig::default()
    };
    let shared = host.open(&config);
    let sender = peer.queue_pair(&config).unwrap();
    host.connect(&shared, &sender.info(LOCAL));
    let info = shared.with_qp(|qp| info_of(qp.config(), host.addresses.clone()));
    sender.connect(&info.emit()).unwrap();
    let now_ns = host.clock.now_ns();
    let buffer = Placement::from_vec(vec![0; 64 << 10]);
    let posted = shared.with_receives(|qp| qp.post_receive(now_ns, buffer)).unwrap();
    let _sent = sender.send(vec![7; 64 << 10], None).unwrap();

    // The second worker has just taken its commands and reads its socket last.
    for _ in 0..ROUNDS {
        host.workers[0].step();
        peer.progress();
    }
    let late = &mut host.workers[1];
    late.engine.step(false, &mut |event| late.owners.tell(event));
    let unknown = late.engine.counters().unknown.load(Ordering::Relaxed);
    assert_eq!(unknown, 0, "packets came to a worker that cannot place them");

    // This mode repairs nothing, so completion shows that every packet was placed.
    while !posted.is_complete() {
        host.workers.iter_mut().for_each(|worker| _ = worker.step());
        peer.progress();
    }
}
