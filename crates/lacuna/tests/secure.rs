//! Encrypted connections: everything works as in clear, and only between ends that trust each other.

use lacuna::datapath::{Fraction, Impair, Impairment, Loss, MemNetwork};
use lacuna::trust::{Cipher, HostKey, Token, Trust};
use lacuna::{
    Class, Classes, ConnectError, Connection, ConnectionConfig, Context, ContextConfig,
    DatapathKind, Listener, Progress, QueuePair, QueuePairError, Security, Wrap,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Ends what would hang; no test asserts a time.
const LONG: Duration = Duration::from_secs(20);

fn token() -> Option<Trust> {
    Some(Trust::of_token(&Token::generate().unwrap()))
}

fn context(trust: Option<Trust>, config: ContextConfig) -> Context {
    let security = trust.map_or(Security::Insecure, Security::Keys);
    Context::new(ContextConfig { bind: LOCALHOST.into(), security, ..config })
        .expect("sockets on loopback")
}

fn lossy() -> Wrap {
    Arc::new(|channel, datapath| {
        let loss = Loss::Independent(Fraction::from_ppm(20_000));
        let impairment = Impairment { loss, ..Impairment::default() };
        Box::new(Impair::new(datapath, impairment, u64::from(channel) + 1))
    })
}

fn listen(context: &Context) -> (Listener, SocketAddr) {
    let listener =
        Listener::bind(context, (LOCALHOST, 0).into(), ConnectionConfig::default()).unwrap();
    let address = listener.local_addr();
    (listener, address)
}

/// Both outcomes of an attempt to connect.
fn attempt(
    here: &Context,
    there: &Context,
    config: ConnectionConfig,
) -> (Result<Connection, ConnectError>, Result<Connection, ConnectError>) {
    let (listener, address) = listen(there);
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept());
        (Connection::connect(here, address, config), accepting.join().unwrap())
    })
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 255 + seed) as u8).collect()
}

#[test]
fn messages_arrive_in_every_mode_and_every_way_to_run_a_context() {
    let network = MemNetwork::new();
    let configs: [fn(&MemNetwork) -> ContextConfig; 5] = [
        |_| ContextConfig::default(),
        |_| ContextConfig { channels: 4, ..ContextConfig::default() },
        |_| ContextConfig { datapath: DatapathKind::UdpPlain, ..ContextConfig::default() },
        |_| ContextConfig { wrap: Some(lossy()), ..ContextConfig::default() },
        |network| ContextConfig {
            datapath: DatapathKind::Mem(network.clone()),
            receive_buffer_bytes: 8 << 20,
            ..ContextConfig::default()
        },
    ];
    for (way, config) in configs.iter().enumerate() {
        for mode in ["sr", "ec", "auto"] {
            let trust = token();
            let [here, there] = [(); 2].map(|()| context(trust.clone(), config(&network)));
            let config =
                ConnectionConfig { mode: mode.parse().unwrap(), ..ConnectionConfig::default() };
            let (a, b) = attempt(&here, &there, config);
            let (a, b) = (a.unwrap(), b.unwrap());
            assert_eq!((a.chosen().wire, b.chosen().wire), ("sealed", "sealed"));
            for len in [0, 1, 5000, 3_000_001] {
                let receive = b.post_recv(vec![0; len]).unwrap();
                let send = a.start_send(bytes(len, way), None).unwrap();
                receive
                    .wait(LONG)
                    .unwrap_or_else(|error| panic!("way {way}, {mode}, {len} bytes: {error}"));
                send.wait().unwrap();
                assert!(receive.complete().buffer == bytes(len, way));
            }
        }
    }
}

#[test]
fn ends_that_do_not_trust_each_other_never_speak() {
    let key = || HostKey::generate().unwrap();
    let (a, b, stranger) = (key(), key(), key());
    let trusts = |own: &HostKey, other: &HostKey| Some(Trust::of_keys(own, [other.public()]));
    for (here, there, why) in [
        (token(), token(), "trust"),
        (trusts(&a, &stranger), trusts(&b, &a), "key is not trusted here"),
        (trusts(&a, &b), trusts(&b, &stranger), "does not trust this end's key"),
        (token(), None, "in clear alone"),
        (None, token(), "encrypted connections only"),
    ] {
        let [here, there] = [here, there].map(|trust| context(trust, ContextConfig::default()));
        let config = ConnectionConfig { connect_timeout: LONG, ..ConnectionConfig::default() };
        let (connected, accepted) = attempt(&here, &there, config);
        let (connected, accepted) = (connected.unwrap_err(), accepted.unwrap_err());
        assert!(!connected.is_retryable(), "{connected}");
        assert!(connected.to_string().contains(why), "{connected}\n    {accepted}");
    }
    let [here, there] =
        [trusts(&a, &b), trusts(&b, &a)].map(|trust| context(trust, ContextConfig::default()));
    let (connected, accepted) = attempt(&here, &there, ConnectionConfig::default());
    assert!(connected.is_ok() && accepted.is_ok());
}

