//! Two datagram queue pairs, and strangers who know keys and numbers: memory changes only where a packet says and a
//! key, a receive or a READ allows, and everything ends once. The checks are those of the ordinary tests, which replay
//! the corpus.

#![no_main]

#[path = "../../crates/lacuna-datagram/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::endpoints(bytes));
