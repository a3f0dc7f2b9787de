//! Datagram queue pairs, reliable or not, their group, and strangers who know keys and numbers: memory changes only where
//! a packet says and a key, a receive or a READ allows, everything ends once, and what is reliable comes once and in
//! order. The checks are those of the ordinary tests, which replay the corpus.

#![no_main]

#[path = "../../crates/lacuna-datagram/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::endpoints(bytes));
