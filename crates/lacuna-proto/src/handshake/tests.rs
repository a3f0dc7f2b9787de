//! Both ends of the handshake in virtual time, over a link that delays, cuts and ends what they say;
//! and each end against peers that are not what they should be.

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
                            vec![geometry.mtu_bytes()],
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
                let (candidates, probe_timeout_ns) = (plan.candidates, plan.probe_timeout_ns);
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

// ---- the accepting end and strangers ----

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

fn not_lacuna(step: Option<AcceptStep>) -> String {
    match step {
        Some(AcceptStep::Failed(AcceptError::Message(MessageError::NotLacuna(why)))) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn garbage_is_named() {
    let huge = [&MAGIC[..], &[0xFF; 4]].concat();
    let nested = message(&[b'['; 16_000]);
    let (bare, other) = (message(b"{}"), message(b"\x1b[2Jnot json"));
    let cases: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n", "it began with \"GET / HT\""),
        (&[0; 64], "it began with"),
        (&huge, "a message of 4294967295 bytes"),
        (&nested, "while waiting for the hello"),
        (&bare, "missing field `version`"),
        (&other, "while waiting for the hello"),
    ];
    for (bytes, expected) in cases {
        let (asked, answer) = accept_from(bytes);
        let why = not_lacuna(asked);
        assert!(why.contains(expected) && !why.contains('\x1b'), "{why}");
        assert!(answer.is_empty(), "a stranger is told nothing");
    }
}

#[test]
fn a_message_that_ends_anywhere_is_a_broken_connection() {
    let whole = connect(0).poll_bytes().to_vec();
    for length in 0..whole.len() {
        let mut accept = Accept::new(SECOND);
        assert_eq!(accept.on_bytes(0, &whole[..length]), length);
        assert!(accept.poll().is_none() && !accept.has_read_hello());
        assert_eq!(accept.has_begun(), length > 0);
        accept.on_broken();
        let doing = "waiting for the hello";
        let broken = AcceptError::Broken { doing };
        assert!(
            matches!(accept.poll(), Some(AcceptStep::Failed(error)) if error == broken),
            "{length}"
        );
        assert_eq!((accept.wanted(), accept.poll_timeout()), (0, None));
    }
    let mut accept = Accept::new(SECOND);
    accept.on_bytes(0, &whole);
    accept.poll();
    accept.welcome(Welcoming {
        is_mtu_given: false,
        info: info(Mode::Auto, PARAMETERS.geometry(1436, 2).unwrap()),
        keeps: false,
        siblings: vec![],
    });
    let welcome = accept.poll_bytes().to_vec();
    for length in 0..welcome.len() {
        let mut connect = connect(0);
        connect.on_sent(whole.len());
        assert_eq!(connect.on_bytes(1, &welcome[..length]), length);
        assert!(connect.poll().is_none());
        connect.on_broken(1);
        let broken = ConnectError::Broken { doing: "waiting for the welcome" };
        assert!(
            matches!(connect.poll(), Some(ConnectStep::Failed(error)) if error == broken),
            "{length}"
        );
    }
}

#[test]
fn nothing_behind_the_message_is_taken() {
    let hello = message(hello().to_string().as_bytes());
    let said = [&hello[..], &goodbye::message(b"last"), &hello].concat();
    let mut first = Accept::new(SECOND);
    assert_eq!(first.on_bytes(0, &said), hello.len());
    assert_eq!((first.wanted(), first.on_bytes(0, &said)), (0, 0));
    // Who has the connection next begins with the goodbye, wherever its last user stopped in it.
    for cut in 0..=4 + 4 {
        let (rest, mut goodbye) = (&said[hello.len()..], goodbye::Goodbye::default());
        let mut taken = 0;
        while taken < cut {
            goodbye.take(&rest[taken..taken + 1]).unwrap();
            taken += 1;
        }
        let mut second = Accept::after_goodbye(goodbye, SECOND);
        assert_eq!(second.on_bytes(0, &rest[cut..]), rest.len() - cut);
        assert!(matches!(second.poll(), Some(AcceptStep::Decide(_))), "{cut}");
    }
}

