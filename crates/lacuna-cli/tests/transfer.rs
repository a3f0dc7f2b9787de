//! `lacuna send` and `lacuna recv` as programs, over loopback: what arrives,
//! what is refused, and what happens when either end dies.

#![cfg(unix)]

#[path = "transfer/breaks.rs"]
mod breaks;
#[path = "transfer/codes.rs"]
mod codes;
#[path = "transfer/ends.rs"]
mod ends;
#[path = "transfer/folder.rs"]
mod folder;
#[path = "transfer/hostile.rs"]
mod hostile;
#[path = "transfer/metadata.rs"]
mod metadata;
#[path = "transfer/partials.rs"]
mod partials;
mod process;
#[path = "transfer/sparse.rs"]
mod sparse;
#[path = "transfer/speech.rs"]
mod speech;
#[path = "transfer/strangers.rs"]
mod strangers;
#[path = "transfer/usage.rs"]
mod usage;

use ends::{Receiver, bytes, lacuna, one_file, same_trees, send, wait_until};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

const MIB: usize = 1 << 20;

/// The only partial file in a folder.
fn partial_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| path.as_os_str().as_bytes().ends_with(b".lacuna-part"))
}

fn partial_bytes(folder: &Path) -> u64 {
    partial_in(folder).and_then(|path| Some(path.metadata().ok()?.len())).unwrap_or(0)
}

#[test]
fn a_tree_arrives_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("empty/also empty")).unwrap();
    let mut deep = tree.clone();
    for level in 0..80 {
        deep.push(format!("level {level}"));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), "x").unwrap();
    for (index, name) in
        ["plain", "日本語", "עברית", "🦀", "-rf", " ", "new\nline", "q\"uote\\", "con", "..."]
            .iter()
            .enumerate()
    {
        fs::write(tree.join(name), bytes(index * 1000, index as u64)).unwrap();
    }
    fs::write(tree.join(OsStr::from_bytes(b"no \xFF text")), "bytes").unwrap();
    fs::write(tree.join("x".repeat(255)), "long").unwrap();
    fs::write(tree.join("large"), bytes(9 * MIB + 1, 7)).unwrap();
    fs::set_permissions(tree.join("plain"), fs::Permissions::from_mode(0o4751)).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    fs::File::options().write(true).open(tree.join("plain")).unwrap().set_modified(time).unwrap();
    symlink("/etc/passwd", tree.join("link")).unwrap();

    let receiver = Receiver::start(&dir.path().join("dst"), &["--once", "--json"]);
    let sent = send(&[&tree], &receiver.address, &["--json"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let received = receiver.finish();
    assert_eq!(received.code, 0, "{}", received.stderr);

    fs::remove_file(tree.join("link")).unwrap();
    let arrived = dir.path().join("dst/tree");
    same_trees(&tree, &arrived);
    let plain = arrived.join("plain").metadata().unwrap();
    assert_eq!(plain.mode() & 0o7000, 0, "no setuid bit travels");
    assert_eq!(plain.mode() & 0o700, 0o700);
    assert_eq!((plain.mtime(), plain.mtime_nsec()), (1_234_567_890, 123_456_789));
    for (end, skipped) in [(&sent, 1), (&received, 0)] {
        let summary = end.summary();
        assert_eq!(summary["complete"], true);
        assert_eq!(summary["files"], 14);
        assert_eq!(summary["skipped"], skipped);
        assert_eq!(end.file("tree/plain")["status"], "complete");
        let hash = blake3::hash(&fs::read(tree.join("large")).unwrap()).to_string();
        assert_eq!(end.file("tree/large")["hash"], hash);
        assert_eq!(end.file("tree/日本語")["bytes"], 1000);
    }
    assert!(sent.stderr.contains("mode auto"), "it says what it uses: {}", sent.stderr);
    assert!(received.stderr.contains("mode auto"), "{}", received.stderr);
}

#[test]
fn existing_files_are_kept_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    fs::create_dir(&src).unwrap();
    fs::create_dir_all(dst.join("src")).unwrap();
    for (name, there) in [("same", "12345"), ("size", "1234"), ("content", "54321")] {
        fs::write(src.join(name), "12345").unwrap();
        fs::write(dst.join("src").join(name), there).unwrap();
    }
    fs::write(src.join("folder"), "file here").unwrap();
    fs::create_dir(dst.join("src/folder")).unwrap();
    fs::write(src.join("new"), "new").unwrap();

    let receiver = Receiver::start(&dst, &["--json"]);
    let sent = send(&[&src], &receiver.address, &["--json"]);
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    assert_eq!(sent.file("src/same")["status"], "identical");
    assert_eq!(sent.file("src/new")["status"], "complete");
    for name in ["size", "content", "folder"] {
        let file = sent.file(&format!("src/{name}"));
        assert_eq!(file["status"], "refused", "{name}");
        let error = file["error"].as_str().unwrap();
        assert!(error.contains("exists"), "{file}");
        // No advice that would not help.
        assert_eq!(error.contains("--overwrite"), name != "folder", "{error}");
    }
    assert_eq!(fs::read_to_string(dst.join("src/content")).unwrap(), "54321");
    assert_eq!(fs::read_to_string(dst.join("src/size")).unwrap(), "1234");
    drop(receiver);

    let receiver = Receiver::start(&dst, &["--overwrite", "--once"]);
    let sent = send(&[&src], &receiver.address, &["--json"]);
    assert_eq!(sent.code, 3, "a folder is never replaced by a file");
    assert_eq!(sent.file("src/same")["status"], "identical");
    for name in ["size", "content"] {
        assert_eq!(sent.file(&format!("src/{name}"))["status"], "complete");
        assert_eq!(fs::read_to_string(dst.join("src").join(name)).unwrap(), "12345");
    }
    assert_eq!(receiver.finish().code, 5);
}

