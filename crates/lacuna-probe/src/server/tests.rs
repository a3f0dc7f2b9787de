//! A server and packets made by hand: clients, strangers, and those who would have it flood others.

use super::*;
use crate::HostDrops;
use crate::wire::{CONTROL_BYTES, TrialPlan};

const S: u64 = 1_000_000_000;
const PLAN: TrialPlan = TrialPlan { payload_bytes: 200, flows: 2, duration_ns: S };

fn server(clients_max: usize) -> Server {
    let (session_ns_max, silence_ns_max) = (100 * S, 10 * S);
    Server::new(ServerConfig { key: [3; 32], clients_max, session_ns_max, silence_ns_max })
}

fn address(host: u8, port: u16) -> SocketAddr {
    ([10, 0, 0, host], port).into()
}

/// A question, as a client pads it.
fn question(key: u64, message: &Message) -> Vec<u8> {
    let filler = vec![0; 2000];
    message.packet(key, 0, &filler).bytes(&filler)
}

fn probe(trial: u32, index: u32, wants_echo: bool) -> Message {
    Message::Probe { trial, index, sent_ns: 5, wants_echo, bytes: 200 }
}

struct World {
    server: Server,
    now_ns: u64,
}

impl World {
    fn new(clients_max: usize) -> Self {
        Self { server: server(clients_max), now_ns: 0 }
    }

    fn say(&mut self, from: SocketAddr, key: u64, message: &Message) -> Option<Message> {
        let question = question(key, message);
        let answer = self.server.on_datagram(self.now_ns, from, &question, &mut ())?;
        assert!(answer.len() <= question.len(), "{message:?}");
        let (answered, message) = Message::parse(&answer).expect("an answer is a packet");
        assert_eq!(answered, key);
        Some(message)
    }

    fn open(&mut self, from: SocketAddr, nonce: u64) -> Option<Message> {
        let Some(Message::Challenge { cookie }) = self.say(from, nonce, &Message::Hello) else {
            panic!("no challenge");
        };
        self.say(from, nonce, &Message::Open { cookie, needed_s: 50 })
    }