#[test]
fn another_version_is_told_apart_from_nonsense() {
    // Whatever else the hello of another version holds.
    let newer = json!({ "version": 9, "something": "new" });
    let (asked, answer) = accept_from(&message(newer.to_string().as_bytes()));
    let error = AcceptError::Message(MessageError::Version { there: 9 });
    assert!(matches!(asked, Some(AcceptStep::Failed(failed)) if failed == error));
    let refusal: Value = serde_json::from_slice(&answer[12..]).unwrap();
    assert_eq!(refusal["Refused"]["version"], PROTOCOL_VERSION);
    assert_eq!(refusal["Refused"]["reason"], "this end speaks version 7");

    let refusal = json!({ "Refused": { "version": 9, "reason": "this end speaks version 9" } });
    let error = connect_to(&refusal);
    assert_eq!(error, ConnectError::Message(MessageError::Version { there: 9 }));
}

#[test]
fn impossible_parameters_are_refused_with_the_numbers() {
    let cases = [
        ("mtu_bytes", json!(u32::MAX), "mtu of 4294967295 bytes"),
        ("mtu_bytes", json!(1), "mtu of 1 bytes"),
        ("mtu_bytes", json!(0), "mtu of 0 bytes"),
        ("chunk_bytes", json!(0), "chunk of 0 packets"),
        ("generations", json!(0), "0 generations"),
        ("generations", json!(255), "255 generations"),
        ("split", json!([10, 18, 3]), "3 bits"),
        ("split", json!([255, 255, 255]), "255"),
        ("split", json!([0, 0, 32]), "0"),
        ("mode", json!("hope"), "hope"),
        ("mode", json!("ec:mds:0:8"), "k = 0, m = 8"),
        ("mode", json!("ec:mds:200:56"), "200 + 56"),
        ("mode", json!("ec:xor:4:8"), "m = 8 is more than k = 4"),
        ("end", end(1, &[]), "0 channels"),
        ("end", end(1, &[1; 17]), "17 channels"),
        ("end", end(1, &[9, 0]), "port 0 for channel 1"),
        ("end", end(0, &[9]), "queue pair 0"),
        ("end", end(u32::MAX, &[9]), "queue pair 4294967295"),
    ];
    for (field, value, expected) in cases {
        let mut hello = hello();
        hello[field] = value;
        let (asked, answer) = accept_from(&message(hello.to_string().as_bytes()));
        let Some(AcceptStep::Failed(AcceptError::Unacceptable(reason))) = asked else {
            panic!("{field}")
        };
        assert!(reason.contains(expected), "{field}: {reason}");
        let refusal: Value = serde_json::from_slice(&answer[12..]).unwrap();
        let told = refusal["Refused"]["reason"].as_str().unwrap();
        assert!(told.contains(expected), "{field}: the peer is told {told}");
    }
}

#[test]
fn a_code_over_chunks_that_do_not_fit_the_message_is_refused_with_the_numbers() {
    for (chunk_bytes, max_message_bytes, expected) in [
        (1 << 20, 1 << 16, "must be 1 to"),
        (1 << 31, 0, "use smaller chunks"),
        (u64::MAX, 0, "use smaller chunks"),
    ] {
        let mut hello = hello();
        hello["mode"] = json!("ec");
        hello["chunk_bytes"] = json!(chunk_bytes);
        hello["max_message_bytes"] = json!(max_message_bytes);
        let (asked, _) = accept_from(&message(hello.to_string().as_bytes()));
        let Some(AcceptStep::Failed(AcceptError::Unacceptable(reason))) = asked else { panic!() };
        assert!(reason.contains(expected), "{reason}");
    }
}

#[test]
fn absurd_lengths_are_cut_and_overflow_nothing() {
    for field in ["chunk_bytes", "max_message_bytes", "tag", "packet_bytes"] {
        for value in [1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            let mut hello = hello();
            hello[field] = json!(value);
            let (asked, _) = accept_from(&message(hello.to_string().as_bytes()));
            match asked {
                Some(AcceptStep::Decide(_)) => {}
                // It has 32 bits.
                other => assert!(field == "packet_bytes" && not_lacuna(other).contains("u32")),
            }
        }
    }
    assert!(PARAMETERS.geometry(u32::MAX, 1).is_err());
    assert!(PARAMETERS.geometry(0, 1).is_err());
}

