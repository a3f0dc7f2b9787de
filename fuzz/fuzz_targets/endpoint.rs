//! One queue pair and a peer that is the input: data packets, control bodies, and the clock.
//! The checks are those of the ordinary tests, which replay the corpus.

#![no_main]

#[path = "../../crates/lacuna-engine/tests/checks/mod.rs"]
mod checks;
#[path = "../../crates/lacuna-engine/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::endpoint::run(bytes);
});
