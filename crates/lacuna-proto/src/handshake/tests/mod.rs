//! Both ends of the handshake in virtual time, over a link that delays, cuts and ends what they say;
//! and each end against peers that are not what they should be.

mod accepting;
mod anything;
mod connecting;
mod form;
mod reused;

use super::messages::{MAGIC, encode};
use super::*;
use crate::modes::{Mode, auto};
use crate::probe::Prober;
use crate::qp::{Peer, QpConfig};
use core::net::{Ipv4Addr, SocketAddr};
use lacuna_path::RtoConfig;
use lacuna_path::controller::ControllerConfig;
use lacuna_place::geometry::Geometry;
use lacuna_wire::{ControlWriter, ImmediateSplit, Packet, ReportsInfo};
use proptest::prelude::*;
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// From one end to the other.
const DELAY_NS: u64 = 20 * MS;
const DEADLINE_AFTER_NS: u64 = 10 * SECOND;

pub(super) const PARAMETERS: Parameters = Parameters {
    mode: Mode::Auto,
    chunk_bytes: 1,
    mtu_bytes: None,
    split: ImmediateSplit::DEFAULT,
    generations: 4,
    max_message_bytes: 0,
    tag: 0,
    wire: Wire::Short,
};

const HOST: HostLimits =
    HostLimits { mtu_bytes: None, packet_bytes: Some(1500), header_bytes: 28, channels: 2 };

fn end_with(ports: &[u16]) -> End {
    let ports = ports.to_vec();
    End { queue_pair: 1, rkey: 6, qkey: 7, first_psn: 8, credit_bytes: 1 << 20, ports }
}

fn offer(parameters: Parameters) -> Offer {
    let end = end_with(&[9, 10]);
    Offer {
        parameters,
        end,
        packet_bytes: Some(1500),
        keeps: true,
        reports: None,
        siblings: vec![],
        ends: None,
    }
}

fn connect(now_ns: u64) -> Connect {
    Connect::new(now_ns, offer(PARAMETERS), now_ns + DEADLINE_AFTER_NS, None)
}

/// What an accepting end with this geometry says of its queue pair.
fn info(mode: Mode, geometry: Geometry) -> Vec<u8> {
    let config = QpConfig {
        geometry,
        mode,
        policy: auto::plan,
        controller: ControllerConfig::Bbr,
        rto: RtoConfig::default(),
        queue_pair: 2,
        rkey: 60,
        qkey: 70,
        first_psn: 80,
        credit_bytes: 1 << 21,
        silence_max_ns: SECOND,
    };
    let channel = |index| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 1000 + u16::from(index)));
    info_of(&config, (0..geometry.channels()).map(channel).collect()).emit()
}

// ---- both ends ----

/// Two ends and the ways between them.
struct Pair {
    now_ns: u64,
    connect: Connect,
    accept: Accept,
    host: HostLimits,
    probers: [Option<Prober>; 2],
    /// What is on its way by TCP: when it arrives, at the accepting end or not, and what it is.
    stream: Vec<(u64, bool, Vec<u8>)>,
    /// The same over UDP, with the channel and the packet's length.
    packets: Vec<(u64, bool, u8, Vec<u8>, usize)>,
    /// Longest UDP payload that passes.
    packet_bytes_max: usize,
    /// How much later than TCP the accepting end's packets arrive.
    udp_late_ns: u64,
    /// The connecting end's packets come to nobody.
    is_deaf: bool,
    /// TCP is delivered in pieces of no more than this.
    piece_bytes: usize,
    /// Whether the accepting end takes the peer.
    takes: bool,
    connected: Option<(u64, ConnectStep)>,
    accepted: Option<(u64, AcceptStep)>,
}

impl Pair {
    fn new() -> Self {
        Self {
            now_ns: SECOND,
            connect: connect(SECOND),
            accept: Accept::new(SECOND + DEADLINE_AFTER_NS),
            host: HOST,
            probers: [None, None],
            stream: Vec::new(),
            packets: Vec::new(),
            packet_bytes_max: 1472,
            udp_late_ns: 0,
            is_deaf: false,
            piece_bytes: usize::MAX,
            takes: true,
            connected: None,
            accepted: None,
        }
    }

    /// Lets time pass until both ends have an outcome.
    fn run(&mut self) {
        for _ in 0..60_000 {
            self.step();
            if self.connected.is_some() && self.accepted.is_some() {
                return;
            }
            self.now_ns += MS;
        }
        panic!("no end: {:?} {:?}", self.connected, self.accepted);
    }

