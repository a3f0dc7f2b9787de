//! Peers that break the rules of the file protocol, spoken byte by byte.

use crate::ends::{Receiver, one_file, send};
use crate::speech::{
    VERSION, answer, data, end, hello, hole, offer, offer_sparse, sender_of, start, talk, welcome,
};
use std::fs;
use std::path::Path;

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
        let heard = talk(&receiver, &[hello(VERSION), offer(name, 4)], 1);
        assert!(contains(&heard, reason), "{}", String::from_utf8_lossy(&heard));
    }
    let hash: [u8; 32] = blake3::hash(b"evil").into();
    for (records, reason) in [
        (vec![hello(VERSION - 1)], "version 1"),
        (vec![b"GET / HTTP/1.1\r\n\r\n".to_vec()], "unknown record"),
        (vec![offer(b"f", 4)], "hello"),
        (vec![hello(VERSION), hello(VERSION)], "second hello"),
        (vec![hello(VERSION), data(b"evil")], "without a file"),
        (vec![hello(VERSION), start(0, 0)], "out of order"),
        (vec![hello(VERSION), offer(b"f", 4), start(1, 0)], "out of order"),
        (vec![hello(VERSION), offer(b"f", 4), start(0, 2)], "behind the beginning"),
        (vec![hello(VERSION), offer(b"../f", 4), start(0, 0)], "out of order"),
        (vec![hello(VERSION), offer(b"f", 4), start(0, 0), data(b"evil!")], "more data"),
        (
            vec![hello(VERSION), offer(b"f", 4), start(0, 0), data(b"evi"), end(hash)],
            "before its size",
        ),
        (vec![hello(VERSION), offer(b"g", 4), vec![9]], "items open"),
        (vec![hello(VERSION), hole(4)], "hole without a file"),
        (vec![hello(VERSION), offer(b"f", 4), start(0, 0), hole(5)], "more data"),
        (vec![hello(VERSION), offer(b"f", 4), start(0, 0), hole(u64::MAX)], "more data"),
        (vec![hello(VERSION), offer(b"f", 4), start(0, 0), data(b"a"), hole(4)], "more data"),
        (vec![hello(VERSION), offer(b"f", 4), start(0, 0), hole(3), end(hash)], "before its size"),
        (vec![hello(VERSION), offer_sparse(b"f", 4, 5)], "data of 5, at most 4"),
        (vec![hello(VERSION), vec![4, 0xFF, 0xFF, 0xFF, 0xFF]], "in the middle"),
    ] {
        let heard = talk(&receiver, &records, 2);
        assert!(contains(&heard, reason), "{reason}: {}", String::from_utf8_lossy(&heard));
    }
    let twice = [hello(VERSION), offer(b"f", 4), offer(b"f", 4)];
    assert!(contains(&talk(&receiver, &twice, 1), "offered twice"), "\"f\" has a partial file");
    let flood: Vec<Vec<u8>> =
        std::iter::once(hello(VERSION)).chain((0..16_400).map(|_| offer(b"flood", 4))).collect();
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
    let records =
        [hello(VERSION), offer(b"f", 4), start(0, 0), data(b"good"), end([0; 32]), vec![9]];
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
    let (_dir, file, _) = one_file("content");
    let rung = |offset: u64| [&[1][..], &offset.to_be_bytes(), &[0; 32]].concat();
    for (answers, reason) in [
        (vec![welcome(9)], "version 9"),
        (vec![b"HTTP/1.1 200 OK".to_vec()], "unknown record"),
        (vec![welcome(VERSION), answer(0x82, 5, &[0])], "not open"),
        (vec![welcome(VERSION), answer(0x82, 0, &rung(8))], "make no sense"),
        (vec![welcome(VERSION), answer(0x82, 0, &rung(0))], "make no sense"),
        (vec![welcome(VERSION), answer(0x84, 0, &[0, 0, 0])], "complete before its end"),
        (vec![welcome(VERSION), answer(0x84, 7, &[0, 0, 0])], "never offered"),
        (vec![welcome(VERSION), vec![0x85, 0, 0, 3, 0x1B, b'[', b'J']], "\\u{1b}[J"),
    ] {
        // The hello, and then the offer once it was welcomed.
        let (sender, mut session) = sender_of(&file, &["--retry", "0s"]);
        let (first, rest) = answers.split_first().unwrap();
        session.say(first);
        if !rest.is_empty() {
            session.hear(b"file");
            session.say(&rest.concat());
        }
        let sent = sender.finish();
        assert_eq!(sent.code, 3, "{reason}: {}", sent.stderr);
        assert!(sent.stderr.contains(reason), "{reason}: {}", sent.stderr);
    }
}