#[test]
fn a_round_trip_over_udp_that_is_longer_than_over_tcp_is_measured_if_the_peer_answers_soon() {
    let late_ns = 30 * MS;
    let mut pair = Pair { udp_late_ns: late_ns, ..Pair::new() };
    pair.run();
    let (_, agreed) = pair.agreed();
    assert_eq!(agreed.rtt, Rtt::Measured(2 * DELAY_NS + late_ns));

    // An accepting end without threads was interrupted before its first packets left, and goes on only when
    // its application calls, which may wait here.
    let mut pair = Pair { udp_late_ns: late_ns, is_deaf: true, ..Pair::new() };
    pair.run();
    let (took_ns, agreed) = pair.agreed();
    assert_eq!(agreed.rtt, Rtt::Guessed(2 * DELAY_NS, 2 * DELAY_NS + 2 * late_ns));
    assert!(took_ns < DEADLINE_AFTER_NS / 10, "{took_ns}");
}

#[test]
fn who_says_nothing_has_its_time() {
    let mut accept = Accept::new(SECOND);
    accept.on_bytes(0, MAGIC);
    accept.on_timeout(SECOND - 1);
    assert!(accept.poll().is_none());
    assert_eq!(accept.poll_timeout(), Some(SECOND));
    accept.on_timeout(SECOND);
    let error = AcceptError::TimedOut { doing: "waiting for the hello" };
    assert!(matches!(accept.poll(), Some(AcceptStep::Failed(failed)) if failed == error));
    // What comes later changes nothing.
    accept.on_bytes(SECOND, &[1; 99]);
    accept.on_broken();
    accept.on_timeout(u64::MAX);
    assert!(accept.poll().is_none());
}

// ---- the connecting end and strangers ----

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

#[test]
fn a_listener_that_is_something_else_is_named() {
    let Some(ConnectStep::Failed(error)) = connect_to_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    else {
        panic!()
    };
    assert!(error.to_string().contains("it began with \"HTTP/1.1\""), "{error}");

    let refusal = |reason| json!({ "Refused": { "version": PROTOCOL_VERSION, "reason": reason } });
    assert_eq!(
        connect_to(&refusal("full\u{1b}[31m")),
        ConnectError::Refused("full\\u{1b}[31m".into())
    );

    let accepted = |info: Vec<u8>| {
        json!({ "Accepted":
            { "version": PROTOCOL_VERSION, "agent": "test", "is_mtu_given": false, "info": info } })
    };
    let error = connect_to(&accepted([&b"LCQP"[..], &[0; 60]].concat()));
    assert!(matches!(error, ConnectError::Info(_)), "{error}");

    // Another geometry than this end's parameters make.
    let other = Parameters { generations: 2, ..PARAMETERS }.geometry(1436, 2).unwrap();
    let error = connect_to(&accepted(info(Mode::Auto, other)));
    let what = "the number of generations";
    assert_eq!(error, ConnectError::Disagreement(Disagreement::Number { what, here: 4, there: 2 }));
    let more = Parameters { mode: Mode::SR, ..PARAMETERS }.geometry(1436, 2).unwrap();
    let error = connect_to(&accepted(info(Mode::SR, more)));
    assert!(matches!(error, ConnectError::Disagreement(Disagreement::Code { .. })), "{error}");
}

#[test]
fn a_channel_at_port_0_is_no_channel() {
    let geometry = PARAMETERS.geometry(1436, 2).unwrap();
    let mut info = lacuna_wire::QpInfo::parse(&info(Mode::Auto, geometry)).unwrap();
    info.channels[1].set_port(0);
    let accepted = json!({ "Accepted": { "version": PROTOCOL_VERSION, "agent": "test",
        "is_mtu_given": false, "info": info.emit() } });
    let error = connect_to(&accepted).to_string();
    assert!(error.contains("port 0 for channel 1"), "{error}");
}

