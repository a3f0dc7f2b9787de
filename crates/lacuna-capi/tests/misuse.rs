//! Every function of the headers is misused in every way that applies to it: the
//! table of `tests/c/every_call.c` has all of them, and nothing in it is a crash,
//! under the sanitizers of the C compiler and valgrind too. What needs a library
//! that is itself instrumented is `tests/sanitize.sh`.

mod common;

use common::{Build, Runner, compile, declared, has};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn every_call() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/c/every_call.c")
}

#[test]
fn every_function_of_the_headers_is_misused_in_every_way() {
    let mut tables = BTreeSet::new();
    for build in [Build::Sanitized, Build::C11, Build::Cxx17] {
        let program = compile(&every_call(), build);
        for workers in ["0", "2"] {
            let runner = Runner {
                environment: vec![("LACUNA_SDR_WORKERS", workers.to_owned())],
                ..Runner::default()
            };
            let printed = runner.run(&program, &[]);
            let table = printed.strip_suffix("all misuse answered\n").expect("it got to the end");
            tables.insert(table.to_owned());
        }
    }
    assert_eq!(tables.len(), 1);
    let table = tables.pop_first().unwrap();
    let called: Vec<_> = table.lines().filter_map(|line| line.split(' ').next()).collect();
    let distinct: BTreeSet<_> = called.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(called.len(), distinct.len(), "a function has two rows");
    assert_eq!(distinct, declared());
}

#[test]
fn misuse_leaves_no_trace_that_valgrind_sees() {
    if !has("valgrind") {
        eprintln!("not run: no valgrind");
        return;
    }
    let runner = Runner { valgrind: true, ..Runner::default() };
    runner.run(&compile(&every_call(), Build::C11), &["3"]);
}
