//! Exit codes: whose fault it was, told to the shell.

use crate::ends::{Receiver, lacuna, one_file, send};
use crate::speech::{VERSION, answer, sender_of, welcome};
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
fn errors_that_nobody_reads_change_no_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("src");
    fs::create_dir(&src).unwrap();
    bury(&src);
    let receiver = Receiver::start(&dir.path().join("dst"), &["--once"]);
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = lacuna(&["send"]);
    let sent = command.arg(&src).arg(&receiver.address).stderr(unread).output().unwrap();
    assert_eq!(sent.status.code(), Some(5));
}

#[test]
fn a_file_that_changes_underway_is_this_machines_failure() {
    let (_dir, file, _) = one_file("content");
    let (sender, mut session) = sender_of(&file, &["--retry", "0s"]);
    session.say(&welcome(VERSION));
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
    let (_dir, file, _) = one_file("content");
    let (sender, mut session) = sender_of(&file, &["--retry", "0s"]);
    session.say(&welcome(VERSION));
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

#[cfg(target_os = "linux")]
#[test]
fn a_file_whose_size_is_no_word_on_its_content_is_not_sent_as_empty() {
    let (_dir, empty, dst) = one_file("");
    let receiver = Receiver::start(&dst, &[]);
    let made = Path::new("/proc/version");
    let sent = send(&[&empty, made], &receiver.address, &["--json"]);
    assert_eq!(sent.code, 5, "{}", sent.stderr);
    assert_eq!(sent.file("file")["status"], "complete");
    let error = sent.file("version")["error"].to_string();
    assert!(error.contains("has content though its size is 0"), "{error}");
    assert!(!dst.join("version").exists());
}
