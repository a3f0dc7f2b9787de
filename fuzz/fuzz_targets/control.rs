//! Bodies of control packets, frame by frame, and descriptions of queue pairs.
//! The checks are those of the ordinary tests, which replay the corpus.

#![no_main]

#[path = "../../crates/lacuna-wire/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::body(bytes));
