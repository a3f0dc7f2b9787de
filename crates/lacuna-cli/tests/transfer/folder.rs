//! What becomes of the receiver's folder while the receiver runs.

use crate::ends::{Receiver, bytes, one_file, send, spawn, wait_until};
use crate::process::lacuna;
use crate::speech::{FakeSession, VERSION, answer, data, end, hello, offer, start};
use crate::{MIB, partial_bytes};
use std::fs;

#[test]
fn a_folder_that_was_renamed_or_removed_is_made_again_for_the_next_sender() {
    let (dir, file, dst) = one_file("content");
    let receiver = Receiver::start(&dst, &["--json"]);
    let arrives = || {
        let sent = send(&[&file], &receiver.address, &["--json"]);
        assert_eq!(sent.code, 0, "{}", sent.stderr);
        assert_eq!(sent.file("file")["status"], "complete");
        assert_eq!(fs::read_to_string(dst.join("file")).unwrap(), "content");
    };
    arrives();
    let old = dir.path().join("old");
    fs::rename(&dst, &old).unwrap();
    arrives();
    assert_eq!(fs::read_dir(&old).unwrap().count(), 1, "nothing more lands there");
    assert!(receiver.stderr().contains("dst was gone and was made again"));
    fs::remove_dir_all(&dst).unwrap();
    arrives();
    // Another folder has its place.
    fs::remove_dir_all(&dst).unwrap();
    fs::remove_file(old.join("file")).unwrap();
    fs::rename(&old, &dst).unwrap();
    arrives();
    assert!(receiver.stderr().contains("dst is another folder than before"));
}

#[test]
fn a_relative_folder_is_found_by_its_path_as_well() {
    let (dir, file, _) = one_file("content");
    let here = dir.path().join("here");
    fs::create_dir(&here).unwrap();
    let mut command = lacuna(&["recv", "--listen", "127.0.0.1:0", "--dir", "in"]);
    let receiver = spawn(command.current_dir(&here));
    let address = receiver.address();
    for _ in 0..2 {
        assert_eq!(send(&[&file], &address, &[]).code, 0);
        assert!(here.join("in/file").exists());
        fs::remove_dir_all(&here).unwrap();
    }
}

#[test]
fn a_folder_that_cannot_be_had_refuses_the_sender_until_it_can() {
    let (_dir, file, dst) = one_file("content");
    let receiver = Receiver::start(&dst, &[]);
    fs::remove_dir(&dst).unwrap();
    fs::write(&dst, "no folder").unwrap();
    let sent = send(&[&file], &receiver.address, &[]);
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    assert!(sent.stderr.contains("refused: the folder that it receives into"), "{}", sent.stderr);
    fs::remove_file(&dst).unwrap();
    assert_eq!(send(&[&file], &receiver.address, &[]).code, 0);
    assert!(dst.join("file").exists());
}

#[test]
fn a_folder_that_is_renamed_under_way_keeps_its_transfer() {
    let (dir, _, dst) = one_file("");
    let receiver = Receiver::start(&dst, &["--once"]);
    let mut session = FakeSession::connect(&receiver);
    let hash: [u8; 32] = blake3::hash(b"content").into();
    session.say(&[hello(VERSION), offer(b"f", 7), start(0, 0), data(b"con")].concat());
    session.hear(&answer(0x82, 0, &[0]));
    let old = dir.path().join("old");
    fs::rename(&dst, &old).unwrap();
    session.say(&[data(b"tent"), end(hash), vec![9]].concat());
    session.hear(&[0x86]);
    assert_eq!(receiver.finish().code, 0);
    assert_eq!(fs::read_to_string(old.join("f")).unwrap(), "content");
    assert!(!dst.exists());
}

#[test]
fn a_folder_that_is_removed_under_way_ends_the_transfer_and_the_same_command_begins_anew() {
    let (_dir, file, dst) = one_file(bytes(48 * MIB, 11));
    let receiver = Receiver::start(&dst, &[]);
    let sender = spawn(lacuna(&["send", "--rate", "200mbit"]).arg(&file).arg(&receiver.address));
    wait_until("a part has arrived", || partial_bytes(&dst) >= 4 * MIB as u64);
    fs::remove_dir_all(&dst).unwrap();
    let sent = sender.finish();
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    let reason = "the receiver gave up: the folder that files are received into was removed";
    assert!(sent.stderr.contains(reason), "{}", sent.stderr);
    assert!(!dst.exists());
    assert!(!receiver.stderr().contains("are kept"), "{}", receiver.stderr());
    assert_eq!(send(&[&file], &receiver.address, &[]).code, 0);
    assert!(fs::read(&file).unwrap() == fs::read(dst.join("file")).unwrap());
}
