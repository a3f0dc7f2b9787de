//! Partial files: what becomes of them when others are faster, or the disk is
//! full.

use crate::ends::{Receiver, bytes, lacuna, one_file, send, spawn, wait_until};
use crate::speech::{FakeSession, VERSION, answer, data, end, hello, hello_of, offer, start};
use crate::{MIB, partial_in};
use std::fs;

#[test]
fn an_identical_file_that_appeared_meanwhile_counts_as_received() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("dst");
    let hash: [u8; 32] = blake3::hash(b"content").into();
    for (meanwhile, outcome, words) in [
        ("content", 0, None),
        ("another", 2, Some("appeared meanwhile with other content (start recv with --overwrite")),
    ] {
        let receiver = Receiver::start(&dst, &["--once"]);
        let mut session = FakeSession::connect(&receiver);
        session.say(&[hello(VERSION), offer(b"f", 7)].concat());
        session.hear(&answer(0x82, 0, &[0]));
        fs::write(dst.join("f"), meanwhile).unwrap();
        session.say(&[start(0, 0), data(b"content"), end(hash), vec![9]].concat());
        session.hear(&answer(0x84, 0, &[outcome]));
        if let Some(words) = words {
            session.hear(words.as_bytes());
        }
        session.hear(&[0x86]);
        let received = receiver.finish();
        assert_eq!(received.code, if outcome == 0 { 0 } else { 5 }, "{}", received.stderr);
        assert_eq!(fs::read_to_string(dst.join("f")).unwrap(), meanwhile);
        assert_eq!(partial_in(&dst).is_some(), outcome != 0, "kept only for --overwrite");
        fs::remove_file(dst.join("f")).unwrap();
    }
}

#[test]
fn two_senders_of_one_file_both_succeed_and_leave_nothing() {
    let (_dir, file, dst) = one_file(bytes(8 * MIB, 9));
    let receiver = Receiver::start(&dst, &[]);
    let senders = [(); 2].map(|()| {
        let mut command = lacuna(&["send", "--rate", "200mbit", "--json"]);
        spawn(command.arg(&file).arg(&receiver.address))
    });
    for sender in senders {
        let sent = sender.finish();
        assert_eq!(sent.code, 0, "{}", sent.stderr);
        assert_eq!(sent.summary()["files"], 1);
    }
    assert!(fs::read(&file).unwrap() == fs::read(dst.join("file")).unwrap());
    assert_eq!(fs::read_dir(&dst).unwrap().count(), 1);
}

#[test]
fn what_is_left_of_a_file_that_is_whole_is_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    let (file, dst) = (dir.path().join("f"), dir.path().join("dst"));
    fs::write(&file, "content").unwrap();
    for quick in [&["--quick"][..], &[]] {
        let receiver = Receiver::start(&dst, &["--once"]);
        let mut session = FakeSession::connect(&receiver);
        session.say(&[hello(VERSION), offer(b"f", 7), start(0, 0), data(b"cont")].concat());
        session.hear(&answer(0x82, 0, &[0]));
        drop(session);
        assert_eq!(receiver.finish().code, 3);
        assert!(partial_in(&dst).is_some());
        // It comes another way.
        fs::copy(&file, dst.join("f")).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        fs::File::options().write(true).open(dst.join("f")).unwrap().set_modified(time).unwrap();
        let receiver = Receiver::start(&dst, &["--once"]);
        let sent = send(&[&file], &receiver.address, &[&["--json"], quick].concat());
        assert_eq!(sent.file("f")["status"], "identical");
        assert_eq!(receiver.finish().code, 0);
        assert_eq!(partial_in(&dst), None);
        fs::remove_file(dst.join("f")).unwrap();
    }
}