#[test]
fn the_next_connection_takes_the_control_connection_of_the_last_and_other_keys() {
    let trust = token();
    let [here, there] = [(); 2].map(|()| context(trust.clone(), ContextConfig::default()));
    let (listener, address) = listen(&there);
    let mut peers = Vec::new();
    for does_accepting_leave_first in [false, true, false, true] {
        thread::scope(|scope| {
            let accepting = scope.spawn(|| listener.accept().unwrap());
            let a = Connection::connect(&here, address, ConnectionConfig::default()).unwrap();
            let b = accepting.join().unwrap();
            let receive = b.post_recv(vec![0; 5]).unwrap();
            a.send(b"again").unwrap();
            receive.wait(LONG).unwrap();
            assert_eq!(receive.complete().buffer, b"again");
            peers.push(b.peer());
            let (first, second) = if does_accepting_leave_first { (b, a) } else { (a, b) };
            drop(first);
            while second.failure().is_none() {
                thread::yield_now();
            }
        });
    }
    assert!(peers.windows(2).all(|pair| pair[0] == pair[1]), "{peers:?}");
}

#[test]
fn classes_and_regions_of_an_encrypted_connection_are_encrypted_too() {
    let trust = token();
    let [here, there] = [(); 2].map(|()| context(trust.clone(), ContextConfig::default()));
    let config = ConnectionConfig { classes: Classes::ALL, ..ConnectionConfig::default() };
    let (a, b) = attempt(&here, &there, config);
    let (a, b) = (a.unwrap(), b.unwrap());
    for class in [Class::Critical, Class::Droppable] {
        let [from, to] = [&a, &b].map(|end| end.class(class).unwrap());
        let receive = to.post_recv(vec![0; 100_000]).unwrap();
        from.send(bytes(100_000, 7), None).unwrap().wait().unwrap();
        receive.wait(LONG).unwrap();
        assert_eq!(receive.complete().buffer, bytes(100_000, 7));
    }
}

#[test]
fn what_would_be_in_clear_is_refused() {
    let here = context(token(), ContextConfig::default());
    let rdma = ConnectionConfig { wire: lacuna::Wire::Rdma, ..ConnectionConfig::default() };
    let refused = here.queue_pair(&rdma).unwrap_err();
    assert!(matches!(refused, QueuePairError::ClearWire { .. }), "{refused}");
    let key = HostKey::generate().unwrap();
    let by_keys = context(Some(Trust::of_keys(&key, [key.public()])), ContextConfig::default());
    let refused = by_keys.datagram_queue_pair(&lacuna::datagram::Settings::default()).unwrap_err();
    assert!(refused.to_string().contains("give it a token"), "{refused}");
    let (listener, address) = listen(&here);
    let refused = Connection::connect(&here, address, rdma).unwrap_err();
    assert!(refused.to_string().contains("wire short"), "{refused}");
    drop(listener);
}

#[test]
fn queue_pairs_whose_infos_are_exchanged_need_a_token_where_everything_is_encrypted() {
    let [own, other] = [(); 2].map(|()| HostKey::generate().unwrap());
    let by_keys = Trust::of_keys(&own, [other.public()]);
    let here = context(Some(by_keys), ContextConfig::default());
    let refused = here.queue_pair(&ConnectionConfig::default()).unwrap_err().to_string();
    assert!(refused.contains("need a token"), "{refused}");
    let refused = here.rc_queue_pair(&lacuna::rc::Settings::default()).unwrap_err().to_string();
    assert!(refused.contains("need a token"), "{refused}");
}

/// Two queue pairs of contexts with these tokens, connected by their infos, one of which `change`s on the way.
fn exchanged(
    trusts: [Option<Trust>; 2],
    config: ContextConfig,
    change: impl FnOnce(&mut Vec<u8>),
) -> [QueuePair; 2] {
    let ends = trusts.map(|trust| {
        context(trust, config.clone()).queue_pair(&ConnectionConfig::default()).unwrap()
    });
    let mut infos = ends.each_ref().map(|end| end.info(LOCALHOST));
    change(&mut infos[0]);
    ends[0].connect(&infos[1]).unwrap();
    ends[1].connect(&infos[0]).unwrap();
    ends
}

#[test]
fn messages_arrive_between_queue_pairs_whose_infos_are_exchanged() {
    for config in [
        ContextConfig { wrap: Some(lossy()), ..ContextConfig::default() },
        ContextConfig { channels: 3, ..ContextConfig::default() },
    ] {
        let trust = token();
        let [a, b] = exchanged([trust.clone(), trust], config, |_| ());
        for (from, to) in [(&a, &b), (&b, &a)] {
            for len in [0, 1, 5000, 2_000_001] {
                let receive = to.post_recv(vec![0; len]).unwrap();
                from.send(bytes(len, 9), None).unwrap();
                receive.wait(LONG).unwrap();
                assert!(receive.complete().buffer == bytes(len, 9), "{len} bytes");
            }
        }
    }
}

