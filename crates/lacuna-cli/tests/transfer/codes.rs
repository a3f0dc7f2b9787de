//! Exit codes: whose fault it was, told to the shell.

use crate::ends::{Receiver, lacuna, send, spawn};
use crate::speech::{FakeReceiver, answer, welcome};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A chain of folders whose path is longer than the system takes, so that what
/// is at its end cannot be read, whoever asks.
fn bury(top: &Path) {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let mut folder: OwnedFd = openat(CWD, top, OFlags::DIRECTORY, Mode::empty()).unwrap();
    let part = "x".repeat(250);
    for _ in 0..20 {
        mkdirat(&folder, &*part, Mode::RWXU).unwrap();
        folder = openat(&folder, &*part, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
}

#[test]
fn what_cannot_be_read_here_is_this_machines_failure() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("src");
    fs::create_dir(&src).unwrap();
    fs::write(src.join("good"), "good").unwrap();
    bury(&src);
    let receiver = Receiver::start(&dir.path().join("dst"), &["--once"]);
    let sent = send(&[&src], &receiver.address, &[]);
    assert_eq!(sent.code, 5, "{}", sent.stderr);
    assert!(sent.stderr.contains("cannot be read"), "{}", sent.stderr);
    assert!(sent.stdout.starts_with("incomplete: sent 4 B"), "{}", sent.stdout);
    assert!(dir.path().join("dst/src/good").exists(), "the rest arrives");
}

#[test]
fn a_file_that_changes_underway_is_this_machines_failure() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "content").unwrap();
    let fake = FakeReceiver::start();
    let sender = spawn(lacuna(&["send", "--retry", "0s"]).arg(&file).arg(&fake.address));
    let mut session = fake.accept();
    session.hear(b"lacuna");
    session.say(&welcome(1));
    session.hear(b"file");
    fs::write(&file, "other content").unwrap();
    session.say(&answer(0x82, 0, &[0]));
    session.hear(b"changed after it was offered");
    session.say(&[0x86]);
    let sent = sender.finish();
    assert_eq!(sent.code, 5, "{}", sent.stderr);
}

#[test]
fn a_wrong_hash_at_the_receiver_is_wrong_data_for_the_sender_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "content").unwrap();
    let fake = FakeReceiver::start();
    let sender = spawn(lacuna(&["send", "--retry", "0s"]).arg(&file).arg(&fake.address));
    let mut session = fake.accept();
    session.hear(b"lacuna");
    session.say(&welcome(1));
    session.hear(b"file");
    session.say(&answer(0x82, 0, &[0]));
    session.hear(blake3::hash(b"content").as_bytes());
    let reason = b"another hash";
    let length = (reason.len() as u16).to_be_bytes();
    session.say(&answer(0x84, 0, &[&[4][..], &length, reason].concat()));
    session.say(&[0x86]);
    let sent = sender.finish();
    assert_eq!(sent.code, 4, "{}", sent.stderr);
    assert!(sent.stderr.contains("the receiver: another hash"), "{}", sent.stderr);
}