#[test]
fn a_listener_that_says_nothing_is_waited_for_until_the_deadline() {
    let mut connect = connect(0);
    assert_eq!(connect.doing(), "introducing itself");
    connect.on_sent(connect.poll_bytes().len());
    connect.on_timeout(DEADLINE_AFTER_NS - 1);
    assert!(connect.poll().is_none());
    assert_eq!(connect.poll_timeout(), Some(DEADLINE_AFTER_NS));
    connect.on_timeout(DEADLINE_AFTER_NS);
    let error = ConnectError::TimedOut { doing: "waiting for the welcome" };
    assert!(matches!(connect.poll(), Some(ConnectStep::Failed(failed)) if failed == error));
}

#[test]
fn a_goodbye_behind_the_welcome_ends_the_search() {
    let geometry = PARAMETERS.geometry(1436, 2).unwrap();
    let welcome = encode(&messages::Welcome::Accepted {
        version: PROTOCOL_VERSION,
        agent: "test".to_owned(),
        is_mtu_given: false,
        info: info(Mode::Auto, geometry),
        keeps: false,
        siblings: vec![],
    });
    let mut connect = connect(0);
    connect.on_sent(connect.poll_bytes().len());
    assert_eq!(connect.on_bytes(MS, &[&welcome[..], &[0; 4]].concat()), welcome.len());
    assert!(matches!(connect.poll(), Some(ConnectStep::Probe(_))));
    connect.on_probing(MS, None);
    connect.on_goodbye();
    let Some(ConnectStep::Connected(agreed)) = connect.poll() else { panic!() };
    assert_eq!(agreed.rtt, Rtt::Guessed(MS, MS), "what the exchange took");
}

// ---- a control connection that is reused ----

fn reused(rtt_ns: u64) -> Connect {
    let reused = Some((goodbye::Goodbye::default(), rtt_ns));
    let mut connect = Connect::new(0, offer(PARAMETERS), DEADLINE_AFTER_NS, reused);
    connect.on_sent(connect.poll_bytes().len());
    connect
}

#[test]
fn a_reused_connection_that_breaks_or_acknowledges_nothing_is_dead() {
    let mut connect = reused(0);
    connect.on_broken(1);
    assert!(matches!(connect.poll(), Some(ConnectStep::Stale(ConnectError::Broken { .. }))));

    // A goodbye of the last use that is none.
    let mut connect = reused(0);
    connect.on_bytes(1, &[0xFF; 4]);
    assert!(matches!(connect.poll(), Some(ConnectStep::Stale(_))));

    let mut connect = reused(50 * MS);
    assert_eq!(connect.poll_timeout(), Some(SECOND + 200 * MS));
    connect.on_timeout(SECOND + 200 * MS);
    assert!(matches!(connect.poll(), Some(ConnectStep::CheckDelivery)));
    connect.on_delivery(false);
    assert!(matches!(connect.poll(), Some(ConnectStep::Stale(ConnectError::TimedOut { .. }))));
}

#[test]
fn a_hello_that_has_arrived_is_waited_with() {
    let mut connect = reused(0);
    connect.on_timeout(SECOND);
    assert!(matches!(connect.poll(), Some(ConnectStep::CheckDelivery)));
    connect.on_delivery(true);
    assert_eq!((connect.poll().is_none(), connect.poll_timeout()), (true, Some(DEADLINE_AFTER_NS)));
    connect.on_timeout(DEADLINE_AFTER_NS);
    assert!(matches!(connect.poll(), Some(ConnectStep::Failed(ConnectError::TimedOut { .. }))));
}

#[test]
fn a_refusal_over_a_reused_connection_is_a_refusal() {
    let mut connect = reused(0);
    let refusal = json!({ "Refused": { "version": PROTOCOL_VERSION, "reason": "no" } });
    let said = [&[0; 4][..], &message(refusal.to_string().as_bytes())].concat();
    assert_eq!(connect.on_bytes(1, &said), said.len());
    assert!(matches!(connect.poll(), Some(ConnectStep::Failed(ConnectError::Refused(_)))));
}