/// Needs a file system of its own, which unprivileged user namespaces give on
/// most systems; where they do not, this says so and proves nothing.
#[test]
fn a_full_disk_is_said_and_can_be_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let (large, small, dst) =
        (dir.path().join("large"), dir.path().join("small"), dir.path().join("dst"));
    fs::create_dir(&dst).unwrap();
    fs::write(&large, bytes(24 * MIB, 5)).unwrap();
    fs::write(&small, bytes(2 * MIB, 6)).unwrap();
    let Some(mut receivers) = Receiver::start_on_tmpfs(&dst) else {
        eprintln!("skipped: no mounts in a user namespace here");
        return;
    };
    // What cannot fit is refused at once and takes no room from what can.
    let sent = send(&[&large, &small], &receivers.now.address, &["--json"]);
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    assert_eq!(sent.file("small")["status"], "complete");
    let error = sent.file("large")["error"].to_string();
    assert!(error.contains("no space left") && error.contains("12 MiB are missing"), "{error}");
    assert_eq!(sent.summary()["moved_bytes"], 2 * MIB);
    // Somebody else fills the disk in the middle of the file.
    receivers.proceed();
    let content = fs::read(&large).unwrap();
    let mut session = FakeSession::connect(&receivers.now);
    let (first, rest) = content[..6 * MIB].split_at(3 * MIB);
    let offers = [offer(b"large", 24 * MIB as u64), offer(b"late", 4)].concat();
    session.say(&[hello(VERSION), offers, start(0, 0), data(first)].concat());
    session.hear(&answer(0x82, 0, &[0]));
    fs::write(dir.path().join("dst.fill"), "").unwrap();
    wait_until("the disk is full", || dir.path().join("dst.full").exists());
    session.say(&data(rest));
    session.hear(b"No space left on device (os error 28); 21 MiB are missing, 3 MiB are kept");
    // One of which nothing can be written leaves nothing.
    let late = [start(1, 0), data(b"late")].concat();
    session.say(&[&[7][..], &[0; 8], &[0; 2], &late].concat());
    session.hear(b"No space left on device (os error 28); 4 B are missing");
    let drop_late = [&[7][..], &1u64.to_be_bytes(), &[0; 2]].concat();
    session.say(&[&drop_late[..], &[9]].concat());
    session.hear(&[0x86]);
    // Room was made.
    receivers.proceed();
    let sent = send(&[&large], &receivers.now.address, &["--json"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert_eq!(sent.file("large")["resumed_at_bytes"], 3 * MIB);
    let received = receivers.now.finish();
    let path = format!("{}: cannot write: No space left", dst.join("large").display());
    assert!(received.stderr.contains(&path), "{}", received.stderr);
    let hash = blake3::hash(&content).to_string();
    assert!(received.stdout.contains(&hash), "{}", received.stdout);
}

#[test]
fn leftovers_are_cleaned_but_for_one_that_a_transfer_uses() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("dst");
    let receiver = Receiver::start(&dst, &[]);
    let receiving = |sender: u8, name: &[u8]| {
        let mut session = FakeSession::connect(&receiver);
        session
            .say(&[hello_of(sender, VERSION), offer(name, 7), start(0, 0), data(b"cont")].concat());
        session.hear(&answer(0x82, 0, &[0]));
        session
    };
    let clean = |args: &[&str]| {
        let mut command = lacuna(&["recv", "--clean", "--json", "--dir"]);
        let cleaned = spawn(command.arg(&dst).args(args)).finish();
        assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
        let last = cleaned.stdout.lines().last().unwrap().to_owned();
        let summary: serde_json::Value = serde_json::from_str(&last).unwrap();
        (summary["files"].as_u64().unwrap(), summary["kept"].as_u64().unwrap())
    };
    let broken = receiving(1, b"broken");
    let going_on = receiving(2, b"going on");
    assert_eq!(clean(&[]), (0, 2));
    drop(broken);
    wait_until("the broken one is let go", || clean(&["--dry-run"]) == (1, 1));
    assert_eq!(clean(&["--older-than", "1d"]), (0, 2));
    assert_eq!(fs::read_dir(&dst).unwrap().count(), 2);
    assert_eq!(clean(&[]), (1, 1));
    let hash: [u8; 32] = blake3::hash(b"content").into();
    let mut session = going_on;
    session.say(&[data(b"ent"), end(hash), vec![9]].concat());
    session.hear(&[0x86]);
    assert_eq!(fs::read(dst.join("going on")).unwrap(), b"content");
    assert_eq!(fs::read_dir(&dst).unwrap().count(), 1);
}
