//! Commands that reached the wrong server.

use crate::ends::{Receiver, lacuna, send, spawn};
use crate::speech::{FakeReceiver, FakeSession, hello, offer};
use std::fs;

#[test]
fn a_perf_server_is_told_from_a_receiver_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let server = spawn(&mut lacuna(&["perf", "server", "--listen", "127.0.0.1:0"]));
    // No \"trying again\": that would not help.
    let sent = send(&[&file], &server.address(), &["--retry", "60s"]);
    server.kill();
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    assert!(sent.stderr.contains("no `lacuna recv`"), "{}", sent.stderr);
    assert!(!sent.stderr.contains("trying again"), "{}", sent.stderr);
    assert_eq!(sent.stdout, "", "no receiver, nothing to sum up");
}

#[test]
fn a_server_that_says_why_is_quoted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let fake = FakeReceiver::start();
    let sender = spawn(lacuna(&["send"]).arg(&file).arg(&fake.address));
    let mut session = fake.accept();
    assert_eq!(session.tag(), *b"lac-file");
    session.hear(b"lacuna");
    session.say(br#"{"Refused":{"reason":"this is a perf server"}}"#);
    let sent = sender.finish();
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    assert!(sent.stderr.contains("no `lacuna recv`: this is a perf server"), "{}", sent.stderr);
}

#[test]
fn a_receiver_refuses_whoever_sends_no_files_and_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    let (file, dst) = (dir.path().join("file"), dir.path().join("dst"));
    fs::write(&file, "x").unwrap();
    let receiver = Receiver::start(&dst, &["--once"]);
    let mut perf = FakeSession::connect_for(&receiver, *b"perf-ses");
    perf.say(br#"{"size_bytes":1,"inflight":1,"validate":false}"#);
    perf.hear(br#"{"Refused":{"reason":"this is `lacuna recv`; the peer is `lacuna perf client`"#);
    let mut unknown = FakeSession::connect_for(&receiver, [0; 8]);
    unknown.say(&[hello(1), offer(b"f", 4)].concat());
    unknown.hear(b"the peer is no `lacuna send`");
    assert_eq!(fs::read_dir(&dst).unwrap().count(), 0);
    assert_eq!(send(&[&file], &receiver.address, &[]).code, 0);
    let received = receiver.finish();
    assert_eq!(received.code, 0, "{}", received.stderr);
    assert!(received.stderr.contains("the peer is `lacuna perf client`"), "{}", received.stderr);
}
