//! Time and permissions of what is at the receiver already.

use crate::ends::{Receiver, send};
use crate::speech::{FakeSession, VERSION, answer, hello, offer};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

fn touch(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Time and permissions.
fn state(path: &Path) -> (i64, i64, u32) {
    let metadata = path.metadata().unwrap();
    (metadata.mtime(), metadata.mtime_nsec(), metadata.mode() & 0o7777)
}

/// Whether it was looked into for `--quick`.
fn was_read(file: &serde_json::Value) -> bool {
    !file["hash"].is_null()
}

#[test]
fn what_only_changed_in_time_or_permissions_is_brought_up_to_date_without_moving() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    fs::create_dir_all(src.join("folder")).unwrap();
    for (name, content) in [("file", "content"), ("empty", ""), ("folder/same", "same")] {
        fs::write(src.join(name), content).unwrap();
        touch(&src.join(name), 1_000_000_000);
        chmod(&src.join(name), 0o644);
    }
    chmod(&src.join("folder"), 0o755);
    for quick in [&[][..], &["--quick"]] {
        let receiver = Receiver::start(&dst, &[]);
        assert_eq!(send(&[&src], &receiver.address, &[]).code, 0);
        drop(receiver);
        let sync = |updated: usize| {
            let receiver = Receiver::start(&dst, &["--json", "--once"]);
            let sent = send(&[&src], &receiver.address, &[&["--json"], quick].concat());
            let received = receiver.finish();
            assert_eq!((sent.code, received.code), (0, 0), "{}{}", sent.stderr, received.stderr);
            for end in [&sent, &received] {
                let summary = end.summary();
                assert_eq!(summary["identical"], 3);
                assert_eq!(summary["updated"], updated, "{}", end.stdout);
                assert_eq!(summary["moved_bytes"], 0);
                assert_eq!(summary["folders"], 2);
            }
            for name in ["file", "empty", "folder", "folder/same"] {
                let (here, there) = (state(&src.join(name)), state(&dst.join("src").join(name)));
                assert_eq!(here.2, there.2, "{name}");
                // Folders have times of their own.
                assert!(name == "folder" || here == there, "{name}: {here:?} {there:?}");
            }
            (sent, received)
        };
        sync(0);
        touch(&src.join("file"), 1_100_000_000);
        touch(&src.join("empty"), 1_100_000_000);
        let (sent, received) = sync(2);
        for end in [&sent, &received] {
            for (name, updated) in [("file", true), ("empty", true), ("folder/same", false)] {
                let file = end.file(&format!("src/{name}"));
                assert_eq!(
                    (file["status"].as_str(), &file["updated"]),
                    (Some("identical"), &updated.into()),
                    "{file}"
                );
            }
        }
        assert!(was_read(&sent.file("src/file")));
        let (sent, _) = sync(0);
        assert_eq!(was_read(&sent.file("src/file")), quick.is_empty(), "the next one is quick");
        // Within what the coarsest file system tells apart.
        touch(&src.join("file"), 1_100_000_001);
        sync(1);
        chmod(&src.join("file"), 0o600);
        chmod(&src.join("empty"), 0o755);
        chmod(&src.join("folder"), 0o700);
        let (sent, _) = sync(3);
        assert_eq!(was_read(&sent.file("src/file")), quick.is_empty(), "permissions need no look");
        sync(0);
        for (name, mode) in [("file", 0o644), ("empty", 0o644), ("folder", 0o755)] {
            chmod(&src.join(name), mode);
        }
        touch(&src.join("file"), 1_000_000_000);
        touch(&src.join("empty"), 1_000_000_000);
        fs::remove_dir_all(&dst).unwrap();
    }
}

#[test]
fn the_summary_for_people_says_what_was_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let (file, dst) = (dir.path().join("file"), dir.path().join("dst"));
    fs::write(&file, "content").unwrap();
    let receiver = Receiver::start(&dst, &[]);
    assert!(!send(&[&file], &receiver.address, &[]).stdout.contains("up to date"));
    touch(&file, 1_000_000_000);
    let sent = send(&[&file], &receiver.address, &[]);
    let told = "1 already there, 1 brought up to date in time or permissions";
    assert!(sent.stdout.contains(told), "{}", sent.stdout);
}

