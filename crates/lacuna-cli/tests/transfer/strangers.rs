//! Commands that reached the wrong server.

use crate::ends::{Receiver, lacuna, one_file, send, spawn, wait_until};
use crate::speech::{
    FakeReceiver, FakeSession, VERSION, data, end, hello, offer, sender_of, start, try_connect,
};
use std::fs;

#[test]
fn a_perf_server_is_told_from_a_receiver_at_once() {
    let (_dir, file, _) = one_file("x");
    let server = spawn(&mut lacuna(&["perf", "server", "--listen", "127.0.0.1:0"]));
    // No \"trying again\": that would not help.
    let sent = send(&[&file], &server.address(), &["--retry", "60s"]);
    drop(server);
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    let reason = "refused: this is lacuna perf server; lacuna send needs lacuna recv\n";
    assert!(sent.stderr.ends_with(reason), "{}", sent.stderr);
    assert_eq!(sent.stderr.lines().count(), 1, "{}", sent.stderr);
    assert_eq!(sent.stdout, "", "no receiver, nothing to sum up");
}

#[test]
fn a_server_that_says_why_is_quoted() {
    let (_dir, file, _) = one_file("x");
    let fake = FakeReceiver::start();
    let sender = spawn(lacuna(&["send"]).arg(&file).arg(&fake.address));
    let tag = fake.refuse("it is closed on Sundays");
    assert_eq!(&tag.to_be_bytes()[..4], b"FILE");
    let sent = sender.finish();
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    assert!(sent.stderr.contains("refused: it is closed on Sundays"), "{}", sent.stderr);
}

#[test]
fn a_server_that_takes_anybody_is_no_receiver_for_that() {
    let (_dir, file, _) = one_file("x");
    for words in [&b"who is there?"[..], b""] {
        let (sender, session) = sender_of(&file, &[]);
        if !words.is_empty() {
            session.say(words);
        }
        drop(session);
        let sent = sender.finish();
        assert_eq!(sent.code, 3, "{}", sent.stderr);
        assert!(sent.stderr.contains("no lacuna recv"), "{}", sent.stderr);
        assert!(!sent.stderr.contains("trying again"), "{}", sent.stderr);
    }
}

#[test]
fn a_receiver_refuses_whoever_sends_no_files_and_lives_on() {
    let (_dir, file, dst) = one_file("x");
    let receiver = Receiver::start(&dst, &["--once"]);
    for (tag, reason) in [
        (*b"PRFS\0\0\0\x01", "this is lacuna recv; lacuna perf client needs lacuna perf server"),
        ([0; 8], "this is lacuna recv, which serves lacuna send of the same version only"),
    ] {
        let error = try_connect(&receiver, tag).expect_err("it sends no files");
        assert!(matches!(error, lacuna::ConnectError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(fs::read_dir(&dst).unwrap().count(), 0);
    assert_eq!(send(&[&file], &receiver.address, &[]).code, 0);
    let received = receiver.finish();
    assert_eq!(received.code, 0, "{}", received.stderr);
    assert_eq!(received.stderr.matches(" was refused: ").count(), 2, "{}", received.stderr);
}

#[test]
fn with_once_a_second_sender_is_told_that_it_is_busy() {
    let (_dir, file, dst) = one_file("x");
    let receiver = Receiver::start(&dst, &["--once"]);
    let session = FakeSession::connect(&receiver);
    session.say(&[hello(VERSION), offer(b"f", 4)].concat());
    let sent = send(&[&file], &receiver.address, &[]);
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    let reason = "refused: busy: it serves one sender only (--once) and has it";
    assert!(sent.stderr.contains(reason), "{}", sent.stderr);
    let hash: [u8; 32] = blake3::hash(b"data").into();
    session.say(&[start(0, 0), data(b"data"), end(hash), vec![9]].concat());
    assert_eq!(receiver.finish().code, 0);
    assert_eq!(fs::read(dst.join("f")).unwrap(), b"data");
    assert!(!dst.join("file").exists());
}

#[test]
fn a_sender_that_is_lost_is_told_in_a_sentence() {
    let (_dir, _, dst) = one_file("");
    let receiver = Receiver::start(&dst, &[]);
    // Before it said anything, in the middle of a file, and in another language.
    for words in [vec![], [hello(VERSION), offer(b"f", 4), start(0, 0)].concat(), b"GET /".to_vec()]
    {
        let mut session = FakeSession::connect(&receiver);
        if !words.is_empty() {
            session.say(&words);
            session.hear(if words == b"GET /" { b"unknown record" } else { b"lacuna" });
        }
    }
    for told in [
        "the sender ended before everything was sent; it had not said anything",
        "the sender ended before everything was sent; 0 B of f are kept",
        "is no lacuna send of this version: unknown record",
    ] {
        wait_until(told, || receiver.stderr().contains(told));
    }
    let said = receiver.stderr();
    assert!(!said.contains("WARN") && !said.contains("peer="), "{said}");
}
