//! Two queue pairs over a faulty link, doing what the input says, against an oracle.
//! The checks are those of the ordinary tests, which replay the corpus.

#![no_main]

#[path = "../../crates/lacuna-engine/tests/checks/mod.rs"]
mod checks;
#[path = "../../crates/lacuna-engine/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::pair(bytes);
});