    fn client(&mut self, from: SocketAddr, nonce: u64) -> u64 {
        match self.open(from, nonce) {
            Some(Message::Accepted { token }) => token,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_client_is_served_from_hello_to_goodbye() {
    let mut world = World::new(1);
    let from = address(1, 1000);
    let token = world.client(from, 7);
    let start = Message::Start { trial: 1, plan: PLAN };
    assert_eq!(world.say(from, token, &start), Some(Message::Started { trial: 1 }));
    for index in [0, 1, 3, 2] {
        let flow = address(1, 2000 + index as u16 % 2);
        assert_eq!(world.say(flow, token, &probe(1, index, false)), None);
    }
    // A repeated start does not begin anew.
    assert_eq!(world.say(from, token, &start), Some(Message::Started { trial: 1 }));
    let echo = world.say(from, token, &probe(1, 5, true));
    assert_eq!(echo, Some(Message::Echo { trial: 1, index: 5, sent_ns: 5, bytes: 200 }));
    let fetch = Message::Fetch { trial: 1, sent: 6 };
    let Some(Message::Report { trial: 1, counted }) = world.say(from, token, &fetch) else {
        panic!("no report");
    };
    assert_eq!((counted.received, counted.bursts), (5, 1));
    // What comes late does not change a result that was told.
    world.say(from, token, &probe(1, 4, false));
    assert_eq!(world.say(from, token, &fetch), Some(Message::Report { trial: 1, counted }));
    assert_eq!(world.say(from, token, &Message::Close), Some(Message::Closed));
    assert_eq!(world.server.clients(), 0);
    assert_eq!(world.server.poll_event(), Some(ServerEvent::Opened { peer: from }));
    let ended = ServerEvent::Ended { peer: from, trials: 1, end: End::Closed };
    assert_eq!(world.server.poll_event(), Some(ended));
}

#[test]
fn the_same_link_local_address_on_another_link_is_another_host() {
    let [from, flow, elsewhere] = ["[fe80::2%1]:1000", "[fe80::2%1]:2000", "[fe80::2%2]:1000"]
        .map(|text| text.parse::<SocketAddr>().expect("an address"));
    let mut world = World::new(2);
    let token = world.client(from, 7);
    let start = Message::Start { trial: 1, plan: PLAN };
    assert_eq!(world.say(elsewhere, token, &start), None);
    assert_eq!(world.say(flow, token, &start), Some(Message::Started { trial: 1 }));
    assert_ne!(world.client(elsewhere, 7), token);
}

#[test]
fn who_did_not_return_the_cookie_gets_nothing_but_a_shorter_challenge() {
    let mut world = World::new(1);
    let (from, other) = (address(1, 1000), address(2, 1000));
    let Some(Message::Challenge { cookie }) = world.say(from, 7, &Message::Hello) else {
        panic!("no challenge");
    };
    for (who, key, message) in [
        (other, 7, Message::Open { cookie, needed_s: 1 }),
        (from, 8, Message::Open { cookie, needed_s: 1 }),
        (from, 7, Message::Open { cookie: cookie ^ 1, needed_s: 1 }),
        (from, 7, Message::Start { trial: 1, plan: PLAN }),
        (from, 7, probe(0, 0, true)),
        (from, 7, Message::Fetch { trial: 1, sent: 1 }),
        (from, 7, Message::Close),
    ] {
        assert_eq!(world.say(who, key, &message), None, "{message:?}");
    }
    assert_eq!((world.server.clients(), world.server.ignored().strangers), (0, 7));
    // A hello that is shorter than its answer gets none.
    let short = Message::Hello.answer(7);
    assert!(short.len() < question(7, &Message::Hello).len());
    assert_eq!(world.server.on_datagram(0, from, &short, &mut ()), None);
}

#[test]
fn a_token_is_of_no_use_to_another_host() {
    let mut world = World::new(1);
    let token = world.client(address(1, 1000), 7);
    assert!(world.say(address(1, 1001), token, &probe(0, 0, true)).is_some());
    assert_eq!(world.say(address(2, 1000), token, &probe(0, 0, true)), None);
}

#[test]
fn seats_are_few_and_come_back() {
    let mut world = World::new(2);
    let first = world.client(address(1, 1), 1);
    world.client(address(2, 1), 2);
    let busy = Some(Message::Refused(Refusal::Busy));
    assert_eq!(world.open(address(3, 1), 3), busy);
    // Asking again does not take another seat.
    assert_eq!(world.open(address(1, 1), 1), Some(Message::Accepted { token: first }));
    world.say(address(1, 1), first, &Message::Close);
    world.client(address(3, 1), 3);
    assert_eq!(world.open(address(1, 1), 4), busy);
    // Silence frees both.
    assert_eq!(world.server.poll_timeout(), Some(10 * S));
    world.now_ns = 10 * S;
    world.client(address(1, 1), 4);
    assert_eq!(world.server.clients(), 1);
}

#[test]
fn time_is_up_however_much_is_said() {
    let mut world = World::new(1);
    let from = address(1, 1);
    let token = world.client(from, 1);
    for second in 0..99 {
        world.now_ns = second * S;
        assert!(world.say(from, token, &probe(0, 0, true)).is_some());
    }
    world.now_ns = 100 * S;
    assert_eq!(world.say(from, token, &probe(0, 0, true)), None);
    let Some(Message::Challenge { cookie }) = world.say(from, 9, &Message::Hello) else {
        panic!("no challenge");
    };
    let open = Message::Open { cookie, needed_s: 101 };
    let refusal = Refusal::TooLong { limit_s: 100 };
    assert_eq!(world.say(from, 9, &open), Some(Message::Refused(refusal)));
}

#[test]
fn a_trial_that_cannot_be_is_refused() {
    let mut world = World::new(1);
    let from = address(1, 1);
    let token = world.client(from, 1);
    for plan in [
        TrialPlan { payload_bytes: 10, ..PLAN },
        TrialPlan { payload_bytes: u32::MAX, ..PLAN },
        TrialPlan { flows: 0, ..PLAN },
        TrialPlan { flows: u16::MAX, ..PLAN },
        TrialPlan { duration_ns: 0, ..PLAN },
        TrialPlan { duration_ns: u64::MAX, ..PLAN },
    ] {
        let answer = world.say(from, token, &Message::Start { trial: 1, plan });
        assert_eq!(answer, Some(Message::Refused(Refusal::Impossible)));
    }
}

#[test]
fn drops_of_the_host_are_those_within_the_trial() {
    struct Counters(u64);
    impl Host for Counters {
        fn drops(&mut self) -> HostDrops {
            self.0 += 10;
            HostDrops { socket: self.0, kernel: 1, card: 0 }
        }
    }
    let mut world = World::new(1);
    let from = address(1, 1);
    let token = world.client(from, 1);
    let mut host = Counters(0);
    let start = question(token, &Message::Start { trial: 1, plan: PLAN });
    world.server.on_datagram(0, from, &start, &mut host);
    let fetch = question(token, &Message::Fetch { trial: 1, sent: 1 });
    let report = world.server.on_datagram(0, from, &fetch, &mut host).expect("a report");
    let Ok((_, Message::Report { counted, .. })) = Message::parse(&report) else { panic!() };
    assert_eq!(counted.drops, HostDrops { socket: 10, kernel: 0, card: 0 });
}

proptest::proptest! {
    #[test]
    fn nothing_that_comes_makes_an_answer_longer_than_itself(
        packets in proptest::collection::vec(
            (0u8..14, 0u64..3, 0u32..4, 0u32..70, 0usize..600, proptest::bool::ANY), 1..60),
    ) {
        let mut world = World::new(1);
        let from = address(1, 1);
        let token = world.client(from, 1);
        for (kind, key, trial, number, length, is_known) in packets {
            let message = match kind {
                0 => Message::Hello,
                1 => Message::Open { cookie: u64::from(number), needed_s: number },
                2 => Message::Start { trial, plan: TrialPlan { flows: number as u16, ..PLAN } },
                3 => Message::Fetch { trial, sent: number },
                4 => Message::Started { trial },
                5 => Message::Challenge { cookie: 1 },
                _ => probe(trial, number << 20, kind % 2 == 0),
            };
            let key = if is_known { token } else { key };
            let mut packet = question(key, &message);
            packet.truncate(length.min(packet.len().saturating_sub(4)));
            packet.extend_from_slice(&lacuna_wire::crc32c(&[&packet]));
            if let Some(answer) = world.server.on_datagram(0, from, &packet, &mut ()) {
                proptest::prop_assert!(answer.len() <= packet.len());
                proptest::prop_assert!(answer.len() <= CONTROL_BYTES);
            }
            proptest::prop_assert!(world.server.clients() <= 1);
        }
    }
}