#[test]
fn with_another_token_or_a_changed_info_packets_do_not_open() {
    let one = token();
    // The last bytes are of the nonce; the report policy has a field behind it in none of these.
    let flip: fn(&mut Vec<u8>) = |info| *info.last_mut().unwrap() ^= 1;
    let keep: fn(&mut Vec<u8>) = |_| ();
    for (trusts, change) in [([one.clone(), token()], keep), ([one.clone(), one], flip)] {
        let [a, b] = exchanged(trusts, ContextConfig::default(), change);
        let receive = b.post_recv(vec![0; 100]).unwrap();
        let send = a.send(bytes(100, 1), None).unwrap();
        let refused = |end: &QueuePair| {
            let stats = end.context().stats();
            stats.rejected.get("forged").copied().unwrap_or(0)
        };
        while refused(&a) == 0 || refused(&b) == 0 {
            thread::yield_now();
        }
        assert!(receive.wait(Duration::ZERO).is_err(), "nothing was placed");
        assert_eq!(a.stats().channels.iter().map(|channel| channel.packets).sum::<u64>(), 0);
        drop(send);
    }
}

#[test]
fn an_info_with_a_nonce_and_one_without_do_not_fit() {
    let secure = context(token(), ContextConfig::default());
    let secure = secure.queue_pair(&ConnectionConfig::default()).unwrap();
    let clear = context(None, ContextConfig::default());
    let clear = clear.queue_pair(&ConnectionConfig::default()).unwrap();
    let refused = secure.connect(&clear.info(LOCALHOST)).unwrap_err();
    assert!(matches!(refused, QueuePairError::PeerInClear), "{refused}");
    let refused = clear.connect(&secure.info(LOCALHOST)).unwrap_err();
    assert!(matches!(refused, QueuePairError::PeerEncrypts), "{refused}");
    let refused = secure.connect(&secure.info(LOCALHOST)).unwrap_err();
    assert!(matches!(refused, QueuePairError::OwnInfo), "{refused}");
}

#[test]
fn without_threads_it_works_as_well() {
    let trust = token();
    let manual = || ContextConfig { progress: Progress::Manual, ..ContextConfig::default() };
    let [here, there] = [(); 2].map(|()| context(trust.clone(), manual()));
    let (a, b) = attempt(&here, &there, ConnectionConfig::default());
    let (a, b) = (a.unwrap(), b.unwrap());
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        let received = b.recv(&mut buffer).unwrap();
        buffer.truncate(received.len);
        buffer
    });
    a.send(&bytes(1 << 20, 3)).unwrap();
    assert!(reader.join().unwrap() == bytes(1 << 20, 3));
}

#[test]
fn peers_on_this_host_are_spoken_to_in_clear_where_both_ends_allow_it() {
    let trust = Trust::of_token(&Token::generate().unwrap());
    let off_host = || Security::KeysOffHost(trust.clone());
    let all = || Security::Keys(trust.clone());
    for (here, there, wire) in [
        (off_host(), off_host(), Some("short")),
        (Security::Insecure, off_host(), Some("short")),
        (all(), off_host(), Some("sealed")),
        (all(), all(), Some("sealed")),
        (off_host(), all(), None),
        (all(), Security::Insecure, None),
    ] {
        let [here, there] = [here, there].map(|security| {
            let config = ContextConfig { bind: LOCALHOST.into(), security, ..Default::default() };
            Context::new(config).unwrap()
        });
        let (a, b) = attempt(&here, &there, ConnectionConfig::default());
        let found = [a.as_ref(), b.as_ref()].map(|end| end.ok().map(|end| end.chosen().wire));
        assert_eq!(found, [wire, wire], "{a:?} {b:?}");
    }
}

/// The slower end is the one that limits both.
#[test]
fn an_end_for_which_chacha20_is_faster_has_its_way() {
    let token = Token::generate().unwrap();
    let [aes, chacha] = Cipher::ALL;
    let named = |cipher: Cipher| {
        context(Some(Trust::of_token(&token).with_cipher(cipher)), ContextConfig::default())
    };
    for (here, there, agreed) in
        [(aes, aes, aes), (aes, chacha, chacha), (chacha, aes, chacha), (chacha, chacha, chacha)]
    {
        let (here, there) = (named(here), named(there));
        let (a, b) = attempt(&here, &there, ConnectionConfig::default());
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!([a.chosen().cipher, b.chosen().cipher], [Some(agreed.name()); 2]);
        let data = bytes(100_000, 3);
        let receiving = b.post_recv(vec![0; data.len()]).unwrap();
        a.send(&data).unwrap();
        receiving.wait(LONG).unwrap();
        assert_eq!(receiving.complete().buffer, data);
    }
}
