//! Files with holes: they arrive as they are, and what is no data neither moves nor
//! takes room.

use crate::ends::{Receiver, bytes, lacuna, one_file, send, spawn, wait_until};
use crate::speech::{FakeSession, VERSION, answer, end, hello, hole, offer_sparse, start, talk};
use crate::{MIB, partial_in};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const TIB: u64 = 1 << 40;

/// Makes a file of `size` bytes with data at these places; `false` where it takes all
/// the room all the same.
fn make(path: &Path, size: usize, data: &[(usize, &[u8])]) -> bool {
    let file = File::create(path).unwrap();
    file.set_len(size as u64).unwrap();
    for (at, bytes) in data {
        file.write_all_at(bytes, *at as u64).unwrap();
    }
    let keeps_holes = room(path) < size;
    if !keeps_holes {
        eprintln!("skipped: the file system here keeps no holes");
    }
    keeps_holes
}

/// What a file takes.
fn room(path: &Path) -> usize {
    path.metadata().unwrap().blocks() as usize * 512
}

#[test]
fn holes_stay_holes_wherever_they_are_and_do_not_move() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    fs::create_dir(&src).unwrap();
    let (size, block) = (64 * MIB, bytes(MIB, 1));
    let far = size - MIB;
    let cases: [(&str, &[usize]); 5] = [
        ("hole", &[]),
        ("begin", &[0]),
        ("end", &[far]),
        ("ends", &[0, far]),
        ("middle", &[5 * MIB, 31 * MIB]),
    ];
    for (name, places) in cases {
        let data: Vec<_> = places.iter().map(|place| (*place, &block[..])).collect();
        if !make(&src.join(name), size, &data) {
            return;
        }
    }
    let receiver = Receiver::start(&dst, &["--json", "--once"]);
    let sent = send(&[&src], &receiver.address, &["--json"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let received = receiver.finish();
    for (name, places) in cases {
        let (here, there) = (src.join(name), dst.join("src").join(name));
        let content = fs::read(&here).unwrap();
        assert!(content == fs::read(&there).unwrap(), "{name}");
        assert!(room(&there) <= places.len() * MIB + MIB / 2, "{name}: {}", room(&there));
        for end in [&sent, &received] {
            let file = end.file(&format!("src/{name}"));
            assert_eq!(file["bytes"], size);
            assert_eq!(file["hole_bytes"], size - places.len() * MIB, "{name}");
            assert_eq!(file["hash"], blake3::hash(&content).to_string(), "of all of it");
        }
    }
    for end in [&sent, &received] {
        let summary = end.summary();
        assert_eq!(summary["moved_bytes"], 6 * MIB);
        assert_eq!(summary["hole_bytes"], 5 * size - 6 * MIB);
        assert_eq!(summary["bytes"], 5 * size);
    }
    // There already, it is compared as what it reads as.
    let receiver = Receiver::start(&dst, &[]);
    let sent = send(&[&src], &receiver.address, &["--json"]);
    assert_eq!(sent.summary()["identical"], 5);
    fs::copy(src.join("ends"), dir.path().join("copy")).unwrap();
    fs::write(dst.join("src/ends"), fs::read(src.join("ends")).unwrap()).unwrap();
    let sent = send(&[&src], &receiver.address, &[]);
    assert!(sent.stdout.contains("5 already there"), "{}", sent.stdout);
}

#[test]
fn the_summary_for_people_says_what_was_not_sent() {
    let (_dir, file, dst) = one_file("");
    if !make(&file, 64 * MIB, &[(0, b"x")]) {
        return;
    }
    let receiver = Receiver::start(&dst, &["--once"]);
    let sent = send(&[&file], &receiver.address, &[]);
    assert!(sent.stdout.contains(" MiB of holes not sent"), "{}", sent.stdout);
    let received = receiver.finish();
    assert!(received.stdout.contains(" MiB of holes not received"), "{}", received.stdout);
}

#[test]
fn a_file_in_many_pieces_arrives_as_it_is() {
    let (_dir, file, dst) = one_file("");
    let content = bytes(4096, 3);
    let pieces: Vec<_> = (0..1500).map(|piece| (piece * 65_536, &content[..])).collect();
    if !make(&file, 1500 * 65_536 + 7, &pieces) {
        return;
    }
    let receiver = Receiver::start(&dst, &[]);
    let sent = send(&[&file], &receiver.address, &["--json"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(fs::read(&file).unwrap() == fs::read(dst.join("file")).unwrap());
    assert!(room(&dst.join("file")) <= room(&file) + MIB);
}

#[test]
fn a_partial_file_with_holes_is_resumed() {
    let (_dir, file, dst) = one_file("");
    let data = bytes(16 * MIB, 4);
    let pieces: Vec<_> =
        data.chunks(2 * MIB).enumerate().map(|(index, piece)| (index * 10 * MIB, piece)).collect();
    if !make(&file, 80 * MIB, &pieces) {
        return;
    }
    let receiver = Receiver::start(&dst, &["--json"]);
    for least in [4 * MIB, 10 * MIB] {
        let mut command = lacuna(&["send", "--rate", "200mbit"]);
        let sender = spawn(command.arg(&file).arg(&receiver.address));
        wait_until("a part has arrived", || {
            partial_in(&dst).is_some_and(|path| path.exists() && room(&path) >= least)
        });
        // Killed.
        drop(sender);
    }
    let sent = send(&[&file], &receiver.address, &["--json"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(fs::read(&file).unwrap() == fs::read(dst.join("file")).unwrap());
    assert!(room(&dst.join("file")) <= 17 * MIB);
    let resumed = sent.file("file")["resumed_at_bytes"].as_u64().unwrap() as usize;
    assert!(resumed > 40 * MIB, "resumed at {resumed}");
    assert!(sent.summary()["moved_bytes"].as_u64().unwrap() as usize <= 7 * MIB);
}

/// Needs a file system of its own: see the test of a full disk.
#[test]
fn room_is_needed_for_data_only() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("dst");
    fs::create_dir(&dst).unwrap();
    let [fits, large, small] = ["fits", "large", "small"].map(|name| dir.path().join(name));
    if !make(&fits, 3 << 30, &[((3 << 30) - 4 * MIB, &bytes(4 * MIB, 1))])
        || !make(&large, 3 << 30, &[(0, &bytes(16 * MIB, 2))])
    {
        return;
    }
    fs::write(&small, bytes(MIB, 3)).unwrap();
    let Some(receiver) = Receiver::start_on_12_mib(&dst, &["--once"]) else {
        eprintln!("skipped: no mounts in a user namespace here");
        return;
    };
    let sent = send(&[&fits, &large, &small], &receiver.address, &["--json"]);
    assert_eq!(sent.file("fits")["status"], "complete", "{}", sent.stderr);
    assert_eq!(sent.file("small")["status"], "complete");
    let error = sent.file("large")["error"].to_string();
    assert!(error.contains("no space left for it: "), "{error}");
    // What is promised counts data as well: 4 of 12 MiB, and 16 to come.
    assert!(error.contains("8 MiB are missing") || error.contains("4 MiB are missing"), "{error}");
    assert_eq!(sent.summary()["moved_bytes"], 5 * MIB);
}

#[test]
fn a_file_that_is_too_long_for_the_file_system_is_refused_before_it_moves() {
    let (_dir, _, dst) = one_file("");
    let receiver = Receiver::start(&dst, &[]);
    let size = i64::MAX as u64;
    let heard = talk(&receiver, &[hello(VERSION), offer_sparse(b"f", size, 4), start(0, 0)], 2);
    let heard = String::from_utf8_lossy(&heard).into_owned();
    if heard.contains("8388608 TiB are more than the file system takes of one file") {
        assert_eq!(fs::read_dir(&dst).unwrap().count(), 0);
    } else {
        eprintln!("skipped: the file system here takes any file");
    }
}

#[test]
fn hashing_a_long_hole_holds_up_neither_ctrl_c_nor_the_next_sender() {
    let (_dir, file, dst) = one_file("");
    if File::create(&file).unwrap().set_len(TIB).is_err() {
        eprintln!("skipped: no file of a terabyte here");
        return;
    }
    let receiver = Receiver::start(&dst, &["--once"]);
    let sender = spawn(lacuna(&["send"]).arg(&file).arg(&receiver.address));
    wait_until("it is received", || partial_in(&dst).is_some());
    sender.signal(Signal::INT);
    assert_eq!(sender.finish().code, 130);
    let received = receiver.finish();
    assert_eq!(received.code, 3, "{}", received.stderr);
    // The other end is told to stop.
    let receiver = Receiver::start(&dst, &[]);
    let mut session = FakeSession::connect(&receiver);
    let records =
        [hello(VERSION), offer_sparse(b"g", TIB, 0), start(0, 0), hole(TIB), end([0; 32])];
    session.say(&records.concat());
    session.hear(&answer(0x82, 0, &[0]));
    receiver.signal(Signal::INT);
    assert_eq!(receiver.finish().code, 130);
}