    fn step(&mut self) {
        let now_ns = self.now_ns;
        let is_here = |at_ns: &u64| *at_ns <= now_ns;
        for (_, to_accept, bytes) in self.stream.extract_if(.., |(at_ns, ..)| is_here(at_ns)) {
            for piece in bytes.chunks(self.piece_bytes.min(bytes.len())) {
                let taken = match to_accept {
                    true => self.accept.on_bytes(now_ns, piece),
                    false => self.connect.on_bytes(now_ns, piece),
                };
                assert_eq!(taken, piece.len(), "nobody says more than its message here");
            }
        }
        let there = self.probers.each_ref().map(Option::is_some);
        // The owner keeps those that come before anybody can take them.
        let can_take = |to_accept: bool| there[usize::from(to_accept)];
        for (_, to_accept, channel, body, length) in self
            .packets
            .extract_if(.., |(at_ns, to_accept, ..)| is_here(at_ns) && can_take(*to_accept))
        {
            if let Some(prober) = &mut self.probers[usize::from(to_accept)] {
                prober.on_control(now_ns, channel, &body, length);
            }
        }
        if self.connect.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
            self.connect.on_timeout(now_ns);
        }
        if self.accept.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
            self.accept.on_timeout(now_ns);
        }
        self.serve_accept();
        self.serve_connect();
        self.send();
        // The last byte that was sent may be the end of it.
        self.serve_accept();
        self.serve_connect();
    }

    fn serve_accept(&mut self) {
        match self.accept.poll() {
            Some(AcceptStep::Decide(hello)) => {
                let judged = hello.negotiate(&self.host);
                let judged = judged.and_then(|judged| match self.takes {
                    true => Ok(judged),
                    false => Err("not today\u{1b}".to_owned()),
                });
                match judged {
                    Err(reason) => self.accept.refuse(reason),
                    Ok((parameters, geometry)) => {
                        // Its full packets go out beside the welcome.
                        self.probers[1] = Some(Prober::new(
                            self.now_ns,
                            (2, 70),
                            (hello.end.queue_pair, hello.end.qkey),
                            geometry.channels(),
                            (geometry.seal(), vec![geometry.mtu_bytes()]),
                            DEADLINE_AFTER_NS,
                        ));
                        let is_mtu_given = parameters.mtu_bytes.is_some();
                        let info = info(parameters.mode, geometry);
                        let siblings = hello.siblings();
                        let keeps = hello.keeps;
                        self.accept.welcome(Welcoming { is_mtu_given, info, keeps, siblings });
                    }
                }
            }
            Some(outcome) => self.accepted = Some((self.now_ns, outcome)),
            None => {}
        }
    }

    fn serve_connect(&mut self) {
        match self.connect.poll() {
            Some(ConnectStep::Probe(plan)) => {
                let peer = (plan.peer.queue_pair, plan.peer.qkey);
                let channels = plan.ports.len() as u8;
                let (candidates, probe_timeout_ns) =
                    ((plan.seal, plan.candidates), plan.probe_timeout_ns);
                let mut prober =
                    Prober::new(self.now_ns, (1, 7), peer, channels, candidates, probe_timeout_ns);
                for (_, _, channel, body, length) in
                    self.packets.extract_if(.., |(at_ns, to, ..)| !*to && *at_ns <= self.now_ns)
                {
                    prober.on_control(self.now_ns, channel, &body, length);
                }
                self.probers[0] = Some(prober);
                self.connect.on_probing(self.now_ns, Some(2 * DELAY_NS));
            }
            Some(outcome) => self.connected = Some((self.now_ns, outcome)),
            None => {}
        }
        if let Some(prober) = &self.probers[0] {
            self.connect.on_probe(self.now_ns, prober);
        }
    }

    fn send(&mut self) {
        let arrives_ns = self.now_ns + DELAY_NS;
        let said = self.connect.poll_bytes().to_vec();
        if !said.is_empty() {
            self.connect.on_sent(said.len());
            self.stream.push((arrives_ns, true, said));
        }
        let said = self.accept.poll_bytes().to_vec();
        if !said.is_empty() {
            self.accept.on_sent(said.len());
            self.stream.push((arrives_ns, false, said));
        }
        // Behind a goodbye nobody listens.
        if !matches!(self.connected, None | Some((_, ConnectStep::Probe(_)))) {
            self.stream.retain(|(_, to_accept, _)| !to_accept);
        }
        let mut writer = ControlWriter::new(1200);
        for (index, prober) in self.probers.iter_mut().enumerate() {
            let Some(prober) = prober else { continue };
            while let Some((channel, packet)) =
                prober.poll_control(self.now_ns, |_| true, &mut writer)
            {
                let Ok(Packet::Control(_, body)) = lacuna_wire::parse(packet) else { panic!() };
                let late_ns = if index == 0 { 0 } else { self.udp_late_ns };
                if packet.len() <= self.packet_bytes_max && !(index == 0 && self.is_deaf) {
                    let (body, length) = (body.to_vec(), packet.len());
                    let arrives_ns = arrives_ns + late_ns;
                    self.packets.push((arrives_ns, index == 0, channel, body, length));
                }
            }
        }
    }

    fn agreed(&self) -> (u64, &Agreed) {
        match &self.connected {
            Some((at_ns, ConnectStep::Connected(agreed))) => (*at_ns - SECOND, agreed),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn connecting_takes_one_flight_each_way() {
    let mut pair = Pair::new();
    pair.run();
    let (took_ns, agreed) = pair.agreed();
    assert_eq!(took_ns, 2 * DELAY_NS);
    assert_eq!(agreed.rtt, Rtt::Measured(2 * DELAY_NS), "TCP's, which the exchange agrees with");
    assert_eq!((agreed.geometry.mtu_bytes(), agreed.geometry.channels()), (1436, 2));
    assert_eq!((agreed.peer.queue_pair, &agreed.ports[..]), (2, &[1000, 1001][..]));
    assert!(agreed.keeps);
    assert!(
        matches!(pair.accepted, Some((at_ns, AcceptStep::Welcomed)) if at_ns == SECOND + DELAY_NS)
    );
}

#[test]
fn words_may_come_byte_by_byte() {
    let mut pair = Pair::new();
    pair.piece_bytes = 1;
    pair.run();
    assert_eq!(pair.agreed().0, 2 * DELAY_NS);
}

#[test]
fn the_end_with_fewer_channels_decides() {
    let mut pair = Pair::new();
    pair.host.channels = 1;
    pair.run();
    let (_, agreed) = pair.agreed();
    assert_eq!((agreed.geometry.channels(), agreed.ports.len()), (1, 1));
}

#[test]
fn of_two_sizes_that_are_given_the_smaller_holds() {
    for (here, there, chosen) in
        [(Some(1200), None, 1200), (None, Some(1000), 1000), (Some(1200), Some(1000), 1000)]
    {
        let mut pair = Pair::new();
        let parameters = Parameters { mtu_bytes: here, ..PARAMETERS };
        pair.connect = Connect::new(SECOND, offer(parameters), SECOND + DEADLINE_AFTER_NS, None);
        pair.host.mtu_bytes = there;
        pair.run();
        let (_, agreed) = pair.agreed();
        assert_eq!(
            (agreed.geometry.mtu_bytes(), agreed.parameters.mtu_bytes),
            (chosen, Some(chosen))
        );
    }
}

#[test]
fn a_path_that_is_narrower_than_tcp_knows_ends_in_a_goodbye_and_the_size_that_passes() {
    let mut pair = Pair::new();
    pair.packet_bytes_max = 1400;
    pair.run();
    assert!(matches!(pair.connected, Some((_, ConnectStep::Reconnect { mtu_bytes: 1360 }))));
}

#[test]
fn a_size_that_is_given_and_does_not_pass_is_no_answer() {
    let mut pair = Pair::new();
    let parameters = Parameters { mtu_bytes: Some(1436), ..PARAMETERS };
    pair.connect = Connect::new(SECOND, offer(parameters), SECOND + DEADLINE_AFTER_NS, None);
    pair.packet_bytes_max = 1400;
    pair.run();
    let Some((at_ns, ConnectStep::Failed(error))) = &pair.connected else {
        panic!("{:?}", pair.connected)
    };
    // Three quarters of what was left when the welcome came.
    let waited_ns = (DEADLINE_AFTER_NS - 2 * DELAY_NS) * 3 / 4;
    assert_eq!(*error, ConnectError::NoUdp { answered: 0, channels: 2, waited_ns });
    assert!(*at_ns >= SECOND + 2 * DELAY_NS + waited_ns && *at_ns < SECOND + DEADLINE_AFTER_NS);
}

#[test]
fn who_is_not_taken_hears_why() {
    let mut pair = Pair::new();
    pair.takes = false;
    pair.run();
    let Some((_, ConnectStep::Failed(ConnectError::Refused(reason)))) = &pair.connected else {
        panic!()
    };
    assert_eq!(reason, "not today\\u{1b}", "and nothing that a terminal would obey");
    let Some((_, AcceptStep::Failed(AcceptError::Unacceptable(reason)))) = &pair.accepted else {
        panic!()
    };
    assert_eq!(reason, "not today\\u{1b}");
}

// ---- the words themselves ----

#[test]
fn the_hello_is_these_bytes() {
    let connect = connect(0);
    let body = format!(
        "{{\"version\":7,\"agent\":\"lacuna/{}\",\"mode\":\"auto\",\"chunk_bytes\":1,\
         \"mtu_bytes\":null,\"packet_bytes\":1500,\"generations\":4,\"split\":[10,18,4],\
         \"max_message_bytes\":0,\"tag\":0,\"keeps\":true,\"end\":{{\"queue_pair\":1,\"rkey\":6,\
         \"qkey\":7,\"first_psn\":8,\"credit_bytes\":1048576,\"ports\":[9,10]}}}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(connect.poll_bytes(), message(body.as_bytes()));
}

#[test]
fn the_answers_are_these_bytes() {
    let mut accept = Accept::new(SECOND);
    accept.on_bytes(0, connect(0).poll_bytes());
    assert!(matches!(accept.poll(), Some(AcceptStep::Decide(_))));
    accept.welcome(Welcoming {
        is_mtu_given: false,
        info: vec![1, 2],
        keeps: true,
        siblings: vec![],
    });
    let body = format!(
        "{{\"Accepted\":{{\"version\":7,\"agent\":\"lacuna/{}\",\"is_mtu_given\":false,\
         \"info\":[1,2],\"keeps\":true}}}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(accept.poll_bytes(), message(body.as_bytes()));
    assert_eq!(busy("full".to_owned()), message(br#"{"Busy":{"version":7,"reason":"full"}}"#));
}

fn message(body: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &(body.len() as u32).to_be_bytes(), body].concat()
}

// ---- one end and what it is told ----

/// A hello as it should be.
fn hello() -> Value {
    json!({
        "version": PROTOCOL_VERSION,
        "agent": "test",
        "mode": "sr",
        "chunk_bytes": 65536,
        "mtu_bytes": null,
        "generations": 4,
        "split": [10, 18, 4],
        "max_message_bytes": 0,
        "end": end(1, &[9]),
    })
}

fn end(queue_pair: u32, ports: &[u16]) -> Value {
    json!({
        "queue_pair": queue_pair, "rkey": 6, "qkey": 7, "first_psn": 8, "credit_bytes": 1 << 20,
        "ports": ports,
    })
}

/// What accepting makes of a peer that says this, and what the peer is told.
fn accept_from(bytes: &[u8]) -> (Option<AcceptStep>, Vec<u8>) {
    let mut accept = Accept::new(SECOND);
    let mut rest = bytes;
    while accept.wanted() > 0 && !rest.is_empty() {
        let (now, later) = rest.split_at(accept.wanted().min(rest.len()));
        accept.on_bytes(0, now);
        rest = later;
    }
    let mut asked = accept.poll();
    if let Some(AcceptStep::Decide(hello)) = &asked
        && let Err(reason) = hello.negotiate(&HOST)
    {
        accept.refuse(reason);
    }
    let answer = accept.poll_bytes().to_vec();
    if !answer.is_empty() {
        accept.on_sent(answer.len());
        asked = accept.poll();
    }
    (asked, answer)
}

fn connect_to_bytes(bytes: &[u8]) -> Option<ConnectStep> {
    let mut connect = connect(0);
    connect.on_sent(connect.poll_bytes().len());
    connect.on_bytes(1, bytes);
    connect.poll()
}

fn connect_to(answer: &Value) -> ConnectError {
    match connect_to_bytes(&message(answer.to_string().as_bytes())) {
        Some(ConnectStep::Failed(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn over_reused(rtt_ns: u64) -> Connect {
    let reused = Some((goodbye::Goodbye::default(), rtt_ns));
    let mut connect = Connect::new(0, offer(PARAMETERS), DEADLINE_AFTER_NS, reused);
    connect.on_sent(connect.poll_bytes().len());
    connect
}