#[test]
fn an_accepting_end_reports_as_the_connecting_ends_controller_wants() {
    let wanted = ReportsInfo {
        bytes_max: 16 << 10,
        delay_ns_min: 20_000,
        delay_ns_max: 100_000,
        gap_delay_ns_min: 10_000,
        per_rtt: 4,
        on_mark: true,
    };
    let heard = |reports| {
        let connect =
            Connect::new(0, Offer { reports, ..offer(PARAMETERS) }, DEADLINE_AFTER_NS, None);
        let mut accept = Accept::new(DEADLINE_AFTER_NS);
        accept.on_bytes(1, connect.poll_bytes());
        let Some(AcceptStep::Decide(hello)) = accept.poll() else { panic!("no hello") };
        hello.reports()
    };
    assert_eq!(heard(Some(wanted)).and_then(|policy| policy.to_peer()), Some(wanted));
    assert_eq!(heard(None), None);
}

#[test]
fn siblings_are_agreed_on_if_both_ends_know_them() {
    let peer = Peer { queue_pair: 300, rkey: 1, qkey: 2, first_psn: 3, credit_bytes: 4 };
    let here = Sibling { role: Role::OneSided, peer };
    let there = Sibling { role: Role::OneSided, peer: Peer { queue_pair: 400, ..peer } };
    let agreed = |offered: &[Sibling], answered: &[Sibling]| {
        let siblings = offered.to_vec();
        let offer = Offer { siblings, ..offer(PARAMETERS) };
        let mut connect = Connect::new(0, offer, DEADLINE_AFTER_NS, None);
        let mut accept = Accept::new(DEADLINE_AFTER_NS);
        accept.on_bytes(1, connect.poll_bytes());
        let Some(AcceptStep::Decide(hello)) = accept.poll() else { panic!("no hello") };
        assert_eq!(hello.siblings(), offered);
        let info = info(Mode::Auto, PARAMETERS.geometry(1436, 2).unwrap());
        let (is_mtu_given, keeps, siblings) = (false, false, answered.to_vec());
        accept.welcome(Welcoming { is_mtu_given, info, keeps, siblings });
        connect.on_sent(connect.poll_bytes().len());
        connect.on_bytes(2, accept.poll_bytes());
        let Some(ConnectStep::Probe(_)) = connect.poll() else { panic!("not welcome") };
        connect.on_probing(3, Some(1));
        connect.on_goodbye();
        let Some(ConnectStep::Connected(agreed)) = connect.poll() else { panic!("not agreed") };
        agreed.siblings
    };
    assert_eq!(agreed(&[here], &[there]), [there]);
    assert_eq!(agreed(&[here], &[]), []);
    assert_eq!(agreed(&[], &[there]), [], "nobody asked for it");
}

// ---- the form of packets ----

fn ends(here: &str, peer: &str) -> Option<WireEnds> {
    Some(WireEnds { here: here.parse().unwrap(), peer: peer.parse().unwrap() })
}

/// The hello that asks for the form of RDMA, as the accepting end reads it.
fn rdma_hello() -> Box<Hello> {
    let parameters = Parameters { wire: Wire::Rdma, ..PARAMETERS };
    let offer = Offer { ends: ends("10.0.0.1:1", "10.0.0.2:2"), ..offer(parameters) };
    let connect = Connect::new(0, offer, DEADLINE_AFTER_NS, None);
    let mut accept = Accept::new(DEADLINE_AFTER_NS);
    accept.on_bytes(1, connect.poll_bytes());
    let Some(AcceptStep::Decide(hello)) = accept.poll() else { panic!("no hello") };
    hello
}

#[test]
fn the_connecting_ends_form_of_packets_holds_for_both() {
    let (parameters, geometry) = rdma_hello().negotiate(&HOST).unwrap();
    assert_eq!((parameters.wire, geometry.seal()), (Wire::Rdma, Wire::Rdma.seal()));
    // All packets have addresses, and full ones fit all the same.
    assert_eq!(geometry.overhead_bytes(false), geometry.overhead_bytes(true));
    assert_eq!(geometry.mtu_bytes(), 1436);
}

