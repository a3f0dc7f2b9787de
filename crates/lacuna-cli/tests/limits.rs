//! What this machine lacks is told apart from what the network does: with few file
//! descriptors (`ulimit -n`) each command ends with the exit code of this machine and a
//! line that names the limit, whichever descriptor it is that is missing; and servers
//! go on with those whom they serve.
#![cfg(target_os = "linux")]

mod process;

use process::{Running, lacuna, piped, spawn};
use std::net::TcpStream;
use std::process::Command;

/// No command needs as many.
const ENOUGH: u32 = 60;

fn with_descriptors(count: u32, args: &[&str]) -> Command {
    let limit = format!("--nofile={count}:{count}");
    piped("prlimit", &[&[&limit, env!("CARGO_BIN_EXE_lacuna")], args].concat())
}

/// Whether it ended since it has too few descriptors, and has said so.
fn lacks_some(count: u32, args: &[&str], code: i32, stderr: &str) -> bool {
    if stderr.contains("error while loading shared libraries") {
        // It has not begun.
        return true;
    }
    assert!(!stderr.contains("panicked"), "{count}: {args:?}: {stderr}");
    if code == 0 {
        return false;
    }
    assert_eq!(code, 5, "{count}: {args:?}: {stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    let named = format!("this process may have {count} descriptors open; raise that limit");
    assert!(last.contains(&named) && last.contains("ulimit -n"), "{count}: {args:?}: {stderr}");
    assert!(!last.contains("--listen"), "{count}: {args:?}: {stderr}");
    true
}

/// With ever more descriptors, until it works.
fn until_it_works(args: &[&str]) {
    let works = (3..ENOUGH).find(|count| {
        let output = spawn(&mut with_descriptors(*count, args)).finish();
        !lacks_some(*count, args, output.code, &output.stderr)
    });
    assert!(works.is_some(), "{args:?} needs more than {ENOUGH}");
}

/// The same of a server, which works when it listens.
fn listening(args: &[&str]) -> (Running, String, u32) {
    for count in 3..ENOUGH {
        let server = spawn(&mut with_descriptors(count, args));
        let mut said = String::new();
        while let Some(line) = server.next_line() {
            if line.contains("listening on ") {
                let address = line.split("listening on ").nth(1).expect("behind it");
                let address = address.split([',', ' ']).next().expect("a word").to_owned();
                return (server, address, count);
            }
            said += &format!("{line}\n");
        }
        let code = server.finish().code;
        assert!(lacks_some(count, args, code, &said), "{count}: {args:?}: {said}");
    }
    panic!("{args:?} needs more than {ENOUGH}");
}

#[test]
fn each_command_that_lacks_descriptors_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("in/another")).expect("made");
    std::fs::write(tree.join("in/another/file"), vec![7; 200_000]).expect("written");
    let inbox = dir.path().join("inbox");
    let plot = dir.path().join("plot.svg");
    let path = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let (tree, inbox, plot) = (path(&tree), path(&inbox), path(&plot));
    let start = |args: &[&str]| {
        let server = spawn(&mut lacuna(args));
        let address = server.address();
        (server, address)
    };
    let (_receiver, receiver) =
        start(&["recv", "--dir", &inbox, "--listen", "127.0.0.1:0", "--overwrite"]);
    let (_perf, perf) = start(&["perf", "server", "--listen", "127.0.0.1:0"]);
    let (_probe, probe) = start(&["probe", "server", "--listen", "127.0.0.1:0"]);
    let by_name = |address: &str| address.replace("127.0.0.1", "localhost");
    let demo = ["demo", "--size", "64KiB", "--rtt", "1ms", "--rate", "500mbit", "--no-plot"];
    until_it_works(&[&demo[..], &["--runs", "1", "--mode", "sr", "--quiet"]].concat());
    for peer in [&receiver, &by_name(&receiver)] {
        until_it_works(&["send", "--retry", "0s", "--quiet", &tree, peer]);
    }
    until_it_works(&["perf", "client", &by_name(&perf), "-n", "2", "--quiet"]);
    until_it_works(&["probe", "client", &by_name(&probe), "--time", "50ms", "--quiet"]);
    let path = ["--size", "1MiB", "--rate", "1gbit", "--rtt", "5ms", "--loss", "1e-3"];
    until_it_works(&[&["plan", "--plot", &plot], &path[..]].concat());
    let coding = ["ec-bench", "--threads", "1", "--code", "xor", "--rounds", "1", "--chunk"];
    until_it_works(&[&coding[..], &["1KiB", "--quiet"]].concat());
    let wan = ["wan", "run", "--delay", "1ms", "--quiet", "--", "sleep", "1000", "--", "true"];
    if spawn(&mut lacuna(&wan)).finish().code == 0 {
        until_it_works(&wan);
    } else {
        eprintln!("not run: no emulated path here");
    }
}

#[test]
fn each_server_that_lacks_descriptors_says_so_or_serves() {
    let dir = tempfile::tempdir().expect("a folder");
    let inbox = dir.path().join("inbox");
    let inbox = inbox.to_str().expect("text");
    listening(&["recv", "--dir", inbox, "--listen", "127.0.0.1:0"]);
    listening(&["perf", "server", "--listen", "127.0.0.1:0"]);
    let (_server, address, _) = listening(&["probe", "server", "--listen", "127.0.0.1:0"]);
    let client = ["probe", "client", &address, "--time", "50ms"];
    assert_eq!(spawn(&mut lacuna(&client)).finish().code, 0);
}

/// Peers that say nothing hold all that it has, while one is served.
#[test]
fn a_server_without_a_descriptor_left_goes_on_and_takes_others_when_it_has() {
    let listen = ["perf", "server", "--listen", "127.0.0.1:0"];
    let (server, _, count) = listening(&listen);
    drop(server);
    // For some clients at a time, of two connections each.
    let server = spawn(&mut with_descriptors(count + 8, &listen));
    let address = server.address();
    let client = spawn(&mut lacuna(&["perf", "client", &address, "-D", "2s", "--json"]));
    server.wait_for("mode ");
    let silent: Vec<_> = (0..16).map(|_| TcpStream::connect(&address).expect("there")).collect();
    server.wait_for("cannot take a connection at ");
    let output = client.finish();
    assert_eq!((output.code, output.objects().len()), (0, 1), "{output:?}");
    drop(silent);
    let output = spawn(&mut lacuna(&["perf", "client", &address, "-n", "2"])).finish();
    assert_eq!(output.code, 0, "{output:?}");
    let said = server.stderr();
    assert!(said.contains("ulimit -n") && !said.contains("WARN"), "{said}");
    server.signal(rustix::process::Signal::INT);
    assert_eq!(server.finish().code, 130);
}

#[test]
fn advice_fits_what_is_wrong_with_an_address() {
    let taken = spawn(&mut lacuna(&["perf", "server", "--listen", "127.0.0.1:0"]));
    let address = taken.address();
    let output = spawn(&mut lacuna(&["perf", "server", "--listen", &address])).finish();
    assert_eq!(output.code, 5, "{output:?}");
    assert!(output.stderr.contains("choose another with --listen"), "{output:?}");
}
