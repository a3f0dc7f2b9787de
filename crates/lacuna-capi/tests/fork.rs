//! A child process does nothing to its parent's connections, whatever it does with
//! what it has inherited, and can make its own: `tests/c/fork.c`, in each kind of
//! progress, and with nothing on standard error.
#![cfg(target_os = "linux")]

mod common;

use common::{Build, Runner, compile, declared, has};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const CONNECTIONS: [&[&str]; 2] = [&["threads"], &["manual"]];
const QUEUE_PAIRS: [&[&str]; 2] = [&["sdr", "udp:127.0.0.1"], &["sdr", "mem"]];

fn source() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/c/fork.c")
}

fn runner(workers: &str) -> Runner {
    Runner { environment: vec![("LACUNA_SDR_WORKERS", workers.to_owned())], ..Runner::default() }
}

/// Runs the program; the functions that a child has called.
fn called(runner: &Runner, program: &Path, arguments: &[&str]) -> BTreeSet<String> {
    let printed = runner.run(program, arguments);
    let functions = printed.strip_suffix("the parent goes on\n").expect("it got to the end");
    let functions: BTreeSet<_> = functions.lines().map(str::to_owned).collect();
    let foreign: Vec<_> = functions.difference(&declared()).cloned().collect();
    assert!(foreign.is_empty(), "on standard output or error: {foreign:?}");
    functions
}

#[test]
fn every_function_is_called_in_a_child_and_the_parent_goes_on() {
    for build in [Build::Sanitized, Build::Cxx17] {
        let program = compile(&source(), build);
        let mut all = BTreeSet::new();
        for arguments in CONNECTIONS {
            all.extend(called(&Runner::default(), &program, arguments));
        }
        for arguments in QUEUE_PAIRS {
            for workers in ["0", "2"] {
                all.extend(called(&runner(workers), &program, arguments));
            }
        }
        assert_eq!(all, declared());
    }
}

#[test]
fn what_a_child_leaves_alone_is_no_stray_access() {
    if !has("valgrind") {
        eprintln!("not run: no valgrind");
        return;
    }
    let program = compile(&source(), Build::C11);
    for arguments in CONNECTIONS.into_iter().chain(QUEUE_PAIRS) {
        let runner = Runner { valgrind: true, loses_memory: true, ..runner("2") };
        called(&runner, &program, arguments);
    }
}
