//! Peers that break the rules of the file protocol, spoken byte by byte.

use crate::ends::{Receiver, lacuna, send, spawn};
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn context() -> Context {
    Context::new(ContextConfig { bind: LOCALHOST, ..ContextConfig::default() }).unwrap()
}

fn hello(version: u16) -> Vec<u8> {
    [&[1][..], b"lacuna", &version.to_be_bytes(), &[7; 16], &[0]].concat()
}

/// An offer of a file.
fn offer(name: &[u8], size: u64) -> Vec<u8> {
    let len = (name.len() as u16).to_be_bytes();
    [&[2, 0][..], &0o644u16.to_be_bytes(), &size.to_be_bytes(), &[0; 12], &len, name].concat()
}

fn start(item: u64, from: u64) -> Vec<u8> {
    [&[3][..], &item.to_be_bytes(), &from.to_be_bytes()].concat()
}

fn data(bytes: &[u8]) -> Vec<u8> {
    [&[4][..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn end(hash: [u8; 32]) -> Vec<u8> {
    [&[5][..], &hash].concat()
}

/// Says all of `records` in one message and gives back what is answered until
/// the receiver hangs up or has answered `answers` messages.
fn talk(receiver: &Receiver, records: &[Vec<u8>], answers: usize) -> Vec<u8> {
    let connection =
        Connection::connect(&context(), &receiver.address, ConnectionConfig::default()).unwrap();
    connection.write(&records.concat()).unwrap();
    let mut heard = Vec::new();
    for _ in 0..answers {
        let mut buffer = vec![0; 64 << 10];
        match connection.recv_within(&mut buffer, WAIT) {
            Ok(received) => heard.extend(&buffer[..received.len]),
            Err(_) => break,
        }
    }
    heard
}

fn contains(heard: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(heard).contains(text)
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_hostile_sender_writes_nothing_outside_and_the_receiver_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("dst");
    let receiver = Receiver::start(&dst, &[]);
    for (name, reason) in [
        (&b"../evil"[..], "\"..\""),
        (b"/tmp/evil", "absolute"),
        (b"a/../../evil", "\"..\""),
        (b"a\0b", "zero byte"),
        (b"", "empty"),
        (b"absent/evil", "no folder"),
    ] {
        let heard = talk(&receiver, &[hello(1), offer(name, 4)], 1);
        assert!(contains(&heard, reason), "{}", String::from_utf8_lossy(&heard));
    }
    let hash: [u8; 32] = blake3::hash(b"evil").into();
    for (records, reason) in [
        (vec![hello(2)], "version 2"),
        (vec![b"GET / HTTP/1.1\r\n\r\n".to_vec()], "unknown record"),
        (vec![offer(b"f", 4)], "hello"),
        (vec![hello(1), hello(1)], "second hello"),
        (vec![hello(1), data(b"evil")], "without a file"),
        (vec![hello(1), start(0, 0)], "out of order"),
        (vec![hello(1), offer(b"f", 4), start(1, 0)], "out of order"),
        (vec![hello(1), offer(b"f", 4), start(0, 2)], "behind the beginning"),
        (vec![hello(1), offer(b"../f", 4), start(0, 0)], "out of order"),
        (vec![hello(1), offer(b"f", 4), start(0, 0), data(b"evil!")], "more data"),
        (vec![hello(1), offer(b"f", 4), start(0, 0), data(b"evi"), end(hash)], "before its size"),
        (vec![hello(1), offer(b"g", 4), vec![9]], "items open"),
        (vec![hello(1), vec![4, 0xFF, 0xFF, 0xFF, 0xFF]], "in the middle"),
    ] {
        let heard = talk(&receiver, &records, 2);
        assert!(contains(&heard, reason), "{reason}: {}", String::from_utf8_lossy(&heard));
    }
    let twice = [hello(1), offer(b"f", 4), offer(b"f", 4)];
    assert!(contains(&talk(&receiver, &twice, 1), "offered twice"), "\"f\" has a partial file");
    let flood: Vec<Vec<u8>> =
        std::iter::once(hello(1)).chain((0..16_400).map(|_| offer(b"flood", 4))).collect();
    assert!(contains(&talk(&receiver, &flood, 50), "too many open offers"));
    assert_eq!(count(dir.path()), 1);
    assert!(!dst.join("f").exists() && !dst.join("g").exists());
    let file = dir.path().join("good");
    fs::write(&file, "good").unwrap();
    assert_eq!(send(&[&file], &receiver.address, &[]).code, 0);
    assert_eq!(fs::read(dst.join("good")).unwrap(), b"good");
}

#[test]
fn a_wrong_hash_gives_no_name_and_is_kept_for_the_next_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("dst");
    let receiver = Receiver::start(&dst, &["--once"]);
    let records = [hello(1), offer(b"f", 4), start(0, 0), data(b"good"), end([0; 32]), vec![9]];
    let heard = talk(&receiver, &records, 1);
    assert!(contains(&heard, "another hash"), "{}", String::from_utf8_lossy(&heard));
    let received = receiver.finish();
    assert_eq!(received.code, 4, "{}", received.stderr);
    assert!(!dst.join("f").exists());
    assert_eq!(count(&dst), 1, "the partial file");
    let file = dir.path().join("f");
    fs::write(&file, "good").unwrap();
    let receiver = Receiver::start(&dst, &["--once"]);
    let sent = send(&[&file], &receiver.address, &["--json"]);
    assert_eq!((sent.code, sent.file("f")["resumed_at_bytes"].as_u64()), (0, Some(4)));
}

#[test]
fn a_hostile_receiver_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "content").unwrap();
    let item =
        |kind: u8, number: u64, rest: &[u8]| [&[kind][..], &number.to_be_bytes(), rest].concat();
    let welcome = |version: u16| [&[0x81][..], b"lacuna", &version.to_be_bytes(), &[0]].concat();
    let rung = |offset: u64| [&[1][..], &offset.to_be_bytes(), &[0; 32]].concat();
    for (answers, reason) in [
        (vec![welcome(9)], "version 9"),
        (vec![b"HTTP/1.1 200 OK".to_vec()], "unknown record"),
        (vec![welcome(1), item(0x82, 5, &[0])], "not open"),
        (vec![welcome(1), item(0x82, 0, &rung(8))], "make no sense"),
        (vec![welcome(1), item(0x82, 0, &rung(0))], "make no sense"),
        (vec![welcome(1), item(0x84, 0, &[0, 0, 0])], "complete before its end"),
        (vec![welcome(1), item(0x84, 7, &[0, 0, 0])], "never offered"),
        (vec![welcome(1), vec![0x85, 0, 0, 3, 0x1B, b'[', b'J']], "\\u{1b}[J"),
    ] {
        let context = context();
        let listener =
            Listener::bind(&context, "127.0.0.1:0".parse().unwrap(), ConnectionConfig::default())
                .unwrap();
        let address = listener.local_addr().to_string();
        let sender = spawn(lacuna(&["send", "--retry", "0s"]).arg(&file).arg(&address));
        let connection = listener.accept().unwrap();
        // The hello, and then the offer once it was welcomed.
        let (first, rest) = answers.split_first().unwrap();
        let offers: Vec<_> =
            (0..4).map(|_| connection.post_recv(vec![0; 4 << 20]).unwrap()).collect();
        offers[0].wait(WAIT).unwrap();
        connection.write(first).unwrap();
        if !rest.is_empty() {
            offers[1].wait(WAIT).unwrap();
            connection.write(&rest.concat()).unwrap();
        }
        let sent = sender.finish();
        assert_eq!(sent.code, 3, "{reason}: {}", sent.stderr);
        assert!(sent.stderr.contains(reason), "{reason}: {}", sent.stderr);
    }
}
