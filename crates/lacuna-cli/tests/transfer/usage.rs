//! Command lines: where the words may stand, and what a wrong one is answered.

use crate::ends::{Finished, Receiver, lacuna, one_file, send, spawn, wait_until};
use std::fs;
use std::path::PathBuf;

/// Two files to send and the folder they are in.
fn files() -> (tempfile::TempDir, [PathBuf; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let files = ["a", "b"].map(|name| dir.path().join(name));
    for file in &files {
        fs::write(file, "x").unwrap();
    }
    (dir, files)
}

/// It ends with code 2, in one line of its own.
fn is_usage(finished: &Finished, part: &str) {
    assert_eq!(finished.code, 2, "{part}: {}", finished.stderr);
    assert!(finished.stderr.contains(part), "{part}: {}", finished.stderr);
    assert!(finished.stdout.is_empty() && !finished.stderr.contains("panicked"));
}

#[test]
fn options_may_stand_anywhere() {
    let (dir, [a, b]) = files();
    let dst = dir.path().join("dst");
    let receiver = Receiver::start(&dst, &["--once"]);
    let mut command = lacuna(&["send", "--retry", "0s"]);
    command.arg(&a).args(["--mode", "sr:rto"]).arg(&b).arg("--json").arg(&receiver.address);
    let sent = spawn(command.arg("--quick")).finish();
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert_eq!(sent.summary()["files"], 2);
    assert!(dst.join("a").exists() && dst.join("b").exists());
}

#[test]
fn a_code_is_taken_as_a_mode_and_said() {
    let (dir, [a, b]) = files();
    let receiver = Receiver::start(&dir.path().join("dst"), &[]);
    for (mode, said) in [("ec", "mode ec:mds:32:8"), ("ec:xor:4:2", "mode ec:xor:4:2")] {
        let sent = send(&[&a, &b], &receiver.address, &["--mode", mode]);
        assert_eq!(sent.code, 0, "{}", sent.stderr);
        assert!(sent.stderr.contains(said), "{}", sent.stderr);
    }
    assert!(dir.path().join("dst/b").exists());
}

#[test]
fn fewer_channels_than_asked_for_are_said() {
    let (dir, [a, _]) = files();
    let receiver = Receiver::start(&dir.path().join("dst"), &["--channels", "2"]);
    let sent = send(&[&a], &receiver.address, &["--channels", "4"]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    assert!(sent.stderr.contains("2 of 4 channels (the peer"), "{}", sent.stderr);
    wait_until("it says so", || receiver.stderr().contains(" 2 channels,"));
    let sent = send(&[&a], &receiver.address, &[]);
    assert!(sent.stderr.contains(" 1 channel,"), "{}", sent.stderr);
    wait_until("it says so", || receiver.stderr().contains("1 of 2 channels (the peer"));
}

#[test]
fn a_forgotten_or_wrong_receiver_is_said() {
    let (dir, [a, b]) = files();
    is_usage(&send(&[&a], b.to_str().unwrap(), &[]), "no receiver");
    is_usage(&spawn(lacuna(&["send"]).arg(&a)).finish(), "no receiver");
    is_usage(&spawn(&mut lacuna(&["send", "127.0.0.1:7400"])).finish(), "nothing to send");
    is_usage(&send(&[&a], "127.0.0.1:99999", &[]), "port 99999 is out of range");
    let mut listening = lacuna(&["recv", "--listen", "99999", "--dir"]);
    is_usage(&spawn(listening.arg(dir.path())).finish(), "out of range");
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused() {
    let (dir, file, _) = one_file("x");
    let twice = send(&[&file, &file], "127.0.0.1:1", &[]);
    assert_eq!((twice.code, twice.stderr.contains("two of the paths")), (2, true));
    let absent = send(&[&dir.path().join("absent")], "127.0.0.1:1", &[]);
    assert_eq!((absent.code, absent.stderr.contains("cannot read")), (5, true));
}

#[test]
fn every_bad_value_is_answered_with_what_would_be_right() {
    let (dir, [a, _]) = files();
    for (option, value, part) in [
        ("--retry", "soon", "25ms"),
        ("--retry", "5", "use us, ms, s, min, h or d"),
        ("--mode", "magic", "unknown mode \"magic\""),
        ("--mode", "raw", "raw does not repair losses: use auto, sr, sr:rto"),
        ("--mode", "ec:mds:32", "KIND:K:M"),
        ("--rate", "1", "use bit, kbit, mbit or gbit"),
        ("--rate", "1GB/s", "1GB/s is 8gbit"),
        ("--cc", "reno", "possible values: bbr, cubic, fixed"),
        ("--cc", "fixed", "needs a --rate"),
        ("--mtu", "large", "a size like 1400"),
        ("--mtu", "70000", "multiple of 4 between 64"),
        ("--chunk", "0", "more than zero"),
        ("--chunk", "some", "a size like 64MiB"),
        ("--channels", "17", "use 1 to 16"),
        ("--buffers", "1KiB", "use 8 MiB to 2 GiB"),
    ] {
        is_usage(&send(&[&a], "127.0.0.1:1", &[option, value]), part);
    }
    for (args, part) in [
        (&["--listen", "somewhere"][..], "use ADDRESS:PORT"),
        (&["--channels", "0"], "use 1 to 16"),
        (&["--buffers", "9TiB"], "use 8 MiB to 2 GiB"),
        (&["--clean", "--older-than", "7"], "use us, ms, s, min, h or d"),
        (&["--clean", "--once"], "cannot be used with '--once'"),
        (&["--older-than", "7d"], "--clean"),
    ] {
        let mut command = lacuna(&["recv", "--dir"]);
        is_usage(&spawn(command.arg(dir.path()).args(args)).finish(), part);
    }
    is_usage(&spawn(&mut lacuna(&["recv", "--clean"])).finish(), "--dir <DIR>");
}

#[test]
fn help_explains_modes_units_and_partial_files() {
    for (command, parts) in [
        (
            "send",
            &["Regular files", "Examples:", "- auto:", "- sr:rto:", "Units:", "Resuming:"][..],
        ),
        (
            "recv",
            &["Everything stays", "Examples:", "Partial files:", "Room:", "--clean", "Units:"],
        ),
        ("send", &["umask\n  applies", "owner can always read", "Sparse files:"]),
        ("recv", &["umask\n  applies", "owner can always read", "Sparse files:", "The folder:"]),
    ] {
        let help = spawn(&mut lacuna(&[command, "--help"])).finish();
        assert_eq!(help.code, 0);
        for part in parts {
            assert!(help.stdout.contains(part), "{command} {part}: {}", help.stdout);
        }
    }
}