#[test]
fn links_in_the_folder_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst, outside) =
        (dir.path().join("src"), dir.path().join("dst"), dir.path().join("outside"));
    fs::create_dir_all(src.join("sub")).unwrap();
    fs::write(src.join("sub/file"), "evil").unwrap();
    fs::write(src.join("target"), "evil").unwrap();
    fs::create_dir_all(dst.join("src")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    symlink(&outside, dst.join("src/sub")).unwrap();
    symlink(outside.join("kept"), dst.join("src/target")).unwrap();
    let receiver = Receiver::start(&dst, &["--overwrite"]);
    let sent = send(&[&src], &receiver.address, &["--json"]);
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    for name in ["src/sub/file", "src/target"] {
        assert_eq!(sent.file(name)["status"], "refused");
        assert!(sent.file(name)["error"].as_str().unwrap().contains("symbolic link"));
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
}

#[test]
fn a_killed_sender_is_resumed() {
    let (_dir, file, dst) = one_file(bytes(48 * MIB, 1));
    let receiver = Receiver::start(&dst, &["--json"]);
    for part in 1..=2 {
        let mut sender =
            lacuna(&["send", "--rate", "1gbit"]).arg(&file).arg(&receiver.address).spawn().unwrap();
        wait_until("a part has arrived", || partial_bytes(&dst) >= part * 12 * MIB as u64);
        sender.kill().unwrap();
        sender.wait().unwrap();
    }
    assert!(!dst.join("file").exists(), "no file has its name before it is whole");
    let sent = send(&[&file], &receiver.address, &["--json"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(fs::read(&file).unwrap() == fs::read(dst.join("file")).unwrap());
    let resumed = sent.file("file")["resumed_at_bytes"].as_u64().unwrap();
    assert!(resumed >= 24 * MIB as u64, "resumed at {resumed}");
    assert!(sent.summary()["moved_bytes"].as_u64().unwrap() <= 24 * MIB as u64);
    assert_eq!(partial_in(&dst), None);
    let text = receiver.stderr();
    assert!(text.contains("lost the sender") && text.contains("are kept"), "{text}");
}

#[test]
fn a_killed_receiver_is_found_again() {
    let (_dir, file, dst) = one_file(bytes(48 * MIB, 2));
    let mut receiver = Receiver::start(&dst, &[]);
    let address = receiver.address.clone();
    let sender = ends::spawn(
        lacuna(&["send", "--json", "--rate", "1gbit", "--retry", "30s"]).arg(&file).arg(&address),
    );
    for part in 1..=2 {
        wait_until("a part has arrived", || partial_bytes(&dst) >= part * 12 * MIB as u64);
        drop(receiver);
        receiver = Receiver::start_at(&address, &dst, &[]);
    }
    let sent = sender.finish();
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(sent.summary()["reconnects"].as_u64().unwrap() >= 2);
    assert!(fs::read(&file).unwrap() == fs::read(dst.join("file")).unwrap());
    assert!(sent.file("file")["resumed_at_bytes"].as_u64().unwrap() >= 24 * MIB as u64);
}

/// Leaves a partial file of at least `len` bytes behind.
fn leave_partial(file: &Path, dst: &Path, len: usize) {
    let receiver = Receiver::start(dst, &[]);
    let mut sender =
        lacuna(&["send", "--rate", "1gbit"]).arg(file).arg(&receiver.address).spawn().unwrap();
    wait_until("a part has arrived", || partial_bytes(dst) >= len as u64);
    sender.kill().unwrap();
    sender.wait().unwrap();
}

#[test]
fn a_partial_file_is_never_joined_to_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let (file, dst) = (dir.path().join("file"), dir.path().join("dst"));
    let mut content = bytes(32 * MIB, 3);
    fs::write(&file, &content).unwrap();
    let resume = |least: usize, most: usize| {
        let receiver = Receiver::start(&dst, &["--once"]);
        let sent = send(&[&file], &receiver.address, &["--json"]);
        assert_eq!(sent.code, 0, "{}", sent.stderr);
        assert!(fs::read(&file).unwrap() == fs::read(dst.join("file")).unwrap());
        let resumed = sent.file("file")["resumed_at_bytes"].as_u64().unwrap() as usize;
        assert!((least..=most).contains(&resumed), "resumed at {resumed}");
        fs::remove_file(dst.join("file")).unwrap();
    };
    // The partial file is damaged at its end: only the end is sent again.
    leave_partial(&file, &dst, 16 * MIB);
    let partial = partial_in(&dst).unwrap();
    let mut damaged = fs::read(&partial).unwrap();
    let len = damaged.len();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&partial, &damaged).unwrap();
    resume(len - 4 * MIB, len - 4 * MIB);
    // At its beginning: everything.
    leave_partial(&file, &dst, 16 * MIB);
    let partial = partial_in(&dst).unwrap();
    let mut damaged = fs::read(&partial).unwrap();
    damaged[0] ^= 1;
    fs::write(&partial, &damaged).unwrap();
    resume(0, 0);
    // It is longer than the file has become.
    leave_partial(&file, &dst, 16 * MIB);
    fs::write(&file, &content[..5 * MIB]).unwrap();
    resume(5 * MIB, 5 * MIB);
    // The source is another one now.
    fs::write(&file, &content).unwrap();
    leave_partial(&file, &dst, 16 * MIB);
    content[3 * MIB] ^= 1;
    fs::write(&file, &content).unwrap();
    resume(0, 3 * MIB);
}

#[test]
fn a_write_that_fails_leaves_what_came() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("dst");
    // In this order: what follows a file that failed must not suffer for it.
    let files = ["large", "medium", "small"].map(|name| dir.path().join(name));
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    for (path, len) in paths.iter().zip([64 * MIB, 6 * MIB, 10]) {
        fs::write(path, bytes(len, 4)).unwrap();
    }
    // 10 MiB per file, in blocks of 512 bytes.
    let receiver = Receiver::start_limited(20_480, &dst, &["--once"]);
    let sent = send(&paths, &receiver.address, &["--json", "--buffers", "8MiB"]);
    assert_eq!(sent.code, 3, "{}", sent.stderr);
    assert_eq!(sent.file("medium")["status"], "complete", "{}", sent.stderr);
    assert_eq!(sent.file("small")["status"], "complete", "{}", sent.stderr);
    let error = sent.file("large")["error"].as_str().unwrap().to_owned();
    assert!(error.contains("the receiver: cannot write: File too large"), "{error}");
    assert_eq!(receiver.finish().code, 5);
    assert_eq!(partial_bytes(&dst), 10 * MIB as u64);

    let receiver = Receiver::start(&dst, &["--once"]);
    let sent = send(&paths, &receiver.address, &["--json"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert_eq!(sent.file("large")["resumed_at_bytes"], 10 * MIB);
    assert_eq!(sent.file("medium")["status"], "identical");
    for path in paths {
        let there = dst.join(path.file_name().unwrap());
        assert!(fs::read(path).unwrap() == fs::read(there).unwrap(), "{}", path.display());
    }
    assert_eq!(receiver.finish().code, 0);
}

#[test]
fn ctrl_c_ends_either_end_in_good_order() {
    let (_dir, file, dst) = one_file(bytes(48 * MIB, 6));
    // The sender, in the middle of a file.
    let receiver = Receiver::start(&dst, &[]);
    let slow = |address: &str| {
        let mut command = lacuna(&["send", "--rate", "500mbit", "--retry", "0s"]);
        ends::spawn(command.arg(&file).arg(address))
    };
    let sender = slow(&receiver.address);
    wait_until("a part has arrived", || partial_bytes(&dst) >= 8 * MIB as u64);
    sender.signal(Signal::INT);
    let sent = sender.finish();
    assert_eq!(sent.code, 130, "{}", sent.stderr);
    assert!(sent.stderr.contains("lacuna: interrupted"), "{}", sent.stderr);
    assert_eq!(sent.stderr.matches("interrupted").count(), 1, "{}", sent.stderr);
    assert!(sent.stderr.contains("MiB of file; the same command resumes"), "{}", sent.stderr);
    assert!(sent.stderr.contains("the receiver keeps"), "{}", sent.stderr);
    // The receiver, in the middle of the next attempt.
    let before = partial_bytes(&dst);
    let sender = slow(&receiver.address);
    wait_until("more has arrived", || partial_bytes(&dst) >= before + 8 * MIB as u64);
    receiver.signal(Signal::INT);
    let received = receiver.finish();
    assert_eq!(received.code, 130, "{}", received.stderr);
    assert!(received.stderr.contains("lacuna: interrupted"), "{}", received.stderr);
    assert_eq!(received.stderr.matches("interrupted").count(), 1, "{}", received.stderr);
    assert!(received.stderr.contains("MiB of file are kept"), "{}", received.stderr);
    let sent = sender.finish();
    assert_eq!(sent.code, 3);
    assert!(sent.stderr.contains("the receiver closed the connection"), "{}", sent.stderr);
    assert!(partial_bytes(&dst) >= before + 8 * MIB as u64);
    // A receiver that waits.
    let receiver = Receiver::start(&dst, &[]);
    receiver.signal(Signal::INT);
    assert_eq!(receiver.finish().code, 130);
}

#[test]
fn a_peer_that_is_not_there_is_said_at_once() {
    let (dir, file, _) = one_file("x");
    // A port where nobody listens: taken and given back.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let sent = send(&[&file], &free, &[]);
    assert_eq!(sent.code, 3);
    assert!(sent.stderr.contains(&format!("cannot reach {free}")), "{}", sent.stderr);
    assert_eq!(sent.stdout, "", "there is nothing to sum up");
    // One that is in use.
    let used = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = used.local_addr().unwrap().to_string();
    let mut command = lacuna(&["recv", "--listen", &address, "--dir"]);
    let received = ends::spawn(command.arg(dir.path().join("dst"))).finish();
    assert_eq!(received.code, 5);
    assert!(!dir.path().join("dst").exists(), "nothing is made for nothing");
    assert!(
        received.stderr.contains(&format!("cannot listen on {address}")),
        "{}",
        received.stderr
    );
    // Something else that listens.
    let other = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut peer = used.accept().unwrap().0;
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        // Closing before everything was read would cut the answer off.
        let _ = peer.read_to_end(&mut Vec::new());
    });
    let sent = send(&[&file], &address, &[]);
    other.join().unwrap();
    assert_eq!(sent.code, 3);
    assert!(sent.stderr.contains("does not speak Lacuna"), "{}", sent.stderr);
}