#[test]
fn the_umask_applies_and_the_owner_can_read() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    fs::create_dir(&src).unwrap();
    let modes = [(0o777, 0o750), (0o666, 0o640), (0o444, 0o440), (0o600, 0o600)];
    // Only the superuser can read a file that nobody may.
    let is_root = rustix::process::geteuid().is_root();
    let modes = modes.into_iter().chain(is_root.then_some((0o000, 0o400)));
    let modes: Vec<(u32, u32)> = modes.collect();
    for (sent, _) in &modes {
        let path = src.join(format!("{sent:o}"));
        fs::write(&path, "x").unwrap();
        chmod(&path, *sent);
    }
    chmod(&src, 0o777);
    for updated in [0, modes.len() + 1] {
        if updated > 0 {
            // Somebody changes them at the receiver.
            for (sent, given) in &modes {
                chmod(&dst.join("src").join(format!("{sent:o}")), given ^ 0o110);
            }
            chmod(&dst.join("src"), 0o700);
        }
        let receiver = Receiver::start_with_umask("027", &dst, &["--once"]);
        let sent = send(&[&src], &receiver.address, &["--json"]);
        assert_eq!(sent.code, 0, "{}", sent.stderr);
        assert_eq!(sent.summary()["updated"], updated);
        assert_eq!(receiver.finish().code, 0);
        for (sent, given) in &modes {
            assert_eq!(state(&dst.join("src").join(format!("{sent:o}"))).2, *given, "{sent:o}");
        }
        assert_eq!(state(&dst.join("src")).2, 0o750);
    }
}

#[test]
fn a_file_of_another_user_is_told_and_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    fs::create_dir(&src).unwrap();
    fs::create_dir_all(dst.join("src")).unwrap();
    for path in [src.join("file"), dst.join("src/file")] {
        fs::write(path, "content").unwrap();
    }
    for open in [dir.path(), &dst, &dst.join("src")] {
        chmod(open, 0o755);
    }
    chmod(&src, 0o700);
    touch(&src.join("file"), 1_000_000_000);
    let before = state(&dst.join("src/file"));
    let Some(receiver) = Receiver::start_as_nobody(&dst, &["--once", "--json"]) else {
        eprintln!("skipped: this user cannot become another");
        return;
    };
    let sent = send(&[&src], &receiver.address, &["--json"]);
    let received = receiver.finish();
    assert_eq!((sent.code, received.code), (0, 0), "{}{}", sent.stderr, received.stderr);
    for end in [&sent, &received] {
        assert_eq!(end.summary()["complete"], true);
        assert_eq!(end.summary()["updated"], 0);
        let file = end.file("src/file");
        assert_eq!(file["status"], "identical");
        let told = "its time and permissions cannot be brought up to date: Operation not permitted";
        assert!(file["error"].as_str().unwrap().contains(told), "{file}");
        assert_eq!(end.stderr.matches(told).count(), 2, "the file and its folder: {}", end.stderr);
    }
    assert_eq!(state(&dst.join("src/file")), before);
}

#[test]
fn a_file_that_changed_since_it_was_compared_does_not_get_the_time_of_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let dst = dir.path().join("dst");
    fs::create_dir(&dst).unwrap();
    let file = dst.join("f");
    for change in [false, true] {
        fs::write(&file, "content").unwrap();
        let receiver = Receiver::start(&dst, &["--once"]);
        let mut session = FakeSession::connect(&receiver);
        session.say(&[hello(VERSION), offer(b"f", 7)].concat());
        session.hear(&answer(0x83, 0, blake3::hash(b"content").as_bytes()));
        if change {
            fs::write(&file, "another").unwrap();
        }
        // The same.
        session.say(&[&[6][..], &[0; 8], &[9]].concat());
        session.hear(&answer(0x84, 0, &[if change { 1 } else { 5 }]));
        session.hear(&[0x86]);
        assert_eq!(receiver.finish().code, 0);
        assert_eq!(state(&file).0 == 0, !change, "offered with the time 0");
    }
}
