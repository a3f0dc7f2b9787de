//! Frames from both sides of a gateway: what is no repair passes bit by bit, and memory is bounded. The checks are
//! those of the ordinary tests, which replay the corpus.

#![no_main]

#[path = "../../crates/lacuna-gateway/tests/checks/mod.rs"]
mod checks;
#[path = "../../crates/lacuna-gateway/tests/common/mod.rs"]
mod common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::frames(bytes));