#[test]
fn two_senders_are_served_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("dst");
    let receiver = Receiver::start(&dst, &[]);
    let senders: Vec<_> = (0..3u64)
        .map(|index| {
            let file = dir.path().join(format!("file{index}"));
            fs::write(&file, bytes(4 * MIB, index)).unwrap();
            (ends::spawn(lacuna(&["send"]).arg(&file).arg(&receiver.address)), file)
        })
        .collect();
    for (sender, file) in senders {
        let sent = sender.finish();
        assert_eq!(sent.code, 0, "{}", sent.stderr);
        assert!(fs::read(&file).unwrap() == fs::read(dst.join(file.file_name().unwrap())).unwrap());
    }
}

#[test]
fn results_that_nobody_reads_hold_up_neither_the_transfer_nor_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, dst) = (dir.path().join("tree"), dir.path().join("dst"));
    fs::create_dir(&tree).unwrap();
    // Far more lines than a pipe holds.
    for index in 0..1000 {
        fs::write(tree.join(index.to_string()), "x").unwrap();
    }
    let receiver = Receiver::start_unread(&dst);
    let sent = send(&[&tree], &receiver.address, &["--retry", "0s"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    same_trees(&tree, &dst.join("tree"));
    receiver.signal(Signal::INT);
    assert_eq!(receiver.finish().code, 130);
}