#[test]
fn an_address_that_was_translated_is_named() {
    let hello = rdma_hello();
    for (here, passes) in [
        (ends("10.0.0.2:2", "10.0.0.1:1"), true),
        (ends("[::ffff:10.0.0.2]:2", "[::ffff:10.0.0.1]:1"), true),
        (None, true),
        (ends("10.0.0.2:2", "192.0.2.7:1"), false),
        (ends("10.0.0.2:2", "10.0.0.1:7"), false),
        (ends("192.168.0.2:2", "10.0.0.1:1"), false),
        (ends("10.0.0.2:8", "10.0.0.1:1"), false),
    ] {
        assert_eq!(hello.check_path(here).is_ok(), passes, "{here:?}");
    }
    let error = hello.check_path(ends("10.0.0.2:2", "192.0.2.7:99")).unwrap_err();
    assert!(error.contains("(your 10.0.0.1:1 is 192.0.2.7:99 here)"), "{error}");
}

#[test]
fn a_form_that_this_end_does_not_know_is_refused() {
    let mut hello = hello();
    hello["wire"] = json!({ "form": "long", "ends": null });
    let mut accept = Accept::new(DEADLINE_AFTER_NS);
    accept.on_bytes(1, &message(hello.to_string().as_bytes()));
    let Some(AcceptStep::Decide(hello)) = accept.poll() else { panic!("no hello") };
    let error = hello.negotiate(&HOST).unwrap_err();
    assert!(error.contains("unknown wire \"long\""), "{error}");
}

/// A peer of before does not read that field of the hello, and welcomes with the form that it knows.
#[test]
fn a_peer_that_does_not_know_the_form_is_noticed() {
    let parameters = Parameters { wire: Wire::Rdma, ..PARAMETERS };
    let mut connect = Connect::new(0, offer(parameters), DEADLINE_AFTER_NS, None);
    let info = info(Mode::Auto, PARAMETERS.geometry(1436, 2).unwrap());
    let accepted = json!({ "Accepted":
        { "version": PROTOCOL_VERSION, "agent": "test", "is_mtu_given": false, "info": info } });
    connect.on_bytes(1, &message(accepted.to_string().as_bytes()));
    let Some(ConnectStep::Failed(error)) = connect.poll() else { panic!("it agrees") };
    let text = error.to_string();
    assert!(text.contains("the form of packets: rdma here, short at the peer"), "{text}");
}

// ---- anything ----

proptest! {
    /// Whatever a peer says, in whatever pieces: no panic, no byte beyond the message, one outcome.
    #[test]
    fn nothing_that_is_said_does_harm(
        head in prop_oneof![Just(MAGIC.to_vec()), prop::collection::vec(any::<u8>(), 0..9)],
        length in prop_oneof![0u32..200, any::<u32>()],
        body in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            Just(hello().to_string().into_bytes()),
        ],
        piece_bytes in 1usize..64,
        is_reused: bool,
    ) {
        let said = [&head[..], &length.to_be_bytes(), &body].concat();
        let mut accept = if is_reused {
            Accept::after_goodbye(goodbye::Goodbye::default(), SECOND)
        } else {
            Accept::new(SECOND)
        };
        let mut connect = if is_reused { reused(0) } else { connect(0) };
        for piece in said.chunks(piece_bytes) {
            let (wanted, taken) = (accept.wanted(), accept.on_bytes(1, piece));
            prop_assert!(taken <= piece.len() && (wanted > 0 || taken == 0));
            connect.on_bytes(1, piece);
        }
        accept.on_broken();
        connect.on_broken(1);
        let _ = (accept.poll(), connect.poll());
        accept.on_timeout(u64::MAX);
        connect.on_timeout(u64::MAX);
        prop_assert!(accept.poll().is_none() || !accept.poll_bytes().is_empty());
        prop_assert!(connect.poll().is_none());
    }
}
